"""Files and objects whose paths not every reader can represent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.buckets import Server, aws_server, parquet
from tests.cases import long
from tests.lakes import write

import needlepoint
from needlepoint.errors import SqlError, UsageError
from needlepoint.objects.remote import list_objects
from needlepoint.tables.listing import list_files

TOTAL = "SELECT count(name) AS names, sum(id) AS ids FROM t"
ONE = "SELECT name FROM t WHERE id = 3"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with aws_server() as server:
        yield server


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "name": [f"n{number}" for number in ids]})


@pytest.mark.parametrize(
    "key",
    ["t/a//b.parquet", *long("t/./b.parquet"), "t/../b.parquet", "t/a\x01b.parquet", "t//", *long("t/p\x7f/b.parquet")],
)
def test_a_key_without_a_name_is_passed_over(server: Server, tmp_path: Path, key: str) -> None:
    bucket = server.bucket()
    bucket.put_table("t/0.parquet", rows(1, 2))
    bucket.put_table("t/z.parquet", rows(3, 4))
    bucket.put(key, parquet(rows(5)))
    with needlepoint.open(tmp_path / "lake", object_refresh=0) as lake:
        lake.create_table("t", bucket.url("t"))
        lake.create_index("t", "id")
        assert lake.sql(TOTAL).rows() == [{"names": 4, "ids": 10}]
        assert lake.sql(ONE).rows() == [{"name": "n3"}]
        report = lake.sql(TOTAL).report
        assert report.tables[0].unnamed == ((key.removeprefix("t/"),) if key.endswith(".parquet") else ())
        assert ("passed over: 1 with an empty part" in str(report)) == key.endswith(".parquet")
        assert str(report).isprintable() or "\x01" not in str(report)
        bucket.put_table("t/zz.parquet", rows(6))
        (synced,) = lake.sync("t")
        assert (synced.added, synced.failures) == (1, ())
        assert lake.sql(TOTAL).rows() == [{"names": 5, "ids": 16}]


@pytest.mark.long
def test_a_long_listing_goes_on_behind_keys_without_names(server: Server) -> None:
    bucket = server.bucket()
    good = {f"{number:05d}.parquet" for number in range(2300)}
    bad = {"00500//x.parquet", "00500//y.parquet", "01999./../x", "02299.parquet/\x02", "zzz//"}
    bucket.put_quickly([f"t/{key}" for key in good | bad], b"x")
    before = len(server.asked)
    passed_over: list[str] = []
    found = list(list_objects(bucket.url("t"), passed_over))
    assert {path for path, _ in found} == good
    assert len(found) == len(good)
    assert all(identity.etag and identity.size == 1 for _, identity in found)
    assert set(passed_over) == bad
    heads = [each for each in server.asked[before:] if each.method == "HEAD"]
    assert len(heads) < 2300  # a page without such keys is listed as usual
    listing = list_files(bucket.url("t"))
    assert (len(listing.files), listing.complete) == (2300, False)
    assert set(listing.unnamed) == {"00500//x.parquet", "00500//y.parquet"}


def test_a_key_of_slashes_costs_a_page_of_questions(server: Server) -> None:
    """Tools that join names carelessly leave such keys."""
    bucket = server.bucket()
    bucket.put_quickly([f"t/{number:05d}.parquet" for number in range(2100)] + ["t//"], b"x")
    before = len(server.asked)
    passed_over: list[str] = []
    assert len(list(list_objects(bucket.url("t"), passed_over))) == 2100
    assert passed_over == ["/"]
    assert len([each for each in server.asked[before:] if each.method == "HEAD"]) == 1


def test_names_that_need_quoting_are_read(server: Server, tmp_path: Path) -> None:
    bucket = server.bucket()
    names = ["a b.parquet", "é%20~.parquet", "x#y?.parquet", "100%.parquet"]
    for number, name in enumerate(names):
        bucket.put_table(f"t/{name}", rows(number))
        write(rows(number), tmp_path / "lake/local" / name)
    with needlepoint.open(tmp_path / "lake") as lake:
        lake.create_table("t", bucket.url("t"))
        lake.create_table("local")
        for table in ("t", "local"):
            assert lake.sql(f"SELECT sum(id) AS ids FROM {table}").rows() == [{"ids": 6}]
            assert lake.sql(f"SELECT count(*) AS c FROM {table}").report.tables[0].unnamed == ()


@pytest.mark.parametrize("name", [b"a\nb.parquet", b"p=\x01/b.parquet", b"a\x7f.parquet", b"\xff.parquet"])
def test_a_local_path_without_a_name_is_passed_over(tmp_path: Path, name: bytes) -> None:
    write(rows(1, 2), tmp_path / "lake/t/0.parquet")
    write(rows(3, 4), tmp_path / "lake/t/z.parquet")
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("t")
        lake.create_index("t", "id")
        path = os.path.join(os.fsencode(tmp_path), b"lake/t", name)  # noqa: PTH118
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        with open(path, "wb") as file:
            file.write(parquet(rows(5)))
        assert lake.sql(TOTAL).rows() == [{"names": 4, "ids": 10}]
        assert lake.sql(ONE).rows() == [{"name": "n3"}]
        report = lake.sql(TOTAL).report
        assert report.tables[0].unnamed == (os.fsdecode(name),)
        assert "passed over: 1 with an empty part" in str(report)
        str(report).encode()  # can be printed
        (synced,) = lake.sync("t")
        assert (synced.added, synced.failures, synced.unnamed) == (0, (), (os.fsdecode(name),))


def test_a_location_without_a_name_is_an_error_that_says_so(tmp_path: Path) -> None:
    write(rows(1, 2), tmp_path / "a\nb/t/0.parquet")
    with needlepoint.open(tmp_path / "lake") as lake:
        for location in (tmp_path / "a\nb/t", "s3://bucket/a\nb"):
            with pytest.raises(needlepoint.UsageError, match="control character"):
                lake.create_table("t", location)


LIMITED = """
import contextlib, os, resource, sys
import needlepoint
from needlepoint.errors import SqlError, UsageError
lake = needlepoint.open(sys.argv[1])
lake.sql("SELECT sum(id) FROM t")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with contextlib.suppress(OSError):
    while True:  # until none is left
        os.dup(0)
