"""The servers in which a lake keeps keys: which they are, their connections, and what they hold of the lake."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from needlepoint import forks
from needlepoint.errors import NeedlepointError, StoreError, UsageError
from needlepoint.indexes.leaf_stores import LEAF_FILES
from needlepoint.stores.keys import check_url, has_secrets, place_of, without_secrets
from needlepoint.tables import Index
from needlepoint.tables.registry import Registry

if TYPE_CHECKING:
    from needlepoint.stores.keys import BlockSpace, KeyServer

IN_LAKE_STORE = ""
"""The store of an index that is in RocksDB, in the store of the lake."""
_KNOWN = "key-servers"  # the file with the URLs of all servers that the lake has used

_log = logging.getLogger("needlepoint")


def store_of(index: Index) -> str:
    """The URL of the server that holds the entries of an index, without a password; or LEAF_FILES, or IN_LAKE_STORE."""
    return str(json.loads(index.options).get("store", IN_LAKE_STORE)) if "store" in index.options else IN_LAKE_STORE


def is_local(index: Index) -> bool:
    """Whether the entries of an index are in RocksDB, which only the machine with the lake's store can read."""
    return store_of(index) == IN_LAKE_STORE


def is_same_store(one: str, other: str) -> bool:
    """Whether two stores are the same; either can be IN_LAKE_STORE or LEAF_FILES."""
    if {one, other} & {IN_LAKE_STORE, LEAF_FILES}:
        return one == other
    return place_of(check_url(one)) == place_of(check_url(other))


class KeyServers:
    """Each server is opened when it is first used. Its password comes from the setting `keys`, if that is the same
    server, or from the environment."""

    def __init__(self, store: Path, registry: Registry, keys: str, identity: Callable[[], str]) -> None:
        """`identity` is that of the registry."""
        if keys and keys != LEAF_FILES:
            check_url(keys)
        self._store = store
        self._registry = registry
        self._keys = keys
        self._identity = identity
        self._open: dict[tuple[object, ...], KeyServer] = {}
        self._lock = threading.Lock()
        forks.own(self)

    def abandon(self) -> None:
        """In a child of the process that opened it: see forks.py."""
        for server in self._open.values():
            forks.leak(server)
        self._open, self._lock = {}, threading.Lock()

    def close(self) -> None:
        for server in self._open.values():
            server.close()

    @property
    def _lake(self) -> str:
        return self._identity()

    @property
    def uses_leaf_files(self) -> bool:
        """Whether an index of the lake is in leaf files, or was since the store was made."""
        return LEAF_FILES in self._known() or LEAF_FILES in map(store_of, self._registry.indexes.all())

    def declared(self, keeps_entries: bool, given: object) -> str:
        """The store of a new index, without a password, after a first request to it."""
        if not keeps_entries:
            if given is not None:
                raise UsageError("only a key index can have a store.", hint="Other indexes are in the lake's store.")
            return IN_LAKE_STORE
        url = self._keys if given is None else given
        if url == LEAF_FILES:
            self._remember(LEAF_FILES)
        if url in (IN_LAKE_STORE, LEAF_FILES):
            return str(url)
        url = check_url(url)
        if has_secrets(url) and not self._is_setting(url):
            raise UsageError(
                f"the URL of the store {without_secrets(url)} has a password, which the registry would keep.",
                hint="Write ${NAME} in its place, for an environment variable; or give it with the setting `keys`.",
            )
        self._server(url).ids(self._lake)
        self._remember(without_secrets(url))
        return without_secrets(url)

    def space(self, url: str, index_id: int) -> BlockSpace:
        return self._server(url).space(self._lake, index_id)

    def ids(self) -> dict[int, float]:
        """The indexes of the lake in all servers that answer, with the age of each in seconds."""
        found: dict[int, float] = {}
        for url in self._urls():
            try:
                found.update(self._server(url).ids(self._lake))
            except NeedlepointError as error:
                _log.info("%s", error)
        return found

    def destroy(self, index_id: int) -> None:
        """Remove the store of an index from all servers that answer; a sweep removes it from the others."""
        for url in self._urls():
            try:
                self._server(url).space(self._lake, index_id).destroy()
            except NeedlepointError as error:
                _log.warning("index %d stays in the store until a sweep: %s", index_id, error)

    def _is_setting(self, url: str) -> bool:
        return self._keys not in (IN_LAKE_STORE, LEAF_FILES) and place_of(url) == place_of(self._keys)

    def _server(self, url: str) -> KeyServer:
        from needlepoint.stores.keys import key_server

        place = place_of(url)
        with self._lock:
            if place not in self._open:
                self._open[place] = key_server(self._keys if self._is_setting(url) else url)
            return self._open[place]

    def _urls(self) -> list[str]:
        """Of all servers that may hold something of this lake, each once."""
        known = self._known()
        used = [store_of(index) for index in self._registry.indexes.all()]
        return list({place_of(url): url for url in (*known, *used) if url not in (IN_LAKE_STORE, LEAF_FILES)}.values())

    def _known(self) -> list[str]:
        try:
            return (self._store / _KNOWN).read_text().split()
        except FileNotFoundError:
            return []

    def _remember(self, url: str) -> None:
        """An index that is dropped while its server is away is still found there."""
        if url in self._known():
            return
        try:
            with (self._store / _KNOWN).open("a") as file:
                file.write(f"{url}\n")
        except OSError as error:
            raise StoreError(f"{self._store / _KNOWN} cannot be written: {error}.", hint="Is there room?") from error
