"""Plans SQL against tables without files, to find what a query needs of each table before anything is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import datafusion
import pyarrow as pa

from needlepoint.parquet import ByteCache
from needlepoint.predicate import And, conjuncts
from needlepoint.query.cache.table_state import TableState
from needlepoint.query.datafusion import session
from needlepoint.query.datafusion.native_scan import without_views
from needlepoint.query.datafusion.plan_cache import LIMIT_BYTES, plan_bytes, plan_key
from needlepoint.query.datafusion.scoring import Score, scores
from needlepoint.query.datafusion.session import SessionOptions
from needlepoint.query.sql import comparisons, literals, nesting
from needlepoint.query.sql.comparisons import Comparisons
from needlepoint.query.sql.join_edges import JoinEdge, join_edges
from needlepoint.query.sql.not_in import compared_by_not_in, makes_no_null
from needlepoint.query.sql.parameters import for_datafusion
from needlepoint.query.sql.plan_facts import (
    PlanFacts,
    Zeros,
    count_group_keys,
    has_correlated_not_in,
    has_subqueries,
    listed_zeros,
    plan_facts,
    sorted_zeros,
    sorts_inside,
)
from needlepoint.query.sql.plan_nodes import EXPRESSIONS, nodes, parts_of
from needlepoint.query.sql.predicate_extraction import requests
from needlepoint.query.sql.request import Request
from needlepoint.query.sql.rewriting.conditions import with_hidden_constants
from needlepoint.query.sql.rewriting.finer_times import digits_of, is_finer
from needlepoint.query.sql.rewriting.lossy_casts import HIDES_CAST
from needlepoint.query.sql.rewriting.passes import BY_FACTS, Texts, as_read, as_run, in_zones
from needlepoint.query.sql.rewriting.sort_keys import with_kept_keys
from needlepoint.query.sql.table_aggregate import TableAggregate, table_aggregate
from needlepoint.query.sql.table_selection import TableSelection, table_selection
from needlepoint.query.sql.top_rows import RankedRows, TopRows, top_rows
from needlepoint.query.sql.views import View, ViewErrors, define

Parameters = Mapping[str, Any]

_OWN_FILTERS = PlanFacts(own_filters=True)
_NAMES_DECIMALS = re.compile(r"dec\b|decimal|numeric", re.IGNORECASE)


_SHAPE = "shape"  # a key for all queries of a shape, which is no query


@dataclass(frozen=True, slots=True)
class LogicalQuery:
    """The logical plan of a query.

    query, views   as they run: with decimal literals resolved, zeros without signs, constants last, keys of ORDER BY
                   that DataFusion keeps
    requests       what the query needs of each table
    schema         of the result
    written        the plan before optimization
    facts, zeros   of the optimized plan
    scores         the calls of score
    edges          which tables its joins narrow
    top            the rows that its ORDER BY with LIMIT keeps
    aggregate      of one table, that indexes may answer
    selection      from one table, that needs no DataFusion if its rows are read by page
    compared       names of columns whose NULLs decide how it runs, as it has NOT IN
    """

    query: str
    views: list[View]
    requests: dict[str, Request]
    schema: pa.Schema
    written: datafusion.LogicalPlan
    facts: PlanFacts
    zeros: Zeros
    scores: tuple[Score, ...]
    edges: tuple[JoinEdge, ...] = ()
    top: TopRows | RankedRows | None = None
    aggregate: TableAggregate | None = None
    selection: TableSelection | None = None
    compared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is planned; see Planner.plan."""

    query: str
    parameters: Parameters | None
    views: list[View]
    tables: Mapping[str, TableState]
    scale: int
    keep_keys: bool

    def may_have_decimals(self) -> bool:
        types = (type for state in self.tables.values() for type in state.types.values())
        return any(map(pa.types.is_decimal, types)) or any(
            map(_NAMES_DECIMALS.search, (self.query, *(view for _, view in self.views)))
        )

    def has_other_zones(self) -> bool:
        types = (type for state in self.tables.values() for type in state.types.values())
        return any(pa.types.is_timestamp(type) and type.tz not in (None, "UTC", "+00:00") for type in types)

    def times(self) -> tuple[tuple[str, tuple[pa.TimestampType, ...]], ...]:
        """The columns that are times, of one zone, in every table that has a column of this name."""
        types: dict[str, dict[pa.DataType, None]] = {}
        for state in self.tables.values():
            for name, type in state.types.items():
                types.setdefault(name.lower(), {})[type] = None
        return tuple(
            (name, tuple(found))
            for name, found in types.items()
            if all(map(pa.types.is_timestamp, found)) and len({type.tz for type in found}) == 1
        )

    def digits(self) -> int:
        """The digits of a second that the parameters have."""
        return max(map(digits_of, (self.parameters or {}).values()), default=0)

    def stubs(self) -> dict[str, datafusion.Table]:
        return {name: state.stub for name, state in self.tables.items()}


