"""Iceberg tables: the metadata decides, whatever is in the directory, and what would be read wrongly is refused."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable, Table
from pyiceberg.types import DoubleType, LongType, StringType
from tests.buckets import aws_server
from tests.cases import long
from tests.others import agree, ask_while_it_changes, in_order, rows_of

import needlepoint
from needlepoint import Lake
from needlepoint.errors import StoreError, Unsupported, UsageError


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return needlepoint.open(tmp_path / "lake", refresh=0)


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    made = SqlCatalog("tests", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    made.create_namespace("shop")
    yield made
    made.engine.dispose()


@pytest.fixture
def orders(catalog: SqlCatalog) -> Table:
    table = catalog.create_table("shop.orders", rows_of(0, 1).schema)
    table.append(rows_of(0, 900))
    table.append(rows_of(1000, 300))
    return table


def place(table: Table) -> str:
    return table.location().removeprefix("file://")


def read(table: Table) -> pa.Table:
    return table.refresh().scan().to_arrow()


def edited(table: Table, **changes: Any) -> None:
    """Write a version of the metadata that pyiceberg does not write."""
    path = Path(table.refresh().metadata_location.removeprefix("file://"))
    number = int(path.name.partition("-")[0]) + 1
    path.with_name(f"{number:05}-edited.metadata.json").write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_is_found_indexed_and_followed(lake: Lake, orders: Table) -> None:
    lake.create_table("orders", place(orders))
    lake.create_index("orders", "id")
    lake.create_index("orders", "title", kind="text")
    agree(lake, "orders", read(orders))
    report = lake.sql("SELECT title FROM orders WHERE id = 7").report.tables[0]
    assert (report.page_read_files, report.scanned_files, report.version) == (1, 0, "2")

    orders.delete("id < 30")
    orders.append(rows_of(2000, 50))
    agree(lake, "orders", read(orders))  # removed files still exist; new ones are not indexed
    status = lake.status().tables[0]
    assert (status.format, status.version, status.unknown) == ("iceberg", "4", 2)
    (synced,) = lake.sync("orders")
    assert (synced.added, synced.removed, synced.failures) == (2, 1, ())
    assert lake.status().tables[0].rows == read(orders).num_rows
    agree(lake, "orders", read(orders))
    assert lake.sql("SELECT * FROM orders WHERE id = 2007").report.tables[0].page_read_files == 1
    assert not lake.verify("orders").differences


def test_partitions_are_columns_like_others(lake: Lake, catalog: SqlCatalog) -> None:
    table = catalog.create_table("shop.parts", rows_of(0, 1).schema)
    with table.update_spec() as update:
        update.add_identity("part")
    rows = rows_of(0, 300)
    odd = pa.table({**{name: rows[name].slice(0, 3) for name in rows.column_names}, "part": ["a/b ä", None, "null"]})
    table.append(rows)
    table.append(odd)
    lake.create_table("t", place(table))
    lake.create_index("t", "part")
    assert lake.status().tables[0].partitions == ()
    agree(lake, "t", read(table))
    agree(lake, "t", read(table), ["SELECT * FROM {table} WHERE part IN ('a/b ä', 'null')"])
    agree(lake, "t", read(table), ["SELECT * FROM {table} WHERE part IS NULL"])


def test_columns_come_go_and_get_wider(lake: Lake, catalog: SqlCatalog) -> None:
    first = pa.table({"id": pa.array([1, 2], pa.int32()), "f": pa.array([0.5, 1.5], pa.float32()), "a": ["x", "y"]})
    table = catalog.create_table("shop.t", first.schema)
    table.append(first)
    lake.create_table("t", place(table))
    lake.create_index("t", "id")
    lake.create_index("t", "a", name="of_a")
    with table.update_schema() as update:
        update.add_column("b", StringType())
        update.update_column("id", LongType())
        update.update_column("f", DoubleType())
    for _ in range(2):
        agree(lake, "t", read(table), ["SELECT * FROM {table}", "SELECT f FROM {table} WHERE id = 2"])
        table.append(pa.table({"id": [2**40], "f": [0.1], "a": ["z"], "b": ["new"]}))
        agree(lake, "t", read(table), ["SELECT * FROM {table}", "SELECT id FROM {table} WHERE b IS NULL"])
        lake.sync()
    with table.update_schema() as update:
        update.delete_column("a")
    for _ in range(2):
        agree(lake, "t", read(table), ["SELECT * FROM {table}", "SELECT * FROM {table} WHERE id = 1"])
        (report,) = lake.sync()
        assert "index of_a: the table has no column 'a' any more" in report.failures[0].reason


def test_renamed_columns_are_refused(lake: Lake, orders: Table) -> None:
    lake.create_table("orders", place(orders))
    lake.create_index("orders", "id")
    with orders.update_schema() as update:
        update.rename_column("title", "name")
    for ask in (
        lambda: lake.sql("SELECT name FROM orders"),
        lambda: lake.table("orders").get(id=7),
        lambda: lake.sync("orders"),
        lambda: lake.create_table("again", place(orders)),
    ):
        with pytest.raises(Unsupported, match=r"'title' of the file is called 'name' in the table now"):
            ask()
    orders.overwrite(read(orders))
    for _ in range(2):
        agree(
            lake, "orders", read(orders), ["SELECT * FROM {table} WHERE id = 7", "SELECT count(name) AS n FROM {table}"]
        )
        lake.sync()


def test_columns_that_take_the_name_of_others_are_refused(lake: Lake, orders: Table) -> None:
    lake.create_table("orders", place(orders))
    with orders.update_schema() as update:
        update.delete_column("title")
    agree(lake, "orders", read(orders), ["SELECT * FROM {table} WHERE id = 7"])
    with orders.update_schema() as update:
        update.add_column("title", StringType())
    assert read(orders)["title"].null_count == 1200
    for ask in (lambda: lake.sql("SELECT count(title) FROM orders"), lambda: lake.sync("orders")):
        with pytest.raises(Unsupported, match="'title' of the file was dropped, and the table has another one"):
            ask()


def test_names_that_files_have_otherwise_are_refused(lake: Lake, catalog: SqlCatalog) -> None:
    """pyiceberg writes `a b` as `a_x20b`."""
    table = catalog.create_table("shop.t", pa.schema({"a b": pa.int64()}))
    table.append(pa.table({"a b": [1]}))
    with pytest.raises(Unsupported, match="'a_x20b' of the file is called 'a b'"):
        lake.create_table("t", place(table))


def test_schemas_that_were_forgotten(lake: Lake, orders: Table) -> None:
    """Metadata need not list the schemas that files were written with."""
    lake.create_table("orders", place(orders))
    with orders.update_schema() as update:
        update.rename_column("title", "name")
    metadata = json.loads(Path(orders.metadata_location.removeprefix("file://")).read_text())
    edited(orders, schemas=[each for each in metadata["schemas"] if each["schema-id"] == 1])
    with pytest.raises(Unsupported, match="is called 'name'"):
        lake.sql("SELECT name FROM orders")


def test_initial_defaults_are_refused(lake: Lake, orders: Table) -> None:
    lake.create_table("orders", place(orders))
    metadata = json.loads(Path(orders.metadata_location.removeprefix("file://")).read_text())
    schema = metadata["schemas"][0]
    added = {"id": 5, "name": "new", "required": False, "type": "long", "initial-default": 7}
    schema["fields"].append(added)
    edited(orders, **{"format-version": 3, "schemas": [schema], "last-column-id": 5, "next-row-id": 0})
    with pytest.raises(Unsupported, match="column 'new' has an initial default"):
        lake.sql("SELECT new FROM orders")


@pytest.mark.parametrize(("content", "kind"), [(1, "positional deletes"), (2, "equality deletes")])
def test_deleted_rows_are_refused(lake: Lake, orders: Table, content: int, kind: str) -> None:
    lake.create_table("orders", place(orders))
    lake.create_index("orders", "id")
    assert len(lake.table("orders").get(id=7).rows()) == 1
    add_delete_file(orders, content)
    for ask in (
        lambda: lake.sql("SELECT count(*) FROM orders"),
        lambda: lake.table("orders").get(id=7),
        lambda: lake.sync("orders"),
        lambda: lake.create_table("again", place(orders)),
    ):
        with pytest.raises(Unsupported, match=f"deleted by {kind}.* rewrite_data_files"):
            ask()


def add_delete_file(table: Table, content: int) -> None:
    """Add a snapshot with a delete file, which pyiceberg can read but not write."""
    from pyiceberg.manifest import (
        DataFile,
        DataFileContent,
        FileFormat,
        ManifestContent,
        ManifestEntry,
        ManifestEntryStatus,
        ManifestWriterV2,
        write_manifest_list,
    )
    from pyiceberg.typedef import Record

    class DeletesWriter(ManifestWriterV2):
        def content(self) -> ManifestContent:
            return ManifestContent.DELETES

        @property
        def _meta(self) -> dict[str, str]:
            return {**super()._meta, "content": "deletes"}

    table.refresh()
    snapshot, io = table.current_snapshot(), table.io
    where = f"{table.location()}/metadata"
    file = DataFile.from_args(
        content=DataFileContent(content), file_path=f"{table.location()}/data/deletes.parquet",
        file_format=FileFormat.PARQUET, partition=Record(), record_count=1, file_size_in_bytes=100,
        equality_ids=[1] if content == 2 else None,
    )  # fmt: skip
    output = io.new_output(f"{where}/deletes-m0.avro")
    with DeletesWriter(table.spec(), table.schema(), output, snapshot.snapshot_id, "null") as writer:
        entry = ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED, snapshot_id=snapshot.snapshot_id, sequence_number=9, data_file=file
        )
        writer.add_entry(entry)
    manifests = [*snapshot.manifests(io), writer.to_manifest_file()]
    with write_manifest_list(
        2, io.new_output(f"{where}/snap-deletes.avro"), snapshot.snapshot_id, None, 9, "null"
    ) as listed:
        listed.add_manifests(manifests)
    metadata = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    for each in metadata["snapshots"]:
        if each["snapshot-id"] == snapshot.snapshot_id:
            each["manifest-list"] = f"{where}/snap-deletes.avro"
    edited(table, snapshots=metadata["snapshots"], **{"last-sequence-number": 9})


def test_files_that_were_added_as_they_were(lake: Lake, catalog: SqlCatalog, tmp_path: Path) -> None:
    """They have no field ids, and the partition column is only in the path."""
    table = catalog.create_table("shop.t", pa.schema({"id": pa.int64(), "p": pa.string()}))
    outside = Path(place(table)) / "data" / "plain.parquet"
    outside.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [1, 2], "p": ["a", "b"]}), outside)
    table.add_files([f"file://{outside}"])
    lake.create_table("t", place(table))
    agree(lake, "t", read(table), ["SELECT * FROM {table}"])
    with table.update_schema() as update:
        update.rename_column("p", "q")
    with pytest.raises(Unsupported, match="has no field id, and columns of the table were renamed"):
        lake.sql("SELECT * FROM t")

    hive = catalog.create_table("shop.hive", pa.schema({"id": pa.int64(), "p": pa.string()}))
    with hive.update_spec() as spec:
        spec.add_identity("p")
    hive.append(pa.table({"id": [1], "p": ["a"]}))
    file = next(Path(place(hive)).glob("data/**/*.parquet"))
    schema = pq.read_schema(file)
    pq.write_table(pa.table({"id": [1]}, pa.schema([schema.field("id")])), file)
    with pytest.raises(Unsupported, match="partitioned by 'p', which is not in the file"):
        lake.create_table("hive", place(hive))


def test_stays_at_a_version_that_is_named(lake: Lake, orders: Table) -> None:
    named = orders.metadata_location
    lake.create_table("orders", named.removeprefix("file://"))
    lake.create_index("orders", "id")
    expected = read(orders)
    orders.append(rows_of(2000, 50))
    for _ in range(2):
        agree(lake, "orders", expected)
        lake.sync()
    assert (lake.status().tables[0].version, lake.status().tables[0].format) == ("2", "iceberg")


def test_which_version_is_current(lake: Lake, orders: Table) -> None:
    metadata = Path(place(orders)) / "metadata"
    named = Path(orders.metadata_location.removeprefix("file://"))
    lake.create_table("orders", place(orders))
    count = "SELECT count(*) AS n FROM orders"
    other = named.with_name("00002-of-a-commit-that-failed.metadata.json")
    shutil.copy(named, other)
    with pytest.raises(Unsupported, match=r"only its catalog knows.* Name the metadata file"):
        lake.sql(count)
    (metadata / "version-hint.text").write_text(named.name.removesuffix(".metadata.json"))
    assert lake.sql(count).rows() == [{"n": 1200}]
    (metadata / "version-hint.text").unlink()
    orders.append(rows_of(2000, 50))  # the next commit settles it
    assert lake.sql(count).rows() == [{"n": 1250}]
    # A table that is recreated in the same place numbers its versions from the beginning.
    shutil.copy(named, named.with_name("00000-anew.metadata.json"))
    with pytest.raises(Unsupported, match="00000-anew"):
        lake.sql(count)


def test_without_a_catalog(lake: Lake, orders: Table) -> None:
    """Hadoop tables number their versions themselves."""
    metadata = Path(place(orders)) / "metadata"
    old = sorted(metadata.glob("*.metadata.json"))
    for number, path in enumerate(old[:2], 1):
        shutil.move(path, metadata / f"v{number}.metadata.json")
    shutil.move(old[2], metadata.parent / "next")
    (metadata / "version-hint.text").write_text("1")  # it may lag behind
    lake.create_table("orders", place(orders))
    assert lake.sql("SELECT count(*) AS n FROM orders").rows() == [{"n": 900}]
    shutil.move(metadata.parent / "next", metadata / "v3.metadata.json")
    assert lake.sql("SELECT count(*) AS n FROM orders").rows() == [{"n": 1200}]
    assert lake.status().tables[0].version == "3"


def test_compressed_metadata(lake: Lake, orders: Table) -> None:
    """With write.metadata.compression-codec = gzip."""
    metadata = Path(place(orders)) / "metadata"
    named = Path(orders.metadata_location.removeprefix("file://"))
    lake.create_table("named", named)
    packed = metadata / "00003-packed.gz.metadata.json"
    orders.append(rows_of(2000, 50))
    current = Path(orders.metadata_location.removeprefix("file://"))
    packed.write_bytes(gzip.compress(current.read_bytes()))
    current.unlink()
    lake.create_table("orders", place(orders))
    lake.create_table("packed", packed)
    for name, count in (("orders", 1250), ("packed", 1250), ("named", 1200)):
        assert lake.sql(f"SELECT count(*) AS n FROM {name}").rows() == [{"n": count}]
    assert {each.name: each.version for each in lake.status().tables} == {"orders": "3", "packed": "3", "named": "2"}
    for hint in ("00003-packed", "00003-packed.gz", packed.name):
        (metadata / "version-hint.text").write_text(hint)
        assert lake.sql("SELECT count(*) AS n FROM orders").rows() == [{"n": 1250}]


def test_compressed_metadata_without_a_catalog(lake: Lake, orders: Table) -> None:
    metadata = Path(place(orders)) / "metadata"
    first, second, third = sorted(metadata.glob("*.metadata.json"))
    shutil.move(first, metadata / "v1.metadata.json")
    shutil.move(second, metadata / "v2.metadata.json")
    shutil.move(third, metadata.parent / "next")
    lake.create_table("orders", place(orders))
    count = "SELECT count(*) AS n FROM orders"
    assert lake.sql(count).rows() == [{"n": 900}]
    (metadata / "version-hint.text").write_text("3\n")
    (metadata / "v3.zst.metadata.json").write_bytes(b"?")
    for ask in (lambda: lake.sql(count), lambda: lake.sync("orders"), lambda: lake.create_table("u", place(orders))):
        with pytest.raises(StoreError, match=r"version-hint.text of .* names 3, .* Name the metadata file"):
            ask()
    packed = gzip.compress((metadata.parent / "next").read_bytes())
    (metadata / "v3.metadata.json.gz").write_bytes(packed)
    with pytest.raises(Unsupported, match=r"v3.metadata.json.gz is compressed as early versions"):
        lake.sql(count)
    (metadata / "v3.metadata.json.gz").unlink()
    (metadata / "v3.gz.metadata.json").write_bytes(packed)
    assert lake.sql(count).rows() == [{"n": 1200}]
    assert lake.status().tables[0].version == "3"


def test_recreated_under_the_same_name(lake: Lake, catalog: SqlCatalog, tmp_path: Path) -> None:
    """As with DROP and CREATE of Hadoop tables: each begins with version 1."""
    where = tmp_path / "place"

    def make(name: str, ids: list[int]) -> None:
        table = catalog.create_table(name, pa.schema({"id": pa.int64()}), location=f"file://{where}")
        table.append(pa.table({"id": ids}))
        *others, last = sorted((where / "metadata").glob("*.metadata.json"))
        for other in others:
            other.unlink()
        shutil.move(last, where / "metadata" / "v1.metadata.json")

    make("shop.first", [1, 2, 3])
    lake.create_table("t", where)
    lake.create_table("named", where / "metadata" / "v1.metadata.json")
    lake.create_index("t", "id")
    for name in ("t", "named"):
        assert lake.sql(f"SELECT id FROM {name} WHERE id = 2").rows() == [{"id": 2}]
    shutil.rmtree(where)
    make("shop.second", [101, 102])
    for _ in range(2):
        for name in ("t", "named"):
            assert lake.sql(f"SELECT id FROM {name} WHERE id = 102").rows() == [{"id": 102}]
            assert lake.sql(f"SELECT id FROM {name} WHERE id = 2").rows() == []
        lake.sync()


@pytest.mark.parametrize(
    ("mapping", "columns", "message"),
    [
        ({1: ["id"], 2: ["v"]}, ["id", "v"], None),
        ({1: ["id", "record_id"], 2: ["v"]}, ["id", "v"], None),
        ({1: ["id", "record_id"], 2: ["v"]}, ["record_id", "v"], "'record_id' of the file is 'id' of the table"),
        ({1: ["v"], 2: ["id"]}, ["id", "v"], "'id' of the file is 'v' of the table by its name mapping"),
        ({1: ["record_id"], 2: ["v"]}, ["id", "v"], "'id' of the file is none of the table by its name mapping"),
    ],
)
def test_names_of_files_without_numbers(
    lake: Lake, catalog: SqlCatalog, mapping: dict[int, list[str]], columns: list[str], message: str | None
) -> None:
    table = catalog.create_table("shop.t", pa.schema({"id": pa.int64(), "v": pa.int64()}))
    file = Path(place(table)) / "data" / "plain.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = pa.table({"id": [1, 2], "v": [7, 8]})
    pq.write_table(rows, file)
    table.add_files([f"file://{file}"])
    lake.create_table("known", place(table))
    agree(lake, "known", read(table), ["SELECT * FROM {table}"])
    # pyiceberg adds only files with the table's own names.
    kept = file.stat()
    if columns != rows.column_names:
        pq.write_table(rows.rename_columns(columns), file)
        os.utime(file, ns=(kept.st_atime_ns, kept.st_mtime_ns + 1))
    with table.transaction() as change:
        named = [{"field-id": number, "names": names} for number, names in mapping.items()]
        change.set_properties({"schema.name-mapping.default": json.dumps(named)})
    if message is None:
        lake.create_table("fresh", place(table))
        for name in ("known", "fresh"):
            agree(lake, name, read(table), ["SELECT * FROM {table}"])
        return
    for ask in (
        lambda: lake.sql("SELECT * FROM known"),
        lambda: lake.sync("known"),
        lambda: lake.create_table("fresh", place(table)),
    ):
        with pytest.raises(Unsupported, match=message):
            ask()


def test_moved_or_broken_tables_are_refused(lake: Lake, orders: Table, tmp_path: Path) -> None:
    shutil.copytree(place(orders), tmp_path / "copy")
    with pytest.raises(Unsupported, match="its metadata says that it is in"):
        lake.create_table("t", tmp_path / "copy")
    (tmp_path / "link").symlink_to(place(orders))
    lake.create_table("t", tmp_path / "link")
    agree(lake, "t", read(orders))
    next(Path(place(orders)).glob("data/*.parquet")).unlink()
    lake.engine.snapshots.forget()
    with pytest.raises(StoreError, match=r"names files in .* that are missing"):
        lake.sql("SELECT count(*) FROM t")
    (Path(place(orders)) / "metadata" / "00009-half.metadata.json").write_text('{"format-version": 2,')
    with pytest.raises(StoreError, match="is not Iceberg metadata"):
        lake.sql("SELECT count(*) FROM t")


def test_never_taken_for_plain_files(lake: Lake, orders: Table, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is inside .*/orders, an Iceberg table"):
        lake.create_table("t", f"{place(orders)}/data")
    with pytest.raises(UsageError, match=r"holds .*/orders, an Iceberg table"):
        lake.create_table("t", tmp_path / "warehouse")
    (Path(place(orders)) / "_delta_log").mkdir()
    (Path(place(orders)) / "_delta_log" / "00000000000000000000.json").write_text("")
    with pytest.raises(UsageError, match="is a Delta table and an Iceberg table"):
        lake.create_table("t", place(orders))
    lake.create_table("t", place(orders), format="iceberg")
    lake.create_table("plain", place(orders), format="parquet")
    with pytest.raises(UsageError, match="is an Iceberg table; Needlepoint does not write its files"):
        lake.create_index("t", "id", embed=True)


def test_empty_table(lake: Lake, catalog: SqlCatalog) -> None:
    table = catalog.create_table("shop.t", pa.schema({"id": pa.int64(), "s": pa.string()}))
    lake.create_table("t", place(table))
    lake.create_index("t", "id")
    assert lake.sql("SELECT * FROM t WHERE id = 1").rows() == []
    table.append(pa.table({"id": [1, 2], "s": ["a", "b"]}))
    for _ in range(2):
        assert lake.sql("SELECT * FROM t WHERE id = 1").rows() == [{"id": 1, "s": "a"}]
        lake.sync()


def test_nested_columns(lake: Lake, catalog: SqlCatalog) -> None:
    nested = pa.table(
        {
            "id": [1, 2],
            "tags": pa.array([["a"], None], pa.list_(pa.string())),
            "s": pa.array([{"x": 1, "y": "b"}, None], pa.struct({"x": pa.int64(), "y": pa.string()})),
            "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        }
    )
    table = catalog.create_table("shop.t", nested.schema)
    table.append(nested)
    lake.create_table("t", place(table))
    lake.create_index("t", "id")
    for query in ("SELECT * FROM t", "SELECT * FROM t WHERE id = 1"):
        assert in_order(lake.sql(query).to_arrow()) == in_order(nested.slice(0, 2 if query.endswith("t") else 1))
    with table.update_schema() as update:
        update.rename_column("s.x", "z")
    with pytest.raises(Unsupported, match=r"'s.x' of the file is called 's.z'"):
        lake.sql("SELECT s FROM t")


def test_versions_that_come_while_it_is_asked(lake: Lake, catalog: SqlCatalog) -> None:
    rows = pa.table({"id": range(100), "generation": pa.array([0] * 100, pa.int64())})
    table = catalog.create_table("shop.t", rows.schema)
    table.append(rows)
    lake.create_table("t", place(table))
    lake.create_index("t", "id")

    def overwrite(number: int) -> None:
        table.overwrite(rows.set_column(1, "generation", pa.array([number] * 100, pa.int64())))

    ask_while_it_changes(lake, overwrite, 7)


@pytest.mark.filterwarnings("ignore:Delete operation did not match")
@pytest.mark.parametrize("seed", [0, *long(1, 2)])
def test_any_sequence_of_changes(tmp_path: Path, catalog: SqlCatalog, seed: int) -> None:
    chance = random.Random(seed)
    lake = needlepoint.open(tmp_path / "lake", refresh=0)
    table = catalog.create_table("shop.t", rows_of(0, 1).schema)
    if seed % 2:
        with table.update_spec() as update:
            update.add_identity("part")
    table.append(rows_of(0, 200))
    lake.create_table("t", place(table))
    lake.create_index("t", "id")
    lake.create_index("t", "title", kind="text")
    first = 1000
    for _ in range(8):
        low = chance.randrange(0, 300)
        match chance.choice(["append", "append", "overwrite", "delete", "some", "sync"]):
            case "append":
                table.append(rows_of(first, chance.randrange(1, 80), seed=seed))
                first += 100
            case "overwrite":
                table.overwrite(rows_of(0, 100, seed=chance.randrange(9)))
            case "delete":
                table.delete(f"id >= {low} AND id < {low + 40}")
            case "some":
                table.overwrite(rows_of(0, 50, seed=seed), overwrite_filter="id < 50")
            case "sync":
                lake.sync("t")
        agree(lake, "t", read(table))
    lake.sync()
    assert lake.status().tables[0].rows == read(table).num_rows
    agree(lake, "t", read(table))


def test_without_the_extra(orders: Table, tmp_path: Path) -> None:
    script = f"""
