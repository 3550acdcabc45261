"""List and read the indexes embedded in a Parquet file.

    PAR1  column chunks  page indexes, bloom filters  | NPX1 payload | NPX1 payload |  FileMetaData  length  PAR1
                                                                                       └ needlepoint.indexes: where

The footer key `needlepoint.indexes` holds a JSON list, an object for each payload:

    {"kind": "distinct", "columns": ["partner"], "version": 1, "options": {}, "offset": 1048576, "length": 2300,
     "codec": "zstd", "size": 9000, "checksum": "9f…", "fingerprint": "03…"}

`offset` and `length` are those of the stored bytes: the magic NPX1, then the data, packed by the codec, `size` bytes
when unpacked. `checksum` is the XXH3 (128 bits, hexadecimal) of the stored bytes, `fingerprint` that of the data the
index was made for.

Tools copy footer keys into new files, where the index describes other rows and its bytes are missing. So no entry is
trusted: one with another fingerprint than the file, or whose bytes have another checksum, is ignored.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import xxhash

from needlepoint.errors import PayloadDamaged
from needlepoint.objects import OpenObject
from needlepoint.parquet.format.footer import MAGIC, FileMetadata, Statistics

INDEXES = b"needlepoint.indexes"
PAYLOAD_MAGIC = b"NPX1"
# Unpacked bytes of one payload; an entry that claims more is ignored.
LARGEST = (1 << 31) - 1
_READ_AT_ONCE = 8 << 20
# What bytes may grow to when they are unpacked: a little for all, then in proportion.
_ANY_SIZE, _MOST_GROWTH = 1 << 20, 64
_TEXTS, _NUMBERS = ("kind", "codec", "checksum", "fingerprint"), ("version", "offset", "length", "size")
_HINT = "Embed the index again; the data of the file is not affected."


@dataclass(frozen=True, slots=True)
class EmbeddedEntry:
    """One index in a file, as listed in its footer."""

    kind: str
    columns: tuple[str, ...]
    version: int
    offset: int
    length: int
    codec: str
    size: int
    checksum: str
    fingerprint: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return _name(self.kind, self.columns)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class EmbeddedIndexes:
    """The valid indexes of a file, and the ignored entries of its footer, each with the reason."""

    entries: tuple[EmbeddedEntry, ...]
    ignored: tuple[tuple[str, str], ...] = ()

    def find(self, kind: str, *columns: str) -> EmbeddedEntry | None:
        """The index of that kind over these columns."""
        found = (entry for entry in self.entries if entry.kind == kind and entry.columns == columns)
        return next(found, None)


def embedded(file: OpenObject, metadata: FileMetadata) -> EmbeddedIndexes:
    """The indexes in the file. Uses only the given footer, and raises nothing, whatever it says."""
    values = [value or b"" for key, value in metadata.key_value if key == INDEXES]
    if not values:
        return EmbeddedIndexes(())
    # If a file has the key twice, the last editor wrote the later one.
    ignored = [("needlepoint.indexes", "the footer has the key again")] * (len(values) - 1)
    try:
        listed = json.loads(values[-1])
    except (ValueError, RecursionError) as error:
        return EmbeddedIndexes((), (*ignored, ("needlepoint.indexes", f"not JSON: {str(error)[:100]}")))
    if not isinstance(listed, list):
        return EmbeddedIndexes((), (*ignored, ("needlepoint.indexes", "not a list")))
    end = file.size - 8 - len(metadata.raw)
    expected = fingerprint(metadata)
    entries: dict[tuple[str, tuple[str, ...]], EmbeddedEntry] = {}
    for number, value in enumerate(listed):
        entry = _entry(value)
        if entry is None:
            ignored.append((f"entry {number}", "not an entry as this version knows them"))
        elif entry.fingerprint != expected:
            ignored.append((entry.name, "describes other data: the file was rewritten with the key of an old one"))
        elif entry.offset + entry.length > end:
            ignored.append((entry.name, "is outside the file"))
        elif (entry.kind, entry.columns) in entries:
            ignored.append((entry.name, "the footer names it twice"))
        else:
            entries[entry.kind, entry.columns] = entry
    return EmbeddedIndexes(tuple(entries.values()), tuple(ignored))


def _entry(value: object) -> EmbeddedEntry | None:
    """The entry, if it has all required fields; later versions may add fields."""
    if not isinstance(value, dict):
        return None
    columns, options = value.get("columns"), value.get("options", {})
    texts: dict[str, Any] = {name: value.get(name) for name in _TEXTS}
    numbers: dict[str, Any] = {name: value.get(name) for name in _NUMBERS}
    if not isinstance(columns, list) or not isinstance(options, dict):
        return None
    if {*map(type, (*columns, *texts.values()))} != {str} or {*map(type, numbers.values())} != {int}:
        return None
    entry = EmbeddedEntry(columns=tuple(columns), options=options, **texts, **numbers)
    possible = entry.offset >= len(MAGIC) and entry.length >= len(PAYLOAD_MAGIC) and 0 <= entry.size <= LARGEST
    return entry if possible and entry.version >= 0 else None


def _name(kind: str, columns: tuple[str, ...]) -> str:
    return f"{kind} of {', '.join(columns)}" if columns else kind


def fingerprint(metadata: FileMetadata) -> str:
    """A hash of the data of a file, computed from its footer: XXH3 (128 bits, hexadecimal).

    Of the schema the bytes; of each row group the rows; of each chunk the codec, the number of values, sizes, places of
    its pages and its bounds. Key/values and places of page indexes and bloom filters are left out: an index may be
    added without changing what is indexed.

    A rewritten file has other sizes and places, unless nothing in it is compressed or encoded and values were exchanged
    for others of the same size within the same bounds. Then it still lacks the bytes the checksum is of.
    """
    found = xxhash.xxh3_128(metadata.schema_bytes)
    for group in metadata.row_groups:
        found.update(struct.pack("<qq", group.num_rows, len(group.columns)))
        for chunk in group.columns:
            known = chunk.statistics or Statistics()
            numbers = (
                chunk.codec,
                chunk.num_values,
                chunk.total_uncompressed_size,
                chunk.total_compressed_size,
                chunk.data_page_offset,
                chunk.dictionary_page_offset,
                known.null_count,
                *(None if bound is None else len(bound) for bound in _bounds(known)),
            )
            found.update(struct.pack("<11q", *(-1 if number is None else number for number in numbers)))
            found.update(b"".join(bound or b"" for bound in _bounds(known)))
    return found.hexdigest()


def _bounds(known: Statistics) -> tuple[bytes | None, ...]:
    return known.min_value, known.max_value, known.legacy_min, known.legacy_max


def read_payload(file: OpenObject, entry: EmbeddedEntry) -> bytes:
    """The embedded payload; PayloadDamaged when the file has other bytes in its place."""
    if entry.size > most_unpacked(entry.length):
        problem = f"the embedded index {entry.name} claims {entry.size:,} bytes in {entry.length:,}"
        raise PayloadDamaged(file.path, problem, hint=_HINT)
    stored = file.read(entry.offset, entry.length)
    if checksum(stored) != entry.checksum:
        raise PayloadDamaged(file.path, f"the embedded index {entry.name} does not match its checksum", hint=_HINT)
    data = stored[len(PAYLOAD_MAGIC) :]
    if entry.codec == "zstd":
        data = _unpacked(file.path, entry, data)
    elif entry.codec != "none":
        raise PayloadDamaged(
            file.path, f"the embedded index {entry.name} is packed with '{entry.codec}'",
            hint="A later version of Needlepoint reads it.",
        )  # fmt: skip
    if len(data) != entry.size:
        problem = f"the embedded index {entry.name} has {len(data)} bytes and should have {entry.size}"
        raise PayloadDamaged(file.path, problem, hint=_HINT)
    return data


def _unpacked(path: str, entry: EmbeddedEntry, data: bytes) -> bytes:
    # Not `Codec.decompress`, which takes the memory for `size` before it looks at the bytes.
    parts: list[bytes] = []
    left = entry.size + 1  # one byte more than allowed shows that there is more
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            while left and (part := stream.read(min(left, _READ_AT_ONCE))):
                parts.append(part)
                left -= len(part)
    except (pa.ArrowException, OSError) as error:
        raise PayloadDamaged(
            path, f"the embedded index {entry.name} cannot be unpacked: {error}", hint=_HINT
        ) from error
    if not left:
        raise PayloadDamaged(path, f"the embedded index {entry.name} is larger than it says", hint=_HINT)
    return b"".join(parts)


def most_unpacked(packed: int, any_size: int = _ANY_SIZE) -> int:
    """The most that so many bytes may become when unpacked. Writers respect it: a small file that claims large sizes is
    refused before memory is allocated.

    >>> most_unpacked(25_000)
    2648576
    """
    return min(LARGEST, any_size + _MOST_GROWTH * packed)


def checksum(stored: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(stored)


def is_intact(file: OpenObject, entry: EmbeddedEntry) -> bool:
    """Whether the stored bytes are those that were embedded; they are not all in memory at once."""
    found = xxhash.xxh3_128()
    for start in range(entry.offset, entry.offset + entry.length, _READ_AT_ONCE):
        data = file.read(start, min(_READ_AT_ONCE, entry.offset + entry.length - start))
        if start == entry.offset and not data.startswith(PAYLOAD_MAGIC):
            return False
        found.update(data)
    return found.hexdigest() == entry.checksum
