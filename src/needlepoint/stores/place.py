"""The directory of a lake's store: its registry, indexes, queue and staging.

    lake                 .needlepoint in it
    s3://bucket/lake     s3%3A%2F%2Fbucket%2Flake in $XDG_DATA_HOME/needlepoint, which is ~/.local/share/needlepoint

or the setting `store`. A store belongs to one lake; a store outside its lake has a file that names the lake.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path
from urllib.parse import quote

from needlepoint.errors import FileError, StoreError, UsageError
from needlepoint.objects import is_url, put_if_unchanged, read_if_changed, sync_file

IN_LAKE = ".needlepoint"
IDENTITY = "identity"  # the file with the random id of the lake, by which servers know its indexes
OWNER = "lake"  # the file with the root of the lake that the store belongs to

_LONGEST_NAME = 200  # file systems take 255 bytes


def store_directory(root: Path | str, chosen: str) -> Path:
    """The store of a lake; `chosen` is the setting."""
    if is_url(chosen):
        scheme = chosen.partition("://")[0]
        raise UsageError(
            f"the store cannot be in {scheme}://…", hint="This version keeps the store in a directory: name one."
        )
    if chosen:
        return Path(chosen).expanduser().resolve()
    if isinstance(root, Path):
        return root / IN_LAKE
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser().resolve() / "needlepoint" / store_name(root)


def store_name(url: str) -> str:
    """A file name for the URL, and for no other.

    >>> store_name("s3://bucket/lake")
    's3%3A%2F%2Fbucket%2Flake'
    """
    name = quote(url, safe="")
    if len(name) <= _LONGEST_NAME:
        return name
    # A quoted URL has no '+'.
    return f"{name[:_LONGEST_NAME]}+{hashlib.blake2s(url.encode(), digest_size=16).hexdigest()}"


def claim(store: Path, root: Path | str, *, make: bool = False) -> None:
    """Record the lake of a store; UsageError when the store belongs to another lake. One inside its lake, which moves
    with it, is made by whoever writes there first, or here."""
    inside = isinstance(root, Path) and store == root / IN_LAKE
    if inside and not make:
        return
    try:
        store.mkdir(parents=True, exist_ok=True)
        if inside:
            return
        try:
            with open(store / OWNER, "x") as file:
                file.write(f"{root}\n")
        except FileExistsError:
            check_owner(store, root)
    except OSError as error:
        raise StoreError(f"the store {store} cannot be used: {error}.", hint="Is its directory writable?") from error


def check_owner(store: Path, root: Path | str) -> None:
    """UsageError when the store belongs to another lake."""
    if isinstance(root, Path) and store == root / IN_LAKE:
        return
    owner = (store / OWNER).read_text().strip() if (store / OWNER).exists() else ""
    # Empty: the process that made it is just about to write, or died.
    if owner not in ("", str(root)):
        raise UsageError(
            f"{store} is the store of the lake {owner}, not of {root}.",
            hint=f"Name another directory; or, if the lake was moved, change its file '{OWNER}'.",
        )


def set_lake_identity(store: Path, identity: str) -> None:
    """Give a store the id of another registry, of which it gets a copy."""
    beside = store / f".{IDENTITY}.{secrets.token_hex(8)}"
    try:
        beside.write_text(f"{identity}\n")
        sync_file(beside)
        beside.replace(store / IDENTITY)
        sync_file(store)
    except OSError as error:
        raise StoreError(f"{store / IDENTITY} cannot be written: {error}.", hint="Check its permissions.") from error


def lake_identity(store: str) -> str:
    """The random id of a store; made when it is first asked for. Two lakes that share a server differ in it; a copy of
    a lake does not, until its file is removed."""
    path = f"{store}/{IDENTITY}"
    try:
        while True:
            with contextlib.suppress(FileNotFoundError):
                found = read_if_changed(path, None)
                assert found is not None
                return found.data.decode().strip()
            put_if_unchanged(path, f"{secrets.token_hex(8)}\n".encode(), None)  # the first process wins
    except (OSError, FileError) as error:
        raise StoreError(f"{path} cannot be used: {error}.", hint="Check its permissions.") from error
