"""The event of a committed batch: files added to a table and files removed from it.

{"table": "product", "batch": "2024-05-01T06:00", "added": ["year=2024/part-0.parquet"], "removed": [],
 "at": 1714543200.5}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from needlepoint.errors import UsageError

LONGEST = 200_000  # characters of paths; SQS takes messages of 256 KiB


class BadEvent(UsageError):
    """The body of a message is not an event."""


@dataclass(frozen=True, slots=True)
class Event:
    """`at` is when it was announced, in seconds since 1970; 0 if that is not known."""

    table: str
    batch: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    at: float = 0.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Event:
        if not all(isinstance(fields.get(key), str) for key in ("table", "batch")):
            raise BadEvent("the event names no table and batch.")
        paths = (_paths(fields, "added"), _paths(fields, "removed"))
        return cls(fields["table"], fields["batch"], *paths, announced_at(fields) or 0.0)

    def __str__(self) -> str:
        return f"{self.table}, batch {self.batch}"

    def parts(self, most_characters: int = LONGEST) -> Iterator[Event]:
        """Split into events that fit into a message; a batch of very many files needs several.

        >>> [part.added for part in Event("t", "b", ("one", "two", "three")).parts(most_characters=14)]
        [('one', 'two'), ('three',)]
        """
        part, held = replace(self, added=(), removed=()), 0
        named = [(path, True) for path in self.added] + [(path, False) for path in self.removed]
        for path, is_added in named:
            size = len(json.dumps(path)) + 2
            if held and held + size > most_characters:
                yield part
                part, held = replace(self, added=(), removed=()), 0
            part = (
                replace(part, added=(*part.added, path)) if is_added else replace(part, removed=(*part.removed, path))
            )
            held += size
        yield part


def json_object(body: str) -> dict[str, Any]:
    """The JSON object; BadEvent when it is none, or contains half of a surrogate pair, which no store or path accepts.

    >>> json_object('{"table": "\\\\ud83d\\\\ude00"}')
    {'table': '😀'}
    """
    try:
        fields = json.loads(body)
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise BadEvent(f"the event holds {error.object[error.start]!a}, which is not a character.") from None
    except (ValueError, RecursionError) as error:
        raise BadEvent(f"the event is not JSON: {error}.") from None
    if not isinstance(fields, dict):
        raise BadEvent("the event names no table and batch.")
    return fields


def announced_at(fields: object) -> float | None:
    """When an event was announced; None if it does not say so.

    >>> announced_at({"table": "t", "at": 1714543200}), announced_at({"at": "noon"}), announced_at("no event")
    (1714543200.0, None, None)
    """
    at = fields.get("at") if isinstance(fields, dict) else None
    return float(at) if isinstance(at, int | float) and not isinstance(at, bool) and 0 < at < 1e12 else None


def time_of(body: str) -> float | None:
    """The same of a message, whatever it is."""
    try:
        return announced_at(json_object(body))
    except BadEvent:
        return None


def _paths(fields: dict[str, Any], key: str) -> tuple[str, ...]:
    paths = fields.get(key, [])
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise BadEvent(f"'{key}' of the event is not a list of paths.")
    for path in paths:
        parts = PurePosixPath(path)
        if parts.is_absolute() or ".." in parts.parts or not parts.parts:
            raise BadEvent(f"'{key}' of the event names '{path}', which is outside the table.")
    return tuple(paths)
