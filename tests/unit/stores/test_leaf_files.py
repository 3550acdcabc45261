"""Leaf files: what is in them, how they are merged and swept, and what their damage does to answers."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import datafusion
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.buckets import Bucket, Server, aws_server
from tests.cases import cases

from needlepoint.access import each_once
from needlepoint.errors import StoreError
from needlepoint.indexer import pools
from needlepoint.indexes.key import encode
from needlepoint.indexes.leaf_stores import leaf_key_bits
from needlepoint.stores.base import Entries, IndexDamaged, KeyStore
from needlepoint.stores.leaf_files import (
    LeafCache,
    LeafKeyStore,
    key_form,
    leaf_writer,
    manifest,
    merge,
    merge_tasks,
    page_memory,
)
from needlepoint.stores.leaf_files.place import LeafPlace

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with aws_server() as server:
        yield server


@pytest.fixture
def bucket(server: Server) -> Bucket:
    return server.bucket()


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of 8 entries, row groups of 32: few entries make many pages."""
    monkeypatch.setattr(leaf_writer, "page_rows", lambda width: 8)
    monkeypatch.setattr(leaf_writer, "GROUP_ROWS", 32)


def entries(pairs: list[tuple[int, int]], width: int = 8) -> Entries:
    """A key has the number in front, so that keys of any width have its order."""
    lines = sorted(
        {number.to_bytes(8, "big").ljust(width, b"\0")[:width] + at.to_bytes(8, "big") for number, at in pairs}
    )
    return np.frombuffer(b"".join(lines), np.uint8).reshape(-1, width + 8)


def key(number: int, width: int = 8) -> bytes:
    return number.to_bytes(8, "big").ljust(width, b"\0")[:width]


def add(store: KeyStore, directory: Path, table: Entries, name: str = "") -> str:
    name = name or uuid.uuid4().hex
    store.write_run(directory / name, table, name)
    store.ingest([directory / name])
    return name


def everything(store: KeyStore) -> Entries:
    return np.concatenate(list(store.scan()))


def leaf_paths(directory: Path) -> list[Path]:
    return sorted((directory / "leaves").iterdir())


@settings(max_examples=cases(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 12), st.integers(0, 60)), min_size=1, max_size=150), min_size=1, max_size=4
    ),
    st.sampled_from((8, 12, 16)),
    st.integers(0, 80),
    st.sampled_from((0, 3, 40, 1000)),
)
def test_answers_are_those_of_a_set(small_pages, tmp_path: Path, runs, width: int, limit: int, kept: int) -> None:
    location = tmp_path / uuid.uuid4().hex
    store = LeafKeyStore(str(location), width, block_bytes=kept * page_memory.SLOT)
    names = [add(store, tmp_path, entries(run, width)) for run in runs]
    store.refresh(names)
    pairs = {pair for run in runs for pair in run}
    expected = entries(list(pairs), width)
    assert everything(store).tolist() == expected.tolist()
    for asked in ([3], [0, 5, 12], list(range(14))):
        locations = sorted(at for number, at in pairs if number in asked)
        for most in (limit, 10_000):
            found = store.find([key(number, width) for number in asked], most)
            assert (None if found is None else sorted(found.tolist())) == (None if len(locations) > most else locations)
    for low, high in ((0, 0), (2, 7), (5, 30), (13, 20), (7, 2)):
        locations = sorted(at for number, at in pairs if low <= number <= high)
        for most in (limit, 10_000):
            found = store.find_range(key(low, width), key(high, width), most)
            assert (None if found is None else sorted(found.tolist())) == (None if len(locations) > most else locations)
    for count in (1, 9, 1000):
        assert store.ends(count, last=False).tolist() == expected[:count].tolist()
        assert store.ends(count, last=True).tolist() == expected[::-1][:count].tolist()


@pytest.mark.parametrize("width", [8, 16])
def test_other_engines_read_leaf_files(tmp_path: Path, width: int) -> None:
    store = LeafKeyStore(str(tmp_path / "index"), width)
    chance = np.random.default_rng(1)
    pairs = [
        (int(number), int(at))
        for number, at in zip(chance.integers(0, 2**63, 20_000), chance.integers(0, 2**63, 20_000), strict=True)
    ]
    add(store, tmp_path, entries(pairs, width))
    (leaf,) = leaf_paths(tmp_path / "index")
    expected = [
        (number - 2**63 if width == 8 else key(number, width), at >> 32, at & 0xFFFFFFFF)
        for number, at in sorted(pairs)
    ]
    table = pq.read_table(leaf)
    assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == expected
    assert duckdb.sql(f"SELECT key, file, row FROM '{leaf}' ORDER BY 1, 2, 3").fetchall() == expected
    context = datafusion.SessionContext()
    context.register_parquet("leaf", str(leaf))
    found = context.sql("SELECT key, file, row FROM leaf ORDER BY 1, 2, 3").to_pydict()
    assert list(zip(*found.values(), strict=True)) == expected
    if width == 8:
        assert duckdb.sql(f"SELECT row FROM '{leaf}' WHERE key = {expected[777][0]}").fetchall() == [
            (expected[777][2],)
        ]
    page_index = pq.read_metadata(leaf).row_group(0).column(0)
    assert page_index.has_column_index and page_index.has_offset_index


