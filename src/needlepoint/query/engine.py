"""A query from SQL to Arrow.

    plan      the SQL against tables without files: columns and predicate of every scan
    narrow    steps rule out files and find rows: an access plan for each table
    read      few rows by page, the rest by native scan
    run       the same SQL, every predicate included, over what was read

Nothing is skipped but what a step proved away, and every predicate is evaluated again at the end, so an index that is
stale, partial or broken costs time and not rows.

Floats need care. Parquet statistics leave NaN out, while SQL orders it above all numbers; DataFusion trusts the
statistics and loses rows (`f > 1` misses NaN, and a column of 0.5 and NaN reads as all 0.5). So queries that touch a
float column run without collected statistics, and float columns in predicates reach it behind `nanvl(f, f)`, which is
`f` but tells the pruner nothing. So do all float columns of a query for which DataFusion makes filters of its own, as
for ORDER BY with LIMIT. Its lists of four and more values tell -0.0 from 0.0: there zeros get the sign of the list's.

So do timestamps and times whose files differ in unit. DataFusion casts a file's column to the table's finer unit, then
moves the cast to the literal and cuts off what the coarser unit has no room for: `t < 1001 ns` becomes `t < 1 us`,
which loses 1 us. It does so with predicates and with the filters that ORDER BY and min make for themselves. These
columns reach it behind `greatest(t, t)`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

import datafusion
import numpy as np
import pyarrow as pa

from needlepoint.access import AccessPlan
from needlepoint.errors import FileChanged
from needlepoint.indexes.text.statistics import WordIndex
from needlepoint.parquet.read.caches import Caches
from needlepoint.predicate import In, leaves
from needlepoint.query.cache.card_cache import Cards
from needlepoint.query.cache.index_cache import FileIndexes, words_of
from needlepoint.query.cache.table_state import Prepared
from needlepoint.query.datafusion import footers, session
from needlepoint.query.datafusion.errors import CannotSkip, EngineFault, clear_error, look_into
from needlepoint.query.datafusion.native_scan import NativeScans, metrics
from needlepoint.query.datafusion.scoring import Contexts, Score, counted, scores
from needlepoint.query.datafusion.session import Care
from needlepoint.query.datafusion.sorted_apart import sorted_apart
from needlepoint.query.datafusion.unreadable import unreadable
from needlepoint.query.pruning.context import Question
from needlepoint.query.pruning.steps import narrow
from needlepoint.query.report.explain import Report, TableReport
from needlepoint.query.report.table_report import table_report
from needlepoint.query.result import Result
from needlepoint.query.scan.cost_model import Costs, Native
from needlepoint.query.scan.held_files import Tries, hold
from needlepoint.query.scan.page_reader import read_matching, read_pages
from needlepoint.query.scan.scan_plan import Reading, settle
from needlepoint.query.scan.table_provider import as_frame, check_present, empty_batch
from needlepoint.query.shortcut import Lookup, recognise
from needlepoint.query.sql import literals, nesting
from needlepoint.query.sql.parameters import checked, for_datafusion
from needlepoint.query.sql.plan_facts import PlanFacts, Zeros, has_subqueries, listed_zeros, plan_facts
from needlepoint.query.sql.predicate_extraction import Request, everything, misleads, requests
from needlepoint.query.sql.refusals import refuse_not_in
from needlepoint.query.sql.statements import quoted
from needlepoint.query.sql.views import Broken, define, views_named, words
from needlepoint.settings import Settings
from needlepoint.stores.base import KeyStore
from needlepoint.tables.model import Index
from needlepoint.tables.registry.registry import Registry
from needlepoint.tables.snapshots import Snapshot, Snapshots

if TYPE_CHECKING:
    from needlepoint.advisor.history import History

WORTH_PARTS = 10 << 20  # bytes; DataFusion cuts no smaller files

_OWN_FILTERS = PlanFacts(own_filters=True)
_CATALOG_WORDS = {"show", "describe", "information_schema"}

Answer = TypeVar("Answer")


class Attempt(Enum):
    """How a query is run: as DataFusion does it best; with files that it reads whole, since it cannot skip rows in some
    of them; and with as little of its optimizer as it takes, after a failure inside it."""

    FIRST = "first"
    WHOLE = "whole"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class _Names:
    """Tables and views as of one state of the registry."""

    sequence: int
    tables: frozenset[str]
    views: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Understood:
    """What DataFusion says of a query: what it asks of each table, the schema of the answer, the plan as it is written,
    facts of the optimized one, and what is to be scored. In `query` and `views` it is decided which literals are
    decimals."""

    query: str
    views: list[tuple[str, str]]
    asked: dict[str, Request]
    schema: pa.Schema
    written: datafusion.LogicalPlan
    facts: PlanFacts
    zeros: Zeros
    scores: tuple[Score, ...]


@dataclass(slots=True)
class _Planned:
    """A query whose reading is decided but not done."""

    query: str
    prepared: dict[str, Prepared]
    readings: dict[str, Reading]
    questions: dict[str, Question]
    unscanned: list[Reading]
    schema: pa.Schema
    care: Care
    context: datafusion.SessionContext
    views: list[tuple[str, str]]
    scores: tuple[Score, ...] = ()
    outer_constants: bool = False


class Engine:
    def __init__(
        self,
        registry: Registry,
        stores: Callable[[Index], KeyStore],
        file_indexes: FileIndexes,
        settings: Settings,
        history: History,
    ) -> None:
        self._registry = registry
        self._stores = stores
        self.file_indexes = file_indexes
        self._settings = settings
        self.history = history
        Costs.of("", settings.costs)  # costs that cannot be read are refused at once
        self.snapshots = Snapshots(
            registry, settings.refresh, settings.object_refresh, skip_unfinished=settings.unfinished == "skip"
        )
        self._tries = Tries(self.snapshots.forget, settings.store, registry.turns)
        self.cards = Cards(registry, settings.cache_bytes)
        self.caches = Caches.of(settings.dictionary_bytes, settings.page_bytes, local_pages=False)
        self._natives = NativeScans()
        self._contexts = functools.cache(session.make_context)
        self._context = self._contexts(Care())
        self._shown = session.make_context(Care(), subqueries_as_joins=True)
        self._coerced = session.make_context(Care(), subqueries_as_joins=True, without_rules=literals.IN_THE_WAY)
        self._scoring_contexts = Contexts()
        self._prepared: dict[str, Prepared] = {}
        self._fresh_stores: dict[int, int] = {}
        self._names_known: _Names | None = None

    # The story

    def sql(self, query: str, parameters: Mapping[str, Any] | None = None, *, use_indexes: bool | str = True) -> Result:
        """Run a query. A file that changes meanwhile is noticed, and the query planned again.

        `use_indexes` can name the only index that is to be used, and then is, whatever a scan costs.
        """
        parameters = checked(query, parameters)

        def run(attempt: Attempt) -> Result:
            return self.retried(lambda first: self._run_once(query, parameters, use_indexes, attempt, may_list=first))

        attempt = Attempt.FIRST
        while True:
            try:
                return run(attempt)
            except CannotSkip as error:
                if attempt is not Attempt.FIRST:
                    raise unreadable(error, error.readings) from error
                attempt = Attempt.WHOLE
            except EngineFault:
                if attempt is Attempt.PLAIN:
                    raise
                attempt = Attempt.PLAIN

    def retried(self, ask: Callable[[bool], Answer], *, holding: bool = True) -> Answer:
        """Ask again, of the files as they are then, when one changed; `ask` learns whether files may be listed. See
        `query/scan/held_files.py`."""
        return self._tries.run(ask, holding)

    def explain(self, query: str, parameters: Mapping[str, Any] | None = None) -> Report:
        """The report of a query that is planned but not run."""
        parameters = checked(query, parameters)
        with clear_error(query, self._names()):
            lookup = None if parameters else self._recognised(query)
            planned = self._plan_lookup(lookup) if lookup is not None else self._plan(query, parameters)
        return Report(lambda: self._reports(planned, None), executed=False)

    def _run_once(
        self,
        query: str,
        parameters: Mapping[str, Any] | None,
        use_indexes: bool | str,
        attempt: Attempt,
        may_list: bool,
    ) -> Result:
        with clear_error(query, self._names()):
            started = time.perf_counter()
            lookup = None if parameters else self._recognised(query)
            if lookup is not None:
                planned = self._plan_lookup(lookup, use_indexes, attempt)
                if lookup.values is not None and not planned.readings[lookup.table].scanned:
                    return self._run_lookup(lookup, planned, started, use_indexes is True)
            else:
                planned = self._plan(query, parameters, use_indexes, attempt)
            for reading in planned.readings.values():
                reading.may_list = may_list
            decided = time.perf_counter()
            with self._scoring(planned):
                ready = {
                    reading.snapshot.table.name: self._read(reading, planned)
                    for reading in (*planned.readings.values(), *planned.unscanned)
                }
                read = time.perf_counter()
                with self._tables(planned.context, planned.views, ready):
                    frame = self._frame(planned.context, planned.query, parameters)
                    if planned.outer_constants:
                        frame = sorted_apart(planned.context, frame)
                    batches = _collected(frame, planned)
            self._check_files(planned.readings)
            table = _conformed(batches, planned.schema)
            finished = time.perf_counter()
        seconds = {"plan": decided - started, "read": read - decided, "run": finished - read}
        if use_indexes is True:
            self._note(planned, finished - started, frame)
        report = Report(lambda: self._reports(planned, frame), executed=True, seconds=seconds)
        return Result(table, report)

    # Plan

    def _plan(
        self,
        query: str,
        parameters: Mapping[str, Any] | None,
        use_indexes: bool | str = True,
        attempt: Attempt = Attempt.FIRST,
    ) -> _Planned:
        known = self._known()
        views = views_named(query, known.views)
        prepared = {name: self.prepare(name) for name in _tables_named(query, views, known)}
        scale = literals.WIDE_SCALE if attempt is Attempt.PLAIN else 0
        understood = self.understand(query, parameters, views, prepared, scale)
        if understood.facts.stacked_filters and understood.facts.anti_joins:
            refuse_not_in([query, *(view for _, view in views)])
        # DataFusion 55 takes a filter on a list for pushed down, and does not apply it in a file that lacks a column.
        if attempt is Attempt.FIRST and any(request.nested for request in understood.asked.values()):
            attempt = Attempt.WHOLE
        readings, questions = {}, {}
        for name, request in understood.asked.items():
            found = prepared[name]
            hidden = found.misleading & request.columns if understood.facts.own_filters else ()
            asked = request.hiding(hidden, found.zeros(understood.zeros))
            readings[name], questions[name] = self.narrow(found, asked, use_indexes, pushdown=attempt is Attempt.FIRST)
        # A table that is named and not scanned costs nothing whole, and would be wrong as anything less.
        unscanned = [
            self.narrow(found, everything(found.types), use_indexes=False)[0]
            for name, found in prepared.items()
            if name not in understood.asked
        ]
        care = care_for(readings.values(), understood.facts, attempt)
        return _Planned(
            understood.query,
            prepared,
            readings,
            questions,
            unscanned,
            understood.schema,
            care,
            self._contexts(care),
            understood.views,
            understood.scores,
            understood.facts.outer_constants,
        )

    def understand(
        self,
        query: str,
        parameters: Mapping[str, Any] | None,
        views: list[tuple[str, str]],
        prepared: Mapping[str, Prepared],
        scale: int = 0,
    ) -> Understood:
        """Plan a query against tables without files. Its decimal literals have at least this scale."""
        types = {name: found.types for name, found in prepared.items()}
        written: dict[str, str] = {}

        def with_decimals(view: str) -> str:
            written[view] = self._with_decimals(view, None, types, scale)
            return written[view]

        stubs = {name: found.stub for name, found in prepared.items()}
        with self._tables(self._context, views, stubs, with_decimals):
            query = self._with_decimals(query, parameters, types, scale)
            frame = self._frame(self._context, query, parameters)
            plan = frame.optimized_logical_plan()
            drawn = plan.display_indent()
            asked, wanted = requests(plan, drawn, types), scores(plan, drawn, types)
            facts = plan_facts(plan)
            zeros = [*listed_zeros(plan)]
            if has_subqueries(drawn):
                shown = self._with_subqueries(query, parameters)
                facts = PlanFacts.careful() if shown is None else facts | plan_facts(shown) | _OWN_FILTERS
                zeros += () if shown is None else listed_zeros(shown)
            # The plan as it is written has types from before coercion: of a UNION, those of its first arm.
            schema = _without_views(self._context.create_dataframe_from_logical_plan(plan).schema())
            decided = [(name, written.get(view, view)) for name, view in views]
            return Understood(query, decided, asked, schema, frame.logical_plan(), facts, zeros, wanted)

    def _with_subqueries(self, query: str, parameters: Mapping[str, Any] | None) -> datafusion.LogicalPlan | None:
        """The plan of a query in which scalar subqueries are joins, if they can be."""
        try:
            return self._frame(self._shown, query, parameters).optimized_logical_plan()
        except Exception:
            return None

    def _with_decimals(
        self,
        query: str,
        parameters: Mapping[str, Any] | None,
        tables: Mapping[str, Mapping[str, pa.DataType]],
        scale: int,
    ) -> str:
        """The query with the literals that meet decimals as such."""
        if not any(pa.types.is_decimal(type) for types in tables.values() for type in types.values()):
            return query

        columns = {name: type for types in tables.values() for name, type in types.items()}
        return literals.resolved(
            query,
            self._coerced,
            lambda text: self._frame(self._coerced, text, parameters),
            plans=lambda text: self._plans(text, parameters),
            parameters=parameters,
            types=columns,
            scale=scale,
        )

    def _plans(self, query: str, parameters: Mapping[str, Any] | None) -> bool:
        """Whether a query can be planned. Where a decimal meets a literal of infinity that the plan for the literals
        does not show, since it is of no use there, it cannot."""
        try:
            self._frame(self._context, query, parameters).optimized_logical_plan()
        except Exception:
            return False
        return True

    def _recognised(self, query: str) -> Lookup | None:
        """The lookup a query is, if DataFusion agrees. It is asked once for each choice of columns: a word that looks
        like the name of a column can be something else in SQL."""
        known = self._known()
        lookup = recognise(query, lambda name: self.prepare(name).types if name in known.tables else None)
        if lookup is None:
            return None
        prepared = self.prepare(lookup.table)
        shape = (*lookup.schema.names, lookup.column)
        if shape not in prepared.lookups:
            understood = self.understand(query, None, [], {lookup.table: prepared})
            prepared.lookups[shape] = lookup.agrees(understood.asked.get(lookup.table), understood.schema)
        return lookup if prepared.lookups[shape] else None

    def _run_lookup(self, lookup: Lookup, planned: _Planned, started: float, noted: bool) -> Result:
        """Found by page alone, a lookup needs no SQL any more."""
        decided = time.perf_counter()
        reading = planned.readings[lookup.table]
        rows = read_matching(reading, {lookup.column: lookup.values}, self.cards, self.caches)
        finished = time.perf_counter()
        if noted:
            self.history.note(reading, planned.questions[lookup.table], finished - started, rows.num_rows)
        seconds = {"plan": decided - started, "read": finished - decided}
        report = Report(lambda: self._reports(planned, None), executed=True, seconds=seconds)
        return Result(rows.select(lookup.schema.names), report)

    def _plan_lookup(
        self, lookup: Lookup, use_indexes: bool | str = True, attempt: Attempt = Attempt.FIRST
    ) -> _Planned:
        found, name = self.prepare(lookup.table), lookup.table
        reading, question = self.narrow(found, lookup.request, use_indexes, pushdown=attempt is Attempt.FIRST)
        care = care_for([reading], attempt=attempt)
        context = self._contexts(care)
        return _Planned(
            lookup.text, {name: found}, {name: reading}, {name: question}, [], lookup.schema, care, context, []
        )

    def narrow(
        self,
        prepared: Prepared,
        request: Request,
        use_indexes: bool | str = True,
        pushdown: bool = True,
        positions: Sequence[int] | None = None,
    ) -> tuple[Reading, Question]:
        """Decide what is read of a table, or of some of its files, given whether DataFusion filters while it scans."""
        snapshot = prepared.snapshot
        only = use_indexes if isinstance(use_indexes, str) else None
        access = self._settings.access if only is None else "pages"
        costs = Costs.of(snapshot.table.location, self._settings.costs)
        question = Question(
            prepared,
            request.predicate,
            self._store_of(snapshot),
            self.cards,
            self._settings.range_limit,
            request.columns,
            costs,
            self.file_indexes,
            access == "pages",
            only,
        )
        plan = AccessPlan.scan_all(len(snapshot.files))
        if positions is not None:
            plan = plan.without(~np.isin(np.arange(len(snapshot.files)), positions))
        if use_indexes:
            plan = narrow(plan, question)
        opaque = request.opaque | (request.columns & snapshot.table.mixed)
        constants = request.together.isdisjoint(snapshot.table.partitions)
        reading = Reading(snapshot, request.columns, request.predicate, plan, costs, opaque, request.zeros, constants)
        asked = frozenset(leaf.column for leaf in leaves(request.predicate)) - opaque
        values = max((len(leaf.values) for leaf in leaves(request.predicate) if isinstance(leaf, In)), default=0)
        settle(reading, self.cards, Native(pushdown, asked, values), access)
        hold(reading)
        return reading, question

    def _store_of(self, snapshot: Snapshot) -> Callable[[Index], KeyStore]:
        def store(index: Index) -> KeyStore:
            found = self._stores(index)
            if self._fresh_stores.get(index.id) != snapshot.sequence:
                found.refresh(self._registry.runs(index))
                self._fresh_stores[index.id] = snapshot.sequence
            return found

        return store

    def prepare(self, name: str) -> Prepared:
        """The newest snapshot of a table, ready to be asked."""
        snapshot = self.snapshots.current(name)
        held = self._prepared.get(name)
        if held is not None and held.snapshot is snapshot:
            return held
        table = snapshot.table
        stub = self._natives.stub(table.schema)
        empty = datafusion.Table(self._context.read_batches([empty_batch(table.schema)]))
        prepared = Prepared(snapshot, self._registry, stub, empty)
        if held is not None and held.snapshot.table.id == table.id:
            prepared.follow(held)
        self._prepared[name] = prepared
        return prepared

    # Read and run

    def _read(self, reading: Reading, planned: _Planned) -> datafusion.Table:
        barrier = not planned.care.own_filters
        if not reading.plan.kept() and not barrier:
            return planned.prepared[reading.snapshot.table.name].empty
        pages = read_pages(reading, self.cards, self.caches)
        reading.matched = 0 if pages is None else pages.num_rows
        return datafusion.Table(as_frame(reading, pages, self._natives, planned.context, barrier))

    @contextmanager
    def _tables(
        self,
        context: datafusion.SessionContext,
        views: list[tuple[str, str]],
        found: dict[str, datafusion.Table],
        written: Callable[[str], str] = lambda view: view,
    ) -> Iterator[None]:
        """Inside, names in SQL mean these tables, and the views over them, whose queries are written so."""
        with session.tables(found):
            session.remember(found)
            broken = Broken(self._names())
            define(views, found, lambda query: self._frame(context, written(query), None), broken)
            try:
                yield
            except Exception as failure:
                if why := broken.error(failure):
                    raise why from failure
                raise

    def _frame(
        self, context: datafusion.SessionContext, query: str, parameters: Mapping[str, Any] | None
    ) -> datafusion.DataFrame:
        return nesting.frame(context, query, for_datafusion(query, parameters))

    @contextmanager
    def _scoring(self, planned: _Planned) -> Iterator[None]:
        """Inside, the plan's context knows what scores are made with."""
        if not planned.scores:
            yield
            return
        statistics = counted(planned.scores, planned.prepared, self)
        with self._scoring_contexts.lent(planned.care, statistics) as planned.context:
            yield

    def words(self, prepared: Prepared, column: str, position: int) -> WordIndex | None:
        """The index of a file's words, if there is one that can be read."""
        return words_of(self.file_indexes, prepared, column, position)

    def read(self, prepared: Prepared, column: str, positions: Sequence[int]) -> Iterator[pa.Array]:
        """A column of all rows of these files."""
        reading, _ = self.narrow(prepared, everything([column]), use_indexes=False, positions=positions)
        frame = as_frame(reading, None, self._natives, self._contexts(care_for([reading])))
        try:
            for batch in frame.select(datafusion.col(quoted(column))).execute_stream():
                yield batch.to_pyarrow().column(0)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # as in _collected
            look_into(error, [reading])
        self._check_files({prepared.snapshot.table.name: reading})

    def _check_files(self, readings: Mapping[str, Reading]) -> None:
        """What was scanned must still be there, and a native listing, which sees the directory as it is while it runs,
        must have seen the snapshot."""
        for name, reading in readings.items():
            check_present(reading)
            if reading.listed:
                self.snapshots.forget()
                now = self.snapshots.current(name)
                if not now.listable or now.files != reading.snapshot.files:
                    raise FileChanged(reading.snapshot.table.location, "changed during the query")

    def _note(self, planned: _Planned, seconds: float, frame: datafusion.DataFrame) -> None:
        """A query was answered: what it took goes into the history."""
        scanning = sum(bool(reading.scanned) for reading in planned.readings.values())
        counted = (lambda: metrics(frame.execution_plan())) if scanning == 1 else None
        for name, reading in planned.readings.items():
            share = seconds / len(planned.readings)
            self.history.note(reading, planned.questions[name], share, reading.matched, counted)

    def _reports(self, planned: _Planned, frame: datafusion.DataFrame | None) -> list[TableReport]:
        scanning = [name for name, reading in planned.readings.items() if reading.scanned]
        # DataFusion counts per scan operator and not per table: with one table scanned the count is its.
        counted = metrics(frame.execution_plan()) if frame is not None and len(scanning) == 1 else None
        return [
            table_report(reading, planned.questions[name], self.cards, counted if name in scanning else None)
            for name, reading in planned.readings.items()
        ]

    def _names(self) -> Callable[[], list[str]]:
        return lambda: [*self._known().tables, *(name for name, _ in self._known().views)]

    def _known(self) -> _Names:
        sequence = self._registry.sequence()
        if self._names_known is None or self._names_known.sequence != sequence:
            names = frozenset(self._registry.table_names())
            self._names_known = _Names(sequence, names, self._registry.views())
        return self._names_known


