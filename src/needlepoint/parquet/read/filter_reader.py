"""Asks the bloom filters of a file which row groups can hold a value, for a few bytes each (format/bloom_filter.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from needlepoint.objects import LOCAL_GAP, OpenObject
from needlepoint.parquet.card.card import ABSENT, FileCard
from needlepoint.parquet.format.bloom_filter import (
    BLOCK,
    HEADER_WINDOW,
    PAIRS_AT_ONCE,
    BloomHeader,
    Hashes,
    Matrix,
    block_numbers,
    contains,
    decode_header,
)
from needlepoint.parquet.format.page_index import Int64Array


@dataclass(frozen=True, slots=True)
class Bitset:
    """Where the file has the blocks of one chunk's filter."""

    offset: int
    blocks: int


KnownFilters = dict[int, Bitset | None]
"""By chunk: where its filter is, None if it cannot be asked."""


def has_filters(card: FileCard, leaf: int, row_groups: Sequence[int]) -> bool:
    """Whether asking can be of use, without reading anything."""
    return any(_bitset(card, card.chunk_index(leaf, group), {}) is not None for group in row_groups)


def probe(
    file: OpenObject,
    card: FileCard,
    leaf: int,
    row_groups: Sequence[int],
    hashes: Hashes,
    known: KnownFilters | None = None,
) -> Matrix:
    """For each row group and hash: may the leaf column hold a value with that hash?

    True everywhere for a chunk without a filter, or with one that cannot be asked. The open file must be the one the
    card describes, before and after. What is read of the places of filters is added to `known`.
    """
    known = {} if known is None else known
    answers = np.ones((len(row_groups), len(hashes)), np.bool_)
    step = max(1, PAIRS_AT_ONCE // max(1, len(hashes)))
    for first in range(0, len(row_groups) if len(hashes) else 0, step):
        chunks = [card.chunk_index(leaf, group) for group in row_groups[first : first + step]]
        answers[first : first + len(chunks)] = _probe(file, card, chunks, hashes, known)
    return answers


def _probe(file: OpenObject, card: FileCard, chunks: Sequence[int], hashes: Hashes, known: KnownFilters) -> Matrix:
    answers = np.ones((len(chunks), len(hashes)), np.bool_)
    _find_headers(file, card, chunks, known)
    bitsets = [
        (row, chunk, bitset) for row, chunk in enumerate(chunks) if (bitset := _bitset(card, chunk, known)) is not None
    ]
    if not bitsets:
        return answers
    # Headers that are not known yet come with the blocks, in one request.
    unseen = [(chunk, bitset) for _, chunk, bitset in bitsets if chunk not in known]
    headers = [_header_place(card, chunk, bitset) for chunk, bitset in unseen]
    offsets = np.array([bitset.offset for _, _, bitset in bitsets], np.int64)
    counts = np.array([bitset.blocks for _, _, bitset in bitsets], np.uint64)
    places = offsets[:, None] + block_numbers(hashes, counts) * BLOCK
    found, blocks = _read(file, headers, places)
    for (chunk, bitset), data in zip(unseen, found, strict=True):
        known[chunk] = bitset if _agrees(decode_header(data), bitset, len(data)) else None
    answers[[row for row, _, _ in bitsets]] = contains(blocks, hashes)
    # A header that does not agree takes back what was read by the length alone.
    answers[[row for row, chunk, _ in bitsets if known[chunk] is None]] = True
    return answers


def _bitset(card: FileCard, chunk: int, known: KnownFilters) -> Bitset | None:
    """Where the chunk's filter is as far as is known: from its header if it was read, else from its length."""
    if chunk in known:
        return known[chunk]
    offset, length = int(card.chunks.bloom_filter_offset[chunk]), int(card.chunks.bloom_filter_length[chunk])
    if offset <= 0 or offset >= card.identity.size:
        return None
    if length == ABSENT:
        return Bitset(offset, 0)  # to be found
    # The bitset is whole blocks and the header shorter than one, so the length gives the end of the header.
    header, size = length % BLOCK, length - length % BLOCK
    if header == 0 or size <= 0 or offset + length > card.identity.size:
        return None
    return Bitset(offset + header, size // BLOCK)


def _header_place(card: FileCard, chunk: int, bitset: Bitset) -> tuple[int, int]:
    offset = int(card.chunks.bloom_filter_offset[chunk])
    return offset, bitset.offset - offset


def _agrees(header: BloomHeader | None, bitset: Bitset, length: int) -> bool:
    return header is not None and header == BloomHeader(bitset.blocks * BLOCK, length)


def _find_headers(file: OpenObject, card: FileCard, chunks: Sequence[int], known: KnownFilters) -> None:
    """The headers of filters whose length the footer does not give."""
    unknown = [chunk for chunk in chunks if (bitset := _bitset(card, chunk, known)) is not None and not bitset.blocks]
    if not unknown:
        return
    size = card.identity.size
    offsets = [int(card.chunks.bloom_filter_offset[chunk]) for chunk in unknown]
    windows = file.read_ranges([(offset, min(HEADER_WINDOW, size - offset)) for offset in offsets])
    for chunk, offset, data in zip(unknown, offsets, windows, strict=True):
        header = decode_header(data)
        if header is None or offset + header.length + header.num_bytes > size:
            known[chunk] = None
        else:
            known[chunk] = Bitset(offset + header.length, header.num_bytes // BLOCK)


def _read(
    file: OpenObject, headers: Sequence[tuple[int, int]], places: Int64Array
) -> tuple[list[bytes], npt.NDArray[np.uint32]]:
    """The headers, and for each place the words of the block there."""
    wanted, which = np.unique(places, return_inverse=True)
    # Blocks near each other are one range; with many values that is the whole bitset, and never more than it.
    breaks = np.flatnonzero(np.diff(wanted) > LOCAL_GAP) + 1
    firsts = wanted[np.concatenate((np.zeros(1, np.int64), breaks))]
    ends = wanted[np.concatenate((breaks - 1, np.array([len(wanted) - 1])))] + BLOCK
    ranges = list(zip(firsts.tolist(), (ends - firsts).tolist(), strict=True))
    data = file.read_ranges([*headers, *ranges])
    read = np.frombuffer(b"".join(data[len(headers) :]), np.uint8)
    # Where the ranges begin in what was read, minus where they begin in the file.
    shift = np.cumsum(ends - firsts) - ends
    inside = wanted + np.repeat(shift, np.diff(np.concatenate((np.zeros(1, np.int64), breaks, [len(wanted)]))))
    blocks = read[inside[:, None] + np.arange(BLOCK)].view("<u4")
    words: npt.NDArray[np.uint32] = blocks[which.reshape(places.shape)]
    return data[: len(headers)], words