def test_a_key_of_many_pages_and_leaves_is_found_whole(small_pages, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(merge, "LEAF_ENTRIES", 100)
    monkeypatch.setattr(merge, "FAN_OUT", 2)
    store = LeafKeyStore(str(tmp_path / "index"), 8)
    names = [
        add(store, tmp_path, entries([(5, 2 * at + run) for at in range(300)] + [(4, 1), (6, 2)])) for run in (0, 1)
    ]
    store.refresh(names)
    assert len(json.loads("[" + ",".join((tmp_path / "index/manifest.ndjson").read_text().splitlines()) + "]")) > 8
    assert sorted(store.find([key(5)], 600).tolist()) == list(range(600))
    assert store.find([key(5)], 599) is None
    assert store.find([key(5)], 3) is None
    assert sorted(store.find([key(4), key(6)], 2).tolist()) == [1, 2]


@pytest.mark.parametrize("width", [8, 16, 40])
def test_pages_in_memory_answer_as_those_that_are_read(tmp_path: Path, width: int) -> None:
    """Two stores share 64 slots for 200 pages and more, and four threads ask both. Pages of 40 bytes are too large."""
    chance = np.random.default_rng(7)
    expected: list[dict[int, list[int]]] = []
    stores = []
    for number in range(2):
        pairs = list(zip(chance.integers(0, 9000, 30_000).tolist(), range(30_000), strict=True))
        store = LeafKeyStore(str(tmp_path / str(number)), width, block_bytes=64 * page_memory.SLOT)
        names = [add(store, tmp_path, entries(pairs[half::2], width)) for half in range(2)]
        store.refresh(names)
        stores.append(store)
        expected.append({})
        for asked, at in pairs:
            expected[-1].setdefault(asked, []).append(at)

    def ask(seed: int) -> int:
        own = np.random.default_rng(seed)
        for _ in range(25):
            which = int(own.integers(2))
            asked = own.integers(0, 9500, int(own.choice([1, 5, 40]))).tolist()
            found = stores[which].find([key(number, width) for number in asked], 100_000)
            assert found is not None
            assert sorted(found.tolist()) == sorted(at for number in {*asked} for at in expected[which].get(number, []))
        return 25

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ask, range(4))) == [25] * 4


def test_pages_of_closed_stores_leave_their_room_to_others(tmp_path: Path) -> None:
    limit = 17 * page_memory.SLOT
    for number in range(3):
        store = LeafKeyStore(str(tmp_path / str(number)), 8, block_bytes=limit)
        store.refresh([add(store, tmp_path, entries([(each, each) for each in range(20_000)]))])
        for _ in range(2):
            for asked in range(0, 20_000, 600):
                assert store.find([key(asked)], 2).tolist() == [asked]
        store.close()


def test_threads_that_begin_at_once_share_one_memory() -> None:
    """Slots of one memory mean nothing in another: a store would find entries of other pages."""
    for limit in range(30_000, 30_030):
        barrier = threading.Barrier(8)

        def ask(limit: int = limit, barrier: threading.Barrier = barrier) -> page_memory.PageMemory:
            barrier.wait()
            return page_memory.page_memory(limit * page_memory.SLOT)

        with ThreadPoolExecutor(8) as threads:
            found = [each.result() for each in [threads.submit(ask) for _ in range(8)]]
        assert len(set(map(id, found))) == 1


def test_entries_must_ascend(tmp_path: Path) -> None:
    store = LeafKeyStore(str(tmp_path / "index"), 8)
    with pytest.raises(StoreError, match="do not ascend"):
        store.write_run(tmp_path / "run", entries([(1, 1), (2, 2)])[::-1], "run")


def test_a_run_of_other_keys_is_refused(tmp_path: Path) -> None:
    LeafKeyStore(str(tmp_path / "other"), 16).write_run(tmp_path / "run", entries([(1, 1)], 16), "run")
    with pytest.raises(StoreError, match="16 bytes, not 8"):
        LeafKeyStore(str(tmp_path / "index"), 8).ingest([tmp_path / "run"])
    (tmp_path / "text").write_text("no Parquet")
    with pytest.raises(StoreError, match="is no run"):
        LeafKeyStore(str(tmp_path / "index"), 8).ingest([tmp_path / "text"])


# Merging and sweeping


def test_levels_are_merged_and_keep_the_names_of_runs(small_pages, tmp_path: Path) -> None:
    store = LeafKeyStore(str(tmp_path / "index"), 8)
    runs = [[(number, run * 1000 + number) for number in range(0, 50, run % 3 + 1)] for run in range(70)]
    names = [add(store, tmp_path, entries(run)) for run in runs]
    store.refresh(names)
    assert len(store._open_state().manifest.leaves) < merge.FAN_OUT
    assert everything(store).tolist() == entries([pair for run in runs for pair in run]).tolist()
    assert store.count() == len(everything(store))
    again = LeafKeyStore(str(tmp_path / "index"), 8)
    again.refresh(names)
    with pytest.raises(IndexDamaged, match="lost entries"):
        again.refresh([*names, "another"])