def _tables_named(query: str, views: list[tuple[str, str]], known: _Names) -> frozenset[str]:
    """Tables the query may name. DataFusion asks for them from inside its runtime, where it cannot be called again, so
    they are made ready before."""
    said = words(query).union(*(words(view) for _, view in views))
    return known.tables if said & _CATALOG_WORDS else known.tables & said


def _collected(frame: datafusion.DataFrame, planned: _Planned) -> list[pa.RecordBatch]:
    try:
        return frame.collect()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # DataFusion panics, which is no Exception, when an object shrinks under its hands
        look_into(error, planned.readings.values())


def care_for(
    readings: Iterable[Reading],
    facts: PlanFacts = PlanFacts(),  # noqa: B008
    attempt: Attempt = Attempt.FIRST,
) -> Care:
    """What it takes to answer a query right."""
    readings = list(readings)
    plain = attempt is not Attempt.FIRST
    # What DataFusion remembers of a path can be of another version: of any object, of a local file that was replaced,
    # and where an older version is held.
    forgetful = any(reading.remote or reading.held for reading in readings) or footers.are_stale(readings)
    misleading = any(map(_misleads, readings))
    return Care(
        statistics=not (forgetful or plain or misleading or (facts.extremes and any(map(_has_texts, readings)))),
        top_groups=not misleading,
        pushdown=not plain,
        moves=attempt is not Attempt.PLAIN or facts.joins,
        own_filters=attempt is not Attempt.PLAIN and not facts.shared_names,
        equijoins=not facts.stacked_filters,
        leaves=not facts.joins and all(map(_is_bare_scan, readings)),
        sorted_parts=not (facts.unions or facts.outer_constants),
        footers=not forgetful,
        even=not any(map(_has_embedded, readings)),
    )


