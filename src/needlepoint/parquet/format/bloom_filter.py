"""Parquet's own bloom filters, and the hashes and blocks they are made of.

https://github.com/apache/parquet-format/blob/master/BloomFilter.md

    BloomFilterHeader   bitset: blocks of 32 bytes, 8 words of 32 bits
                        | block 0 | block 1 | …

The upper half of a value's hash picks a block, the lower half one bit in each of its words. A value that was put in
has all eight bits set; a value that was not has them by chance only. So of a filter of a megabyte the 32 bytes of one
block answer for one value, and only they are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from needlepoint.objects import OpenObject
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
PAIRS_AT_ONCE = 1 << 18
# BloomFilter.md, "the salt": odd constants, one for each word of a block
_SALT = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)


@dataclass(frozen=True, slots=True)
class BloomHeader:
    """What precedes a bitset of `num_bytes` in `length` bytes."""

    num_bytes: int
    length: int


def decode_header(data: bytes) -> BloomHeader | None:
    """The header at the beginning of the bytes; None for a filter that cannot be asked here.

    BloomFilterHeader { 1: numBytes, 2: algorithm, 3: hash, 4: compression }, the last three unions of which the only
    known member is 1: BLOCK, XXHASH, UNCOMPRESSED.
    """
    try:
        fields = thrift.parse(data)
        known = all(_is_first(fields.struct(union)) for union in (2, 3, 4))
        size = fields.integer32(1)
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
    for first in range(0, len(hashes), PAIRS_AT_ONCE):
        part = hashes[first : first + PAIRS_AT_ONCE]
        numbers = block_numbers(part, np.array([blocks], np.uint64))[0]
        order = np.argsort(numbers)
        places, starts = np.unique(numbers[order], return_index=True)
        words[places] |= np.bitwise_or.reduceat(mask(part[order]), starts, axis=0)
    return words


def block_numbers(hashes: Hashes, counts: Hashes) -> Int64Array:
    """For each filter of so many blocks and each hash the block: the upper half of the hash, scaled.

    >>> block_numbers(np.array([0, 2**63, 2**64 - 1], np.uint64), np.array([10], np.uint64)).tolist()
    [[0, 5, 9]]
    """
    return (((hashes >> np.uint64(32)) * counts[:, None]) >> np.uint64(32)).astype(np.int64)
