"""What a store does for an external index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from needlepoint.errors import StoreError

Locations = npt.NDArray[np.uint64]
"""Where a row is: the file's id in the upper 32 bits, the row's number in the file in the lower."""

Entries = npt.NDArray[np.uint8]
"""One entry a row, `key bytes ‖ location` big-endian, so that byte order is order by key, then by location."""


IN_ITS_RANGE = "@"


def name_in_range(name: str, entries: Entries) -> str:
    """The name of a run whose range no other run of its build reaches into.

    It tells the last entry: a store that keeps names among entries can keep it there, where runs stay apart.
    """
    return f"{name}{IN_ITS_RANGE}{entries[-1].tobytes().hex()}"


class IndexDamaged(StoreError):
    """Entries that were committed are not there: lost, or the store of another index lies in this one's place."""


class KeyStore(Protocol):
    """The entries of one index, sorted, in one or many runs.

    A run is a file of ascending entries that any process can write; `ingest` makes its entries visible all at once
    and consumes the file. The same entry ingested twice is one entry. Reads see a state no older than the last
    `refresh`, and may go on while another process ingests.

    Every run carries a name that is like no other, and keeps it when runs are merged. Who commits a run keeps the name,
    and `refresh` makes sure that it is there: a store that lost something raises IndexDamaged and does not answer.
    """

    def write_run(self, path: Path, entries: Entries, name: str) -> None: ...

    def ingest(self, runs: Sequence[Path]) -> None: ...

    def refresh(self, runs: Iterable[str]) -> None:
        """See what was ingested. IndexDamaged unless all of these runs are there."""
        ...

    def find(self, keys: Sequence[bytes], limit: int) -> Locations | None:
        """All rows with one of the keys; None when there are more than `limit`."""
        ...

    def find_range(self, low: bytes, high: bytes, limit: int) -> Locations | None:
        """All rows with `low <= key <= high`, in no particular order; None when there are more than `limit`."""
        ...

    def count(self) -> int:
        """How many entries there are, never fewer than that; those of files that are gone are among them."""
        ...

    def scan(self) -> Iterator[Entries]:
        """All entries in ascending order, some at a time."""
        ...

    def size(self) -> int:
        """Bytes on disk."""
        ...

    def destroy(self) -> None: ...

    def close(self) -> None: ...
