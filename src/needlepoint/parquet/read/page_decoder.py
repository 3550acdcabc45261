"""Pages that were fetched, as columns: pyarrow decodes a small file made of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

import numpy as np
import pyarrow as pa

from needlepoint.parquet.format import codecs, int96
from needlepoint.parquet.format.page_index import Int64Array
from needlepoint.parquet.read.arrow_reader import ParquetReader, open_reader
from needlepoint.parquet.read.assembly import AssembledChunk, Frame, Piece, assemble, count_values
from needlepoint.parquet.read.dictionaries import look_up
from needlepoint.parquet.read.joint_pages import JointPages
from needlepoint.parquet.read.page_plan import FieldPlan
from needlepoint.parquet.read.page_request import ChunkPart, FilePart
from needlepoint.parquet.read.take_rows import take
from needlepoint.parquet.read.unpacked_pages import FEWEST_PAGES, Bytes, unpacked_file

Column = Callable[[], pa.ChunkedArray]
"""A field that is being decoded, and is there when called for."""

_RowGroup = tuple[int, list[AssembledChunk]]
"""A row group to assemble: its number of rows, and its chunks."""


class Mismatch(ValueError):
    """The pages decode, but not to what the card says."""


def decode_joint(field: FieldPlan, data: Bytes, pages: JointPages) -> pa.ChunkedArray:
    """Pages of zstd are unpacked together if that is possible."""
    (leaf,) = field.leaves
    frame, _ = leaf.alone()
    chunk, rows = leaf.chunk(0), pages.num_rows
    file = None
    if chunk.codec == codecs.ZSTD and len(pages.size) >= FEWEST_PAGES and codecs.is_known(codecs.ZSTD):
        # One row more than there is, as in `_open`.
        file = unpacked_file(frame, leaf.head(0, codecs.UNCOMPRESSED), rows + 1, data, pages.start, pages.size)
    if file is None:
        view, ends = data.data, (pages.start + pages.size).tolist()
        blocks: list[Piece] = [view[start:end] for start, end in zip(pages.start.tolist(), ends, strict=True)]
        reader = _open(frame, [(rows, [AssembledChunk(chunk.head, rows, None, blocks)])])
    else:
        reader = open_reader(pa.BufferReader(file), int96_unit=int96.UNIT)
    return take(_read_column(reader, 0, field.name, rows), pages.positions)


def decode(parts: Sequence[FilePart], executor: Executor | None) -> dict[str, Column]:
    """The wanted rows of each field of these parts."""
    return _decode_apart(parts) if any(part.apart for part in parts) else _decode_assembled(parts, executor)


def _decode_assembled(parts: Sequence[FilePart], executor: Executor | None) -> dict[str, Column]:
    """Assemble the pages of all parts into one file and take the wanted rows of each of its fields."""
    plan = parts[0].plan
    assembled = [_assembled_field(parts, number) for number in range(len(plan.fields))]
    reader = _open(plan.frame, _side_by_side(assembled))
    fields: dict[str, Column] = {}
    for number, field in enumerate(plan.fields):
        read = functools.partial(_read_rows, reader, number, field.name, parts)
        fields[field.name] = read if executor is None else executor.submit(read).result
    return fields


def _assembled_field(parts: Sequence[FilePart], number: int) -> list[_RowGroup]:
    """The chunks of a field of all parts. Pages of the same codec that need no dictionary are in one chunk, whichever
    row group or file they are from: pyarrow reads a chunk of a thousand pages faster than a thousand chunks."""
    found: list[_RowGroup] = []
    before: list[int] | None = None  # the codecs of the last row group, if others can be added to it
    for part in parts:
        for chunks in part.chunks[number]:
            assembled: list[AssembledChunk] = []
            alike: list[int] | None = []
            for chunk in chunks:
                assembled.append(_assembled(chunk, part.blocks))
                alike = None if alike is None or chunk.dictionary is not None else [*alike, chunk.plan.codec]
            rows = chunks[0].num_rows
            if alike is not None and alike == before:
                rows_before, joined = found[-1]
                found[-1] = rows_before + rows, [*map(AssembledChunk.followed_by, joined, assembled)]
            else:
                found.append((rows, assembled))
            before = alike
    return found


def _side_by_side(fields: Sequence[list[_RowGroup]]) -> list[_RowGroup]:
    """Row groups with the chunks of all fields. A field with fewer chunks has some without pages and rows."""
    if len(fields) == 1:
        return fields[0]
    groups: list[_RowGroup] = []
    for number in range(max(map(len, fields))):
        most, chunks = 0, list[AssembledChunk]()
        for row_groups in fields:
            rows, own = row_groups[number] if number < len(row_groups) else _nothing(row_groups[0])
            most = max(most, rows)
            chunks += own
        groups.append((most, chunks))
    return groups


def _nothing(like: _RowGroup) -> _RowGroup:
    return 0, [AssembledChunk(chunk.head, 0, None, []) for chunk in like[1]]


def _read_rows(reader: ParquetReader, number: int, name: str, parts: Sequence[FilePart]) -> pa.ChunkedArray:
    """The wanted rows of a field, of parts whose pages follow one another in the assembled file."""
    total, places = 0, list[Int64Array]()
    for part in parts:
        selection = part.selections[number]
        places.append(selection.positions + total if total else selection.positions)
        total += sum(selection.row_counts)
    return take(_read_column(reader, number, name, total), np.concatenate(places) if len(places) > 1 else places[0])


def _open(frame: Frame, row_groups: Sequence[_RowGroup]) -> ParquetReader:
    """Each chunk claims one value more than it should have. Else pyarrow would stop at the right number of values also
    where a page has too many of them, and give each row after that page the value of the row before."""
    return open_reader(pa.BufferReader(assemble(frame, row_groups, missing=1)), int96_unit=int96.UNIT)


def _read_column(reader: ParquetReader, number: int, name: str, count: int) -> pa.ChunkedArray:
    found = reader.read_column(number)
    if len(found) != count:
        raise Mismatch(f"column {name} has {len(found)} rows where {count} were expected")
    return found


def _decode_apart(parts: Sequence[FilePart]) -> dict[str, Column]:
    """As `_decode_assembled`, but values of large dictionaries are looked up, and only the other pages assembled.

    A chunk of which nothing is left to assemble is there with no pages and no rows.
    """
    plan = parts[0].plan
    pieces: list[list[pa.Array | Int64Array]] = [[] for _ in plan.fields]
    counts = [0] * len(plan.fields)  # rows of each field in the assembled file
    assembled: list[list[_RowGroup]] = [[] for _ in plan.fields]
    for part in parts:
        for number, row_groups in enumerate(part.chunks):
            first = 0
            for (chunk,) in row_groups:
                positions = part.selections[number].positions - first
                inside = positions[(positions >= 0) & (positions < chunk.num_rows)]
                first += chunk.num_rows
                found, left = _look_up(chunk, part, inside)
                pieces[number] += [each + counts[number] if isinstance(each, np.ndarray) else each for each in found]
                counts[number] += left.num_values
                assembled[number].append((left.num_values, [left]))
    reader = _open(plan.frame, _side_by_side(assembled)) if any(counts) else None
    fields: dict[str, Column] = {}
    for number, field in enumerate(plan.fields):
        some = reader is not None and counts[number]
        column = _read_column(reader, number, field.name, counts[number]) if some else None
        taken: list[pa.Array] = []
        for piece in pieces[number]:
            if isinstance(piece, np.ndarray):
                taken += take(column, piece).chunks
            else:
                taken.append(piece)
        fields[field.name] = functools.partial(pa.chunked_array, taken)
    return fields


def _look_up(
    chunk: ChunkPart, part: FilePart, positions: Int64Array
) -> tuple[list[pa.Array | Int64Array], AssembledChunk]:
    """The wanted rows of a chunk as arrays and as positions in what is left to assemble, and that."""
    if not chunk.apart or part.cache is None:
        return [positions], _assembled(chunk, part.blocks)
    cache, leaf, row_group = part.cache, chunk.leaf, chunk.row_group
    _, optional = leaf.alone()
    plan = chunk.plan

    def entries() -> pa.Array:
        if chunk.entries is not None or chunk.dictionary is None:
            return chunk.entries
        return cache.decode(leaf, row_group, part.blocks[chunk.dictionary])

    blocks = part.blocks[chunk.first_range : chunk.last_range]
    found = look_up(blocks, chunk.num_rows, plan.codec, optional, positions.tolist(), entries)
    pieces = [np.array(each) if isinstance(each, list) else each for each in found.pieces]
    return pieces, AssembledChunk(plan.head, found.num_values, None, [*found.pages])


def _assembled(chunk: ChunkPart, blocks: list[bytes]) -> AssembledChunk:
    pages = blocks[chunk.first_range : chunk.last_range]
    values = sum(map(count_values, pages)) if chunk.nested else chunk.num_rows
    dictionary = None if chunk.dictionary is None else blocks[chunk.dictionary]
    return AssembledChunk(chunk.plan.head, values, dictionary, [*pages])
