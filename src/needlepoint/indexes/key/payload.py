"""The keys of one file as a payload, so that a key index can be built again without reading data pages.

    NPKY  width (1 byte)  |  first bytes of all keys, second bytes, …  |  row numbers, 4 bytes each

Keys (encoding.py) in the order of their rows; row numbers little-endian, ascending. NULLs have neither.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from needlepoint.errors import PayloadDamaged
from needlepoint.indexes.base import KeysAndRows
from needlepoint.indexes.key.encoding import key_bytes

NAME = "key"
VERSION = 1
_MAGIC = b"NPKY"


def to_bytes(type: pa.DataType, parts: Sequence[KeysAndRows]) -> bytes:
    """Of all keys of a column, given part by part."""
    width = key_bytes(type)
    keys = np.concatenate([keys for keys, _ in parts]) if parts else np.empty((0, width), np.uint8)
    rows = np.concatenate([rows for _, rows in parts]) if parts else np.empty(0, np.int64)
    # Bytes of the same position stand together: the upper ones hardly differ, so zstd compresses them well.
    return _MAGIC + bytes([width]) + np.ascontiguousarray(keys.T).tobytes() + rows.astype("<u4").tobytes()


def from_bytes(data: bytes, type: pa.DataType, file_rows: int) -> list[KeysAndRows]:
    """What `to_bytes` wrote; PayloadDamaged when the bytes are something else."""
    width = key_bytes(type)
    count, rest = divmod(len(data) - len(_MAGIC) - 1, width + 4)
    if data[: len(_MAGIC)] != _MAGIC or rest or count < 0 or data[len(_MAGIC)] != width:
        raise PayloadDamaged("", "the embedded keys are not keys", hint="Index the file again.")
    start = len(_MAGIC) + 1
    keys = np.frombuffer(data, np.uint8, count * width, start).reshape(width, count).T
    rows = np.frombuffer(data, "<u4", count, start + count * width).astype(np.int64)
    if count and (rows[-1] >= file_rows or (np.diff(rows) <= 0).any()):
        raise PayloadDamaged("", "the embedded keys are of other rows", hint="Index the file again.")
    return [(np.ascontiguousarray(keys), rows)]
