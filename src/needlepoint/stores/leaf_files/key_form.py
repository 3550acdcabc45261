"""How the keys of a leaf file are kept: how many bits of each, and as which numbers its pages have them.

A store may keep the first bits of its keys only. Two keys that agree in them are one to it, so it finds a row too many,
and never one too few. What is left of the keys of texts, 8 bytes and bits of a hash, mostly is a number of 64 bits:

    'AB-12345' ‖ hash       26 letters, 26 letters, 1 sign, 10 digits …: a number below 26 · 26 · 10^5
                            that number, and behind it the bits of the hash: the order of the keys is kept

Numbers are small in a leaf, take half the memory of bytes, and are compared many times faster. A leaf whose keys do not
fit into 64 bits in this way has them as bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from needlepoint.errors import StoreError
from needlepoint.stores.leaf_files.keys import (
    Columns,
    Keys,
    different,
    key_table,
    ordered,
    to_keys,
    with_ordered_locations,
)

LEADING = 8  # bytes that are counted by their alphabets
FEW = 4096  # keys that are counted at once

_SIGN = 1 << 63
Used = npt.NDArray[np.bool_]
"""Which bytes occur at each of the leading positions: 8 lines of 256."""


class KeyCut(NamedTuple):
    """The first `bits` bits of each key."""

    bits: int

    @property
    def width(self) -> int:
        """The bytes they take. What is left of the last one is zero."""
        return -(-self.bits // 8)

    def of(self, keys: Keys, width: int) -> Keys:
        """What is kept of keys with so many bytes. Their order stays, but some may become equal.

        >>> KeyCut(12).of(to_keys([b"abc"], 3), 3).tolist()
        [b'a`']
        """
        if self.bits == 8 * width:
            return keys
        table = key_table(keys, width)[:, : self.width].copy()
        if unused := -self.bits % 8:
            table[:, -1] &= 0xFF << unused & 0xFF
        return ordered(table)

    def of_bytes(self, key: bytes) -> bytes:
        if self.bits == 8 * len(key):
            return key
        return key[: self.width - 1] + bytes([key[self.width - 1] & 0xFF << -self.bits % 8 & 0xFF])

    def of_columns(self, columns: Columns, width: int) -> Columns:
        """Ascending entries with keys of so many bytes. Those whose keys become equal are in order of location, too."""
        if self.bits == 8 * width:
            return columns
        return with_ordered_locations(Columns(self.of(columns.keys, width), columns.locations))


class Alphabets:
    """Which bytes are at the first 8 positions of the keys of a leaf, and so many bits behind them.

    >>> alphabets = Alphabets(used_bytes(to_keys([b"AB-12345\\x01", b"AC-12346\\x02"], 9)), 8)
    >>> alphabets.numbers(to_keys([b"AB-12346\\x00", b"AC-12345\\x07", b"BB-12345\\x07"], 9), 9)[0].tolist()
    [-9223372036854775552, -9223372036854775289]
    """

    def __init__(self, used: Used, behind: int) -> None:
        self.used, self.behind = used, behind
        self._radices = [int(line.sum()) for line in used]
        places = [1] * LEADING
        for position in reversed(range(LEADING - 1)):
            places[position] = places[position + 1] * self._radices[position + 1]
        self.count = (places[0] * self._radices[0]) << behind
        """How many keys there can be."""
        self._places = [place << behind for place in places]
        ranks = np.maximum(np.cumsum(used, axis=1) - 1, 0).astype(np.uint64)
        self._worth = ranks * np.array([[place % 2**64] for place in self._places], np.uint64)
        self._symbols = [np.flatnonzero(line).astype(np.uint8) for line in used]
        self._ranks = [{int(symbol): rank for rank, symbol in enumerate(line)} for line in self._symbols]

    @property
    def fits(self) -> bool:
        """Whether keys are numbers of 64 bits."""
        return self.count <= 1 << 64

    def numbers(self, keys: Keys, width: int) -> tuple[Keys, Used]:
        """The numbers of keys that the leaf can have, and which ones these are."""
        table = key_table(keys, width)
        if len(table) <= FEW:
            positions = np.arange(LEADING)
            leading = table[:, :LEADING]
            known = np.logical_and.reduce(self.used[positions, leading], axis=1)
            found = self._worth[positions, leading].sum(axis=1, dtype=np.uint64)
        else:
            known, found = np.ones(len(table), np.bool_), np.zeros(len(table), np.uint64)
            for position in range(LEADING):
                column = table[:, position]
                known &= self.used[position][column]
                found += self._worth[position][column]
        found += _rest(table, self.behind)
        return (found ^ np.uint64(_SIGN)).view(np.int64)[known], known

    def number(self, key: bytes) -> int | None:
        """From 0 on; None if the leaf cannot have the key."""
        found = int.from_bytes(key[LEADING:]) >> 8 * (len(key) - LEADING) - self.behind
        for ranks, place, byte in zip(self._ranks, self._places, key, strict=False):
            rank = ranks.get(byte)
            if rank is None:
                return None
            found += rank * place
        return found

    def keys(self, numbers: Keys, width: int) -> Keys:
        """The keys with these numbers."""
        found = numbers.view(np.uint64) ^ np.uint64(_SIGN)
        table = np.zeros((len(found), width), np.uint8)
        rest = (found & np.uint64((1 << self.behind) - 1)) << np.uint64(8 * (width - LEADING) - self.behind)
        table[:, LEADING:] = rest.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - (width - LEADING) :]
        found >>= np.uint64(self.behind)
        for position in reversed(range(LEADING)):
            radix = np.uint64(self._radices[position])
            upper = found // radix
            table[:, position] = self._symbols[position][found - upper * radix]
            found = upper
        return ordered(table)

    def bound(self, key: bytes) -> tuple[int, bool]:
        """The least number, from 0 on, whose key is not less than this one; and whether it is this key's.

        >>> alphabets = Alphabets(used_bytes(to_keys([b"AB-12345\\x01", b"AC-12346\\x02"], 9)), 8)
        >>> [alphabets.bound(key) for key in (b"AB-12346\\x00", b"AB-9\\x00\\x00\\x00\\x00\\x00", b"zzzzzzzz\\xff")]
        [(256, True), (512, False), (1024, False)]
        """
        if (number := self.number(key)) is not None:
            return number, True
        found = 0
        for position in range(LEADING):
            rank = int(np.searchsorted(self._symbols[position], key[position]))
            found += rank * self._places[position]
            if rank == self._radices[position] or self._symbols[position][rank] != key[position]:
                break
        return found, False


def _rest(table: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.uint64]:
    """So many bits of each key behind the leading bytes, as a number."""
    width = table.shape[1] - LEADING
    padded = np.zeros((len(table), 8), np.uint8)
    padded[:, 8 - width :] = table[:, LEADING:]
    found: npt.NDArray[np.uint64] = padded.view(">u8").ravel().astype(np.uint64) >> np.uint64(8 * width - bits)
    return found


def no_bytes() -> Used:
    return np.zeros((LEADING, 256), np.bool_)


def used_bytes(keys: Keys, width: int = 0) -> Used:
    """Which bytes keys have at the leading positions."""
    table = key_table(keys, width or keys.dtype.itemsize)
    used = no_bytes()
    for position in range(LEADING):
        used[position][table[:, position]] = True
    return used


def to_alphabets(used: Used, cut: KeyCut) -> Alphabets | None:
    """The alphabets of a leaf, if its keys are numbers by them."""
    behind = cut.bits - 8 * LEADING
    if not 0 < behind < 64 or not used.any():
        return None
    found = Alphabets(used, behind)
    return found if found.fits else None


@dataclass(frozen=True, slots=True, eq=False)
class KeyForm:
    """Keys as they are outside of a leaf, those that are kept of them, and those in its pages."""

    cut: KeyCut
    alphabets: Alphabets | None = None

    @property
    def page_width(self) -> int:
        """The bytes of keys in pages."""
        return self.cut.width if self.alphabets is None else 8

    def to_pages(self, keys: Keys) -> Keys:
        """Keys that are cut; StoreError if the leaf cannot have one of them."""
        found = self._known(keys)
        if len(found) != len(keys):
            raise StoreError("keys have bytes that the leaf file does not list.", hint="Build the index again.")
        return found

    def _known(self, keys: Keys) -> Keys:
        return keys if self.alphabets is None else self.alphabets.numbers(keys, self.cut.width)[0]

    def from_pages(self, keys: Keys) -> Keys:
        return keys if self.alphabets is None else self.alphabets.keys(keys, self.cut.width)

    def point(self, key: bytes) -> Keys:
        """A key, not cut, as pages have it; none if the leaf cannot have it."""
        key = self.cut.of_bytes(key)
        if self.alphabets is None:
            return to_keys([key], len(key))
        number = self.alphabets.number(key)
        return np.array([] if number is None else [number - _SIGN], np.int64)

    def points(self, keys: Keys) -> Keys:
        """Of keys that are cut and ascend, those that the leaf can have, as its pages have them."""
        return different(self._known(keys))

    def between(self, low: bytes, high: bytes) -> tuple[Keys, Keys] | None:
        """A range, both ends inclusive, that has all keys that the leaf can have from `low` to `high`; None if there
        are none."""
        low, high = self.cut.of_bytes(low), self.cut.of_bytes(high)
        if self.alphabets is None:
            return to_keys([low], len(low)), to_keys([high], len(high))
        first = self.alphabets.bound(low)[0]
        number, is_known = self.alphabets.bound(high)
        last = number if is_known else number - 1
        if first > last:
            return None
        return np.array([first - _SIGN], np.int64), np.array([last - _SIGN], np.int64)


def least_cut(cuts: Iterable[KeyCut]) -> KeyCut:
    """What leaves with these have in common."""
    return KeyCut(min(cut.bits for cut in cuts))


def pack_alphabets(alphabets: Alphabets) -> list[str]:
    return [np.flatnonzero(line).astype(np.uint8).tobytes().hex() for line in alphabets.used]


def unpack_alphabets(lines: Sequence[str], behind: int) -> Alphabets:
    """ValueError if these are no alphabets of a leaf."""
    used = no_bytes()
    for position, line in enumerate(lines):
        used[position][np.frombuffer(bytes.fromhex(line), np.uint8)] = True
    found = Alphabets(used, behind)
    if len(lines) != LEADING or not used.any(axis=1).all() or not 0 < behind < 64 or not found.fits:
        raise ValueError("its alphabets are not those of numbers")
    return found
