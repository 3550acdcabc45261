"""A lake belongs to the process that opened it, and not to a child that `os.fork` makes of it.

A fork copies one thread and no other, and shares the open files. In a child, what DataFusion and RocksDB do in threads
of their own never ends. SQLite takes locks for its own that only the parent has. And what is closed or collected there
writes to files of the parent, or waits for threads that are not there. So in a child

    lakes          answer with a clear error, whatever is asked of them, and closing them does nothing
    handles        of the libraries are never closed, not even when the process ends
    locks          are let go: a lock lasts until the last process closes its file, and a child may live long
    new lakes      are refused: the threads of DataFusion are there once in a process, and cannot be started again

Nothing is checked while the parent works; the system says when a process is forked.
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
        """Called in a child of the process that it belongs to: leak what must not be closed, answer no more."""


_owned: weakref.WeakSet[Any] = weakref.WeakSet()
_locks: set[int] = set()
_resets: list[Callable[[], object]] = []
_begun = _lost = False
_library: ctypes.CDLL | None = None


def begin() -> None:
    """Called before a library starts threads; UsageError where they cannot run, since a parent has started them."""
    global _begun, _library
    if _lost:
        _refuse("a lake was opened before this process was forked, and its parent's threads are not in it.")
    if not _begun:
        _library = ctypes.CDLL(None) if os.name == "posix" else None
        _begun = True


def own(what: ForkAware) -> None:
    """A child abandons it."""
    _owned.add(what)


def reset(function: Callable[[], object]) -> None:
    """Call the function in a child: for what is kept for the whole process, such as threads."""
    _resets.append(function)


def lock(descriptor: int) -> None:
    """An open file that is locked; a child closes it, which leaves the lock to this process. Until `unlock`."""
    _locks.add(descriptor)


def unlock(descriptor: int) -> None:
    """Called before the file is closed: its number is another file's after that."""
    _locks.discard(descriptor)


def leak(handle: object) -> None:
    """Never destroy an object, not even when the interpreter ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))


class AbandonedHandle:
    """What stands in a child in the place of a part of a lake: every use is a UsageError."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse("this lake was opened before the process was forked, and belongs to the parent.")

    def close(self) -> None:
        """The parent closes it."""


class OwnDirectory:
    """A temporary directory that is removed by the process that made it, and by none of its children."""

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
    """When the process ends, RocksDB waits for its threads, of which a child has none: it crashes, or hangs. What is
    registered last runs first: `_exit` ends the process before that, with its status. Python is through by then; what
    others have printed by C is written out."""
    library: Any = _library
    with contextlib.suppress(AttributeError):  # macOS has no on_exit
        library.on_exit(library._exit, None)
        library.atexit(library.fcloseall)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
