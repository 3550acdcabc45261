"""Compression codecs by the numbers Parquet gives them."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

UNCOMPRESSED, ZSTD = 0, 6
# parquet.thrift, CompressionCodec. 3, LZO, is in no build of Arrow. 5, LZ4, is framed in two different ways by
# Hadoop and others, and only the decoder of whole files can distinguish them.
# Compressed pages announce their size; one that announces more is not taken apart here, and pyarrow may judge it.
LARGEST_PAGE = 64 * 1024 * 1024
# What compressed bytes may grow to. zstd makes 32 KB of one byte at most, where all are equal; brotli has no such
# limit, so that a few bytes may become as many as a page has at most.
MOST_GROWTH, ANY_GROWTH = 1 << 15, LARGEST_PAGE
_NAMES = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}


@cache
def _codec(number: int) -> pa.Codec | None:
    name = _NAMES.get(number)
    return pa.Codec(name) if name is not None and pa.Codec.is_available(name) else None


def is_known(number: int) -> bool:
    """Whether pages of this codec can be taken apart here. pyarrow's reader may know more."""
    return number == UNCOMPRESSED or _codec(number) is not None


def decompress(number: int, data: bytes, size: int) -> bytes:
    """The `size` bytes that were compressed; ValueError when they cannot be got back."""
    codec = _codec(number)
    if codec is None:
        if number != UNCOMPRESSED:
            raise ValueError(f"codec {number} is not known")
        return data
    if not 0 <= size <= min(LARGEST_PAGE, ANY_GROWTH + MOST_GROWTH * len(data)):
        raise ValueError(f"a page of {size} bytes in {len(data)}")
    try:
        found: bytes = codec.decompress(data, decompressed_size=size, asbytes=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"cannot be decompressed: {error}") from error
    return found
