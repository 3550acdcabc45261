"""What a server must do to hold the keys of indexes: keep blocks of bytes, and publish parts of them at once.

A part is a run, or several merged ones: its blocks in order, and fences, the first entry of each block, in blocks of
their own with negative numbers. Its blocks never change, and its id is random. So a reader that knows the parts of one
moment reads either exactly their entries or an error, whatever is written, merged or lost meanwhile.
"""

from __future__ import annotations

import enum
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, TypeVar

from needlepoint.errors import StoreError
from needlepoint.stores.keys.urls import without_secrets

FORMAT = 1
"""Of blocks, and of what servers keep around them."""

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 15.0
WRITE_PATIENCE = 30.0
"""How long a writer tries again when a server goes away."""
READ_PAUSE = 1.0
"""How long readers do not ask a server that did not answer: until then they scan at once."""

STAGED_AGE = 24 * 3600
"""After so many seconds, a part that nobody published is removed."""
REMOVED_AGE = 60
"""So many seconds readers have to notice that parts were merged."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Part:
    """`bytes` are those of its blocks and fences."""

    id: int
    blocks: int
    fences: int
    entries: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StagedPart:
    """A part that is there and not published yet. That of a run is left out if the run was published meanwhile; one of
    several runs, or of parts that were merged, is always added, and its entries may be there twice."""

    part: Part
    run: str | None


@dataclass(frozen=True, slots=True)
class SpaceState:
    """What was published, at one moment: parts, and how many runs. `version` changes with everything that is
    published."""

    format: int
    key_bytes: int
    version: str
    parts: tuple[Part, ...]
    runs: int


class Published(enum.Enum):
    DONE = "done"
    GONE = "gone"  # there is no such store any more
    CHANGED = "changed"  # a part that was merged is not there any more
    LOST = "lost"  # blocks of a part that was to be published are missing


def new_part() -> int:
    """An id that no part has had or gets."""
    return secrets.randbits(63)


class BlockSpace(Protocol):
    """The store of one index in a server, for any number of threads."""

    @property
    def shown(self) -> str:
        """Where it is, for messages."""
        ...

    def create(self, key_bytes: int) -> None:
        """Make the store, unless it is there."""
        ...

    def state(self) -> SpaceState | None:
        """None when there is no such store."""
        ...

    def missing(self, runs: Collection[str]) -> set[str]:
        """Those of these runs that were not published."""
        ...

    def stage(self, part: int) -> None:
        """Begin a part. What is not published for a day is removed."""
        ...

    def put(self, part: int, numbers: Sequence[int], blocks: Sequence[bytes]) -> None:
        """Add blocks to a staged part; the same block twice is one."""
        ...

    def publish(self, runs: Sequence[str], added: Sequence[StagedPart], removed: Sequence[Part]) -> Published:
        """Make runs and parts visible, and remove others, at once. A run that was published is left out with its part:
        to publish twice is to publish once."""
        ...

    def fetch(self, wanted: Mapping[int, Sequence[int]]) -> dict[tuple[int, int], bytes]:
        """Blocks of parts, by part and number; those that are not there are left out."""
        ...

    def discard(self, part: Part) -> None:
        """Remove a staged part."""
        ...

    def tidy(self) -> None:
        """Remove what killed writers and merges left."""
        ...

    def destroy(self) -> None: ...


class KeyServer(Protocol):
    """A server, and its connections, which all stores in it share."""

    @property
    def shown(self) -> str: ...

    def space(self, lake: str, index_id: int) -> BlockSpace: ...

    def ids(self, lake: str) -> dict[int, float]:
        """The indexes of a lake that have a store here, with the seconds, by the server's clock, since the store was
        made or its last part begun. A store that is being filled stays young, however long that takes."""
        ...

    def close(self) -> None: ...


_patient: ContextVar[bool] = ContextVar("patient", default=False)


@contextmanager
def patience() -> Iterator[None]:
    """Inside, reads wait for a server too."""
    token = _patient.set(True)
    try:
        yield
    finally:
        _patient.reset(token)


class ServerCalls:
    """The border to a server: calls are tried again on a new connection, and errors of its driver become StoreErrors.

    A server that does not answer is not asked by readers for a moment, so that queries scan at once. A writer waits
    for it. What is called may have been done when its connection was lost: it must be safe to do it twice.
    """

    def __init__(
        self,
        url: str,
        driver_errors: tuple[type[Exception], ...],
        is_lost: Callable[[Exception], bool],
        name: str,
    ) -> None:
        self.shown = without_secrets(url)
        self._errors: tuple[type[Exception], ...] = (*driver_errors, OSError)
        self._is_lost = is_lost
        self._name = name
        self._down: tuple[float, str] | None = None

    def __call__(self, ask: Callable[[], Answer], *, writes: bool = False) -> Answer:
        down, writes = self._down, writes or _patient.get()
        if down is not None and not writes and time.monotonic() < down[0]:
            raise self._away(down[1])
        began, attempts = time.monotonic(), 0
        while True:
            try:
                found = ask()
            except self._errors as error:
                if not isinstance(error, OSError) and not self._is_lost(error):
                    raise self._translated(error) from None
                attempts += 1
                waited = time.monotonic() - began
                # The first failure may be that of a connection which was lost long ago.
                if waited > (WRITE_PATIENCE if writes else 0) and (attempts > 1 or waited > CONNECT_SECONDS):
                    why = type(error).__name__
                    self._down = time.monotonic() + READ_PAUSE, why
                    raise self._away(why) from None
                time.sleep(min(1.0, 0.01 * 2**attempts) if attempts > 1 else 0)
            else:
                self._down = None
                return found

    def _away(self, why: str) -> StoreError:
        return StoreError(
            f"the key store {self.shown} does not answer ({why}).",
            hint=f"Check its address, and that {self._name} runs. Meanwhile queries scan; nothing is indexed there.",
        )

    def _translated(self, error: Exception) -> StoreError:
        """Without the driver's text, which may have values or a password in it, but for the server's own error code."""
        code = getattr(error, "sqlstate", None) or (error.args[0] if error.args else "")
        code = str(code).split(" ")[0] if not isinstance(code, int) else code
        return StoreError(
            f"the key store {self.shown} refuses a request: {type(error).__name__} {code}.",
            hint=f"Queries scan without it. Check the user's rights and the log of {self._name}.",
        )
