"""Publishing: a staged batch becomes part of a table, entirely or not at all, and can remove other files.

    stage        files are in a staging directory of their own; a crash leaves an orphan that is swept
    begin        one registry commit lists every move: from here the batch will happen, whichever process finishes it
    move         each file to its unique final name; readers of the registry ignore these names until
    commit       one registry commit adds all files at once, and removes those that they replace
    announce     one event on the queue, more only for very many files
    remove       removed files are deleted; until then, readers of the registry ignore them

`begin` takes the batch id, so the same id delivered twice is one batch. Any process can repeat every later step, which
is what `recover` does after a crash; it does not touch a batch whose publisher is alive. A batch whose files to replace
change before the commit is abandoned: nothing of it remains.
"""

from __future__ import annotations

import functools
import logging
import re
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from needlepoint.errors import LockLost, ObjectStoreError, StoreError, TableChanged, UsageError
from needlepoint.objects import (
    concurrently,
    identify,
    identify_all,
    is_url,
    last_touched,
    move,
    remove,
    remove_directory,
    sweep_copies,
    sync_file,
)
from needlepoint.queues import Event, Queue
from needlepoint.tables.model import Batch, File, Move, Removal, Table
from needlepoint.tables.registry.registry import Registry
from needlepoint.tables.snapshots import on_their_way
from needlepoint.tables.staged_file import StagedFile

ORPHAN_AGE = 24 * 3600.0
STAGE = "_stage"  # beside tables in a bucket; readers ignore names that begin so

_NAMED = re.compile(r"part-\d{5,}-[0-9a-f]{32}\.parquet")
# Table and attempt. Anything else called _stage in a bucket belongs to others.
_STAGED = re.compile(r"([a-z0-9_]+/[0-9a-f]{32})/")

Mover = Callable[[Sequence[tuple[str, str]]], None]
"""Moves sources to targets; calling it again for the same ones changes nothing."""

_log = logging.getLogger("needlepoint")


def staging_directory(store: Path, table: str) -> Path:
    """A fresh path for one attempt at one batch; the writer creates the directory."""
    parent = store / "stage" / table
    parent.mkdir(parents=True, exist_ok=True)
    return parent / uuid.uuid4().hex


def staging_prefix(location: str, table: str) -> str:
    """The same in the bucket of a table: files are copied from there inside the store."""
    return f"{_stage_of(location)}/{table}/{uuid.uuid4().hex}"


def _stage_of(location: str) -> str:
    """Beside the table: a reader that takes every file below the table's location does not see it."""
    parent = location.rpartition("/")[0]
    return f"{location if parent.endswith('/') else parent}/{STAGE}"


def publish(
    registry: Registry,
    queue: Queue,
    table: Table,
    batch_id: str,
    staged: Sequence[StagedFile],
    staging: str,
    *,
    removed: Sequence[File] = (),
    keep: float = 0.0,
    mover: Mover | None = None,
) -> Batch:
    """Publish the files in `staging`, in the place of the files `removed`, which are deleted `keep` seconds later.
    Returns the batch; without moves when it was published before. `mover` moves the files outside of this process."""
    if not batch_id or len(batch_id) > 512:
        raise UsageError("a batch id has 1 to 512 characters.")
    removals = tuple(_removal(table, file) for file in removed)
    keep_until = time.time() + keep if keep else 0.0
    batch = Batch(table.id, batch_id, "publishing", staging, _moves(staged), removals, keep_until)
    begun = False
    with registry.locks.batch_lock(table, batch_id, wait=True):
        if registry.batches.get(table, batch_id) is None:
            _make_durable(staged)
            begun = registry.batches.begin(batch)
        recorded = registry.batches.get(table, batch_id)
        if recorded is not None and recorded.staging != staging:
            remove_directory(staging)  # another attempt at this batch came first
        _finish(registry, queue, table, batch_id, mover or _move_here)
    return replace(batch, state="announced", moves=batch.moves if begun else ())


def _removal(table: Table, file: File) -> Removal:
    if file.id is None:
        raise TableChanged(
            f"{file.path} of table '{table.name}' is new or has changed since the last sync.",
            hint="Nothing was changed. Sync, then retry.",
        )
    return Removal(file.id, file.path, file.identity)


def recover(
    registry: Registry,
    queue: Queue,
    table: Table,
    batch_id: str | None = None,
    *,
    keeping: bool = True,
) -> list[str]:
    """Finish batches whose publishers died: all of them, or the one named. Returns their ids.

    A batch that cannot be finished is an error when it is named; otherwise it does not stop the others. With `keeping`,
    removed files stay until their time.
    """
    finished = []
    for batch in registry.batches.unfinished(table):
        if batch_id is not None and batch.batch != batch_id:
            continue
        try:
            with registry.locks.batch_lock(table, batch.batch, wait=batch_id is not None) as mine:
                if mine:
                    _finish(registry, queue, table, batch.batch, _move_here, keeping=keeping)
                    finished.append(batch.batch)
        except (StoreError, TableChanged) as error:
            if batch_id is not None:
                raise
            _log.warning("%s", error)
    return finished


