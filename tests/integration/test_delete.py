"""Deleting rows, files and partitions leaves nothing of them behind."""

from __future__ import annotations

import datetime
import importlib
import threading
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lakes import product_lake, products, removals, write

import needlepoint
from needlepoint.indexer import sweep
from needlepoint.lake import maintenance_context
from needlepoint.objects import open_to_replace
from needlepoint.parquet.card.describe import describe
from needlepoint.parquet.write.rewrite import form_of


@pytest.fixture
def lake(tmp_path: Path):
    product_lake(tmp_path)
    with needlepoint.open(tmp_path, refresh=0) as opened:
        opened.create_table("product")
        yield opened


def ids(lake) -> list[int]:
    return [row["product_id"] for row in lake.sql("SELECT product_id FROM product ORDER BY 1").rows()]


def files(lake) -> list[Path]:
    return sorted((lake.root / "product").rglob("*.parquet"))


def paths(lake) -> set[str]:
    return {file.path for file in lake.registry.files.of(lake.registry.tables.get("product"))}


def test_rows_are_deleted_and_other_files_stay_as_they_are(lake) -> None:
    lake.create_index("product", "product_id")
    before = {path: path.stat().st_mtime_ns for path in files(lake)}
    deleted = lake.delete("product", "product_id = 4711")
    assert (deleted.rows, deleted.rewritten, deleted.removed) == (1, 1, 0)
    assert ids(lake) == [number for number in range(8000) if number != 4711]
    after = {path: path.stat().st_mtime_ns for path in files(lake)}
    assert len(after) == 4
    assert len(before.items() & after.items()) == 3
    result = lake.sql("SELECT upc FROM product WHERE product_id IN (4711, 4712)")
    assert result.rows() == [{"upc": "U000004712"}]
    assert result.report.tables[0].scanned_files == 0
    assert lake.delete("product", "product_id = 4711").rows == 0
    found = duckdb.sql(f"SELECT product_id FROM '{lake.root}/product/*/*.parquet'").fetchnumpy()["product_id"]
    assert sorted(found) == ids(lake)


def test_a_file_of_nothing_else_is_removed(lake) -> None:
    deleted = lake.delete("product", "product_id < 2500")
    assert (deleted.rows, deleted.rewritten, deleted.removed) == (2500, 1, 1)
    assert ids(lake) == list(range(2500, 8000))
    assert len(files(lake)) == 3


def test_row_groups_without_rows_in_files_without_the_column(tmp_path: Path) -> None:
    write(pa.table({"id": [1, 2, 3], "x": [1, 2, 3]}), tmp_path / "t/a.parquet")
    with pq.ParquetWriter(tmp_path / "t/b.parquet", pa.schema([("id", pa.int64())])) as writer:
        writer.write_table(pa.table({"id": [4]}))
        writer.write_table(pa.table({"id": pa.array([], pa.int64())}))
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        assert lake.delete("t", "x IS NULL OR x = 2").rows == 2
        assert lake.sql("SELECT id FROM t ORDER BY id").to_arrow()["id"].to_pylist() == [1, 3]


def test_where_a_condition_is_null_rows_stay(tmp_path: Path) -> None:
    write(pa.table({"id": [1, 2, 3, None], "f": [1.0, None, float("nan"), -0.0]}), tmp_path / "t/a.parquet")
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("t")
        assert lake.delete("t", "NOT (f = 1)").rows == 2  # NaN and zero, not NULL
        assert lake.sql("SELECT id FROM t ORDER BY id").rows() == [{"id": 1}, {"id": 2}]
        assert lake.delete("t", "id IN (2, NULL)").rows == 1
        assert lake.delete("t", "id NOT IN (7, NULL)").rows == 0
        assert lake.sql("SELECT id FROM t").rows() == [{"id": 1}]


