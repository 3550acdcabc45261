"""Spark reads through the index: the rows that `lake.sql` returns, from only the files that can match."""

from __future__ import annotations

import datetime
import decimal
import os
import pickle
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.lakes import write

import needlepoint
from needlepoint import spark as needle_spark
from needlepoint.errors import FileChanged
from needlepoint.lake import Lake

lookup_join = sys.modules["needlepoint.spark.lookup_join"]  # a function of the same name hides the module

pytestmark = pytest.mark.spark

ROWS = 3000
NOON = datetime.datetime(2024, 5, 1, 12)


def rows(first: int, **more: Any) -> pa.Table:
    """Rows `first` to `first + ROWS`, with columns of many types."""
    ids = np.random.default_rng(first).permutation(np.arange(first, first + ROWS))
    price = np.where(ids % 100 == 7, np.nan, ids % 50 / 2)
    moments = [NOON + datetime.timedelta(minutes=int(id)) for id in ids]
    return pa.table(
        {
            "id": ids,
            "title": pa.array([None if id % 10 == 3 else f"title {id % 97} dairy" for id in ids]),
            "price": price,
            "at": pa.array(moments, pa.timestamp("us", "UTC")),
            "local": pa.array(moments, pa.timestamp("us")),
            "day": pa.array([moment.date() for moment in moments]),
            "cost": pa.array([decimal.Decimal(int(id)) / 4 for id in ids], pa.decimal128(12, 2)),
            "tags": pa.array([[int(id) % 3] * (int(id) % 3) for id in ids], pa.list_(pa.int64())),
            **more,
        }
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Partitions, one of NULL and one with an escaped value; an index; and a file that no sync has seen."""
    root = tmp_path_factory.mktemp("lake")
    places = ["partner=ABC", "partner=a%2Fb c", "partner=__HIVE_DEFAULT_PARTITION__", "partner=ABC"]
    for number, place in enumerate(places):
        write(rows(number * ROWS), root / "product" / place / f"{number}.parquet")
    # By page wherever possible, so that one read combines page reads and scans.
    with needlepoint.open(root, refresh=0, access="pages") as lake:
        lake.create_table("product")
        lake.create_index("product", "id")
        write(rows(4 * ROWS), root / "product/partner=new/4.parquet")
        yield lake


def as_rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """Rows that compare independently of time zones, with NaN equal to NaN."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.combine_chunks()
    ]
    return Counter(zip(*([repr(value) for value in column.to_pylist()] for column in columns), strict=True))


def assert_same(frame: Any, lake: Lake, query: str) -> None:
    assert as_rows(frame.toArrow()) == as_rows(lake.sql(query).to_arrow())


@pytest.mark.parametrize(
    "where",
    [
        "id = 4711",
        pytest.param("id IN (17, 5000, 12345, 99999)", marks=pytest.mark.long),
        "id BETWEEN 4000 AND 7500",  # by page in tasks
        "id > 10000",  # by page, and the new file scanned
        pytest.param("title LIKE '%7 dairy' AND partner IS NULL", marks=pytest.mark.long),
        "title IS NULL AND partner = 'a/b c'",
        "price > 24",  # NaN is greater than all numbers
        pytest.param("price = 'NaN' OR id = 5", marks=pytest.mark.long),
        "at >= '2024-05-03T00:00:00Z' AND local < TIMESTAMP '2024-05-03 06:00:00'",
        pytest.param("day = DATE '2024-05-02' AND cost < 300.25", marks=pytest.mark.long),
        "partner = 'none such'",
        pytest.param("upper(title) = 'TITLE 5 DAIRY' -- a comment", marks=pytest.mark.long),
    ],
)
def test_the_rows_of_sql(lake: Lake, spark, where: str) -> None:
    frame = needle_spark.read(spark, lake, "product", where)
    assert_same(frame, lake, f"SELECT * FROM product WHERE {where}")


