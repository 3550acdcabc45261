"""Publishing: a staged batch becomes part of a table, entirely or not at all.

    stage        files lie in a staging directory of their own; a crash leaves an orphan that is swept
    begin        one registry commit lists every move: from here the batch will happen, whoever finishes it
    move         each file to its unique final name; readers of the registry pass these names over until
    commit       one registry commit adds all files at once
    announce     one event on the queue, more only for very many files

`begin` takes the batch id, so the same id delivered twice is one batch. Every later part can be repeated by any
process, which is what `recover` does with what a crash left.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from needlepoint.errors import StoreError, UsageError
from needlepoint.objects import identify
from needlepoint.tables.definitions import Batch, File, Move, Table
from needlepoint.tables.events import Event
from needlepoint.tables.queue import Queue
from needlepoint.tables.registry import Registry
from needlepoint.tables.staged import StagedFile

ORPHAN_AGE = 24 * 3600.0

_log = logging.getLogger("needlepoint")


def staging_directory(store: Path, table: str) -> Path:
    """A fresh place for one attempt at one batch; the directory itself is the writer's to make."""
    parent = store / "stage" / table
    parent.mkdir(parents=True, exist_ok=True)
    return parent / uuid.uuid4().hex


def publish(
    registry: Registry, queue: Queue, table: Table, batch_id: str, staged: Sequence[StagedFile], staging: Path
) -> Batch:
    """Publish what lies in `staging`. Returns the batch; without moves when it was there before."""
    if not batch_id or len(batch_id) > 512:
        raise UsageError("a batch id has 1 to 512 characters.")
    batch = Batch(table.id, batch_id, "publishing", str(staging), _moves(staged))
    begun = False
    if registry.batch(table, batch_id) is None:
        _make_durable(staged)
        begun = registry.begin_batch(batch)
    recorded = registry.batch(table, batch_id)
    if recorded is not None and recorded.staging != str(staging):
        shutil.rmtree(staging, ignore_errors=True)  # another attempt at this batch came first
    recover(registry, queue, table, batch_id)
    return replace(batch, state="announced", moves=batch.moves if begun else ())


def recover(registry: Registry, queue: Queue, table: Table, batch_id: str | None = None) -> list[str]:
    """Finish batches that were begun, all of them or the one named. Returns their ids.

    A batch that cannot be finished is an error to whoever publishes it; it does not stop the others.
    """
    finished = []
    for batch in registry.unfinished_batches(table):
        if batch_id is not None and batch.batch != batch_id:
            continue
        try:
            _finish(registry, queue, table, batch)
        except StoreError as error:
            if batch_id is not None:
                raise
            _log.warning("%s", error)
            continue
        finished.append(batch.batch)
    return finished


def _finish(registry: Registry, queue: Queue, table: Table, batch: Batch) -> None:
    if batch.state == "publishing":
        registry.commit_batch(batch, _move_all(table, batch))
    event = Event(table.name, batch.batch, added=tuple(move.target for move in batch.moves))
    for part in event.parts():
        queue.put(part.to_json())
    registry.announce_batch(batch)
    shutil.rmtree(batch.staging, ignore_errors=True)


def sweep_staging(store: Path, registry: Registry, older_than: float = ORPHAN_AGE) -> list[Path]:
    """Remove staging directories that no batch refers to and nothing has touched for a while."""
    wanted = {batch.staging for table in registry.tables() for batch in registry.unfinished_batches(table)}
    swept = []
    for directory in (store / "stage").glob("*/*"):
        try:
            newest = max(path.stat().st_mtime for path in (directory, *directory.rglob("*")))
        except FileNotFoundError:
            continue  # published or removed this moment
        if str(directory) not in wanted and newest <= time.time() - older_than:
            shutil.rmtree(directory, ignore_errors=True)
            swept.append(directory)
    return swept


def _moves(staged: Sequence[StagedFile]) -> tuple[Move, ...]:
    """Final names like no other: whoever repeats a move takes them from the registry."""
    unique = uuid.uuid4().hex
    return tuple(
        Move(file.path, f"{file.relative}/part-{number:05d}-{unique}.parquet".lstrip("/"), file.rows)
        for number, file in enumerate(sorted(staged, key=lambda file: (file.relative, file.path)))
    )


def _make_durable(staged: Sequence[StagedFile]) -> None:
    """From `begin` on the staged files are all there is of the batch: they must survive a power cut."""
    for file in staged:
        _sync(Path(file.path))
    for directory in {Path(file.path).parent for file in staged}:
        _sync(directory)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _move_all(table: Table, batch: Batch) -> list[File]:
    location = Path(table.location)
    try:
        for move in batch.moves:
            _move(Path(move.source), location / move.target)
        for directory in {(location / move.target).parent for move in batch.moves}:
            _sync(directory)
        return [File(move.target, identify(str(location / move.target)), rows=move.rows) for move in batch.moves]
    except OSError as error:
        raise StoreError(
            f"batch '{batch.batch}' cannot be moved into {location}: {error}.",
            hint="Nothing is lost: mend the cause and publish the same batch again.",
        ) from error


def _move(source: Path, target: Path) -> None:
    """Rename, or copy where staging is on another file system. Repeating it is harmless."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        # Spark checks a file against the checksum beside it, if there is one: none may be left from before.
        (target.parent / f".{target.name}.crc").unlink()
    try:
        source.rename(target)
    except FileNotFoundError:
        if not target.exists():
            raise
    except OSError:
        partial = target.parent / f".{target.name}.{uuid.uuid4().hex}"
        try:
            shutil.copyfile(source, partial)
            _sync(partial)
            partial.rename(target)
        finally:
            partial.unlink(missing_ok=True)
        source.unlink(missing_ok=True)
