"""Files that another process is still writing."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lakes import products, write

import needlepoint

COUNT = "SELECT count(*) AS c, count(upc) AS u FROM product"


def _half(path: Path) -> bytes:
    return write(products(0, 100), path).read_bytes()[:-200]


UNFINISHED = {"empty": lambda _: b"", "short": lambda _: b"PAR1", "half": _half}


@pytest.fixture(params=UNFINISHED)
def beginning(request: pytest.FixtureRequest, tmp_path: Path) -> bytes:
    return UNFINISHED[request.param](tmp_path / "half.parquet")


def counted(lake: needlepoint.Lake) -> int:
    (row,) = lake.sql(COUNT).rows()
    assert row["c"] == row["u"]
    return row["c"]


def test_an_unfinished_file_is_left_out_until_it_is_finished(tmp_path: Path, beginning: bytes) -> None:
    location = tmp_path / "lake/product"
    write(products(0, 100), location / "year=2020/a.parquet")
    unfinished = location / "year=2021/b.parquet"
    unfinished.parent.mkdir()
    unfinished.write_bytes(beginning)
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("product")
        lake.create_index("product", "product_id")
        for _ in range(2):
            assert counted(lake) == 100
            assert lake.sql("SELECT upc FROM product WHERE product_id = 7").rows() == [{"upc": "U000000007"}]
            assert len(lake.table("product").get(product_id=7).rows()) == 1
            report = lake.sql(COUNT).report
            assert report.tables[0].unfinished == ("year=2021/b.parquet",)
            assert report.tables[0].files.total == 1
            assert "passed over: 1 without a footer" in str(lake.explain(COUNT))
            assert "year=2021/b.parquet" in str(report)
            (synced,) = lake.sync()
            assert (synced.added, synced.failures, synced.unfinished) == (0, (), ("year=2021/b.parquet",))
        write(products(100, 50), unfinished)
        assert counted(lake) == 150
        assert lake.sql(COUNT).report.tables[0].unfinished == ()
        (synced,) = lake.sync()
        assert (synced.added, synced.failures, synced.unfinished) == (1, (), ())
        assert counted(lake) == 150


def test_a_known_file_that_lost_its_footer_is_not_left_out(tmp_path: Path, beginning: bytes) -> None:
    location = tmp_path / "lake/product"
    write(products(0, 100), location / "a.parquet")
    write(products(100, 100), location / "b.parquet")
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("product")
        assert counted(lake) == 200
        (location / "b.parquet").write_bytes(beginning)
        for _ in range(2):
            with pytest.raises(needlepoint.NeedlepointError, match=r"b\.parquet"):
                lake.sql(COUNT)
            (synced,) = lake.sync()
            assert [Path(failure.path).name for failure in synced.failures] == ["b.parquet"]
            assert synced.unfinished == ()
        lake.create_index("product", "product_id", build=False)
        (synced,) = lake.sync()
        assert [Path(failure.path).name for failure in synced.failures] == ["b.parquet"]
        (location / "b.parquet").unlink()
        write(products(100, 50), location / "b.parquet")
        assert counted(lake) == 150
        assert lake.sync()[0].failures == ()
        assert counted(lake) == 150
        assert len(lake.sql("SELECT upc FROM product WHERE product_id = 120").rows()) == 1
        assert lake.sql("SELECT upc FROM product WHERE product_id = 170").rows() == []


def test_an_unfinished_file_can_be_an_error(tmp_path: Path, beginning: bytes) -> None:
    location = tmp_path / "lake/product"
    write(products(0, 100), location / "year=2020/a.parquet")
    write(products(100, 10), location / "year=2021/a.parquet")
    with needlepoint.open(tmp_path / "lake", refresh=0, unfinished="error") as lake:
        lake.create_table("product")
        (location / "year=2021/b.parquet").write_bytes(beginning)
        with pytest.raises(needlepoint.Unfinished, match=r"b\.parquet"):
            lake.sql("SELECT count(upc) FROM product")
        assert lake.sql("SELECT count(upc) AS u FROM product WHERE year = 2020").rows() == [{"u": 100}]
        (synced,) = lake.sync()
        assert [Path(failure.path).name for failure in synced.failures] == ["b.parquet"]


def test_a_table_of_unfinished_files_alone_is_refused(tmp_path: Path, beginning: bytes) -> None:
    (tmp_path / "lake/product").mkdir(parents=True)
    (tmp_path / "lake/product/a.parquet").write_bytes(beginning)
    with needlepoint.open(tmp_path / "lake") as lake, pytest.raises(needlepoint.Unfinished, match=r"a\.parquet"):
        lake.create_table("product")


def test_what_is_no_parquet_is_not_left_out(tmp_path: Path) -> None:
    write(products(0, 100), tmp_path / "lake/product/a.parquet")
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("product")
        (tmp_path / "lake/product/b.parquet").write_bytes(b"id,name\n1,some text\n")
        with pytest.raises(needlepoint.NotParquet, match=r"b\.parquet"):
            lake.sql(COUNT)
        assert len(lake.sync()[0].failures) == 1


def test_queries_beside_a_plain_writer(tmp_path: Path) -> None:
    """Every answer consists of whole files, and the last one includes the writer's last file."""
    location = tmp_path / "lake/product"
    first = products(0, 1000)
    write(first, location / "0.parquet")
    stopped = threading.Event()

    def writes() -> None:
        for number in range(1, 30):
            with pq.ParquetWriter(location / f"{number}.parquet", first.schema) as writer:
                for start in range(0, 1000, 100):
                    writer.write_table(products(number * 1000 + start, 100))
        stopped.set()

    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("product")
        thread = threading.Thread(target=writes)
        thread.start()
        try:
            answers = []
            while not stopped.is_set():
                answers.append(counted(lake))
        finally:
            thread.join()
        assert answers == sorted(answers)
        assert {answer % 1000 for answer in answers} <= {0}
        assert counted(lake) == 30_000


def test_a_column_that_only_an_unfinished_file_would_bring(tmp_path: Path) -> None:
    """The same for a partition that only it has: neither exists yet."""
    location = tmp_path / "lake/t"
    write(pa.table({"id": [1]}), location / "p=1/a.parquet")
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("t")
        (location / "p=x").mkdir()
        (location / "p=x/b.parquet").write_bytes(b"PAR1")
        assert lake.sql("SELECT p, id FROM t").rows() == [{"p": 1, "id": 1}]