def finish_all(registry: Registry, queue: Queue, table: Table) -> None:
    """Finish all batches of a table, deletions included. StoreError when one cannot be finished."""
    for batch in registry.batches.unfinished(table):
        with suppress(TableChanged):  # it is abandoned, and nothing of it remains
            recover(registry, queue, table, batch.batch, keeping=False)


def _finish(
    registry: Registry, queue: Queue, table: Table, batch_id: str, mover: Mover, *, keeping: bool = True
) -> None:
    """Do what is left of a batch. The caller holds its lock."""
    batch = registry.batches.get(table, batch_id)
    if batch is None or batch.state == "announced":
        return
    if batch.state == "abandoned":
        _undo(registry, table, batch)
        return
    if batch.state == "publishing":
        _commit(registry, table, batch, mover)
    if batch.state in ("publishing", "published"):
        added, gone = (tuple(move.target for move in batch.moves), tuple(each.path for each in batch.removals))
        for part in Event(table.name, batch.batch, added, gone, time.time()).parts():
            queue.put(part.to_json())
        batch = registry.batches.announced(batch)
        remove_directory(batch.staging)
    if batch.state == "removing" and not (keeping and batch.keep_until > time.time()):
        # Readers elsewhere must be able to see that they are not in the table any more.
        if registry.make_known():
            _remove_all(registry, table, batch)
        else:
            _log.warning("files that batch '%s' replaced stay until a sync or sweep can publish that", batch.batch)


def _commit(registry: Registry, table: Table, batch: Batch, mover: Mover) -> None:
    try:
        moved = _move_all(table, batch, mover)
        with registry.locks.exclusive(table) if batch.removals else nullcontext():
            _check_unchanged(registry, table, batch)
            try:
                committed = registry.batches.commit(batch, moved)
            except LockLost:  # another process took the batch over, and may have finished it
                _take_back(registry, table, moved)
                raise
        if not committed:
            _take_back(registry, table, moved)
            _check_committed(registry, table, batch)
    except TableChanged:
        # The file may look changed because another process has just finished this batch.
        if registry.batches.abandon(batch):
            _undo(registry, table, batch)
            raise
        _check_committed(registry, table, batch)


def _check_committed(registry: Registry, table: Table, batch: Batch) -> None:
    found = registry.batches.get(table, batch.batch)
    if found is None or not found.is_committed:
        raise TableChanged(
            f"batch '{batch.batch}' of table '{table.name}' was abandoned by another process.",
            hint="Nothing was changed. Retry.",
        )


def _undo(registry: Registry, table: Table, batch: Batch) -> None:
    """Remove the files of an abandoned batch. Until they are gone, readers of the registry ignore them."""
    for each in batch.moves:
        _remove_target(f"{table.location}/{each.target}")
    registry.batches.forget(batch)
    remove_directory(batch.staging)


def _take_back(registry: Registry, table: Table, moved: Sequence[File]) -> None:
    """Remove files that were moved here after another process finished or abandoned the batch. Later batches may have
    removed and deleted them already: they would be back in the table. What another process is about to commit stays."""
    with registry.snapshot():
        if table.id not in {each.id for each in registry.tables.all()}:
            return  # the files of a dropped table are kept
        known = {file.path for file in registry.files.of(table)}
        unfinished = registry.batches.unfinished(table)
        _, removed = on_their_way(unfinished, known)
    coming = {move.target for each in unfinished if each.state == "publishing" for move in each.moves}
    for file in moved:
        if file.path not in known and file.path not in removed and file.path not in coming:
            remove(f"{table.location}/{file.path}", file.identity)


def _check_unchanged(registry: Registry, table: Table, batch: Batch) -> None:
    """TableChanged when a file was replaced in its place since the last sync: its new rows must not be removed."""
    if not batch.removals:
        return
    listed = registry.files.of(table, [each.file_id for each in batch.removals])
    now = identify_all([f"{table.location}/{file.path}" for file in listed])
    for file, identity in zip(listed, now, strict=True):
        if identity != file.identity:
            raise TableChanged(
                f"{file.path} of table '{table.name}' changed while it was being replaced.",
                hint="Nothing was changed. Sync, then retry.",
            )


def _remove_target(path: str) -> None:
    try:
        remove(path, identify(path))
    except FileNotFoundError:
        return


def _remove_all(registry: Registry, table: Table, batch: Batch) -> None:
    current = registry.batches.get(table, batch.batch)
    removals = batch.removals if current is None else current.removals
    paths = [(f"{table.location}/{each.path}", each.identity) for each in removals]
    try:
        if is_url(table.location):
            concurrently(lambda pair: remove(*pair), paths)
        else:
            for path, identity in paths:
                remove(path, identity)
            # After a power cut they must not be back, since the registry has forgotten them.
            for directory in {Path(path).parent for path, _ in paths}:
                with suppress(FileNotFoundError):
                    sync_file(directory)
    except (OSError, ObjectStoreError) as error:
        raise StoreError(
            f"files that batch '{batch.batch}' replaced cannot be deleted: {str(error).rstrip('.')}.",
            hint="No query sees them. Fix the cause; then sync or sweep deletes them.",
        ) from error
    registry.batches.removed(batch)


