"""Finding pages by their headers: how much is read, and what malicious headers can do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases, long
from tests.unit.parquet.reading import check_subsets

from needlepoint.errors import NotParquet
from needlepoint.objects.local import LocalFile
from needlepoint.parquet.card.describe import build_card, describe
from needlepoint.parquet.format import page_headers
from needlepoint.parquet.format.footer import read_footer
from needlepoint.parquet.format.page_headers import (
    DATA_PAGE,
    DATA_PAGE_V2,
    DICTIONARY_PAGE,
    Chunk,
    ChunkPages,
    parse_header,
    skim_header,
    walk,
)
from needlepoint.parquet.format.thrift import ThriftError, Writer, varint
from needlepoint.parquet.read.page_reader import read_rows

Lake = Callable[[str], str]


def page(
    values: int, body: bytes = b"", *, kind: int = DATA_PAGE, rows: int | None = None, size: int | None = None,
    bounds: tuple[bytes, bytes] | None = None, nulls: int | None = None, repetition: int = 3, levels: int = 0,
) -> bytes:  # fmt: skip
    """A page with these values in its header."""
    writer = Writer()
    writer.integer32(1, kind)
    writer.integer32(2, len(body) if size is None else size)
    writer.integer32(3, len(body) if size is None else size)
    statistics = Writer()
    if nulls is not None:
        statistics.integer64(3, nulls)
    if bounds is not None:
        statistics.binary(5, bounds[1])
        statistics.binary(6, bounds[0])
    if kind == DATA_PAGE_V2:
        writer.begin(8)
        for field, number in ((1, values), (2, nulls or 0), (3, values if rows is None else rows), (4, 0), (5, 0)):
            writer.integer32(field, number)
        writer.integer32(6, levels)
        if bounds is not None:
            writer.raw(8, 12, statistics.finish())
    elif kind == DICTIONARY_PAGE:
        writer.begin(7)
        writer.integer32(1, values)
        writer.integer32(2, 0)
    else:
        writer.begin(5)
        for field, number in ((1, values), (2, 0), (3, 3), (4, repetition)):
            writer.integer32(field, number)
        if bounds is not None or nulls is not None:
            writer.raw(5, 12, statistics.finish())
    writer.end()
    return writer.finish() + body


def levels(*values: int) -> bytes:
    """The body of a version 1 page: the length of the repetition levels, then each level as its own run."""
    runs = b"".join(varint(1 << 1) + bytes([value]) for value in values)
    return len(runs).to_bytes(4, "little") + runs


@pytest.fixture
def walked(tmp_path: Path) -> Callable[..., ChunkPages | None]:
    def run(
        *pages: bytes, rows: int, values: int | None = None, repetition: int = 0, codec: int = 0
    ) -> ChunkPages | None:
        data = b"".join(pages)
        path = tmp_path / "chunk"
        path.write_bytes(b"PAR1" + data)
        chunk = Chunk(4, 4 + len(data), rows if values is None else values, rows, codec, repetition)
        with LocalFile(str(path)) as file:
            (found,) = walk(file, [chunk])
            assert file.bytes_requested <= 4 * file.size + page_headers.LARGEST_WINDOW
        return found

    return run


Walker = Callable[..., ChunkPages | None]


def test_flat_pages_and_their_bounds(walked: Walker) -> None:
    first = page(10, b"x" * 30, bounds=(b"a", b"c"), nulls=2)
    found = walked(
        page(3, b"dictionary", kind=DICTIONARY_PAGE), first, page(5, b"y" * 9, nulls=5),
        page(7, b"z", bounds=(b"", b"d"), nulls=0), rows=22,
    )  # fmt: skip
    assert found is not None and found.bounds is not None and found.bounds.null_counts is not None
    start = 4 + len(page(3, b"dictionary", kind=DICTIONARY_PAGE))
    assert found.pages.offset.tolist()[:2] == [start, start + len(first)]
    assert found.pages.first_row_index.tolist() == [0, 10, 15]
    assert not found.joined
    assert found.bounds.null_pages.tolist() == [False, True, False]
    assert found.bounds.null_counts.tolist() == [2, 5, 0]
    assert found.bounds.min_values == (b"a", b"", b"") and found.bounds.max_values == (b"c", b"", b"d")


def test_a_page_without_bounds(walked: Walker) -> None:
    with_bounds = page(10, bounds=(b"a", b"c"))
    found = walked(with_bounds, page(5, nulls=4), rows=15)
    assert found is not None and found.bounds is None
    found = walked(with_bounds, page(5, bounds=(b"b", b"b")), rows=15)
    assert found is not None and found.bounds is not None and found.bounds.null_counts is None


def test_records_that_go_on_in_the_next_page(walked: Walker) -> None:
    bounds = (b"a", b"b")
    pages = [page(3, levels(0, 1, 0), bounds=bounds), page(2, levels(1, 1)), page(2, levels(1, 0)),
             page(2, levels(0, 0)), page(0, levels())]  # fmt: skip
    found = walked(*pages, rows=5, values=9, repetition=1)
    assert found is not None and found.bounds is None
    assert found.pages.first_row_index.tolist() == [0, 3]
    assert found.pages.compressed_page_size.tolist()[0] == sum(map(len, pages[:3]))
    assert found.joined


def test_pages_of_no_rows(walked: Walker) -> None:
    found = walked(page(0, b"q"), page(0), page(3, b"r"), page(0), page(4), rows=7)
    assert found is not None
    assert found.pages.first_row_index.tolist() == [0, 3]
    assert found.pages.offset.tolist()[0] == 4
    assert found.joined


def test_version_2(walked: Walker) -> None:
    body = varint(1 << 1) + b"\0" + varint(3 << 1) + b"\1" + b"values"
    one = page(4, body, kind=DATA_PAGE_V2, rows=1, levels=4)
    found = walked(one, one, rows=2, values=8, repetition=1)
    assert found is not None and found.pages.first_row_index.tolist() == [0, 1]
    # A version 2 page must begin with a record; one that does not is joined to the previous page, whatever it says.
    inside = page(4, b"\x08\x01values", kind=DATA_PAGE_V2, rows=1, levels=2)
    found = walked(one, inside, rows=2, values=8, repetition=1)
    assert found is not None and found.pages.first_row_index.tolist() == [0]
    assert walked(page(4, b"v", kind=DATA_PAGE_V2, rows=3), rows=4) is None


def test_a_header_longer_than_any_window(walked: Walker) -> None:
    long = b"m" * 300_000
    found = walked(*[page(5, b"v" * 20_000, bounds=(long, long + b"n"))] * 3, rows=15)
    assert found is not None and found.bounds is not None
    assert found.bounds.max_values[2] == long + b"n"


@pytest.mark.parametrize(
    ("pages", "options"),
    [
        ([page(5)], {"rows": 6}),
        ([page(7)], {"rows": 6}),
        ([page(5, size=100)], {"rows": 5}),
        ([page(5, size=2**31 - 1)], {"rows": 5}),
        ([page(5, size=-1)], {"rows": 5}),
        ([page(-5), page(10)], {"rows": 5}),
        ([page(5), page(1, kind=DICTIONARY_PAGE), page(5)], {"rows": 10}),
        ([page(5), b"\xff" * 40], {"rows": 10}),
        ([page(5)[:-1]], {"rows": 5}),
        ([b""], {"rows": 5}),
        ([page(2, levels(1, 0))], {"rows": 1, "values": 2, "repetition": 1}),
        ([page(2, levels(0))], {"rows": 1, "values": 2, "repetition": 1}),
        ([page(2, levels(0, 0), repetition=4)], {"rows": 2, "repetition": 1}),
        ([page(2, levels(0, 0))], {"rows": 2, "repetition": 1, "codec": 5}),
        ([page(2, levels(0, 0))], {"rows": 2, "repetition": 1, "codec": 6}),
        ([page(2, b"\xff\xff\xff\xff\x08\x00")], {"rows": 3, "values": 2, "repetition": 1}),
        ([page(2, b"", kind=DATA_PAGE_V2, rows=2)], {"rows": 2, "repetition": 1}),
        ([page(2, b"v", kind=DATA_PAGE_V2, rows=2, levels=7)], {"rows": 2, "repetition": 1}),
    ],
)  # fmt: skip
def test_what_does_not_add_up_is_one_page(walked: Walker, pages: list[bytes], options: dict[str, int]) -> None:
    assert walked(*pages, **options) is None


def test_too_many_headers(walked: Walker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_headers, "MOST_HEADERS", 50)
    assert walked(*[page(0)] * 60, page(5), rows=5) is None
    assert walked(*[page(0)] * 40, page(5), rows=5) is not None


@settings(max_examples=cases(150), deadline=None)
@given(st.binary(max_size=300), st.integers(0, 2), st.integers(1, 50))
def test_any_bytes_end(tmp_path_factory: pytest.TempPathFactory, data: bytes, repetition: int, rows: int) -> None:
    path = tmp_path_factory.getbasetemp() / "any-bytes"
    path.write_bytes(b"PAR1" + data)
    with LocalFile(str(path)) as file:
        walk(file, [Chunk(4, 4 + len(data), rows, rows, 0, repetition)] * 3)
    try:
        header = parse_header(data)
        assert 0 < header.size <= len(data)
    except ThriftError:
        pass


@settings(max_examples=cases(200), deadline=None)
@given(
    st.sampled_from([DATA_PAGE, DATA_PAGE_V2, DICTIONARY_PAGE]),
    st.integers(0, 1 << 20),
    st.none() | st.tuples(st.binary(max_size=200), st.binary(max_size=200)),
    st.none() | st.integers(0, 1 << 40),
    st.none() | st.tuples(st.integers(0, 60), st.integers(0, 255)),
)
def test_skimming_reads_what_parsing_reads(
    kind: int,
    values: int,
    bounds: tuple[bytes, bytes] | None,
    nulls: int | None,
    changed: tuple[int, int] | None,
) -> None:
    """Except for the bounds; also if a byte is changed, as long as it is a header."""
    nulls = nulls if nulls is None or kind != DATA_PAGE_V2 else nulls % (1 << 20)
    data = bytearray(page(values, b"body", kind=kind, bounds=bounds, nulls=nulls))
    if changed is not None and changed[0] < len(data):
        data[changed[0]] = changed[1]
    try:
        parsed = parse_header(bytes(data))
    except ThriftError:
        return
    unbounded = {"null_count": None, "min_value": None, "max_value": None}
    assert skim_header(bytes(data))._replace(**unbounded) == parsed._replace(**unbounded)


def test_few_bytes_are_read_of_large_pages(tmp_path: Path) -> None:
    path = str(tmp_path / "large.parquet")
    random = np.random.default_rng(2)
    table = pa.table({"a": random.random(1_000_000), "b": random.permutation(1_000_000)})
    pq.write_table(table, path, use_dictionary=False, compression="none", row_group_size=500_000)
    card = build_card(path)
    assert len(card.pages.offset) >= 16
    with LocalFile(path) as file:
        footer = read_footer(file)
        before, requests = file.bytes_requested, file.requests
        chunks = [Chunk(chunk.start, chunk.end, chunk.num_values, group.num_rows, 0, 0)
                  for group in footer.row_groups for chunk in group.columns]  # fmt: skip
        assert all(walk(file, chunks))
        pages = len(card.pages.offset)
        assert file.bytes_requested - before <= pages * page_headers.WINDOW < file.size / 100
        assert file.requests - requests <= pages
    _, stats = read_rows(path, card, ["a", "b"], np.array([777_777]))
    assert stats.pages == 2 and stats.bytes_read < 3_000_000


def test_small_pages_are_read_together(lake: Lake) -> None:
    path = lake("flat/no_index")
    with LocalFile(path) as file:
        footer = read_footer(file)
        chunks = [Chunk(chunk.start, chunk.end, chunk.num_values, group.num_rows, 0, 0)
                  for group in footer.row_groups for chunk in group.columns]  # fmt: skip
        requests = file.requests
        assert all(walk(file, chunks))
        assert file.requests - requests <= 2


@pytest.mark.parametrize("name", ["nested/no_index", *long("flat/no_index", "duckdb_nested")])
def test_flipped_bytes_in_the_pages(lake: Lake, tmp_path: Path, name: str) -> None:
    """Whatever the headers say, the file is described, and its rows are read or refused."""
    good = Path(lake(name)).read_bytes()
    card = build_card(lake(name))
    path = tmp_path / "file.parquet"
    random = np.random.default_rng(8)
    headers = card.pages.offset.tolist()
    for _ in range(40):
        data = bytearray(good)
        for start in random.choice(headers, 3):
            data[start + int(random.integers(0, 12))] ^= int(random.integers(1, 256))
        path.write_bytes(data)
        try:
            described = describe(str(path))
            assert described.card.page_starts[-1] >= len(described.card.chunks.codec)
            read_rows(str(path), described.card, described.card.arrow_schema.names, np.arange(0, 500, 31))
        except NotParquet as error:
            assert error.hint


def test_the_dictionary_where_the_data_should_be(tmp_path: Path) -> None:
    """Some writers give the offset of the dictionary page as that of the first data page."""
    source = tmp_path / "source.parquet"
    table = pa.table({"a": [f"value {n % 9}" for n in range(5000)]})
    pq.write_table(table, source, data_page_size=100, write_batch_size=100, compression="none", write_statistics=False)
    with LocalFile(str(source)) as file:
        footer = read_footer(file)
    chunk = footer.row_groups[0].columns[0]
    assert chunk.dictionary_page_offset
    writer = Writer()
    writer.integer64(9, chunk.data_page_offset)
    data_page = writer.finish()[1:-1]
    right = b"\x26" + data_page + b"\x26"  # field 9 after 7, and field 11 after it
    assert right in footer.raw
    wrong = b"\x26" + varint(chunk.dictionary_page_offset << 1) + b"\x26"
    changed = footer.raw.replace(right, wrong)
    good = source.read_bytes()
    path = tmp_path / "wrong.parquet"
    path.write_bytes(good[: -8 - len(footer.raw)] + changed + len(changed).to_bytes(4, "little") + b"PAR1")
    card = build_card(str(path))
    assert len(card.pages.offset) > 3 and card.chunks.dictionary_size[0] > 0
    check_subsets(str(path), card)
