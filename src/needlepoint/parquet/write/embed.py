"""Indexes into Parquet files and out of them again; every reader of Parquet goes on reading the files.

    embed(path, payloads)       into a file that is there; its data is copied as it is, not decoded
    remove(path, which)         out of it
    EmbeddingWriter(…)          while a new file is written

Both ways make the same file: data, indexes of the format, payloads, footer. Payloads at the end move up when
one of them is removed, so that a file whose indexes are rebuilt many times does not grow. What is elsewhere (another
tool may have written behind it) stays where it is and is only forgotten.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from needlepoint import objects
from needlepoint.errors import NameTaken, UsageError
from needlepoint.objects import Identity, OpenObject, Piece, open_to_replace
from needlepoint.parquet.format import footer_edit
from needlepoint.parquet.format.bloom_filter import filter_sizes
from needlepoint.parquet.format.footer import FileMetadata, parse_footer, read_footer
from needlepoint.parquet.write import value_list
from needlepoint.parquet.write.embedded import (
    INDEXES,
    LARGEST,
    PAYLOAD_MAGIC,
    EmbeddedEntry,
    EmbeddedIndexes,
    checksum,
    embedded,
    fingerprint,
    is_intact,
    most_unpacked,
    read_payload,
)

__all__ = [
    "EmbeddedEntry",
    "EmbeddedIndexes",
    "EmbeddingWriter",
    "Payload",
    "embed",
    "embedded",
    "read_payload",
    "remove",
]

# Less than this is not worth packing, nor is what does not get smaller by it.
_SMALL = 512


@dataclass(frozen=True, slots=True)
class Payload:
    """What is to be embedded: an index of a kind over columns. `options` are kept with it as JSON."""

    kind: str
    columns: tuple[str, ...]
    version: int
    data: bytes
    options: Mapping[str, Any] = field(default_factory=dict)


def embed(
    path: str, payloads: Sequence[Payload], *, replace: bool = True, identity: Identity | None = None
) -> Identity:
    """Put indexes into the file at `path`; the identity it has then.

    One of the same kind over the same columns goes, or with `replace=False` is NameTaken. FileChanged when the file is
    no longer the one with that `identity`, NotParquet when it is no Parquet file or encrypted: then nothing happened.
    """
    new = {(payload.kind, payload.columns) for payload in payloads}
    if len(new) < len(payloads):
        raise UsageError("two indexes of one kind over the same columns.", hint="Embed one of them.")
    with open_to_replace(path, identity) as file:
        metadata = read_footer(file)
        present = embedded(file, metadata).entries
        taken = next((entry for entry in present if (entry.kind, entry.columns) in new), None)
        if taken is not None and not replace:
            raise NameTaken(f"{path} has an embedded index {taken.name}.", hint="Remove it, or replace it.")
        if not payloads:
            return file.identity
        kept = [entry for entry in present if (entry.kind, entry.columns) not in new]
        return _rewrite(file, metadata, present, kept, payloads)


def remove(path: str, which: Callable[[EmbeddedEntry], bool], *, identity: Identity | None = None) -> Identity:
    """Take those indexes out of the file at `path` for which the function is true; the identity it has then.

    Entries of the footer that do not describe the file go with them. Errors as of `embed`.
    """
    with open_to_replace(path, identity) as file:
        metadata = read_footer(file)
        listed = embedded(file, metadata)
        kept = [entry for entry in listed.entries if not which(entry)]
        if len(kept) == len(listed.entries) and not listed.ignored:
            return file.identity
        return _rewrite(file, metadata, listed.entries, kept, ())


def _rewrite(
    file: OpenObject,
    metadata: FileMetadata,
    present: Sequence[EmbeddedEntry],
    kept: Sequence[EmbeddedEntry],
    payloads: Sequence[Payload],
) -> Identity:
    end, movable = peel(file, metadata, present)
    pieces: list[Piece] = [(0, end)]
    stay = [entry for entry in kept if entry not in movable]
    moved, position = move(pieces, end, [entry for entry in kept if entry in movable])
    added, blobs = place(payloads, position, fingerprint(metadata))
    entries = [*stay, *moved, *added]
    raw = footer_edit.with_key(metadata.raw, INDEXES, entries_json(entries))
    raw = with_list(file, metadata, raw, present, entries, payloads)
    pieces += [*blobs, footer_edit.tail(raw)]
    return objects.replace(file, pieces)


def peel(file: OpenObject, metadata: FileMetadata, entries: Iterable[EmbeddedEntry]) -> tuple[int, list[EmbeddedEntry]]:
    """Where the file ends without its footer and without the payloads right before it, and which those are.

    A file of 1000 bytes has its footer at 900, payloads at 700 to 800 and 800 to 900, and data up to 600: 700, both.
    Only bytes that are surely ours are taken away, with the checksum of the entry and behind all that the footer
    refers to: an entry may belong to another file, or be wrong.
    """
    end = file.size - 8 - len(metadata.raw)
    live = _live_end(file, metadata)
    movable: list[EmbeddedEntry] = []
    for entry in sorted(entries, key=lambda entry: -entry.offset):
        if entry.offset + entry.length != end or entry.offset < live or not is_intact(file, entry):
            break
        movable.append(entry)
        end = entry.offset
    return end, movable[::-1]


def _live_end(file: OpenObject, metadata: FileMetadata) -> int:
    """Where the last byte ends that the format itself refers to."""
    chunks = [chunk for group in metadata.row_groups for chunk in group.columns]
    ends = [chunk.end for chunk in chunks]
    ends += [(chunk.column_index_offset or 0) + (chunk.column_index_length or 0) for chunk in chunks]
    ends += [(chunk.offset_index_offset or 0) + (chunk.offset_index_length or 0) for chunk in chunks]
    sizes = filter_sizes(file, chunks)
    for chunk in chunks:
        if chunk.bloom_filter_offset is not None:
            # A filter of unknown length may be all that follows.
            size = sizes.get(chunk.bloom_filter_offset)
            ends.append(file.size if size is None else chunk.bloom_filter_offset + size)
    return max(ends, default=0)


def move(pieces: list[Piece], position: int, entries: Sequence[EmbeddedEntry]) -> tuple[list[EmbeddedEntry], int]:
    """Add the stored bytes of the entries at `position`; returns the moved entries and their end."""
    moved: list[EmbeddedEntry] = []
    for entry in entries:
        pieces.append((entry.offset, entry.length))
        moved.append(replace(entry, offset=position))
        position += entry.length
    return moved, position


def place(payloads: Sequence[Payload], position: int, described: str) -> tuple[list[EmbeddedEntry], list[bytes]]:
    """Entries and stored bytes of payloads at `position`, one after the other."""
    entries: list[EmbeddedEntry] = []
    blobs: list[bytes] = []
    for payload in payloads:
        if len(payload.data) > LARGEST:
            raise UsageError(
                f"an index of {len(payload.data):,} bytes is too large to be embedded.",
                hint="Keep it outside the file, or write smaller files.",
            )
        codec, packed = _packed(payload.data)
        stored = PAYLOAD_MAGIC + packed
        entries.append(
            EmbeddedEntry(
                kind=payload.kind,
                columns=tuple(payload.columns),
                version=payload.version,
                options=dict(payload.options),
                offset=position,
                length=len(stored),
                codec=codec,
                size=len(payload.data),
                checksum=checksum(stored),
                fingerprint=described,
            )
        )
        blobs.append(stored)
        position += len(stored)
    return entries, blobs


def _packed(data: bytes) -> tuple[str, bytes]:
    # Readers that know no codecs read a list of values in place.
    if len(data) >= _SMALL and not data.startswith(value_list.MAGIC):
        packed: bytes = pa.Codec("zstd").compress(data, asbytes=True)
        if len(packed) < 0.9 * len(data) and len(data) <= most_unpacked(len(packed)):
            return "zstd", packed
    return "none", data


def entries_json(entries: Sequence[EmbeddedEntry]) -> bytes | None:
    """The value of the footer key; None when there is nothing to list."""
    if not entries:
        return None
    return json.dumps([entry.to_dict() for entry in entries], separators=(",", ":")).encode()


def with_list(
    file: OpenObject,
    metadata: FileMetadata,
    raw: bytes,
    present: Sequence[EmbeddedEntry],
    entries: Sequence[EmbeddedEntry],
    payloads: Sequence[Payload] = (),
) -> bytes:
    """The footer with the current offset of the list of values: in a new payload that begins with one, or in the old
    one. A list of another writer keeps its key: it may be of another column."""
    offset = value_list.list_offset(metadata)
    before = next((entry for entry in present if entry.offset + len(PAYLOAD_MAGIC) == offset), None)
    if before is None and value_list.read_list(file, metadata) is not None:
        return raw
    holder = _list_holder(payloads, entries)
    if holder is None and before is not None:
        holder = next((entry for entry in entries if entry.checksum == before.checksum), None)
    return raw if before is None and holder is None else _with_list_in(raw, holder)


def _list_holder(payloads: Sequence[Payload], entries: Sequence[EmbeddedEntry]) -> EmbeddedEntry | None:
    """The entry of the last payload that begins with a list of values: a file has one key for it."""
    holders = [(each.kind, tuple(each.columns)) for each in payloads if each.data.startswith(value_list.MAGIC)]
    return next((entry for entry in entries if holders and (entry.kind, entry.columns) == holders[-1]), None)


def _with_list_in(raw: bytes, holder: EmbeddedEntry | None) -> bytes:
    place = None if holder is None else str(holder.offset + len(PAYLOAD_MAGIC)).encode()
    return footer_edit.with_key(raw, value_list.FOOTER_KEY, place)


class EmbeddingWriter:
    """A `pyarrow.parquet.ParquetWriter` whose file holds indexes too.

    with EmbeddingWriter("part.parquet", schema, compression="zstd") as writer:
        writer.write_table(table)
        writer.add(Payload("distinct", ("partner",), 1, data))

    The footer, which describes the data, is known only when pyarrow writes it; so it is held back, and written with the
    entries in it after the payloads.
    """

    def __init__(self, where: str | os.PathLike[str] | IO[bytes], schema: pa.Schema, **options: Any) -> None:
        # A file that was opened here is closed here.
        self._owned = isinstance(where, (str, os.PathLike))
        target: IO[bytes] = open(where, "wb") if isinstance(where, (str, os.PathLike)) else where  # noqa: SIM115
        self._sink = _Sink(target)
        self._payloads: list[Payload] = []
        self._open = True
        try:
            self.writer = pq.ParquetWriter(self._sink, schema, **options)
        except BaseException:
            self._open = False
            self._close_target()
            raise

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        self.writer.write_table(table, row_group_size)

    def write_batch(self, batch: pa.RecordBatch, row_group_size: int | None = None) -> None:
        self.writer.write_batch(batch, row_group_size)

    def add_key_value_metadata(self, key_value_metadata: Mapping[str, str]) -> None:
        self.writer.add_key_value_metadata(key_value_metadata)

    def add(self, payload: Payload) -> None:
        """Embed this too, when the file is closed."""
        self._payloads = [
            each for each in self._payloads if (each.kind, each.columns) != (payload.kind, payload.columns)
        ] + [payload]

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        try:
            self._sink.hold = True
            self.writer.close()
            self._sink.finish(self._payloads)
        finally:
            self._close_target()

    def _close_target(self) -> None:
        if self._owned:
            self._sink.target.close()

    def __enter__(self) -> EmbeddingWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif self._open:
            # The rest is a file without a footer, which no reader takes for Parquet.
            self._open = False
            self._sink.hold = True
            self.writer.close()
            self._close_target()


class _Sink(io.RawIOBase):
    """Writes to `target`; with `hold`, keeps what comes: page indexes and the footer."""

    def __init__(self, target: IO[bytes]) -> None:
        self.target = target
        self.hold = False
        self._held = bytearray()
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        size = len(memoryview(data).cast("B"))
        if self.hold:
            self._held += data
        else:
            _write_all(self.target, data)
        self._position += size
        return size

    def finish(self, payloads: Sequence[Payload]) -> None:
        held = bytes(self._held)
        length = int.from_bytes(held[-8:-4], "little")
        raw, before = held[-8 - length : -8], held[: -8 - length]
        entries, blobs = place(payloads, self._position - 8 - length, fingerprint(parse_footer(raw)))
        if entries:
            raw = footer_edit.with_key(raw, INDEXES, entries_json(entries))
            holder = _list_holder(payloads, entries)
            raw = raw if holder is None else _with_list_in(raw, holder)
        for part in (before, *blobs, footer_edit.tail(raw)):
            _write_all(self.target, part)
        self.target.flush()


def _write_all(target: IO[bytes], data: Any) -> None:
    """An unbuffered file may write less than it is given."""
    view = memoryview(data).cast("B")
    while view:
        view = view[target.write(view) :]
