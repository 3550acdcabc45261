"""A lake belongs to the process that opened it, not to its forked children.

A fork copies only the calling thread, and shares open files. In a child, the threads of DataFusion and RocksDB do not
exist, so waiting for them never ends. SQLite assumes locks that only the parent holds. And closing or collecting an
object writes to files of the parent, or waits for missing threads. So in a child

    lakes          raise a clear error on every use, and closing them does nothing
    handles        of libraries are never closed, not even at exit
    locks          are released: a lock lasts until the last process closes its file, and a child may live long
    new lakes      are refused: DataFusion starts its threads once per process, and cannot start them again

Nothing is checked while the parent works; the system calls a hook in the child.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, Protocol

from needlepoint.errors import UsageError

_HINT = (
    "Start processes by multiprocessing.get_context('spawn') or 'forkserver' and open the lake in each of them, "
    "or fork before the first lake is opened."
)


class ForkAware(Protocol):
    def abandon(self) -> None:
        """Called in a forked child: leak what must not be closed, and refuse further use."""


_owned: weakref.WeakSet[Any] = weakref.WeakSet()
_locks: set[int] = set()
_resets: list[Callable[[], object]] = []
_begun = _lost = False
_library: ctypes.CDLL | None = None


def begin() -> None:
    """Call before a library starts threads; UsageError in a child whose parent started them."""
    global _begun, _library
    if _lost:
        _refuse("a lake was opened before this process was forked, and its threads do not exist in the child.")
    if not _begun:
        _library = ctypes.CDLL(None) if os.name == "posix" else None
        _begun = True


def own(what: ForkAware) -> None:
    """Call its `abandon` in a child."""
    _owned.add(what)


def reset(function: Callable[[], object]) -> None:
    """Call the function in a child: for process-wide state, such as threads."""
    _resets.append(function)


def lock(descriptor: int) -> None:
    """Register a locked file until `unlock`; a child closes it, so that only this process keeps the lock."""
    _locks.add(descriptor)


def unlock(descriptor: int) -> None:
    """Call before the file is closed: its number may be reused after that."""
    _locks.discard(descriptor)


def leak(handle: object) -> None:
    """Never destroy an object, not even at exit."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))


class AbandonedHandle:
    """Replaces a part of a lake in a child: every use is a UsageError."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse("this lake was opened before the process was forked, and belongs to the parent.")

    def close(self) -> None:
        """The parent closes it."""


class OwnDirectory:
    """A temporary directory that only the process that created it removes, not its children."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp(prefix="needlepoint-")
        self._remove = weakref.finalize(self, _remove, self.name, os.getpid())

    def __enter__(self) -> str:
        return self.name

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def remove(self) -> None:
        self._remove()


def _remove(directory: str, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(directory, ignore_errors=True)


def _refuse(why: str) -> NoReturn:
    raise UsageError(why, hint=_HINT)


def _in_child() -> None:
    global _lost
    for descriptor in _locks:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _locks.clear()
    for what in list(_owned):
        leak(what)
        what.abandon()
    for function in _resets:
        function()
    if _begun and not _lost:
        _lost = True
        _end_without_libraries()


def _end_without_libraries() -> None:
    """At exit RocksDB waits for its threads, which a child does not have: it crashes or hangs. The handler registered
    last runs first: `_exit` ends the process before that, with its status. Python has finished by then; C buffers are
    flushed."""
    library: Any = _library
    with contextlib.suppress(AttributeError):  # macOS has no on_exit
        library.on_exit(library._exit, None)
        library.atexit(library.fcloseall)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
