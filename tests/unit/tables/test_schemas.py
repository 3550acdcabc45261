"""One type for a column whose files have several."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from needlepoint.errors import SchemaConflict
from needlepoint.tables.schemas import differing, misordered, refined, unify, with_misordered

FINER = [
    (pa.timestamp("ms"), pa.timestamp("us")),
    (pa.timestamp("us"), pa.timestamp("ns")),
    (pa.timestamp("ms"), pa.timestamp("ns")),
    (pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC")),
    (pa.time32("ms"), pa.time64("us")),
    (pa.time64("us"), pa.time64("ns")),
]


def one(type: pa.DataType) -> pa.Schema:
    return pa.schema([("t", type)])


def unified(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    return unify(one(left), "a.parquet", one(right), "b.parquet").field("t").type


@pytest.mark.parametrize(("coarse", "fine"), FINER, ids=str)
def test_the_finer_unit_wins_in_either_order(coarse: pa.DataType, fine: pa.DataType) -> None:
    assert unified(coarse, fine) == unified(fine, coarse) == fine
    assert differing(one(coarse), one(fine)) == refined(one(coarse), one(fine)) == {"t"}
    assert not differing(one(fine), one(fine))


def test_the_zone_known_first_stays() -> None:
    berlin, utc = "Europe/Berlin", "UTC"
    assert unified(pa.timestamp("us", berlin), pa.timestamp("us", utc)) == pa.timestamp("us", berlin)
    assert unified(pa.timestamp("us", utc), pa.timestamp("ns", berlin)) == pa.timestamp("ns", utc)
    assert differing(one(pa.timestamp("us", berlin)), one(pa.timestamp("us", utc))) == {"t"}
    assert not refined(one(pa.timestamp("us", berlin)), one(pa.timestamp("us", utc)))


REFUSED = [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.time64("us"), pa.date32(), pa.int64(), pa.string()]


@pytest.mark.parametrize(("left", "right"), [*itertools.permutations(REFUSED, 2)], ids=str)
def test_what_cannot_be_compared_is_refused(left: pa.DataType, right: pa.DataType) -> None:
    with pytest.raises(SchemaConflict, match=r"'t' is .* in a\.parquet but .* in b\.parquet"):
        unified(left, right)


@pytest.mark.parametrize(
    ("writer", "found"),
    [
        ("parquet-mr version 1.8.2", {"d"}),
        ("parquet-mr", {"d"}),
        ("parquet-mr version 1.10.1", set()),
        ("parquet-mr version 2.0.0", set()),
        ("parquet-cpp-arrow", set()),
        ("\xff\xfe is no UTF-8", {"d"}),
    ],
)
def test_decimals_of_old_writers_are_known(tmp_path: Path, writer: str, found: set[str]) -> None:
    rows = pa.table({"d": pa.array([1], pa.decimal128(12, 2)), "i": pa.array([1], pa.int64())})
    pq.write_table(rows, tmp_path / "f.parquet")
    data = (tmp_path / "f.parquet").read_bytes()
    own = pq.read_metadata(tmp_path / "f.parquet").created_by.encode()
    (tmp_path / "f.parquet").write_bytes(data.replace(own, writer.encode("latin-1").ljust(len(own))))
    metadata = pq.read_metadata(tmp_path / "f.parquet")
    assert misordered(with_misordered(rows.schema, metadata)) == found
