"""The payload of a text index: what tantivy wrote, and what is known beside it, as one run of bytes.

    magic       4 bytes     b"NPTX"
    version     u32
    checksum    u64         XXH3 of everything that follows
    length      u32         of the description
    description             JSON, see Description
    files                   each a zstd frame, one after the other, as the description lists them

Numbers are little-endian. Unpacked into a directory, the files lie flat beside `description.json`:

    meta.json, *.idx, *.term …      a tantivy index: one segment for each part of the rows, in their order
    words.arrow                     all words in byte order, and in how many rows each occurs (Arrow IPC, mapped)
    pairs                           a byte for each bucket of neighbouring words (text_pairs.py); may be empty
    odd                             i64 rows that the index does not describe: they can always match
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from needlepoint.stores.base import IndexDamaged

MAGIC = b"NPTX"
VERSION = 1
DESCRIPTION = "description.json"
_HEAD = struct.Struct("<4sIQI")

# Level 1: postings are packed bits, of which higher levels save one hundredth more in five times the time.
_ZSTD = pa.Codec("zstd", 1)
_NAME = re.compile(r"[0-9a-z]+(\.[a-z]+)?")


@dataclass(frozen=True, slots=True)
class Description:
    """`parts` are how many rows each segment has; `letters` and `libraries` say by which tables text was taken apart
    (words.py)."""

    tokenizer: str
    letters: str
    libraries: str
    rows: int
    texts: int
    total_words: int
    parts: tuple[int, ...]


def pack(description: Description, files: Mapping[str, bytes]) -> bytes:
    frames = {name: _ZSTD.compress(content, asbytes=True) for name, content in sorted(files.items())}
    sizes = [[name, len(frame), len(files[name])] for name, frame in frames.items()]
    told = json.dumps({**asdict(description), "files": sizes}).encode()
    body = b"".join([struct.pack("<I", len(told)), told, *frames.values()])
    return _HEAD.pack(MAGIC, VERSION, xxhash.xxh3_64_intdigest(body), len(told)) + body[4:]


def unpack(payload: bytes, directory: Path) -> None:
    """Into an empty directory; IndexDamaged when the bytes are not a payload."""
    try:
        told, files = _parsed(payload)
    except (ValueError, KeyError, TypeError, struct.error, OSError, MemoryError, pa.ArrowException) as error:
        raise IndexDamaged(f"a text index is damaged: {error}.") from error
    for name, content in files.items():
        (directory / name).write_bytes(content)
    (directory / DESCRIPTION).write_bytes(told)


def _parsed(payload: bytes) -> tuple[bytes, dict[str, bytes]]:
    magic, version, checksum, length = _HEAD.unpack_from(payload)
    if magic != MAGIC or version != VERSION:
        raise ValueError("it does not begin as one")
    if xxhash.xxh3_64_intdigest(payload[_HEAD.size - 4 :]) != checksum:
        raise ValueError("its checksum differs")
    told = payload[_HEAD.size : _HEAD.size + length]
    at, files = _HEAD.size + length, {}
    for name, packed, size in json.loads(told)["files"]:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name == DESCRIPTION or min(packed, size) < 0:
            raise ValueError("it lists a file that is none of its own")
        frame = payload[at : at + packed]
        files[name] = _ZSTD.decompress(frame, size, asbytes=True) if size else b""
        at += packed
    if at != len(payload):
        raise ValueError("its length differs")
    _described(told)
    return told, files


def _described(told: bytes) -> Description:
    """From JSON; ValueError, KeyError or TypeError when it is something else."""
    found: dict[str, Any] = json.loads(told)
    description = Description(
        str(found["tokenizer"]),
        str(found["letters"]),
        str(found["libraries"]),
        int(found["rows"]),
        int(found["texts"]),
        int(found["total_words"]),
        tuple(int(rows) for rows in found["parts"]),
    )
    if sum(description.parts) != description.rows or min(description.parts, default=1) < 1:
        raise ValueError("its parts are not its rows")
    return description


def described(directory: Path) -> Description:
    """Of what was unpacked."""
    return _described((directory / DESCRIPTION).read_bytes())
