"""The event that joins writing and indexing: a batch added these files to a table and removed those.

{"table": "product", "batch": "2024-05-01T06:00", "added": ["year=2024/part-0.parquet"], "removed": []}
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath

from needlepoint.errors import UsageError


class BadEvent(UsageError):
    """The body of a message is not an event."""


@dataclass(frozen=True, slots=True)
class Event:
    table: str
    batch: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, body: str) -> Event:
        try:
            fields = json.loads(body)
        except ValueError as error:
            raise BadEvent(f"the event is not JSON: {error}.") from None
        if not isinstance(fields, dict) or not all(isinstance(fields.get(key), str) for key in ("table", "batch")):
            raise BadEvent("the event names no table and batch.")
        return cls(fields["table"], fields["batch"], _paths(fields, "added"), _paths(fields, "removed"))


def _paths(fields: dict[str, object], key: str) -> tuple[str, ...]:
    paths = fields.get(key, [])
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise BadEvent(f"'{key}' of the event is not a list of paths.")
    for path in paths:
        parts = PurePosixPath(path)
        if parts.is_absolute() or ".." in parts.parts or not parts.parts:
            raise BadEvent(f"'{key}' of the event names '{path}', which is outside the table.")
    return tuple(paths)
