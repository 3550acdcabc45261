"""Tables in an object store answer as the same files on disk do."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from tests.buckets import ACCESS_KEY, SECRET_KEY, Asked, Bucket, Server, parquet
from tests.cases import long
from tests.lakes import products, write

import needlepoint
from needlepoint.errors import FileChanged, NotParquet, UsageError
from needlepoint.objects import REMOTE_GAP, as_source, identify, identify_all, open_object
from needlepoint.objects.ranges import PART
from needlepoint.parquet.inspect.anatomy import inspect
from needlepoint.tables import file_stat, snapshots
from needlepoint.tables.listing import Listing, list_files

ROWS = 2000
NULL = "__HIVE_DEFAULT_PARTITION__"


@pytest.fixture
def lake(tmp_path: Path, bucket: Bucket) -> Iterator[needlepoint.Lake]:
    with product_lake(tmp_path, bucket) as lake:
        yield lake


@pytest.fixture(scope="module")
def still_lake(tmp_path_factory: pytest.TempPathFactory, running: Server) -> Iterator[needlepoint.Lake]:
    """For tests that change nothing."""
    with product_lake(tmp_path_factory.mktemp("still"), running.bucket()) as lake:
        yield lake


@contextmanager
def product_lake(tmp_path: Path, bucket: Bucket) -> Iterator[needlepoint.Lake]:
    """`product` in the bucket and `local`, the same files on disk, both indexed."""
    directory = tmp_path / "files"
    for number, year in enumerate(("2020", "2021", "2020", NULL)):
        write(products(number * ROWS, ROWS), directory / f"year={year}" / f"p{number}.parquet")
    bucket.put_directory(directory, "lake/product")
    bucket.put("lake/product/_temporary/x.parquet", b"half")
    bucket.put("lake/product/year=2020/.p0.parquet.crc", b"sum")
    bucket.put_table("lake/product2/year=2020/other.parquet", products(90_000, 10))
    with needlepoint.open(tmp_path / "lake") as lake:
        lake.create_table("product", bucket.url("lake/product/"))
        lake.create_table("local", directory)
        for table in ("product", "local"):
            lake.create_index(table, "product_id")
            lake.create_index(table, "upc")
        yield lake


def one(result: needlepoint.query.result.Result) -> needlepoint.query.report.explain.TableReport:  # type: ignore[name-defined]
    (table,) = result.report.tables
    return table


def key_of(lake: needlepoint.Lake, number: int) -> str:
    """The key of the object of a product."""
    position = number // ROWS
    return f"lake/product/year={('2020', '2021', '2020', NULL)[position]}/p{position}.parquet"


# The same answers


def test_reads_in_parts(lake: needlepoint.Lake, bucket: Bucket) -> None:
    """Planned here; run by any process that has the variables of the object store."""
    for where in ("product_id IN (5, 4321)", "price < 20", "year IS NULL OR product_id = 77"):
        plan = lake.plan_read("product", where)
        sent = [pickle.loads(pickle.dumps(part)) for part in plan.parts]
        found = pa.Table.from_batches([batch for part in sent for batch in part.batches()], plan.schema)
        expected = lake.sql(f"SELECT * FROM local WHERE {where}").to_arrow().cast(plan.schema)
        assert found.sort_by("product_id").equals(expected.sort_by("product_id"))
    point, scan = lake.plan_read("product", "product_id = 5"), lake.plan_read("product", "price < 20")
    bucket.put_table(key_of(lake, 5), products(0, 10))
    for plan in (point, scan):
        with pytest.raises(FileChanged, match="after this read was planned"):
            [*plan.parts[0].batches()]


QUESTIONS = [
    "SELECT * FROM {} WHERE product_id = 1234",
    "SELECT title FROM {} WHERE upc = 'U000004321'",
    "SELECT * FROM {} WHERE product_id = -1",
    "SELECT product_id, price FROM {} WHERE product_id BETWEEN 3990 AND 4010",
    "SELECT product_id, year FROM {} WHERE product_id IN (" + ", ".join(str(8 * n + 1) for n in range(1000)) + ")",
    "SELECT count(*) AS n, sum(price) AS total FROM {} WHERE price < 20",
    "SELECT year, count(*) AS n, min(product_id) AS first FROM {} GROUP BY year",
    "SELECT count(*) AS n FROM {} WHERE year = 2021 AND title LIKE 'title 1%'",
    "SELECT product_id FROM {} WHERE year IS NULL AND price < 5",
    "SELECT product_id FROM {} WHERE year IS NULL AND product_id = 6500",
    "SELECT product_id FROM {} WHERE product_id = 77 OR (year = 2021 AND price < 3)",
    "SELECT a.product_id FROM {0} a JOIN {0} b ON a.product_id = b.product_id + 2000 WHERE b.title = 'title 5 dairy'",
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_those_of_the_same_files_on_disk(still_lake: needlepoint.Lake, question: str) -> None:
    found = still_lake.sql(question.format("product")).to_arrow()
    expected = still_lake.sql(question.format("local")).to_arrow()
    order = [(name, "ascending") for name in expected.column_names]
    assert found.sort_by(order).equals(expected.sort_by(order))


def test_everything_else_works_as_on_a_directory(lake: needlepoint.Lake, bucket: Bucket) -> None:
    table = lake.table("product")
    assert table.get(product_id=1234, columns=["upc", "year"]).rows() == [{"upc": "U000001234", "year": 2020}]
    assert lake.registry.tables.get("product").location == bucket.url("lake/product")
    found = next(each for each in lake.status().tables if each.name == "product")
    assert (found.files, found.indexed, found.unknown, found.rows) == (4, 4, 0, 4 * ROWS)
    report = lake.explain("SELECT title FROM product WHERE product_id = 5")
    assert report.tables[0].page_read_files == 1
    assert [each.added for each in lake.sync("product")] == [0]
    lake.drop_table("product")
    assert bucket.client.list_objects_v2(Bucket=bucket.name, Prefix="lake/product/")["KeyCount"] == 6


def test_page_reads_meet_native_scans(lake: needlepoint.Lake, bucket: Bucket) -> None:
    """A file that is not indexed is scanned, beside page reads of the others."""
    bucket.put_table("lake/product/year=2022/new.parquet", products(1000, 50, seed=7))
    lake.engine.snapshots.forget()
    result = lake.sql("SELECT product_id, year FROM product WHERE product_id = 1020 ORDER BY year")
    assert result.rows() == [{"product_id": 1020, "year": 2020}, {"product_id": 1020, "year": 2022}]
    assert (one(result).page_read_files, one(result).scanned_files) == (1, 1)


def test_many_partitions_are_listed_natively(tmp_path: Path, bucket: Bucket) -> None:
    for year in range(20):
        bucket.put_table(f"t/year={2000 + year}/a.parquet", products(year * 10, 10))
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("product", bucket.url("t"))
        rows = lake.sql("SELECT year, sum(product_id) AS s FROM product GROUP BY year ORDER BY year").rows()
    assert rows == [{"year": 2000 + year, "s": sum(range(year * 10, year * 10 + 10))} for year in range(20)]


@pytest.mark.parametrize("name", ["a b", "a%20b", "ü+#?&=", "a*b[1]{2}", "'q\"uote", "~tilde^"])
def test_keys_can_be_any_text(tmp_path: Path, bucket: Bucket, name: str) -> None:
    bucket.put_table(f"odd {name}/{name}.parquet", products(0, 300))
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("product", bucket.url(f"odd {name}"))
        lake.create_index("product", "product_id")
        assert len(lake.sql("SELECT upc FROM product WHERE product_id = 7")) == 1
        assert len(lake.sql("SELECT upc FROM product WHERE price >= 0")) == 300


# Listing


def test_a_listing_of_many_pages(bucket: Bucket, server: Server) -> None:
    wanted = [f"year={number % 7}/{number:05d}.parquet" for number in range(2100)]
    others = ["many2/x.parquet", "many.parquet", "man/y.parquet", "x/many/z.parquet", "many/_new/a.parquet"]
    bucket.put_quickly([*(f"many/{path}" for path in wanted), *others], b"x")
    start = len(server.asked)
    listing = list_files(bucket.url("many"))
    assert sorted(listing.files) == sorted(wanted)
    assert len(server.asked) - start == 3
    path = wanted[5]
    assert listing.files[path] == identify(bucket.url(f"many/{path}"))
    assert not listing.complete  # another reader may read the private one too


@pytest.mark.parametrize(("most", "listings"), [(3, 1), (2, 2)])
def test_objects_no_sync_has_seen_are_asked_for_again_when_the_registry_changed_meanwhile(
    tmp_path: Path, bucket: Bucket, server: Server, monkeypatch, most: int, listings: int
) -> None:
    bucket.put_table("many/0.parquet", products(0, 1))
    with needlepoint.open(tmp_path, object_refresh=0) as lake:
        lake.create_table("product", bucket.url("many"))
        for number in range(1, 4):
            bucket.put_table(f"many/{number}.parquet", products(number, 1))
        original = snapshots.list_files

        def busy(location: str) -> Listing:
            found = original(location)
            bucket.delete("many/3.parquet")
            lake.sql("CREATE VIEW v AS SELECT 1 AS one")
            return found

        monkeypatch.setattr(snapshots, "list_files", busy)
        monkeypatch.setattr(file_stat, "MOST_QUESTIONS", most)
        start = len(server.asked)
        found = snapshots.Snapshots(lake.registry, 0).look("product")
        assert [file.path for file in found.files] == ["0.parquet", "1.parquet", "2.parquet"]
        assert len(server.listings(start)) == listings


@pytest.mark.long
def test_a_scan_of_many_objects_is_checked_by_one_listing(tmp_path: Path, bucket: Bucket, server: Server) -> None:
    bucket.put_quickly([f"many/{number}.parquet" for number in range(40)], parquet(products(0, 1)))
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("product", bucket.url("many"))
        query = "SELECT upc FROM product WHERE price >= 0"
        lake.sql(query)
        start = len(server.asked)
        assert len(lake.sql(query)) == 40
        asked = server.asked[start:]
        assert len([each for each in asked if "list-type" in each.query]) == 1
        assert len([each for each in asked if each.method == "HEAD"]) == 40  # DataFusion's


def test_a_bucket_can_be_a_table(tmp_path: Path, bucket: Bucket) -> None:
    bucket.put_table("year=2020/a.parquet", products(0, 10))
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("product", f"s3://{bucket.name}")
        assert lake.sql("SELECT year, count(*) AS n FROM product GROUP BY year").rows() == [{"year": 2020, "n": 10}]


# Changes


def test_an_object_replaced_since_the_listing_is_never_read_by_its_old_card(
    lake: needlepoint.Lake, bucket: Bucket
) -> None:
    query = "SELECT product_id, upc FROM product WHERE product_id = 1234"
    assert len(lake.sql(query)) == 1  # planned, and the listing is cached for a minute
    moved = products(0, ROWS, seed=5).set_column(1, "upc", pa.array(["moved"] * ROWS))
    bucket.put_table(key_of(lake, 1234), moved)
    assert lake.sql(query).rows() == [{"product_id": 1234, "upc": "moved"}]
    assert lake.table("product").get(product_id=1234, columns=["upc"]).rows() == [{"upc": "moved"}]
    (report,) = lake.sync("product")
    assert (report.added, report.changed, report.removed) == (0, 1, 0)
    result = lake.sql(query)
    assert (result.rows()[0]["upc"], one(result).scanned_files) == ("moved", 0)


def test_an_object_replaced_between_plan_and_read(lake: needlepoint.Lake, bucket: Bucket, server: Server) -> None:
    key, replaced = key_of(lake, 1234), []

    def replace(asked: Asked) -> None:
        if asked.path.endswith("p0.parquet") and not replaced:
            replaced.append(asked)
            bucket.put_table(key, products(0, ROWS, seed=9))

    server.before = replace
    table = products(0, ROWS, seed=9)
    expected = table.filter(pa.compute.equal(table["product_id"], 1234)).select(["product_id", "price"])
    assert lake.sql("SELECT product_id, price FROM product WHERE product_id = 1234").to_arrow().equals(expected)
    assert replaced


@pytest.mark.parametrize("nth", [2, *long(1, 3)])
def test_an_object_replaced_during_a_native_scan(
    lake: needlepoint.Lake, bucket: Bucket, server: Server, nth: int
) -> None:
    """A query returns old rows or new ones, never both: here the new ones, since the scan is repeated."""
    seen = []

    def replace(asked: Asked) -> None:
        if asked.path.endswith("p0.parquet"):
            seen.append(asked)
            if len(seen) == nth:
                bucket.put_table(key_of(lake, 0), products(100_000, 500), row_group_size=70, max_rows_per_page=7)

    server.before = replace
    rows = lake.sql("SELECT count(*) AS n, max(product_id) AS top FROM product WHERE price >= 0").rows()
    assert rows == [{"n": 3 * ROWS + 500, "top": 100_499}]


def test_an_object_replaced_at_once_by_one_of_the_same_size(tmp_path: Path, bucket: Bucket) -> None:
    """DataFusion would identify it by path, size and time in seconds, and use the footer in its cache."""

    def content(first: int) -> bytes:
        return parquet(pa.table({"k": list(range(first, first + 500))}), compression="none")

    bucket.put("t/a.parquet", content(0))
    with needlepoint.open(tmp_path, object_refresh=0) as lake:
        lake.create_table("t", bucket.url("t"))
        for first in (10_000, 20_000, 30_000):
            assert lake.sql(f"SELECT k FROM t WHERE k >= {first}").rows() == []
            bucket.put("t/a.parquet", content(first))
            assert len(lake.sql(f"SELECT k FROM t WHERE k >= {first}")) == 500
            assert lake.sql("SELECT min(k) AS k FROM t").rows() == [{"k": first}]


def test_an_object_deleted(lake: needlepoint.Lake, bucket: Bucket) -> None:
    query = "SELECT product_id FROM product WHERE product_id = 1234"
    count = "SELECT count(*) AS n FROM product WHERE price >= 0"
    assert (len(lake.sql(query)), lake.sql(count).rows()) == (1, [{"n": 4 * ROWS}])
    bucket.delete(key_of(lake, 1234))
    assert lake.sql(query).rows() == []
    assert lake.sql(count).rows() == [{"n": 3 * ROWS}]
    bucket.delete(key_of(lake, 3000))
    assert lake.sql(count).rows() == [{"n": 2 * ROWS}]  # noticed by the scan
    (report,) = lake.sync("product")
    assert report.removed == 2


def test_an_object_added_is_seen_after_a_while_or_a_sync(lake: needlepoint.Lake, bucket: Bucket) -> None:
    query = "SELECT product_id FROM product WHERE product_id = 50000"
    assert lake.sql(query).rows() == []
    bucket.put_table("lake/product/year=2021/late.parquet", products(50_000, 100))
    assert lake.sql(query).rows() == []  # the listing is still in use
    with needlepoint.open(lake.root, object_refresh=0) as other:
        assert other.sql(query).rows() == [{"product_id": 50_000}]
        other.sync("product")
    assert lake.sql(query).rows() == [{"product_id": 50_000}]


def test_all_objects_deleted_is_an_empty_table(tmp_path: Path, bucket: Bucket) -> None:
    bucket.put_table("t/a.parquet", products(0, 10))
    with needlepoint.open(tmp_path, object_refresh=0) as lake:
        lake.create_table("product", bucket.url("t"))
        bucket.delete("t/a.parquet")
        assert lake.sql("SELECT count(*) AS n FROM product").rows() == [{"n": 0}]


def test_an_object_can_be_inspected(bucket: Bucket) -> None:
    bucket.put_table("t/a.parquet", products(0, 10))
    anatomy = inspect(bucket.url("t/a.parquet"))
    assert (anatomy.rows, anatomy.columns[0].name) == (10, "product_id")


# Requests


def test_a_point_lookup_asks_for_what_it_reports(still_lake: needlepoint.Lake, server: Server) -> None:
    lake = still_lake
    query = "SELECT upc, title, price FROM product WHERE product_id = 1234"
    lake.sql(query)
    lake.engine.caches.pages.clear()
    start = len(server.asked)
    result = lake.sql(query)
    asked = server.asked[start:]
    assert {each.method for each in asked} == {"GET"}  # nothing but the bytes of pages
    planned = lake.explain(query).tables[0]
    assert one(result).bytes.read == sum(each.bytes for each in asked) == planned.bytes.read
    assert len(asked) == 1  # the pages are within 128 KiB
    again = lake.sql(query)
    (checked,) = server.asked[start + 1 :]  # the smallest page, to check that the object has not changed
    assert one(again).bytes.read == checked.bytes < planned.bytes.read / 2
    assert one(again).bytes.read + one(again).cached_bytes <= planned.bytes.read
    assert again.rows() == result.rows()


def test_an_in_list_asks_each_file_once(still_lake: needlepoint.Lake, server: Server) -> None:
    query = "SELECT upc FROM product WHERE product_id IN (1, 2001, 4001, 6001)"
    still_lake.sql(query)
    start = len(server.asked)
    result = still_lake.sql(query)
    assert (len(result), one(result).page_read_files) == (4, 4)
    assert len(server.asked) - start == 4


def test_ranges_are_coalesced_and_counted(bucket: Bucket, server: Server) -> None:
    content = bytes(range(256)) * 4096
    bucket.put("x.parquet", content)
    far = 1000 + REMOTE_GAP + 1
    start = len(server.asked)
    with open_object(bucket.url("x.parquet")) as file:
        ranges = [(500, 500), (0, 100), (far, 10), (700, 0)]
        assert file.read_ranges(ranges) == [content[at : at + length] for at, length in ranges]
        assert (file.requests, file.bytes_requested) == (2, 1010)
        assert file.read(len(content), 0) == b""
        assert file.requests == 2
        tail = file.read(len(content) - 1000, 1000)
        assert file.read(len(content) - 500, 300) == content[-500:-200]  # cached
        assert (tail, file.requests) == (content[-1000:], 3)
    assert [each.method for each in server.asked[start:]] == ["HEAD", "GET", "GET", "GET"]
    assert sum(each.bytes for each in server.gets(start)) == 2010


def test_long_ranges_come_in_parts(bucket: Bucket, server: Server) -> None:
    content = bytes(range(256)) * (2 * PART // 256) + b"end"
    bucket.put("x.parquet", content)
    start = len(server.asked)
    with open_object(bucket.url("x.parquet")) as file:
        assert file.read(1, len(content) - 1) == content[1:]
        assert file.requests == len(server.gets(start)) == 3
    source = as_source(bucket.url("x.parquet"))
    assert not isinstance(source, str)
    assert (source.seek(-3, 2), source.read(), source.read(5)) == (len(content) - 3, b"end", b"")


def test_indexing_reads_a_column_and_no_more(tmp_path: Path, bucket: Bucket, server: Server) -> None:
    table = products(0, 50_000).append_column("text", pa.array([f"{n * 7919:x}" * 8 for n in range(50_000)]))
    content = parquet(table, compression="none", row_group_size=25_000)
    bucket.put("t/a.parquet", content)
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("product", bucket.url("t"))
        start = len(server.asked)
        lake.create_index("product", "product_id")
    assert len(server.gets(start)) <= 8
    assert sum(each.bytes for each in server.gets(start)) < len(content) / 4


# What goes wrong


def test_reads_are_bound_to_a_version(bucket: Bucket) -> None:
    url = bucket.url("x.parquet")
    bucket.put("x.parquet", b"0123456789")
    known = identify(url)
    with open_object(url, known) as file:
        assert file.read(2, 3) == b"234"
        file.check_unchanged(known)
        bucket.put("x.parquet", b"9876543210")
        assert identify(url) != known
        with pytest.raises(FileChanged, match="Run the query again"):
            file.read(0, 5)
        with pytest.raises(NotParquet, match="outside"):
            file.read(5, 6)
        bucket.delete("x.parquet")
        with pytest.raises(FileNotFoundError, match=r"x\.parquet"):
            file.read(0, 5)
    with pytest.raises(FileNotFoundError):
        open_object(url)
    assert identify_all([url]) == [None]


def test_transient_failures_are_tried_again(bucket: Bucket, server: Server) -> None:
    bucket.put("x.parquet", b"0123456789")
    left = [503, 500]
    server.before = lambda asked: left.pop() if left else None
    with open_object(bucket.url("x.parquet")) as file:
        assert file.read(0, 10) == b"0123456789"
    assert not left


def refused(action: Callable[[], object], *, saying: str) -> None:
    with pytest.raises(needlepoint.ObjectStoreError, match=saying) as caught:
        action()
    assert caught.value.hint
    shown = "".join(traceback.format_exception(caught.value))
    for secret in (ACCESS_KEY, SECRET_KEY, "another key", "another secret"):
        assert secret not in shown
        assert secret not in repr(caught.value)


def test_a_missing_bucket(tmp_path: Path, server: Server) -> None:
    with needlepoint.open(tmp_path) as lake:
        refused(lambda: lake.create_table("t", "s3://no-such-bucket/t"), saying="no such bucket")


def test_wrong_credentials(
    lake: needlepoint.Lake, bucket: Bucket, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "SELECT * FROM product WHERE product_id = 5"
    assert len(lake.sql(query)) == 1
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another secret")
    server.demand_credentials()
    try:
        refused(lambda: lake.create_table("t", bucket.url("lake/product")), saying="credentials are not accepted")
        refused(lambda: lake.sql(query), saying=r"p0\.parquet.*not accepted")
        refused(lambda: lake.sql("SELECT avg(price) FROM product WHERE price > 5"), saying="refused|not accepted")
        refused(lambda: lake.sync("product"), saying="not accepted")
    finally:
        server.demand_credentials(demanded=False)


def test_a_scan_that_is_refused(still_lake: needlepoint.Lake, server: Server) -> None:
    server.before = lambda asked: 403 if asked.method == "GET" and asked.path.endswith("p0.parquet") else None
    refused(lambda: still_lake.sql("SELECT avg(price) FROM product WHERE price > 5"), saying="p0.*access is refused")


def test_a_store_that_does_not_answer(still_lake: needlepoint.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    refused(
        lambda: still_lake.sql("SELECT * FROM product WHERE product_id = 5"), saying="does not answer.*AWS_ENDPOINT_URL"
    )


def test_no_parquet_under_a_prefix(tmp_path: Path, bucket: Bucket) -> None:
    bucket.put("t/readme.txt", b"hello")
    bucket.put("broken/a.parquet", b"not a Parquet file")
    with needlepoint.open(tmp_path) as lake:
        with pytest.raises(UsageError, match="no Parquet files in s3://"):
            lake.create_table("t", bucket.url("t"))
        with pytest.raises(NotParquet, match=r"s3://.*a\.parquet: not a Parquet file"):
            lake.create_table("t", bucket.url("broken"))
        for place in ("gs://bucket/t", "s3a://bucket/t", "s3://", "s3://bucket//t", "s3://bucket/../t"):
            with pytest.raises(UsageError):
                lake.create_table("t", place)


@pytest.mark.parametrize("embed", [False, True], ids=["external", "embedded"])
def test_indexes_of_single_objects(tmp_path: Path, bucket: Bucket, embed: bool) -> None:
    with product_lake(tmp_path, bucket) as lake:
        lake.create_index("product", "price", kind="bloom", embed=embed)
        lake.create_index("product", "title", kind="distinct", embed=embed)
        wanted = lake.sql("SELECT price, title FROM product WHERE product_id = 1234").rows()[0]
        for column in ("price", "title"):
            query = f"SELECT product_id FROM product WHERE {column} = {wanted[column]!r} ORDER BY 1"
            found = lake.sql(query)
            assert found.to_arrow().equals(lake.engine.sql(query, use_indexes=False).to_arrow())
            (use,) = [use for use in found.report.tables[0].indexes if use.column == column]
            assert use.used, use.why
        status = lake.status().tables[0]
        assert (status.indexed, status.unknown) == (status.files, 0)
        assert lake.sync("product")[0].indexed == 0
