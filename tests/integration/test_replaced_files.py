"""A file that is replaced by one of the same size and modification time counts as changed; a file whose owner, mode or
place on the disk changes does not."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lakes import as_format_5, products, staged

import needlepoint
from needlepoint.indexer.run import BuildResult
from needlepoint.objects import local
from needlepoint.query.datafusion import footers
from needlepoint.tables import changed_files

OLD, NEW = range(100, 200), range(500, 600)


def write(path: Path, ids: range, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{number}" for number in ids]})
    pq.write_table(table, path, use_dictionary=False, compression="none", **options)
    return path


def renamed(new: Path, old: Path) -> None:  # rsync -t
    os.utime(new, ns=(0, old.stat().st_mtime_ns))
    new.replace(old)


def written_over(new: Path, old: Path) -> None:  # cp -p
    before = old.stat()
    old.write_bytes(new.read_bytes())
    os.utime(old, ns=(0, before.st_mtime_ns))
    assert old.stat().st_ino == before.st_ino


def removed_first(new: Path, old: Path) -> None:  # tar
    before = old.stat()
    old.unlink()
    shutil.copyfile(new, old)
    os.utime(old, ns=(0, before.st_mtime_ns))


WAYS = [renamed, written_over, removed_first]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "lake/t/a.parquet", OLD)
    write(tmp_path / "lake/t/b.parquet", range(900, 910))
    write(tmp_path / "new/a.parquet", NEW)
    with needlepoint.open(tmp_path / "lake") as lake:
        lake.create_table("t", str(tmp_path / "lake/t"))
        lake.create_index("t", "id")
    return tmp_path


def replace(root: Path, how: Callable[[Path, Path], None]) -> None:
    old, new = root / "lake/t/a.parquet", root / "new/a.parquet"
    before = old.stat()
    how(new, old)
    assert (old.stat().st_size, old.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def ids(lake: needlepoint.Lake, condition: str) -> list[int]:
    return sorted(lake.sql(f"SELECT id FROM t WHERE {condition}").to_arrow()["id"].to_pylist())


def rows(lake: needlepoint.Lake, query: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in lake.sql(query).rows()]


def check_new(lake: needlepoint.Lake) -> None:
    assert ids(lake, "id = 555") == [555]
    assert ids(lake, "id = 155") == []
    assert ids(lake, "name = 'n555'") == [555]
    assert len(lake.table("t").get(id=555).rows()) == 1
    assert rows(lake, "SELECT min(id), sum(id) FROM t WHERE id < 900") == [(500, sum(NEW))]
    assert rows(lake, "SELECT count(*) FROM t") == [(110,)]


@pytest.mark.parametrize("how", WAYS)
def test_a_replaced_file_is_noticed_by_the_next_process(root: Path, how: Callable[[Path, Path], None]) -> None:
    replace(root, how)
    with needlepoint.open(root / "lake") as lake:
        check_new(lake)
        (report,) = lake.sync("t")
        assert (report.added, report.changed, report.removed) == (0, 1, 0)
        check_new(lake)
        assert lake.explain("SELECT * FROM t WHERE id = 555").tables[0].page_read_files == 1


@pytest.mark.covering
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("access", ["auto", "pages", "scan"])
def test_a_replaced_file_is_noticed_by_the_same_process(
    root: Path, how: Callable[[Path, Path], None], access: str
) -> None:
    with needlepoint.open(root / "lake", refresh=0, access=access) as lake:
        assert ids(lake, "id = 155") == [155]
        assert ids(lake, "name = 'n155'") == [155]
        assert rows(lake, "SELECT min(id), sum(id) FROM t WHERE id < 900") == [(100, sum(OLD))]
        replace(root, how)
        check_new(lake)
        lake.sync("t")
        check_new(lake)


@pytest.mark.parametrize("how", WAYS)
def test_a_replaced_file_is_noticed_while_a_listing_serves(root: Path, how: Callable[[Path, Path], None]) -> None:
    with needlepoint.open(root / "lake", refresh=3600) as lake:
        assert ids(lake, "id IN (155, 905)") == [155, 905]
        replace(root, how)
        assert ids(lake, "id IN (155, 555)") == [555]  # planned again: the planned page is of the old file


def test_a_footer_is_not_remembered_for_another_file_of_the_same_second(tmp_path: Path) -> None:
    """The second file has the same size, but its rows are at other places."""
    one = write(tmp_path / "t/a.parquet", range(100), row_group_size=50)
    other = write(tmp_path / "other.parquet", range(1000, 1100), row_group_size=90)
    short, long = sorted((one, other), key=lambda path: path.stat().st_size)
    _padded(short, long.stat().st_size)
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("t", str(tmp_path / "t"))
        assert rows(lake, "SELECT sum(id) FROM t") == [(sum(range(100)),)]
        os.utime(other, ns=(0, one.stat().st_mtime_ns // 10**9 * 10**9 + 7))
        assert other.stat().st_size == one.stat().st_size
        other.replace(one)
        assert rows(lake, "SELECT sum(id) FROM t") == [(sum(range(1000, 1100)),)]
        assert rows(lake, "SELECT count(*) FROM t WHERE id > 1000 AND name <> 'x'") == [(99,)]


def test_a_bounded_record_of_footers_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are replaced by others of the same size and second, also those that the record has forgotten."""
    monkeypatch.setattr(footers, "MOST_FILES", 3)
    with needlepoint.open(tmp_path, refresh=0, access="scan") as lake:
        for number in range(6):
            _padded(write(tmp_path / f"t{number}/a.parquet", range(100)), 20_000)
            lake.create_table(f"t{number}", str(tmp_path / f"t{number}"))
        for first in (200, 300, 400):
            for number in range(6):
                path = tmp_path / f"t{number}/a.parquet"
                new = write(tmp_path / "new.parquet", range(first, first + 100), row_group_size=first // 10)
                _padded(new, 20_000)
                renamed(new, path)
                sizes = f"SELECT min(id), max(id), count(*), sum(id) FROM t{number}"
                total = sum(range(first, first + 100))
                assert rows(lake, sizes) == [(first, first + 99, 100, total)]
                assert sum(batch.num_rows for part in lake.plan_read(f"t{number}").parts for batch in part.batches())
                assert len(footers._scanned) <= 5
        assert len(lake.engine.queries._contexts._made) < 10


def test_statistics_are_not_remembered_for_another_file(tmp_path: Path) -> None:
    """A file is replaced again and again, and queries only need its bounds and counts."""
    path = write(tmp_path / "t/a.parquet", range(100, 200))
    with needlepoint.open(tmp_path, refresh=0, access="scan") as lake:
        lake.create_table("t", str(tmp_path / "t"))
        for first in (100, 300, 500, 700, 900):
            new = write(tmp_path / "new.parquet", range(first, first + 100))
            renamed(new, path)
            assert rows(lake, "SELECT min(id), max(id), count(*) FROM t") == [(first, first + 99, 100)]
            assert rows(lake, f"SELECT count(*) FROM t WHERE id >= {first}") == [(100,)]


def _padded(path: Path, size: int) -> None:
    """Pad a file with unused bytes between its data and its footer."""
    data = path.read_bytes()
    footer = int.from_bytes(data[-8:-4], "little") + 8
    path.write_bytes(data[:-footer] + bytes(size - len(data)) + data[-footer:])


def chmod(root: Path) -> None:
    (root / "lake/t/a.parquet").chmod(0o600)


def linked(root: Path) -> None:
    os.link(root / "lake/t/a.parquet", root / "a.backup")


def moved_away_and_back(root: Path) -> None:
    (root / "lake/t").rename(root / "aside")
    for path in [*(root / "aside").iterdir()]:
        path.rename(path.with_suffix(".x")).rename(path)
    (root / "aside").rename(root / "lake/t")


def restored(root: Path) -> None:
    shutil.copytree(root / "lake", root / "backup")
    shutil.rmtree(root / "lake")
    shutil.copytree(root / "backup", root / "lake")


@pytest.mark.parametrize("touch", [chmod, linked, moved_away_and_back, restored])
def test_what_leaves_the_content_alone_costs_no_index(root: Path, touch: Callable[[Path], None]) -> None:
    with needlepoint.open(root / "lake") as lake:
        before = {file.path: file for file in lake.registry.files.of(lake.registry.tables.get("t"))}
    touch(root)
    with needlepoint.open(root / "lake") as lake:
        assert ids(lake, "id = 155") == [155]
        assert lake.explain("SELECT * FROM t WHERE id = 155").tables[0].page_read_files == 1
        (report,) = lake.sync("t")
        assert (report.added, report.changed, report.removed, report.indexed, report.failures) == (0, 0, 0, 0, ())
        after = {file.path: file for file in lake.registry.files.of(lake.registry.tables.get("t"))}
        assert {path: file.id for path, file in after.items()} == {path: file.id for path, file in before.items()}
        now = (root / "lake/t/a.parquet").stat()
        assert after["a.parquet"].identity.ctime_ns == now.st_ctime_ns  # so the next process does not check it again


def test_what_leaves_the_content_alone_is_no_matter_to_a_running_process(root: Path) -> None:
    with needlepoint.open(root / "lake", refresh=3600) as lake:
        for mode in (0o600, 0o640, 0o644):
            assert ids(lake, "id IN (155, 905)") == [155, 905]
            (root / "lake/t/a.parquet").chmod(mode)


def test_a_file_that_nothing_indexed_yet_can_be_touched(root: Path) -> None:
    """Its mode is changed after it is published and before it is indexed."""
    with needlepoint.open(root / "lake") as lake:
        staging = lake.writer.staging("p")
        lake.publish("p", staged(staging, {"x.parquet": products(0, 10)}), staging)
        (path,) = (root / "lake/p").glob("*.parquet")
        (before,) = lake.registry.files.of(lake.registry.tables.get("p"))
        path.chmod(0o600)
        assert lake.indexer.catch_up(lake.registry.tables.get("p")) == BuildResult(1)
        (after,) = lake.registry.files.of(lake.registry.tables.get("p"))
        assert (after.id, after.has_card) == (before.id, True)


def test_an_embedded_index_is_taken_out_of_a_touched_file(root: Path) -> None:
    with needlepoint.open(root / "lake") as lake:
        name = lake.create_index("t", "name", kind="bloom", embed=True)
        size = (root / "lake/t/a.parquet").stat().st_size
        chmod(root)
        lake.drop_index(name, strip=True)
        assert (root / "lake/t/a.parquet").stat().st_size < size
        assert ids(lake, "id = 155") == [155]


def test_all_bytes_of_a_file_count(tmp_path: Path) -> None:
    from needlepoint.objects.local import LocalFile

    path = tmp_path / "a"
    data = os.urandom(3 << 20)
    path.write_bytes(data)
    with LocalFile(str(path)) as file:
        first = file.sample()
    for block in (0, len(data) // 2, len(data) - 100_000):
        path.write_bytes(data[:block] + bytes(100_000) + data[block + 100_000 :])
        with LocalFile(str(path)) as file:
            assert file.sample() != first


def test_files_of_an_older_registry_are_noted_by_a_sync(root: Path) -> None:
    with sqlite3.connect(root / "lake/.needlepoint/registry.db") as connection:
        as_format_5(connection)
    connection.close()
    with needlepoint.open(root / "lake") as lake:
        assert ids(lake, "id = 155") == [155]
        assert lake.explain("SELECT * FROM t WHERE id = 155").tables[0].page_read_files == 1
        assert lake.sync("t")[0].indexed == 0
        chmod(root)
        assert lake.sync("t")[0].indexed == 0
    replace(root, renamed)
    with needlepoint.open(root / "lake") as lake:
        check_new(lake)


def test_a_look_at_single_files_tells_touched_from_replaced(root: Path) -> None:
    with needlepoint.open(root / "lake") as lake:
        chmod(root)
        touched = lake.indexer.look("t", ["a.parquet"])
        assert (touched.changed, touched.indexed, touched.failures) == (0, 0, ())
        replace(root, renamed)
        replaced = lake.indexer.look("t", ["a.parquet"])
        assert (replaced.changed, replaced.indexed, replaced.failures) == (1, 1, ())
        check_new(lake)


@pytest.mark.parametrize("most", [64 << 20, 1 << 20])
def test_one_value_in_a_file_that_was_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Replaced by a rename, which may reuse an inode; files are below and above the size limit for checksums."""
    for module in (local, changed_files):
        monkeypatch.setattr(module, "MOST_SUMMED", most)
    (tmp_path / "t").mkdir()
    path, new = tmp_path / "t" / "a.parquet", tmp_path / "new"
    plain = {"compression": "none", "use_dictionary": False, "store_schema": False}
    pq.write_table(pa.table({"id": range(0, 2_800_000, 7)}), path, **plain)
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        lake.create_index("t", "id")
    for row in range(200_000, 201_000, 250):
        changed = list(range(0, 2_800_000, 7))
        changed[row] += 3
        pq.write_table(pa.table({"id": changed}), new, **plain)
        status = path.stat()
        os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert new.stat().st_size == status.st_size > 1 << 20
        new.replace(path)
        with needlepoint.open(tmp_path) as lake:
            assert ids(lake, f"id = {changed[row]}") == [changed[row]]
