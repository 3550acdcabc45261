"""Sources and payloads in memory, for tests of index kinds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from needlepoint.indexes.base import ColumnSource


def text_source(
    texts: pa.Array, scratch: Path, *, memory: int = 64 << 20, batch: int = 1000, **options: Any
) -> ColumnSource:
    field = pa.field("t", texts.type)
    edges = np.array([0, len(texts)])

    def batches() -> Iterator[pa.RecordBatch]:
        for at in range(0, len(texts), batch):
            yield pa.record_batch([texts.slice(at, batch)], schema=pa.schema([field]))

    scratch.mkdir(parents=True, exist_ok=True)
    return ColumnSource((field,), options, len(texts), edges, {"t": edges}, batches, memory, scratch)


class StoredBytes:
    """A payload as the lake's cache returns it, unpacked once per content."""

    def __init__(self, payload: bytes, cache: Path) -> None:
        self.payload, self.cache, self.unpacked = payload, cache, 0

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.payload).hexdigest()

    @property
    def size(self) -> int:
        return len(self.payload)

    def read(self) -> bytes:
        return self.payload

    def directory(self, unpack: Callable[[bytes, Path], None]) -> Path:
        place = self.cache / self.checksum
        if not place.exists():
            beside = self.cache / f".{self.checksum}"
            beside.mkdir(parents=True, exist_ok=True)
            unpack(self.payload, beside)
            beside.rename(place)
            self.unpacked += 1
        return place
