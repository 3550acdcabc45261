"""A process that makes one change of a lake, over stores of choice, and meets a fault in the middle of it.

    prepare     a small lake with a key index, a distinct one and three batches; no fault yet
    "armed"     the log says so: from here on, points between two writes are counted
    change      one of CHANGES
    "done"      the change is acknowledged; or "refused", with the error

A point is before a change of a file, the first change and the commit of a transaction of SQLite, or a call that writes
into RocksDB. At the point `killed_at` the process kills itself. Points of servers and buckets are counted outside, by
what is sent to them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import rocksdict
from tests.lakes import staged

import needlepoint
from needlepoint import Lake
from needlepoint.errors import NeedlepointError
from needlepoint.stores.leaf_files import merge
from needlepoint.tables.staged_file import StagedFile

ROWS = 60
BATCHES = 3
STRIDE = 8
_CHANGES = {"os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.copyfile"}
_READS = ("SELECT", "PRAGMA", "--", "EXPLAIN")


@dataclass(frozen=True)
class Stores:
    """Where a lake has what; texts are URLs."""

    root: str
    store: str
    registry: str = ""
    queue: str = ""
    keys: str = ""

    def open(self, **more: Any) -> Lake:
        given = {"shared": "on", "refresh": 0, "object_refresh": 0, "workers": 1, "access": "pages"}
        places = {name: getattr(self, name) for name in ("store", "registry", "queue", "keys")}
        return needlepoint.open(self.root, **{**given, **places, **more})


def rows(batch: int) -> pa.Table:
    """Ids of a batch are those of no other, in the same range, so that bounds rule out no file."""
    ids = range(batch, ROWS * STRIDE, STRIDE)
    names = [f"name {id * 7 % 50}" for id in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "name": names, "k": pa.array([id % 5 for id in ids], pa.int64())})


def stage(stores: Stores, batch: int) -> list[StagedFile]:
    """The files of a batch, as a writer leaves them."""
    parts = [rows(batch).take(list(range(first, ROWS, 2))) for first in (0, 1)]
    return staged(_staging(stores, batch), {f"p={number}/x.parquet": part for number, part in enumerate(parts)})


def _staging(stores: Stores, batch: int) -> Path:
    return Path(stores.store).parent / f"staging {batch}"


def publish(lake: Lake, stores: Stores, batch: int, files: list[StagedFile] | None = None) -> None:
    lake.publish("t", files or stage(stores, batch), _staging(stores, batch), f"batch {batch}")


def follow(lake: Lake) -> None:
    for result in lake.follow_events(once=True):
        if result.problem:
            raise NeedlepointError(result.problem)


def prepare(stores: Stores) -> Lake:
    lake = stores.open()
    for batch in range(BATCHES):
        publish(lake, stores, batch)
        if not batch:
            lake.create_index("t", "id")
            lake.create_index("t", "k", "distinct")
        follow(lake)
    return lake


def publish_one(lake: Lake, stores: Stores, files: object = None) -> None:
    publish(lake, stores, BATCHES, cast("list[StagedFile] | None", files))


def delete_first(lake: Lake) -> None:
    lake.delete("t", f"id % {STRIDE} = 0")
    lake.sync("t")


@dataclass(frozen=True)
class Change:
    """`before` happens without a fault; `make` gets what it returns. `adds` and `removes` are batches."""

    make: Callable[[Lake, Stores, object], object]
    before: Callable[[Lake, Stores], object] = lambda lake, stores: None
    present: tuple[int, ...] = (0, 1, 2)
    adds: tuple[int, ...] = ()
    removes: tuple[int, ...] = ()


CHANGES = {
    "publish": Change(publish_one, lambda lake, stores: stage(stores, BATCHES), adds=(BATCHES,)),
    # The fourth run, after which parts and leaf files are merged.
    "index and merge": Change(lambda lake, *_: follow(lake), publish_one, present=(0, 1, 2, 3)),
    "embed": Change(lambda lake, *_: lake.create_index("t", "name", "bloom", embed=True)),
    "compact": Change(lambda lake, *_: lake.compact("t")),
    "delete": Change(lambda lake, *_: lake.delete("t", f"id % {STRIDE} = 0"), removes=(0,)),
    "sweep": Change(lambda lake, *_: lake.sweep(now=True), lambda lake, _: delete_first(lake), present=(1, 2)),
    "checkpoint": Change(lambda lake, *_: lake.share(whole=True), lambda lake, _: lake.create_index("t", "k", "bloom")),
    "rebuild": Change(lambda lake, *_: lake.rebuild("t")),
}


class _Watched:
    """An object of rocksdict."""

    def __init__(self, original: Any, count: Callable[[], None]) -> None:
        self._original, self._count = original, count

    def __getattr__(self, name: str) -> Any:
        if name in ("ingest_external_file", "finish", "close"):
            self._count()
        return getattr(self._original, name)

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self._original[key] = value

    def __contains__(self, key: bytes) -> bool:
        return key in self._original


class _Statements:
    """What a connection of SQLite executes. Changes that are not committed are nowhere: of those of one transaction, a
    kill before the first and before the commit shows the same as one before each."""

    def __init__(self, count: Callable[[], None]) -> None:
        self._count = count
        self._inside = self._changed = False

    def __call__(self, statement: str) -> None:
        text = statement.lstrip().upper()
        if text.startswith("BEGIN"):
            self._inside, self._changed = True, False
        elif text.startswith(("COMMIT", "ROLLBACK")):
            self._inside = False
            self._count()
        elif not text.startswith(_READS):
            if not (self._inside and self._changed):
                self._count()
            self._changed = True


@dataclass
class Points:
    """Counts points from the moment on that it is armed."""

    log: str
    killed_at: int | None
    armed: bool = False
    seen: int = 0

    def install(self) -> None:
        sys.addaudithook(self._on_event)
        self._wrap("SstFileWriter")
        self._wrap("Rdict")
        connect = sqlite3.connect

        def connected(*arguments: Any, **named: Any) -> sqlite3.Connection:
            made = connect(*arguments, **named)
            made.set_trace_callback(_Statements(self._count))
            return made

        sqlite3.connect = connected  # type: ignore[assignment]

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        is_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (is_write and str(arguments[0]) != self.log) or event in _CHANGES:
            self._count()

    def _wrap(self, name: str) -> None:
        """Count calls of methods that write. Classes of rocksdict have no subclasses."""
        original, count = getattr(rocksdict, name), self._count

        def make(*arguments: Any, **named: Any) -> Any:
            count()
            return _Watched(original(*arguments, **named), count)

        setattr(rocksdict, name, make)

    def _count(self) -> None:
        if self.armed:
            self.seen += 1
            if self.seen == self.killed_at:
                os.kill(os.getpid(), signal.SIGKILL)


def run(
    stores: Stores,
    name: str,
    log: str,
    killed_at: int | None,
    environment: dict[str, str],
    largest: int = resource.RLIM_INFINITY,
) -> None:
    """What the process does. It exits with 0 when the change happened or was refused with an error of ours. During the
    change, no file gets larger than `largest` bytes, as on a full disk."""
    os.environ.update(environment)
    logging.getLogger("needlepoint").setLevel(logging.CRITICAL)
    merge.FAN_OUT = BATCHES + 1  # in this process only: the next run makes a merge due
    points = Points(log, killed_at)
    points.install()
    with open(log, "ab", buffering=0) as notes:
        lake = prepare(stores)
        change = CHANGES[name]
        prepared = change.before(lake, stores)
        if lake.publisher is not None:  # the registry is a file
            lake.share()
        notes.write(b"armed\n")  # first: a thread that publishes may reach the point at once
        points.armed = True
        try:
            with limited_files(largest):
                change.make(lake, stores, prepared)
            notes.write(b"done\n")
        except NeedlepointError as error:
            notes.write(f"refused {type(error).__name__}: {error}\n".encode())
            _wait_until_it_works(lake)
        lake.close()
        points.armed = False
        notes.write(f"points {points.seen}\n".encode())


@contextlib.contextmanager
def limited_files(largest: int) -> Iterator[None]:
    """The system refuses what would make a file larger, with the error EFBIG. Python ignores the signal."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def read(stores: Stores, log: str, largest: int, cache: str, environment: dict[str, str]) -> None:
    """A reader on another machine, whose disk is full, and then not any more."""
    from tests.faults import compare

    os.environ.update(environment)
    logging.getLogger("needlepoint").setLevel(logging.CRITICAL)
    elsewhere = replace(stores, store=f"{cache}/none")
    with open(log, "ab", buffering=0) as notes:
        notes.write(b"armed\n")
        lake = None
        with contextlib.suppress(NeedlepointError), limited_files(largest):
            lake = elsewhere.open(read_only=True, cache=cache)
            compare(lake, {0, 1, 2})
        notes.write(b"done\n" if lake is not None else b"refused\n")
        lake = lake or elsewhere.open(read_only=True, cache=cache)
        compare(lake, {0, 1, 2})
        lake.close()


def _wait_until_it_works(lake: Lake) -> None:
    """The same open lake, when its servers are back."""
    for attempt in range(300):
        try:
            lake.sql("SELECT count(*) FROM t WHERE id = 1").rows()
            lake.sync("t")
            return
        except NeedlepointError:
            if attempt == 299:
                raise
            time.sleep(0.1)
