"""What bounds and partition values say of each file, as arrays over all files of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from needlepoint.indexes import LONGEST_BOUND
from needlepoint.parquet import FileCard
from needlepoint.predicate import Match, Predicate, Zone, columns_of, conjuncts, leaves, match
from needlepoint.query.aggregates.ordinals import array_of
from needlepoint.query.cache.card_cache import CardCache
from needlepoint.query.cache.index_cache import IndexCache
from needlepoint.query.cache.table_state import TableState
from needlepoint.query.sql.table_aggregate import Function, TableAggregate
from needlepoint.stores import KeyStore
from needlepoint.tables import Index

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where it is looked up."""

    state: TableState
    stores: Callable[[Index], KeyStore]
    cards: CardCache
    file_indexes: IndexCache
    range_limit: int


@dataclass(frozen=True, slots=True)
class Values:
    """An ordinal for each of some files, or NULL."""

    ordinals: npt.NDArray[Any]
    nulls: Mask

    def at(self, positions: npt.NDArray[np.int64]) -> Values:
        return Values(self.ordinals[positions], self.nulls[positions])


class FileFacts:
    """Of one aggregate, and the files of one snapshot."""

    def __init__(self, aggregate: TableAggregate, sources: Sources) -> None:
        self.aggregate = aggregate
        self.sources = sources
        self.state = sources.state
        files = self.state.snapshot.files
        self.rows = self.state.file_rows
        # Of a file that is not in the registry, nothing is known.
        self.registered = np.array([file.id is not None and file.rows is not None for file in files], np.bool_)
        self._parts = list(conjuncts(aggregate.predicate))
        self._answers = [match(part, self.state.zones(all_columns(part))) for part in self._parts]

    @cached_property
    def never(self) -> Mask:
        """Files without a row that counts."""
        return self._all(lambda answers: answers != Match.NEVER, invert=True)

    @cached_property
    def always(self) -> Mask:
        """Files of which each row counts."""
        return self._all(lambda answers: answers == Match.ALWAYS) & self.registered

    def _all(self, test: Callable[[npt.NDArray[np.int8]], Mask], invert: bool = False) -> Mask:
        found = np.ones(len(self.rows), np.bool_)
        for answers in self._answers:
            found &= test(answers)
        return ~found if invert else found

    def undecided(self, position: int) -> list[Predicate]:
        """The parts of the predicate that bounds do not decide in a file."""
        return [
            part for part, answers in zip(self._parts, self._answers, strict=True) if answers[position] != Match.ALWAYS
        ]

    def zone(self, column: str) -> Zone:
        return self.state.zones([column]).columns[column]

    def same(self, column: str) -> Mask:
        """Files in which all rows have the same value, or all have NULL. Bounds that are equal are that value, exact or
        not."""
        zone = self.zone(column)
        equal: Mask = zone.known & zone.no_null & np.equal(zone.low, zone.high).astype(np.bool_)
        return equal | zone.all_null

    def value(self, column: str) -> Values:
        """The value of files in which all rows have the same."""
        zone = self.zone(column)
        return Values(zone.low, zone.all_null)

    @cached_property
    def grouped(self) -> Mask:
        """Files whose rows are all in one group."""
        found = np.ones(len(self.rows), np.bool_)
        for key in self.aggregate.keys:
            found &= self.same(key)
        return found

    def of_any_rows(self, function: Function) -> Mask:
        """Files in which a function is known for any number of rows, whichever they are."""
        if function.column is None:
            return np.ones(len(self.rows), np.bool_)
        if function.name == "count":
            zone = self.zone(function.column)
            return zone.no_null | zone.all_null
        return self.same(function.column)

    def results(self, function: Function, positions: npt.NDArray[np.int64], matched: npt.NDArray[np.int64]) -> Values:
        """A function of so many rows of these files, where `of_any_rows` says that it is known."""
        if function.name != "count":
            assert function.column is not None
            return self.value(function.column).at(positions)
        counts = matched
        if function.column is not None:
            counts = np.where(self.zone(function.column).all_null[positions], 0, matched)
        return Values(counts, np.zeros(len(positions), np.bool_))

    def groups(
        self,
        positions: npt.NDArray[np.int64],
        matched: npt.NDArray[np.int64],
        known: Mapping[Function, Values] | None = None,
    ) -> pa.Table:
        """A row for each of these files, of which so many rows count and are in one group. `known` has the functions
        that are not known for any rows."""
        filled = matched > 0
        arrays, types = [], self.state.types
        for key in self.aggregate.keys:
            values = self.value(key).at(positions[filled])
            arrays.append(array_of(values.ordinals, values.nulls, types[key]))
        for function in self.aggregate.functions:
            given = (known or {}).get(function)
            found = self.results(function, positions, matched) if given is None else given
            type = pa.int64() if function.name == "count" else types[function.column or ""]
            arrays.append(array_of(found.ordinals[filled], found.nulls[filled], type))
        return pa.Table.from_arrays(arrays, names=part_names(self.aggregate))

    def card(self, position: int) -> FileCard | None:
        return self.sources.cards.get(self.state.snapshot.files[position])


def part_names(aggregate: TableAggregate) -> list[str]:
    """The columns of a part of an aggregate: its keys, then its functions. If a column of the table has such a name,
    the rows are read."""
    keys, functions = range(len(aggregate.keys)), range(len(aggregate.functions))
    return [*(f"<key {at}>" for at in keys), *(f"<result {at}>" for at in functions)]


def all_columns(predicate: Predicate) -> list[str]:
    """The columns of all conditions of a predicate."""
    return list({column: None for leaf in leaves(predicate) for column in columns_of(leaf)})


def count_nulls(card: FileCard, column: str) -> int | None:
    """The NULLs of a column in a file; None if its statistics do not say."""
    leaf = _leaf(card, column)
    if leaf is None:
        return None
    counts = [card.statistics(leaf, group).null_count for group in range(card.num_row_groups)]
    known = [count for count in counts if count is not None]
    rows = np.diff(card.row_group_rows)
    sane = len(known) == len(counts) and all(0 <= count <= most for count, most in zip(known, rows, strict=True))
    return sum(known) if sane else None


def has_exact_bounds(card: FileCard, column: str) -> bool:
    """Whether the bounds of a column in a file are values of its rows: the file must say so, as writers may round."""
    leaf = _leaf(card, column)
    if leaf is None:
        return False
    for group in range(card.num_row_groups):
        found = card.statistics(leaf, group)
        rows = int(card.row_group_rows[group + 1] - card.row_group_rows[group])
        if not rows or found.null_count == rows:
            continue
        if not (found.is_min_exact and found.is_max_exact and found.min_value is not None):
            return False
        if found.max_value is None or max(len(found.min_value), len(found.max_value)) > LONGEST_BOUND:
            return False
    return True


def _leaf(card: FileCard, column: str) -> int | None:
    if not card.has(column):
        return None
    field = card.find(column)
    flat = field.last_leaf == field.first_leaf + 1 and not card.leaves[field.first_leaf].nested
    return field.first_leaf if flat else None
