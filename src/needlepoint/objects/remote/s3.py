"""Objects in S3 and compatible stores, through obstore.

Every read carries the ETag of its version: a replaced object answers with an error, never with bytes of the new
version. Credentials, region and endpoint come from the usual AWS_* variables; retries and
timeouts are the driver's.
"""

from __future__ import annotations

import bisect
import errno
import functools
import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotModifiedError,
    NotSupportedError,
    PreconditionError,
)
from obstore.store import S3Store

from needlepoint import forks
from needlepoint.errors import NeedlepointError
from needlepoint.objects.base import Identity, OpenObject, changed, is_nameable, too_short
from needlepoint.objects.errors import invalid_path, object_store_error
from needlepoint.objects.ranges import REMOTE_GAP, Block, coalesce, cut, split
from needlepoint.objects.remote.urls import SCHEME, endpoint, refuse_credentials, split_url

if TYPE_CHECKING:
    from obstore import Attributes, GetOptions, ObjectMeta
    from obstore.store import RetryConfig

# Concurrent requests of all reads together. They wait for the network, not for a core.
REQUESTS_AT_ONCE = 32
# Each sends up to four parts at once, and holds some 50 MB for it.
_uploads = threading.BoundedSemaphore(8)
# The end of a Parquet file is read more than once: for its footer, and for the page indexes before it.
LONGEST_TAIL = 1 << 20
LIST_PAGE = 1000  # the most that one list request returns
# An object up to this size is replaced by one request, which carries a condition; a larger one in parts.
LARGEST_PUT = 64 << 20
PUT_PART = 16 << 20
MOST_PARTS = 9000  # S3 takes 10,000
LARGEST_COPY = 5 * 10**9

_RETRIES: RetryConfig = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}
_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ALLOW_HTTP",
)


def store_of(bucket: str) -> S3Store:
    """The store of a bucket, cached for as long as the variables stay the same."""
    refuse_credentials(bucket)
    return _store(bucket, tuple(map(os.environ.get, _VARIABLES)))


@functools.lru_cache(64)
def _store(bucket: str, environment: tuple[str | None, ...]) -> S3Store:
    address, allow_http = endpoint()
    try:
        return S3Store(
            bucket,
            config={"endpoint": address} if address else {},
            client_options={"allow_http": allow_http, "connect_timeout": "5s", "timeout": "60s"},
            retry_config=_RETRIES,
        )
    except (BaseError, ValueError) as error:
        raise object_store_error(SCHEME + bucket, str(error)) from None


@functools.cache
def _requests() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="needlepoint-request")


forks.reset(_requests.cache_clear)


def _identity(found: ObjectMeta) -> Identity:
    # Some stores quote the ETag in one place and not in another.
    etag = (found["e_tag"] or "").strip('"')
    return Identity(found["size"], int(found["last_modified"].timestamp()) * 10**9, etag)


def identify_object(url: str) -> Identity:
    bucket, key = split_url(url)
    try:
        return _identity(obstore.head(store_of(bucket), key))
    except (BaseError, OSError, ValueError) as error:
        _refuse(url, error)


def _refuse(url: str, error: Exception) -> NoReturn:
    """Without the driver's error as the cause: its message contains secrets."""
    if isinstance(error, FileNotFoundError):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url) from None
    raise object_store_error(url, str(error)) from None