class Planner:
    """`names` lists tables and views, for error messages."""

    def __init__(self, context: datafusion.SessionContext, names: Callable[[], list[str]]) -> None:
        self._names = names
        self._context = context
        self.planned: ByteCache[LogicalQuery] = ByteCache(LIMIT_BYTES)
        self._shown = session.make_context(SessionOptions(), subqueries_as_joins=True)
        self._coerced = session.make_context(
            SessionOptions(), subqueries_as_joins=True, without_rules=literals.IN_THE_WAY
        )

    def plan(
        self,
        query: str,
        parameters: Parameters | None,
        views: list[View],
        tables: Mapping[str, TableState],
        scale: int = 0,
        keep_keys: bool = False,
    ) -> LogicalQuery:
        """Plan a query. Its decimal literals have at least this scale. With `keep_keys`, DataFusion takes no key of a
        window or a subquery for constant, even if it may."""
        key = plan_key(query, parameters, views, tables, (scale, keep_keys))
        found, form, shape = None if key is None else self.planned.get(key), None, None
        if found is None:
            form = None if parameters or views else comparisons.recognise(query)
            shape = None if form is None else plan_key(form.shape, None, [], tables, (scale, keep_keys, _SHAPE))
            found = None if form is None or shape is None else self._like_earlier(query, form, shape, tables)
        if found is None:
            found = self._rewritten(_Asked(query, parameters, views, tables, scale, keep_keys))
            if key is not None:
                self.planned.put(key, found, plan_bytes(query, views))
            if form is not None and shape is not None and _agrees(found, query, form, tables):
                self.planned.put(shape, found, plan_bytes(query, views))
        return found

    def _like_earlier(
        self, query: str, form: Comparisons, shape: Hashable, tables: Mapping[str, TableState]
    ) -> LogicalQuery | None:
        """The plan of an earlier query that differs in its values only, with those of this one."""
        earlier = self.planned.get(shape)
        predicate = form.predicate(tables[form.table].types) if earlier is not None else None
        if earlier is None or earlier.selection is None or predicate is None:
            return None
        request = replace(earlier.requests[form.table], predicate=predicate)
        selection = replace(earlier.selection, predicate=predicate)
        return replace(earlier, query=query, requests={form.table: request}, selection=selection)

    def _rewritten(self, asked: _Asked) -> LogicalQuery:
        """The plan of a query in the form that DataFusion answers correctly."""

        def planned(texts: Texts) -> LogicalQuery | None:
            try:
                return self._plan(asked, as_run(texts))
            except Exception:  # it is not valid, written like this
                return None

        views = tuple(view for _, view in asked.views)
        decimals, zones = asked.may_have_decimals(), asked.has_other_zones()
        texts = Texts(asked.query, views, decimals, zones, asked.times(), asked.digits())
        read = as_read(texts)
        found = planned(texts) or self._plan(asked, in_zones(read))
        without = replace(texts, decimals=False)
        if as_run(texts) != as_run(without) and not self._casts_decimals(found.written):
            texts, found = without, planned(without) or self._plan(asked, in_zones(read))
        without = replace(texts, times=())
        if as_run(texts) != as_run(without) and self._cuts_times(found.written):
            texts, found = without, planned(without) or self._plan(asked, in_zones(read))
        for each in BY_FACTS:
            changed = texts.changed(each.query, each.view) if each.needed(found.facts) else texts
            if changed != texts and (other := planned(changed)) is not None:
                found, texts = other, changed
        if as_run(texts).query == read.query:
            return found
        return replace(found, schema=self._as_named(found.schema, read.query, asked))

    def _as_named(self, schema: pa.Schema, query: str, asked: _Asked) -> pa.Schema:
        """The schema with the names that columns without an alias have in the query as it was written."""
        try:
            with self.tables(self._context, asked.views, asked.stubs()):
                names = self.frame(self._context, query, asked.parameters).schema().names
            fields = [field.with_name(name) for field, name in zip(schema, names, strict=True)]
        except Exception:  # DataFusion refuses it, written like that
            return schema
        return pa.schema(fields, schema.metadata)

    def _plan(self, asked: _Asked, texts: Texts) -> LogicalQuery:
        """Plan a query whose text, and those of its views, are written differently."""
        parameters, scale = asked.parameters, asked.scale
        types = {name: state.types for name, state in asked.tables.items()}
        rewritten = {view: text for (_, view), text in zip(asked.views, texts.views, strict=True)}
        written: dict[str, str] = {}

        def with_decimals(view: str) -> str:
            written[view] = self._with_decimals(rewritten[view], None, types, scale)
            return written[view]

        with self.tables(self._context, asked.views, asked.stubs(), with_decimals):
            query = self._with_decimals(texts.query, parameters, types, scale)
            frame = self.frame(self._context, query, parameters)
            plan = frame.optimized_logical_plan()
            plans, drawn = [plan], plan.display_indent()
            shown = self._with_subqueries(query, parameters) if has_subqueries(drawn) else None
            needed, wanted = requests(plan, drawn, types, shown), scores(plan, drawn, types)
            facts = plan_facts(plan)
            edges = join_edges(plan, drawn, types) if facts.joins and shown is None else ()
            is_one = len(needed) == 1 and not has_subqueries(drawn)
            top = top_rows(plan) if is_one and "Sort:" in drawn else None
            may_count = is_one and not wanted and ("Aggregate:" in drawn or "Limit:" in drawn)
            aggregate = table_aggregate(plan, types) if may_count else None
            selection = table_selection(plan, types) if is_one and not wanted else None
            if facts.regroups_again and count_group_keys(frame.logical_plan()) <= count_group_keys(plan):
                facts = replace(facts, regroups_again=False)  # no key was dropped
            if facts.empty_totals and has_subqueries(frame.logical_plan().display_indent()):
                facts = replace(facts, empty_totals=False)  # to be joins, subqueries need conditions that move
            if facts.equal_subtotals and not sorts_inside(frame.logical_plan()):
                facts = replace(facts, equal_subtotals=False)
            compared = frozenset[str]()
            if "null_aware" in drawn:
                before = frame.logical_plan().display_indent()
                compared = compared_by_not_in(plan) if makes_no_null(before) and not asked.views else compared
                if has_correlated_not_in(before):
                    facts = replace(facts, unknown_in=True)
            zeros = [*listed_zeros(plan), *(sorted_zeros(plan, frame.logical_plan()) if "fetch=" in drawn else ())]
            if has_subqueries(drawn):
                edges = () if shown is None else join_edges(shown, shown.display_indent(), types)
                facts = PlanFacts.careful() if shown is None else facts | plan_facts(shown) | _OWN_FILTERS
                zeros += () if shown is None else [*listed_zeros(shown), *sorted_zeros(shown, frame.logical_plan())]
                plans += [] if shown is None else [shown]
            may_be = any(_is_unfilterable(type) for known in types.values() for type in known.values())
            if facts.joins and (may_be or _makes_nested(drawn)):
                facts = replace(facts, unfilterable_keys=any(map(self._has_unfilterable_keys, plans)))
            # The plan before optimization has types from before coercion: of a UNION, those of its first part.
            if facts.regroups_again:
                facts |= self._facts_of_all_columns(query, parameters)
            schema = without_views(self._context.create_dataframe_from_logical_plan(plan).schema())
        views = [(name, written.get(view, view)) for name, view in asked.views]
        if facts.outer_constants or asked.keep_keys:
            query, views, others = self._with_kept_keys(query, asked, views)
            facts |= others
        return LogicalQuery(
            query,
            views,
            needed,
            schema,
            frame.logical_plan(),
            facts,
            zeros,
            wanted,
            edges,
            top,
            aggregate,
            selection,
            compared,
        )

    @contextmanager
    def tables(
        self,
        context: datafusion.SessionContext,
        views: list[View],
        found: dict[str, datafusion.Table],
        written: Callable[[str], str] = lambda view: view,
    ) -> Iterator[None]:
        """Within this block, names in SQL resolve to these tables, and to the views over them."""
        with session.tables(found):
            broken = ViewErrors(self._names)
            define(views, found, lambda query: self.frame(context, written(query), None), broken)
            try:
                yield
            except Exception as failure:
                if why := broken.error(failure):
                    raise why from failure
                raise

    def frame(
        self, context: datafusion.SessionContext, query: str, parameters: Parameters | None
    ) -> datafusion.DataFrame:
        return nesting.frame(context, query, for_datafusion(query, parameters))

    def _has_unfilterable_keys(self, plan: datafusion.LogicalPlan) -> bool:
        return any(self._is_unfilterable(node, join) for node, join in nodes(plan) if type(join).__name__ == "Join")

    def _is_unfilterable(self, node: datafusion.LogicalPlan, join: Any) -> bool:
        """Whether a key of a join is a float, a list or a struct, or may be one."""
        keys = [key for pair in join.on() for key in pair]
        fields = [field for each in node.inputs() for field in self._schema(each)] if keys else []
        found = {field.name for field in fields if _is_unfilterable(field.type)}
        return any(
            key.to_variant().name() in found if key.variant_name() == "Column" else found or _makes_nested(str(key))
            for key in keys
        )

    def _casts_decimals(self, plan: datafusion.LogicalPlan) -> bool:
        """Whether a plan before optimization, with hidden casts (rewriting/lossy_casts.py), has one of a decimal, or of
        something that is not known."""
        drawn, known = plan.display_indent().count(HIDES_CAST), 0
        for node, variant in nodes(plan):
            for expression in EXPRESSIONS.get(type(variant).__name__, lambda _: ())(variant):
                for call in filter(_is_call, parts_of(expression)):
                    (cast, *_) = call.rex_call_operands()
                    if f"{call.rex_call_operator()}(" == HIDES_CAST:
                        if self._may_be_decimal(node, cast.rex_call_operands()[0]):
                            return True
                        known += 1
        return drawn != known  # else some are in subqueries, or in expressions that DataFusion does not expose

    def _may_be_decimal(self, node: datafusion.LogicalPlan, expression: Any) -> bool:
        type = self._type(node, expression)
        return type is None or bool(pa.types.is_decimal(type))

    def _cuts_times(self, plan: datafusion.LogicalPlan) -> bool:
        """Whether a plan before optimization casts a time to a coarser unit. A cast to the finer unit of a column
        (rewriting/finer_times.py) does that where the query or a view gives the column's name to something else. The
        finest unit of a UNION is not known yet."""
        for node, variant in nodes(plan):
            if type(variant).__name__ == "Union":
                first, *others = (self._schema(each).types for each in node.inputs())
                if any(is_finer(*pair) for types in others for pair in zip(types, first, strict=True)):
                    return True
            for expression in EXPRESSIONS.get(type(variant).__name__, lambda _: ())(variant):
                for call in filter(_is_call, parts_of(expression)):
                    if call.rex_call_operator() == "arrow_cast":
                        before, after = (self._type(node, each) for each in (call.rex_call_operands()[0], call))
                        if is_finer(before, after):
                            return True
        return False

    def _type(self, node: datafusion.LogicalPlan, expression: Any) -> pa.DataType | None:
        """The type of an expression in a node; None if DataFusion does not tell."""
        for below in (*node.inputs(), node):  # a join has columns of both inputs
            try:
                frame = self._context.create_dataframe_from_logical_plan(below)
                (found,) = frame.select(datafusion.Expr(expression).alias("x")).schema().types
            except Exception:
                continue
            return found
        return None

    def _schema(self, plan: datafusion.LogicalPlan) -> pa.Schema:
        return self._context.create_dataframe_from_logical_plan(plan).schema()

    def _with_subqueries(self, query: str, parameters: Parameters | None) -> datafusion.LogicalPlan | None:
        """The plan of a query with its scalar subqueries as joins, if DataFusion can convert them."""
        try:
            return self.frame(self._shown, query, parameters).optimized_logical_plan()
        except Exception:
            return None

    @cached_property
    def _all_columns(self) -> datafusion.SessionContext:
        return session.make_context(SessionOptions(unique_keys=False, fewer_keys=False), subqueries_as_joins=True)

    def _facts_of_all_columns(self, query: str, parameters: Parameters | None) -> PlanFacts:
        """The facts of a plan that keeps unused columns: more inputs of joins share a name."""
        try:
            return plan_facts(self.frame(self._all_columns, query, parameters).optimized_logical_plan())
        except Exception:
            return PlanFacts.careful()

    def _with_kept_keys(self, query: str, asked: _Asked, views: list[View]) -> tuple[str, list[View], PlanFacts]:
        """The query and its views with keys that DataFusion keeps, if it can plan them, and the facts of that plan."""
        if all(with_kept_keys(text) == text for text in (query, *(view for _, view in views))):
            return query, views, PlanFacts()

        for written in (lambda text: with_hidden_constants(with_kept_keys(text)), with_kept_keys):
            kept, kept_views = written(query), [(name, written(view)) for name, view in views]
            try:
                with self.tables(self._context, kept_views, asked.stubs()):
                    facts = plan_facts(self.frame(self._context, kept, asked.parameters).optimized_logical_plan())
                    shown = self._with_subqueries(kept, asked.parameters)
            except Exception:  # a name that DataFusion makes of a window's text, for instance
                continue
            return kept, kept_views, facts | (PlanFacts.careful() if shown is None else plan_facts(shown))
        return query, views, PlanFacts()

    def _with_decimals(
        self,
        query: str,
        parameters: Parameters | None,
        tables: Mapping[str, Mapping[str, pa.DataType]],
        scale: int,
    ) -> str:
        """The query with decimal literals where they meet decimals."""
        if not any(pa.types.is_decimal(type) for types in tables.values() for type in types.values()):
            return query

        columns = {name: type for types in tables.values() for name, type in types.items()}
        return literals.resolve_literals(
            query,
            self._coerced,
            lambda text: self.frame(self._coerced, text, parameters),
            frame_as_run=lambda text: self.frame(self._context, text, parameters),
            parameters=parameters,
            types=columns,
            scale=scale,
        )


def _agrees(found: LogicalQuery, query: str, form: Comparisons, tables: Mapping[str, TableState]) -> bool:
    """Whether DataFusion found the columns and values of the text in it, and nothing else."""
    request = found.requests.get(form.table)
    if request is None or len(found.requests) > 1 or found.query != query or found.selection is None:
        return False
    predicate, selected = form.predicate(tables[form.table].types), And(tuple(conjuncts(found.selection.predicate)))
    return request.predicate == selected == predicate and not (request.unprunable or request.nested)


def _is_unfilterable(type: pa.DataType) -> bool:
    return bool(pa.types.is_floating(type) or pa.types.is_nested(type))


def _is_call(expression: Any) -> bool:
    return bool(expression.variant_name() == "ScalarFunction" and expression.rex_call_operands())


def _makes_nested(drawn: str) -> bool:
    return "make_array(" in drawn or "struct(" in drawn
