"""How payloads of value indexes are stored: as cards are (card/array_container.py), with the kind and its version in
the header. What comes back from other bytes is IndexDamaged, and nothing larger than they can hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from needlepoint.errors import NotIndexable
from needlepoint.parquet import array_container
from needlepoint.parquet.format import Int64Array
from needlepoint.parquet.write import most_unpacked
from needlepoint.stores import IndexDamaged

# How large the contents of any payload may be.
ANY_SIZE = 32 << 20


def pack(
    kind: str, version: int, header: Mapping[str, Any], arrays: Sequence[Int64Array], blobs: Sequence[bytes]
) -> bytes:
    """NotIndexable when `unpack` would refuse it."""
    data = array_container.pack({"kind": kind, "version": version, **header}, arrays, blobs)
    if array_container.unpacked_size(data) > most_unpacked(len(data), ANY_SIZE):
        raise NotIndexable(
            f"a payload of {array_container.unpacked_size(data):,} bytes is too large for a {kind} index."
        )
    return data


def unpack(kind: str, versions: Sequence[int], data: bytes) -> tuple[dict[str, Any], list[Int64Array], list[bytes]]:
    """What `pack` was given, now or in one of these earlier versions; the first is the newest."""
    try:
        header, arrays, blobs = array_container.unpack(data, most=most_unpacked(len(data), ANY_SIZE))
    except ValueError as error:
        raise damaged(kind, str(error)) from error
    if header.get("kind") != kind or header.get("version") not in versions:
        raise damaged(kind, f"it is version {header.get('version')} of '{header.get('kind')}', not {versions[0]}")
    return header, arrays, blobs


def damaged(kind: str, problem: str) -> IndexDamaged:
    return IndexDamaged(
        f"a payload of a {kind} index cannot be read: {problem}.", hint="`needle repair` builds it again."
    )
