"""Replace a file or object by a new version made of parts of the old one and new bytes.

    pieces = [(0, 1000), b"new", (1200, 50)]        bytes 0 to 999 as they are, three new ones, bytes 1200 to 1249

A reader sees either the old version or the new one: a file is written beside its place, synced and renamed; an object
becomes visible when its upload is complete. A writer that dies leaves the old version, and perhaps a hidden file beside
it; the next replacement of the file, or `sweep_copies`, removes that.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from needlepoint import forks
from needlepoint.errors import FileError
from needlepoint.objects.base import Identity, OpenObject, changed, is_url
from needlepoint.objects.local import LocalFile, identify_file
from needlepoint.objects.opening import open_object

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

Piece = bytes | tuple[int, int]

# Hidden from listings, Spark and globs of *.parquet alike.
SUFFIX = ".needlepoint"
COPIED_AT_ONCE = 8 << 20
# Temporary names of replacements, and of copies of published files: hidden, with a token.
_COPY = re.compile(r"\.(?:(.+)\.[0-9a-f]{16}\.needlepoint|(part-\d{5}-[0-9a-f]{32}\.parquet)\.[0-9a-f]{32})")
# Where the kernel does not copy between these files, for whatever reason of the file system
_NO_KERNEL_COPY = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF}


@contextmanager
def open_to_replace(path: str, identity: Identity | None = None) -> Iterator[OpenObject]:
    """The file or object at `path`, to be read and then replaced; FileChanged when it is another than `identity`.

    Processes that replace the same local file wait for each other, and each sees the version of the one before.
    """
    with open_object(path, identity) if is_url(path) else _locked(path) as file:
        locked = file.descriptor if isinstance(file, LocalFile) else -1
        try:
            if identity is not None and file.identity != identity:
                raise changed(path, identity, file.identity)
            yield file
        finally:
            forks.unlock(locked)


def replace(file: OpenObject, pieces: Sequence[Piece]) -> Identity:
    """Replace an open file from `open_to_replace` by the concatenated pieces; returns the new identity.

    FileChanged when the file is no longer the open one.
    """
    if is_url(file.path):
        from needlepoint.objects.remote.s3 import replace_object

        return replace_object(file, pieces)
    assert isinstance(file, LocalFile)
    try:
        return _replace_file(file, pieces)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise FileError(
            file.path, f"it cannot be replaced: {reason}", hint="Check permissions and free space; nothing was changed."
        ) from error


def _locked(path: str) -> LocalFile:
    while True:
        try:
            file = LocalFile(os.path.realpath(path))  # the target of a link is replaced, not the link
        except FileNotFoundError:
            raise
        except OSError as error:
            raise FileError(path, (error.strerror or str(error)).lower(), hint="Check its permissions.") from error
        if fcntl is None:
            return file
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file.descriptor, fcntl.LOCK_EX)
            file.identity = file.current()
            if os.path.samestat(os.fstat(file.descriptor), os.stat(file.path)):  # noqa: PTH116
                forks.lock(file.descriptor)
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # it was replaced while this one waited


def _replace_file(file: LocalFile, pieces: Sequence[Piece]) -> Identity:
    place = Path(file.path)
    _sweep(place)
    beside = place.with_name(f".{place.name}.{secrets.token_hex(8)}{SUFFIX}")
    found = os.fstat(file.descriptor)
    target = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        try:
            for piece in pieces:
                if isinstance(piece, bytes):
                    _write(target, piece)
                else:
                    _copy(file.descriptor, *piece, target)
            with contextlib.suppress(OSError):  # only root gives files away
                os.fchown(target, found.st_uid, found.st_gid)
            os.fchmod(target, found.st_mode & 0o7777)
            os.fsync(target)
            made = os.fstat(target)
        finally:
            os.close(target)
        current = identify_file(file.path)
        if current != file.identity or file.current() != file.identity:
            raise changed(file.path, file.identity, current)
        # Spark would refuse the new bytes because of Hadoop's checksum of the old ones. A file without a checksum is
        # fine, so it is removed first.
        place.with_name(f".{place.name}.crc").unlink(missing_ok=True)
        beside.replace(place)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _sync_directory(place.parent)
    return _identity_in_place(place, made)


def _identity_in_place(place: Path, made: os.stat_result) -> Identity:
    """The identity of what was written, not of the current file, which may be a newer version already. The rename
    changed the ctime."""
    with contextlib.suppress(FileNotFoundError):
        now = place.stat()
        if os.path.samestat(now, made) and now.st_mtime_ns == made.st_mtime_ns:
            return Identity.of(now)
    return Identity(made.st_size, made.st_mtime_ns)


def _sweep(place: Path) -> None:
    """Remove what a dead writer left beside the file. A live one holds the lock."""
    if fcntl is None:
        return
    prefix = f".{place.name}."
    for name in _leftovers(str(place.parent)):
        if name.startswith(prefix) and len(name) == len(prefix) + 16 + len(SUFFIX):
            (place.parent / name).unlink(missing_ok=True)


def sweep_copies(directory: str, coming: Callable[[], Collection[str]]) -> int:
    """Remove unfinished copies of dead writers in a directory and below it. Returns how many.

    `coming` returns the paths, relative to the directory, of files that may be arriving. It is called after the copies
    are found, so that it includes those of live writers.
    """
    found = [
        (os.path.join(place, name), os.path.relpath(os.path.join(place, match[1] or match[2]), directory))  # noqa: PTH118
        for place, _, names in os.walk(directory)
        for name in names
        if (match := _COPY.fullmatch(name)) is not None
    ]
    if not found or fcntl is None:
        return 0
    expected = coming()
    dead = [copy for copy, path in found if path not in expected and not _is_locked(f"{directory}/{path}")]
    for copy in dead:
        Path(copy).unlink(missing_ok=True)
    return len(dead)


def _is_locked(path: str) -> bool:
    """Whether a file is being replaced."""
    try:
        with Path(path).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:  # it is locked, or that is unknown
        return True
    return False


@functools.lru_cache(64)
def _leftovers(directory: str) -> tuple[str, ...]:
    """Listed once per process: otherwise each file of a large directory would list all the others again."""
    return tuple(name for name in os.listdir(directory) if name.endswith(SUFFIX))  # noqa: PTH208


def _write(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


def _copy(source: int, offset: int, length: int, target: int) -> None:
    """Bytes of one file to the end of the other, by the kernel where it can, else in parts."""
    end = offset + length
    copy: Callable[[int, int, int, int], int] | None = getattr(os, "copy_file_range", None)
    while offset < end:
        done = 0
        if copy is not None:
            try:
                done = copy(source, target, min(end - offset, 1 << 30), offset)
            except OSError as error:
                if error.errno not in _NO_KERNEL_COPY:
                    raise
                copy = None
                continue
        if not done:
            data = os.pread(source, min(end - offset, COPIED_AT_ONCE), offset)
            if not data:
                raise OSError(errno.EIO, "the file became shorter while it was copied")
            _write(target, data)
            done = len(data)
        offset += done


def _sync_directory(directory: Path) -> None:
    with contextlib.suppress(OSError):  # not every file system lets a directory be synced
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