def _has_embedded(reading: Reading) -> bool:
    """Whether files that are large enough to be scanned by several cores hold indexes, too."""
    embedded = any(index.embed for index in reading.snapshot.indexes)
    return embedded and any(file.identity.size > WORTH_PARTS for file in reading.scanned)


def _is_bare_scan(reading: Reading) -> bool:
    """Whether DataFusion sees the files as they are, without a projection of ours over them."""
    return not (reading.snapshot.table.partitions or reading.opaque or reading.paged)


def _has_texts(reading: Reading) -> bool:
    """DataFusion cannot compare statistics of texts where files have them as different types, and takes the first."""
    schema = reading.snapshot.table.schema
    types = [schema.field(name).type for name in reading.columns]
    return any(pa.types.is_string(type) or pa.types.is_binary(type) for type in types)


def _misleads(reading: Reading) -> bool:
    schema = reading.snapshot.table.schema
    return any(misleads(schema.field(name).type) for name in reading.columns)


def _without_views(schema: pa.Schema) -> pa.Schema:
    """Texts and binaries as every library takes them."""
    types = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return pa.schema([field.with_type(types.get(field.type, field.type)) for field in schema], schema.metadata)


def _conformed(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The same types whichever way the rows came."""
    batches = [batch if isinstance(batch, pa.RecordBatch) else batch.to_pyarrow() for batch in batches]
    if not batches:
        return schema.empty_table()
    table = pa.Table.from_batches(batches).rename_columns(schema.names)
    return table if table.schema.types == schema.types else table.cast(schema)