def sweep_staging(store: Path, registry: Registry, *, now: bool = False) -> list[Path]:
    """Remove staging directories that no batch refers to and nothing has touched for a day; with `now` also younger
    ones whose writer is known to be dead."""
    swept = []
    for directory in (store / "stage").glob("*/*"):
        touched = last_touched(directory)  # None when it was just published or removed
        if touched is not None and _is_orphan(registry, str(directory), touched, now=now):
            remove_directory(str(directory))
            swept.append(directory)
    return swept


def sweep_tables(registry: Registry) -> int:
    """Remove unfinished copies of files from the directories of tables. Unfinished objects are not visible."""

    def coming(table: Table) -> set[str]:
        return {move.target for batch in registry.batches.unfinished(table) for move in batch.moves}

    local = [table for table in registry.tables.all() if table.format == "parquet" and not is_url(table.location)]
    return sum(sweep_copies(table.location, functools.partial(coming, table)) for table in local)


def _is_orphan(registry: Registry, staging: str, touched: float, *, now: bool) -> bool:
    """Whether a staging place has no owner. A publisher holds its claim until its batch is in the registry, so the
    claim is checked first."""
    claimed = registry.locks.is_claimed(staging.rpartition("/")[2])
    old = touched <= time.time() - ORPHAN_AGE
    return not claimed and (old or (now and claimed is False)) and staging not in _wanted(registry)


def sweep_prefixes(root: Path | str, registry: Registry, *, now: bool = False) -> list[str]:
    """The same in the buckets of tables, dropped tables of the lake included."""
    from needlepoint.objects.remote import list_objects

    locations = [f"{root}/{STAGE}"] if isinstance(root, str) else []
    stages = {*locations, *(_stage_of(table.location) for table in registry.tables.all() if is_url(table.location))}
    swept = []
    for stage in sorted(stages):
        newest: dict[str, float] = {}
        for path, identity in list_objects(stage):
            if (ours := _STAGED.match(path)) is not None:
                staging = f"{stage}/{ours[1]}"
                newest[staging] = max(newest.get(staging, 0.0), identity.mtime_ns / 1e9)
        for staging, touched in newest.items():
            if _is_orphan(registry, staging, touched, now=now):
                remove_directory(staging)
                swept.append(staging)
    return swept


def _wanted(registry: Registry) -> set[str]:
    """The staging that unfinished batches refer to."""
    return {batch.staging for table in registry.tables.all() for batch in registry.batches.unfinished(table)}


def _moves(staged: Sequence[StagedFile]) -> tuple[Move, ...]:
    """Moves to unique final names; a process that repeats a move takes them from the registry."""
    unique = uuid.uuid4().hex
    return tuple(
        Move(file.path, f"{file.relative}/part-{number:05d}-{unique}.parquet".lstrip("/"), file.rows, file.own)
        for number, file in enumerate(sorted(staged, key=lambda file: (file.relative, file.path)))
    )


def is_named_here(path: str) -> bool:
    """Whether a file has a name as `publish` gives them. Another writer can choose such a name too, so this proves
    nothing.

    >>> is_named_here("year=2024/part-00000-0123456789abcdef0123456789abcdef.parquet")
    True
    >>> is_named_here("part-00000-01234567-89ab-cdef-0123-456789abcdef-c000.snappy.parquet")
    False
    """
    return _NAMED.fullmatch(path.rpartition("/")[2]) is not None


def _make_durable(staged: Sequence[StagedFile]) -> None:
    """From `begin` on the staged files are the only copy of the batch: they must survive a power cut."""
    local = [Path(file.path) for file in staged if not is_url(file.path)]
    for path in (*local, *{path.parent for path in local}):
        sync_file(path)


def _move_all(table: Table, batch: Batch, mover: Mover) -> list[File]:
    targets = [f"{table.location}/{each.target}" for each in batch.moves]
    try:
        mover([(each.source, target) for each, target in zip(batch.moves, targets, strict=True)])
        if is_url(table.location):
            identities = concurrently(identify, targets)
        else:
            for directory in {Path(target).parent for target in targets}:
                sync_file(directory)
            identities = [identify(target) for target in targets]
    except (OSError, ObjectStoreError) as error:
        raise StoreError(
            f"batch '{batch.batch}' cannot be moved into {table.location}: {str(error).rstrip('.')}.",
            hint="Nothing is lost. Fix the cause, then publish the batch again.",
        ) from error
    return [File(each.target, identity, rows=each.rows) for each, identity in zip(batch.moves, identities, strict=True)]


def _move_here(pairs: Sequence[tuple[str, str]]) -> None:
    if pairs and is_url(pairs[0][1]):
        concurrently(lambda pair: move(*pair), pairs)
    else:
        for source, target in pairs:
            move(source, target)
