"""Delta tables: the log decides, whatever is in the directory, and what would be read wrongly is refused."""

from __future__ import annotations

import contextlib
import datetime
import json
import random
import shutil
import string
import struct
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyroaring import BitMap
from tests.buckets import aws_server
from tests.cases import long
from tests.lakes import staged, write
from tests.others import agree, ask_while_it_changes, in_order, rows_of

import needlepoint
import needlepoint.spark
from needlepoint import Lake
from needlepoint.cli import main
from needlepoint.errors import NotIndexable, SchemaConflict, StoreError, UnknownName, Unsupported, UsageError


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return needlepoint.open(tmp_path / "lake", refresh=0)


@pytest.fixture
def orders(tmp_path: Path) -> str:
    """Two versions, partitioned."""
    place = str(tmp_path / "orders")
    write_deltalake(place, rows_of(0, 900), partition_by=["part"])
    write_deltalake(place, rows_of(1000, 300), mode="append")
    return place


def read(place: str) -> pa.Table:
    return pa.table(DeltaTable(place).to_pyarrow_table())


def commit(place: str, *actions: dict[str, Any]) -> None:
    """Commit a version that deltalake does not write."""
    version = DeltaTable(place).version() + 1
    text = "\n".join(json.dumps(action) for action in actions)
    (Path(place) / "_delta_log" / f"{version:020}.json").write_text(text)


