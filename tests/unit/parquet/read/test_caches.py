"""With caches, reads return the same rows and read fewer bytes."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.unit.parquet.reading import numbers, same

from needlepoint.errors import FileChanged, NotParquet
from needlepoint.objects import identify
from needlepoint.parquet.card.describe import build_card
from needlepoint.parquet.format.levels import LevelsError
from needlepoint.parquet.format.page_headers import parse_header
from needlepoint.parquet.format.thrift import varint
from needlepoint.parquet.read import dictionaries, page_reader
from needlepoint.parquet.read.caches import LARGEST_KEPT_PAGE, ByteCache, Caches
from needlepoint.parquet.read.dictionary_indices import pick, ranks
from needlepoint.parquet.read.page_plan import CachedCard
from needlepoint.parquet.read.page_reader import read_files, read_rows
from needlepoint.parquet.read.wanted_rows import FileRows, ReadStats

ROWS = 60_000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    random = np.random.default_rng(9)
    words = [random.bytes(14).hex() for _ in range(6000)]
    chosen = random.integers(0, 6000, ROWS)
    # The dictionary of `mixed` fills up in the middle of a chunk, and plain pages follow.
    mixed = [words[n % 3000] if n % 30_000 < 15_000 else f"{n * 7919} unlike any other" for n in range(ROWS)]
    return pa.table(
        {
            "text": pa.array(words).take(chosen),
            "sparse": pa.array([None if n % 3 == 0 else words[n * 31 % 6000] for n in range(ROWS)]),
            "number": pa.array(random.integers(0, 9000, ROWS) * 10**9),
            "moment": pa.array(random.integers(0, 9000, ROWS) * 10**6, pa.timestamp("us", tz="UTC")),
            "mixed": mixed,
            "plain": random.random(ROWS),
            "coded": pa.array(words).take(chosen).dictionary_encode(),
        }
    )


@pytest.fixture(scope="module", params=["1.0", "2.0"])
def path(table: pa.Table, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> str:
    path = tmp_path_factory.mktemp("caches") / "file.parquet"
    pq.write_table(
        table, path, row_group_size=30_000, data_page_size=20_000, dictionary_pagesize_limit=200_000,
        use_dictionary=[name for name in table.column_names if name != "plain"], data_page_version=request.param,
    )  # fmt: skip
    return str(path)


@pytest.fixture
def caches() -> Caches:
    return Caches.of(64 << 20, 64 << 20)


def test_a_second_lookup_reads_nothing(path: str, table: pa.Table, caches: Caches) -> None:
    card = build_card(path)
    for column in table.column_names:
        first, cost = read_rows(path, card, [column], numbers(4321), caches)
        again, more = read_rows(path, card, [column], numbers(4321), caches)
        assert first.equals(again) and same(again, table.select([column]), numbers(4321))
        assert cost.bytes_read > 0 and cost.cached_bytes == 0
        if column == "coded":  # not looked up, so the dictionary page is read again
            continue
        assert (more.bytes_read, more.requests) == (0, 0) and more.cached_bytes > 0
        assert more.pages == cost.pages == 1


def test_another_row_does_not_read_the_dictionary(path: str, caches: Caches) -> None:
    card = build_card(path)
    size = int(card.chunks.dictionary_size[card.chunk_index(card.find("text").first_leaf, 0)])
    assert size > dictionaries.SMALLEST_KEPT
    _, first = read_rows(path, card, ["text"], numbers(10), caches)
    _, second = read_rows(path, card, ["text"], numbers(25_000), caches)
    assert (first.bytes_read > size and second.bytes_read == first.bytes_read - size) or second.bytes_read < size
    assert (caches.dictionaries.hits, caches.dictionaries.misses) == (1, 1)
    assert 0 < caches.dictionaries.bytes < 2_000_000


@pytest.mark.covering
@pytest.mark.parametrize("count", [1, 2, 4, 5, 20, 40, 500])
def test_any_rows(path: str, table: pa.Table, caches: Caches, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def only_one(stats: list[ReadStats]) -> ReadStats:
        (found,) = stats
        return found

    monkeypatch.setattr(page_reader, "_total", only_one)
    card = build_card(path)
    random = np.random.default_rng(count)
    for _ in range(6):
        rows = np.sort(random.choice(ROWS, count, replace=False))
        columns = random.permutation(table.column_names).tolist()[: 1 + int(random.integers(7))]
        found, _ = read_rows(path, card, columns, rows, caches)
        assert same(found, table.select(columns), rows)


def test_plain_and_indexed_pages_of_one_chunk(path: str, table: pa.Table, caches: Caches) -> None:
    card = build_card(path)
    rows = numbers(5, 14_000, 16_000, 29_999, 30_000, 44_000, 59_000)
    for _ in range(2):
        found, _ = read_rows(path, card, ["mixed", "plain"], rows, caches)
        assert same(found, table.select(["mixed", "plain"]), rows)
    # For rows in plain pages only, no dictionary is decoded.
    fresh = Caches.of(1 << 20, 1 << 20)
    read_rows(path, card, ["mixed"], numbers(29_999), fresh)
    assert fresh.dictionaries.bytes == 0


@pytest.mark.long
def test_many_files(path: str, table: pa.Table, tmp_path: Path, caches: Caches) -> None:
    paths = []
    for number in range(5):
        paths.append(str(tmp_path / f"{number}.parquet"))
        Path(paths[-1]).write_bytes(Path(path).read_bytes())
    rows = [numbers(7 * n, 20_000 + n, 31_000 * (n % 2) + 25_000 + n) for n in range(5)]
    rows = [np.unique(each) for each in rows]
    for _ in range(2):
        wanted = [
            FileRows(each, CachedCard(build_card(each)), chosen) for each, chosen in zip(paths, rows, strict=True)
        ]
        ((numbers_of_files, found, _),) = read_files(wanted, ["mixed", "text", "plain"], map, caches)
        assert numbers_of_files == [0, 1, 2, 3, 4]
        assert same(found, table.select(["mixed", "text", "plain"]), np.concatenate(rows))


def test_threads(path: str, table: pa.Table) -> None:
    card = build_card(path)
    caches = Caches.of(700_000, 100_000)  # too small for everything, so entries are evicted

    def one(row: int) -> bool:
        found, _ = read_rows(path, card, ["text", "number", "sparse"], numbers(row), caches)
        return same(found, table.select(["text", "number", "sparse"]), numbers(row))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, np.random.default_rng(3).integers(0, ROWS, 200).tolist()))
    assert caches.dictionaries.evictions > 0
    assert caches.dictionaries.bytes <= 700_000 and caches.pages.bytes <= 100_000


def test_a_changed_file_is_not_answered_from_a_cache(table: pa.Table, tmp_path: Path, caches: Caches) -> None:
    path = tmp_path / "file.parquet"
    pq.write_table(table[:20_000], path)
    card = build_card(str(path))
    read_rows(str(path), card, ["text"], numbers(1), caches)
    pq.write_table(table[20_000:40_000], path)
    os.utime(path, ns=(card.identity.mtime_ns + 1, card.identity.mtime_ns + 1))
    with pytest.raises(FileChanged):
        read_rows(str(path), card, ["text"], numbers(1), caches)
    found, _ = read_rows(str(path), build_card(str(path)), ["text"], numbers(1), caches)
    assert same(found, table[20_000:40_000].select(["text"]), numbers(1))


def test_corrupt_pages(path: str, table: pa.Table, tmp_path: Path) -> None:
    """Rows, perhaps wrong ones, or a refusal, as without caches."""
    target = tmp_path / "copy.parquet"
    good = Path(path).read_bytes()
    target.write_bytes(good)
    card = build_card(str(target))
    random = np.random.default_rng(12)
    columns = ["text", "sparse", "number", "mixed"]
    for _ in range(40):
        data = bytearray(good)
        for start in random.choice(card.pages.offset, 12):
            data[int(start) + int(random.integers(0, 60))] ^= int(random.integers(1, 256))
        for start in random.choice(card.chunks.start, 2):
            data[int(start) + int(random.integers(0, 60))] ^= int(random.integers(1, 256))
        target.write_bytes(data)
        damaged = replace(card, identity=identify(str(target)))  # as if the file had always been like this
        try:
            caches = Caches.of(1 << 20, 1 << 20)
            read_rows(str(target), damaged, columns, np.sort(random.choice(ROWS, 9, replace=False)), caches)
        except NotParquet as error:
            assert error.hint


def test_large_pages_are_not_kept(tmp_path: Path, caches: Caches) -> None:
    path = str(tmp_path / "large.parquet")
    values = np.random.default_rng(1).random(200_000)
    pq.write_table(pa.table({"a": values}), path, use_dictionary=False, compression="none", max_rows_per_page=50_000)
    for _ in range(2):
        _, stats = read_rows(path, build_card(path), ["a"], numbers(3), caches)
        assert stats.bytes_read > LARGEST_KEPT_PAGE and stats.cached_bytes == 0
    assert len(caches.pages) == 0


def test_least_recently_used_goes_first() -> None:
    cache: ByteCache[str] = ByteCache(10)
    for key in "abc":
        cache.put(key, key.upper(), 3)
    assert cache.get("a") == "A"
    cache.put("d", "D", 4)
    assert [cache.get(key) for key in "abcd"] == ["A", None, "C", "D"]
    assert (cache.bytes, cache.hits, cache.misses, cache.evictions, len(cache)) == (10, 4, 1, 1, 3)
    cache.put("a", "again", 1)
    assert cache.bytes == 8 and cache.get("a") == "again"
    cache.put("a", "too large", 11)
    assert cache.get("a") is None and cache.bytes == 7
    cache.clear()
    assert (cache.bytes, len(cache)) == (0, 0)


VALUES = st.lists(st.one_of(st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 30)), st.integers(1, 4)), min_size=1)


@settings(max_examples=cases(150, 12), deadline=None)
@given(VALUES, st.integers(0, 32), st.data())
def test_picking_single_indices(runs: list[tuple[int, int] | int], width: int, draw: st.DataObject) -> None:
    mask = (1 << width) - 1
    data, values = bytes([width]), []
    for run in runs:
        if isinstance(run, tuple):
            data += varint(run[1] << 1) + (run[0] & mask).to_bytes((width + 7) // 8, "little")
            values += [run[0] & mask] * run[1]
        else:
            group = [(n * 2654435761 + run) & mask for n in range(8 * run)]
            packed = sum(value << (place * width) for place, value in enumerate(group))
            data += varint(run << 1 | 1) + packed.to_bytes(run * width, "little")
            values += group
    positions = sorted(draw.draw(st.sets(st.integers(0, len(values) - 1), max_size=10)))
    assert pick(data, positions) == [values[position] for position in positions]
    if positions:
        with pytest.raises(LevelsError):
            pick(data, [*positions, len(values)])
    levels, bits = data[1:], values
    if width == 1:
        expected = [sum(bits[:position]) if bits[position] else None for position in positions]
        assert ranks(levels, positions) == expected
        with pytest.raises(LevelsError):
            ranks(levels, [len(bits)])


@settings(max_examples=cases(200, 15), deadline=None)
@given(st.binary(max_size=60), st.lists(st.integers(0, 10_000), max_size=6, unique=True))
def test_any_bytes_end(data: bytes, positions: list[int]) -> None:
    for read in (pick, ranks):
        with contextlib.suppress(LevelsError):
            assert len(read(data, sorted(positions))) == len(positions)  # type: ignore[operator]


def test_pages_of_other_rows_than_the_card_says(path: str, table: pa.Table, caches: Caches) -> None:
    """A wrong card is detected: the value is not looked up, and pyarrow refuses the page or reads it whole."""
    card = build_card(path)
    read_rows(path, card, ["text"], numbers(1), caches)
    blocks = list(caches.pages._entries.values())[-1][:1]
    (entries, _) = next(iter(caches.dictionaries._entries.values()))
    header = parse_header(blocks[0])
    found = dictionaries.look_up(blocks, header.num_values, 1, True, [1], lambda: entries)
    assert same(pa.table({"text": found.pieces[0]}), table.select(["text"]), numbers(1))
    for rows, positions in ((header.num_values + 1, [1]), (header.num_values, [header.num_values])):
        with pytest.raises(ValueError, match="were expected"):
            dictionaries.look_up(blocks, rows, 1, True, positions, lambda: entries)
    with pytest.raises(ValueError, match="dictionary of 1"):
        dictionaries.look_up(blocks, header.num_values, 1, True, [header.num_values - 1], lambda: entries[:1])
