from __future__ import annotations

import os
from collections.abc import Callable
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
from tests.unit.parquet.reading import card_of, check, check_subsets, numbers, same, whole

from needlepoint.errors import FileChanged, NotParquet
from needlepoint.objects import identify
from needlepoint.parquet.card.describe import build_card
from needlepoint.parquet.format.thrift import zigzag
from needlepoint.parquet.read import page_reader
from needlepoint.parquet.read.page_plan import CachedCard
from needlepoint.parquet.read.page_reader import read_files, read_rows
from needlepoint.parquet.read.page_request import foresee_rows
from needlepoint.parquet.read.wanted_rows import NOTHING_READ, FileRows

Lake = Callable[[str], str]


def test_same_rows_as_a_scan(lake: Lake, any_file: str) -> None:
    check_subsets(lake(any_file))


@pytest.mark.parametrize("name", ["flat/tiny_pages", "nested/tiny_pages", "nested/version_2", "duckdb", "polars"])
def test_any_rows_of_any_columns(lake: Lake, name: str) -> None:
    path = lake(name)
    table = whole(path)

    @settings(max_examples=cases(50), deadline=None)
    @given(
        st.sets(st.integers(0, table.num_rows - 1), max_size=60),
        st.lists(st.sampled_from(table.column_names), unique=True, max_size=5),
    )
    def run(rows: set[int], columns: list[str]) -> None:
        if columns:
            check(path, numbers(*sorted(rows)), columns)

    run()


def test_columns_come_in_the_order_asked(lake: Lake) -> None:
    path = lake("nested/tiny_pages")
    check(path, numbers(3, 400), ["text", "points", "id", "struct"])
    found, _ = read_rows(path, card_of(path), ["id", "text", "id"], numbers(5))
    assert found.column_names == ["id", "text", "id"]


def test_reads_only_the_pages_of_the_row(lake: Lake) -> None:
    path = lake("flat/rows_per_page")
    card = card_of(path)
    _, stats = read_rows(path, card, ["id", "string"], numbers(300))
    assert (stats.pages, stats.row_groups) == (2, 1)
    assert stats.bytes_read < int(card.chunks.size.sum()) / 10
    assert stats.requests <= 2
    assert foresee_rows(CachedCard(card), ["id"], numbers(0, 1, 24, 25, 499)).pages == 3
    assert foresee_rows(CachedCard(card), ["id"], numbers()).pages == 0


def test_pages_of_a_nested_field_counts_what_is_read(lake: Lake) -> None:
    path = lake("nested/rows_per_page")
    _, stats = read_rows(path, card_of(path), ["points"], numbers(7, 300))
    assert stats.pages == foresee_rows(CachedCard(card_of(path)), ["points"], numbers(7, 300)).pages == 4


def test_nothing_asked_nothing_read(lake: Lake) -> None:
    path = lake("flat/default")
    found, stats = read_rows(path, card_of(path), ["id"], numbers())
    assert found.num_rows == 0 and stats == NOTHING_READ
    _, stats = read_rows(path, card_of(path), [], numbers(1))
    assert stats == NOTHING_READ


def test_unknown_column(lake: Lake) -> None:
    path = lake("flat/default")
    with pytest.raises(KeyError, match="nowhere"):
        read_rows(path, card_of(path), ["id", "nowhere"], numbers(1))
    with pytest.raises(KeyError):
        foresee_rows(CachedCard(card_of(path)), ["nowhere"], numbers(1))


@pytest.mark.parametrize("rows", [(-1,), (500,), (1, 500)])
def test_rows_the_file_does_not_have(lake: Lake, rows: tuple[int, ...]) -> None:
    path = lake("flat/default")
    with pytest.raises(IndexError):
        read_rows(path, card_of(path), ["id"], numbers(*rows))


@pytest.mark.parametrize("rows", [(2, 1), (1, 1)])
def test_rows_out_of_order(lake: Lake, rows: tuple[int, ...]) -> None:
    path = lake("flat/default")
    with pytest.raises(ValueError, match="ascend"):
        read_rows(path, card_of(path), ["id"], numbers(*rows))


def copy_of(path: str, directory: Path) -> Path:
    target = directory / "copy.parquet"
    target.write_bytes(Path(path).read_bytes())
    return target


def test_a_changed_file_is_not_read(lake: Lake, tmp_path: Path) -> None:
    path = copy_of(lake("flat/default"), tmp_path)
    card = build_card(str(path))
    read_rows(str(path), card, ["id"], numbers(1))
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    with pytest.raises(FileChanged, match="modified"):
        read_rows(str(path), card, ["id"], numbers(1))
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(FileChanged, match="planned for"):
        read_rows(str(path), card, ["id"], numbers(1))
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_rows(str(path), card, ["id"], numbers(1))


