"""What runs in a transaction of the registry, whatever its database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class FoundRows(Protocol):
    """What a statement found or changed; a cursor."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> tuple[Any, ...] | None: ...
    def fetchall(self) -> list[tuple[Any, ...]]: ...


class RegistryTransaction(Protocol):
    def execute(self, query: str, parameters: Sequence[Any] = ..., /) -> FoundRows: ...
    def executemany(self, query: str, rows: Iterable[Sequence[Any]], /) -> object: ...
