"""Pages of zstd that are unpacked together have the same rows as pages that pyarrow unpacks."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.parquet.reading import numbers

from needlepoint.errors import NotParquet
from needlepoint.parquet import describe
from needlepoint.parquet.format.page_headers import parse_header
from needlepoint.parquet.format.thrift import I32, I64, spans, zigzag
from needlepoint.parquet.read import page_decoder, unpacked_pages
from needlepoint.parquet.read.caches import Caches
from needlepoint.parquet.read.page_plan import CachedCard
from needlepoint.parquet.read.page_reader import read_files
from needlepoint.parquet.read.unpacked_pages import FEWEST_BY_NUMPY, FEWEST_PAGES
from needlepoint.parquet.read.wanted_rows import FileRows

ROWS = 1000
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "page statistics": {"write_page_index": False},
    "checksums": {"write_page_checksum": True},
    "delta": {"column_encoding": {"id": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY"}},
    "row groups": {"row_group_size": 300},
    "version 2": {"data_page_version": "2.0"},
    "dictionaries": {"use_dictionary": True},
    "snappy": {"compression": "snappy"},
}
APART = {"version 2", "snappy"}


def values(seed: int) -> pa.Table:
    drawn = np.random.default_rng(seed)
    ids = drawn.integers(-(2**62), 2**62, ROWS)
    texts = [f"{'é' * int(length)} {number}" for number, length in enumerate(drawn.integers(0, 40, ROWS))]
    absent = drawn.random(ROWS) < 0.3
    absent[: ROWS // 2] = False  # pages without and with NULL
    return pa.table(
        {
            "id": pa.array(ids),
            "text": pa.array(texts, mask=absent),
            "flag": pa.array(ids % 3 == 0, mask=absent),
            "price": pa.array([decimal.Decimal(int(each) % 10**6).scaleb(-2) for each in ids], pa.decimal128(20, 2)),
            "day": pa.array([datetime.date(2020, 1, 1) + datetime.timedelta(int(each) % 999) for each in ids]),
            "long": pa.array(["x" * 3000] * ROWS),
            "nothing": pa.nulls(ROWS, pa.float64()),
        },
        schema=pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                ("text", pa.string()),
                ("flag", pa.bool_()),
                ("price", pa.decimal128(20, 2)),
                ("day", pa.date32()),
                ("long", pa.string()),
                ("nothing", pa.float64()),
            ]
        ),
    )


def write(directory: Path, layout: str, files: int = 2) -> list[str]:
    options = {"compression": "zstd", "use_dictionary": False, "max_rows_per_page": 20, "write_page_index": True}
    paths = []
    for number in range(files):
        paths.append(str(directory / f"{number}.parquet"))
        pq.write_table(values(number), paths[-1], write_batch_size=20, **{**options, **LAYOUTS[layout]})
    return paths


def read(paths: list[str], columns: list[str], rows: np.ndarray) -> pa.Table:
    wanted = [FileRows(path, CachedCard(describe(path).card), rows) for path in paths]
    found = read_files(wanted, columns, None, Caches.of(1 << 20, 1 << 20, local_pages=False))
    return pa.concat_tables([table for _, table, _ in found])


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the pages of each column were unpacked together."""
    seen: list[bool] = []
    original = page_decoder.unpacked_file

    def counted(*arguments: Any) -> bytes | None:
        file = original(*arguments)
        seen.append(file is not None)
        return file

    monkeypatch.setattr(page_decoder, "unpacked_file", counted)
    return seen