@pytest.mark.parametrize("name", ["flat/snappy_1.0", "flat/zstd_2.0", "nested/gzip_1.0", "flat/none_1.0"])
def test_corrupt_pages_are_refused_or_wrong_values_but_never_another_error(
    lake: Lake, tmp_path: Path, name: str
) -> None:
    path = copy_of(lake(name), tmp_path)
    good = path.read_bytes()
    card = build_card(str(path))
    random = np.random.default_rng(3)
    end = int((card.pages.offset + card.pages.size).max())
    refused = 0
    for _ in range(60):
        data = bytearray(good)
        for position in random.integers(4, end, 30):
            data[position] ^= int(random.integers(1, 256))
        path.write_bytes(data)
        damaged = replace(card, identity=identify(str(path)))  # as if the file had always been like this
        try:
            read_rows(str(path), damaged, whole(lake(name)).column_names, np.arange(0, 500, 50))
        except NotParquet as error:
            refused += 1
            assert error.hint
    assert refused


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_page_that_claims_more_values_is_refused_with_its_file(tmp_path: Path, version: str) -> None:
    """pyarrow would read on, and shift the rows after it, also those of other files."""
    values = [None if row % 7 == 0 else row for row in range(400)]
    paths = [str(tmp_path / f"{number}.parquet") for number in range(3)]
    for number, path in enumerate(paths):
        own = pa.array([None if value is None else value + 1000 * number for value in values])
        options = {"max_rows_per_page": 100, "write_batch_size": 100, "use_dictionary": False, "compression": "none"}
        pq.write_table(pa.table({"n": own}), path, write_page_index=True, data_page_version=version, **options)
    page = int(build_card(paths[0]).pages.offset[1])
    data = bytearray(Path(paths[0]).read_bytes())
    # DataPageHeader { 1: num_values }
    place = data.index(b"\x15" + zigzag(100), page)
    assert place < page + 30
    data[place + 1 : place + 3] = zigzag(101)
    Path(paths[0]).write_bytes(data)
    wanted = [FileRows(path, CachedCard(build_card(path)), numbers(150, 350)) for path in paths]
    with pytest.raises(NotParquet, match=r"0\.parquet: column n claims 400 values, its pages have 401"):
        read_files(wanted, ["n"])
    found = [row for _, table, _ in read_files(wanted[1:], ["n"]) for row in table.column(0).to_pylist()]
    assert found == [1150, None, 2150, None]


def test_pages_of_writers_that_pyarrow_reads_beyond(tmp_path: Path) -> None:
    path = tmp_path / "old.parquet"
    pq.write_table(pa.table({"n": range(4000)}), path, row_group_size=2000, write_page_index=True)
    writer = pq.read_metadata(path).created_by.encode()
    path.write_bytes(path.read_bytes().replace(writer, b"parquet-mr version 1.2.8".ljust(len(writer))))
    assert pq.read_metadata(path).created_by.startswith("parquet-mr")
    found, stats = read_rows(str(path), build_card(str(path)), ["n"], numbers(3, 60, 2500))
    assert (found.column(0).to_pylist(), stats.reasons) == ([3, 60, 2500], ())


def test_a_page_that_has_the_values_of_two_is_noticed(tmp_path: Path) -> None:
    """pyarrow would stop after it, and skip the page after it: the number of values would be right."""
    path = str(tmp_path / "a.parquet")
    options = {"max_rows_per_page": 100, "write_batch_size": 100, "use_dictionary": False}
    pq.write_table(pa.table({"n": range(4000)}), path, row_group_size=2000, write_page_index=True, **options)
    card = build_card(path)
    halves = card.pages.first_row.copy()
    halves[:20] = np.arange(20) * 50
    wrong = replace(card, pages=replace(card.pages, first_row=halves))
    for rows in ((3, 60), (3, 60, 2500), (60, 2500)):
        found, stats = read_rows(path, wrong, ["n"], numbers(*rows))
        assert (found.column(0).to_pylist(), len(stats.reasons)) == ([*rows], 1)


# Pages of the first three can share a chunk with others of their codec, those of the next two need their dictionary.
MIXED_WRITERS = (
    {"use_dictionary": False, "compression": "snappy"},
    {"use_dictionary": False, "compression": "snappy", "data_page_version": "2.0"},
    {"use_dictionary": False, "compression": "zstd", "row_group_size": 150},
    {"use_dictionary": True, "compression": "snappy", "row_group_size": 150},
    {"use_dictionary": ["text"], "compression": {"id": "lz4", "text": "none", "list.list.element": "gzip",
                                                 "point.x": "snappy", "point.y": "snappy"}},
    {"use_dictionary": False, "compression": "snappy", "column_encoding": {"id": "DELTA_BINARY_PACKED"}},
)  # fmt: skip


