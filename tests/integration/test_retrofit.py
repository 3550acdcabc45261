"""Every engine that prunes uses what a retrofit adds to files, and no answer changes."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import fastparquet
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from datafusion import SessionConfig, SessionContext, col, literal
from tests.cases import cases
from tests.columns import flat

import needlepoint
from needlepoint.cli import main
from needlepoint.errors import NotIndexable, UnknownName
from needlepoint.parquet.format import footer_edit, thrift
from needlepoint.parquet.inspect.anatomy import inspect
from needlepoint.parquet.write.retrofit import retrofit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, GROUPS = 40_000, 4
KEYS = np.random.default_rng(5).integers(0, 2**62, ROWS)
RANGE = "id BETWEEN 25000 AND 25009"
PRESENT, ABSENT = f"key = {KEYS[31_234]}", f"key = {KEYS[31_234] + 1}"


def table() -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "key": KEYS,
            "title": [f"title {number}" for number in range(ROWS)],
            "list": [[number, number + 1] for number in range(ROWS)],
        }
    )


def write(path: Path, data: pa.Table | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        table() if data is None else data,
        path,
        row_group_size=ROWS // GROUPS,
        data_page_size=4096,
        write_batch_size=200,
        use_dictionary=False,
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same file before and after a retrofit."""
    directory = tmp_path_factory.mktemp("retrofit")
    before, after = directory / "before.parquet", directory / "after.parquet"
    write(before)
    shutil.copy(before, after)
    done = retrofit(str(after), page_index=True, bloom=["key", "title"])
    assert (done.offset_indexes, done.column_indexes, done.bloom_filters) == (4 * GROUPS, 3 * GROUPS, 2 * GROUPS)
    return before, after


def datafusion_metrics(path: Path, predicate: str) -> tuple[list[str], dict[str, tuple[int, int]]]:
    """The answer, and the sums of the metrics of the form `total → matched`."""
    context = SessionContext()
    context.register_parquet("file", str(path))
    frame = context.sql(f"SELECT title FROM file WHERE {predicate}")
    titles = [title for batch in frame.collect() for title in batch.column(0).to_pylist()]
    sums: dict[str, tuple[int, int]] = {}
    for _, metrics in frame.execution_plan().collect_metrics():
        for name, total, matched in re.findall(r"(\w+)\{[^}]*\}=(\d+) total → (\d+) matched", str(metrics)):
            before = sums.get(name, (0, 0))
            sums[name] = before[0] + int(total), before[1] + int(matched)
    return titles, sums


def test_datafusion_skips_pages(files: tuple[Path, Path]) -> None:
    without, with_index = (datafusion_metrics(path, RANGE) for path in files)
    assert without[0] == with_index[0] == [f"title {number}" for number in range(25_000, 25_010)]
    assert without[1]["page_index_pages_pruned"] == (0, 0)
    total, matched = with_index[1]["page_index_pages_pruned"]
    assert total > 10
    assert 1 <= matched <= 2


def test_datafusion_skips_row_groups_by_bloom_filters(files: tuple[Path, Path]) -> None:
    for predicate, answer in ((PRESENT, ["title 31234"]), (ABSENT, [])):
        without, with_filter = (datafusion_metrics(path, predicate) for path in files)
        assert without[0] == with_filter[0] == answer
        assert without[1]["row_groups_pruned_bloom_filter"] == (GROUPS, GROUPS)
        assert with_filter[1]["row_groups_pruned_bloom_filter"] == (GROUPS, len(answer))


def duckdb_metrics(path: Path, predicate: str, profile: Path) -> tuple[list[Any], dict[str, int]]:
    with duckdb.connect() as connection:
        connection.execute("PRAGMA enable_profiling = 'json'")
        connection.execute(f"PRAGMA profiling_output = '{profile}'")
        rows = connection.execute(f"SELECT title FROM read_parquet('{path}') WHERE {predicate}").fetchall()
    text = profile.read_text()
    found = re.findall(r'"(row_groups_scanned|total_row_groups_to_scan|total_bytes_read)":\s*(\d+)', text)
    assert json.loads(text)
    return rows, {name: int(number) for name, number in found}