def test_times_are_the_same_in_every_zone(lake: Lake, spark) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for where in ("id IN (3001, 4711) AND partner = 'a/b c'", "id IN (3001, 4711)", None):  # each access path
            frame = needle_spark.read(spark, lake, "product", where, ["at", "local", "day"])
            assert_same(frame, lake, f"SELECT at, local, day FROM product WHERE {where or 'TRUE'}")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_everything(lake: Lake, spark, tmp_path: Path) -> None:
    assert_same(needle_spark.read(spark, lake, "product"), lake, "SELECT * FROM product")
    frame = needle_spark.read(spark, lake, "product", columns=["partner", "id"])
    assert frame.columns == ["partner", "id"]
    assert_same(frame, lake, "SELECT partner, id FROM product")
    # If directories have nothing unusual, Spark lists them itself.
    for year in (2023, 2024):
        write(rows(year), tmp_path / f"lake/plain/year={year}/a.parquet")
    with needlepoint.open(tmp_path / "lake") as other:
        other.create_table("plain")
        assert other.plan_read("plain").listable and not lake.plan_read("product").listable
        frame = needle_spark.read(spark, other, "plain")
        assert frame.schema["year"].dataType.simpleString() == "bigint"
        assert_same(frame, other, "SELECT * FROM plain")


PLACES = {
    # Escaped values: as Spark writes them, and as other writers do.
    "text": (True, ["p=a%20b%2Fc", "p=d e", "p=%3a", "p=é", "p=a=b", "p=a#b", "p=a+b", "p=a,b", "p= a "]),
    "utf8": (False, ["p=%C3%A9", "p=plain"]),
    "latin": (False, ["p=%E9"]),
    "percent": (False, ["p=100%", "p=%zz", "p=%2"]),
    "names": (True, ["a%20b=1", "a%20b=2"]),
    "utf8_names": (False, ["%C3%A9=1", "%C3%A9=2"]),
    "escaped_number": (False, ["p=%35", "p=6"]),
    "escaped_date": (False, ["p=2024%2D05%2D01"]),
    # Directories that are not partitions.
    "between": (False, ["p=1/sub/q=2", "p=3/sub/q=4"]),
    "above": (False, ["x/p=1", "y/p=2"]),
    "below": (False, ["p=1/x", "p=2/y"]),
    "none": (True, ["2024/05", "2024/06"]),
    "no_name": (False, ["=x"]),
    # NULL, and values that look like it.
    "null": (True, ["p=__HIVE_DEFAULT_PARTITION__", "p=1"]),
    "only_null": (True, ["p=__HIVE_DEFAULT_PARTITION__"]),
    "null_text": (True, ["p=null", "p=NULL", "p=NaN"]),
    "empty": (False, ["p=", "p=1"]),
    # Values for which Spark would infer another type.
    "zeros": (True, ["p=007", "p=-0", "p=+5"]),
    "zeros_text": (True, ["p=007", "p=x"]),
    "large": (True, ["p=9223372036854775808", "p=1"]),
    "dates": (True, ["p=2024-05-01", "p=1582-10-10", "p=0001-01-01"]),
    "dates_text": (True, ["p=2024-05-01", "p=2024-5-1", "p=2024-02-30"]),
    "booleans": (True, ["p=true", "p=false"]),
    "decimals": (True, ["p=1.50", "p=1.5", "p=-0.0", "p=0.0", "p=1e3"]),
    "times": (True, ["p=2024-05-01 10%3A00%3A00", "p=2024-05-01T10:00:00Z", "p=2024-05-01T10:00:00+02:00"]),
    "capital": (True, ["Q=1/r=a", "Q=2/r=b"]),
}


@pytest.mark.long
def test_partitions_are_those_of_sql(spark, tmp_path: Path) -> None:
    with needlepoint.open(tmp_path / "lake") as lake:
        for name, (native, places) in PLACES.items():
            for number, place in enumerate(places):
                # The column is in the file too.
                write(pa.table({"id": [number], "p": ["file"]}), tmp_path / "lake" / name / place / "a.parquet")
            lake.create_table(name)
            frame = needle_spark.read(spark, lake, name)
            assert bool(frame.inputFiles()) == native, name
            assert_same(frame, lake, f"SELECT * FROM {name}")
        setting = "spark.sql.sources.partitionColumnTypeInference.enabled"
        spark.conf.set(setting, "false")
        try:
            for name in ("zeros", "dates"):
                assert_same(needle_spark.read(spark, lake, name), lake, f"SELECT * FROM {name}")
        finally:
            spark.conf.unset(setting)