def mixed_rows(number: int) -> pa.Table:
    rows = range(number * 1000, number * 1000 + 400)
    return pa.table(
        {
            "id": pa.array([None if row % 11 == 0 else row for row in rows], pa.int64()),
            "text": pa.array([None if row % 7 == 0 else f"té {row % 50}" for row in rows]),
            "list": pa.array([None if row % 5 == 0 else list(range(row % 4)) for row in rows], pa.list_(pa.int32())),
            "point": pa.array([None if row % 9 == 0 else {"x": row, "y": str(row)} for row in rows]),
        }
    )


@pytest.fixture(scope="module")
def mixed_files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Files of one schema whose pages have different codecs, encodings and versions."""
    paths = []
    for number, options in enumerate(MIXED_WRITERS * 2):
        paths.append(str(tmp_path_factory.mktemp("mixed") / "a.parquet"))
        pq.write_table(
            mixed_rows(number), paths[-1], write_page_index=True, max_rows_per_page=20, write_batch_size=10, **options
        )
    return paths


@pytest.mark.covering
@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("rows_at_once", [1, 30, 10_000])
def test_many_files_in_one_go(
    mixed_files: list[str], threads: int, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_reader, "ROWS_AT_ONCE", rows_at_once)
    monkeypatch.setattr(page_reader, "DECODED_AT_ONCE", rows_at_once)
    monkeypatch.setattr(page_reader, "PAGES_FOR_A_THREAD", 1)
    executor = ThreadPoolExecutor(threads) if threads else None

    @settings(max_examples=cases(20), deadline=None)
    @given(
        st.lists(st.sets(st.integers(0, 399), max_size=30), min_size=len(mixed_files), max_size=len(mixed_files)),
        st.lists(st.sampled_from(["id", "text", "list", "point"]), unique=True, min_size=1),
    )
    def run(rows: list[set[int]], columns: list[str]) -> None:
        wanted = [
            FileRows(path, CachedCard(card_of(path)), numbers(*sorted(each)))
            for path, each in zip(mixed_files, rows, strict=True)
        ]
        seen = []
        for files, found, stats in read_files(wanted, columns, executor):
            assert stats.reasons == ()
            start = 0
            for number in files:
                count = len(wanted[number].rows)
                expected = whole(mixed_files[number]).select(columns)
                assert same(found.slice(start, count), expected, wanted[number].rows)
                start += count
            seen += files
        assert sorted(seen) == [*range(len(mixed_files))]

    run()
    if executor is not None:
        executor.shutdown()


def test_ranges_of_many_files_are_decoded_in_one_go(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """300 wanted rows are few pages if they are adjacent."""
    path = lake("flat/rows_per_page")
    cached = CachedCard(card_of(path))
    few = [FileRows(path, cached, np.arange(50, 350))] * 3
    assert [files for files, _, _ in read_files(few, ["id"])] == [[0, 1, 2]]
    monkeypatch.setattr(page_reader, "DECODED_AT_ONCE", 500)
    assert [files for files, _, _ in read_files(few, ["id"])] == [[0, 1], [2]]
    whole_files = [FileRows(path, cached, np.arange(500))] * 2
    assert [files for files, _, _ in read_files(whole_files, ["id"])] == [[0], [1]]
    monkeypatch.setattr(page_reader, "BYTES_AT_ONCE", 1)
    assert [files for files, _, _ in read_files(few, ["id"])] == [[0], [1], [2]]


@pytest.mark.parametrize("threads", [0, 2])
def test_a_damaged_file_among_many_is_named(mixed_files: list[str], tmp_path: Path, threads: int) -> None:
    damaged = tmp_path / "damaged.parquet"
    data = bytearray(Path(mixed_files[2]).read_bytes())
    card = build_card(mixed_files[2])
    page = int(card.pages.offset[3])
    data[page : page + int(card.pages.size[3])] = b"\xff" * int(card.pages.size[3])
    damaged.write_bytes(data)
    paths = [*mixed_files[:3], str(damaged), *mixed_files[3:]]
    executor = ThreadPoolExecutor(threads) if threads else None
    cards = [replace(card_of(path), identity=identify(path)) for path in mixed_files[:3]]
    cards += [replace(card, identity=identify(str(damaged))), *map(card_of, mixed_files[3:])]
    wanted = [FileRows(path, CachedCard(each), np.arange(0, 400, 4)) for path, each in zip(paths, cards, strict=True)]
    with pytest.raises(NotParquet, match=r"damaged\.parquet"):
        read_files(wanted, ["id", "text"], executor)
    if executor is not None:
        executor.shutdown()
