"""Indexes of a large lake, built elsewhere: in tasks of Spark, or wherever a pool runs them.

    files ─► tasks, several files each ─► cards, payloads ─► committed as they come
                                      └─► sorted runs ─► one range each out of all runs ─► ingested, committed

What tasks have sorted is kept in one directory of the table until all of it is merged, each task's with a note of its
files: a build that was killed goes on with what is not noted, and files count as indexed when their entries are in the
store. Entries carry the id of a file's generation, so a note of a file that was replaced meanwhile concerns nobody.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import xxhash

from needlepoint.errors import StoreError, UsageError
from needlepoint.indexer.build import Artifact, Failure, FileTask, IndexTask, Run, Task, build, capacity
from needlepoint.indexer.pools import Pool
from needlepoint.indexer.range_merge import choose_ranges, is_plain, merge
from needlepoint.indexes.key.kind import key_bytes
from needlepoint.tables.locks import Turns

# Tasks that take seconds: little is lost with one, and starting it costs next to nothing. Small tables have smaller
# ones, so that every core has some.
ROWS_PER_TASK, FEWEST_ROWS_PER_TASK = 2_000_000, 100_000
BYTES_PER_TASK = 256 << 20
FILES_PER_TASK = 256
TASKS_PER_CORE = 3
# Merged runs of up to 30 MB: few to open.
ENTRIES_PER_RANGE, FEWEST_ENTRIES_PER_RANGE = 4_000_000, 250_000

_NOTE = "sorted.json"


def sort_files(task: Task, directory: Path) -> Artifact:
    """What a task makes of its files, with plain runs, wherever it is run."""
    return build(replace(task, scratch=str(directory), to_merge=True))


@dataclass(frozen=True, slots=True)
class Sorted:
    """What a task left to merge: by index the names of runs with their bytes and checksums, and how many entries each
    file has."""

    directory: Path
    runs: Mapping[int, tuple[tuple[str, int, str], ...]]
    entries: Mapping[int, Mapping[int, int]]

    @classmethod
    def of(cls, directory: Path, artifact: Artifact, keys: frozenset[int]) -> Sorted:
        runs: dict[int, tuple[tuple[str, int, str], ...]] = {}
        for run in artifact.runs:
            runs[run.index_id] = (*runs.get(run.index_id, ()), (Path(run.path).name, run.bytes, run.checksum))
        entries = {id: {file.file_id: file.entries[id] for file in artifact.files if id in file.entries} for id in keys}
        made = cls(directory, runs, entries)
        for name, size, _ in (each for found in runs.values() for each in found):
            if _size(directory / name) != size:
                raise StoreError(
                    f"{directory / name} has not the {size:,} bytes that a task wrote.",
                    hint="Is the lake's directory the same one for all executors?",
                )
        return made

    @classmethod
    def load(cls, directory: Path) -> Sorted | None:
        """None when the task did not come so far. What is not there any more, or not as it was written, is left out: a
        changed byte would be a key that is never found."""
        try:
            checksum, _, text = (directory / _NOTE).read_bytes().partition(b"\n")
            if xxhash.xxh3_64_hexdigest(text).encode() != checksum:
                return None
            noted = json.loads(text)
        except (OSError, ValueError):
            return None
        runs = {int(id): tuple((name, size, of) for name, size, of in found) for id, found in noted["runs"].items()}
        entries = {int(id): {int(file): n for file, n in found.items()} for id, found in noted["entries"].items()}
        whole = {
            id: found
            for id, found in entries.items()
            if all(is_plain(directory / name, checksum) for name, _, checksum in runs.get(id, ()))
        }
        return cls(directory, runs, whole)

    def save(self) -> None:
        """The note is there when all it names is."""
        text = json.dumps({"runs": self.runs, "entries": self.entries}).encode()
        with (self.directory / f"{_NOTE}.new").open("wb") as file:
            file.write(xxhash.xxh3_64_hexdigest(text).encode() + b"\n" + text)
            file.flush()
            os.fsync(file.fileno())
        (self.directory / f"{_NOTE}.new").rename(self.directory / _NOTE)

    def of_index(self, index_id: int) -> list[tuple[str, int]]:
        """Paths and bytes of its runs."""
        return [(str(self.directory / name), size) for name, size, _ in self.runs.get(index_id, ())]


@dataclass(slots=True)
class Backfill:
    """`commit` takes in what tasks made. Where the pool does not reach what was sorted, the local one merges it."""

    pool: Pool
    local: Pool
    turns: Turns
    commit: Callable[[Artifact], None]
    progress: Callable[[str, int, int], None]
    memory: int

    def run(
        self,
        directory: Path,
        missing: Sequence[FileTask],
        keys: Sequence[IndexTask],
        tasks: Callable[[Sequence[FileTask]], Sequence[Task]],
    ) -> tuple[int, tuple[Failure, ...]]:
        """Index what is missing. How many files, and what failed."""
        with _alone(self.turns, directory):
            kept = _kept(directory, missing)
            left = _left(missing, kept)
            failures: list[Failure] = []
            total, done = len(missing), len(missing) - len(left)
            indexed = {file.file_id for file in missing} - {file.file_id for file in left}
            self.progress("indexing", done, total)
            ids = frozenset(key.index_id for key in keys)
            for artifact, where in self.pool.run(sort_files, tasks(left), directory):
                here = _moved(artifact, where)
                self.commit(_without(here, ids))
                note = Sorted.of(where, here, ids)
                note.save()
                kept.append(note)
                indexed.update(file.file_id for file in here.files)
                failures += here.failures
                done += len(here.files) + sum(each.index_id is None for each in here.failures)
                self.progress("indexing", done, total)
            for key in keys:
                self._merge(directory, key, kept)
            for place in _places(directory):  # of attempts that failed, too
                shutil.rmtree(place, ignore_errors=True)
            return len(indexed), tuple(failures)

    def _merge(self, directory: Path, key: IndexTask, kept: Sequence[Sorted]) -> None:
        notes = [note for note in kept if note.entries.get(key.index_id)]
        entries = {file: count for note in notes for file, count in note.entries[key.index_id].items()}
        if not entries:
            return
        plain = [run for note in notes for run in note.of_index(key.index_id)]
        pool = self.pool if self.pool.reaches(directory) else self.local
        each = max(FEWEST_ENTRIES_PER_RANGE, sum(entries.values()) // (TASKS_PER_CORE * pool.cores()))
        # Ranges have half of what is allowed, more or less.
        most = min(2 * min(each, ENTRIES_PER_RANGE), capacity(self.memory, [key], key))
        ranges = choose_ranges(plain, key_bytes(key.type), most)
        runs: list[Run] = []
        self.progress("merging", 0, len(ranges))
        for number, (made, where) in enumerate(pool.run(merge, ranges, directory), 1):
            if made is not None:
                runs.append(Run(key.index_id, made.name, str(where / made.file)))
            self.progress("merging", number, len(ranges))
        self.commit(Artifact(runs=tuple(runs), entries={key.index_id: entries}))
        for path, _ in plain:
            Path(path).unlink(missing_ok=True)


def group(
    missing: Sequence[FileTask], rows: Mapping[int | None, int | None], most_rows: int, cores: int
) -> Iterator[tuple[FileTask, ...]]:
    """Neighbouring files together, as many as make a task worth its start."""
    all_rows = sum(rows.get(file.file_id) or 0 for file in missing)
    most_rows = min(most_rows, ROWS_PER_TASK, max(FEWEST_ROWS_PER_TASK, all_rows // (TASKS_PER_CORE * cores)))
    found: list[FileTask] = []
    held = held_bytes = 0
    for file in missing:
        size = rows.get(file.file_id) or 0
        full = held + size > most_rows or held_bytes + file.identity.size > BYTES_PER_TASK
        if found and (full or len(found) >= FILES_PER_TASK):
            yield tuple(found)
            found, held, held_bytes = [], 0, 0
        found.append(file)
        held, held_bytes = held + size, held_bytes + file.identity.size
    if found:
        yield tuple(found)


@contextmanager
def _alone(turns: Turns, directory: Path) -> Iterator[None]:
    """One backfill of a table at a time; what a killed one claimed is free."""
    with turns.claimed(directory.name) as mine:
        if not mine:
            raise UsageError("another process builds the indexes of this table.", hint="Let it finish.")
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{directory} cannot be used: {error}.", hint="Is the store writable?") from error
        yield


def _kept(directory: Path, missing: Sequence[FileTask]) -> list[Sorted]:
    """What an earlier build sorted and did not merge. What is of no use is removed."""
    lacking = {(file.file_id, id) for file in missing for id in file.indexes}
    kept = []
    for place in _places(directory):
        found = Sorted.load(place)
        useful = {
            id: {file: count for file, count in files.items() if (file, id) in lacking}
            for id, files in (found.entries if found else {}).items()
        }
        if found is not None and any(useful.values()):
            kept.append(replace(found, entries=useful))
        else:
            shutil.rmtree(place, ignore_errors=True)
    return kept


def _places(directory: Path) -> list[Path]:
    return [each for each in directory.glob("*") if each.is_dir()]


def _left(missing: Sequence[FileTask], kept: Sequence[Sorted]) -> list[FileTask]:
    """What of the missing nothing was sorted of. A file that has all its runs lacks nothing but their merging."""
    sorted_ = {(file, id) for note in kept for id, files in note.entries.items() for file in files}
    left = [
        replace(file, indexes=frozenset(id for id in file.indexes if (file.file_id, id) not in sorted_))
        for file in missing
    ]
    had = {file.file_id: file.indexes for file in missing}
    return [file for file in left if file.indexes or not had[file.file_id]]


def _moved(artifact: Artifact, directory: Path) -> Artifact:
    """The artifact with its files where they are now."""
    return replace(
        artifact,
        runs=tuple(replace(run, path=str(directory / Path(run.path).name)) for run in artifact.runs),
        packs=tuple(replace(pack, path=str(directory / Path(pack.path).name)) for pack in artifact.packs),
    )


def _without(artifact: Artifact, keys: frozenset[int]) -> Artifact:
    """What can be committed before the keys are merged."""
    files = tuple(
        replace(file, entries={id: count for id, count in file.entries.items() if id not in keys})
        for file in artifact.files
    )
    return replace(artifact, files=files, runs=())


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1
