"""What a store remembers of what it published: `published.json`."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

STATE = "published.json"
_FIRST = 7  # of registries that were published before this was kept
_RESTORED = "~"  # between the id of a registry and what tells it from itself before it was restored


@dataclass(frozen=True, slots=True)
class StoreState:
    """What the store remembers: the id of its registry, and which state was published last, when. It is `declined` when
    the registry of another store is published in the lake. `refused_at` is when the lake first refused to be written,
    0 if it can be. `schema` is the format of the registry that was published."""

    registry: str
    sequence: int
    published_at: float
    declined: bool = False
    refused_at: float = 0.0
    schema: int = _FIRST

    @classmethod
    def read(cls, store: Path, identity: str) -> StoreState:
        """`identity` is that of the registry."""
        path = store / STATE
        for _ in range(2):
            try:
                found = json.loads(path.read_text())
                known = str(found["registry"]), int(found["sequence"]), float(found["published_at"])
                refused_at, schema = float(found.get("refused_at", 0.0)), int(found.get("schema", _FIRST))
                return cls(*known, bool(found.get("declined", False)), refused_at, schema)
            except FileNotFoundError:
                cls(identity, 0, 0.0)._create(store)
            except (ValueError, KeyError, TypeError):
                path.unlink(missing_ok=True)  # as after a power cut: it is another registry for readers
        return cls(uuid.uuid4().hex, 0, 0.0)

    @classmethod
    def after(cls, store: Path, registry: str, sequence: int, published_at: float) -> StoreState:
        """Of a registry that was restored from a backup, after this state was published: for readers it is another one,
        under an id that all processes find."""
        state = hashlib.blake2s(f"{registry} {sequence} {published_at}".encode(), digest_size=8).hexdigest()
        made = cls(f"{identity_of(registry)}{_RESTORED}{state}", 0, 0.0)
        made.write(store)
        return made

    @staticmethod
    def forget_others(store: Path, identity: str) -> None:
        """Of a store whose registry was replaced by one of this identity: what it published was another one."""
        if (store / STATE).exists() and StoreState.read(store, identity).registry != identity:
            (store / STATE).unlink(missing_ok=True)

    def _create(self, store: Path) -> None:
        """Unless another process has."""
        beside = store / f".{STATE}.{uuid.uuid4().hex}"
        try:
            beside.write_text(self._text())
            with contextlib.suppress(FileExistsError):
                os.link(beside, store / STATE)
        finally:
            beside.unlink(missing_ok=True)

    def write(self, store: Path) -> None:
        beside = store / f".{STATE}.{uuid.uuid4().hex}"
        try:
            beside.write_text(self._text())
            beside.replace(store / STATE)
        finally:
            beside.unlink(missing_ok=True)

    def _text(self) -> str:
        return json.dumps(asdict(self))


def identity_of(registry: str) -> str:
    """The id by which key stores know a registry that is published under this one.

    >>> identity_of("0123456789abcdef~fedcba9876543210")
    '0123456789abcdef'
    """
    return registry.partition(_RESTORED)[0]
