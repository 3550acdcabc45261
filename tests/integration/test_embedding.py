"""Every reader reads files with embedded indexes like the files without them."""

from __future__ import annotations

import datetime
import os
import shutil
from collections.abc import Callable
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import fastparquet
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import SessionContext
from tests.buckets import Asked, Bucket, parquet

from needlepoint.errors import FileChanged, ObjectStoreError
from needlepoint.objects import identify, open_object
from needlepoint.objects.remote import s3
from needlepoint.parquet.format.footer import read_footer
from needlepoint.parquet.write.embed import EmbeddingWriter, Payload, embed, embedded, read_payload, remove
from needlepoint.parquet.write.retrofit import retrofit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAYLOADS = (
    Payload("distinct", ("text",), 1, b"a\nb\nc\n" * 1000),
    Payload("key", ("id",), 1, os.urandom(5000)),
    Payload("text", ("text",), 1, b"", {"words": ["PAR1"]}),
    Payload("odd", (), 1, b"PAR1" * 10),  # looks like the end of a file
)


def flat(rows: int = 1000) -> pa.Table:
    numbers = range(rows)
    day = datetime.date(2024, 1, 1)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "text": pa.array([None if number % 7 == 0 else f"text {number % 90}" for number in numbers], pa.string()),
            "number": pa.array([number / 3 for number in numbers], pa.float64()),
            "price": pa.array([Decimal(number) / 100 for number in numbers], pa.decimal128(12, 2)),
            "day": pa.array([day + datetime.timedelta(number) for number in numbers], pa.date32()),
            "flag": pa.array([number % 3 == 0 for number in numbers], pa.bool_()),
        }
    )


def nested() -> pa.Table:
    numbers = range(300)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "text": [f"text {number}" for number in numbers],
            "list": pa.array([None if n % 5 == 0 else [*range(n % 4)] for n in numbers], pa.list_(pa.int64())),
            "point": pa.array([{"x": n, "y": str(n)} for n in numbers], pa.struct({"x": pa.int64(), "y": pa.string()})),
        }
    )


# Tables and write options by name.
FILES: dict[str, tuple[Callable[[], pa.Table], dict[str, Any]]] = {
    "version 1": (flat, {"data_page_version": "1.0", "use_dictionary": False, "compression": "snappy"}),
    "version 2": (flat, {"data_page_version": "2.0", "use_dictionary": False, "compression": "zstd"}),
    "dictionary": (flat, {"use_dictionary": True}),
    "page index": (flat, {"write_page_index": True, "max_rows_per_page": 100, "write_batch_size": 100}),
    "bloom filters": (flat, {"bloom_filter_options": {"id": {"ndv": 1000}, "text": {"ndv": 100}}}),
    "row groups": (flat, {"row_group_size": 130}),
    "nested": (nested, {}),
    "empty": (lambda: flat(0), {}),
    "no row groups": (lambda: flat(0), {}),
}


def finish(plain: Path, path: Path, options: dict[str, Any]) -> None:
    table = pq.read_table(plain)
    with EmbeddingWriter(path, table.schema, **{k: v for k, v in options.items() if k != "row_group_size"}) as writer:
        writer.write_table(table, options.get("row_group_size"))
        for payload in PAYLOADS:
            writer.add(payload)


def append(plain: Path, path: Path, options: dict[str, Any]) -> None:
    path.write_bytes(plain.read_bytes())
    embed(str(path), PAYLOADS)


def append_twice(plain: Path, path: Path, options: dict[str, Any]) -> None:
    path.write_bytes(plain.read_bytes())
    embed(str(path), [Payload(PAYLOADS[0].kind, PAYLOADS[0].columns, 0, b"an old one"), *PAYLOADS[2:]])
    embed(str(path), PAYLOADS[:2])


def removed(plain: Path, path: Path, options: dict[str, Any]) -> None:
    append_twice(plain, path, options)
    remove(str(path), lambda entry: entry.kind in ("key", "odd"))
    remove(str(path), lambda entry: True)


WAYS = (finish, append, append_twice, removed)


def by_pyarrow(path: Path) -> list[Any]:
    return pq.ParquetFile(path).read().to_pylist()


def by_datafusion(path: Path) -> list[Any]:
    context = SessionContext()
    context.register_parquet("file", str(path))
    return context.sql("SELECT * FROM file").to_arrow_table().to_pylist()