def test_runs_of_a_backfill_do_not_overlap_and_are_not_merged(tmp_path: Path) -> None:
    store = LeafKeyStore(str(tmp_path / "index"), 8)
    for run in range(20):
        add(store, tmp_path, entries([(run * 100 + number, 1) for number in range(100)]))
    store.refresh([])
    assert len(store._open_state().manifest.leaves) == 20


def test_a_reader_of_an_old_manifest_is_safe_until_the_sweep(small_pages, tmp_path: Path) -> None:
    location = tmp_path / "index"
    store, reader = (LeafKeyStore(str(location), 8) for _ in range(2))
    runs = [[(number, run) for number in range(40)] for run in range(merge.FAN_OUT)]
    for run in runs[:-1]:
        add(store, tmp_path, entries(run))
    reader.refresh([])
    old = leaf_paths(location)
    add(store, tmp_path, entries(runs[-1]))  # merges all of them
    assert store.sweep() == 0
    assert sorted(reader.find([key(3)], 100).tolist()) == list(range(merge.FAN_OUT - 1))
    assert store.sweep(grace=-1) == len(old) + 1
    assert not any(path.exists() for path in old)
    fresh = LeafKeyStore(str(location), 8)
    fresh.refresh([])
    assert sorted(fresh.find([key(3)], 100).tolist()) == list(range(merge.FAN_OUT))
    reader._readers.clear()  # it had the files open, and did not refresh: it finds the leaves of the new manifest
    assert sorted(reader.find([key(3)], 100).tolist()) == list(range(merge.FAN_OUT))
    assert store.sweep(grace=-1) == 0


def test_what_dead_writers_left_is_swept_after_the_grace(tmp_path: Path) -> None:
    store = LeafKeyStore(str(tmp_path / "index"), 8)
    add(store, tmp_path, entries([(1, 1)]))
    orphan = tmp_path / "index" / "leaves" / f"{uuid.uuid4().hex}.parquet"
    shutil.copy(leaf_paths(tmp_path / "index")[0], orphan)
    assert store.sweep() == 0 and orphan.exists()
    assert store.sweep(grace=-1) == 1 and not orphan.exists()
    store.refresh([])
    assert store.find([key(1)], 5).tolist() == [1]


# Many writers


