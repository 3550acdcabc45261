"""Sorted runs of a large build, kept until they are merged.

    files ─► tasks, several files each ─► cards, payloads ─► committed as they come
                                      └─► sorted runs ─► one range each out of all runs ─► ingested, committed

One directory per table holds the runs, those of each task with a note of its files. A build that was killed resumes
with the files that are in no note. Files count as indexed when their entries are in the store. Entries carry the id of
a file's generation, so a note of a file that was replaced meanwhile has no effect.
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
from needlepoint.indexer.build import Artifact, EntryRun, FileTask, capacity
from needlepoint.indexer.payloads import IndexTask
from needlepoint.indexer.pools import Pool
from needlepoint.indexer.progress import Progress
from needlepoint.indexer.range_merge import choose_ranges, is_plain, merge
from needlepoint.tables import Locks

# Merged runs of up to 30 MB: few to open. Small indexes have smaller ones, so that every core has some.
ENTRIES_PER_RANGE, FEWEST_ENTRIES_PER_RANGE = 4_000_000, 250_000
RANGES_PER_CORE = 3

_NOTE = "sorted.json"


@dataclass(frozen=True, slots=True)
class SortedRuns:
    """What a task left to merge: by index the names of runs with their bytes and checksums, and how many entries each
    file has."""

    directory: Path
    runs: Mapping[int, tuple[tuple[str, int, str], ...]]
    entries: Mapping[int, Mapping[int, int]]

    @classmethod
    def of(cls, directory: Path, artifact: Artifact, keys: frozenset[int]) -> SortedRuns:
        runs: dict[int, tuple[tuple[str, int, str], ...]] = {}
        for run in artifact.runs:
            runs[run.index_id] = (*runs.get(run.index_id, ()), (Path(run.path).name, run.bytes, run.checksum))
        entries = {id: {file.file_id: file.entries[id] for file in artifact.files if id in file.entries} for id in keys}
        made = cls(directory, runs, entries)
        for name, size, _ in (each for found in runs.values() for each in found):
            if _size(directory / name) != size:
                raise StoreError(
                    f"{directory / name} does not have the {size:,} bytes that a task wrote.",
                    hint="Is the lake's directory the same for all executors?",
                )
        return made

    @classmethod
    def load(cls, directory: Path) -> SortedRuns | None:
        """None when the task did not finish. Indexes whose runs are missing or damaged are left out: a changed byte
        would be a key that is never found."""
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
        """Write the note last: it exists only when all it names does."""
        text = json.dumps({"runs": self.runs, "entries": self.entries}).encode()
        with (self.directory / f"{_NOTE}.new").open("wb") as file:
            file.write(xxhash.xxh3_64_hexdigest(text).encode() + b"\n" + text)
            file.flush()
            os.fsync(file.fileno())
        (self.directory / f"{_NOTE}.new").rename(self.directory / _NOTE)

    def of_index(self, index_id: int) -> list[tuple[str, int]]:
        """Paths and bytes of the runs of an index."""
        return [(str(self.directory / name), size) for name, size, _ in self.runs.get(index_id, ())]


class RunMerger:
    """Keeps the plain runs of tasks until all are there, and merges them. Where the pool does not reach the directory,
    local processes merge."""

    def __init__(
        self,
        directory: Path,
        indexes: Sequence[IndexTask],
        pool: Pool,
        local: Pool,
        memory: int,
        commit: Callable[[Artifact], None],
        progress: Progress,
    ) -> None:
        self._directory = directory
        self._indexes = indexes
        self._ids = frozenset(index.index_id for index in indexes)
        self._pool = pool
        self._local = local
        self._memory = memory
        self._commit = commit
        self._progress = progress
        self._kept: list[SortedRuns] = []
        self.resumed: frozenset[int] = frozenset()
        """The ids of files that a killed build has sorted: they lack nothing but the merge."""

    def resume(self, missing: Sequence[FileTask]) -> list[FileTask]:
        """What is left to sort of the missing, after what a killed build has sorted."""
        self._kept = _load(self._directory, missing)
        left = _left(missing, self._kept)
        self.resumed = frozenset(file.file_id for file in missing) - {file.file_id for file in left}
        return left

    def without_entries(self, artifact: Artifact) -> Artifact:
        """What can be committed before the runs are merged."""
        files = tuple(
            replace(file, entries={id: count for id, count in file.entries.items() if id not in self._ids})
            for file in artifact.files
        )
        return replace(artifact, files=files, runs=())

    def keep(self, artifact: Artifact, directory: Path) -> None:
        """From here on a build that is killed does not sort these files again."""
        note = SortedRuns.of(directory, artifact, self._ids)
        note.save()
        self._kept.append(note)

    def merge(self) -> None:
        """Merge and commit the runs of each index, and remove what tasks left."""
        for index in self._indexes:
            self._merge(index)
        for place in _places(self._directory):  # also those of attempts that failed
            shutil.rmtree(place, ignore_errors=True)

    def _merge(self, index: IndexTask) -> None:
        notes = [note for note in self._kept if note.entries.get(index.index_id)]
        entries = {file: count for note in notes for file, count in note.entries[index.index_id].items()}
        if not entries:
            return
        plain = [run for note in notes for run in note.of_index(index.index_id)]
        pool = self._pool if self._pool.reaches(self._directory) else self._local
        each = max(FEWEST_ENTRIES_PER_RANGE, sum(entries.values()) // (RANGES_PER_CORE * pool.cores()))
        # Ranges have half of what is allowed, more or less.
        most = min(2 * min(each, ENTRIES_PER_RANGE), capacity(self._memory, [index], index))
        ranges = choose_ranges(plain, index.key_bytes, most, index.run_format)
        runs: list[EntryRun] = []
        self._progress("merging", 0, len(ranges))
        for number, (made, where) in enumerate(pool.run(merge, ranges, self._directory), 1):
            if made is not None:
                runs.append(EntryRun(index.index_id, made.name, str(where / made.file)))
            self._progress("merging", number, len(ranges))
        self._commit(Artifact(runs=tuple(runs), entries={index.index_id: entries}))
        for path, _ in plain:
            Path(path).unlink(missing_ok=True)


@contextmanager
def alone(turns: Locks, directory: Path) -> Iterator[None]:
    """Allow one large build of a table at a time. A killed build holds no claim."""
    with turns.claimed(directory.name) as mine:
        if not mine:
            raise UsageError("another process builds the indexes of this table.", hint="Wait until it has finished.")
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{directory} cannot be used: {error}.", hint="Is the store writable?") from error
        yield


def _load(directory: Path, missing: Sequence[FileTask]) -> list[SortedRuns]:
    """What an earlier build sorted and did not merge. The rest is removed."""
    lacking = {(file.file_id, id) for file in missing for id in file.indexes}
    kept = []
    for place in _places(directory):
        found = SortedRuns.load(place)
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


def _left(missing: Sequence[FileTask], kept: Sequence[SortedRuns]) -> list[FileTask]:
    """The missing files, with the indexes that have no runs of them. A file with all its runs only lacks the merge."""
    sorted_ = {(file, id) for note in kept for id, files in note.entries.items() for file in files}
    left = [
        replace(file, indexes=frozenset(id for id in file.indexes if (file.file_id, id) not in sorted_))
        for file in missing
    ]
    had = {file.file_id: file.indexes for file in missing}
    return [file for file in left if file.indexes or not had[file.file_id]]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1
