"""The settings of a lake, each with its environment variable: the only list of them in the code.

setting           variable                 default   meaning
store             NEEDLE_STORE                       directory of registry and indexes; without one, see stores/place.py
registry          NEEDLE_REGISTRY                    database of the registry: postgresql://…; else a file in the store
keys              NEEDLE_KEYS                        server for new key indexes, or lake: for leaf files in the lake;
                                                     without one, RocksDB in the lake's store
shared            NEEDLE_SHARED            auto      on: publish the registry in the lake, and read it from there; off;
                                                     auto: publish it in a bucket, and read it without a store
cache             NEEDLE_CACHE                       directory of what readers without a store fetch; without one, in
                                                     $XDG_CACHE_HOME/needlepoint, which is ~/.cache/needlepoint
pack_bytes        NEEDLE_PACK_BYTES        1 GiB     disk for pieces of packs, in that directory
queue             NEEDLE_QUEUE                       queue of events: sqs://name, postgresql://…; else in the store
refresh           NEEDLE_REFRESH           1.0       seconds a directory listing stays fresh
object_refresh    NEEDLE_OBJECT_REFRESH    60.0      seconds a listing of an object store stays fresh
index_memory      NEEDLE_INDEX_MEMORY      512 MiB   memory of one indexing process, in bytes
workers           NEEDLE_WORKERS           cores     processes that build indexes
cache_bytes       NEEDLE_CACHE_BYTES       256 MiB   memory for file cards, and as much for zone maps
block_bytes       NEEDLE_BLOCK_BYTES       256 MiB   memory for blocks of key indexes
dictionary_bytes  NEEDLE_DICTIONARY_BYTES  128 MiB   memory for decoded dictionaries
page_bytes        NEEDLE_PAGE_BYTES        64 MiB    memory for small pages of objects in a bucket
index_bytes       NEEDLE_INDEX_BYTES       256 MiB   memory for open indexes of single files
payload_bytes     NEEDLE_PAYLOAD_BYTES     1 GiB     largest payload of one file's index that is read, unpacked
unpacked_bytes    NEEDLE_UNPACKED_BYTES    16 GiB    disk for unpacked text indexes, under the lake's store
slow_seconds      NEEDLE_SLOW_SECONDS      0.0       warn of queries that take as many seconds; 0 is never
range_limit       NEEDLE_RANGE_LIMIT       20000     most entries a range reads from a key index
query_seconds     NEEDLE_QUERY_SECONDS     0.0       most seconds that a query may work; 0 is no limit
query_rows        NEEDLE_QUERY_ROWS        0         most rows of a result; 0 is no limit
query_memory      NEEDLE_QUERY_MEMORY      0         most memory of a query, in bytes; 0 is no limit
access            NEEDLE_ACCESS            auto      auto: the faster read; pages: by page if possible; scan: never
costs             NEEDLE_COSTS                       file with costs of reads, in place of those that calibrate keeps
history           NEEDLE_HISTORY           on        on: count what queries ask, without values, for advise; off
trust_embedded    NEEDLE_TRUST_EMBEDDED    false     true: use indexes that other writers embedded in files
unfinished        NEEDLE_UNFINISHED        skip      new files without a footer: skip leaves them out, error refuses
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from needlepoint.errors import UnknownName, UsageError

_HINT = "See docs/settings.md."

_WORDS = {int: "a number", float: "a number", str: "a text", bool: "true or false"}
_BOOLS = {"true": True, "on": True, "1": True, "yes": True, "false": False, "off": False, "0": False, "no": False}
_CHOICES = {
    "access": ("auto", "pages", "scan"),
    "history": ("on", "off"),
    "shared": ("auto", "on", "off"),
    "unfinished": ("skip", "error"),
}


class SettingOverrides(TypedDict, total=False):
    """The fields of Settings as keyword arguments, so that type checkers know their names. None means not given."""

    store: str | Path | None
    registry: str | None
    keys: str | None
    shared: str | None
    cache: str | Path | None
    pack_bytes: int | None
    queue: str | None
    refresh: float | None
    object_refresh: float | None
    index_memory: int | None
    workers: int | None
    cache_bytes: int | None
    block_bytes: int | None
    dictionary_bytes: int | None
    page_bytes: int | None
    index_bytes: int | None
    payload_bytes: int | None
    unpacked_bytes: int | None
    range_limit: int | None
    slow_seconds: float | None
    query_seconds: float | None
    query_rows: int | None
    query_memory: int | None
    access: str | None
    costs: str | None
    history: str | None
    trust_embedded: bool | None
    unfinished: str | None


@dataclass(frozen=True, slots=True)
class Settings:
    store: str = ""
    # Not shown: URLs may contain passwords.
    registry: str = field(default="", repr=False)
    keys: str = field(default="", repr=False)
    queue: str = field(default="", repr=False)
    shared: str = "auto"
    cache: str = ""
    pack_bytes: int = 1 << 30
    refresh: float = 1.0
    object_refresh: float = 60.0
    index_memory: int = 512 << 20
    workers: int = 0
    cache_bytes: int = 256 << 20
    block_bytes: int = 256 << 20
    dictionary_bytes: int = 128 << 20
    page_bytes: int = 64 << 20
    index_bytes: int = 256 << 20
    payload_bytes: int = 1 << 30
    unpacked_bytes: int = 16 << 30
    range_limit: int = 20_000
    slow_seconds: float = 0.0
    query_seconds: float = 0.0
    query_rows: int = 0
    query_memory: int = 0
    access: str = "auto"
    costs: str = ""
    history: str = "on"
    trust_embedded: bool = False
    unfinished: str = "skip"

    @classmethod
    def from_environment(cls, **given: Unpack[SettingOverrides]) -> Settings:
        """Environment variables over the defaults, arguments over both."""
        asked = [field.name for field in fields(cls) if given.get(field.name) is None]
        known = {name: os.environ.get(_variable(name)) for name in asked}
        found = {name: value for name, value in known.items() if value is not None}
        return cls()._with(found, _variable).override(**given)

    def override(self, **given: Unpack[SettingOverrides]) -> Settings:
        """A copy with these values; None leaves a setting as it is."""
        return self._with({name: value for name, value in given.items() if value is not None}, str)

    def _with(self, given: Mapping[str, object], source: Callable[[str], str]) -> Settings:
        """`source` names an argument or a variable in errors."""
        known = [field.name for field in fields(self)]
        for name in given:
            if name not in known:
                raise UnknownName("setting", name, known)
        return replace(self, **{name: self._checked(name, value, source(name)) for name, value in given.items()})

    def _checked(self, name: str, value: object, source: str) -> Any:
        """The value in the type of its setting."""
        kind, shown = type(getattr(self, name)), f"{source}={value!r}"
        try:
            found: Any = _as_bool(value) if kind is bool else kind(value)
        except (TypeError, ValueError):
            raise UsageError(f"{shown} is not {_WORDS[kind]}.", hint=_HINT) from None
        if found not in _CHOICES.get(name, (found,)):
            raise UsageError(f"{shown} is none of {', '.join(_CHOICES[name])}.", hint=_HINT)
        if not isinstance(found, str) and found < 0:
            raise UsageError(f"{shown} is negative.", hint=_HINT)
        return found

    @property
    def processes(self) -> int:
        return self.workers or os.cpu_count() or 1


def _variable(name: str) -> str:
    return f"NEEDLE_{name.upper()}"


def _as_bool(value: object) -> bool:
    """ValueError if it is neither true nor false.

    >>> _as_bool("on"), _as_bool("False"), _as_bool(1)
    (True, False, True)
    """
    text = str(value).strip().lower()
    if text not in _BOOLS:
        raise ValueError(text)
    return _BOOLS[text]
