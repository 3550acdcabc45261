"""Tasks run in a pool, and what they make is committed as it comes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from needlepoint.indexer.build import Artifact, BuildTask, Failure, build
from needlepoint.indexer.pools import Pool
from needlepoint.indexer.progress import NAME, Progress, files_read, no_progress, repeatedly
from needlepoint.indexer.sorted_runs import RunMerger


@dataclass(frozen=True, slots=True)
class BuildResult:
    """How many files were indexed, and what failed."""

    indexed: int = 0
    failures: tuple[Failure, ...] = ()

    def then(self, later: BuildResult) -> BuildResult:
        return BuildResult(self.indexed + later.indexed, tuple(dict.fromkeys((*self.failures, *later.failures))))


def run_build(
    tasks: Sequence[BuildTask],
    pool: Pool,
    directory: Path,
    commit: Callable[[Artifact], None],
    progress: Progress,
    merger: RunMerger | None = None,
) -> BuildResult:
    """Run all tasks. With a merger, their runs are kept until all are there, then merged and committed; all else is
    committed at once."""
    indexed = set() if merger is None else set(merger.resumed)
    done = len(indexed)
    total = done + sum(len(task.files) for task in tasks)
    failures: list[Failure] = []
    progress("indexing", done, total)
    committing, lock = 0, threading.Lock()

    def look() -> None:
        with lock:
            if read := committing + files_read(directory):
                progress("indexing", min(done + read, total - 0.001), total)

    with contextlib.nullcontext() if progress is no_progress else repeatedly(look):
        for made, where in pool.run(build, tasks, directory):
            artifact = made.moved(where)
            with lock:
                (where / NAME).unlink(missing_ok=True)
                committing = artifact.finished_files
            if merger is None:
                commit(artifact)
            else:
                commit(merger.without_entries(artifact))
                merger.keep(artifact, where)  # after the commit: a file whose runs are kept is not read again
            indexed.update(file.file_id for file in artifact.files)
            failures += artifact.failures
            with lock:
                committing, done = 0, done + artifact.finished_files
                progress("indexing", done, total)
    if merger is not None:
        merger.merge()
    return BuildResult(len(indexed), tuple(failures))
