"""Indexing: bounded memory, processes, types, and files that cannot be indexed."""

from __future__ import annotations

import datetime
import decimal
import math
import os
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lakes import product_lake, products, write

import needlepoint
from needlepoint.indexer import file_source, indexer, plan, progress, run
from needlepoint.indexer.pools import LocalPool
from needlepoint.stores.packs import PackStore
from needlepoint.stores.rocksdb import RocksKeyStore

INDEX_ONE_FILE = """
import resource, sys
import needlepoint
lake = needlepoint.open(sys.argv[1], workers=1, index_memory=int(sys.argv[2]))
lake.create_table("t")
lake.create_index("t", "warm", build=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
lake.create_index("t", "id")
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(after - before)
"""


@pytest.mark.long
def test_memory_is_bounded_by_the_setting_not_by_the_file(tmp_path: Path) -> None:
    rows = 6_000_000
    ids = np.random.default_rng(1).permutation(rows)
    table = pa.table({"id": ids, "warm": pa.array([1] + [None] * (rows - 1), pa.int32())})
    (tmp_path / "lake/t").mkdir(parents=True)
    pq.write_table(table, tmp_path / "lake/t/big.parquet", row_group_size=rows)
    memory = 128 << 20
    program = [sys.executable, "-c", INDEX_ONE_FILE, str(tmp_path / "lake"), str(memory)]
    grown = int(subprocess.run(program, capture_output=True, text=True, check=True).stdout)
    # All entries at once would take 6M * 16 bytes * 4 copies = 366 MiB.
    assert grown < memory
    with needlepoint.open(tmp_path / "lake") as lake:
        row = int(np.flatnonzero(ids == 4_321_987)[0])
        assert lake.table("t").get(id=4_321_987).rows() == [{"id": 4_321_987, "warm": 1 if row == 0 else None}]
        assert lake.status().tables[0].indexes[0].entries == rows


SCRIPT_WITHOUT_A_GUARD = """
import sys
import needlepoint
from needlepoint.indexer import plan
plan.ROWS_WORTH_PROCESSES = 10
lake = needlepoint.open(sys.argv[1], workers=2, index_memory=65 << 20)
lake.create_table("product")
lake.create_index("product", "product_id")
print(lake.sql("SELECT upc FROM product WHERE product_id = 7777").rows())
"""


@pytest.mark.long
def test_worker_processes_need_no_main_guard(tmp_path: Path) -> None:
    product_lake(tmp_path / "lake")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT_WITHOUT_A_GUARD)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "lake")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[{'upc': 'U000007777'}]\n"


def test_a_worker_that_dies_is_a_clear_error_and_nothing_is_half_done(tmp_path: Path, monkeypatch) -> None:
    product_lake(tmp_path / "lake")
    with needlepoint.open(tmp_path / "lake", workers=2) as lake:
        lake.create_table("product")
        monkeypatch.setattr(plan, "ROWS_WORTH_PROCESSES", 10)
        monkeypatch.setattr(sys, "executable", "/bin/false")
        with pytest.raises(needlepoint.StoreError, match="died"):
            lake.create_index("product", "product_id")
        monkeypatch.undo()
        assert lake.sql("SELECT upc FROM product WHERE product_id = 5").rows() == [{"upc": "U000000005"}]
        lake.sync()
        assert lake.status().tables[0].indexed == 4


