"""Parquet's own bloom filters: which row groups can hold a value, for a few bytes each.

https://github.com/apache/parquet-format/blob/master/BloomFilter.md

    BloomFilterHeader   bitset: blocks of 32 bytes, 8 words of 32 bits
                        | block 0 | block 1 | …

The upper half of a value's hash picks a block, the lower half one bit in each of its words. A value that was put in
has all eight bits set; a value that was not has them by chance only. So of a filter of a megabyte the 32 bytes of one
block answer for one value, and only they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from needlepoint.objects import LOCAL_GAP, OpenObject
from needlepoint.parquet.card.card import ABSENT, FileCard
from needlepoint.parquet.format import thrift
from needlepoint.parquet.format.footer import ColumnChunk
from needlepoint.parquet.format.page_index import Int64Array
from needlepoint.parquet.format.thrift import Struct, ThriftError

Hashes = npt.NDArray[np.uint64]
Matrix = npt.NDArray[np.bool_]

BLOCK = 32
# A header takes 15 to 19 bytes; where its length is not known this many are read.
HEADER_WINDOW = 64
# Pairs of a filter and a hash that are worked on together: 8 MiB of blocks.
_PAIRS_AT_ONCE = 1 << 18
# BloomFilter.md, "the salt": odd constants, one for each word of a block
_SALT = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)


@dataclass(frozen=True, slots=True)
class BloomHeader:
    """What precedes a bitset of `num_bytes` in `length` bytes."""

    num_bytes: int
    length: int


@dataclass(frozen=True, slots=True)
class Bitset:
    """Where the file has the blocks of one chunk's filter."""

    offset: int
    blocks: int


KnownFilters = dict[int, Bitset | None]
"""By chunk: where its filter is, None if it cannot be asked."""


def decode_header(data: bytes) -> BloomHeader | None:
    """The header at the beginning of the bytes; None for a filter that cannot be asked here.

    BloomFilterHeader { 1: numBytes, 2: algorithm, 3: hash, 4: compression }, the last three unions of which the only
    known member is 1: BLOCK, XXHASH, UNCOMPRESSED.
    """
    try:
        fields = thrift.parse(data)
        known = all(_is_first(fields.struct(union)) for union in (2, 3, 4))
        size = fields.integer(1)
    except ThriftError:
        return None
    if not known or size < BLOCK or size % BLOCK:
        return None
    return BloomHeader(size, fields.end)


def _is_first(union: Struct) -> bool:
    return union.optional_struct(1) is not None


def hash_values(values: Iterable[bytes]) -> Hashes:
    """XXH64 with seed 0 of values in their PLAIN encoding, byte arrays without the length before them.

    >>> [f"{number:016x}" for number in hash_values([b"", (7).to_bytes(8, "little")])]
    ['ef46db3751d8e999', '0876cd406afde455']
    """
    return np.fromiter(map(xxhash.xxh64_intdigest, values), np.uint64)


def contains(blocks: npt.NDArray[np.uint32], hashes: Hashes) -> Matrix:
    """Whether all bits of a hash are set in its block; the last axis of `blocks` are the eight words.

    >>> some = hash_values([b"a", b"b"])
    >>> contains(mask(some), some), contains(mask(some), some[::-1])
    (array([ True,  True]), array([False, False]))
    """
    wanted = mask(hashes)
    found: Matrix = ((blocks & wanted) == wanted).all(axis=-1)
    return found


def mask(hashes: Hashes) -> npt.NDArray[np.uint32]:
    """The bits of each hash: one in each of eight words."""
    keys = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    bits: npt.NDArray[np.uint32] = np.uint32(1) << ((keys[..., None] * _SALT) >> np.uint32(27))
    return bits


def filter_sizes(file: OpenObject, chunks: Iterable[ColumnChunk]) -> dict[int, int]:
    """Offset of each bloom filter -> its length, from its header where the footer does not give it."""
    sizes: dict[int, int] = {}
    unknown: list[int] = []
    for chunk in chunks:
        offset, length = chunk.bloom_filter_offset, chunk.bloom_filter_length
        if offset is None or not 0 < offset < file.size:
            continue
        if length is None:
            unknown.append(offset)
        else:
            sizes[offset] = length
    windows = file.read_ranges([(at, min(HEADER_WINDOW, file.size - at)) for at in unknown]) if unknown else []
    for offset, data in zip(unknown, windows, strict=True):
        header = decode_header(data)
        if header is not None:
            sizes[offset] = header.length + header.num_bytes
    return sizes


def filled(hashes: Hashes, blocks: int) -> npt.NDArray[np.uint32]:
    """The words of a filter of so many blocks that holds these hashes.

    >>> some = hash_values([b"a", b"b"])
    >>> contains(filled(some, 3)[block_numbers(some, np.array([3], np.uint64))[0]], some)
    array([ True,  True])
    """
    words = np.zeros((blocks, len(_SALT)), np.uint32)
    for first in range(0, len(hashes), _PAIRS_AT_ONCE):
        part = hashes[first : first + _PAIRS_AT_ONCE]
        numbers = block_numbers(part, np.array([blocks], np.uint64))[0]
        order = np.argsort(numbers)
        places, starts = np.unique(numbers[order], return_index=True)
        words[places] |= np.bitwise_or.reduceat(mask(part[order]), starts, axis=0)
    return words


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
    step = max(1, _PAIRS_AT_ONCE // max(1, len(hashes)))
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


def block_numbers(hashes: Hashes, counts: Hashes) -> Int64Array:
    """For each filter of so many blocks and each hash the block: the upper half of the hash, scaled.

    >>> block_numbers(np.array([0, 2**63, 2**64 - 1], np.uint64), np.array([10], np.uint64)).tolist()
    [[0, 5, 9]]
    """
    return (((hashes >> np.uint64(32)) * counts[:, None]) >> np.uint64(32)).astype(np.int64)


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
