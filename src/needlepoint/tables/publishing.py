"""Publishing: a staged batch becomes part of a table, entirely or not at all, and can take other files out with it.

    stage        files lie in a staging directory of their own; a crash leaves an orphan that is swept
    begin        one registry commit lists every move: from here the batch will happen, whoever finishes it
    move         each file to its unique final name; readers of the registry pass these names over until
    commit       one registry commit adds all files at once, and takes out those that they replace
    announce     one event on the queue, more only for very many files
    remove       files that were taken out are deleted; until then, readers of the registry pass them over

`begin` takes the batch id, so the same id delivered twice is one batch. Every later part can be repeated by any
process, which is what `recover` does with what a crash left; while its publisher lives, a batch is left to it. A batch
whose files to replace have changed before the commit is abandoned: then it never was.
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

from needlepoint.errors import ObjectStoreError, StoreError, TableChanged, UsageError
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
from needlepoint.queues.events import Event
from needlepoint.queues.queue import Queue
from needlepoint.tables.model import Batch, File, Move, Removal, Table
from needlepoint.tables.registry.registry import Registry
from needlepoint.tables.snapshots import on_their_way
from needlepoint.tables.staged_file import StagedFile

ORPHAN_AGE = 24 * 3600.0
STAGE = "_stage"  # beside tables in a bucket; readers pass over names that begin so

_NAMED = re.compile(r"part-\d{5,}-[0-9a-f]{32}\.parquet")
# Table and attempt. Whatever else is called _stage in a bucket is not ours.
_STAGED = re.compile(r"([a-z0-9_]+/[0-9a-f]{32})/")

Mover = Callable[[Sequence[tuple[str, str]]], None]
"""Moves sources to targets, somewhere; who calls it again for the same ones changes nothing."""

_log = logging.getLogger("needlepoint")


def staging_directory(store: Path, table: str) -> Path:
    """A fresh place for one attempt at one batch; the directory itself is the writer's to make."""
    parent = store / "stage" / table
    parent.mkdir(parents=True, exist_ok=True)
    return parent / uuid.uuid4().hex


def staging_prefix(location: str, table: str) -> str:
    """The same for a writer to the bucket in which a table lies: from there files are copied inside the store."""
    return f"{_stage_of(location)}/{table}/{uuid.uuid4().hex}"


def _stage_of(location: str) -> str:
    """Beside the table, where a reader that takes every file below the table's location does not come."""
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
    """Publish what lies in `staging`, in the place of the files `removed`, which are kept for so many seconds more.
    Returns the batch; without moves when it was there before. `mover` moves the files elsewhere than here."""
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
            f"{file.path} of table '{table.name}' is new, or has changed, since the last sync.",
            hint="Nothing was changed; sync, and do it again.",
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
    """Finish batches that were begun and that nobody is at: all of them, or the one named. Returns their ids.

    A batch that cannot be finished is an error to whoever names it; it does not stop the others. Files that are to be
    kept for a while longer are, if `keeping`.
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
    """Nothing that lies in the table's location is on its way any more, in or out. StoreError when that cannot be."""
    for batch in registry.batches.unfinished(table):
        with suppress(TableChanged):  # it is abandoned, and never was
            recover(registry, queue, table, batch.batch, keeping=False)


def _finish(
    registry: Registry, queue: Queue, table: Table, batch_id: str, mover: Mover, *, keeping: bool = True
) -> None:
    """What is left to do of a batch, which is the caller's turn."""
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
        for part in Event(table.name, batch.batch, added, gone).parts():
            queue.put(part.to_json())
        batch = registry.batches.announced(batch)
        remove_directory(batch.staging)
    if batch.state == "removing" and not (keeping and batch.keep_until > time.time()):
        _remove_all(registry, table, batch)


def _commit(registry: Registry, table: Table, batch: Batch, mover: Mover) -> None:
    try:
        moved = _move_all(table, batch, mover)
        with registry.locks.exclusive(table) if batch.removals else nullcontext():
            _check_unchanged(registry, table, batch)
            committed = registry.batches.commit(batch, moved)
        if not committed:
            _take_back(registry, table, moved)
            _check_committed(registry, table, batch)
    except TableChanged:
        # What looks changed may be what another process has just replaced, by finishing this batch.
        if registry.batches.abandon(batch):
            _undo(registry, table, batch)
            raise
        _check_committed(registry, table, batch)


def _check_committed(registry: Registry, table: Table, batch: Batch) -> None:
    found = registry.batches.get(table, batch.batch)
    if found is None or not found.is_committed:
        raise TableChanged(
            f"batch '{batch.batch}' of table '{table.name}' was abandoned by another process.",
            hint="Nothing was changed; do it again.",
        )


