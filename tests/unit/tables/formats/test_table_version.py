"""What a table in an external format accepts in a file, and what it refuses."""

from __future__ import annotations

import pyarrow as pa
import pytest

from needlepoint.errors import SchemaConflict, Unsupported
from needlepoint.objects import Identity
from needlepoint.tables.formats.table_version import TableVersion, check_names, field_ids
from needlepoint.tables.model import File, Table
from needlepoint.tables.schemas import respelled


def numbered(name: str, type: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, type, metadata={"PARQUET:field_id": str(number)})


def logged(schema: pa.Schema, *partitions: str) -> TableVersion:
    return TableVersion("delta", "1", {}, schema, partitions)


def test_names_of_inner_columns() -> None:
    inner = pa.struct([numbered("x", pa.int64(), 3), pa.field("y", pa.list_(numbered("item", pa.int64(), 5)))])
    pairs = pa.map_(numbered("key", pa.string(), 7).with_nullable(False), numbered("value", pa.string(), 8))
    found = dict(field_ids(pa.schema([numbered("s", inner, 2), numbered("m", pairs, 6)])))
    assert found == {"s": 2, "s.x": 3, "s.y": None, "s.y.element": 5, "m": 6, "m.key": 7, "m.value": 8}


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ({"a": 1}, None),
        ({"b": 2}, None),  # a was dropped
        ({"a": 1, "b": 2}, None),
        ({"b": 1}, "'a' of the file is called 'b'"),
        ({"a": 2}, "'a' of the file was dropped"),
        ({"a": 2, "b": 1}, "'a' of the file is called 'b'"),
    ],
)
def test_names_that_mislead(ids: dict[str, int], message: str | None) -> None:
    schema = pa.schema([numbered("a", pa.int64(), 1)])
    if message is None:
        check_names(ids, "f", schema)
        return
    with pytest.raises(Unsupported, match=message):
        check_names(ids, "f", schema)


def test_files_without_numbers() -> None:
    schema = pa.schema({"a": pa.int64()})
    check_names({"a": 1}, "f", schema)
    with pytest.raises(Unsupported, match="no field id"):
        check_names({"a": 1}, "f", schema, demanded=True)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (None, None),
        ({"s": 1, "s.x": 2}, None),
        ({"s": 1, "s.x": 2, "s.old": 2, "gone": 9}, None),
        ({"s": 1}, "'s.x' of the file is none of the table"),
        ({"s": 1, "s.x": 2, "extra": 3}, "'extra' of the file is 'late' of the table"),
        ({"s": 1, "s.x": 9}, "'s.x' of the file is none of the table"),
        ({"s": 1, "s.x": 3}, "'s.x' of the file is 'late' of the table"),
    ],
)
def test_numbers_by_a_name_mapping(mapping: dict[str, int] | None, message: str | None) -> None:
    ids = {"s": 1, "s.x": 2, "late": 3}
    file = pa.schema({"s": pa.struct({"x": pa.int64()}), "extra": pa.int64(), "gone": pa.int64()})
    if message is None:
        check_names(ids, "f", file, mapping)
        return
    with pytest.raises(Unsupported, match=message):
        check_names(ids, "f", file, mapping)


def test_takes_the_columns_of_the_log() -> None:
    log = logged(
        pa.schema(
            {
                "t": pa.timestamp("us", "UTC"),
                "n": pa.int64(),
                "s": pa.struct({"x": pa.int64(), "y": pa.int64()}),
                "p": pa.string(),
            }
        ),
        "p",
    )
    file = pa.schema(
        {
            "p": pa.int64(),
            "gone": pa.string(),
            "n": pa.int32(),
            "t": pa.timestamp("ns"),
            "s": pa.struct({"x": pa.int64()}),
        }
    )
    taken = log.taken("f", file)
    assert taken.equals(pa.schema({"t": pa.timestamp("ns", "UTC"), "n": pa.int32(), "s": log.schema.field("s").type}))
    found = log.discover({"f": taken})
    assert found.schema.names == ["t", "n", "s", "p"]
    assert found.schema.types[:2] == [pa.timestamp("ns", "UTC"), pa.int64()]
    assert (found.partitions, found.mixed) == (("p",), frozenset({"t"}))


def test_only_units_are_remembered() -> None:
    """All other types come from the log, whatever they were before."""
    before = pa.schema({"t": pa.timestamp("ns", "UTC"), "n": pa.int64(), "gone": pa.string()})
    log = logged(pa.schema({"t": pa.timestamp("us", "UTC"), "n": pa.int32()}))
    found = log.discover({}, Table(1, "t", "/t", before, (), frozenset({"t", "gone"})))
    assert found.schema.equals(pa.schema({"t": pa.timestamp("ns", "UTC"), "n": pa.int32()}))
    assert found.mixed == {"t"}


@pytest.mark.parametrize(
    ("type", "count"),
    [
        (pa.int32(), 1),
        (pa.int64(), 1),
        (pa.float64(), 2),
        (pa.decimal128(12, 0), 2),
        (pa.string(), 2),
    ],
)
def test_files_that_are_known_are_looked_at_again(type: pa.DataType, count: int) -> None:
    base = Table(1, "t", "/t", pa.schema({"n": pa.int32(), "t": pa.timestamp("ns")}), ())
    files = [File("known", Identity(1, 1, ""), 7), File("new", Identity(1, 1, ""))]
    log = logged(pa.schema({"n": type, "t": pa.timestamp("us"), "late": pa.string()}))
    assert len(log.unsettled(files, base)) == count


def test_fields_of_structs_are_found_by_name() -> None:
    ours, theirs = pa.struct({"a": pa.int64()}), pa.struct({"new": pa.string(), "a": pa.int64()})
    for shape in (lambda inner: inner, pa.list_, lambda inner: pa.struct({"l": pa.list_(inner)})):
        log = logged(pa.schema({"s": shape(theirs)}))
        assert log.taken("f", pa.schema({"s": shape(ours)})).equals(log.schema)
    log = logged(pa.schema({"m": pa.map_(pa.string(), theirs)}))
    assert not log.taken("f", pa.schema({"m": pa.map_(pa.string(), ours)})).equals(log.schema)


def test_conflicts_name_the_log() -> None:
    log = logged(pa.schema({"n": pa.timestamp("us")}))
    with pytest.raises(SchemaConflict, match="in the log but date32"):
        log.discover({"f": log.taken("f", pa.schema({"n": pa.date32()}))})


def test_ordinals_that_mean_something_else() -> None:
    types = {"a": pa.int32(), "b": pa.float32(), "c": pa.decimal128(5, 2), "d": pa.timestamp("us"), "e": pa.string()}
    others = {"a": pa.int64(), "b": pa.float64(), "c": pa.decimal128(9, 2), "d": pa.timestamp("us"), "f": pa.string()}
    assert respelled(pa.schema(types), pa.schema(others)) == frozenset()
    others = {"a": pa.float64(), "b": pa.string(), "c": pa.decimal128(9, 3), "d": pa.timestamp("ns"), "e": pa.binary()}
    assert respelled(pa.schema(types), pa.schema(others)) == {"a", "b", "c", "d", "e"}