def by_duckdb(path: Path) -> list[Any]:
    return duckdb.sql(f"SELECT * FROM read_parquet('{path}')").fetchall()


def by_polars(path: Path) -> list[Any]:
    return polars.read_parquet(path).to_dicts()


def by_fastparquet(path: Path) -> list[Any]:
    return [*fastparquet.ParquetFile(str(path)).to_pandas().astype(object).fillna("null").itertuples(index=False)]


READERS = (by_pyarrow, by_datafusion, by_duckdb, by_polars, by_fastparquet)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The files before anything is embedded."""
    directory = tmp_path_factory.mktemp("plain")

    def written(kind: str) -> Path:
        path = directory / f"{kind}.parquet"
        if not path.exists():
            make, options = FILES[kind]
            if kind == "no row groups":
                pq.ParquetWriter(path, make().schema).close()
            else:
                pq.write_table(make(), path, **options)
        return path

    return written


@pytest.mark.covering
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("kind", FILES)
def test_everyone_reads_the_same(
    plain: Callable[[str], Path],
    tmp_path: Path,
    kind: str,
    way: Callable[[Path, Path, dict[str, Any]], None],
) -> None:
    before, path = plain(kind), tmp_path / "file.parquet"
    way(before, path, FILES[kind][1])
    expected = [] if way is removed else [payload.data for payload in PAYLOADS]
    with open_object(str(path)) as file:
        found = embedded(file, read_footer(file))
        assert found.ignored == ()
        assert sorted(read_payload(file, entry) for entry in found.entries) == sorted(expected)
    rows = FILES[kind][0]().num_rows
    for read in READERS:
        was = read(before)
        assert len(was) == rows, read
        assert read(path) == was, read


@pytest.mark.long
@pytest.mark.spark
def test_spark_reads_the_same(plain: Callable[[str], Path], tmp_path: Path, spark: SparkSession) -> None:
    """One job reads all files of a kind; files that Spark wrote are a kind too."""
    spark.createDataFrame(flat().to_pandas()).coalesce(1).write.parquet(str(tmp_path / "spark"))
    (own,) = (tmp_path / "spark").glob("*.parquet")
    for kind in [*FILES, "spark"]:
        options = FILES[kind][1] if kind in FILES else {}
        ways = [way for way in WAYS if kind != "spark" or way is not finish]  # Spark finishes its files itself
        directory = tmp_path / "read" / kind
        directory.mkdir(parents=True)
        shutil.copyfile(own if kind == "spark" else plain(kind), directory / "before.parquet")
        for way in ways:
            way(directory / "before.parquet", directory / f"{way.__name__}.parquet", options)
        expected = len(pq.read_table(directory / "before.parquet"))
        read: dict[str, list[Any]] = {}
        for file, *row in spark.read.parquet(str(directory)).selectExpr("_metadata.file_name", "*").collect():
            read.setdefault(file, []).append(row)
        if expected:
            assert sorted(read) == sorted(["before.parquet", *(f"{way.__name__}.parquet" for way in ways)]), kind
            assert len(read["before.parquet"]) == expected, kind
            assert all(rows == read["before.parquet"] for rows in read.values()), kind
        else:
            assert read == {}, kind
    for reader in READERS:
        assert reader(directory / "append_twice.parquet") == reader(directory / "before.parquet"), reader


@pytest.mark.spark
def test_a_file_that_spark_wrote_and_sums_up_is_read_by_spark(tmp_path: Path, spark: SparkSession) -> None:
    """Spark keeps a checksum file beside each file, which then belongs to the old bytes."""
    place = tmp_path / "table"
    spark.range(1000).coalesce(1).write.parquet(str(place))
    (path,) = place.glob("*.parquet")
    assert (place / f".{path.name}.crc").exists()
    embed(str(path), PAYLOADS)
    assert spark.read.parquet(str(place)).count() == 1000
    assert not [each for each in place.iterdir() if each.name.endswith(".needlepoint")]


# Object stores


def stored(bucket: Bucket, key: str) -> bytes:
    data: bytes = bucket.client.get_object(Bucket=bucket.name, Key=key)["Body"].read()
    return data


def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "LARGEST_PUT", 0)
    monkeypatch.setattr(s3, "PUT_PART", 5 << 20)  # the smallest part that S3 accepts


@pytest.mark.parametrize("parts", [False, True], ids=["whole", "in parts"])
def test_objects(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: bool) -> None:
    if parts:
        in_parts(monkeypatch)
    local = tmp_path / "file.parquet"
    table = pa.table({"id": range(1_500_000)})
    pq.write_table(table, local, use_dictionary=False, compression="none")
    before = local.read_bytes()
    about = {"ContentType": "application/x-parquet", "Metadata": {"by": "me"}}
    bucket.client.put_object(Bucket=bucket.name, Key="a/file.parquet", Body=before, **about)
    url = bucket.url("a/file.parquet")
    start = len(bucket.server.asked)
    identity = embed(url, PAYLOADS, identity=identify(url))
    sent = [each for each in bucket.server.asked[start:] if each.method == "PUT"]
    assert len(sent) == (3 if parts else 1)
    assert identity == identify(url)
    embed(str(local), PAYLOADS)
    assert stored(bucket, "a/file.parquet") == local.read_bytes()
    with open_object(url) as file:
        entries = embedded(file, read_footer(file)).entries
        assert [read_payload(file, entry) for entry in entries] == [payload.data for payload in PAYLOADS]
    head = bucket.client.head_object(Bucket=bucket.name, Key="a/file.parquet")
    assert {name: head[name] for name in about} == about
    remove(url, lambda entry: True)
    assert stored(bucket, "a/file.parquet") == before
    assert [each["Key"] for each in bucket.client.list_objects_v2(Bucket=bucket.name)["Contents"]] == ["a/file.parquet"]


def put_file(bucket: Bucket) -> str:
    """Put a file that is larger than a part."""
    bucket.put_table("file.parquet", pa.table({"id": range(800_000)}), compression="none")
    return bucket.url("file.parquet")


def test_an_object_is_retrofitted(bucket: Bucket) -> None:
    bucket.put("file.parquet", parquet(flat(), write_page_index=False))
    url = bucket.url("file.parquet")
    embed(url, PAYLOADS)
    done = retrofit(url, bloom=["id"])
    assert (done.offset_indexes, done.column_indexes, done.bloom_filters) == (6, 6, 1)
    assert done.identity == identify(url)
    assert pq.read_table(BytesIO(stored(bucket, "file.parquet"))).equals(flat())
    with open_object(url) as file:
        metadata = read_footer(file)
        assert len(embedded(file, metadata).entries) == len(PAYLOADS)
        assert all(chunk.offset_index_offset for chunk in metadata.row_groups[0].columns)


def test_an_object_of_another_version_is_refused(bucket: Bucket) -> None:
    url = put_file(bucket)
    planned = identify(url)
    bucket.put_table("file.parquet", flat(500))
    after = stored(bucket, "file.parquet")
    with pytest.raises(FileChanged):
        embed(url, PAYLOADS, identity=planned)
    assert stored(bucket, "file.parquet") == after


@pytest.mark.long
@pytest.mark.parametrize("parts", [False, True], ids=["whole", "in parts"])
def test_an_object_replaced_meanwhile_is_not_overwritten(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, parts: bool
) -> None:
    if parts:
        in_parts(monkeypatch)
    url = put_file(bucket)
    replaced = []

    def before(asked: Asked) -> None:
        upload = asked.method == "POST" if parts else asked.method == "PUT"
        if upload and not replaced:
            replaced.append(asked)
            bucket.put_table("file.parquet", flat(500))

    bucket.server.before = before
    with pytest.raises(FileChanged):
        embed(url, PAYLOADS)
    assert replaced
    bucket.server.before = None
    with open_object(url) as file:
        assert read_footer(file).num_rows == 500


@pytest.mark.parametrize("parts", [False, True], ids=["whole", "in parts"])
def test_an_upload_that_fails_leaves_the_object(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, parts: bool) -> None:
    if parts:
        in_parts(monkeypatch)
    url = put_file(bucket)
    before = stored(bucket, "file.parquet")
    bucket.server.before = lambda asked: 403 if asked.method in ("PUT", "POST") else None
    with pytest.raises(ObjectStoreError, match="refused"):
        embed(url, PAYLOADS)
    bucket.server.before = None
    assert stored(bucket, "file.parquet") == before
