"""Pages of many local files, chosen and read together: one choice for the rows of all files, and one buffer of bytes.

The rows of the files are numbered one file after the other, so that numpy finds all pages in a few calls:

    file 0: 300 rows, pages begin at rows 0, 100, 200     wanted 120, 130
    file 1: 200 rows, pages begin at rows 0, 100          wanted 5
    joined: pages begin at rows 0, 100, 200, 300, 400     wanted 120, 130, 305     ->  pages 1 and 3

This is for flat columns whose chunks have no dictionary: their pages can be decoded as if they were of one chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from needlepoint.objects import LOCAL_GAP, LocalFile, OpenObject
from needlepoint.parquet.format.page_index import Int64Array
from needlepoint.parquet.read.page_plan import FieldPlan
from needlepoint.parquet.read.unpacked_pages import Bytes

# Positions in all files are numbers, too: the file's number, and 48 bits for the byte in it.
_FILE_BITS = 48


OpenFile = Callable[[], AbstractContextManager[OpenObject]]
"""Opens a local file, and checks before and after that it is the version that was planned."""


class JointPages(NamedTuple):
    """Pages of one field in the buffer: where each begins and its size. `positions` are those of the wanted rows in the
    pages, which have `num_rows` rows."""

    start: Int64Array
    size: Int64Array
    positions: Int64Array
    num_rows: int


@dataclass(frozen=True, slots=True)
class JointRead:
    """The pages of all fields, in one `buffer`, and what reading them took."""

    buffer: Bytes
    fields: tuple[JointPages, ...]
    bytes_read: int
    requests: int
    pages: int
    row_groups: int


def read_jointly(
    fields: Sequence[Sequence[FieldPlan]],
    rows: Sequence[Int64Array],
    row_counts: Sequence[int],
    files: Sequence[OpenFile],
) -> JointRead:
    """The pages that hold the wanted rows of `fields`, of each its plans in all files. `row_counts` are those of the
    files."""
    counts = np.array(row_counts, np.int64)
    ends = counts.cumsum()
    starts = ends - counts
    wanted = np.concatenate(rows) + np.repeat(starts, [len(each) for each in rows])
    selections: dict[tuple[int, ...], _Selection] = {}
    chosen: list[_Selection] = []
    for field in fields:
        shared = tuple(id(plan.first_row) for plan in field)  # by fields whose pages begin at the same rows
        if shared not in selections:
            selections[shared] = _select(field, wanted, starts, int(ends[-1]))
        chosen.append(selections[shared])
    offset, size = (
        [
            np.concatenate([getattr(plan.leaves[0], name) for plan in field])[each.pages]
            for field, each in zip(fields, chosen, strict=True)
        ]
        for name in ("offset", "size")
    )
    begin = np.concatenate([(each.file << _FILE_BITS) + at for each, at in zip(chosen, offset, strict=True)])
    blocks = _Blocks.of(begin, np.concatenate(size))
    buffer = blocks.read(files)
    place = blocks.place
    parts: list[JointPages] = []
    for each, sizes in zip(chosen, size, strict=True):
        parts.append(JointPages(place[: len(sizes)], sizes, each.positions, each.num_rows))
        place = place[len(sizes) :]
    return JointRead(buffer, tuple(parts), len(buffer), len(blocks.start), len(begin), chosen[0].row_groups)


class _Selection(NamedTuple):
    """Pages by their numbers in the joined files, with their files, and the wanted rows in them."""

    pages: Int64Array
    file: Int64Array
    positions: Int64Array
    num_rows: int
    row_groups: int


def _select(field: Sequence[FieldPlan], wanted: Int64Array, starts: Int64Array, num_rows: int) -> _Selection:
    """The pages of one field with the wanted rows: `FieldPlan.select` over all files."""
    counts = [len(plan.first_row) for plan in field]
    first_row = np.concatenate([plan.first_row for plan in field]) + np.repeat(starts, counts)
    page = np.searchsorted(first_row, wanted, side="right") - 1
    begins = np.empty(len(wanted), np.bool_)
    begins[0] = True
    np.not_equal(page[1:], page[:-1], out=begins[1:])
    pages = page[begins]
    first = first_row[pages]
    rows = np.append(first_row[1:], num_rows)[pages] - first
    # How far the rows of a page move when the pages not chosen are left out.
    shift = rows.cumsum() - rows - first
    positions = wanted + shift[begins.cumsum() - 1]
    file = np.repeat(np.arange(len(field)), counts)[pages]
    row_group = np.concatenate([plan.row_group for plan in field])[pages]
    changes = (file[1:] != file[:-1]) | (row_group[1:] != row_group[:-1])
    return _Selection(pages, file, positions, int(rows.sum()), 1 + int(np.count_nonzero(changes)))


class _Blocks(NamedTuple):
    """What is read in one go: `start` and `end` in all files, and where it is in the buffer. `place` is that of each
    page."""

    start: Int64Array
    end: Int64Array
    buffer_end: Int64Array
    place: Int64Array

    @classmethod
    def of(cls, begin: Int64Array, size: Int64Array) -> _Blocks:
        order = np.argsort(begin, kind="stable")
        begins = begin[order]
        ends = np.maximum.accumulate(begins + size[order])
        apart = np.empty(len(begins), np.bool_)
        apart[0] = True
        np.greater(begins[1:], ends[:-1] + LOCAL_GAP, out=apart[1:])
        last = np.append(np.flatnonzero(apart[1:]), len(begins) - 1)
        start, end = begins[apart], ends[last]
        buffer_end = (end - start).cumsum()
        shift = buffer_end - end  # from a place in all files to one in the buffer
        place = np.empty(len(begins), np.int64)
        place[order] = begins + shift[apart.cumsum() - 1]
        return cls(start, end, buffer_end, place)

    def read(self, files: Sequence[OpenFile]) -> Bytes:
        buffer = np.empty(int(self.buffer_end[-1]), np.uint8)
        view = buffer.data
        file = self.start >> _FILE_BITS
        firsts = np.flatnonzero(np.append(True, file[1:] != file[:-1])).tolist()
        offsets = (self.start - (file << _FILE_BITS)).tolist()
        begins = (self.buffer_end - (self.end - self.start)).tolist()
        targets = [view[begin:end] for begin, end in zip(begins, self.buffer_end.tolist(), strict=True)]
        for number, first, last in zip(file[firsts].tolist(), firsts, [*firsts[1:], len(offsets)], strict=True):
            with files[number]() as opened:
                assert isinstance(opened, LocalFile)
                opened.read_into(offsets[first:last], targets[first:last])
        return buffer