def test_files_of_other_names_are_not_read(spark, tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parq"):
        write(pa.table({"id": [1]}), tmp_path / "lake/t/p=1" / name)
    (tmp_path / "lake/t/p=1/notes.txt").write_text("not Parquet")
    with needlepoint.open(tmp_path / "lake") as lake:
        lake.create_table("t")
        assert lake.plan_read("t").listable
        assert_same(needle_spark.read(spark, lake, "t"), lake, "SELECT * FROM t")


def test_only_what_can_match_is_touched(lake: Lake) -> None:
    point = lake.plan_read("product", "id = 4711 AND partner = 'a/b c'")
    assert (point.paged, point.scanned, point.rows, point.few) == (1, 0, 1, True)
    both = lake.plan_read("product", "id > 10000")
    assert (both.paged, both.scanned, both.few) == (1, 1, False)
    assert {file.path for part in both.parts for file in part.scan.snapshot.files} == {
        "partner=ABC/3.parquet",
        "partner=new/4.parquet",
    }
    assert lake.plan_read("product", "partner = 'none such'").parts == ()
    assert len(lake.plan_read("product").paths) == 5
    assert str(both).startswith("product: 1 file by page") and "1 by native scan, of 5; in 1 part" in str(both)


def test_two_conditions_on_one_table_stay_apart(lake: Lake, spark) -> None:
    """A data source with `pushFilters` gets this wrong (see below)."""
    for count in (1, 1500):  # read at once, and in tasks
        one, two = (
            needle_spark.read(spark, lake, "product", f"id >= {first} AND id < {first + count}", ["id"])
            for first in (1, 4000)
        )
        found = [row.id for row in one.union(two).collect()]
        assert sorted(found) == [*range(1, 1 + count), *range(4000, 4000 + count)]
    needle_spark.register(spark, lake)
    loaded = spark.read.format("needlepoint").option("table", "product").option("columns", "id").load()
    assert [row.id for row in loaded.where("id = 1").union(loaded.where("id = 2")).collect()] == [1, 2]


def test_why_there_is_no_push_filters(spark) -> None:
    """PySpark 4.3 keeps the partitions of a `load()`: the filter that is pushed last replaces the others.

    When this test fails, the defect is fixed, and LakeReader may implement `pushFilters`: every filter that it can
    write as DataFusion's SQL narrows the plan, and all of them are returned, so that Spark evaluates them again.
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, InputPartition

    class Reader(DataSourceReader):
        wanted = None

        def pushFilters(self, filters):  # noqa: N802
            for each in filters:
                if isinstance(each, EqualTo):
                    self.wanted = each.value
                else:
                    yield each

        def partitions(self):
            return [InputPartition(self.wanted)]

        def read(self, partition):
            yield pa.record_batch({"id": pa.array([partition.value], pa.int64())})

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "pushing"

        def schema(self) -> str:
            return "id bigint"

        def reader(self, schema):
            return Reader()

    setting = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "true")
    try:
        spark.dataSource.register(Source)
        loaded = spark.read.format("pushing").load()
        found = [row.id for row in loaded.where("id = 1").union(loaded.where("id = 2")).collect()]
    finally:
        spark.conf.set(setting, before)
    assert found == [2, 2], "[1, 2] would be right: see above"


def test_the_format_for_sql_users(lake: Lake, spark) -> None:
    needle_spark.register(spark, lake)
    source = spark.read.format("needlepoint").option("table", "product")
    frame = source.option("where", "id > 14000").option("columns", "id, partner").load()
    assert_same(frame, lake, "SELECT id, partner FROM product WHERE id > 14000")
    spark.sql("CREATE TEMPORARY VIEW few USING needlepoint OPTIONS (table 'product', where 'id IN (1, 2)')")
    try:
        assert spark.sql("SELECT sum(id) AS s FROM few").collect()[0].s == 3
    finally:
        spark.catalog.dropTempView("few")
    for options, problem in (
        ({"table": "product", "where": "nope = 1"}, "unknown column 'nope'"),
        ({"where": "id = 1"}, "the option table is missing"),
        ({"table": "product", "wehre": "id = 1"}, "unknown option 'wehre'"),
    ):
        with pytest.raises(Exception, match=problem):
            spark.read.format("needlepoint").options(**options).load()


def test_conditions_that_tasks_cannot_answer(lake: Lake, spark) -> None:
    for where, problem in (
        ("id IN (SELECT id FROM product)", "subquery"),
        ("at > now()", "another time on each call"),
        ("id = 1) ORDER BY (id", "parentheses .* do not match"),
        (" ", "empty"),
        ("idd = 1", "Did you mean 'id'"),
    ):
        with pytest.raises(needlepoint.NeedlepointError, match=problem):
            needle_spark.read(spark, lake, "product", where)
    with pytest.raises(needlepoint.UnknownName, match="titel"):
        needle_spark.read(spark, lake, "product", columns=["titel"])
    with pytest.raises(needlepoint.UnknownName, match="Did you mean 'product'"):
        needle_spark.read(spark, lake, "products")
    for text in ("(select 1)", "now()", "it''s now()"):
        assert needle_spark.read(spark, lake, "product", f"title = '{text}'").count() == 0


def test_files_that_change_are_noticed(spark, tmp_path: Path) -> None:
    for number in range(2):
        write(rows(number * ROWS), tmp_path / f"product/{number}.parquet")
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("product")
        lake.create_index("product", "id")
        frame = needle_spark.read(spark, lake, "product", "price > 20", ["id"])
        before = frame.count()  # the parts are planned here, once per DataFrame
        point, scan = lake.plan_read("product", "id = 1"), lake.plan_read("product", "price > 20")
        path = write(rows(0), tmp_path / "product/0.parquet")
        os.utime(path, ns=(1, 1))
        for plan in (point, scan):
            with pytest.raises(FileChanged, match="changed or was removed after this read was planned"):
                list(pickle.loads(pickle.dumps(plan.parts[0])).batches())
        with pytest.raises(Exception, match=r"0\.parquet: changed or was removed after this read was planned"):
            frame.count()
        assert needle_spark.read(spark, lake, "product", "price > 20", ["id"]).count() == before


def test_types_that_spark_has_otherwise_or_not(spark, tmp_path: Path) -> None:
    moments = [1_700_000_000_123_456, -1]
    table = pa.table(
        {
            "u8": pa.array([255, None], pa.uint8()),
            "u64": pa.array([2**64 - 1, 0], pa.uint64()),
            "half": pa.array(np.array([0.5, np.nan], np.float16)),
            "nanos": pa.array([moment * 1000 for moment in moments], pa.timestamp("ns")),
            "zoned": pa.array(moments, pa.timestamp("us", "Europe/Berlin")),
            "time": pa.array([1, None], pa.time32("ms")),
            "fixed": pa.array([b"0123456789abcdef", None], pa.binary(16)),
            "word": pa.array(["a", None]).dictionary_encode(),
            "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
            "nested": pa.array([{"x": [1]}, None], pa.struct([("x", pa.list_(pa.uint16()))])),
            "finer": pa.array([1, 2], pa.timestamp("ns")),
        }
    )
    write(table, tmp_path / "odd/a.parquet")
    zone = spark.conf.get("spark.sql.session.timeZone")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("odd")
        columns = table.column_names[:-1]
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        try:
            for where in (None, "u8 > 0 OR u8 IS NULL"):
                found = needle_spark.read(spark, lake, "odd", where, columns).toArrow().to_pydict()
        finally:
            spark.conf.set("spark.sql.session.timeZone", zone)
        assert found["u8"] == [255, None] and found["u64"] == [2**64 - 1, 0] and found["half"][0] == 0.5
        assert [moment.isoformat() for moment in found["nanos"]][1] == "1969-12-31T23:59:59.999999"
        assert [int(moment.timestamp() * 10**6) for moment in found["zoned"]] == moments
        assert found["time"] == [datetime.time(microsecond=1000), None]
        assert found["fixed"][0] == b"0123456789abcdef" and found["word"] == ["a", None]
        assert found["map"][0] == [("a", 1)] and found["nested"] == [{"x": [1]}, None]
        with pytest.raises(Exception, match="'finer' holds a value that does not fit Spark's type"):
            needle_spark.read(spark, lake, "odd", columns=["finer"]).collect()
    write(pa.table({"id": [1], "huge": pa.array([1], pa.decimal256(50, 0))}), tmp_path / "huge/a.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("huge")
        with pytest.raises(needlepoint.UsageError, match=r"'huge' is decimal256.*Leave it out"):
            needle_spark.read(spark, lake, "huge")
        assert needle_spark.read(spark, lake, "huge", columns=["id"]).collect()[0].id == 1


def test_columns_and_types_that_came_later(spark, tmp_path: Path) -> None:
    write(
        pa.table({"id": pa.array([1, 2], pa.int32()), "price": pa.array([1, 2], pa.float32())}),
        tmp_path / "t/a.parquet",
    )
    write(pa.table({"id": pa.array([3, 2**40]), "price": [0.1, 4.0], "new": ["x", None]}), tmp_path / "t/b.parquet")
    with needlepoint.open(tmp_path, refresh=0, access="pages") as lake:
        lake.create_table("t")
        lake.create_index("t", "id")
        write(pa.table({"id": [4], "newer": [True]}), tmp_path / "t/c.parquet")
        for where in (None, "id < 4", "id > 1 OR newer", "new IS NULL AND price >= 2"):
            query = f"SELECT * FROM t WHERE {where or 'TRUE'}"
            assert_same(needle_spark.read(spark, lake, "t", where), lake, query)
        write(pa.table({"id": [5], "new": pa.nulls(1)}), tmp_path / "t/d.parquet")  # Spark's own reader refuses it
        assert_same(needle_spark.read(spark, lake, "t", "TRUE"), lake, "SELECT * FROM t")


def test_a_join_by_key_gives_what_a_join_gives(lake: Lake, spark) -> None:
    keys = [(1, 1), (1, 2), (4711, 3), (99999, 4), (None, 5), (14000, 6)]
    orders = spark.createDataFrame(keys, "id int, number int")
    whole = needle_spark.read(spark, lake, "product", columns=["id", "title", "partner"])
    for how in ("inner", "left"):
        found = needle_spark.lookup_join(orders, lake, "product", on="id", columns=["title", "partner"], how=how)
        assert found.columns == ["id", "number", "title", "partner"]
        assert as_rows(found.toArrow()) == as_rows(orders.join(whole, "id", how).toArrow())
    # Keys of another type, and a key that many rows have and no index covers.
    dates = spark.createDataFrame([(datetime.date(2024, 5, 2), 1), (datetime.date(1999, 1, 1), 2)], "day date, n int")
    found = needle_spark.lookup_join(dates, lake, "product", on="day", columns=["id"])
    assert found.count() == lake.sql("SELECT count(*) AS c FROM product WHERE day = DATE '2024-05-02'").rows()[0]["c"]
    times = spark.createDataFrame([(NOON.replace(tzinfo=datetime.UTC), "x")], "at timestamp, title string")
    assert [row.id for row in needle_spark.lookup_join(times, lake, "product", on="at", columns=["id"]).collect()] == [
        0
    ]
    words = times.select("title").selectExpr("'title 5 dairy' AS title")
    assert needle_spark.lookup_join(words, lake, "product", on="title", columns=["id"]).count() > 100


def test_keys_are_looked_up_in_portions(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Watched:
        def table(self, name: str) -> Any:
            return self

        def get(self, keys: dict[str, list[int]], columns: list[str]) -> Any:
            asked.append(keys["id"])
            return lake.table("product").get(keys, columns=columns)

    monkeypatch.setattr(lookup_join, "KEYS_AT_ONCE", 3)
    schema = pa.schema([("key", pa.int64()), ("day", pa.date32())])
    fetch = lookup_join._Fetch(Watched, "product", "id", ("day",), schema)
    batches = [pa.record_batch({"key": pa.array(keys)}) for keys in ([1, 2], [3, 4, 5, 6, 7], [99999])]
    found = pa.Table.from_batches(fetch(batches), schema)
    assert asked == [[1, 2, 3], [4, 5, 6], [7, 99999]]
    assert sorted(found["key"].to_pylist()) == [1, 2, 3, 4, 5, 6, 7]


def test_joins_that_are_refused(lake: Lake, spark) -> None:
    orders = spark.createDataFrame([(1, "x", 0.5)], "id bigint, title string, price double")
    for arguments, problem in (
        ({"on": "id"}, "has a column 'title' too"),
        ({"on": "idd"}, "unknown column 'idd' in the DataFrame"),
        ({"on": "id", "columns": ["tilte"]}, "unknown column 'tilte' in table 'product'"),
        ({"on": "id", "columns": ["day"], "how": "outer"}, "'inner' or 'left'"),
        ({"on": "price", "columns": ["day"]}, "is double in the DataFrame"),
    ):
        with pytest.raises(needlepoint.UsageError, match=problem):
            needle_spark.lookup_join(orders, lake, "product", **arguments)
    texts = orders.selectExpr("CAST(id AS STRING) AS id")
    with pytest.raises(needlepoint.UsageError, match="is string in the DataFrame and bigint in table 'product'"):
        needle_spark.lookup_join(texts, lake, "product", on="id", columns=["day"])