try:
    lake.sql("SELECT sum(id) FROM t WHERE name <> 'x'")
except needlepoint.NeedlepointError as error:
    print(error)
"""


@pytest.mark.long
def test_too_few_open_files_are_named_as_the_reason(tmp_path: Path) -> None:
    for number in range(20):
        write(rows(number), tmp_path / f"t/{number}.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
    done = subprocess.run([sys.executable, "-c", LIMITED, tmp_path], capture_output=True, text=True, check=False)
    assert "too many open files" in done.stdout, done.stderr
    assert "ulimit -n" in done.stdout


def test_functions_that_do_not_exist(tmp_path: Path) -> None:
    with needlepoint.open(tmp_path) as lake:
        with pytest.raises(SqlError, match=r"there is no function 'uper'. Did you mean 'upper'\?"):
            lake.sql("SELECT uper('a')")
        with pytest.raises(SqlError, match=r"there is no function 'nosuch'. SHOW FUNCTIONS lists those there are."):
            lake.sql("SELECT nosuch('a')")
        assert len(lake.sql("SHOW FUNCTIONS LIKE 'upper'")) > 0


@pytest.mark.parametrize("typed", ["s3//bucket/lake", "s3:/bucket/lake", "S3A//bucket/lake"])
def test_urls_with_a_missing_sign(typed: str) -> None:
    with pytest.raises(UsageError, match="Did you mean 's3://bucket/lake'"):
        needlepoint.open(typed)