def list_objects(url: str, passed_over: list[str] | None = None) -> Iterator[tuple[str, Identity]]:
    """Paths below `url`, relative to it, with their identities; `s3://b/a` holds nothing of `s3://b/ab`.

    S3 allows keys that no reader can open (see `is_nameable`). They are added to `passed_over`.
    """
    bucket, prefix = split_url(url)
    start = len(prefix) + 1 if prefix else 0
    last = ""
    keys: list[str] | None = None
    while True:
        try:
            pages = obstore.list(
                store_of(bucket), f"{prefix}/" if prefix else None, offset=last or None, chunk_size=LIST_PAGE
            )
            for page in pages:
                for found in page:
                    last = found["path"]
                    yield last[start:], _identity(found)
            return
        except InvalidPathError as error:
            # The driver fails for a whole page with such a key. Another driver lists the keys; each key of the page is
            # requested by itself, and the listing continues behind it.
            keys = _all_keys(url, error) if keys is None else keys
            if (key := invalid_path(str(error))) not in keys:
                bisect.insort(keys, key)  # pyarrow treats a key that ends with two slashes as a directory
            known, unnamed = _around(keys, last)
            if passed_over is not None:
                passed_over += [key[start:] for key in unnamed]
            urls = [f"{SCHEME}{bucket}/{key}" for key in known]
            for key, identity in zip(known, _requests().map(_identity_or_none, urls), strict=True):
                if identity is not None:
                    yield key[start:], identity
            if not unnamed or not known or known[-1] < unnamed[-1]:
                return  # no key is left
            last = known[-1]
        except (BaseError, OSError, ValueError) as error:
            raise object_store_error(url, str(error)) from None


def _around(keys: Sequence[str], last: str) -> tuple[list[str], list[str]]:
    """Of sorted keys behind the `last` listed one: the valid keys up to the first behind the next invalid ones, and
    these invalid ones.

    >>> _around(["a", "b", "b//c", "b//d", "e", "f"], "a")
    (['b', 'e'], ['b//c', 'b//d'])
    """
    known: list[str] = []
    unnamed: list[str] = []
    for key in keys:
        if key <= last:
            continue
        if not is_nameable(key):
            unnamed.append(key)
        else:
            known.append(key)
            if unnamed:
                break
    return known, unnamed


def _all_keys(url: str, error: Exception) -> list[str]:
    """All keys in the order of S3, also those that the driver cannot represent. pyarrow is slower and has no ETags."""
    from pyarrow import fs

    address, _ = endpoint()
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    try:
        store = fs.S3FileSystem(endpoint_override=address, region=region)
        found = store.get_file_info(fs.FileSelector("/".join(filter(None, split_url(url))), recursive=True))
    except (OSError, ValueError):
        raise object_store_error(url, str(error)) from None
    keys = [each.path.partition("/")[2] for each in found if each.type == fs.FileType.File]
    below = f"{split_url(url)[1]}/".removeprefix("/")
    return sorted(key for key in keys if key.startswith(below))


def _identity_or_none(url: str) -> Identity | None:
    try:
        return identify_object(url)
    except FileNotFoundError:
        return None


