"""A lake that is open for reading only answers everything, and writes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import needlepoint
from needlepoint import Lake
from needlepoint.errors import StoreError, UsageError

SCRIPT = """
import sys
import needlepoint
from tests.integration.test_read_only import answers
with needlepoint.open(sys.argv[1], read_only=True) as lake:
    print(answers(lake))
"""


def answers(lake: Lake) -> list[Any]:
    return [*answers_without_advice(lake), lake.advise("item").table]


def answers_without_advice(lake: Lake) -> list[Any]:
    """With a key index, text indexes, a bloom filter, a scan, and what is not SQL."""
    found = [
        lake.sql(query).rows()
        for query in (
            "SELECT title FROM item WHERE id = 17",
            "SELECT id FROM item WHERE text_match(title, 'cow 17') ORDER BY id",
            "SELECT id FROM item WHERE note LIKE '%nr 23%' ORDER BY id",
            "SELECT id FROM item WHERE code = 'c31'",
            "SELECT count(*) AS n, sum(id) AS s FROM item",
            "SELECT id FROM item ORDER BY score(title, 'dairy cow 5') DESC, id LIMIT 3",
            "SHOW INDEXES",
            "SELECT n FROM counted",
        )
    ]
    return [
        *found,
        lake.table("item").get(id=[3, 4], in_order=True).rows(),
        lake.status().waiting_events,
        lake.tables(),
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "lake"
    (root / "item").mkdir(parents=True)
    for number in range(3):
        ids = range(number * 1000, (number + 1) * 1000)
        texts = {"title": [f"dairy cow {id}" for id in ids], "note": [f"nr {id}" for id in ids]}
        rows = pa.table({"id": ids, **texts, "code": [f"c{id}" for id in ids]})
        pq.write_table(rows, root / "item" / f"{number}.parquet", row_group_size=300)
    with needlepoint.open(root) as lake:
        lake.create_table("item")
        lake.create_index("item", "id")
        lake.create_index("item", "title", kind="text")
        lake.create_index("item", "note", kind="text", embed=True, tokenizer="trigram")
        lake.create_index("item", "code", kind="bloom")
        lake.sql("CREATE VIEW counted AS SELECT count(*) AS n FROM item")
    return root


@pytest.fixture
def expected(root: Path) -> list[Any]:
    with needlepoint.open(root) as lake:
        return answers(lake)


# Where they can, the libraries make files to coordinate with writers, and write a configuration as it was.
DATABASES = ("registry.db", "queue.db", "history.db")
OF_LIBRARIES = ("rocksdict-config.json", *(f"{name}-{end}" for name in DATABASES for end in ("wal", "shm")))


def contents(root: Path) -> dict[str, bytes]:
    files = [path for path in root.rglob("*") if path.is_file() and path.name not in OF_LIBRARIES]
    return {str(path): path.read_bytes() for path in files}


def test_it_answers_and_leaves_no_trace(root: Path, expected: list[Any]) -> None:
    before = contents(root)
    with needlepoint.open(root, read_only=True) as lake:
        assert answers(lake) == expected
        own = Path(lake._own.name)  # type: ignore[union-attr]
        assert own.exists()
    assert not own.exists()
    assert contents(root) == before


@pytest.mark.long
def test_on_a_read_only_file_system(root: Path, expected: list[Any]) -> None:
    if shutil.which("unshare") is None or os.getuid() != 0:
        pytest.skip("this needs root and unshare")
    mount = f'mount --bind "{root}" "{root}" && mount -o remount,ro,bind "{root}" && ! touch "{root}/x" 2>/dev/null'
    run = f'{mount} && "{sys.executable}" -c "$0" "{root}"'
    place = Path(__file__).parents[2]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", run, SCRIPT], capture_output=True, text=True, cwd=place, timeout=100
    )
    if done.returncode and "mount" in done.stderr:
        pytest.skip("this machine allows no mounts")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == repr(expected)


def test_a_directory_that_cannot_be_written(root: Path, expected: list[Any]) -> None:
    """SQLite cannot make the files of its log; root can always write."""
    directories = [root, *(path for path in root.rglob("*") if path.is_dir())]
    for path in directories:
        path.chmod(0o555)
    try:
        with needlepoint.open(root, read_only=True) as lake:
            assert answers(lake) == expected
    finally:
        for path in directories:
            path.chmod(0o755)


def test_it_sees_what_others_write(root: Path) -> None:
    with needlepoint.open(root, read_only=True, refresh=0) as reader, needlepoint.open(root) as writer:
        assert len(reader.sql("SELECT id FROM item WHERE id = 9001")) == 0
        pq.write_table(
            pa.table({"id": [9001], "title": ["new"], "note": [""], "code": [""]}), root / "item" / "new.parquet"
        )
        assert len(reader.sql("SELECT id FROM item WHERE id = 9001")) == 1
        writer.sync()
        report = reader.sql("SELECT title FROM item WHERE id = 9001").report
        assert report.tables[0].scanned_files == 0
        writer.sql("CREATE VIEW later AS SELECT 1 AS one")
        assert reader.sql("SELECT one FROM later").rows() == [{"one": 1}]


def test_a_registry_opened_as_unchanging_is_opened_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a read-only mount, another machine may write."""
    from needlepoint.stores import database

    real, refused = database._connect, []

    def connect(uri: str) -> Any:
        if "immutable" not in uri and not refused:
            refused.append(uri)
            return real(f"file:{root}/nowhere/registry.db?mode=ro")
        return real(uri)

    monkeypatch.setattr(database, "_connect", _first_fails(connect))
    with needlepoint.open(root, read_only=True, refresh=0) as reader:
        assert reader.registry.database._unchanging is not None
        with needlepoint.open(root) as writer:
            writer.sql("CREATE VIEW later AS SELECT 1 AS one")
        assert reader.sql("SELECT one FROM later").rows() == [{"one": 1}]
        assert reader.registry.database._unchanging is None