def test_files_keep_their_form(tmp_path: Path) -> None:
    path = tmp_path / "t/a.parquet"
    table = pa.table(
        {
            "id": pa.array(range(3000), pa.int32()),
            "text": pa.array([f"text {n}" for n in range(3000)], pa.large_string()),
            "nested": [{"a": [n], "b": None} for n in range(3000)],
        }
    ).replace_schema_metadata({"mine": "yes"})
    write(
        table,
        path,
        row_group_size=1000,
        max_rows_per_page=50,
        compression={"id": "gzip", "text": "snappy", "nested.a.list.element": "zstd", "nested.b": "none"},
        use_dictionary=["text"],
        bloom_filter_options={"id": {"ndv": 1000, "fpp": 0.01}},
        sorting_columns=[pq.SortingColumn(0)],
    )
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("t")
        lake.create_index("t", "text", kind="text", embed=True)
        before = form_of(str(path))
        assert lake.delete("t", "id % 2 = 0 AND id < 1500").rows == 750
        (new,) = (tmp_path / "t").glob("*.parquet")
        after = form_of(str(new))
        for part in ("schema", "drawn", "compression", "dictionaries", "statistics", "sorting", "row_groups", "types"):
            assert getattr(after, part) == getattr(before, part), part
        assert (after.key_value[b"mine"], set(after.blooms)) == (b"yes", {"id"})
        described = describe(str(new))
        assert described.card.largest_page() == 50
        assert [entry.kind for entry in described.embedded.entries] == ["text"]
        kept = [n for n in range(3000) if n % 2 or n >= 1500]
        assert pq.read_table(new).equals(table.take(pa.array(kept)))
        assert lake.sql("SELECT id FROM t WHERE text_match(text, '1001')").rows() == [{"id": 1001}]
        assert lake.delete("t", "text_match(text, '1001')").rows == 1


@pytest.mark.parametrize(
    "where",
    [
        "1 = 1; DROP TABLE product",
        "product_id = 1) OR (1 = 1",
        "product_id = 1) UNION SELECT (1",
        "product_id IN (SELECT product_id FROM product)",
        "EXISTS (SELECT 1)",
        "TRUE) ORDER BY (1",
        "",
        "nothing = 1",
        "product_id",
        "count(*) > 1",
        "row_number() OVER () = 1",
        "now() > price",
        "row = 1",
        "score(title, 'a') > 1",
        "random() < 2",
        "uuid() <> upc",
    ],
)
def test_what_is_no_condition_is_refused(lake, where: str) -> None:
    with pytest.raises(needlepoint.UsageError):
        lake.delete("product", where)
    assert len(ids(lake)) == 8000


def test_a_mistake_is_named_where_it_stands_in_the_condition(lake) -> None:
    with pytest.raises(needlepoint.UsageError, match=r"line 1, column 16\b"):
        lake.delete("product", "product_id = 1 oder price = 2")
    with pytest.raises(needlepoint.UsageError, match=r"'prize' at line 2, column 5\b"):
        lake.delete("product", "product_id = 1\nAND prize = 2")


def test_comments_and_quotes_are_part_of_a_condition(lake) -> None:
    assert lake.delete("product", "product_id = 1 -- OR TRUE").rows == 1
    assert lake.delete("product", "upc = 'U000000002' /* ) */").rows == 1
    for text in (") OR (1 = 1", "random()", "it''s now()"):
        assert lake.delete("product", f"upc = '{text}'").rows == 0
    assert len(ids(lake)) == 7998