class RemoteObject:
    """One version of an object. Opening it with a known identity sends no request.

    Of an object that never changes the size is enough, as `Identity(size, 0)`: the first read then tells its ETag.
    """

    __slots__ = ("_key", "_store", "_tail", "bytes_requested", "identity", "path", "requests")

    def __init__(self, url: str, identity: Identity | None = None) -> None:
        self.path = url
        bucket, self._key = split_url(url)
        self._store = store_of(bucket)
        self.identity = identify_object(url) if identity is None else identity
        self.requests = 0
        self.bytes_requested = 0
        self._tail = b""

    def __enter__(self) -> RemoteObject:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._tail = b""

    @property
    def size(self) -> int:
        return self.identity.size

    def check_unchanged(self, identity: Identity) -> None:
        """The store compared ETags on every read. A store without ETags is queried now."""
        current = self.identity if self.identity.etag else identify_object(self.path)
        if current != identity:
            raise changed(self.path, identity, current)

    def sample(self) -> str:
        return ""

    def read(self, offset: int, length: int) -> bytes:
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Ranges near each other share a request, long ones are split, and all requests run concurrently."""
        for offset, length in ranges:
            if offset < 0 or length < 0 or offset + length > self.size:
                raise too_short(self.path, self.size, offset, length)
        blocks = coalesce(ranges, REMOTE_GAP)
        parts = [part for block in blocks if not self._held(block) for part in split(block.start, block.end)]
        fetched = dict(zip(parts, self._fetch(parts), strict=True))
        return cut(ranges, blocks, lambda block: self._joined(block, fetched))

    def _held(self, block: Block) -> bool:
        return block.start >= self.size - len(self._tail)

    def _joined(self, block: Block, fetched: dict[tuple[int, int], bytes]) -> bytes:
        if self._held(block):
            start = len(self._tail) - self.size
            return self._tail[block.start + start : block.end + start]
        parts = [fetched[part] for part in split(block.start, block.end)]
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if block.end == self.size and len(self._tail) < len(data) <= LONGEST_TAIL:
            self._tail = data
        return data

    def _fetch(self, parts: Sequence[tuple[int, int]]) -> list[bytes]:
        self.requests += len(parts)
        self.bytes_requested += sum(end - start for start, end in parts)
        return [self._get(part) for part in parts] if len(parts) < 2 else [*_requests().map(self._get, parts)]

    def _get(self, part: tuple[int, int]) -> bytes:
        options: GetOptions = {"range": part}
        if self.identity.etag:
            options["if_match"] = f'"{self.identity.etag}"'
        try:
            answer = obstore.get(self._store, self._key, options=options)
            found, data = _identity(answer.meta), answer.bytes().to_bytes()
        except PreconditionError:
            raise changed(self.path, self.identity) from None
        except (BaseError, OSError, ValueError) as error:
            _refuse(self.path, error)
        if not (self.identity.etag or self.identity.mtime_ns) and found.size == self.identity.size:
            self.identity = found
        elif found != self.identity:  # a store that ignores conditions
            raise changed(self.path, self.identity, found)
        if len(data) != part[1] - part[0]:
            raise too_short(self.path, self.size, part[0], part[1] - part[0])
        return data


def upload(path: str, url: str) -> None:
    """Upload a local file; the object becomes visible when it is complete."""
    bucket, key = split_url(url)
    with _uploads, open(path, "rb") as file:
        part = max(PUT_PART, os.fstat(file.fileno()).st_size // MOST_PARTS)
        try:
            obstore.put(store_of(bucket), key, file, chunk_size=part, max_concurrency=4)
        except (BaseError, OSError, ValueError) as error:
            raise object_store_error(url, str(error)) from None


def get_if_changed(url: str, known: Identity | None) -> tuple[bytes, Identity] | None:
    """A whole object and its identity; None if it is still the known version."""
    bucket, key = split_url(url)
    options: GetOptions = {"if_none_match": f'"{known.etag}"'} if known is not None and known.etag else {}
    try:
        answer = obstore.get(store_of(bucket), key, options=options)
        return answer.bytes().to_bytes(), _identity(answer.meta)
    except NotModifiedError:
        return None
    except (BaseError, OSError, ValueError) as error:
        _refuse(url, error)


def get_parts(url: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """The bytes of each `(offset, length)` of an object that never changes, whose size is not known."""
    bucket, key = split_url(url)
    blocks = coalesce(ranges, REMOTE_GAP)
    parts = [part for block in blocks for part in split(block.start, block.end)]
    store = store_of(bucket)

    def fetch(part: tuple[int, int]) -> bytes:
        try:
            return obstore.get(store, key, options={"range": part}).bytes().to_bytes()
        except (BaseError, OSError, ValueError) as error:
            _refuse(url, error)

    found = [fetch(part) for part in parts] if len(parts) < 2 else [*_requests().map(fetch, parts)]
    fetched = dict(zip(parts, found, strict=True))
    return cut(ranges, blocks, lambda block: b"".join(fetched[part] for part in split(block.start, block.end)))


def put_on_condition(url: str, data: bytes, known: Identity | None) -> Identity | None:
    """Put an object in the place of the known version, or where none is; None, with nothing written, if another is."""
    bucket, key = split_url(url)
    try:
        done = obstore.put(
            store_of(bucket),
            key,
            data,
            mode="create" if known is None else {"e_tag": f'"{known.etag}"'},
            use_multipart=False,
        )
    except (AlreadyExistsError, PreconditionError, FileNotFoundError):
        return None
    except (BaseError, OSError, ValueError) as error:
        if "ConditionalRequestConflict" in str(error):  # another conditional PUT is under way
            return None
        raise object_store_error(url, str(error)) from None
    etag = (done["e_tag"] or "").strip('"')
    return Identity(len(data), time.time_ns(), etag) if etag else identify_object(url)


def copy_object(source: str, target: str) -> None:
    """Copy inside the store and the bucket. S3 copies no object above 5 GB in one request, and the driver cannot copy
    parts, so larger objects are read and uploaded again."""
    bucket, key = split_url(target)
    with RemoteObject(source) as file:
        try:
            if file.size <= LARGEST_COPY:
                obstore.copy(store_of(bucket), split_url(source)[1], key)
            else:
                _send_again(file, store_of(bucket), key)
        except NeedlepointError:
            raise
        except (BaseError, OSError, ValueError) as error:
            _refuse(source, error)


def _send_again(file: RemoteObject, store: S3Store, key: str) -> None:
    part = max(PUT_PART, file.size // MOST_PARTS)
    with _uploads:
        upload = obstore.open_writer(store, key, buffer_size=part, max_concurrency=4)
        for start in range(0, file.size, part):
            upload.write(file.read(start, min(part, file.size - start)))
        upload.close()


def delete_objects(urls: Sequence[str]) -> None:
    """Remove objects of one bucket; missing ones are fine."""
    if not urls:
        return
    try:
        obstore.delete(store_of(split_url(urls[0])[0]), [split_url(url)[1] for url in urls])
    except FileNotFoundError:
        return
    except (BaseError, OSError, ValueError) as error:
        raise object_store_error(urls[0], str(error)) from None


def replace_object(file: OpenObject, pieces: Sequence[bytes | tuple[int, int]]) -> Identity:
    """Replace an open object by the concatenated pieces; returns the new identity.

    S3 cannot append, and obstore cannot copy a part of an object inside the store: the bytes that stay are read, on
    condition of the opened version, and uploaded again, a few parts in memory at a time. A small object is uploaded on
    condition that it replaces that version. A multipart upload has no such condition; the version is checked just
    before it is completed.
    """
    bucket, key = split_url(file.path)
    store = store_of(bucket)
    size = sum(len(piece) if isinstance(piece, bytes) else piece[1] for piece in pieces)
    try:
        attributes = obstore.get(store, key, options={"head": True}).attributes
        etag = _put_whole(store, key, file, pieces, attributes) if size <= LARGEST_PUT else None
        if etag:
            # The identity of this upload, not of the current object: another writer may have replaced it already.
            return Identity(size, time.time_ns(), etag.strip('"'))
        if etag is None:
            _put_parts(store, key, file, pieces, max(PUT_PART, size // MOST_PARTS), attributes)
    except NeedlepointError:
        raise
    except PreconditionError:
        raise changed(file.path, file.identity) from None
    except (BaseError, OSError, ValueError) as error:
        _refuse(file.path, error)
    return identify_object(file.path)


def _put_whole(
    store: S3Store, key: str, file: OpenObject, pieces: Sequence[bytes | tuple[int, int]], attributes: Attributes
) -> str | None:
    """The ETag, empty if the store gives none; None, with nothing written, from a store without conditions."""
    if not file.identity.etag:
        return None
    data = b"".join(piece if isinstance(piece, bytes) else file.read(*piece) for piece in pieces)
    try:
        done = obstore.put(
            store, key, data, attributes=attributes, mode={"e_tag": f'"{file.identity.etag}"'}, use_multipart=False
        )
    except NotSupportedError:
        return None
    except BaseError as error:
        if "NotImplemented" in str(error):
            return None
        raise
    return done["e_tag"] or ""


def _put_parts(
    store: S3Store,
    key: str,
    file: OpenObject,
    pieces: Sequence[bytes | tuple[int, int]],
    part: int,
    attributes: Attributes,
) -> None:
    # Only closing completes the upload: after an error it is not closed, and the uploaded parts stay hidden until the
    # bucket's rule for incomplete uploads removes them.
    upload = obstore.open_writer(store, key, attributes=attributes, buffer_size=part, max_concurrency=4)
    for piece in pieces:
        if isinstance(piece, bytes):
            upload.write(piece)
            continue
        offset, length = piece
        for start in range(offset, offset + length, part):
            upload.write(file.read(start, min(part, offset + length - start)))
    current = identify_object(file.path)
    if current != file.identity:
        raise changed(file.path, file.identity, current)
    upload.close()