def _first_fails(connect: Callable[[str], Any]) -> Callable[[str], Any]:
    import sqlite3

    def tried(uri: str) -> Any:
        try:
            return connect(uri)
        except sqlite3.OperationalError:
            return _Broken()

    return tried


class _Broken:
    """A connection that cannot read, as on a read-only file system without the files of the log."""

    def execute(self, query: str) -> None:
        import sqlite3

        raise sqlite3.OperationalError("unable to open database file")

    def close(self) -> None: ...


CHANGES: list[Callable[[Lake], object]] = [
    lambda lake: lake.create_table("other", Path(lake.root) / "item"),
    lambda lake: lake.drop_table("item"),
    lambda lake: lake.create_index("item", "code"),
    lambda lake: lake.drop_index("item_id_key"),
    lambda lake: lake.build("item"),
    lambda lake: lake.rebuild("item"),
    lambda lake: lake.sync(),
    lambda lake: lake.sweep(),
    lambda lake: lake.delete("item", "id = 5"),
    lambda lake: lake.delete_files("item", ["0.parquet"]),
    lambda lake: lake.drop_partition("item", id=1),
    lambda lake: lake.expire("item", "id", 5),
    lambda lake: lake.compact("item"),
    lambda lake: lake.retrofit("item"),
    lambda lake: lake.publish("item", [], "x"),
    lambda lake: [*lake.follow_events(once=True)],
    lambda lake: lake.sql("CREATE VIEW x AS SELECT 1 AS one"),
    lambda lake: lake.sql("DROP VIEW counted"),
    lambda lake: lake.sql("CREATE INDEX ON item USING key (code)"),
]


def test_it_refuses_to_write(root: Path) -> None:
    before = contents(root)
    for number, change in enumerate(CHANGES):
        with needlepoint.open(root, read_only=True) as lake:
            with pytest.raises(UsageError) as error:
                change(lake)
            if "partition" not in str(error.value):
                assert "open for reading only" in str(error.value), number
            assert len(lake.sql("SELECT id FROM item WHERE id = 5")) == 1
        assert contents(root) == before, number


def test_a_place_that_is_no_lake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no lake"):
        needlepoint.open(tmp_path / "nowhere", read_only=True)
    assert not (tmp_path / "nowhere").exists()


def test_a_registry_of_another_format(root: Path) -> None:
    import sqlite3

    with sqlite3.connect(root / ".needlepoint" / "registry.db") as connection:
        connection.execute("PRAGMA user_version = 3")
    with pytest.raises(StoreError, match=r"has format 3.*Open it once for writing"):
        needlepoint.open(root, read_only=True)


def test_a_damaged_history_stays_as_it_is(root: Path, expected: list[Any]) -> None:
    (history,) = root.rglob("history.db")
    for path in root.rglob("history.db*"):
        path.unlink()
    history.write_bytes(b"not a database" * 1000)
    before = history.read_bytes()
    with needlepoint.open(root, read_only=True) as lake:
        with pytest.raises(StoreError):
            lake.advise("item")
        assert answers_without_advice(lake) == expected[:-1]
    assert history.read_bytes() == before