def actions(place: str, version: int, kind: str) -> list[dict[str, Any]]:
    lines = (Path(place) / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    return [found[kind] for line in lines if kind in (found := json.loads(line))]


def reader_features(*names: str) -> dict[str, Any]:
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": names, "writerFeatures": names}
    return {"protocol": features}


def test_is_found_indexed_and_followed(lake: Lake, orders: str) -> None:
    lake.create_table("orders", orders)
    lake.create_index("orders", "id")
    lake.create_index("orders", "title", kind="text")
    agree(lake, "orders", read(orders))
    report = lake.sql("SELECT title FROM orders WHERE id = 7").report
    assert (report.tables[0].page_read_files, report.tables[0].scanned_files, report.tables[0].version) == (1, 0, "1")
    assert "orders, version 1" in str(report)

    DeltaTable(orders).delete("id < 30")
    write_deltalake(orders, rows_of(2000, 50), mode="append")
    agree(lake, "orders", read(orders))  # removed files still exist; new ones are not indexed
    status = lake.status().tables[0]
    assert (status.format, status.version, status.unknown) == ("delta", "3", 6)

    (synced,) = lake.sync("orders")
    assert (synced.added, synced.removed, synced.failures) == (6, 3, ())
    status = lake.status().tables[0]
    assert (status.rows, status.unknown) == (read(orders).num_rows, 0)
    agree(lake, "orders", read(orders))
    assert lake.sql("SELECT * FROM orders WHERE id = 2007").report.tables[0].page_read_files == 1
    assert not lake.verify("orders").differences


def test_removed_files_are_not_counted(lake: Lake, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    write_deltalake(place, rows_of(0, 500))
    write_deltalake(place, rows_of(0, 300), mode="overwrite")
    assert len(list(Path(place).glob("*.parquet"))) == 2
    lake.create_table("t", place)
    assert lake.sql("SELECT count(*) AS n FROM t").rows() == [{"n": 300}]
    lake.create_table("all_there_is", place, format="parquet")
    assert lake.sql("SELECT count(*) AS n FROM all_there_is").rows() == [{"n": 800}]


def test_vacuum_checkpoint_and_optimize(lake: Lake, orders: str) -> None:
    lake.create_table("orders", orders)
    lake.create_index("orders", "id")
    DeltaTable(orders).optimize.compact()
    DeltaTable(orders).create_checkpoint()
    DeltaTable(orders).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    agree(lake, "orders", read(orders))
    lake.sync()
    agree(lake, "orders", read(orders))
    for old in sorted((Path(orders) / "_delta_log").glob("*.json")):
        old.unlink()  # as the cleanup of old commits does, when there is a checkpoint
    agree(lake, "orders", read(orders))


PARTITIONS = {
    "text": pa.array(["a", "b/ä", None, "x=y z", "%41", "__p"]),
    "day": pa.array([datetime.date(2020, 1, 1), None] * 3),
    "instant": pa.array([datetime.datetime(2020, 1, 1, 1, 2, 3, 456), None] * 3, pa.timestamp("us", "UTC")),
    "local": pa.array([datetime.datetime(2020, 1, 1, 1, 2, 3, 456), None] * 3, pa.timestamp("us")),
    "number": pa.array([1.5, -0.0, 0.0, None, -2.25, 1e10]),
    "small": pa.array([1, -2, None] * 2, pa.int8()),
    "truth": pa.array([True, False, None] * 2),
    "amount": pa.array([Decimal("1.50"), Decimal("-20.00"), None] * 2, pa.decimal128(10, 2)),
    "_hidden": pa.array(["a", "b"] * 3),
}


@pytest.mark.parametrize("column", PARTITIONS)
def test_partition_values_come_from_the_log(lake: Lake, tmp_path: Path, column: str) -> None:
    place = str(tmp_path / "t")
    write_deltalake(place, pa.table({"id": range(6), column: PARTITIONS[column]}), partition_by=[column])
    # Paths have no meaning: Delta does not define them.
    elsewhere = str(tmp_path / "elsewhere")
    write_deltalake(elsewhere, pa.table({"id": range(6), column: PARTITIONS[column]}), partition_by=[column])
    adds = actions(elsewhere, 0, "add")
    moved = []
    for number, add in enumerate(adds):
        source = next(Path(elsewhere).glob(f"*/{Path(add['path']).name}"))
        shutil.move(source, Path(elsewhere) / f"{number}.parquet")
        moved += [{"remove": {"path": add["path"], "dataChange": True}}, {"add": {**add, "path": f"{number}.parquet"}}]
    commit(elsewhere, *moved)
    for name, where in (("t", place), ("elsewhere", elsewhere)):
        lake.create_table(name, where)
        theirs = read(where)
        assert lake.table(name).schema.field(column).type == theirs.schema.field(column).type
        for query in (
            f'SELECT id, "{column}" FROM {name}',
            f'SELECT id FROM {name} WHERE "{column}" IS NULL',
            f'SELECT "{column}", count(*) AS n FROM {name} GROUP BY "{column}"',
        ):
            agree(lake, name, theirs, [query.replace(f"FROM {name}", "FROM {table}")])
        for row in theirs.to_pylist():
            if row[column] is not None:
                found = lake.sql(f'SELECT id FROM {name} WHERE "{column}" = $value', {"value": row[column]}).rows()
                same = [each["id"] for each in theirs.to_pylist() if each[column] == row[column]]
                assert sorted(each["id"] for each in found) == sorted(same)
        lake.create_index(name, "id")
        assert in_order(lake.table(name).get(id=[1, 4]).to_arrow()) == in_order(
            theirs.filter(pa.compute.is_in(theirs["id"], pa.array([1, 4]))).select(["id", column])
        )


def test_columns_come_go_and_get_wider(lake: Lake, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    write_deltalake(place, pa.table({"id": pa.array([1, 2]), "a": ["x", "y"]}))
    lake.create_table("t", place)
    lake.create_index("t", "id")
    lake.create_index("t", "a", name="of_a")
    write_deltalake(place, pa.table({"id": [3], "b": [1.5]}), mode="append", schema_mode="merge")
    questions = [
        "SELECT * FROM {table}",
        "SELECT id FROM {table} WHERE b IS NULL",
        "SELECT * FROM {table} WHERE id = 3",
    ]
    for _ in range(2):
        agree(lake, "t", read(place), questions)
        lake.sync()
    # An entirely different table: a column has the same name but another type, and the others are missing.
    write_deltalake(place, pa.table({"id": ["1", "2"]}), mode="overwrite", schema_mode="overwrite")
    for _ in range(2):
        assert lake.sql("SELECT * FROM t WHERE id = '2'").rows() == [{"id": "2"}]
        assert lake.sql("SELECT * FROM t").to_arrow().column_names == ["id"]
        (report,) = lake.sync()
        assert [each.reason for each in report.failures] == [
            "index of_a: the table has no column 'a' any more. DROP INDEX removes it."
        ]
    assert lake.sql("SELECT * FROM t WHERE id = '2'").report.tables[0].page_read_files == 1
    lake.rebuild("t")
    write_deltalake(place, pa.table({"a": [7, 8]}), mode="overwrite", schema_mode="overwrite")
    for _ in range(2):
        assert lake.sql("SELECT * FROM t WHERE a = 8").rows() == [{"a": 8}]
        lake.sync()
    assert lake.sql("SELECT * FROM t WHERE a = 8").report.tables[0].page_read_files == 1
    lake.drop_index("of_a")
    write_deltalake(place, pa.table({"a": [9], "late": ["x"]}), mode="append", schema_mode="merge")
    lake.create_index("t", "late")
    assert lake.table("t").get(late="x").rows() == [{"a": 9, "late": "x"}]


def test_partitioning_can_change(lake: Lake, orders: str) -> None:
    lake.create_table("orders", orders)
    lake.create_index("orders", "id")
    write_deltalake(orders, rows_of(0, 60), mode="overwrite", schema_mode="overwrite", partition_by=["title"])
    agree(lake, "orders", read(orders))
    lake.sync()
    agree(lake, "orders", read(orders))
    assert lake.status().tables[0].partitions == ("title",)
    with pytest.raises(NotIndexable, match="partition column"):
        lake.create_index("orders", "title", kind="text")


def test_timestamps_as_spark_writes_them(lake: Lake, tmp_path: Path) -> None:
    """Spark writes INT96, which has no zone; the log says microseconds in UTC."""
    place = tmp_path / "t"
    instants = pa.table({"id": [1, 2], "at": pa.array([1_000_000, 2_000_001], pa.timestamp("us", "UTC"))})
    write_deltalake(place, instants)
    lake.create_table("t", place)
    lake.create_index("t", "at")
    pq.write_table(instants, place / "spark.parquet", use_deprecated_int96_timestamps=True)
    add = {**actions(str(place), 0, "add")[0], "path": "spark.parquet", "stats": None}
    commit(str(place), {"add": {**add, "size": (place / "spark.parquet").stat().st_size}})
    for _ in range(2):
        query = "SELECT id FROM t WHERE at = TIMESTAMP '1970-01-01T00:00:02.000001Z'"
        assert lake.sql(query).rows() == [{"id": 2}, {"id": 2}]
        assert lake.sql("SELECT count(DISTINCT at) AS n, max(id) AS m FROM t WHERE at > '1970-01-01'").rows() == [
            {"n": 2, "m": 2}
        ]
        lake.sync()


def test_narrow_files_of_a_wider_column(lake: Lake, tmp_path: Path) -> None:
    place = tmp_path / "t"
    write_deltalake(place, pa.table({"id": pa.array([1, 2**40]), "f": pa.array([0.1, 2.0])}))
    lake.create_table("t", place)
    lake.create_index("t", "id")
    write(pa.table({"id": pa.array([1, 7], pa.int32()), "f": pa.array([0.5, 2.5], pa.float32())}), place / "n.parquet")
    add = {**actions(str(place), 0, "add")[0], "path": "n.parquet", "stats": None}
    commit(str(place), reader_features("typeWidening"), {"add": {**add, "size": (place / "n.parquet").stat().st_size}})
    for _ in range(2):
        assert in_order(lake.sql("SELECT * FROM t WHERE id IN (1, 7)").to_arrow()) == in_order(
            pa.table({"id": [1, 1, 7], "f": [0.1, 0.5, 2.5]})
        )
        lake.sync()
    write(pa.table({"id": [datetime.date(2020, 1, 1)]}), place / "d.parquet")
    commit(str(place), {"add": {**add, "path": "d.parquet", "size": (place / "d.parquet").stat().st_size}})
    with pytest.raises(SchemaConflict, match="'id' is int64 in the log but date32"):
        lake.sql("SELECT count(*) FROM t")
    with pytest.raises(SchemaConflict, match=r"d.parquet"):
        lake.sync()


def typed(place: str, column: str, type: Any, version: int = 0) -> dict[str, Any]:
    """An action that changes the type of a column and keeps the files."""
    (metadata,) = actions(place, version, "metaData")
    schema = json.loads(metadata["schemaString"])
    next(field for field in schema["fields"] if field["name"] == column)["type"] = type
    return {"metaData": {**metadata, "schemaString": json.dumps(schema)}}


DAY = datetime.date(2020, 1, 1)
# Types that Delta may widen, before and after: https://github.com/delta-io/delta, PROTOCOL.md, Type Widening.
SAME_FAMILY = [
    (pa.int8(), "short", [5, 6, None]),
    (pa.int16(), "integer", [5, 6, None]),
    (pa.int32(), "long", [5, 6, None]),
    (pa.int8(), "long", [5, 6, None]),
    (pa.float32(), "double", [0.1, 6, None]),
    (pa.decimal128(9, 2), "decimal(14,2)", [Decimal("5.25"), Decimal("6.00"), None]),
    (pa.decimal128(10, 2), "decimal(38,2)", [Decimal("5.25"), Decimal("6.00"), None]),
]
OTHER_FAMILY = [
    (pa.int8(), "double", [5, 6], "6"),
    (pa.int32(), "double", [5, 6], "6"),
    (pa.int16(), "decimal(12,2)", [5, 6], "6"),
    (pa.int32(), "decimal(12,2)", [5, 6], "6"),
    (pa.int64(), "decimal(20,0)", [5, 6], "6"),
    (pa.decimal128(10, 2), "decimal(14,4)", [Decimal("5.00"), Decimal("6.00")], "6"),
    (pa.date32(), "timestamp_ntz", [DAY, DAY + datetime.timedelta(1)], "TIMESTAMP '2020-01-02'"),
]


@pytest.mark.parametrize(("before", "after", "values"), [*SAME_FAMILY[:1], *long(*SAME_FAMILY[1:])], ids=str)
def test_a_type_gets_wider(lake: Lake, tmp_path: Path, before: pa.DataType, after: str, values: list[Any]) -> None:
    place = str(tmp_path / "t")
    old = pa.table({"id": range(3), "x": pa.array(values, before)})
    write_deltalake(place, old)
    lake.create_table("t", place)
    lake.create_index("t", "x")
    lake.create_index("t", "x", kind="bloom")
    commit(place, typed(place, "x", after))
    theirs = read(place)  # deltalake casts, but refuses the feature by its name
    commit(place, reader_features("typeWidening"))
    lake.create_table("again", place)
    assert in_order(theirs) == in_order(old.set_column(1, "x", old["x"].cast(theirs.schema.field("x").type)))
    for _ in range(2):
        for name in ("t", "again"):
            for where in ("x = 6", "x > 5.5", "x < 6", "x IS NULL", "x IN (6, 7)", "x = 60000", "x = 0.1"):
                agree(lake, name, theirs, [f"SELECT * FROM {{table}} WHERE {where}"])
            assert [row["id"] for row in lake.table(name).get(x=6).rows()] == [1]
        lake.sync()


@pytest.mark.parametrize(("before", "after", "values", "asked"), OTHER_FAMILY, ids=str)
def test_a_type_of_another_family_is_refused(
    lake: Lake, tmp_path: Path, before: pa.DataType, after: str, values: list[Any], asked: str
) -> None:
    """Bounds, filters and keys of known files are on another scale."""
    place = str(tmp_path / "t")
    old = pa.table({"id": [0, 1], "x": pa.array(values, before)})
    write_deltalake(place, old)
    lake.create_table("t", place)
    lake.create_index("t", "id")
    assert len(lake.table("t").get(id=1).rows()) == 1
    commit(place, reader_features("typeWidening", "timestampNtz"), typed(place, "x", after))
    (add,) = actions(place, 0, "add")
    for _ in range(2):
        for ask in (
            lambda: lake.sql(f"SELECT id FROM t WHERE x = {asked}"),
            lambda: lake.table("t").get(id=1),
            lambda: lake.sync("t"),
            lambda: lake.create_table("again", place),
        ):
            with pytest.raises(SchemaConflict, match=rf"'x' is .* in the log but .* in {add['path']}"):
                ask()
        commit(place, {"commitInfo": {}})
    # After the files are rewritten, all have the new type.
    type = pa.schema(DeltaTable(place).schema().to_arrow()).field("x").type
    pq.write_table(old.set_column(1, "x", old["x"].cast(type)), Path(place) / "new.parquet")
    new = {**add, "path": "new.parquet", "stats": None, "size": (Path(place) / "new.parquet").stat().st_size}
    commit(place, {"remove": {"path": add["path"], "dataChange": True}}, {"add": new})
    for _ in range(2):
        assert lake.sql(f"SELECT id FROM t WHERE x = {asked}").rows() == [{"id": 1}]
        assert lake.sql("SELECT count(x) AS n FROM t").rows() == [{"n": 2}]
        lake.sync()


NESTED = {
    "struct": [{"a": 1, "b": -1}, None],
    "struct_in_struct": [{"a": 1, "s": {"a": 2, "b": -2}}, {"a": 2, "s": None}],
    "list": [[{"a": 1, "b": -1}], []],
    "list_in_struct": [{"a": 1, "l": [{"a": 2, "b": -2}]}, None],
}


def turned(type: Any) -> Any:
    """The fields of structs in reverse order, with a new one between them."""
    if not isinstance(type, dict):
        return type
    if type["type"] == "array":
        return {**type, "elementType": turned(type["elementType"])}
    first, *rest = [{**field, "type": turned(field["type"])} for field in reversed(type["fields"])]
    return {**type, "fields": [first, {"name": "new", "type": "string", "nullable": True, "metadata": {}}, *rest]}


@pytest.mark.parametrize("shape", NESTED)
def test_fields_in_another_order(lake: Lake, tmp_path: Path, shape: str) -> None:
    """Page reads and native scans find fields by name, even if several have the same type."""
    place = str(tmp_path / "t")
    write_deltalake(place, pa.table({"id": range(2000), "s": pa.array(NESTED[shape] * 1000)}))
    lake.create_table("t", place)
    lake.create_index("t", "id")
    (metadata,) = actions(place, 0, "metaData")
    commit(place, typed(place, "s", turned(json.loads(metadata["schemaString"])["fields"][1]["type"])))
    lake.create_table("again", place)
    lake.create_index("again", "id")
    for _ in range(2):
        for name in ("t", "again"):
            agree(lake, name, read(place), ["SELECT * FROM {table}", "SELECT * FROM {table} WHERE id IN (7, 8)"])
            assert lake.sql(f"SELECT * FROM {name} WHERE id = 8").report.tables[0].page_read_files == 1
        lake.sync()


def test_types_inside_of_others(lake: Lake, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    write_deltalake(place, pa.table({"id": [1], "s": pa.array([{"a": 1}], pa.struct({"a": pa.int32()}))}))
    lake.create_table("t", place)
    inner = {"name": "a", "type": "decimal(12,2)", "nullable": True, "metadata": {}}
    commit(place, reader_features("typeWidening"), typed(place, "s", {"type": "struct", "fields": [inner]}))
    for ask in (lambda: lake.sql("SELECT * FROM t"), lambda: lake.sync("t"), lambda: lake.create_table("u", place)):
        with pytest.raises(SchemaConflict, match="'s' is struct<a: decimal128"):
            ask()


def test_nested_columns(lake: Lake, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    nested = pa.table(
        {
            "id": [1, 2],
            "tags": pa.array([["a"], None], pa.list_(pa.string())),
            "s": pa.array([{"x": 1, "y": "b"}, None], pa.struct({"x": pa.int64(), "y": pa.string()})),
            "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        }
    )
    write_deltalake(place, nested)
    lake.create_table("t", place)
    lake.create_index("t", "id")
    for query in ("SELECT * FROM t", "SELECT * FROM t WHERE id = 1"):
        expected = nested if "WHERE" not in query else nested.slice(0, 1)
        assert in_order(lake.sql(query).to_arrow()) == in_order(expected)


def z85(data: bytes) -> str:
    """Four bytes as five letters, as ZeroMQ and Delta write them."""
    letters = string.digits + string.ascii_letters + ".-:+=^!/*?&<>()[]{}@%$#"
    numbers = struct.unpack(f">{len(data) // 4}I", data)
    return "".join(letters[number // 85**place % 85] for number in numbers for place in range(4, -1, -1))


def inline_vector(*rows: int) -> dict[str, Any]:
    """The numbers of deleted rows in the log itself: a magic number, one bitmap, its high bits, the bitmap."""
    data = struct.pack("<IqI", 1681511377, 1, 0) + BitMap(rows).serialize()
    padded = data + bytes(-len(data) % 4)
    return {"storageType": "i", "pathOrInlineDv": z85(padded), "sizeInBytes": len(data), "cardinality": len(rows)}


LOST = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}


def test_structs_that_got_fields(lake: Lake, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    first, second = pa.struct({"x": pa.int64()}), pa.struct({"x": pa.int64(), "y": pa.string()})
    write_deltalake(place, pa.table({"id": [1, 2], "s": pa.array([{"x": 1}, None], first)}))
    lake.create_table("t", place)
    lake.create_index("t", "id")
    new = pa.table({"id": [3], "s": pa.array([{"x": 1, "y": "b"}], second)})
    write_deltalake(place, new, mode="append", schema_mode="merge")
    lake.create_table("again", place)
    for name in ("t", "again"):
        for question in ("SELECT * FROM {table}", "SELECT * FROM {table} WHERE id = 1"):
            agree(lake, name, read(place), [question])
        agree(lake, name, read(place), ["SELECT id FROM {table} WHERE s['y'] IS NULL"])
        lake.sync()


@pytest.mark.long
@pytest.mark.spark
def test_spark_reads_what_the_log_says(spark: Any, lake: Lake, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    odd = pa.table({"id": range(6), "p": ["a", None, "b/c", "007", "null", "a"]})
    write_deltalake(place, odd, partition_by=["p"])
    write_deltalake(place, odd, mode="overwrite")
    lake.create_table("t", place)
    lake.create_index("t", "id")
    for where in (None, "id < 100", "id = 3", "p = '007'"):
        found = needlepoint.spark.read(spark, lake, "t", where=where).toArrow()
        assert in_order(found) == in_order(lake.sql(f"SELECT * FROM t WHERE {where or 'true'}").to_arrow())
    assert needlepoint.spark.read(spark, lake, "t").count() == 6
    with pytest.raises(UsageError, match="does not write"):
        needlepoint.spark.write(spark.createDataFrame([(1, "a")], "id long, p string"), lake, "t")


@pytest.mark.parametrize("vector", [inline_vector(0, 3), {**LOST, "cardinality": 2}], ids=["inline", "lost"])
def test_deletion_vectors_are_refused(lake: Lake, orders: str, vector: dict[str, Any]) -> None:
    lake.create_table("orders", orders)
    lake.create_index("orders", "id")
    assert len(lake.table("orders").get(id=7).rows()) == 1
    expected = read(orders)
    commit(orders, reader_features("deletionVectors"))  # the feature alone is fine
    agree(lake, "orders", expected)
    add = actions(orders, 0, "add")[0]
    removed = {"path": add["path"], "dataChange": True}
    commit(orders, {"remove": removed}, {"add": {**add, "deletionVector": vector}})
    for ask in (
        lambda: lake.sql("SELECT count(*) FROM orders"),
        lambda: lake.table("orders").get(id=7),
        lambda: lake.sync("orders"),
        lambda: lake.create_table("again", orders),
    ):
        with pytest.raises(Unsupported, match=r"deletion vectors.* REORG TABLE … APPLY \(PURGE\)"):
            ask()
    commit(orders, {"remove": removed | {"deletionVector": vector}}, {"add": add})
    agree(lake, "orders", expected)


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ("someNewThing", "someNewThing"),
        ("variantType", "variantType"),
        ("catalogManaged", "catalog-managed"),
    ],
)
def test_what_readers_must_know_is_refused(lake: Lake, orders: str, feature: str, message: str) -> None:
    lake.create_table("orders", orders)
    commit(orders, reader_features(feature))
    for ask in (lambda: lake.sql("SELECT count(*) FROM orders"), lambda: lake.sync("orders")):
        with pytest.raises(Unsupported, match=message):
            ask()


def test_column_mapping(lake: Lake, orders: str) -> None:
    """Until a column is renamed, files have the column names of the table."""
    lake.create_table("orders", orders)
    (metadata,) = actions(orders, 0, "metaData")
    schema = json.loads(metadata["schemaString"])
    for mode, renamed in (("name", False), ("id", False), ("name", True)):
        for number, field in enumerate(schema["fields"], 1):
            physical = "col-7" if renamed and field["name"] == "title" else field["name"]
            field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
        changed = {**metadata, "schemaString": json.dumps(schema)}
        changed["configuration"] = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "4"}
        commit(orders, reader_features("columnMapping"), {"metaData": changed})
        if mode == "name" and not renamed:
            agree(lake, "orders", pa.concat_tables([rows_of(0, 900), rows_of(1000, 300)]))
            continue
        with pytest.raises(Unsupported, match=f"column mapping by {mode}"):
            lake.sql("SELECT title FROM orders")


def test_files_of_other_tables_are_refused(lake: Lake, orders: str, tmp_path: Path) -> None:
    add = actions(orders, 0, "add")[0]
    commit(orders, {"add": {**add, "path": f"{tmp_path}/elsewhere/a.parquet"}})
    with pytest.raises(Unsupported, match="is outside of it, as after a shallow clone"):
        lake.create_table("orders", orders)


def test_a_file_that_is_gone_is_an_error(lake: Lake, orders: str) -> None:
    lake.create_table("orders", orders)
    next(Path(orders).glob("part=p1/*.parquet")).unlink()
    with pytest.raises(StoreError, match="names files in version 1 that are missing"):
        lake.sql("SELECT count(*) FROM orders")


def test_nothing_is_written(lake: Lake, orders: str, tmp_path: Path) -> None:
    lake.create_table("orders", orders)
    before = {path: path.stat().st_mtime_ns for path in Path(orders).rglob("*") if path.is_file()}
    for ask in (
        lambda: lake.create_index("orders", "title", kind="text", embed=True),
        lambda: lake.sql("CREATE INDEX ON orders USING key (id) WITH (embed = true)"),
        lambda: lake.retrofit("orders"),
        lambda: lake.writer.staging("orders"),
        lambda: lake.publish("orders", [], tmp_path),
    ):
        with pytest.raises(UsageError, match="table 'orders' is a Delta table; Needlepoint does not write its files"):
            ask()
    lake.create_index("orders", "id")
    lake.rebuild("orders", from_data=True)
    lake.sweep()
    lake.drop_table("orders")
    assert before == {path: path.stat().st_mtime_ns for path in Path(orders).rglob("*") if path.is_file()}
    # A first batch would create a plain table in the lake's directory of that name.
    write_deltalake(str(lake.root / "mine"), rows_of(0, 10))
    staging = lake.writer.staging("mine")
    with pytest.raises(UsageError, match="is a Delta table, which Needlepoint does not write"):
        lake.publish("mine", staged(staging, {"a.parquet": rows_of(0, 10)}), staging)


@pytest.mark.long
def test_no_advice_to_rewrite_its_files(lake: Lake, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    for number in range(40):
        write_deltalake(place, rows_of(number * 100, 100), mode="append")
    lake.create_table("others", place)
    lake.create_table("plain", place, format="parquet")
    for name in ("others", "plain"):
        for number in range(40):
            lake.sql(f"SELECT price FROM {name} WHERE id > {number} AND id < {number + 5}")
    assert [each.what for each in lake.advise("plain").advice] == ["compact"]
    assert lake.advise("others").advice == ()


def test_never_taken_for_plain_files(lake: Lake, orders: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is inside .*/orders, a Delta table: not every file"):
        lake.create_table("t", f"{orders}/part=p1")
    with pytest.raises(UsageError, match=r"holds .*/orders, a Delta table"):
        lake.create_table("t", tmp_path)
    with pytest.raises(UsageError, match="'avro' is not a table format"):
        lake.create_table("t", orders, format="avro")
    with pytest.raises(StoreError, match="is not a Delta table"):
        lake.create_table("t", tmp_path / "lake", format="delta")
    lake.create_table("p1", f"{orders}/part=p1", format="parquet")
    assert lake.sql("SELECT count(*) AS n FROM p1").rows() == [{"n": 400}]


def test_empty_table_and_unknown_column(lake: Lake, tmp_path: Path) -> None:
    place = str(tmp_path / "a b=c+ü")
    DeltaTable.create(place, pa.schema({"id": pa.int64(), "p": pa.string()}), partition_by=["p"])
    lake.create_table("t", place)
    lake.create_index("t", "id")
    assert lake.sql("SELECT * FROM t WHERE id = 1").rows() == []
    with pytest.raises(UnknownName):
        lake.create_index("t", "what")
    write_deltalake(place, pa.table({"id": [1, 2], "p": ["a", "b"]}), mode="append")
    assert lake.sql("SELECT * FROM t WHERE id = 1").rows() == [{"id": 1, "p": "a"}]
    lake.sync()
    assert lake.sql("SELECT * FROM t WHERE id = 1").rows() == [{"id": 1, "p": "a"}]
    with pytest.raises(UsageError, match="has a % in its name"):
        lake.create_table("escaped", tmp_path / "100%41", format="delta")


def test_recreated_in_the_same_place(lake: Lake, orders: str) -> None:
    lake.create_table("orders", orders)
    lake.create_index("orders", "id")
    agree(lake, "orders", read(orders))
    shutil.rmtree(orders)
    with pytest.raises(StoreError, match="is not a Delta table"):
        lake.sql("SELECT count(*) FROM orders")
    write_deltalake(orders, rows_of(5, 100))
    write_deltalake(orders, rows_of(500, 100), mode="append")
    for _ in range(2):
        agree(lake, "orders", read(orders))
        lake.sync()


def test_log_is_read_when_the_listing_is_old(tmp_path: Path, orders: str) -> None:
    lake = needlepoint.open(tmp_path / "lake", refresh=3600)
    lake.create_table("orders", orders)
    count = "SELECT count(*) AS n FROM orders"
    assert lake.sql(count).rows() == [{"n": 1200}]
    write_deltalake(orders, rows_of(2000, 50), mode="append")
    assert lake.sql(count).rows() == [{"n": 1200}]
    lake.sync()
    assert lake.sql(count).rows() == [{"n": 1250}]


def test_plan_for_others_has_the_values_of_partitions(lake: Lake, orders: str) -> None:
    lake.create_table("orders", orders)
    lake.create_index("orders", "id")
    plan = lake.plan_read("orders", "part = 'p1' AND id < 400")
    batches = [batch for part in plan.parts for batch in part.batches()]
    theirs = read(orders)
    wanted = theirs.filter((pa.compute.field("part") == "p1") & (pa.compute.field("id") < 400))
    assert in_order(pa.Table.from_batches(batches)) == in_order(wanted.select(batches[0].schema.names))


def test_versions_that_come_while_it_is_asked(lake: Lake, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    write_deltalake(place, pa.table({"id": range(100), "generation": [0] * 100}))
    lake.create_table("t", place)
    lake.create_index("t", "id")

    def overwrite(number: int) -> None:
        write_deltalake(place, pa.table({"id": range(100), "generation": [number] * 100}), mode="overwrite")

    ask_while_it_changes(lake, overwrite, 14)


@pytest.mark.parametrize("seed", [0, *long(1, 2)])
def test_any_sequence_of_changes(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    place = str(tmp_path / "t")
    lake = needlepoint.open(tmp_path / "lake", refresh=0)
    write_deltalake(place, rows_of(0, 200), partition_by=["part"] if seed % 2 else None)
    lake.create_table("t", place)
    lake.create_index("t", "id")
    lake.create_index("t", "title", kind="text")
    first = 1000
    for _ in range(10):
        low = chance.randrange(0, 300)
        match chance.choice(["append", "overwrite", "delete", "update", "optimize", "restore", "sync", "checkpoint"]):
            case "append":
                write_deltalake(place, rows_of(first, chance.randrange(1, 80), seed=seed), mode="append")
                first += 100
            case "overwrite":
                write_deltalake(place, rows_of(0, 100, seed=chance.randrange(9)), mode="overwrite")
            case "delete":
                DeltaTable(place).delete(f"id >= {low} AND id < {low + 40}")
            case "update":
                DeltaTable(place).update(predicate=f"id > {low}", updates={"title": "'dairy cow'"})
            case "optimize":
                DeltaTable(place).optimize.compact()
            case "restore":
                with contextlib.suppress(DeltaError):  # the newest version cannot be restored
                    DeltaTable(place).restore(chance.randrange(0, DeltaTable(place).version() + 1))
            case "sync":
                lake.sync("t")
            case "checkpoint":
                DeltaTable(place).create_checkpoint()
        agree(lake, "t", read(place))
    lake.sync()
    assert lake.status().tables[0].rows == read(place).num_rows
    agree(lake, "t", read(place))


def test_on_the_command_line(orders: str, tmp_path: Path) -> None:
    runner = CliRunner(env={"NEEDLE_LAKE": str(tmp_path / "lake")})
    made = runner.invoke(main, ["create-table", "orders", orders])
    assert made.stdout == "table orders: 6 files, 1,200 rows, partitioned by part, delta\n"
    assert runner.invoke(main, ["create-table", "plain", orders, "--format", "parquet"]).exit_code == 0
    assert "orders (delta, version 1)" in runner.invoke(main, ["status"]).stdout
    refused = runner.invoke(main, ["create-index", "orders", "id", "--embed"])
    assert (refused.exit_code, "does not write" in refused.stderr) == (1, True)


def test_without_the_extra(orders: str, tmp_path: Path) -> None:
    """A Delta directory is not treated as a plain table if deltalake is not installed."""
    script = f"""
import sys
sys.modules["deltalake"] = None
import needlepoint
try:
    needlepoint.open({str(tmp_path / "lake")!r}).create_table("orders", {orders!r})
except needlepoint.UsageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "is a Delta table; reading it takes deltalake" in done.stdout
    assert "pip install 'needlepoint[delta]'" in done.stdout


@pytest.mark.long
def test_in_a_bucket(tmp_path: Path, orders: str) -> None:
    with aws_server() as server:
        bucket = server.bucket()
        bucket.put_directory(Path(orders), "lake/orders")
        lake = needlepoint.open(tmp_path / "remote", object_refresh=0)
        lake.create_table("orders", bucket.url("lake/orders"))
        lake.create_index("orders", "id")
        agree(lake, "orders", read(orders))
        DeltaTable(orders).delete("id < 30")
        write_deltalake(orders, rows_of(2000, 50), mode="append")
        bucket.put_directory(Path(orders), "lake/orders")
        agree(lake, "orders", read(orders))
        lake.sync()
        agree(lake, "orders", read(orders))
        assert lake.status().tables[0].version == "3"
        # A notification about the log is followed; those about data files are ignored.
        write_deltalake(orders, rows_of(3000, 50), mode="append")
        bucket.put_directory(Path(orders), "lake/orders")
        for key in ("part%3Dp1/new.parquet", f"_delta_log/{4:020}.json"):
            record = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "eventVersion": "2.1"}
            place = {"bucket": {"name": bucket.name}, "object": {"key": f"lake/orders/{key}"}}
            lake.queue.put(json.dumps({"Records": [{**record, "s3": place}]}))
        handled = list(lake.follow_events(once=True))
        assert [(each.problem, each.indexed, each.passed_over) for each in handled] == [("", 0, 1), ("", 3, 0)]
        assert lake.status().tables[0].unknown == 0
        agree(lake, "orders", read(orders))
        with pytest.raises(UsageError, match="is inside"):
            lake.create_table("t", bucket.url("lake/orders/part=p1"))
        with pytest.raises(UsageError, match="holds"):
            lake.create_table("t", bucket.url("lake"))
