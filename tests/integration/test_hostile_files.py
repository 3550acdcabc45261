"""Malicious files, read through a lake."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.fuzz import mutated_payloads, mutations
from tests.fuzz.thrift_places import encoded, exchanged, places

import needlepoint
from needlepoint import NeedlepointError
from needlepoint.errors import NotParquet, SqlError
from needlepoint.objects import open_object
from needlepoint.parquet.format.footer import read_footer
from needlepoint.parquet.write.embed import Payload, embed
from needlepoint.parquet.write.embedded import embedded, read_payload

ROWS = 400


def table(first: int) -> pa.Table:
    numbers = range(first, first + ROWS)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "title": [f"dairy cow {number % 7}" for number in numbers],
            "list": pa.array([[number] for number in numbers], pa.list_(pa.int64())),
        }
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "t").mkdir()
    for name, first in (("good", 0), ("bad", ROWS)):
        pq.write_table(table(first), tmp_path / "t" / f"{name}.parquet", write_page_index=True)
    return tmp_path


def change_footer(path: Path, field: tuple[int, ...], value: int) -> None:
    data = path.read_bytes()
    at, footer = mutations._footer(data)
    found, _ = places(footer)
    values = {place: encoded(value) for place in found if place.path == field}
    assert values
    path.unlink()
    path.write_bytes(mutations.with_footer(data[:at], exchanged(footer, values)))


@pytest.mark.parametrize("synced", [True, False])
def test_one_changed_count_in_a_footer(root: Path, synced: bool) -> None:
    """DataFusion would allocate 274 GB and abort the process."""
    with needlepoint.open(root, refresh=0) as lake:
        lake.create_table("t", root / "t")
        if synced:
            lake.sync("t")
        change_footer(root / "t" / "bad.parquet", (4, 0, 1, 2, 3, 5), 2**38)
        if synced:
            (report,) = lake.sync("t")
            assert "bad.parquet" in str(report.failures[0])
        for query in ("SELECT count(*) FROM t", "SELECT * FROM t", "SELECT list FROM t WHERE id = 450"):
            with pytest.raises(NotParquet, match=r"bad\.parquet: column list\.list\.element claims 274,877,906,944"):
                lake.sql(query)


def test_compaction_of_a_file_with_an_unknown_codec(root: Path) -> None:
    with needlepoint.open(root, refresh=0) as lake:
        lake.create_table("t", root / "t")
        change_footer(root / "t" / "bad.parquet", (4, 0, 1, 0, 3, 4), 60)
        with pytest.raises(NeedlepointError, match=r"bad\.parquet: column id is compressed with a codec 60"):
            lake.compact("t")
            lake.sql("SELECT * FROM t")


def test_a_panic_is_an_error_like_others(root: Path) -> None:
    """A page with a negative size makes Rust code panic, and a panic is not an Exception."""
    path = root / "t" / "bad.parquet"
    data = path.read_bytes()
    chunk = mutations._chunks(data)[0]
    found, _ = places(data, mutations._headers(data, chunk)[-1])
    size = next(place for place in found if place.path == (2,))
    value = encoded(-(2**31))
    body, footer = mutations._moved(data, size.end, len(value) - (size.end - size.start), chunk.start)
    path.unlink()
    path.write_bytes(mutations.with_footer(body[: size.start] + value + body[size.end :], footer))
    with needlepoint.open(root, refresh=0) as lake:
        lake.create_table("t", root / "t")
        with pytest.raises((SqlError, NotParquet)):
            lake.sql("SELECT sum(id) FROM t")
        assert lake.sql("SELECT count(title) AS n FROM t").rows() == [{"n": 2 * ROWS}]


def test_a_text_index_that_claims_large_sizes(root: Path) -> None:
    """It is small while it is compressed. It is refused before anything is unpacked, and the answer is correct."""
    path = root / "t" / "bad.parquet"
    with needlepoint.open(root, refresh=0, access="pages") as lake:
        lake.create_table("t", root / "t")
        lake.create_index("t", "title", kind="text", embed=True)
        with open_object(str(path)) as file:
            (entry,) = embedded(file, read_footer(file)).entries
            payload = read_payload(file, entry)
        told, frames, _ = mutated_payloads._bomb(mutated_payloads.description(payload), random.Random(1))
        forged = mutated_payloads.text_payload(told, frames)
        embed(str(path), [Payload("text", entry.columns, entry.version, forged, entry.options)])
        assert path.stat().st_size < 4 << 20
        lake.sync("t")
        result = lake.sql("SELECT count(*) AS n FROM t WHERE title LIKE '%cow 3%'")
        assert result.rows() == [{"n": sum(number % 7 == 3 for number in range(2 * ROWS))}]
        unpacked = root / ".needlepoint" / "unpacked"
        assert sum(each.stat().st_size for each in unpacked.rglob("*") if each.is_file()) < 64 << 20
