"""Versions of files that a query holds while it runs.

A query is planned for files as they are, and reads them by path. When one of them is replaced meanwhile, the query is
planned again. That is enough for a change now and then. A job that embeds an index replaces one file after the other,
and a query that takes longer than one of them would never end. So a query that is tried again holds what it reads:

    a local file       is opened before it is read; whoever replaces it leaves the open version alone
    an object          is copied, on condition of its ETag: DataFusion reads objects without such a condition

A file that was replaced between the listing and the opening is planned again alone: it is scanned as it is now, since
nothing is known of its rows. Only a file that is gone, or that has columns of its own, makes the whole plan void.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from needlepoint.errors import FileChanged, NeedlepointError
from needlepoint.objects import Cursor, HeldFile, Identity, OpenObject, concurrently, identify, open_object
from needlepoint.parquet.card.describe import describe
from needlepoint.query.scan.scan_plan import HeldVersion, ScanPlan
from needlepoint.tables.formats.table_formats import is_external
from needlepoint.tables.locks import TableLocks
from needlepoint.tables.model import File, Table
from needlepoint.tables.schemas import differing, plain_schema, unify

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

MOST_TRIES, PAUSE = 15, 0.02  # seconds; each next try waits a little longer
# A query holds from its first try on for so many seconds after one found a file changed: there will be more of them.
RESTLESS = 10.0
# From this try on objects that are scanned are copied: most often one more plan is enough, and costs less. Page reads
# take little time and name the version that they want; where that does not help either, all objects are copied.
TRIES_WITHOUT_COPIES, TRIES_WITH_PAGES = 2, 5
# No more than this is copied, and no more than half of the room that the disk has left.
MOST_COPIED = 8 << 30
COPIED_AT_ONCE = 4 << 20
# An object that is replaced more often than this while it is copied is left to the next try.
TRIES_FOR_AN_OBJECT = 5
# Descriptors that are left to everybody else in the process.
SPARE_DESCRIPTORS = 256

Answer = TypeVar("Answer")

_holder: ContextVar[Holder | None] = ContextVar("holder", default=None)
_limits = threading.Lock()


def hold(scan: ScanPlan) -> ScanPlan:
    """The plan, with the files that it reads held, if the query is to hold them."""
    holder = _holder.get()
    return holder.hold(scan) if holder is not None and (scan.scanned or scan.paged) else scan


def is_holding() -> bool:
    """Whether the query that runs here is to hold its files."""
    return _holder.get() is not None


@dataclass(frozen=True, slots=True)
class _Open:
    """A version of a local file. Where others cannot open it again by a path, `copy` makes a copy for them."""

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
class _Copy:
    """A version of an object, in a file of its own."""

    identity: Identity
    place: str

    def open(self) -> OpenObject:
        return open_object(self.place)

    def source(self) -> str:
        return self.place

    def check(self) -> None:
        if not os.path.exists(self.place):  # noqa: PTH110
            raise FileChanged(self.place, "is a copy that a query made, and is gone")


class Tries:
    """Queries of one lake, each tried until no file changes under it."""

    def __init__(self, forget: Callable[[], None], store: str, turns: TableLocks) -> None:
        self._forget = forget
        self._store = store
        self._turns = turns
        self._restless_until = float("-inf")

    def run(self, ask: Callable[[bool], Answer], holding: bool = True) -> Answer:
        """Ask until no FileChanged is raised; `ask` learns whether it may let DataFusion list a directory."""
        first = 0
        if time.monotonic() > self._restless_until:
            try:
                return ask(True)
            except FileChanged:
                self._changed(first)
            first = 1
        with Holder(self._store, self._turns) as holder:
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
        raise AssertionError("the last try returns or raises")

    def _changed(self, attempt: int) -> None:
        self._forget()
        self._restless_until = time.monotonic() + RESTLESS
        time.sleep(attempt * PAUSE)


class Holder:
    """What one query holds, through all its tries: copies of objects serve the next one, too."""

    def __init__(self, store: str, turns: TableLocks) -> None:
        self._store = store
        self._turns = turns
        self._files: dict[str, HeldFile] = {}
        self._copies: dict[tuple[str, Identity], str] = {}
        self._directory: Path | None = None
        self._attempt = self._spent = 0

    def __enter__(self) -> Holder:
        return self

    def __exit__(self, *error: object) -> None:
        self._let_go()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._turns.release(self._directory.name)

    @contextmanager
    def trying(self, attempt: int) -> Iterator[None]:
        """Within this block, in this thread, `hold` holds."""
        self._attempt = attempt
        token = _holder.set(self)
        try:
            yield
        finally:
            _holder.reset(token)
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
        except OSError:  # too many files, or no room for copies: they are read by path, and checked afterwards
            for path in self._files.keys() - before:
                self._files.pop(path).close()
            return replace(scan, held={}, sources={})

    # Files

    def _open(self, scan: ScanPlan) -> dict[str, HeldVersion]:
        files = [*scan.scanned, *scan.paged]
        _make_room(len(files))
        return {file.path: _Open(self._opened(scan.path(file)), self._copied) for file in files}

    def _opened(self, path: str) -> HeldFile:
        """The same version for whoever asks during one try."""
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
        self._scratch()  # made here, once, and not in several threads
        copies = concurrently(lambda file: (file.path, self._object(scan.path(file), file)), scan.scanned)
        return replace(scan, held=dict(copies))

    def _object(self, path: str, file: File) -> HeldVersion:
        identity = file.identity
        for _ in range(TRIES_FOR_AN_OBJECT):
            try:
                with open_object(path, identity) as opened:
                    return _Copy(identity, self._copied(opened))
            except FileNotFoundError:
                break
            except FileChanged:
                with contextlib.suppress(FileNotFoundError):
                    identity = identify(path)
        raise FileChanged(path, "changes all the time or went away")

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
        """A directory of this query, which `sweep` leaves alone while it runs and removes after a crash."""
        if self._directory is None:
            directory = Path(self._store) / "scratch" / uuid.uuid4().hex
            self._turns.claim(directory.name)
            directory.mkdir(parents=True, exist_ok=True)
            self._directory = directory
        return self._directory


def _make_room(files: int) -> None:
    """Let the process open so many files more; a limit that the user can raise is raised as far as it takes."""
    if resource is None:
        return
    with _limits:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = files + _open_descriptors() + SPARE_DESCRIPTORS
        if soft == resource.RLIM_INFINITY or wanted <= soft:
            return
        if hard != resource.RLIM_INFINITY and wanted > hard:
            raise OSError("too many files to hold")
        with contextlib.suppress(ValueError):  # macOS has a lower limit of its own; opening tells
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
    """Files that are held in another version than the one planned for are scanned, as files nobody knows."""
    table = scan.snapshot.table
    now: dict[str, File] = {}
    for file in changed:
        held = scan.held[file.path]
        if is_external(table.format) or not _fits(held, table, file.path):
            raise FileChanged(scan.path(file), "is another file now")
        now[file.path] = File(file.path, held.identity)
    known = [at for at in scan.access.rows if scan.snapshot.files[at].path in now]
    scan = scan.with_access(scan.access.scanning(known))
    return replace(scan, scanned=tuple(now.get(file.path, file) for file in scan.scanned))


def _fits(held: HeldVersion, table: Table, path: str) -> bool:
    """Whether a version has no column or type that the table lacks."""
    known = pa.schema([table.schema.field(name) for name in table.data_columns])
    try:
        describe(path, opened=held.open())  # our own reader before any other: those believe whatever a footer says
        with held.open() as file:
            found = plain_schema(pq.read_schema(Cursor(file)))
        own = pa.schema([field for field in found if field.name not in table.partitions])
        if len(set(own.names)) < len(own.names):
            return False
        both = unify(known, "the table", own, path)
    except (pa.ArrowException, OSError, NeedlepointError):
        return False
    return both.equals(known) and differing(own, both) <= table.mixed