def test_partitions_go_without_being_read(lake, monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a file was opened")

    with monkeypatch.context() as patched:
        patched.setattr(pq, "ParquetFile", refuse)
        dry = lake.delete("product", "year = 2020", dry_run=True)
        assert (dry.rows, dry.rewritten, dry.removed) == (4000, 0, 2)
        assert len(ids(lake)) == 8000
        assert lake.delete("product", "year < 2021 OR year IS NULL") == dry
    assert {path.parent.name for path in files(lake)} == {"year=2021"}
    assert lake.delete("product", "year = 2021 AND price < 0").rows == 0
    assert lake.drop_partition("product", year=2021).removed == 2
    assert ids(lake) == []
    assert lake.delete("product", "TRUE").rows == 0
    with pytest.raises(needlepoint.UnknownName, match="partition column"):
        lake.drop_partition("product", price=1)


def test_partitions_with_odd_names(tmp_path: Path) -> None:
    for value in ("a%2Fb", "x y", "__HIVE_DEFAULT_PARTITION__", "c"):
        write(products(0, 10), tmp_path / f"t/p={value}/a.parquet")
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("t")
        assert lake.drop_partition("t", p="a/b").rows == 10
        assert lake.drop_partition("t", p=None).rows == 10
        assert lake.delete("t", "p = 'x y' AND product_id = 3").rows == 1
        assert lake.sql("SELECT p, count(*) AS n FROM t GROUP BY p ORDER BY p").rows() == [
            {"p": "c", "n": 10},
            {"p": "x y", "n": 9},
        ]


def test_files_are_deleted_by_name(lake) -> None:
    wanted = sorted(paths(lake))
    deleted = lake.delete_files("product", [wanted[0], f"{lake.root}/product/{wanted[1]}"])
    assert (deleted.rows, deleted.removed) == (4000, 2)
    assert sorted(paths(lake)) == wanted[2:]
    with pytest.raises(needlepoint.UnknownName, match="unknown file"):
        lake.delete_files("product", ["year=2020/nothing.parquet"])


def test_rows_expire(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        date = datetime.date(2024, 1, day)
        at = [datetime.datetime(2024, 1, day, hour, tzinfo=datetime.UTC) for hour in range(24)]
        table = pa.table({"at": pa.array(at, pa.timestamp("us", "UTC")), "n": range(24)})
        write(table, tmp_path / f"t/day={date}/a.parquet")
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("t")
        done = lake.expire("t", "day", datetime.date(2024, 1, 2))
        assert (done.rows, done.removed, done.rewritten) == (24, 1, 0)
        done = lake.expire("t", "at", datetime.datetime(2024, 1, 2, 12, tzinfo=datetime.UTC))
        assert (done.rows, done.removed, done.rewritten) == (12, 0, 1)
        assert lake.expire("t", "at", "2024-01-02T13:00:00").rows == 1
        assert lake.expire("t", "n", 3).rows == 3
        with pytest.raises(needlepoint.UsageError, match="is not a value"):
            lake.expire("t", "n", "3 OR TRUE")
        with pytest.raises(needlepoint.UsageError, match="is not a value"):
            lake.expire("t", "at", "yesterday")


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Europe/Berlin", "+05:30", None])
def test_rows_expire_by_instants_in_whatever_zone_they_are_shown(tmp_path: Path, zone: str | None) -> None:
    at = [datetime.datetime(2024, 1, 5, hour, tzinfo=datetime.UTC) for hour in range(24)]
    column = pa.array([each.replace(tzinfo=None) for each in at], pa.timestamp("us"))
    write(pa.table({"at": column.cast(pa.timestamp("us", zone)) if zone else column}), tmp_path / "t/a.parquet")
    berlin = datetime.timezone(datetime.timedelta(hours=1))
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("t")
        for before in (
            datetime.datetime(2024, 1, 5, 12, 30, tzinfo=datetime.UTC),
            datetime.datetime(2024, 1, 5, 13, 30, tzinfo=berlin),
            datetime.datetime(2024, 1, 5, 12, 30),
            "2024-01-05T12:30:00Z",
            "2024-01-05 14:30:00+02:00",
            "2024-01-05 12:30",
        ):
            assert lake.expire("t", "at", before, dry_run=True).rows == 13
        assert lake.expire("t", "at", "2024-01-06", dry_run=True).rows == 24
        lake.expire("t", "at", "2024-01-05T12:30:00Z")
        left = lake.sql("SELECT at FROM t ORDER BY at").to_arrow().column(0).cast(pa.timestamp("us")).to_pylist()
        assert left == [each.replace(tzinfo=None) for each in at[13:]]


def test_rows_expire_by_instants_at_the_beginning_of_a_day(tmp_path: Path) -> None:
    at = pa.array([datetime.datetime(2024, 1, day, 12) for day in (1, 2, 3, 4)], pa.timestamp("us", "UTC"))
    time = pa.array([1, 2, 3, 4], pa.int64()).cast(pa.time64("us"))
    write(pa.table({"at": at, "time": time}), tmp_path / "t/a.parquet")
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("t")
        assert lake.expire("t", "at", "2024-01-02").rows == 1
        assert lake.expire("t", "at", datetime.date(2024, 1, 3)).rows == 1
        with pytest.raises(needlepoint.UsageError, match="Rows expire by"):
            lake.expire("t", "time", "00:00:01")


def test_a_file_that_cannot_be_written_alike_is_left(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    duckdb.sql(f"COPY (SELECT n, TIMETZ '01:00:00+01' AS i FROM range(10) t(n)) TO '{tmp_path}/t/a.parquet'")
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("t")
        with pytest.raises(needlepoint.UsageError, match="cannot be written without some of its rows"):
            lake.delete("t", "n = 3")
        assert lake.delete("t", "n >= 0").removed == 1


def test_a_large_delete_is_several_swaps_and_goes_on_after_a_crash(lake, monkeypatch) -> None:
    delete = importlib.import_module("needlepoint.maintenance.delete")

    calls = []
    original = delete.swap

    def dies(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(delete, "swap", dies)
    with pytest.raises(KeyboardInterrupt):
        delete.delete(maintenance_context(lake), "product", "product_id % 10 = 0", swap_bytes=1)
    assert len(ids(lake)) == 8000 - 400
    assert delete.delete(maintenance_context(lake), "product", "product_id % 10 = 0", swap_bytes=1).rows == 400
    assert ids(lake) == [number for number in range(8000) if number % 10]
    assert list((lake.store / "stage" / "product").iterdir()) == []


def test_what_others_change_meanwhile_is_looked_at_again(lake, monkeypatch) -> None:
    original = lake.writer.publish
    target = files(lake)[0]

    def late(*arguments, **named):
        monkeypatch.undo()
        write(products(0, 100), target)  # replaces ids 0..1999
        return original(*arguments, **named)

    monkeypatch.setattr(lake.writer, "publish", late)
    deleted = lake.delete("product", "product_id < 50")
    assert deleted.rows == 50
    assert ids(lake) == [*range(50, 100), *range(2000, 8000)]


def test_a_file_that_comes_after_the_sync_is_looked_at_again(lake, monkeypatch) -> None:
    original, late = lake.sync, lake.root / "product/year=2023/new.parquet"

    def early(*arguments):
        reports = original(*arguments)
        if not late.exists():
            write(products(8000, 100), late)
        return reports

    monkeypatch.setattr(lake, "sync", early)
    assert lake.delete("product", "product_id % 2 = 1 AND product_id >= 7990").rows == 55
    assert ids(lake) == [*range(7990), *range(7990, 8100, 2)]


@pytest.mark.long
def test_queries_are_exact_while_rows_are_deleted(lake) -> None:
    lake.create_index("product", "product_id")
    stop, wrong, seen = threading.Event(), [], []

    def ask() -> None:
        with needlepoint.open(lake.root) as other:
            while not stop.is_set():
                rows = other.sql("SELECT count(*) AS n, sum(product_id) AS s FROM product").rows()[0]
                # The ids from 0 are deleted in tens.
                first = 8000 - rows["n"]
                if first % 10 or rows["s"] != sum(range(first, 8000)):
                    wrong.append(rows)
                if len(other.table("product").get(product_id=[7, 7999]).rows()) not in (1, 2):
                    wrong.append("get")
                if len(other.sql("SELECT upc FROM product WHERE product_id = 7999").rows()) != 1:
                    wrong.append("lookup")
                seen.append(first)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for first in range(0, 200, 10):
            lake.delete("product", f"product_id BETWEEN {first} AND {first + 9}")
    finally:
        stop.set()
        thread.join()
    assert wrong == []
    assert len(set(seen)) > 3


def test_nothing_of_what_was_deleted_is_left(tmp_path: Path) -> None:
    secret = "Zq7GeheimXw"
    for number in range(3):
        table = products(number * 1000, 1000)
        if number == 1:
            for column in ("upc", "title"):
                values = table.column(column).to_pylist()
                values[500] = secret
                table = table.set_column(table.column_names.index(column), column, pa.array(values))
        write(table, tmp_path / f"product/year={2020 + number}/p.parquet", compression="none")
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("product")
        lake.create_index("product", "upc")
        lake.create_index("product", "title", kind="text")
        lake.create_index("product", "upc", kind="distinct")
        lake.create_index("product", "title", kind="bloom", embed=True)
        assert len(lake.sql("SELECT upc FROM product WHERE text_match(title, 'Zq7GeheimXw')").rows()) == 1
        assert _holding(tmp_path, secret)
        lake.compact("product", page_rows=50, keep=3600)  # the old files still exist
        assert lake.delete("product", f"upc = '{secret}'").rows == 1
        assert _holding(tmp_path, secret)
        with needlepoint.open(tmp_path) as other:
            for _ in range(2):  # the sweep moves payloads while it is open
                result = other.sql("SELECT product_id FROM product WHERE text_match(title, 'nothing')")
                assert result.rows() == []
                assert [index.used for index in result.report.tables[0].indexes if index.kind == "text"] == [True]
                lake.sweep(now=True)
        assert _holding(tmp_path, secret) == []
        assert all(index.dead == 0 for index in lake.status().tables[0].indexes)
        packs = {path.name: path.stat().st_size for path in (lake.store / "indexes").rglob("*.pack")}
        live = lake.registry.payloads.pack_entries()
        assert {name: sum(each.length for each in payloads) for (_, name), payloads in live.items()} == packs
        assert len(lake.sql("SELECT upc FROM product").rows()) == 2999
        for query in ("upc = 'U000001007'", "text_match(title, 'dairy') AND product_id = 1007"):
            result = lake.sql(f"SELECT product_id FROM product WHERE {query}")
            assert result.rows() == [{"product_id": 1007}]
        assert lake.verify("product").differences == ()


def test_a_sweep_removes_what_killed_writers_left_behind(tmp_path: Path) -> None:
    secret = "Zq7GeheimXw"
    place = write(products(0, 100), tmp_path / "product/year=2020/p.parquet")
    target = f"part-00000-{'a' * 32}.parquet"
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("product")
        left = {
            "embedding": place.with_name(f".p.parquet.{'0' * 16}.needlepoint"),
            "embedding, the file is gone": place.with_name(f".gone.parquet.{'1' * 16}.needlepoint"),
            "publishing": place.with_name(f".{target}.{'2' * 32}"),
            "staging": lake.store / "stage/product" / ("3" * 32) / "x.parquet",
            "building": lake.store / "scratch" / ("4" * 32) / "0/a.sst",
            "building in Spark": lake.store / "scratch/backfill-1" / ("5" * 32) / "a.run",
        }
        mine, others = lake.writer.staging("product") / "x.parquet", place.with_name(f".p.parquet.{'6' * 32}")
        for path in (*left.values(), mine, others):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(secret)
        with open_to_replace(str(place)):
            lake.sweep(now=True)
            assert left["embedding"].exists()  # may be in use
        lake.sweep(now=True)
        assert [name for name, path in left.items() if path.exists()] == []
        assert sorted(_holding(tmp_path, secret)) == sorted(str(each.relative_to(tmp_path)) for each in (mine, others))


def _holding(root: Path, secret: str) -> list[str]:
    """Files that contain the value, or what a key index or a word list stores of it."""
    found = []
    for path in root.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            if any(part in data for part in (secret.encode(), secret[:8].encode(), secret.lower().encode())):
                found.append(str(path.relative_to(root)))
    return found


def test_tables_of_others_are_left_to_their_tools(lake) -> None:
    table = lake.registry.tables.get("product")
    lake.registry.tables.create("theirs", table.location, table.schema, table.partitions, format="delta")
    for ask in removals(lake, "theirs"):
        with pytest.raises(needlepoint.UsageError, match="is a Delta table"):
            ask()
    assert len(files(lake)) == 4


@pytest.mark.parametrize("read", [False, True])
def test_an_index_that_is_rebuilt_while_it_is_swept_keeps_its_entries(lake, monkeypatch, read: bool) -> None:
    lake.create_index("product", "product_id")
    lake.delete("product", "product_id < 1000")
    portions, new_id = sweep._portions, lake.registry.generations.reserve

    def meanwhile() -> None:
        monkeypatch.undo()
        with needlepoint.open(lake.root, refresh=0) as other:
            other.rebuild("product")
            write(products(9000, 10), lake.root / "product/year=2021/new.parquet")
            other.sync()

    def after_reading(*arguments):
        yield from portions(*arguments)
        meanwhile()

    def before_reading():
        meanwhile()
        return new_id()

    if read:
        monkeypatch.setattr(sweep, "_portions", after_reading)
    else:
        monkeypatch.setattr(lake.registry.generations, "reserve", before_reading)
    assert lake.sweep(now=True).entries == 0
    assert len(ids(lake)) == 7010
    for id in (1000, 5000, 9003):
        assert len(lake.sql(f"SELECT title FROM product WHERE product_id = {id}").rows()) == 1
    assert lake.verify("product").checks
    assert lake.sweep(now=True).entries == 0  # nothing is dead after a rebuild
