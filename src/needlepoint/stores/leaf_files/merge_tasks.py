"""A merge of leaf files as tasks: ranges of keys that any processes merge, each into one leaf file.

    leaves of a level     [a ……………… k]   [b …………………………… z]   [c … d]
    tasks                 [a …… f)   [f ………… p)   [p ……… z]

Ranges come from the directories of the leaves, so that each has at most LEAF_ENTRIES entries, whatever the level has. A
task reads only the pages of its range, and adds its leaf file to the store. Nothing names it until the process that
planned the merge commits the manifest. That process removes what attempts that fail, or run twice, leave: the names of
all leaf files of a merge begin with its own. What an attempt adds still later is for the sweep.
"""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from needlepoint import forks
from needlepoint.errors import NeedlepointError
from needlepoint.stores.base import Item, Made, StoreTasks
from needlepoint.stores.leaf_files import merge
from needlepoint.stores.leaf_files.key_form import KeyCut
from needlepoint.stores.leaf_files.keys import key_table, to_keys
from needlepoint.stores.leaf_files.leaf_reader import LeafReader
from needlepoint.stores.leaf_files.manifest import LeafFile
from needlepoint.stores.leaf_files.page_memory import page_memory
from needlepoint.stores.leaf_files.place import LeafPlace

# A process, or a task of Spark, takes as long to start as a million entries take to merge.
WORTH_TASKS = 1 << 20

_log = logging.getLogger("needlepoint")


@dataclass(frozen=True, slots=True)
class LeafMergeTask:
    """Entries `low <= key < high` of leaves of the store at a location; an empty bound is open. Of keys with so many
    bytes, the first `bits` bits are kept. `merge` is the name of the merge, which no other one has."""

    location: str
    key_bytes: int
    bits: int
    merge: str
    leaves: tuple[LeafFile, ...]
    low: bytes = b""
    high: bytes = b""


def plan_tasks(location: str, readers: Sequence[LeafReader], key_bytes: int, cut: KeyCut) -> list[LeafMergeTask]:
    """Tasks that cover all entries of these leaves, in ascending order."""
    bounds = [b"", *_bounds(readers, cut, merge.LEAF_ENTRIES), b""]
    leaves, name = [reader.leaf for reader in readers], f"{uuid.uuid4().hex[:16]}-"
    return [
        LeafMergeTask(location, key_bytes, cut.bits, name, tuple(_touched(leaves, low, high)), low, high)
        for low, high in itertools.pairwise(bounds)
    ]


def _bounds(readers: Sequence[LeafReader], cut: KeyCut, most: int) -> list[bytes]:
    """Keys between which there are at most `most` entries, if no key alone has more."""
    directories = [reader.directory for reader in readers]
    first_keys = np.concatenate([reader.first_keys(cut) for reader in readers])
    rows = np.concatenate([each.rows(np.arange(each.pages)) for each in directories])
    # A range has the pages that begin in it, and of each leaf a part of the one before.
    room = max(most // 2, most - sum(each.page_rows for each in directories), 1)
    order = np.argsort(first_keys, kind="stable")
    number = (np.cumsum(rows[order]) - 1) // room
    begins = order[1:][number[1:] != number[:-1]]
    lowest = min(cut.of_bytes(reader.leaf.first) for reader in readers)
    found = dict.fromkeys(key.tobytes() for key in key_table(first_keys[begins], cut.width))
    return [key for key in found if key > lowest]


def _touched(leaves: Sequence[LeafFile], low: bytes, high: bytes) -> Iterator[LeafFile]:
    return (leaf for leaf in leaves if leaf.last >= low and (not high or leaf.first < high))


def run_tasks(planned: Sequence[LeafMergeTask], entries: int, tasks: StoreTasks) -> list[LeafFile]:
    """The leaf files that a merge of so many entries becomes. This process runs its tasks if there is little to do, or
    where others fail or do not reach the leaf files. No other leaf file of the merge stays."""
    made: list[LeafFile] = []
    elsewhere = entries >= WORTH_TASKS and not isinstance(tasks, TasksHere)
    try:
        if elsewhere:
            made = _run_elsewhere(planned, tasks)
        if not made:
            made = [leaf for leaves in HERE.run(merge_range, planned) for leaf in leaves]
        return made
    finally:
        if elsewhere or not made:
            _remove_others(planned[0], made)


def _run_elsewhere(planned: Sequence[LeafMergeTask], tasks: StoreTasks) -> list[LeafFile]:
    """Nothing if tasks fail, or do not reach the leaf files."""
    place = LeafPlace(planned[0].location)
    made: list[LeafFile] = []
    try:
        for leaves in tasks.run(merge_reached_range, planned):
            if leaves is None:
                return []
            made += leaves
    except NeedlepointError as error:
        _log.warning("leaf files in %s are merged by this process: %s", place.location, error)
        return []
    # A machine with a copy of the store has the leaf files of the task, and adds its own where nobody looks for it.
    is_here = place.is_remote or not place.missing({leaf.name: leaf.size for leaf in made})
    return made if is_here else []


def _remove_others(task: LeafMergeTask, made: Sequence[LeafFile]) -> None:
    """Remove the leaf files of a merge that are not among those that it made."""
    place, kept = LeafPlace(task.location), {leaf.name for leaf in made}
    try:
        # One that was only copied in part has a name that begins with a dot.
        found = [name for name, _ in place.listed() if name.lstrip(".").startswith(task.merge)]
        place.remove(name for name in found if name not in kept)
    except (NeedlepointError, OSError) as error:
        _log.info("what a merge left in %s stays until a sweep: %s", place.location, error)


def merge_reached_range(task: LeafMergeTask, directory: Path) -> list[LeafFile] | None:
    """As `merge_range`; None on a machine that does not have the leaf files. A bucket is the same everywhere."""
    place = LeafPlace(task.location)
    if not place.is_remote and place.missing({leaf.name: leaf.size for leaf in task.leaves}):
        return None
    return merge_range(task, directory)


def merge_range(task: LeafMergeTask, directory: Path) -> list[LeafFile]:
    """Merge the range of a task, and add what it becomes to the store: one leaf file, or more if one key alone has more
    entries than a leaf. The directory is for files on the way."""
    place, cut = LeafPlace(task.location), KeyCut(task.bits)
    low, high = (to_keys([bound], cut.width) if bound else None for bound in (task.low, task.high))
    readers = [LeafReader(place, leaf, None, page_memory(0)) for leaf in task.leaves]
    names = [leaf.name for leaf in task.leaves]
    made: list[LeafFile] = []
    parts = merge.merged_entries(readers, cut, low, high)
    form, bits = merge.merged_form(readers, cut, low, high), task.bits if task.bits < 8 * task.key_bytes else 0
    for path, leaf in merge.write_merged(parts, form, bits, names, lambda: directory / new_name(task.merge)):
        place.add(path, leaf.name)
        path.unlink()
        made.append(leaf)
    return made


def new_name(merge: str = "") -> str:
    """Of a leaf file, which can be that of a merge."""
    return f"{merge}{uuid.uuid4().hex}.parquet"


class TasksHere:
    """Tasks in this process, one after the other."""

    def run(self, function: Callable[[Item, Path], Made], items: Sequence[Item]) -> Iterator[Made]:
        with forks.OwnDirectory() as scratch:
            for item in items:
                yield function(item, Path(scratch))


HERE = TasksHere()
