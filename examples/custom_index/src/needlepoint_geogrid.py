"""An index kind for Needlepoint: which pages hold places in a part of the world.

Bounds of latitude and of longitude are known for every page, but the bounds of a page with Lisbon and Vienna contain
Paris. This index divides the world into cells, and stores for each page the cells of its rows:

    SELECT … WHERE latitude BETWEEN 48.8 AND 48.9 AND longitude BETWEEN 2.2 AND 2.4
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from needlepoint.access import Rows
from needlepoint.errors import NotIndexable, UsageError
from needlepoint.indexes.base import Answer, ColumnSource, Condition, FileIndex, IndexPayload, Options, PayloadHandle
from needlepoint.predicate import Between, Compare
from needlepoint.stores.base import IndexDamaged

Cells = npt.NDArray[np.int64]

MAGIC = b"GRID"
MOST_PARTS = 256  # of a megabyte


@dataclass(frozen=True, slots=True)
class Axis:
    """Numbers from `low` to `low + size`, in so many `steps`. One extra step is for all others: NULL, NaN, infinity and
    numbers outside the range. Its rows can always match."""

    low: float
    size: float
    steps: int

    def steps_of(self, column: pa.Array) -> Cells:
        numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)  # NULL comes as NaN
        with np.errstate(invalid="ignore"):
            inside = (numbers >= self.low) & (numbers < self.low + self.size)
            found = np.floor((numbers - self.low) * (self.steps / self.size))
        return np.where(inside, found, self.steps).astype(np.int64)

    def step(self, number: float) -> int:
        """The step of a number, and for those beyond the first or the last."""
        return int(min(max((number - self.low) * (self.steps / self.size), 0), self.steps - 1))


class GeogridKind:
    """Columns: latitude, then longitude. Option: `cell`, the size of a cell in degrees."""

    name = "geogrid"
    version = 1

    def check(self, table: str, fields: Sequence[pa.Field], options: Options) -> None:
        if len(fields) != 2:
            raise UsageError(f"a geogrid index has two columns, latitude and longitude, not {len(fields)}.")
        for field in fields:
            if not pa.types.is_floating(field.type):
                raise NotIndexable(f"column '{field.name}' of table '{table}' is {field.type}, not a float.")
        _axes(options)

    def build(self, source: ColumnSource) -> IndexPayload:
        axes = _axes(source.options)
        # Pages of the two columns end at different rows; those of the latitude will do.
        edges = source.page_rows[source.fields[0].name]
        found: list[Cells] = [np.zeros((0, 3), np.int64)]
        first = 0
        for batch in source.batches():
            rows = np.arange(first, first + batch.num_rows)
            first += batch.num_rows
            pages = np.searchsorted(edges[1:], rows, side="right")
            steps = [axis.steps_of(batch.column(number)) for number, axis in enumerate(axes)]
            found.append(np.unique(np.stack([pages, *steps], axis=1), axis=0))
        places = np.unique(np.concatenate(found), axis=0)
        parts = [np.array([len(edges), len(places)]), edges, places.ravel()]
        numbers = np.concatenate(parts).astype("<i8").tobytes()
        return IndexPayload(MAGIC + pa.compress(numbers, codec="zstd", asbytes=True), entries=len(places))

    def open(self, stored: PayloadHandle, fields: Sequence[pa.Field], options: Options) -> FileIndex:
        latitude, longitude = fields
        edges, places = _decoded(stored.read())
        return Geogrid((latitude.name, longitude.name), _axes(options), edges, places)


def _axes(options: Options) -> tuple[Axis, Axis]:
    cell = options.get("cell", 0.5)
    if set(options) - {"cell"} or not isinstance(cell, (int, float)) or not 0.001 <= cell <= 90:
        raise UsageError(f"options {dict(options)} of a geogrid index.", hint="It has: cell, 0.001 to 90 degrees.")
    # What is exactly at the end belongs to the last cell: the axes are a little longer than the world.
    return Axis(-90, 180 + cell, math.ceil(180 / cell) + 1), Axis(-180, 360 + cell, math.ceil(360 / cell) + 1)


def _decoded(data: bytes) -> tuple[Cells, Cells]:
    """The edges of pages, and lines of page, latitude's step and longitude's. The bytes may be anything."""
    try:
        if not data.startswith(MAGIC):
            raise ValueError(f"it begins with {data[:4]!r}")
        numbers = np.frombuffer(_unpacked(data[4:]), "<i8")
        pages, places = numbers[:2].tolist()
        edges, rest = numbers[2 : 2 + pages], numbers[2 + pages :].reshape(places, 3)
        strange = (rest[:, 0] < 0) | (rest[:, 0] >= pages - 1)
        if pages < 1 or len(edges) != pages or (np.diff(edges) < 0).any() or strange.any():
            raise ValueError("its parts do not fit together")
    except (ValueError, OSError, pa.ArrowException) as error:
        raise IndexDamaged(f"a geogrid payload cannot be read: {error}.", hint="`sync` builds it again.") from error
    return edges, rest


def _unpacked(data: bytes) -> bytes:
    """A few bytes can claim to be many, and become them: a part at a time, and not too many."""
    parts: list[bytes] = []
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        while part := stream.read(1 << 20):
            parts.append(part)
            if len(parts) > MOST_PARTS:
                raise ValueError("it is too large")
    return b"".join(parts)


@dataclass(frozen=True, slots=True, eq=False)
class Geogrid:
    """An open index of one file."""

    columns: tuple[str, str]
    axes: tuple[Axis, Axis]
    edges: Cells
    places: Cells

    @property
    def memory(self) -> int:
        return int(self.places.nbytes)

    def find(self, conditions: Sequence[Condition], seconds: float) -> Answer:
        keep = np.ones(len(self.places), np.bool_)
        bounds = list(self._bounds(conditions))
        for axis, low, high in bounds:
            steps, last = self.places[:, 1 + axis], self.axes[axis].steps
            keep &= (steps >= low) & (steps <= high) | (steps == last)
        if not bounds:
            return Answer(None)
        pages = np.zeros(len(self.edges) - 1, np.bool_)
        pages[self.places[keep, 0]] = True
        return Answer(Rows.where(self.edges, pages), f"cells on {int(pages.sum())} of {len(pages)} pages")

    def _bounds(self, conditions: Sequence[Condition]) -> Iterator[tuple[int, int, int]]:
        """The axis, and its first and last step, of every condition that is understood. Ends are included, which is
        wide enough for < and > too."""
        for condition in conditions:
            match condition:
                case Compare(column, "=", value):
                    low, high = value, value
                case Compare(column, ">" | ">=", value):
                    low, high = value, math.inf
                case Compare(column, "<" | "<=", value):
                    low, high = -math.inf, value
                case Between(column, low, high):
                    pass
                case _:
                    continue
            ends = [_number(low), _number(high)]
            if not any(math.isnan(end) for end in ends):
                axis = self.columns.index(column)
                yield axis, *(self._step(axis, end) for end in ends)

    def _step(self, axis: int, number: float) -> int:
        if math.isinf(number):
            return 0 if number < 0 else self.axes[axis].steps - 1
        return self.axes[axis].step(number)


def _number(value: Any) -> float:
    """A literal of a float column is a float; what is none says nothing."""
    return value if isinstance(value, float) else math.nan
