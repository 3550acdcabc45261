"""The packs of indexes in a bucket, where several machines share a registry: one place per index id."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from needlepoint.indexes.leaf_stores import ages_below
from needlepoint.stores import IN_LAKE, BucketPacks, PieceCache


class SharedPacks:
    """`root` is the URL of the lake. What a registry has is named by its `identity`."""

    def __init__(self, root: str, identity: Callable[[], str], pieces: PieceCache, scratch: Path) -> None:
        self._root = root
        self._identity = identity
        self._pieces = pieces
        self._scratch = scratch

    def of(self, index_id: int) -> BucketPacks:
        return BucketPacks(lambda: f"{self._place()}/{index_id}", self._pieces, self._scratch)

    def ids(self) -> dict[int, float]:
        """The indexes that have something here, with the seconds since the last write to each."""
        return ages_below(self._place())

    def _place(self) -> str:
        return f"{self._root}/{IN_LAKE}/packs/{self._identity()}"
