"""Files that other readers would trust, and that must not reach them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.fuzz import mutations
from tests.fuzz.thrift_places import Place, encoded, exchanged, integer, places

from needlepoint.errors import NotParquet
from needlepoint.objects import identify
from needlepoint.parquet.card.describe import build_card
from needlepoint.parquet.format import thrift, validation
from needlepoint.parquet.format.validation import ensure_sound

COLUMNS = {
    "id": pa.array(range(300), pa.int64()),
    "word": pa.array(["a", "b", None] * 100),
    "list": pa.array([[1, 2], [], None] * 100, pa.list_(pa.int64())),
    "fixed": pa.array([b"0123"] * 300, pa.binary(4)),
}
LEAVES = {"id": 0, "word": 1, "list": 2, "fixed": 3}
# parquet.thrift, ColumnMetaData, by field
CODEC, NUM_VALUES, UNCOMPRESSED, COMPRESSED, DATA_PAGE, DICTIONARY_PAGE = 4, 5, 6, 7, 9, 11


@pytest.fixture
def data(tmp_path: Path) -> bytes:
    path = tmp_path / "good.parquet"
    pq.write_table(pa.table(COLUMNS), path, write_page_index=True)
    return path.read_bytes()


def with_values(data: bytes, chosen: Callable[[Place], bool], value: bytes) -> bytes:
    at, footer = mutations._footer(data)
    found, _ = places(footer)
    values = {place: value for place in found if chosen(place)}
    assert values
    return mutations.with_footer(data[:at], exchanged(footer, values))


def of_chunk(column: str, field: int) -> Callable[[Place], bool]:
    return lambda place: place.path == (4, 0, 1, LEAVES[column], 3, field)


def refused(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "bad.parquet"
    path.write_bytes(data)
    with pytest.raises(NotParquet) as by_card:
        build_card(str(path))
    with pytest.raises(NotParquet) as alone:
        ensure_sound(str(path))
    assert str(by_card.value) == str(alone.value) and by_card.value.hint
    return str(alone.value)


@pytest.mark.parametrize(
    ("column", "field", "value", "problem"),
    [
        ("list", NUM_VALUES, 2**38, "claims 274,877,906,944 values"),
        ("id", NUM_VALUES, 2**38, "does not have a value for each row"),
        ("id", CODEC, 99, "a codec 99"),
        ("id", COMPRESSED, -1, "is outside the file"),
        ("id", COMPRESSED, 2**40, "is outside the file"),
        ("id", UNCOMPRESSED, 2**50, "would become"),
        ("id", UNCOMPRESSED, -5, "would become"),
        ("id", DATA_PAGE, 2**40, "is outside the file"),
        ("word", DICTIONARY_PAGE, -8, "is outside the file"),
        ("word", DICTIONARY_PAGE, 2**33, "is outside the file"),
    ],
)
def test_numbers_of_a_chunk(tmp_path: Path, data: bytes, column: str, field: int, value: int, problem: str) -> None:
    assert problem in refused(tmp_path, with_values(data, of_chunk(column, field), encoded(value)))


def test_places_of_indexes(tmp_path: Path, data: bytes) -> None:
    changed = with_values(data, lambda place: place.path == (4, 0, 1, 0, 6), encoded(2**31 - 1))
    assert "an index of column id is outside the file" in refused(tmp_path, changed)


def test_histograms_of_other_levels(tmp_path: Path, data: bytes) -> None:
    """pyarrow ends the process when it looks at such a chunk. SchemaElement { 3: repetition_type }."""
    path = tmp_path / "sound.parquet"
    path.write_bytes(data)
    ensure_sound(str(path))
    for element, repetition in ((4, 0), (5, 0), (5, 2)):
        bad = with_values(data, lambda place, at=element: place.path == (2, at, 3), encoded(repetition))
        problem = refused(tmp_path, bad)
        assert "histogram of other levels" in problem and "list" in problem


@pytest.mark.parametrize("path", [(2, 1, 3), (2, 6, 2), (4, 0, 1, 1, 3, 11), (4, 0, 1, 0, 5), (4, 0, 3), (1,)])
def test_integers_of_another_width(tmp_path: Path, data: bytes, path: tuple[int, ...]) -> None:
    """pyarrow passes over such a field and DataFusion takes it: they would read two different files."""
    at, footer = mutations._footer(data)
    place = next(place for place in places(footer)[0] if place.path == path)
    for kind in {thrift.I16, thrift.I32, thrift.I64} - {place.kind}:
        header = bytes((footer[place.start - 1] & 0xF0 | kind,))
        assert footer[place.start - 1] & 0x0F == place.kind
        changed = footer[: place.start - 1] + header + footer[place.start :]
        assert f"field {path[-1]} is an integer of" in refused(tmp_path, mutations.with_footer(data[:at], changed))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("footer_too", [False, True])
def test_pages_of_more_values_than_levels(tmp_path: Path, version: str, footer_too: bool) -> None:
    """DataFusion never ends when it skips rows of such a page."""
    path = tmp_path / "list.parquet"
    table = pa.table({"list": pa.array([[1, 2], [3], []] * 40)})
    pq.write_table(table, path, data_page_version=version, max_rows_per_page=40, compression="none")
    ensure_sound(str(path))
    data = path.read_bytes()
    chunk = mutations._chunks(data)[0]
    found, _ = places(data, mutations._headers(data, chunk)[1])
    count = next(place for place in found if place.path in ((5, 1), (8, 1)))
    changed = data[: count.start] + encoded(integer(data, count) + 5) + data[count.end :]
    assert len(changed) == len(data)
    if footer_too:
        changed = with_values(changed, of_chunk("id", NUM_VALUES), encoded(chunk.num_values + 5))
    problem = refused(tmp_path, changed)
    assert "has fewer levels" in problem and "list" in problem


def test_values_of_fixed_length(tmp_path: Path, data: bytes) -> None:
    changed = with_values(data, lambda place: place.path[:1] == (2,) and place.path[2:] == (2,), encoded(2**31 - 1))
    assert "would have 2147483647 bytes each" in refused(tmp_path, changed)


@pytest.mark.parametrize("factor", [2**20, 2**38])
def test_counts_that_agree_with_each_other(tmp_path: Path, data: bytes, factor: int) -> None:
    """All counts of a file with one row group are multiplied: only the pages show that they are wrong."""
    changed = with_values(
        data,
        lambda place: place.path in ((3,), (4, 0, 3)) or place.path[4:] == (3, NUM_VALUES),
        encoded(300 * factor),
    )
    assert "its pages have" in refused(tmp_path, changed)


def test_the_dictionary_of_a_chunk(tmp_path: Path, data: bytes) -> None:
    """Readers allocate memory for the number of values in its header."""
    chunk = mutations._chunks(data)[LEAVES["word"]]
    found, _ = places(data, chunk.start)
    count = next(place for place in found if place.path == (7, 1))
    value = encoded(2**31 - 1)
    body, footer = mutations._moved(data, count.end, len(value) - (count.end - count.start), chunk.start)
    changed = mutations.with_footer(body[: count.start] + value + body[count.end :], footer)
    assert "the dictionary of column word claims 2,147,483,647 values" in refused(tmp_path, changed)


def test_millions_of_equal_values(tmp_path: Path) -> None:
    """They take few bytes, and still pass: the page headers have the same number of values."""
    path = tmp_path / "equal.parquet"
    rows = 8_000_000
    equal = pa.table({"x": pa.nulls(rows, pa.int64())})
    pq.write_table(equal, path, row_group_size=rows, data_page_size=1 << 30, max_rows_per_page=rows)
    assert validation._is_doubtful(rows, path.stat().st_size)
    ensure_sound(str(path))


def test_a_version_of_a_file_is_looked_at_once(tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "good.parquet"
    ensure_sound(str(path), identify(str(path)))
    monkeypatch.setattr(validation, "open_object", lambda *_: pytest.fail("it was read again"))
    ensure_sound(str(path), identify(str(path)))


def test_a_refusal_is_remembered_until_the_file_is_another(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "changing.parquet"
    path.write_bytes(with_values(data, of_chunk("id", CODEC), encoded(99)))
    for _ in range(2):
        with pytest.raises(NotParquet, match="a codec 99"):
            ensure_sound(str(path), identify(str(path)))
    path.write_bytes(data)
    ensure_sound(str(path), identify(str(path)))


def test_most_damage_is_found_or_harmless(tmp_path: Path, data: bytes) -> None:
    """No error but NotParquet, whatever the footer says."""
    path = tmp_path / "bad.parquet"
    chance = random.Random(4)
    for _ in range(300):
        path.write_bytes(mutations.mutated(data, chance).data)
        try:
            build_card(str(path))
        except NotParquet as error:
            assert error.hint