def _undo(registry: Registry, table: Table, batch: Batch) -> None:
    """Remove what an abandoned batch brought. Until it is gone, readers of the registry pass it over."""
    for each in batch.moves:
        _remove_target(f"{table.location}/{each.target}")
    registry.batches.forget(batch)
    remove_directory(batch.staging)


def _take_back(registry: Registry, table: Table, moved: Sequence[File]) -> None:
    """Another process finished the batch first, or abandoned it. What was uploaded here after later batches had taken
    it out of the table, and deleted it, would be in it again."""
    with registry.snapshot():
        if table.id not in {each.id for each in registry.tables.all()}:
            return  # a dropped table keeps its files
        known = {file.path for file in registry.files.of(table)}
        _, removed = on_their_way(registry.batches.unfinished(table), known)
    for file in moved:
        if file.path not in known and file.path not in removed:
            remove(f"{table.location}/{file.path}", file.identity)


def _check_unchanged(registry: Registry, table: Table, batch: Batch) -> None:
    """A file that was replaced where it lies, and that no sync has seen, has rows that nobody may take out."""
    if not batch.removals:
        return
    listed = registry.files.of(table, [each.file_id for each in batch.removals])
    now = identify_all([f"{table.location}/{file.path}" for file in listed])
    for file, identity in zip(listed, now, strict=True):
        if identity != file.identity:
            raise TableChanged(
                f"{file.path} of table '{table.name}' changed while it was being replaced.",
                hint="Nothing was changed; sync, and do it again.",
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
            # After a power cut they must not be back, when nobody knows them any more.
            for directory in {Path(path).parent for path, _ in paths}:
                with suppress(FileNotFoundError):
                    sync_file(directory)
    except (OSError, ObjectStoreError) as error:
        raise StoreError(
            f"files that batch '{batch.batch}' replaced cannot be deleted: {str(error).rstrip('.')}.",
            hint="No query sees them; mend the cause, and sync or sweep deletes them.",
        ) from error
    registry.batches.removed(batch)


def sweep_staging(store: Path, registry: Registry, *, now: bool = False) -> list[Path]:
    """Remove staging directories that no batch refers to and nothing has touched for a while; with `now` all whose
    writer is known to be dead."""
    swept = []
    for directory in (store / "stage").glob("*/*"):
        touched = last_touched(directory)  # None when it is published or removed this moment
        if touched is not None and _is_orphan(registry, str(directory), touched, now=now):
            remove_directory(str(directory))
            swept.append(directory)
    return swept


def sweep_tables(registry: Registry) -> int:
    """Remove unfinished copies of files that lie in the directories of tables. Of objects none are to be seen."""

    def coming(table: Table) -> set[str]:
        return {move.target for batch in registry.batches.unfinished(table) for move in batch.moves}

    local = [table for table in registry.tables.all() if table.format == "parquet" and not is_url(table.location)]
    return sum(sweep_copies(table.location, functools.partial(coming, table)) for table in local)


def _is_orphan(registry: Registry, staging: str, touched: float, *, now: bool) -> bool:
    """Who publishes is at it until the batch is in the registry, so this is asked first."""
    claimed = registry.locks.is_claimed(staging.rpartition("/")[2])
    old = touched <= time.time() - ORPHAN_AGE
    return not claimed and (old or (now and claimed is False)) and staging not in _wanted(registry)


def sweep_prefixes(root: Path | str, registry: Registry, *, now: bool = False) -> list[str]:
    """The same in the buckets where tables lie, and where those that are dropped lay in the lake."""
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
    """Final names like no other: whoever repeats a move takes them from the registry."""
    unique = uuid.uuid4().hex
    return tuple(
        Move(file.path, f"{file.relative}/part-{number:05d}-{unique}.parquet".lstrip("/"), file.rows, file.own)
        for number, file in enumerate(sorted(staged, key=lambda file: (file.relative, file.path)))
    )


def is_named_here(path: str) -> bool:
    """Whether a file has a name as `publish` gives them. Others can write such a name, too: this is for asking, not for
    trusting.

    >>> is_named_here("year=2024/part-00000-0123456789abcdef0123456789abcdef.parquet")
    True
    >>> is_named_here("part-00000-01234567-89ab-cdef-0123-456789abcdef-c000.snappy.parquet")
    False
    """
    return _NAMED.fullmatch(path.rpartition("/")[2]) is not None


def _make_durable(staged: Sequence[StagedFile]) -> None:
    """From `begin` on the staged files are all there is of the batch: they must survive a power cut."""
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
            hint="Nothing is lost: mend the cause and publish the same batch again.",
        ) from error
    return [File(each.target, identity, rows=each.rows) for each, identity in zip(batch.moves, identities, strict=True)]


def _move_here(pairs: Sequence[tuple[str, str]]) -> None:
    if pairs and is_url(pairs[0][1]):
        concurrently(lambda pair: move(*pair), pairs)
    else:
        for source, target in pairs:
            move(source, target)
