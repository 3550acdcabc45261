"""The settings of a lake, each with its environment variable.

setting           variable                 default   meaning
store             NEEDLE_STORE                       directory of registry and indexes; without one, see stores/place.py
queue             NEEDLE_QUEUE                       queue of events: sqs://name; without one, in the lake's store
refresh           NEEDLE_REFRESH           1.0       seconds a directory listing stays fresh
object_refresh    NEEDLE_OBJECT_REFRESH    60.0      seconds a listing of an object store stays fresh
index_memory      NEEDLE_INDEX_MEMORY      512 MiB   memory of one indexing process, in bytes
workers           NEEDLE_WORKERS           cores     processes that build indexes
cache_bytes       NEEDLE_CACHE_BYTES       256 MiB   memory for file cards, and as much for zone maps
dictionary_bytes  NEEDLE_DICTIONARY_BYTES  128 MiB   memory for decoded dictionaries
page_bytes        NEEDLE_PAGE_BYTES        64 MiB    memory for small pages of objects in a bucket
index_bytes       NEEDLE_INDEX_BYTES       256 MiB   memory for open indexes of single files
payload_bytes     NEEDLE_PAYLOAD_BYTES     1 GiB     largest payload of one file's index that is read, unpacked
unpacked_bytes    NEEDLE_UNPACKED_BYTES    16 GiB    disk for unpacked text indexes, under the lake's store
range_limit       NEEDLE_RANGE_LIMIT       20000     most entries a range reads from a key index
access            NEEDLE_ACCESS            auto      auto: what is faster; pages: by page where it can be; scan: never
costs             NEEDLE_COSTS                       file with costs measured here, as benchmarks/calibrate.py writes it
history           NEEDLE_HISTORY           on        on: what queries ask is counted, without values, for advise; off
trust_embedded    NEEDLE_TRUST_EMBEDDED    false     true: indexes that others embedded in files are believed
unfinished        NEEDLE_UNFINISHED        skip      skip: new files without a footer are passed over; error: refused
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from typing import Any

from needlepoint.errors import UsageError

_WORDS = {int: "a number", float: "a number", str: "a text", bool: "true or false"}
_BOOLS = {"true": True, "on": True, "1": True, "yes": True, "false": False, "off": False, "0": False, "no": False}
_CHOICES = {"access": ("auto", "pages", "scan"), "history": ("on", "off"), "unfinished": ("skip", "error")}


@dataclass(frozen=True, slots=True)
class Settings:
    store: str = ""
    queue: str = ""
    refresh: float = 1.0
    object_refresh: float = 60.0
    index_memory: int = 512 << 20
    workers: int = 0
    cache_bytes: int = 256 << 20
    dictionary_bytes: int = 128 << 20
    page_bytes: int = 64 << 20
    index_bytes: int = 256 << 20
    payload_bytes: int = 1 << 30
    unpacked_bytes: int = 16 << 30
    range_limit: int = 20_000
    access: str = "auto"
    costs: str = ""
    history: str = "on"
    trust_embedded: bool = False
    unfinished: str = "skip"

    @classmethod
    def from_environment(cls, **given: float | int | str | None) -> Settings:
        """Environment variables over the defaults, arguments over both."""
        settings = cls()
        for field in fields(cls):
            name = f"NEEDLE_{field.name.upper()}"
            value: object = given.get(field.name)
            value = os.environ.get(name) if value is None else value
            if value is None:
                continue
            kind = type(getattr(settings, field.name))
            try:
                number: Any = _as_bool(value) if kind is bool else kind(value)
            except (TypeError, ValueError):
                raise UsageError(f"{name}={value!r} is not {_WORDS[kind]}.", hint="See docs/settings.md.") from None
            if number not in _CHOICES.get(field.name, (number,)):
                raise UsageError(
                    f"{name}={value!r} is none of {', '.join(_CHOICES[field.name])}.", hint="See docs/settings.md."
                )
            if not isinstance(number, str) and number < 0:
                raise UsageError(f"{name}={value!r} is negative.", hint="See docs/settings.md.")
            settings = replace(settings, **{field.name: number})
        return settings

    @property
    def processes(self) -> int:
        return self.workers or os.cpu_count() or 1


def _as_bool(value: object) -> bool:
    """ValueError for what is neither true nor false.

    >>> _as_bool("on"), _as_bool("False"), _as_bool(1)
    (True, False, True)
    """
    text = str(value).strip().lower()
    if text not in _BOOLS:
        raise ValueError(text)
    return _BOOLS[text]