def test_duckdb_skips_row_groups_by_bloom_filters(files: tuple[Path, Path], tmp_path: Path) -> None:
    """DuckDB 2.0 uses bloom filters, but not page indexes."""
    for predicate, answer in ((PRESENT, [("title 31234",)]), (ABSENT, [])):
        without, with_filter = (duckdb_metrics(path, predicate, tmp_path / "profile.json") for path in files)
        assert without[0] == with_filter[0] == answer
        assert (without[1]["row_groups_scanned"], with_filter[1]["row_groups_scanned"]) == (GROUPS, len(answer))
        assert with_filter[1]["total_bytes_read"] < without[1]["total_bytes_read"] / 2


@pytest.mark.long
@pytest.mark.spark
def test_everyone_reads_the_same(files: tuple[Path, Path], spark: SparkSession) -> None:
    readers: dict[str, Callable[[Path, str], list[Any]]] = {
        "spark": lambda path, where: spark.read.parquet(str(path)).where(where).orderBy("id").collect(),
        "duckdb": lambda path, where: duckdb.sql(f"FROM '{path}' WHERE {where} ORDER BY id").fetchall(),
        "polars": lambda path, where: polars.scan_parquet(path).filter(polars.sql_expr(where)).collect().rows(),
        "pyarrow": lambda path, where: pq.read_table(path).to_pylist(),
        "fastparquet": lambda path, where: (
            fastparquet.ParquetFile(str(path)).to_pandas(columns=["id", "key", "title"]).values.tolist()
        ),
    }
    for name, read in readers.items():
        for where in (RANGE, PRESENT, ABSENT, "title = 'title 7'", "id % 1000 = 3"):
            before, after = (read(path, where) for path in files)
            assert before == after, (name, where)
    assert len(readers["spark"](files[1], RANGE)) == 10


def counts(path: Path, column: str, type: pa.DataType, values: list[Any]) -> list[list[int]]:
    """The number of rows that DataFusion finds for each comparison with each value."""
    context = SessionContext(SessionConfig().set("datafusion.execution.parquet.pushdown_filters", "true"))
    context.register_parquet("file", str(path))
    found = []
    for value in values:
        wanted = literal(pa.scalar(value, type))
        frame = context.table("file")
        found.append(
            [
                frame.filter(predicate).count()
                for predicate in (
                    col(column) == wanted,
                    col(column) < wanted,
                    col(column) >= wanted,
                    col(column) != wanted,
                )
            ]
        )
    return found


@pytest.mark.parametrize("column", flat().column_names)
def test_datafusion_counts_the_same_for_every_type(tmp_path: Path, column: str) -> None:
    before, after = tmp_path / "before.parquet", tmp_path / "after.parquet"
    data = flat().select([column])
    pq.write_table(data, before, row_group_size=700, write_batch_size=50, max_rows_per_page=100, use_dictionary=False)
    shutil.copy(before, after)
    filterable = column != "bool"
    done = retrofit(str(after), bloom=[column] if filterable else [])
    assert (done.column_indexes, done.bloom_filters) == (3, 3 if filterable else 0)
    read = pq.read_table(before).column(0)
    if pa.types.is_dictionary(read.type):
        read = read.cast(read.type.value_type)
    values = [value for value in read.to_pylist()[::97] if value is not None][: cases(12, 4)]
    expected = counts(before, column, read.type, values)
    assert counts(after, column, read.type, values) == expected
    assert all(equal > 0 for equal, *_ in expected)