import sys
sys.modules["pyiceberg"] = None
import needlepoint
try:
    needlepoint.open({str(tmp_path / "lake")!r}).create_table("orders", {place(orders)!r})
except needlepoint.UsageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "is an Iceberg table; reading it takes pyiceberg" in done.stdout
    assert "pip install 'needlepoint[iceberg]'" in done.stdout


@pytest.mark.long
def test_in_a_bucket(tmp_path: Path) -> None:
    with aws_server() as server:
        bucket = server.bucket()
        catalog = SqlCatalog(
            "remote", uri=f"sqlite:///{tmp_path}/remote.db", warehouse=bucket.url("warehouse"),
            **{"s3.endpoint": server.url, "s3.region": "us-east-1"},
        )  # fmt: skip
        catalog.create_namespace("shop")
        table = catalog.create_table("shop.orders", rows_of(0, 1).schema)
        table.append(rows_of(0, 300))
        lake = needlepoint.open(tmp_path / "lake", object_refresh=0)
        lake.create_table("orders", table.location())
        lake.create_index("orders", "id")
        agree(lake, "orders", read(table))
        table.delete("id < 30")
        table.append(rows_of(2000, 50))
        agree(lake, "orders", read(table))
        lake.sync()
        agree(lake, "orders", read(table))
        catalog.engine.dispose()


def test_reads_what_pyiceberg_reads_by_itself(orders: Table) -> None:
    """The expected rows come from the same version."""
    assert in_order(StaticTable.from_metadata(orders.metadata_location).scan().to_arrow()) == in_order(read(orders))
