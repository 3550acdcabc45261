"""State derived from a snapshot once, and used by every query on it."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from needlepoint.indexes import keeps_entries
from needlepoint.parquet import ByteCache
from needlepoint.predicate import Bounds, Zone, Zones
from needlepoint.query.sql.request import misleads
from needlepoint.tables import File, Index, Place, Snapshot, ordinal
from needlepoint.tables.registry import Registry

if TYPE_CHECKING:
    import datafusion

    from needlepoint.indexes.text import RankedTerm, TextStatistics
    from needlepoint.query.sql.plan_facts import Zeros

# Of the terms of scores that a table keeps.
RANKED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class TermRows:
    """The rows of a term in the files that are `covered` by a text index."""

    term: RankedTerm
    covered: npt.NDArray[np.bool_]


@dataclass
class TableState:
    snapshot: Snapshot
    registry: Registry
    make_stub: Callable[[], datafusion.Table]
    make_empty: Callable[[], datafusion.Table]
    lookups: dict[tuple[str, ...], bool] = field(default_factory=dict)  # columns, and whether SQL resolves them so
    texts: dict[str, TextStatistics] = field(default_factory=dict)  # by scored column
    ranked: ByteCache[TermRows] = field(default_factory=lambda: ByteCache(RANKED_BYTES))  # by scored column and term
    _zones: dict[str, Zone] = field(default_factory=dict)
    _coverage: dict[int, npt.NDArray[np.bool_]] = field(default_factory=dict)
    _places: dict[int, dict[int, Place]] = field(default_factory=dict)

    @cached_property
    def stub(self) -> datafusion.Table:
        """A table to plan against, without files."""
        return self.make_stub()

    @cached_property
    def empty(self) -> datafusion.Table:
        """A table without rows."""
        return self.make_empty()

    @cached_property
    def types(self) -> Mapping[str, pa.DataType]:
        """The types of all columns."""
        return {field.name: field.type for field in self.snapshot.table.schema}

    @cached_property
    def schema_bytes(self) -> builtins.bytes:
        """The schema, as a key."""
        found: builtins.bytes = self.snapshot.table.schema.serialize().to_pybytes()
        return found

    @cached_property
    def bytes(self) -> int:
        """Of all files."""
        return sum(file.identity.size for file in self.snapshot.files)

    @cached_property
    def fields(self) -> Mapping[str, pa.Field]:
        return {field.name: field for field in self.snapshot.table.schema}

    @cached_property
    def misleading(self) -> frozenset[str]:
        """Columns whose statistics make DataFusion lose rows."""
        return frozenset(name for name, type in self.types.items() if misleads(type))

    def zeros(self, listed: Zeros) -> dict[str, float]:
        """Float columns compared with a list that contains a zero, and that zero; all float columns if the list is for
        a column that has another name in the table."""
        floats = [name for name, type in self.types.items() if pa.types.is_floating(type)]
        found: dict[str, float] = {}
        for name, zero in listed:
            found |= {name: zero} if name in floats else dict.fromkeys(() if name in self.types else floats, zero)
        return found

    @cached_property
    def positions(self) -> Mapping[int, int]:
        """The position of each file, by id."""
        return {file.id: position for position, file in enumerate(self.snapshot.files) if file.id is not None}

    @cached_property
    def _ids(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The ids of all files that have one, ascending, and their positions."""
        ids = np.fromiter(self.positions, np.int64, len(self.positions))
        order = np.argsort(ids, kind="stable")
        return ids[order], np.fromiter(self.positions.values(), np.int64, len(ids))[order]

    def positions_of(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The position of each file with such an id; -1 if there is none."""
        known, positions = self._ids
        if not len(known):
            return np.full(len(ids), -1)
        places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        return np.where(known[places] == ids, positions[places], -1)

    @cached_property
    def row_limits(self) -> npt.NDArray[np.int64]:
        """The rows of each file; any number of them if unknown."""
        unlimited = np.iinfo(np.int64).max
        return np.array([unlimited if file.rows is None else file.rows for file in self.snapshot.files], np.int64)

    @cached_property
    def file_rows(self) -> npt.NDArray[np.int64]:
        """The rows of each file; 0 if unknown."""
        return np.array([file.rows or 0 for file in self.snapshot.files], np.int64)

    @cached_property
    def first_rows(self) -> npt.NDArray[np.int64]:
        """The number of the first row of each file, through all files, and the number of all rows."""
        return np.concatenate(([0], np.cumsum(self.file_rows)))

    def inherit(self, before: TableState) -> None:
        """Copy what is known of unchanged files, which are the same objects."""
        places = {id(file): at for at, file in enumerate(before.snapshot.files)}
        files = self.snapshot.files
        owners = np.fromiter((places.get(id(file), -1) for file in files), np.int64, len(files))
        fresh = np.flatnonzero(owners < 0)
        if len(fresh) > len(files) // 4:
            return
        others = [files[at] for at in fresh.tolist()]
        order = owners.copy()
        order[fresh] = len(places) + np.arange(len(fresh))
        partitions = self.snapshot.table.partitions
        for column, zone in before._zones.items():
            if self.types.get(column) == before.types[column] and partitions == before.snapshot.table.partitions:
                known = self._partition(column, others) if column in partitions else self._bounds(column, others)
                self._zones[column] = (Zone.joined([zone, known]) if others else zone).part(order)
        for index in self.snapshot.indexes:
            if index.id in before._coverage:
                known_of = np.array([index.id in file.indexed for file in others], np.bool_)
                self._coverage[index.id] = np.concatenate((before._coverage[index.id], known_of))[order]

    @cached_property
    def key_indexes(self) -> Mapping[str, Index]:
        """Key indexes that cover all files, by column."""
        keys = [index for index in self.snapshot.indexes if keeps_entries(index.kind)]
        refined = self.snapshot.refined
        return {index.column: index for index in keys if index.column not in refined and self.covered(index).all()}

    def covered(self, index: Index) -> npt.NDArray[np.bool_]:
        """Which files the index covers."""
        if index.id not in self._coverage:
            self._coverage[index.id] = np.array([index.id in file.indexed for file in self.snapshot.files], np.bool_)
        return self._coverage[index.id]

    def places(self, index: Index) -> Mapping[int, Place]:
        """The locations of the payloads of an index, by file id."""
        if index.id not in self._places:
            self._places[index.id] = self.registry.payloads.places(index)
        return self._places[index.id]

    def partition_zones(self, columns: Iterable[str]) -> Zones:
        return self.zones(name for name in columns if name in self.snapshot.table.partitions)

    def zones(self, columns: Iterable[str]) -> Zones:
        """The bounds of these columns in each file, partition values included; loaded on first use."""
        asked = {name: self._zone(name) for name in columns if name in self.types}
        return Zones(len(self.snapshot.files), asked)

    def filled(self, columns: Iterable[str], chosen: npt.NDArray[np.bool_]) -> frozenset[str]:
        """Those of these columns that have no NULL in the chosen files."""
        zones = self.zones(columns).columns.items()
        return frozenset(name for name, zone in zones if zone.no_null[chosen].all())

    def _zone(self, column: str) -> Zone:
        found = self._zones.get(column)
        if found is None:
            known = self._partition(column) if column in self.snapshot.table.partitions else self._bounds(column)
            found = self._zones[column] = known
        return found

    def _bounds(self, column: str, files: Sequence[File] | None = None) -> Zone:
        """The bounds of all files, or of these."""
        ids = None if files is None else [file.id for file in files if file.id is not None]
        bounds = dict(self.registry.files.bounds(self.snapshot.table, column, ids))
        of_files = self.snapshot.files if files is None else files
        return Zone.of([bounds.get(-1 if file.id is None else file.id) for file in of_files])

    def _partition(self, column: str, files: Sequence[File] | None = None) -> Zone:
        """One set of bounds per partition, repeated for its files."""
        snapshot = self.snapshot
        places = {partition: place for place, partition in enumerate(snapshot.partitions)}
        each = Zone.of([_partition_bounds(values[column]) for values in snapshot.partitions.values()])
        owners = np.array([places[snapshot.partition(file)] for file in files or snapshot.files], np.int64)
        return each.part(owners)


def _partition_bounds(scalar: Any) -> Bounds:
    value = ordinal(scalar)
    return Bounds(value, value, nulls=int(value is None), rows=1)
