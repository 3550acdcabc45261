"""What a store does for an external index."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

Locations = npt.NDArray[np.uint64]
"""Where a row is: the file's id in the upper 32 bits, the row's number in the file in the lower."""

Entries = npt.NDArray[np.uint8]
"""One entry a row, `key bytes ‖ location` big-endian, so that byte order is order by key, then by location."""


class KeyStore(Protocol):
    """The entries of one index, sorted, in one or many runs.

    A run is a file of ascending entries that any process can write; `ingest` makes its entries visible all at once
    and consumes the file. The same entry ingested twice is one entry. Reads see a state no older than the last
    `refresh`, and may go on while another process ingests. A store that has lost entries raises, it does not answer.
    """

    def write_run(self, path: Path, entries: Entries) -> None: ...

    def ingest(self, runs: Sequence[Path]) -> None: ...

    def refresh(self, entries: int) -> None:
        """See what was ingested. StoreError when there are fewer than `entries`, the number that was committed."""
        ...

    def find(self, keys: Sequence[bytes], limit: int) -> Locations | None:
        """All rows with one of the keys; None when there are more than `limit`."""
        ...

    def find_range(self, low: bytes, high: bytes, limit: int) -> Locations | None:
        """All rows with `low <= key <= high`, in no particular order; None when there are more than `limit`."""
        ...

    def size(self) -> int:
        """Bytes on disk."""
        ...

    def destroy(self) -> None: ...

    def close(self) -> None: ...
