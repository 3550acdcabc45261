"""Bearer tokens: a file has their hashes, the tables that each may read, and when it expires.

A token is 32 random bytes, so one round of SHA-256 protects it: there is no list of likely tokens to try.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import secrets
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from needlepoint.errors import NameTaken, StoreError, UnknownName

PREFIX = "needle_"


@dataclass(frozen=True, slots=True)
class Token:
    """`tables` that it may read, None for all; `expires` is a time in UTC, ISO 8601, or None."""

    name: str
    hash: str
    tables: tuple[str, ...] | None = None
    expires: str | None = None

    @property
    def is_expired(self) -> bool:
        if self.expires is None:
            return False
        return datetime.datetime.fromisoformat(self.expires) <= datetime.datetime.now(datetime.UTC)


class Tokens:
    """The tokens of a file, which is read again when it changes. Only its owner can read it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._read: tuple[tuple[int, int, int], dict[str, Token]] | None = None

    def all(self) -> list[Token]:
        return list(self._current().values())

    def find(self, secret: str) -> Token | None:
        """The token with this secret, if it has not expired."""
        found = self._current().get(_hash(secret))
        return None if found is None or found.is_expired else found

    def create(self, name: str, tables: Iterable[str] | None, days: float | None) -> str:
        """Add a token and return its secret, which is not stored."""
        there = self._current() if self._path.exists() else {}
        if any(token.name == name for token in there.values()):
            raise NameTaken(f"there is a token '{name}'.", hint="Choose another name, or revoke it first.")
        secret = PREFIX + secrets.token_urlsafe(32)
        expires = None
        if days is not None:
            end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
            expires = end.isoformat(timespec="seconds")
        token = Token(name, _hash(secret), None if tables is None else tuple(sorted(tables)), expires)
        self._write([*there.values(), token])
        return secret

    def revoke(self, name: str) -> None:
        there = self.all()
        if all(token.name != name for token in there):
            raise UnknownName("token", name, [token.name for token in there])
        self._write([token for token in there if token.name != name])

    def _current(self) -> dict[str, Token]:
        try:
            stat = self._path.stat()
            state = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            with self._lock:
                if self._read is None or self._read[0] != state:
                    self._read = state, self._parsed()
                return self._read[1]
        except OSError as error:
            raise StoreError(
                f"the tokens in {self._path} cannot be read: {error.strerror}.",
                hint="Create one with `needle token create`.",
            ) from error

    def _parsed(self) -> dict[str, Token]:
        try:
            found = json.loads(self._path.read_text())["tokens"]
            tokens = [Token(**each | {"tables": each["tables"] and tuple(each["tables"])}) for each in found]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"the tokens in {self._path} cannot be read: {type(error).__name__}.", hint="Create the file again."
            ) from error
        return {token.hash: token for token in tokens}

    def _write(self, tokens: list[Token]) -> None:
        text = json.dumps({"tokens": [asdict(token) for token in tokens]}, indent=2)
        beside = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text + "\n")
        beside.replace(self._path)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