@pytest.mark.parametrize("layout", LAYOUTS)
def test_same_rows_as_a_scan(tmp_path: Path, unpacked: list[bool], layout: str) -> None:
    paths = write(tmp_path, layout)
    columns = values(0).column_names
    drawn = np.random.default_rng(7)
    for count in (FEWEST_PAGES // 2 - 1, 10, 60, ROWS):  # few pages and many
        rows = np.sort(drawn.choice(ROWS, count, replace=False))
        expected = pa.concat_tables([pq.ParquetFile(path).read(columns).take(rows) for path in paths])
        assert read(paths, columns, rows).equals(expected)
    assert any(unpacked) == (layout not in APART)
    assert all(unpacked) or layout in APART


def test_few_pages_are_read_one_by_one(tmp_path: Path, unpacked: list[bool]) -> None:
    (path,) = write(tmp_path, "plain", files=1)
    read([path], ["id"], numbers(*range(0, 20 * (FEWEST_PAGES - 1), 20)))
    assert not unpacked
    read([path], ["id"], numbers(*range(0, 20 * FEWEST_PAGES, 20)))
    assert unpacked == [True]


@pytest.mark.parametrize("change", ["frame", "size"])
def test_a_damaged_page_is_an_error(tmp_path: Path, change: str) -> None:
    (path,) = write(tmp_path, "plain", files=1)
    card = describe(path).card
    data = bytearray(Path(path).read_bytes())
    place = int(card.pages.offset[card.leaf_pages(0)][7])
    header = parse_header(bytes(data), place)
    if change == "frame":
        start, other = place + header.size + 4, b"\xff" * 4
    else:
        start, other = data.index(zigzag(header.uncompressed_size), place), zigzag(header.uncompressed_size + 1)
    data[start : start + len(other)] = other
    Path(path).write_bytes(data)
    with pytest.raises(NotParquet):
        read([path], ["id"], numbers(*range(ROWS)))


def test_chunks_of_which_no_pages_are_known(tmp_path: Path, unpacked: list[bool]) -> None:
    """They count as one page each. All pages have the same size, so the last one of a chunk begins where that of the
    first header would, if there were no other."""
    drawn, groups = np.random.default_rng(3), 2 * FEWEST_PAGES
    ids = pa.array(drawn.integers(-(2**62), 2**62, 40 * groups))
    path, layout = str(tmp_path / "0.parquet"), {**LAYOUTS["page statistics"], "max_rows_per_page": 20}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    pq.write_table(
        pa.table([ids], schema), path, compression="zstd", use_dictionary=False, row_group_size=40, write_batch_size=20,
        **layout,
    )  # fmt: skip
    before = describe(path).card
    assert len(before.pages.offset) == 2 * groups and len(set(before.pages.size.tolist())) < 4
    data = bytearray(Path(path).read_bytes())
    for place in before.pages.offset.tolist():
        (inner,) = (span for span in spans(data, place)[0] if span.field == 5)  # data_page_header
        (statistics,) = (span for span in spans(data, inner.value)[0] if span.field == 5)
        nulls = next(span for span in spans(data, statistics.value)[0] if span.field == 3)
        data[nulls.start] += I32 - I64  # null_count, of another type: readers skip it, and we take no page from it
    Path(path).write_bytes(data)
    card = describe(path).card
    assert len(card.pages.offset) == groups
    for rows in (np.arange(0, 40 * groups, 40), np.arange(39, 40 * groups, 40), np.arange(40 * groups)):
        expected = pq.read_table(path).take(rows)
        assert read([path], ["id"], rows).equals(expected)
        assert expected["id"].equals(pa.chunked_array([ids.take(pa.array(rows))]))
    assert unpacked == [True] * 3


@pytest.mark.parametrize("layout", ["plain", "checksums"])
def test_headers_of_few_pages_are_read_as_those_of_many(tmp_path: Path, layout: str) -> None:
    (path,) = write(tmp_path, layout, files=1)
    card, whole = describe(path).card, Path(path).read_bytes()
    drawn = np.random.default_rng(11)
    agreed = 0
    for leaf in range(len(values(0).columns)):
        pages = card.leaf_pages(leaf)
        start, size = card.pages.offset[pages][:FEWEST_BY_NUMPY], card.pages.size[pages][:FEWEST_BY_NUMPY]
        for harm in [None] * 2 + [*range(200)]:
            data = np.frombuffer(whole, np.uint8).copy()
            if harm is not None:
                data[drawn.choice(start) + drawn.integers(0, 24)] ^= 1 << drawn.integers(0, 8)
            few, many = (read(data, start, size) for read in (unpacked_pages._few_frames, unpacked_pages._many_frames))
            if harm is None:
                assert few is not None and many is not None
            if few is not None and many is not None:
                assert b"".join(few.pieces) == b"".join(many.pieces)
                assert (few.unpacked, few.longest_header) == (many.unpacked, many.longest_header)
                agreed += harm is not None
    assert agreed > 100
