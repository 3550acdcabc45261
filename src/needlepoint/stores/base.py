"""The store of an index that keeps entries (indexes/base.py, EntryKind)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from needlepoint.errors import StoreError

Item = TypeVar("Item")
Made = TypeVar("Made")

Locations = npt.NDArray[np.uint64]
"""Where a row is: the file's id in the upper 32 bits, the row's number in the file in the lower."""

Entries = npt.NDArray[np.uint8]
"""One entry per line, `key bytes ‖ location` big-endian: byte order is order by key, then by location."""


IN_ITS_RANGE = "@"
BLOCK_BYTES = 8 << 20  # memory for blocks of a store that is built or removed, not searched


def name_in_range(name: str, entries: Entries) -> str:
    """The name of a run whose range overlaps no other run of its build.

    It contains the last entry: a store that keeps names among entries can keep it behind that one, so that runs do not
    overlap.
    """
    return f"{name}{IN_ITS_RANGE}{entries[-1].tobytes().hex()}"


class IndexDamaged(StoreError):
    """Committed entries are missing: they were lost, or the store of another index is in this place."""


class KeyStore(Protocol):
    """The entries of one index, sorted, in one or many runs.

    A run is a file of ascending entries that any process can write. `ingest` makes its entries visible atomically and
    consumes the file. An entry that is ingested twice is one entry. Reads see a state no older than the last `refresh`,
    and may continue while another process ingests.

    Every run has a unique name, and keeps it when runs are merged. The registry keeps the names of committed runs, and
    `refresh` verifies them: a store that lost one raises IndexDamaged and does not answer.
    """

    def write_run(self, path: Path, entries: Entries, name: str) -> None: ...

    def ingest(self, runs: Sequence[Path]) -> None: ...

    def refresh(self, runs: Iterable[str]) -> None:
        """See what was ingested; IndexDamaged if one of these runs is missing."""
        ...

    def has_other_runs(self) -> bool:
        """Whether it has runs that the last `refresh` did not name: of a writer that was killed, or those that a
        registry knew before it was restored from a backup. The latter may have entries of other files with the same
        ids, so entries then say "these rows at most", and decide no counts. Also True where a store cannot tell."""
        ...

    def find(self, keys: Sequence[bytes], limit: int) -> Locations | None:
        """All rows with one of the keys; None when there are more than `limit`."""
        ...

    def find_range(self, low: bytes, high: bytes, limit: int) -> Locations | None:
        """All rows with `low <= key <= high`, in no particular order; None when there are more than `limit`."""
        ...

    def ends(self, count: int, last: bool) -> Entries:
        """The first or the last `count` entries, from that end on; fewer if there are fewer."""
        ...

    def count(self) -> int:
        """How many entries there are, at least, with those of files that are gone."""
        ...

    def scan(self) -> Iterator[Entries]:
        """All entries in ascending order, some at a time."""
        ...

    def key_bits(self) -> int:
        """How many bits of each key it knows: all, or the first ones. Then `find` also finds rows of other keys that
        begin with the same bits, and keys that `scan` and `ends` return have no more bytes than that needs."""
        ...

    def size(self) -> int:
        """Bytes on disk."""
        ...

    def destroy(self) -> None: ...

    def close(self) -> None: ...


class StoreTasks(Protocol):
    """Where a store runs tasks: in this process, or in a pool of others (indexer/pools.py)."""

    def run(self, function: Callable[[Item, Path], Made], items: Sequence[Item]) -> Iterator[Made]:
        """The results of calls with each item, in no order. Function, items and results must be picklable. A call gets
        a directory for its files; it can be made more than once."""
        ...


@runtime_checkable
class MergesInTasks(Protocol):
    """A key store whose merges other processes can do."""

    def ingest_and_merge(self, runs: Sequence[Path], tasks: StoreTasks) -> None:
        """As `ingest`; what is then to be merged is merged by tasks."""
        ...
