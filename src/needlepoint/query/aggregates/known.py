"""The part of an aggregate that is known without reading rows.

    SELECT tenant, count(*) FROM product WHERE day >= DATE '2024-03-01' GROUP BY tenant

Of a file whose bounds say that `day` is always in March, the counts of the distinct index on `tenant` are those of the
query. A file that begins in February and ends in March is read. So is every file of which an index says nothing, or
nothing exact: the bounds of a column may be rounded, and the keys of texts are hashes.

Steps decide files one after the other, each those that the steps before left open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.access import Rows
from needlepoint.errors import NeedlepointError
from needlepoint.predicate import leaves
from needlepoint.printable import count
from needlepoint.query.aggregates import pages, value_index
from needlepoint.query.aggregates.facts import FileFacts, Sources, Values, count_nulls, has_exact_bounds
from needlepoint.query.report.explain import IndexUse
from needlepoint.query.scan.scan_plan import ScanPlan
from needlepoint.query.sql.table_aggregate import Function, TableAggregate, is_supported

Positions = npt.NDArray[np.int64]
# Files whose indexes are asked for the rows of a LIMIT.
MOST_OPEN_OF_LIMIT = 8


@dataclass(frozen=True, slots=True)
class PartOfFile:
    """A file of which some rows are counted, and only others must be read."""

    group: pa.Table
    unread: Rows


@dataclass(frozen=True, slots=True)
class KnownPart:
    """
    aggregate   whose part it is
    groups      rows of its keys and functions, several of one group perhaps (`part_names`)
    counted     positions of the files whose rows are in them
    left        positions of the files that must be read
    parts       of some of those, what is counted and what must be read
    notes, uses for `explain`
    """

    aggregate: TableAggregate
    groups: pa.Table
    counted: tuple[int, ...]
    left: tuple[int, ...]
    parts: Mapping[int, PartOfFile]
    notes: tuple[str, ...]
    uses: tuple[IndexUse, ...]

    def to_read(self) -> tuple[list[int], dict[int, Rows]]:
        """Positions of files to read as usual, and those of which only some rows are wanted."""
        parts = {at: part.unread for at, part in self.parts.items()}
        return [at for at in self.left if at not in parts], parts


@dataclass(slots=True)
class Decisions:
    """What the steps have found so far. `open` are the files that are not decided."""

    facts: FileFacts
    open: npt.NDArray[np.bool_]
    groups: list[pa.Table] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    parts: dict[int, PartOfFile] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    uses: list[IndexUse] = field(default_factory=list)

    def decide(self, positions: Positions, groups: pa.Table) -> None:
        self.open[positions] = False
        self.groups.append(groups)
        self.counted += positions.tolist()

    def close(self) -> None:
        """Read nothing: what is counted is enough."""
        self.groups += [part.group for part in self.parts.values()]
        self.counted += self.parts
        self.parts.clear()
        self.open[:] = False


def known_part(aggregate: TableAggregate, sources: Sources) -> KnownPart | None:
    """What is known of an aggregate; None if that is nothing."""
    state = sources.state
    asked = {leaf.column for leaf in leaves(aggregate.predicate)}
    ordered = {*aggregate.keys, *(each.column for each in aggregate.functions if each.name != "count")} - {None}
    named = asked | ordered | {each.column for each in aggregate.functions} - {None}
    # Columns that files have in other units, or in another type than was indexed.
    if named & (state.snapshot.table.mixed | state.snapshot.refined):
        return None
    if not all(is_supported(state.types[column or ""]) for column in ordered):
        return None
    facts = FileFacts(aggregate, sources)
    decisions = Decisions(facts, ~facts.never & ((facts.rows > 0) | ~facts.registered))
    try:
        for step in STEPS:
            if decisions.open.any() and (step is whole_files or not _is_settled(aggregate, decisions)):
                step(decisions)
    except (NeedlepointError, OSError, pa.ArrowException, ValueError, OverflowError):
        return None  # the query reads what it needs, and reports the problem
    if not decisions.counted and not decisions.parts:
        return None
    if _has_enough(aggregate, decisions):
        decisions.close()
    elif aggregate.limit is not None and decisions.open.any():
        return None
    left = tuple(np.flatnonzero(decisions.open).tolist())
    schema = facts.groups(np.empty(0, np.int64), np.empty(0, np.int64)).schema
    groups = pa.concat_tables([schema.empty_table(), *decisions.groups]).combine_chunks()
    notes = (*decisions.notes, *([f"{count(len(left), 'file')} read"] if left else []))
    return KnownPart(aggregate, groups, tuple(decisions.counted), left, decisions.parts, notes, tuple(decisions.uses))


def _is_settled(aggregate: TableAggregate, decisions: Decisions) -> bool:
    """Whether a LIMIT has enough rows, or would wait for indexes of many files: a scan ends at its first rows."""
    many = int(np.count_nonzero(decisions.open)) > MOST_OPEN_OF_LIMIT
    return aggregate.limit is not None and (many or _has_enough(aggregate, decisions))


def _has_enough(aggregate: TableAggregate, decisions: Decisions) -> bool:
    """Whether all rows are counted that a LIMIT wants."""
    if aggregate.limit is None:
        return False
    groups = [*decisions.groups, *(part.group for part in decisions.parts.values())]
    return sum(pc.sum(each.column(0)).as_py() or 0 for each in groups) >= sum(aggregate.limit)


def of_scan(known: KnownPart, scan: ScanPlan) -> tuple[KnownPart, ScanPlan]:
    """The known part as a planned scan of the rest leaves it, and the scan with its report. Of a file that is scanned
    after all, or by whole row groups, no row is counted: it would count twice."""
    parts, whole = {}, []
    for at, part in known.parts.items():
        wanted = scan.access.selection(at)
        if isinstance(wanted, Rows) and (wanted & part.unread).count == wanted.count == part.unread.count:
            parts[at] = part
        else:
            whole.append(at)
    files = scan.snapshot.files
    counted = tuple(files[at] for at in (*known.counted, *parts))
    notes = known.notes if parts or known.counted else ()
    scan = replace(scan.with_access(scan.access.scanning(whole)), counted=counted, counted_by=notes)
    if scan.pruning is not None:
        scan = replace(scan, pruning=replace(scan.pruning, indexes=(*known.uses, *scan.pruning.indexes)))
    return replace(known, parts=parts), scan


def whole_files(decisions: Decisions) -> None:
    """Files of which each row counts, and is in the same group."""
    facts = decisions.facts
    chosen = decisions.open & facts.always & facts.grouped
    extremes = value_index.extremes(facts)
    for function in facts.aggregate.functions:
        if function not in extremes:
            chosen &= facts.of_any_rows(function) | _may_be_in_card(facts, function)
    positions = np.flatnonzero(chosen)
    known: dict[Function, Values] = {}
    for function in facts.aggregate.functions:
        if function in extremes:
            value, covered = extremes[function]
            positions = positions[covered[positions]]
            known[function] = Values(np.array([value] * len(facts.rows), object), np.zeros(len(facts.rows), np.bool_))
        elif not facts.of_any_rows(function)[positions].all():
            found, certain = _by_cards(facts, function, positions)
            positions = positions[certain[positions]]
            known[function] = found
    if not len(positions):
        return
    of_positions = {function: values.at(positions) for function, values in known.items()}
    decisions.decide(positions, facts.groups(positions, facts.rows[positions], of_positions))
    uses = value_index.uses_of_extremes(extremes, facts)
    by = ", ".join(["row counts and bounds", *(f"index {use.index}" for use in uses)])
    decisions.notes.append(f"{by}: {count(len(positions), 'file')}")
    decisions.uses += uses


def _may_be_in_card(facts: FileFacts, function: Function) -> npt.NDArray[np.bool_]:
    files = facts.state.snapshot.files
    has_card = np.array([file.has_card for file in files], np.bool_)
    return has_card if function.name == "count" else has_card & facts.zone(function.column or "").known


def _by_cards(facts: FileFacts, function: Function, positions: Positions) -> tuple[Values, npt.NDArray[np.bool_]]:
    """A function of whole files, by their statistics, and of which of these files it is certain."""
    assert function.column is not None
    any_rows = facts.of_any_rows(function)
    certain = any_rows.copy()
    if function.name == "count":
        found = facts.results(function, np.arange(len(facts.rows)), facts.rows).ordinals.astype(np.int64)
        nulls = np.zeros(len(facts.rows), np.bool_)
    else:
        zone = facts.zone(function.column)
        found, nulls = zone.low if function.name == "min" else zone.high, zone.all_null
    for at in positions[~any_rows[positions]].tolist():
        card = facts.card(at)
        if card is None:
            continue
        if function.name == "count":
            absent = count_nulls(card, function.column)
            certain[at] = absent is not None
            found[at] = facts.rows[at] - (absent or 0)
        else:
            certain[at] = has_exact_bounds(card, function.column)
    return Values(found, nulls), certain


Step = Callable[[Decisions], None]


def by_distinct(decisions: Decisions) -> None:
    """Files whose distinct index has how many rows have each value."""
    for use, positions, groups in value_index.by_distinct(decisions.facts, np.flatnonzero(decisions.open)):
        decisions.decide(positions, groups)
        decisions.notes.append(f"index {use.index}: {count(len(positions), 'file')}")
        decisions.uses.append(use)


def by_pages(decisions: Decisions) -> None:
    """Files with pages of which each row counts: only the other pages are read."""
    facts = decisions.facts
    found = pages.decided(facts, np.flatnonzero(decisions.open))
    by_index: Counter[str] = Counter()
    for position, pages_of in found.items():
        rows, unread, at = pages_of.rows, pages_of.unread, np.array([position])
        few = pages_of.hull is not None and unread.count <= pages.FEW_ROWS
        entries = value_index.of_pages(facts, position, unread, pages_of.hull) if few and pages_of.hull else None
        if entries is not None:
            index, more = entries
            rows, unread = rows + more, Rows.of([])
            by_index[index.name] += 1
        groups = facts.groups(at, np.array([rows]))
        if unread.count:
            decisions.parts[position] = PartOfFile(groups, unread)
        else:
            decisions.decide(at, groups)
    if found:
        rows = sum(each.rows for each in found.values())
        decisions.notes.append(f"bounds of pages: {count(rows, 'row')} of {count(len(found), 'file')}")
    for name, files in by_index.items():
        decisions.notes.append(f"index {name}: other pages of {count(files, 'file')}")


def by_keys(decisions: Decisions) -> None:
    """Files of whose rows a key index has an entry each."""
    waiting = decisions.open.copy()
    waiting[[at for at, part in decisions.parts.items() if part.unread.count <= pages.FEW_ROWS]] = False
    found = value_index.by_key(decisions.facts, np.flatnonzero(waiting))
    if found is not None:
        use, positions, groups = found
        decisions.decide(positions, groups)
        for position in positions.tolist():
            decisions.parts.pop(position, None)
        decisions.notes.append(f"index {use.index}: {count(len(positions), 'file')}")
        decisions.uses.append(use)


STEPS: tuple[Step, ...] = (whole_files, by_distinct, by_pages, by_keys)
