"""Open a path or URL. The object store driver is imported with the first URL."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from needlepoint import forks
from needlepoint.objects.base import Identity, OpenObject, is_url
from needlepoint.objects.cursor import Cursor
from needlepoint.objects.local import LocalFile, identify_file

Item = TypeVar("Item")
Made = TypeVar("Made")


def open_object(path: str, identity: Identity | None = None) -> OpenObject:
    """Open a file or object; an `identity` that is known spares an object store one request. FileNotFoundError when it
    is not there, for an object perhaps only when it is read."""
    if is_url(path):
        from needlepoint.objects.remote.s3 import RemoteObject

        return RemoteObject(path, identity)
    return LocalFile(path)


def identify(path: str) -> Identity:
    """The identity of the file or object now at `path`."""
    if is_url(path):
        from needlepoint.objects.remote.s3 import identify_object

        return identify_object(path)
    return identify_file(path)


def identify_all(paths: Sequence[str]) -> list[Identity | None]:
    """The identities of files now, None for those that are not there."""
    return concurrently(_identity_or_none, paths) if paths and is_url(paths[0]) else [*map(_identity_or_none, paths)]


def _identity_or_none(path: str) -> Identity | None:
    try:
        return identify(path)
    except FileNotFoundError:
        return None


def as_source(path: str, identity: Identity | None = None) -> str | io.RawIOBase:
    """What Parquet readers accept: the path of a local file, or a Python file over an object."""
    if is_url(path):
        return Cursor(open_object(path, identity))
    return path


def concurrently(function: Callable[[Item], Made], items: Iterable[Item]) -> list[Made]:
    """Apply a function to each item in threads, results in order: for waiting on an object store. Never nest it."""
    return list(_threads().map(function, items))


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """A pool of its own: its tasks wait for the threads of single requests."""
    return ThreadPoolExecutor(32, thread_name_prefix="needlepoint-object")


forks.reset(_threads.cache_clear)