COLUMNS = {
    "i8": pa.array([-5, None, 7, 7], pa.int8()),
    "u64": pa.array([0, None, 2**64 - 1, 5], pa.uint64()),
    "b": pa.array([True, None, False, True]),
    "s": pa.array(["", None, "dairy cow " * 50, "ü"]),
    "cat": pa.array(["x", None, "y", "x"]).dictionary_encode(),
    "bin": pa.array([b"\x00", None, b"", b"\xff" * 20]),
    "id": pa.array([uuid.UUID(int=n).bytes for n in range(4)], pa.binary(16)),
    "day": pa.array([datetime.date(1, 1, 1), None, datetime.date(2024, 2, 29), datetime.date(9999, 12, 31)]),
    "ts": pa.array([-1, None, 0, 10**15], pa.timestamp("us", "UTC")),
    "clock": pa.array([0, None, 1, 86_399_999_999], pa.time64("us")),
    "dec": pa.array([decimal.Decimal("-1.50"), None, decimal.Decimal("9" * 28 + ".99"), decimal.Decimal("0.01")]),
    "f": pa.array([-0.0, None, math.inf, 1.5]),
    "f32": pa.array([0.1, None, -math.inf, 1.5], pa.float32()),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_every_type_of_key_is_found(tmp_path: Path, column: str) -> None:
    values = COLUMNS[column]
    table = pa.table({column: values, "row": range(len(values))})
    write(table, tmp_path / "lake/t/a.parquet")
    with needlepoint.open(tmp_path / "lake") as lake:
        lake.create_table("t")
        lake.create_index("t", column)
        for number, value in enumerate(values):
            rows = {row["row"] for row in lake.table("t").get({column: value.as_py()}, columns=["row"]).rows()}
            assert rows == {n for n, other in enumerate(values) if other.is_valid and other.as_py() == value.as_py()}
            assert not value.is_valid or number in rows
        assert lake.status().tables[0].indexes[0].entries == len(values) - values.null_count
        assert lake.sql(f"SELECT row FROM t WHERE {column} IS NULL").rows() == [
            {"row": n} for n, value in enumerate(values) if not value.is_valid
        ]


@pytest.mark.parametrize(
    ("column", "message"),
    [("l", "which a key index cannot hold"), ("year", "is a partition column"), ("idd", "Did you mean 'id'")],
)
def test_columns_that_cannot_be_indexed_are_refused(tmp_path: Path, column: str, message: str) -> None:
    write(pa.table({"id": [1], "l": [[1, 2]]}), tmp_path / "lake/t/year=2024/a.parquet")
    with needlepoint.open(tmp_path / "lake") as lake:
        lake.create_table("t")
        with pytest.raises(needlepoint.UsageError, match=message):
            lake.create_index("t", column)
        assert lake.registry.indexes.all() == []
        assert not list((lake.store / "indexes").glob("*"))


def _truncated(path: Path) -> None:
    path.write_bytes(write(products(0, 100), path).read_bytes()[:-200])


BAD_FILES = {
    "text": (lambda path: path.write_text("id,name\n1,x\n"), "not a Parquet file"),
    "empty": (lambda path: path.write_bytes(b""), "too few for a Parquet file"),
    "truncated": (_truncated, "bad.parquet: "),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_file_that_is_not_parquet_is_named(tmp_path: Path, kind: str) -> None:
    make, message = BAD_FILES[kind]
    location = product_lake(tmp_path / "lake")
    bad = location / "year=2020" / "bad.parquet"
    with needlepoint.open(tmp_path / "lake", refresh=0, unfinished="error") as lake:
        make(bad)
        with pytest.raises(needlepoint.NotParquet, match=message) as refused:
            lake.create_table("product")
        assert "bad.parquet" in str(refused.value)
        assert lake.tables() == []
        bad.unlink()
        lake.create_table("product")
        lake.create_index("product", "product_id")
        make(bad)
        (report,) = lake.sync()
        assert [Path(failure.path).name for failure in report.failures] == ["bad.parquet"]
        # Its rows are unknown: a query that may need them fails, and one that cannot need them answers.
        with pytest.raises(needlepoint.NeedlepointError, match=r"bad\.parquet"):
            lake.sql("SELECT count(upc) AS c FROM product")
        assert lake.sql("SELECT upc FROM product WHERE product_id = 3001 AND year = 2021").rows() == [
            {"upc": "U000003001"}
        ]
        bad.unlink()
        assert lake.sync()[0].failures == ()


def test_files_that_disagree_are_named(tmp_path: Path) -> None:
    write(pa.table({"id": [1]}), tmp_path / "lake/t/a.parquet")
    write(pa.table({"id": ["x"]}), tmp_path / "lake/t/b.parquet")
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        with pytest.raises(needlepoint.SchemaConflict, match=r"'id' is int64 in a.parquet but string in b.parquet"):
            lake.create_table("t")
        assert lake.tables() == []
        (tmp_path / "lake/t/b.parquet").unlink()
        lake.create_table("t")
        write(pa.table({"id": ["x"]}), tmp_path / "lake/t/b.parquet")
        with pytest.raises(needlepoint.SchemaConflict):
            lake.sync()
        assert len(lake.registry.files.of(lake.registry.tables.get("t"))) == 1


def test_empty_files_and_directories(tmp_path: Path) -> None:
    with needlepoint.open(tmp_path / "lake") as lake:
        (tmp_path / "lake/t").mkdir()
        with pytest.raises(needlepoint.UsageError, match="no Parquet files"):
            lake.create_table("t")
        write(products(0, 10).slice(0, 0), tmp_path / "lake/t/a.parquet")
        lake.create_table("t")
        lake.create_index("t", "product_id")
        assert lake.sql("SELECT * FROM t WHERE product_id = 1").rows() == []
        assert lake.table("t").get(product_id=1).rows() == []
        assert lake.sql("SELECT count(*) AS c FROM t").rows() == [{"c": 0}]


def test_progress_is_told(tmp_path: Path) -> None:
    product_lake(tmp_path / "lake")
    told: list[tuple[str, int, int]] = []
    with needlepoint.open(tmp_path / "lake", progress=lambda *what: told.append(what)) as lake:
        lake.create_table("product")
        lake.create_index("product", "product_id")
    assert told[0] == ("indexing", 0, 4)
    assert told[-1] == ("indexing", 4, 4)


def test_progress_moves_within_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_source, "BATCH_ROWS", 100)
    monkeypatch.setattr(progress, "INTERVAL", 0.001)
    product_lake(tmp_path / "lake", files=1, rows=20_000)
    told: list[tuple[str, float, int]] = []
    with needlepoint.open(tmp_path / "lake", progress=lambda *what: told.append(what)) as lake:
        lake.create_table("product")
        told.clear()
        lake.create_index("product", "title", "text")
    parts = [done for what, done, _ in told if what == "indexing"]
    assert any(0 < done < 1 for done in parts) and parts == sorted(parts) and parts[-1] == 1


# Other processes


ONE = "SELECT upc FROM product WHERE product_id = 4321"
ITS_ROW = [{"upc": "U000004321"}]


def replace_all_indexes(root: Path) -> None:
    """Replace all indexes with new generations, as `needle rebuild` does first, from another lake."""
    with needlepoint.open(root) as other:
        for index in other.registry.indexes.all():
            other.index_stores.replace_index(index)


def is_found_by_page(lake: needlepoint.Lake) -> bool:
    result = lake.sql(ONE)
    return result.rows() == ITS_ROW and result.report.tables[0].page_read_files == 1


def test_a_query_that_began_before_an_index_was_replaced_scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    product_lake(tmp_path)
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("product")
        lake.create_index("product", "product_id")
    with needlepoint.open(tmp_path, refresh=0) as lake:
        runs = lake.registry.indexes.runs

        def late(index):
            monkeypatch.undo()
            replace_all_indexes(tmp_path)
            return runs(index)

        monkeypatch.setattr(lake.registry.indexes, "runs", late)
        result = lake.sql(ONE)
        assert result.rows() == ITS_ROW  # its snapshot says that all files are indexed
        assert "'product_product_id_key'. It was just dropped or rebuilt." in str(result.report)
        lake.sync()
        assert is_found_by_page(lake)


@pytest.mark.long
@pytest.mark.parametrize("pool", [None, LocalPool(1)])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_build_leaves_nothing_in_an_index_that_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: LocalPool | None, when: str
) -> None:
    """Whenever the index is replaced, files count as indexed only in the index that has their entries."""
    product_lake(tmp_path)
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("product")
        lake.create_index("product", "product_id", build=False)
        lake.create_index("product", "upc", kind="bloom", build=False)
        before = {index.id for index in lake.registry.indexes.all()}
        commit = lake.registry.commit_artifacts

        def busy(files, runs, *more):
            if runs:
                monkeypatch.undo()
            if runs and when == "before":
                replace_all_indexes(tmp_path)
            commit(files, runs, *more)
            if runs and when == "after":
                replace_all_indexes(tmp_path)

        monkeypatch.setattr(lake.registry, "commit_artifacts", busy)
        lake.build("product", pool=pool)
        after = {index.id for index in lake.registry.indexes.all()}
        assert not before & after
        assert is_found_by_page(lake)  # built again
        assert lake.verify("product").differences == ()
        assert {path.name for path in (lake.store / "indexes").glob("*")} == {str(id) for id in after}