@pytest.fixture(params=["local", "bucket"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "index") if request.param == "local" else request.getfixturevalue("bucket").url("index")


def _before_the_first_swap(monkeypatch: pytest.MonkeyPatch, act) -> None:
    """Let another writer act when the first one has read the manifest and not yet replaced it."""
    swap, left = LeafPlace.swap_manifest, [act]

    def first(place: LeafPlace, data: bytes, known):
        if left:
            left.pop()()
        return swap(place, data, known)

    monkeypatch.setattr(LeafPlace, "swap_manifest", first)


@pytest.mark.parametrize("exists", [True, False])
def test_no_writer_loses_the_run_of_another(location: str, tmp_path: Path, monkeypatch, exists: bool) -> None:
    if exists:
        LeafKeyStore(location, 8).ingest([])
    one, other = LeafKeyStore(location, 8), LeafKeyStore(location, 8)
    _before_the_first_swap(monkeypatch, lambda: add(other, tmp_path, entries([(2, 2)]), "second"))
    add(one, tmp_path, entries([(1, 1)]), "first")
    one.refresh(["first", "second"])
    assert sorted(one.find([key(1), key(2)], 10).tolist()) == [1, 2]


def test_a_commit_of_unknown_outcome_is_made_once(location: str, tmp_path: Path, monkeypatch) -> None:
    """A PUT that took effect, and whose answer was lost: the driver repeats it, and is refused."""
    swap, refused = LeafPlace.swap_manifest, [True]

    def lost(place: LeafPlace, data: bytes, known):
        made = swap(place, data, known)
        return None if refused and refused.pop() else made

    monkeypatch.setattr(LeafPlace, "swap_manifest", lost)
    store = LeafKeyStore(location, 8)
    add(store, tmp_path, entries([(1, 1)]), "run")
    store.refresh(["run"])
    found = store._open_state().manifest
    assert (len(found.leaves), found.sequence) == (1, 1)


def test_two_merges_of_the_same_leaves(location: str, small_pages, tmp_path: Path, monkeypatch) -> None:
    store, other = LeafKeyStore(location, 8), LeafKeyStore(location, 8)
    with monkeypatch.context() as patched:
        patched.setattr(merge, "FAN_OUT", 100)
        names = [add(store, tmp_path, entries([(number, run) for number in range(20)])) for run in range(9)]
    _before_the_first_swap(monkeypatch, lambda: other.merge())
    assert store.merge() == 0
    store.refresh(names)
    assert len(store._open_state().manifest.leaves) == 1
    assert len(everything(store)) == 180
    assert len(list(LeafPlace(location).listed())) == 10  # the nine for old readers; the loser's is removed


def test_a_merge_keeps_runs_that_came_meanwhile(location: str, small_pages, tmp_path: Path, monkeypatch) -> None:
    store, other = LeafKeyStore(location, 8), LeafKeyStore(location, 8)
    names = [add(store, tmp_path, entries([(number, run) for number in range(20)])) for run in range(7)]
    with monkeypatch.context() as patched:
        patched.setattr(merge, "FAN_OUT", 7)
        patched.setattr(other, "merge", lambda tasks: 0)
        _before_the_first_swap(patched, lambda: add(other, tmp_path, entries([(3, 99)]), "new"))
        assert store.merge() >= 1
    store.refresh([*names, "new"])
    assert sorted(store.find([key(3)], 100).tolist()) == [*range(7), 99]


def test_a_merge_whose_commit_was_not_answered_keeps_its_leaves(
    location: str, small_pages, tmp_path: Path, monkeypatch
) -> None:
    """The manifest was replaced, and the answer was lost: repeated, the request is refused because of itself."""
    store, swap, lost = LeafKeyStore(location, 8), LeafPlace.swap_manifest, []

    def unanswered(place: LeafPlace, *given: object) -> object:
        found = swap(place, *given)
        if lost:
            return found
        lost.append(found)
        return None

    monkeypatch.setattr(merge, "FAN_OUT", 7)
    names = [add(store, tmp_path, entries([(number, run) for number in range(20)])) for run in range(6)]
    monkeypatch.setattr(store, "merge", lambda tasks: 0)
    names.append(add(store, tmp_path, entries([(number, 6) for number in range(20)])))
    monkeypatch.setattr(LeafPlace, "swap_manifest", unanswered)
    other = LeafKeyStore(location, 8)
    assert other.merge() >= 1 and lost
    other.check_leaves()
    other.refresh(names)
    assert sorted(other.find([key(3)], 100).tolist()) == [*range(7)]


def unmerged(
    location: Path | str, scratch: Path, monkeypatch, width: int, runs: int = 8
) -> tuple[LeafKeyStore, list[str]]:
    """A store with runs that overlap, of which one key has many pages."""
    chance = np.random.default_rng(5)
    store = LeafKeyStore(str(location), width)
    with monkeypatch.context() as patched:
        patched.setattr(merge, "FAN_OUT", 100)
        names = []
        for run in range(runs):
            pairs = [(int(number), 1000 * run + at) for at, number in enumerate(chance.integers(0, 800, 300))]
            names.append(
                add(store, scratch, entries(pairs + [(400, 10_000 + 9 * at + run) for at in range(50)], width))
            )
    return store, names


@pytest.mark.parametrize(("most", "width"), [(200, 8), (700, 16), (100_000, 8)])
def test_a_merge_is_tasks_of_bounded_ranges(small_pages, tmp_path: Path, monkeypatch, most: int, width: int) -> None:
    store, names = unmerged(tmp_path / "index", tmp_path, monkeypatch, width)
    store.refresh(names)
    before = everything(store)
    leaves = store._open_state().manifest.leaves
    monkeypatch.setattr(merge, "LEAF_ENTRIES", most)
    readers = [store._reader(leaf) for leaf in leaves]
    tasks = merge_tasks.plan_tasks(str(tmp_path / "index"), readers, width, key_form.KeyCut(8 * width))
    assert (tasks[0].low, tasks[-1].high) == (b"", b"")
    assert [task.high for task in tasks[:-1]] == [task.low for task in tasks[1:]] == sorted({t.low for t in tasks[1:]})
    keys = [line[:width].tobytes() for line in before]
    for task in tasks:
        inside = [each for each in keys if task.low <= each and (not task.high or each < task.high)]
        assert inside and len(inside) <= most + keys.count(key(400, width)) * (most < 1000)
    assert store.merge() == 1
    store.refresh(names)
    assert everything(store).tolist() == before.tolist()
    made = store._open_state().manifest.leaves
    assert all(leaf.entries <= most for leaf in made) and len({leaf.group for leaf in made}) == 1
    assert all(one.last <= other.first for one, other in itertools.pairwise(made))


@pytest.mark.parametrize("fails", [False, True])
def test_processes_merge_what_a_store_gives_them(tmp_path: Path, monkeypatch, fails: bool) -> None:
    """If they fail, the process that commits does it."""
    store, names = unmerged(tmp_path / "index", tmp_path, monkeypatch, 8)
    store.refresh(names)
    before = everything(store)
    monkeypatch.setattr(merge_tasks, "WORTH_TASKS", 0)
    monkeypatch.setattr(merge, "LEAF_ENTRIES", 2000)
    if fails:
        monkeypatch.setattr(pools.LocalPool, "run", _refuse)
    (tmp_path / "scratch").mkdir()
    assert store.merge(pools.PoolTasks(pools.LocalPool(2), tmp_path / "scratch")) == 1
    store.refresh(names)
    assert len(store._open_state().manifest.leaves) >= 2
    assert everything(store).tolist() == before.tolist()
    assert [*(tmp_path / "scratch").iterdir()] == []


def _refuse(*_: object) -> object:
    raise StoreError("no process starts.")


class BreaksOff(pools.PoolTasks):
    """Tasks of which the third fails, after its leaf file was added."""

    def run(self, function, items):
        for number, made in enumerate(super().run(function, items)):
            if number == 2:
                raise StoreError("an executor is lost.")
            yield made


@pytest.mark.long
def test_what_a_failed_task_and_its_siblings_wrote_is_removed(
    location: str, small_pages, tmp_path: Path, monkeypatch
) -> None:
    """In other processes, and then in the one that commits. What was there before stays."""
    store, names = unmerged(location, tmp_path, monkeypatch, 8)
    there = set(LeafPlace(location).listed())
    monkeypatch.setattr(merge_tasks, "WORTH_TASKS", 0)
    monkeypatch.setattr(merge, "LEAF_ENTRIES", 700)
    (tmp_path / "scratch").mkdir()
    tasks = BreaksOff(pools.InlinePool(), tmp_path / "scratch")
    with monkeypatch.context() as patched:
        patched.setattr(LeafPlace, "add", _no_room_after(LeafPlace.add, 6))
        with pytest.raises(StoreError, match="No space"):
            store.merge(tasks)
    assert set(LeafPlace(location).listed()) == there
    assert store.merge(tasks) == 1
    store.refresh(names)
    store.check_leaves()
    made = {leaf.name for leaf in store._open_state().manifest.leaves}
    assert {name for name, _ in LeafPlace(location).listed()} == made | {name for name, _ in there}


def _no_room_after(add, calls: int):
    left = iter(range(calls))

    def full(place: LeafPlace, source: Path, name: str) -> None:
        add(place, source, name)
        if next(left, None) is None:
            raise OSError(28, "No space left on device")

    return full


def test_a_merge_whose_commit_failed_keeps_its_leaves(location: str, small_pages, tmp_path: Path, monkeypatch) -> None:
    """The manifest may name them: it was replaced, and no answer came."""
    store, names = unmerged(location, tmp_path, monkeypatch, 8)
    swap = LeafPlace.swap_manifest

    def unanswered(place: LeafPlace, data: bytes, known) -> None:
        swap(place, data, known)
        raise OSError("the connection was lost")

    with monkeypatch.context() as patched:
        patched.setattr(LeafPlace, "swap_manifest", unanswered)
        with pytest.raises(StoreError, match="lost"):
            store.merge()
    store.refresh(names)
    store.check_leaves()
    assert len(everything(store)) == 8 * 350 and len(store._open_state().manifest.leaves) == 1


class OtherMachine(pools.PoolTasks):
    """Where the same path is another directory."""

    root: Path

    def run(self, function, items):
        moved = [replace(item, location=str(self.root)) for item in items]
        return super().run(function, moved)


@pytest.mark.parametrize("copied", [False, True])
def test_tasks_on_machines_without_the_leaf_files(tmp_path: Path, monkeypatch, copied: bool) -> None:
    """They have no such directory, or an older copy of it. The process that commits merges, and nothing is left."""
    index = tmp_path / "index"
    store, names = unmerged(index, tmp_path, monkeypatch, 8)
    store.refresh(names)
    before = everything(store)
    OtherMachine.root = tmp_path / "other"
    if copied:
        shutil.copytree(index, OtherMachine.root)
    monkeypatch.setattr(merge_tasks, "WORTH_TASKS", 0)
    (tmp_path / "scratch").mkdir()
    assert store.merge(OtherMachine(pools.InlinePool(), tmp_path / "scratch")) == 1
    store.refresh(names)
    store.check_leaves()
    assert everything(store).tolist() == before.tolist()
    assert sorted(path.name for path in index.iterdir()) == ["leaves", "manifest.ndjson"]
    assert OtherMachine.root.exists() == copied


def test_nothing_is_made_to_see_whether_tasks_reach_the_leaf_files(tmp_path: Path, monkeypatch) -> None:
    store, _ = unmerged(tmp_path / "index", tmp_path, monkeypatch, 8)
    monkeypatch.setattr(merge_tasks, "WORTH_TASKS", 0)
    (tmp_path / "scratch").mkdir()
    made: list[Path] = []
    mkdir = Path.mkdir

    def noted(path: Path, *given: object, **named: object) -> None:
        made.extend([] if path.exists() else [path])
        mkdir(path, *given, **named)

    monkeypatch.setattr(Path, "mkdir", noted)
    assert store.merge(pools.PoolTasks(pools.InlinePool(), tmp_path / "scratch")) == 1
    assert made and all(path.parent == tmp_path / "scratch" for path in made)


def test_many_threads_commit_at_once(tmp_path: Path) -> None:
    names: list[str] = []

    def write(number: int) -> None:
        store = LeafKeyStore(str(tmp_path / "index"), 8)
        for run in range(6):
            name = add(store, tmp_path, entries([(number, run)]), f"{number}-{run}")
            names.append(name)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = LeafKeyStore(str(tmp_path / "index"), 8)
    store.refresh(names)
    assert len(names) == 30
    assert everything(store).tolist() == entries([(number, run) for number in range(5) for run in range(6)]).tolist()


# Objects


def test_a_cold_lookup_takes_two_requests_and_a_warm_one_none(bucket: Bucket, server: Server, tmp_path: Path) -> None:
    chance = np.random.default_rng(5)
    numbers = chance.permutation(100_000)
    table = entries([(int(number), at) for at, number in enumerate(numbers.tolist())])
    name = add(LeafKeyStore(bucket.url("index"), 8), tmp_path, table)
    store = LeafKeyStore(bucket.url("index"), 8, LeafCache(tmp_path / "cache", 1 << 30))
    store.refresh([name])
    start = len(server.asked)
    assert store.find([key(int(numbers[70_000]))], 10).tolist() == [70_000]
    assert [asked.method for asked in server.asked[start:]] == ["GET", "GET"]
    assert sum(asked.bytes for asked in server.asked[start:]) < 250_000
    start = len(server.asked)
    assert store.find([key(int(numbers[70_000]))], 10).tolist() == [70_000]
    assert server.asked[start:] == []
    store.refresh([name])
    assert [asked.method for asked in server.asked[start:]] == ["GET"]  # answered with 304
    again = LeafKeyStore(bucket.url("index"), 8, LeafCache(tmp_path / "cache", 1 << 30))
    again.refresh([name])
    start = len(server.asked)
    assert again.find([key(int(numbers[70_000]))], 10).tolist() == [70_000]
    assert server.asked[start:] == []
    start = len(server.asked)
    asked = chance.integers(0, 100_000, 1000)
    found = again.find([key(number) for number in numbers[asked].tolist()], 10_000)
    assert sorted(found.tolist()) == sorted(set(asked.tolist()))
    assert len(server.asked) - start < 20


def test_a_cache_can_be_damaged_or_deleted_at_any_time(bucket: Bucket, tmp_path: Path) -> None:
    table = entries([(number, number) for number in range(50_000)])
    name = add(LeafKeyStore(bucket.url("index"), 8), tmp_path, table)
    cache = tmp_path / "cache"

    def opened() -> LeafKeyStore:
        store = LeafKeyStore(bucket.url("index"), 8, LeafCache(cache, 1 << 30))
        store.refresh([name])
        return store

    asked = [key(number) for number in range(0, 50_000, 500)]
    store = opened()
    for spoil in (_spoil_all, _empty_all, shutil.rmtree):
        assert len(opened().find(asked, 1000)) == 100
        spoil(cache)
        assert len(store.find(asked, 1000)) == 100
        assert len(opened().find(asked, 1000)) == 100
    assert everything(store).tolist() == table.tolist()


def _spoil_all(directory: Path) -> None:
    for path in directory.iterdir():
        path.write_bytes(bytes(byte ^ 0x21 for byte in path.read_bytes()))


def _empty_all(directory: Path) -> None:
    for path in directory.iterdir():
        path.write_bytes(b"")


def test_a_cache_keeps_its_limit(bucket: Bucket, tmp_path: Path) -> None:
    limit = 200_000
    cache = LeafCache(tmp_path / "cache", limit)
    stores = [LeafKeyStore(bucket.url(f"index{number}"), 8, cache) for number in range(6)]
    for number, store in enumerate(stores):
        store.refresh([add(store, tmp_path, entries([(at * 999_983, at + number) for at in range(30_000)]))])
    for _ in range(2):
        for number, store in enumerate(stores):
            for at in range(0, 30_000, 3000):
                assert store.find([key(at * 999_983)], 5).tolist() == [at + number]
                assert cache.size() <= limit * 1.5
    assert cache.size() > 0


def test_an_object_that_is_gone_or_cut_is_damage(bucket: Bucket, server: Server, tmp_path: Path) -> None:
    location = bucket.url("index")
    name = add(LeafKeyStore(location, 8), tmp_path, entries([(number, number) for number in range(5000)]))
    ((leaf, _),) = LeafPlace(location).listed()
    path = f"index/leaves/{leaf}"
    content = bucket.client.get_object(Bucket=bucket.name, Key=path)["Body"].read()
    for damaged in (content[: len(content) // 2], bytes(len(content)), None):
        bucket.put(path, damaged) if damaged is not None else bucket.delete(path)
        store = LeafKeyStore(location, 8)
        store.refresh([name])
        with pytest.raises(IndexDamaged):
            store.find([key(7)], 10)


# Damage


def _small_store(tmp_path: Path) -> tuple[Path, list[str], Entries]:
    location = tmp_path / "index"
    store = LeafKeyStore(str(location), 8)
    tables = [entries([(number * 7 + run, number << 32 | run) for number in range(120)]) for run in range(2)]
    names = [add(store, tmp_path, table) for table in tables]
    return location, names, np.unique(np.concatenate(tables).view("S16").ravel()).view(np.uint8).reshape(-1, 16)


def _answers(location: Path, names: list[str], expected: Entries) -> bool:
    """Whether the store answers; it must then answer correctly."""
    store = LeafKeyStore(str(location), 8)
    try:
        store.refresh(names)
        found = store.find([line[:8].tobytes() for line in expected[::5]], 10_000)
        scanned = everything(store)
        inside = store.find_range(expected[10, :8].tobytes(), expected[40, :8].tobytes(), 1000)
    except IndexDamaged:
        return False
    finally:
        store.close()
    locations = np.ascontiguousarray(expected[:, 8:]).view(">u8").ravel()
    assert found is not None and sorted(found.tolist()) == sorted(locations[::5].tolist())
    assert inside is not None and sorted(inside.tolist()) == sorted(locations[10:41].tolist())
    assert scanned.tolist() == expected.tolist()
    return True


@pytest.mark.parametrize("file", ["leaf", "manifest"])
def test_every_flipped_byte_is_noticed_or_harmless(small_pages, tmp_path: Path, file: str) -> None:
    location, names, expected = _small_store(tmp_path)
    assert _answers(location, names, expected)
    path = leaf_paths(location)[0] if file == "leaf" else location / "manifest.ndjson"
    intact = path.read_bytes()
    step = max(1, len(intact) // cases(500))
    noticed = 0
    for place in range(0, len(intact), step):
        mask = 1 << place % 8
        path.write_bytes(intact[:place] + bytes([intact[place] ^ mask]) + intact[place + 1 :])
        noticed += not _answers(location, names, expected)
    tried = len(range(0, len(intact), step))
    # Page indexes and footer of a leaf are for other readers.
    assert noticed == tried if file == "manifest" else noticed > tried // 3
    path.write_bytes(intact)
    assert _answers(location, names, expected)


@pytest.mark.parametrize("file", ["leaf", "manifest"])
def test_every_cut_is_noticed(small_pages, tmp_path: Path, file: str) -> None:
    location, names, expected = _small_store(tmp_path)
    path = leaf_paths(location)[0] if file == "leaf" else location / "manifest.ndjson"
    intact = path.read_bytes()
    for length in range(0, len(intact), max(1, len(intact) // cases(60))):
        path.write_bytes(intact[:length])
        assert not _answers(location, names, expected)


def test_a_leaf_that_is_cut_while_it_is_open_is_noticed(tmp_path: Path) -> None:
    store = LeafKeyStore(str(tmp_path / "index"), 8)
    store.refresh([add(store, tmp_path, entries([(number, number) for number in range(50_000)]))])
    assert store.find([key(7)], 5).tolist() == [7]
    with leaf_paths(tmp_path / "index")[0].open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(IndexDamaged):
        store.find([key(40_000)], 5)


def test_another_leaf_in_the_place_of_one_is_noticed(tmp_path: Path) -> None:
    stores = [LeafKeyStore(str(tmp_path / name), 8) for name in ("index", "other")]
    names = [
        add(store, tmp_path, entries([(number + run, number) for number in range(100)]))
        for run, store in enumerate(stores)
    ]
    shutil.copy(leaf_paths(tmp_path / "other")[0], leaf_paths(tmp_path / "index")[0])
    with pytest.raises(IndexDamaged):
        stores[0].refresh(names[:1])
        stores[0].find([key(5)], 10)
    shutil.copytree(tmp_path / "other", tmp_path / "moved")
    with pytest.raises(IndexDamaged, match="lost entries"):
        LeafKeyStore(str(tmp_path / "moved"), 8).refresh(names[:1])


# Formats


def test_a_newer_manifest_is_refused_and_not_called_damaged(tmp_path: Path) -> None:
    location = tmp_path / "index"
    store = LeafKeyStore(str(location), 8)
    name = add(store, tmp_path, entries([(1, 1)]))
    lines = [json.loads(line) for line in (location / "manifest.ndjson").read_text().splitlines()[:-1]]
    lines[0]["format"] = manifest.FORMAT + 1
    (location / "manifest.ndjson").write_bytes(manifest.sealed(lines))
    for act in (lambda: store.refresh([name]), lambda: store.ingest([])):
        with pytest.raises(StoreError, match=f"has format {manifest.FORMAT + 1}") as caught:
            act()
        assert not isinstance(caught.value, IndexDamaged)


def test_an_older_manifest_is_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    location = tmp_path / "index"
    store = LeafKeyStore(str(location), 8)
    name = add(store, tmp_path, entries([(1, 1)]))

    def upgrade(lines: list[manifest.Line]) -> list[manifest.Line]:
        return [{**lines[0], "format": 3}, *lines[1:]]

    monkeypatch.setattr(manifest, "FORMAT", 3)
    monkeypatch.setattr(manifest, "WHOLE_KEYS", 3)
    monkeypatch.setattr(manifest, "UPGRADES", {**manifest.UPGRADES, 2: upgrade})
    again = LeafKeyStore(str(location), 8)
    again.refresh([name])
    assert again.find([key(1)], 5).tolist() == [1]
    add(again, tmp_path, entries([(2, 2)]))
    assert json.loads((location / "manifest.ndjson").read_text().splitlines()[0])["format"] == 3


def test_the_golden_store_is_read(tmp_path: Path) -> None:
    """It is never regenerated: lakes have such files."""
    shutil.copytree(GOLDEN / "leaf-files", tmp_path / "index")
    store = LeafKeyStore(str(tmp_path / "index"), 8)
    store.refresh(["first run", "second run"])
    expected = entries(
        [(number * 3, number << 32 | number % 10) for number in range(700)] + [(6, 5 << 32 | 5), (2**64 - 1, 7)]
    )
    assert everything(store).tolist() == expected.tolist()
    assert sorted(store.find([key(6), key(2**64 - 1), key(7)], 10).tolist()) == [7, 2 << 32 | 2, 5 << 32 | 5]


def _texts(count: int) -> Entries:
    """Entries with keys of 16 bytes: 8 of a text, of which some share all, and a hash."""
    lines = sorted(
        f"{'AB-' if number % 3 else 'https'}{number // 40:05d}".encode()[:8]
        + (number * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8, "big")
        + (number % 7 << 32 | number).to_bytes(8, "big")
        for number in range(count)
    )
    return np.frombuffer(b"".join(lines), np.uint8).reshape(-1, 24)


@pytest.mark.parametrize("name", ["leaf-files-of-texts", "leaf-files-2"])
def test_the_golden_stores_of_texts_are_read_and_merged(tmp_path: Path, name: str) -> None:
    """The first has whole keys, as previous versions wrote them, the other the first 94 bits. They are never
    regenerated."""
    shutil.copytree(GOLDEN / name, tmp_path / "index")
    store = LeafKeyStore(str(tmp_path / "index"), 16, key_bits=94)
    store.refresh(["first run", "second run"])
    expected = _texts(900)
    assert store.key_bits() == (128 if name == "leaf-files-of-texts" else 94)
    _check_texts(store, expected)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(merge, "FAN_OUT", 2)
        assert store.merge() == 1
    store.refresh(["first run", "second run"])
    (leaf,) = store._open_state().manifest.leaves
    assert (leaf.bits, len(leaf.first)) == (94, 12)
    assert store._reader(leaf).form.alphabets is not None
    _check_texts(store, expected)
    head = json.loads((tmp_path / "index/manifest.ndjson").read_text().splitlines()[0])
    assert (head["format"], head["key_bytes"]) == (2, 16)
    path = tmp_path / "index/leaves" / leaf.name
    found = duckdb.sql(f"SELECT count(*), count(*) FILTER (key < 0), typeof(any_value(key)) FROM '{path}'").fetchall()
    assert found == [(900, 900, "BIGINT")]


def _check_texts(store: LeafKeyStore, expected: Entries) -> None:
    cut = key_form.KeyCut(store.key_bits())
    for line in expected[::37]:
        assert store.find([line[:16].tobytes()], 5).tolist() == [int.from_bytes(line[16:].tobytes(), "big")]
        same = expected[(expected[:, :8] == line[:8]).all(axis=1)]
        prefix = line[:8].tobytes()
        assert len(store.find_range(prefix + b"\0" * 8, prefix + b"\xff" * 8, 1000)) == len(same)
    keys = [cut.of_bytes(line[:16].tobytes()) + line[16:].tobytes() for line in expected]
    assert [line.tobytes() for line in everything(store)] == sorted(keys)


def test_whole_keys_are_written_as_before(tmp_path: Path) -> None:
    """A version that knows only format 1 reads what is added to a store without texts."""
    store = LeafKeyStore(str(tmp_path / "index"), 8, key_bits=94)
    add(store, tmp_path, entries([(1, 1)]))
    assert json.loads((tmp_path / "index/manifest.ndjson").read_text().splitlines()[0])["format"] == 1
    (leaf,) = leaf_paths(tmp_path / "index")
    assert json.loads(pq.read_metadata(leaf).metadata[b"needlepoint.leaf"])["format"] == 1


def test_clocks_of_writer_and_sweeper_differ_by_an_hour(small_pages, tmp_path: Path, monkeypatch) -> None:
    location = tmp_path / "index"
    store, reader = (LeafKeyStore(str(location), 8) for _ in range(2))
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() - 3600)
    for run in range(merge.FAN_OUT):
        if run == merge.FAN_OUT - 1:
            reader.refresh([])
        add(store, tmp_path, entries([(number, run) for number in range(40)]))
    monkeypatch.setattr(time, "time", lambda: clock() + 3600)
    assert LeafKeyStore(str(location), 8).sweep() == 0
    assert len(reader.find([key(3)], 100)) == merge.FAN_OUT - 1


def test_a_lookup_imports_nothing(tmp_path: Path) -> None:
    """Pandas, which pyarrow would import, takes longer than a thousand lookups."""
    store = LeafKeyStore(str(tmp_path / "index"), 8)
    name = add(store, tmp_path, entries([(number, number) for number in range(2000)]))
    code = (
        "import sys; from needlepoint.stores.leaf_files import LeafKeyStore\n"
        f"store = LeafKeyStore({str(tmp_path / 'index')!r}, 8); store.refresh([{name!r}]); before = set(sys.modules)\n"
        f"assert store.find([{key(77)!r}, {key(1500)!r}], 10).tolist() == [77, 1500]\n"
        "assert set(sys.modules) == before, set(sys.modules) - before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.long
@pytest.mark.parametrize(("text", "most"), [(False, 7.0), (True, 9.5)])
def test_bytes_a_key(tmp_path: Path, text: bool, most: float) -> None:
    """Of numbers of twelve digits, and of texts of eight hexadecimal ones; locations are in any row of any file."""
    chance = np.random.default_rng(3)
    count = 1_000_000
    numbers = each_once(chance.integers(0, 16**8 if text else 10**12, count))
    rows = chance.integers(0, count, len(numbers)).astype(np.uint64)
    locations = (rows // 100_000 << np.uint64(32) | rows % 100_000).astype(">u8").view(np.uint8).reshape(-1, 8)
    column = pa.array([f"{number:08X}" for number in numbers.tolist()]) if text else pa.array(numbers)
    found = np.concatenate((encode(column), locations), axis=1)
    width = found.shape[1] - 8
    store = LeafKeyStore(str(tmp_path / "index"), width, key_bits=leaf_key_bits(width))
    add(store, tmp_path, found)
    assert store.size() / len(found) < most
