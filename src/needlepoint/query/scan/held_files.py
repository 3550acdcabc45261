"""Versions of files that a query keeps readable while it runs.

A query is planned for a snapshot of files, and reads them by path. If one of them is replaced meanwhile, the query is
planned again. That is enough for an occasional change. But a job that embeds an index replaces one file after the
other, and a query that takes longer than one replacement would never end. So a query that is retried holds its files:

    a local file       is opened before it is read; a replacement leaves the open version alone
    an object          is copied, conditional on its ETag: DataFusion's own reads have no such condition

A file that was replaced between listing and opening is planned again alone: it is scanned as it is now, since no rows
of it are known. Only a missing file, or one with new columns, invalidates the whole plan.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from needlepoint.errors import FileChanged, NeedlepointError
from needlepoint.objects import Cursor, HeldFile, Identity, OpenObject, concurrently, identify, open_object
from needlepoint.parquet import describe
from needlepoint.query.scan.scan_plan import HeldVersion, ScanPlan
from needlepoint.tables import File, Locks, Table, differing, plain_schema, unify
from needlepoint.tables.formats import is_external

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

MOST_TRIES, PAUSE = 15, 0.02  # seconds; each retry waits a little longer
# For this many seconds after a query saw a changed file, all queries hold files from their first attempt.
RESTLESS = 10.0
# From this attempt on, scanned objects are copied: planning once more costs less and is usually enough. Page reads are
# short and name the version that they need; if that fails too, all objects are copied.
TRIES_WITHOUT_COPIES, TRIES_WITH_PAGES = 2, 5
# At most this many bytes are copied, and at most half of the free disk space.
MOST_COPIED = 8 << 30
COPIED_AT_ONCE = 4 << 20
# An object that is replaced more often than this during a copy waits for the next attempt.
TRIES_FOR_AN_OBJECT = 5
# File descriptors that stay free for the rest of the process.
SPARE_DESCRIPTORS = 256

Answer = TypeVar("Answer")

_holder: ContextVar[Holder | None] = ContextVar("holder", default=None)
_limits = threading.Lock()


def hold(scan: ScanPlan) -> ScanPlan:
    """The plan with its files held, if the current query holds files."""
    holder = _holder.get()
    return holder.hold(scan) if holder is not None and (scan.scanned or scan.paged) else scan


def keep_held() -> AbstractContextManager[object]:
    """The files that the current query holds stay open until the end of this context, also after the query returned."""
    holder = _holder.get()
    return contextlib.nullcontext() if holder is None else holder.kept_on()


def is_holding() -> bool:
    """Whether the current query holds its files."""
    return _holder.get() is not None


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """A version of a local file. If it cannot be opened again by a path, `copy` copies it."""

    file: HeldFile
    copy: Callable[[OpenObject], str]

    @property
    def identity(self) -> Identity:
        return self.file.identity

    def open(self) -> OpenObject:
        return self.file.view()

    def source(self) -> str:
        return self.file.reopenable() or self.copy(self.file.view())

    def check(self) -> None:
        self.file.check_unchanged(self.file.identity)


@dataclass(frozen=True, slots=True)
class _ObjectCopy:
    """A version of an object, copied to a local file."""

    identity: Identity
    place: str

    def open(self) -> OpenObject:
        return open_object(self.place)

    def source(self) -> str:
        return self.place

    def check(self) -> None:
        if not os.path.exists(self.place):  # noqa: PTH110
            raise FileChanged(self.place, "is a query's copy of an object, and is missing")


class QueryRetries:
    """Runs the queries of one lake, and retries each until no file changes during it."""

    def __init__(self, forget: Callable[[], None], scratch: Path, locks: Locks) -> None:
        self._forget = forget
        self._parent = scratch
        self._locks = locks
        self._restless_until = float("-inf")

    def run(self, ask: Callable[[bool], Answer], holding: bool = True) -> Answer:
        """Call `ask` until it raises no FileChanged; its argument says whether DataFusion may list a directory."""
        first = 0
        if time.monotonic() > self._restless_until:
            try:
                return ask(True)
            except FileChanged:
                self._changed(first)
            first = 1
        with Holder(self._parent, self._locks) as holder:
            for attempt in range(first, MOST_TRIES):
                try:
                    if not holding:
                        return ask(attempt == 0)
                    with holder.trying(attempt):
                        return ask(False)
                except FileChanged:
                    if attempt == MOST_TRIES - 1:
                        raise
                    self._changed(attempt)
        raise AssertionError("the last attempt returns or raises")

    def _changed(self, attempt: int) -> None:
        self._forget()
        self._restless_until = time.monotonic() + RESTLESS
        time.sleep(attempt * PAUSE)


class Holder:
    """The files that one query holds over all its attempts: later ones reuse the copies of objects."""

    def __init__(self, scratch: Path, locks: Locks) -> None:
        self._parent = scratch
        self._locks = locks
        self._files: dict[str, HeldFile] = {}
        self._copies: dict[tuple[str, Identity], str] = {}
        self._directory: Path | None = None
        self._attempt = self._spent = 0
        self._is_kept = False

    def __enter__(self) -> Holder:
        return self

    def __exit__(self, *error: object) -> None:
        if not self._is_kept:
            self._end()

    def kept_on(self) -> AbstractContextManager[object]:
        self._is_kept = True
        kept = contextlib.ExitStack()
        kept.callback(self._end)
        return kept

    def _end(self) -> None:
        self._let_go()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._locks.release(self._directory.name)

    @contextmanager
    def trying(self, attempt: int) -> Iterator[None]:
        """Within this block, in this thread, `hold` holds files."""
        self._attempt = attempt
        token = _holder.set(self)
        try:
            yield
        finally:
            _holder.reset(token)
            if not self._is_kept:
                self._let_go()

    def _let_go(self) -> None:
        files, self._files = self._files, {}
        for file in files.values():
            file.close()

    def hold(self, scan: ScanPlan) -> ScanPlan:
        before = set(self._files)
        try:
            scan = self._with_objects(scan) if scan.remote else replace(scan, held=self._open(scan))
            changed = [file for file in (*scan.scanned, *scan.paged) if _is_other(scan, file)]
            if changed:
                scan = _scan_as_it_is(scan, changed)
            there = [(file.path, scan.held.get(file.path)) for file in scan.scanned]
            return replace(scan, sources={path: held.source() for path, held in there if held is not None})
        except OSError:  # too many files, or no space for copies: read them by path, and check them afterwards
            for path in self._files.keys() - before:
                self._files.pop(path).close()
            return replace(scan, held={}, sources={})

    # Files

    def _open(self, scan: ScanPlan) -> dict[str, HeldVersion]:
        files = [*scan.scanned, *scan.paged]
        _make_room(len(files))
        return {file.path: _OpenFile(self._opened(scan.path(file)), self._copied) for file in files}

    def _opened(self, path: str) -> HeldFile:
        """One version of each file per attempt."""
        if path not in self._files:
            try:
                self._files[path] = HeldFile(path)
            except FileNotFoundError:
                raise FileChanged(path, "is gone") from None
        return self._files[path]

    # Objects

    def _with_objects(self, scan: ScanPlan) -> ScanPlan:
        if self._attempt < TRIES_WITHOUT_COPIES:
            return replace(scan, held={})
        if self._attempt >= TRIES_WITH_PAGES:
            scan = scan.with_access(scan.access.scanning([*scan.access.rows]))
        self._scratch()  # create it once, before threads use it
        copies = concurrently(lambda file: (file.path, self._object(scan.path(file), file)), scan.scanned)
        return replace(scan, held=dict(copies))

    def _object(self, path: str, file: File) -> HeldVersion:
        identity = file.identity
        for _ in range(TRIES_FOR_AN_OBJECT):
            try:
                with open_object(path, identity) as opened:
                    return _ObjectCopy(identity, self._copied(opened))
            except FileNotFoundError:
                break
            except FileChanged:
                with contextlib.suppress(FileNotFoundError):
                    identity = identify(path)
        raise FileChanged(path, "changes too often or was removed")

    def _copied(self, file: OpenObject) -> str:
        key = (file.path, file.identity)
        if key not in self._copies:
            target = self._scratch() / f"{uuid.uuid4().hex}.parquet"
            self._spend(file.size)
            with target.open("wb") as copy:
                for start in range(0, file.size, COPIED_AT_ONCE):
                    copy.write(file.read(start, min(COPIED_AT_ONCE, file.size - start)))
            file.check_unchanged(file.identity)
            self._copies[key] = str(target)
        return self._copies[key]

    def _spend(self, size: int) -> None:
        with _limits:
            self._spent += size
            if self._spent > min(MOST_COPIED, shutil.disk_usage(self._scratch()).free // 2):
                raise OSError("no room for copies")

    def _scratch(self) -> Path:
        """A directory of this query; `sweep` keeps it while the query runs and removes it after a crash."""
        if self._directory is None:
            directory = self._parent / uuid.uuid4().hex
            self._locks.claim(directory.name)
            directory.mkdir(parents=True, exist_ok=True)
            self._directory = directory
        return self._directory


def _make_room(files: int) -> None:
    """Allow the process to open this many more files; raise the soft limit if needed."""
    if resource is None:
        return
    with _limits:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = files + _open_descriptors() + SPARE_DESCRIPTORS
        if soft == resource.RLIM_INFINITY or wanted <= soft:
            return
        if hard != resource.RLIM_INFINITY and wanted > hard:
            raise OSError("too many files to hold")
        with contextlib.suppress(ValueError):  # macOS has a lower limit; opening the file reports it
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _open_descriptors() -> int:
    try:
        return len(os.listdir("/dev/fd"))  # noqa: PTH208
    except OSError:
        return SPARE_DESCRIPTORS


def _is_other(scan: ScanPlan, file: File) -> bool:
    held = scan.held.get(file.path)
    return held is not None and held.identity != file.identity


def _scan_as_it_is(scan: ScanPlan, changed: Sequence[File]) -> ScanPlan:
    """Scan the files that are held in another version than the planned one: nothing else is known of them."""
    table = scan.snapshot.table
    now: dict[str, File] = {}
    for file in changed:
        held = scan.held[file.path]
        if is_external(table.format) or not _fits(held, table, file.path):
            raise FileChanged(scan.path(file), "was replaced by a file with other columns")
        now[file.path] = File(file.path, held.identity)
    known = [at for at in scan.access.rows if scan.snapshot.files[at].path in now]
    scan = scan.with_access(scan.access.scanning(known))
    return replace(scan, scanned=tuple(now.get(file.path, file) for file in scan.scanned))


def _fits(held: HeldVersion, table: Table, path: str) -> bool:
    """Whether the table has all columns of this version, with the same types."""
    known = pa.schema([table.schema.field(name) for name in table.data_columns])
    try:
        describe(path, opened=held.open())  # our reader validates the footer; others trust it
        with held.open() as file:
            found = plain_schema(pq.read_schema(Cursor(file)))
        own = pa.schema([field for field in found if field.name not in table.partitions])
        if len(set(own.names)) < len(own.names):
            return False
        both = unify(known, "the table", own, path)
    except (pa.ArrowException, OSError, NeedlepointError):
        return False
    return both.equals(known) and differing(own, both) <= table.mixed