def test_an_index_that_is_replaced_again_and_again_is_left_to_the_next_sync(tmp_path: Path, monkeypatch) -> None:
    product_lake(tmp_path)
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("product")
        lake.create_index("product", "product_id", build=False)
        commit = lake.registry.commit_artifacts
        times = []

        def busy(*made):
            commit(*made)
            replace_all_indexes(tmp_path)
            times.append(made)

        monkeypatch.setattr(lake.registry, "commit_artifacts", busy)
        lake.sync()
        assert len(times) == indexer.MOST_LOOKS
        monkeypatch.undo()
        assert lake.sql(ONE).rows() == ITS_ROW
        lake.sync()
        assert is_found_by_page(lake)


def test_what_is_lost_while_files_are_read_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entries built for the damaged index do not count as the whole new one."""
    product_lake(tmp_path)
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("product")
        name = lake.create_index("product", "product_id")
        write(products(8000, 100), tmp_path / "product/year=2021/p4.parquet")
        damaged = lake.registry.indexes.get(name)
        build = run.build

        def lose(task, directory):
            monkeypatch.undo()
            for part in (lake.store / "indexes" / str(damaged.id)).glob("*.sst"):
                part.unlink()
            return build(task, directory)

        monkeypatch.setattr(run, "build", lose)
        lake.sync()
        index = lake.registry.indexes.get(name)
        assert index.id != damaged.id
        assert lake.registry.indexes.coverage(index) == (5, 8100)
        assert is_found_by_page(lake)


def test_a_damaged_index_is_replaced_once(tmp_path: Path) -> None:
    product_lake(tmp_path)
    with needlepoint.open(tmp_path) as lake, needlepoint.open(tmp_path) as other:
        lake.create_table("product")
        name = lake.create_index("product", "product_id")
        damaged = lake.registry.indexes.get(name)
        other.index_stores.replace_index(damaged)
        other.sync()
        found = lake.registry.indexes.get(name)
        lake.index_stores.replace_index(damaged)  # this lake finds the same damage a little later
        assert lake.registry.indexes.get(name) == found
        assert is_found_by_page(lake)
        assert list(lake.index_stores._open) == [found.id]  # the old one is closed


def test_a_card_is_never_older_than_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process embeds an index while a key index of the same files is being built, which takes longer."""
    product_lake(tmp_path)
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("product")
        lake.sync()
        commit = lake.registry.commit_artifacts

        def slow(*made):
            monkeypatch.undo()
            with needlepoint.open(tmp_path) as other:
                other.create_index("product", "upc", kind="bloom", embed=True)
            commit(*made)

        monkeypatch.setattr(lake.registry, "commit_artifacts", slow)
        lake.create_index("product", "product_id")
        files = lake.engine.snapshots.look("product").files
        assert all(lake.engine.cards.get(file) is not None for file in files)
        assert all(len(file.indexed) == 2 for file in files)
        assert is_found_by_page(lake)
        assert lake.verify("product").differences == ()


def test_what_others_remove_this_moment_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    glob = Path.glob

    def and_more(self: Path, pattern: str):
        yield self / "removed_this_moment.pack"
        yield from glob(self, pattern)

    product_lake(tmp_path)
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("product")
        monkeypatch.setattr(Path, "glob", and_more)
        lake.indexer._sweep_scratch()
        assert PackStore(tmp_path / "packs").sweep(set()) == 0
        assert RocksKeyStore(tmp_path / "keys", 8).size() == 0


def test_scratch_of_a_build_that_takes_days_stays(tmp_path: Path) -> None:
    product_lake(tmp_path)
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("product")
        long_ago = 1e9
        lake.registry.locks.claim("alive")
        for name, written in (("alive", long_ago), ("busy", None), ("killed", long_ago)):
            run = lake.store / "scratch" / name / "0" / "run.sst"
            run.parent.mkdir(parents=True)
            run.write_bytes(b"")
            for path in (run, run.parent, run.parent.parent):
                os.utime(path, None if path == run and written is None else (long_ago, long_ago))
        lake.sync()
        lake.create_index("product", "product_id")
        assert {path.name for path in (lake.store / "scratch").glob("*")} == {"alive", "busy"}
