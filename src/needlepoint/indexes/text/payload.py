"""The payload of a text index: the files that tantivy wrote, and some of our own, in one byte string.

    magic       4 bytes     b"NPTX"
    version     u32
    checksum    u64         XXH3 of everything that follows
    length      u32         of the description
    description             JSON, see TextDescription
    files                   each a zstd frame, one after the other, as the description lists them

Numbers are little-endian. Unpacked, the files are in one directory with `description.json`:

    meta.json, *.idx, *.term …      a tantivy index: one segment for each part of the rows, in their order
    words.arrow                     all words in byte order, and in how many rows each occurs (Arrow IPC, mapped)
    pairs                           a byte for each bucket of neighbouring words (pairs.py); may be empty
    odd                             i64 rows that the index does not describe: they can always match
    lengths                         how many words each row has, u8, u16 or u32; empty for trigrams
    parts                           bits for each segment, one for each word, whether it has the word; empty for one

Version 1 has no `lengths` and no `parts`: its rows are found, but their scores come from their texts. Since version 3,
a segment may have the five parts of split_postings.py in the payload instead of its `.idx`, which is made of them.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from needlepoint.errors import NotIndexable
from needlepoint.indexes.payload import ANY_SIZE
from needlepoint.indexes.text.split_postings import SplitPostings, joined, split
from needlepoint.parquet.write import most_unpacked
from needlepoint.stores import IndexDamaged

MAGIC = b"NPTX"
VERSION = 3
READABLE = (1, 2, VERSION)
DESCRIPTION, WORDS = "description.json", "words.arrow"
_HEAD = struct.Struct("<4sIQI")

# Level 1: postings are packed bits, of which higher levels save one hundredth more in five times the time.
_ZSTD = pa.Codec("zstd", 1)
_NAME = re.compile(r"[0-9a-z]+(\.[a-z]+)?")
_PARTS = tuple(part.name for part in fields(SplitPostings))
# What the description says of five parts instead of one file takes about so many bytes.
_LISTED = 256


@dataclass(frozen=True, slots=True)
class TextDescription:
    """`parts` are the numbers of rows of the segments; `letters` and `libraries` identify the Unicode tables by which
    texts were split into words (words.py)."""

    tokenizer: str
    letters: str
    libraries: str
    rows: int
    texts: int
    total_words: int
    parts: tuple[int, ...]


def pack(description: TextDescription, files: Mapping[str, bytes]) -> bytes:
    """NotIndexable when `unpack` would refuse it."""
    frames = {name: _Frame.of(content) for name, content in files.items()}
    for stored in (_with_parts(files, frames), frames):
        ordered = sorted(stored.items())
        sizes = [[name, len(frame.data), frame.size] for name, frame in ordered]
        text = json.dumps({**asdict(description), "files": sizes}).encode()
        body = b"".join([struct.pack("<I", len(text)), text, *(frame.data for _, frame in ordered)])
        unpacked = max(sum(frame.size for frame in kind.values()) for kind in (stored, frames))
        if unpacked <= most_unpacked(len(body), ANY_SIZE):
            return _HEAD.pack(MAGIC, VERSION, xxhash.xxh3_64_intdigest(body), len(text)) + body[4:]
    raise NotIndexable(f"{len(body):,} bytes of a text index would become {unpacked:,} when they are unpacked.")


@dataclass(frozen=True, slots=True)
class _Frame:
    """Compressed bytes, and their size before."""

    data: bytes
    size: int

    @classmethod
    def of(cls, content: bytes) -> _Frame:
        return cls(_ZSTD.compress(content, asbytes=True), len(content))


def _with_parts(files: Mapping[str, bytes], frames: Mapping[str, _Frame]) -> dict[str, _Frame]:
    """With the parts of postings where they take less than the file."""
    found = dict(frames)
    for name in files:
        segment, _, kind = name.partition(".")
        parts = split(files.get(f"{segment}.term", b""), files[name]) if kind == "idx" else None
        if parts is None:
            continue
        packed = {f"{segment}.{part}": _Frame.of(getattr(parts, part)) for part in _PARTS}
        if sum(len(frame.data) for frame in packed.values()) + _LISTED < len(frames[name].data):
            del found[name]
            found |= packed
    return found


def unpack(payload: bytes, directory: Path) -> None:
    """Write the files into an empty directory; IndexDamaged when the bytes are not a payload, or unpack to too many."""
    try:
        text, files = _parsed(payload)
        parts: dict[str, bytes] = {}
        for file in files:
            name, content = file.name, file.content()
            segment, _, kind = name.partition(".")
            if kind in _PARTS:  # those of a segment come before those of the next
                parts[kind] = content
                if len(parts) < len(_PARTS):
                    continue
                name, content = f"{segment}.idx", joined(SplitPostings(**parts), most_unpacked(len(payload), ANY_SIZE))
                parts.clear()
            if name == WORDS:
                _check_words(content)
            (directory / name).write_bytes(content)
        if parts:
            raise ValueError("it has only some parts of postings")
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, struct.error, pa.ArrowException) as error:
        raise IndexDamaged(f"a text index is damaged: {error}.") from error
    (directory / DESCRIPTION).write_bytes(text)


def _check_words(content: bytes) -> None:
    """Validate the words before they are mapped: an offset outside of them would crash the process."""
    try:
        pa.ipc.open_file(pa.py_buffer(content)).read_all().validate(full=True)
    except OSError as error:  # pyarrow's, not the disk's
        raise ValueError(f"its words cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class _PackedFile:
    """A file of the payload that is not unpacked yet."""

    name: str
    frame: bytes
    size: int

    def content(self) -> bytes:
        if not self.size:
            return b""
        try:
            found: bytes = _ZSTD.decompress(self.frame, self.size, asbytes=True)
        except OSError as error:  # pyarrow's, not the disk's
            raise ValueError(f"{self.name} cannot be unpacked: {error}") from error
        return found


def _parsed(payload: bytes) -> tuple[bytes, list[_PackedFile]]:
    magic, version, checksum, length = _HEAD.unpack_from(payload)
    if magic != MAGIC or version not in READABLE:
        raise ValueError("its first bytes are not those of a text index")
    if xxhash.xxh3_64_intdigest(payload[_HEAD.size - 4 :]) != checksum:
        raise ValueError("its checksum differs")
    text = payload[_HEAD.size : _HEAD.size + length]
    at, files = _HEAD.size + length, []
    for name, packed, size in json.loads(text)["files"]:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name == DESCRIPTION:
            raise ValueError("it lists a file of a wrong name")
        if type(packed) is not int or type(size) is not int or min(packed, size) < 0:
            raise ValueError("it lists a file without a size")
        files.append(_PackedFile(name, payload[at : at + packed], size))
        at += packed
    if at != len(payload):
        raise ValueError("its length differs")
    unpacked = sum(file.size for file in files)
    if unpacked > most_unpacked(len(payload), ANY_SIZE):
        raise ValueError(f"{len(payload):,} bytes would become {unpacked:,}")
    _parse_description(text)
    return text, files


def _parse_description(text: bytes) -> TextDescription:
    """Parse the description; ValueError, KeyError or TypeError when it is not one."""
    found: dict[str, Any] = json.loads(text)
    description = TextDescription(
        str(found["tokenizer"]),
        str(found["letters"]),
        str(found["libraries"]),
        int(found["rows"]),
        int(found["texts"]),
        int(found["total_words"]),
        tuple(int(rows) for rows in found["parts"]),
    )
    if sum(description.parts) != description.rows or min(description.parts, default=1) < 1:
        raise ValueError("its parts do not add up to its rows")
    return description


def described(directory: Path) -> TextDescription:
    """The description in a directory that `unpack` filled."""
    return _parse_description((directory / DESCRIPTION).read_bytes())


def mapped(path: Path) -> pa.Buffer:
    """The bytes of such a file, mapped. Unlike those of Python's mmap, they keep no file open: a process may have open
    thousands of indexes, and not as many files."""
    with pa.memory_map(str(path)) as file:
        return file.read_buffer()