def test_datafusion_finds_the_same_beside_nan(tmp_path: Path) -> None:
    """A row group with a NaN has no page bounds, but its neighbours do."""
    before, after = tmp_path / "before.parquet", tmp_path / "after.parquet"
    values = [math.nan if number in (5, 950) else number / 10 for number in range(3000)]
    pq.write_table(pa.table({"f": values}), before, row_group_size=1000, write_batch_size=50, max_rows_per_page=100)
    shutil.copy(before, after)
    assert retrofit(str(after), bloom=["f"]).column_indexes == 2
    wanted = [0.1, 94.9, 150.0, 299.9, math.nan]
    assert counts(before, "f", pa.float64(), wanted) == counts(after, "f", pa.float64(), wanted)


def hide_dictionaries(path: Path) -> None:
    """Change the footer to that of parquet-mr 1.8 to 1.10, where the data page offset points to the dictionary page."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    raw = data[-8 - length : -8]
    groups = []
    for group in thrift.parse(raw).structs(4):
        chunks = []
        for chunk in group.structs(1):
            meta = chunk.struct(3)
            place = thrift.zigzag(meta.integer64(11))
            hidden = thrift.rewrite(raw, meta.start, {9: (thrift.I64, place), 11: None})
            chunks.append(thrift.rewrite(raw, chunk.start, {3: (thrift.STRUCT, hidden)}))
        columns = thrift.list_header(thrift.STRUCT, len(chunks)) + b"".join(chunks)
        groups.append(thrift.rewrite(raw, group.start, {1: (thrift.LIST, columns)}))
    listed = thrift.list_header(thrift.STRUCT, len(groups)) + b"".join(groups)
    path.write_bytes(data[: -8 - length] + footer_edit.tail(thrift.rewrite(raw, 0, {4: (thrift.LIST, listed)})))


@pytest.mark.spark
def test_dictionaries_that_the_footer_does_not_mention(tmp_path: Path, spark: SparkSession) -> None:
    before, after = tmp_path / "before.parquet", tmp_path / "after.parquet"
    words = [f"word {number // 100}" for number in range(ROWS)]
    data = pa.table({"word": words, "title": [f"title {number % 500}" for number in range(ROWS)]})
    pq.write_table(data, before, row_group_size=ROWS // GROUPS, write_batch_size=200, max_rows_per_page=1000)
    hide_dictionaries(before)
    shutil.copy(before, after)
    assert retrofit(str(after), bloom=["word"]).column_indexes == 2 * GROUPS
    where = "word = 'word 250'"
    for path in (before, after):
        assert pq.read_table(path).equals(data)
        found = sorted(datafusion_metrics(path, where)[0])
        assert found == sorted(data.column("title").to_pylist()[25_000:25_100])
        assert sorted(row.title for row in spark.read.parquet(str(path)).where(where).collect()) == found
        assert sorted(row[0] for row in duckdb.sql(f"SELECT title FROM '{path}' WHERE {where}").fetchall()) == found
        assert polars.read_parquet(path).rows() == [*zip(words, data.column("title").to_pylist(), strict=True)]
    assert datafusion_metrics(after, where)[1]["page_index_pages_pruned"][0] > 5


SPARK_READS = ("int8", "int32", "down", "bool", "float", "zeros", "string", "long", "binary", "date", "timestamp",
               "decimal9", "decimal38", "dictionary", "nulls")  # fmt: skip


@pytest.mark.long
@pytest.mark.spark
def test_spark_counts_the_same_for_every_type(tmp_path: Path, spark: SparkSession) -> None:
    from pyspark.sql import functions

    before, after = tmp_path / "before.parquet", tmp_path / "after.parquet"
    pq.write_table(flat().select(SPARK_READS), before, row_group_size=700, write_batch_size=50, max_rows_per_page=100)
    shutil.copy(before, after)
    retrofit(str(after), bloom=[name for name in SPARK_READS if name != "bool"])
    for name in SPARK_READS:
        value = next((each for each in flat().column(name).to_pylist()[1200:] if each is not None), 7)
        column = functions.col(name)
        for predicate in (column == functions.lit(value), column < functions.lit(value)):
            found = [spark.read.parquet(str(path)).where(predicate).count() for path in (before, after)]
            assert found[0] == found[1], (name, value)
            assert found[0] or name in ("nulls", "zeros", "bool"), (name, value)


@pytest.mark.spark
def test_spark_reads_fewer_rows(files: tuple[Path, Path], spark: SparkSession) -> None:
    def rows_of_scan(path: Path, predicate: str) -> int:
        plan = spark.read.parquet(str(path)).where(predicate).select("title")._jdf.queryExecution().executedPlan()
        plan.executeCollect()
        leaf = plan.collectLeaves().apply(0)
        return int(leaf.metrics().apply("numOutputRows").value())

    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        without, with_index = (rows_of_scan(path, RANGE) for path in files)
        assert without == ROWS // GROUPS
        assert with_index < 1000
        assert [rows_of_scan(path, ABSENT) for path in files] == [ROWS, 0]
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")


# The lake and the command


def test_a_table(tmp_path: Path) -> None:
    directory = tmp_path / "product"
    for number in range(2):
        write(directory / f"year=202{number}" / "part.parquet", table().slice(number * 20_000, 20_000))
    write(directory / "year=2030" / "old.parquet", table().slice(0, 10).drop_columns(["key"]))
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("product", directory)
        lake.create_index("product", "id")
        query = f"SELECT title FROM product WHERE {PRESENT}"
        before = lake.sql(query).rows()
        done = lake.retrofit("product", bloom=["key"])
        assert sorted(each.bloom_filters for each in done) == [0, 2, 2]
        assert all(each.column_indexes for each in done)
        status = lake.status().tables[0]
        assert (status.files, status.indexed, status.unknown) == (3, 3, 0)
        result = lake.sql(query)
        assert result.rows() == before == [{"title": "title 31234"}]
        assert lake.sql("SELECT title FROM product WHERE id = 7").rows() == [{"title": "title 7"}] * 2
        assert not any(each.changed for each in lake.retrofit("product", bloom=["key"]))
        with pytest.raises(UnknownName):
            lake.retrofit("product", bloom=["kee"])
        with pytest.raises(NotIndexable, match="partition"):
            lake.retrofit("product", bloom=["year"])


def needle(*arguments: str) -> Any:
    return CliRunner(env={"NEEDLE_LAKE": None}).invoke(main, arguments)


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "data" / "file.parquet"
    write(path)
    before = inspect(str(path))
    assert {column.page_index for column in before.columns} == {0}
    done = needle("retrofit", str(path), "--page-index", "--bloom", "key")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{path}: 12 column indexes, 16 offset indexes, 4 bloom filters added, ")
    assert lines[1:] == ["  list.list.element: no bounds of pages: nested"]
    after = inspect(str(path))
    assert {column.page_index for column in after.columns} == {GROUPS}
    assert [column.bloom_filters for column in after.columns] == [0, GROUPS, 0, 0]
    assert after.wasted == 0
    again = needle("retrofit", str(path), "--page-index", "--bloom", "key")
    assert "0 column indexes, 0 offset indexes, 0 bloom filters added, 0 B" in again.stdout

    root = tmp_path / "lake"
    assert needle("--lake", str(root), "create-table", "file", str(path.parent)).exit_code == 0
    done = needle("--lake", str(root), "retrofit", "file", "--bloom", "title")
    assert done.stdout.startswith("file: 0 column indexes, 0 offset indexes, 4 bloom filters added, ")
    for arguments, code, said in (
        (["file"], 2, "Nothing to add"),
        (["fiel", "--page-index"], 1, "Did you mean 'file'"),
        (["no/such/file", "--page-index"], 1, "there is no such file"),
        ([str(path), "--bloom", "kee"], 1, "Did you mean 'key'"),
        ([str(path), "--bloom", "list.list.element"], 1, "is nested"),
    ):
        refused = needle("--lake", str(root), "retrofit", *arguments)
        assert (refused.exit_code, refused.stdout) == (code, ""), arguments
        assert said in refused.stderr
