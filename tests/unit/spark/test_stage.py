from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from needlepoint.errors import SparkError, UnknownName, UsageError
from needlepoint.spark.stage import _gathered, stage
from needlepoint.tables.layout import Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@dataclass
class Chunk:
    page_rows: list[int]
    page_bytes: list[int]


def chunks(spark: SparkSession, path: str) -> dict[str, Chunk]:
    """The pages of each column, from the offset index, read with Java since pyarrow does not expose it."""
    jvm: Any = spark._jvm
    source = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(
        jvm.org.apache.hadoop.fs.Path(path), jvm.org.apache.hadoop.conf.Configuration()
    )
    reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(source)
    (block,) = reader.getFooter().getBlocks()
    found = {}
    for column in block.getColumns():
        index = reader.readOffsetIndex(column)
        pages = range(index.getPageCount())
        firsts = [*(index.getFirstRowIndex(page) for page in pages), block.getRowCount()]
        rows = [end - start for start, end in pairwise(firsts)]
        sizes = [index.getCompressedPageSize(page) for page in pages]
        found[column.getPath().toDotString()] = Chunk(rows, sizes)
    reader.close()
    return found


def metadata(path: str) -> dict[str, Any]:
    group = pq.read_metadata(path).row_group(0)
    return {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.range(10_000).selectExpr(
        "id", "cast(id % 7 as string) AS code", "repeat(uuid(), 50) AS wide", "id % 7 AS `two words`"
    )


def test_pages_are_small_and_columns_compressed(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    (file,) = stage(frame.coalesce(1), tmp_path / "batch")
    found = chunks(spark, file.path)
    assert found["id"].page_rows == [250] * 40
    assert found["code"].page_rows == [250] * 40
    # At 1,800 bytes a row, the page size is the limit.
    assert max(found["wide"].page_rows) < 60
    assert max(found["wide"].page_bytes) < 66_000
    assert {column.compression for column in metadata(file.path).values()} == {"ZSTD"}
    assert file.relative == ""
    assert file.rows == 10_000
    assert file.size == Path(file.path).stat().st_size


def test_layout_takes_effect_on_columns(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    layout = Layout(
        page_rows=500,
        compression="snappy",
        dictionary_off=("code", "two words"),
        bloom=("id", "two words"),
        max_records_per_file=6000,
    )
    files = stage(frame.coalesce(1), tmp_path / "batch", layout=layout)
    assert [file.rows for file in files] == [6000, 4000]
    columns = metadata(files[0].path)
    assert set(chunks(spark, files[0].path)["id"].page_rows) == {500}
    assert columns["id"].compression == "SNAPPY"
    assert "PLAIN_DICTIONARY" not in columns["code"].encodings
    assert "PLAIN_DICTIONARY" not in columns["two words"].encodings
    assert {name for name, column in columns.items() if column.bloom_filter_offset} == {"id", "two words"}


def test_rows_are_sorted_in_each_file(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(1000).selectExpr("id % 2 AS p", "hash(id) AS h", "id")
    layout = Layout(sort_by=("h",))
    files = stage(frame, tmp_path / "batch", partition_by=["p"], layout=layout, files_per_partition=1)
    assert [file.rows for file in files] == [500, 500]
    for file in files:
        hashes = pq.ParquetFile(file.path).read().column("h").to_pylist()
        assert hashes == sorted(hashes)


def test_dictionaries_are_kept_where_nothing_is_said(frame: DataFrame, tmp_path: Path) -> None:
    (file,) = stage(frame.coalesce(1), tmp_path / "batch")
    columns = metadata(file.path)
    assert "PLAIN_DICTIONARY" in columns["code"].encodings
    assert not columns["id"].bloom_filter_offset


def test_nested_and_odd_column_names(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(100).selectExpr(
        "named_struct('x', id % 3) AS s",
        "array(id % 3) AS a",
        "id % 3 AS `d.e`",
        "id % 3 AS `f#g`",
        "id AS `ü=`",
    )
    names = ("s", "s.x", "a", "d.e", "f#g", "ü=")
    (file,) = stage(frame.coalesce(1), tmp_path / "batch", layout=Layout(dictionary_off=names, bloom=names))
    columns = metadata(file.path)
    assert file.rows == 100
    assert "PLAIN_DICTIONARY" not in columns["s.x"].encodings
    assert columns["s.x"].bloom_filter_offset
    assert columns["f#g"].bloom_filter_offset
    assert "PLAIN_DICTIONARY" in columns["d.e"].encodings


def test_partition_values_with_special_characters(spark: SparkSession, tmp_path: Path) -> None:
    values = ["a/b", "ü", "ö", "", None, "two words", "100%", "x=y", "?", "*", "日本", ".", "c:\\d", '"']
    rows = [(number, value, 2024) for number, value in enumerate(values)]
    frame = spark.createDataFrame(rows, "id long, partner string, year int")
    root = tmp_path / "batch 1%"
    files = stage(frame, root, partition_by=("partner", "year"), files_per_partition=1)
    relatives = {file.relative for file in files}
    assert {
        "partner=a%2Fb/year=2024",
        "partner=ü/year=2024",
        "partner=two words/year=2024",
        "partner=100%25/year=2024",
        "partner=%3F/year=2024",
        "partner=__HIVE_DEFAULT_PARTITION__/year=2024",
    } <= relatives
    # Spark writes '' as NULL, so they share a directory.
    assert len(relatives) == len(values) - 1
    assert sum(file.rows for file in files) == len(values)
    for file in files:
        assert Path(file.path).parent == root / file.relative
    back = {row.id: row.partner for row in spark.read.parquet(f"file://{root}").collect()}
    assert back == {number: value or None for number, value in enumerate(values)}


def test_only_files_with_rows_and_no_checksums(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "batch"
    files = stage(spark.range(0, 10, 1, 4).where("id < 2"), root)
    assert [file.rows for file in files] == [2]
    assert not list(root.rglob("*.crc"))
    assert stage(spark.range(0), tmp_path / "empty") == []


@pytest.mark.parametrize("count", [1, 3])
def test_files_per_partition(spark: SparkSession, tmp_path: Path, count: int) -> None:
    frame = spark.range(0, 3000, 1, 4).selectExpr("id", "id % 2 AS `the half`")
    files = stage(frame, tmp_path / "batch", partition_by=["the half"], files_per_partition=count)
    for half in (0, 1):
        of_half = [file for file in files if file.relative == f"the half={half}"]
        assert 1 <= len(of_half) <= count
        assert sum(file.rows for file in of_half) == 1500
    assert len(stage(frame, tmp_path / "flat", files_per_partition=count)) == count


def test_rows_go_where_their_values_say_in_whatever_order_they_come(spark: SparkSession, tmp_path: Path) -> None:
    """A task that Spark runs again after a shuffle gets its rows in another order."""
    columns = ["id", "id % 2 AS p", "cast(id AS string) AS s", "map(id, 1) AS m", "array(id) AS a", "NULL AS n",
               "parse_json(cast(id AS string)) AS v", "make_dt_interval(id) AS i"]  # fmt: skip
    placed = []
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # it would merge small partitions
    for frame in (spark.range(0, 200, 1, 3), spark.range(0, 200, 1, 1).orderBy("id", ascending=False)):
        rows = _gathered(frame.selectExpr(*columns), ["p"], 4).selectExpr("id", "spark_partition_id() AS place")
        placed.append({row.id: row.place for row in rows.collect()})
    spark.conf.unset("spark.sql.adaptive.enabled")
    assert placed[0] == placed[1]
    assert len(set(placed[0].values())) > 2
    only = spark.range(20).selectExpr("map(id, 1) AS m", "array(id % 2) AS a")
    assert _gathered(only, ["a"], 4).count() == 20


def test_timestamps_carry_statistics(spark: SparkSession, tmp_path: Path) -> None:
    (file,) = stage(spark.sql("SELECT timestamp'2024-05-06 07:08:09' AS t"), tmp_path / "batch")
    column = metadata(file.path)["t"]
    assert column.physical_type == "INT64"
    assert column.statistics.min.isoformat() == "2024-05-06T07:08:09+00:00"


def test_a_failed_write_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    # One task: Spark does not wait for others of a failed job, and what they write later is swept.
    frame = spark.range(0, 100, 1, 1).selectExpr("1 / (id - 50) AS x")
    with pytest.raises(SparkError, match=r"writing into .* failed: Division by zero") as failed:
        stage(frame, tmp_path / "batch")
    assert "\n" not in str(failed.value)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_python_function_is_named(spark: SparkSession, tmp_path: Path) -> None:
    def broken(batches: Any) -> Any:
        raise ValueError("no such luck")

    with pytest.raises(SparkError, match="ValueError: no such luck"):
        stage(spark.range(1).mapInArrow(broken, "id long"), tmp_path / "batch")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_directory_is_refused_and_kept(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(UsageError, match="exists already"):
        stage(spark.range(1), tmp_path)
    assert (tmp_path / "precious").exists()


def test_columns_are_checked_before_anything_is_written(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(3).selectExpr("id", "id AS partner")
    with pytest.raises(UnknownName, match="Did you mean 'partner'"):
        stage(frame, tmp_path / "batch", partition_by=("partnr",))
    with pytest.raises(UnknownName, match="unknown column 'upc' in the layout"):
        stage(frame, tmp_path / "batch", layout=Layout(bloom=("upc",)))
    with pytest.raises(UsageError, match="every column is a partition column"):
        stage(frame, tmp_path / "batch", partition_by=("partner", "id"))
    with pytest.raises(UsageError, match="must be 1 or more"):
        stage(frame, tmp_path / "batch", files_per_partition=0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["_day", ".day"])
def test_partitions_that_no_reader_would_see_are_refused(spark: SparkSession, tmp_path: Path, name: str) -> None:
    frame = spark.range(10).selectExpr("id", f"id % 2 AS `{name}`")
    with pytest.raises(UsageError, match="begin like this"):
        stage(frame, tmp_path / "batch", partition_by=[name])
    assert not (tmp_path / "batch").exists()
