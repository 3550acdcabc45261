"""Plans SQL against tables without files, to find what a query needs of each table before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import datafusion
import pyarrow as pa

from needlepoint.query.cache.table_state import TableState
from needlepoint.query.datafusion import session
from needlepoint.query.datafusion.scoring import Score, scores
from needlepoint.query.datafusion.session import SessionOptions
from needlepoint.query.sql import literals, nesting
from needlepoint.query.sql.parameters import for_datafusion
from needlepoint.query.sql.plan_facts import (
    PlanFacts,
    Zeros,
    count_group_keys,
    has_subqueries,
    listed_zeros,
    plan_facts,
)
from needlepoint.query.sql.predicate_extraction import Request, requests
from needlepoint.query.sql.sort_keys import with_kept_keys
from needlepoint.query.sql.views import View, ViewErrors, define
from needlepoint.query.sql.zeros import without_signs

Parameters = Mapping[str, Any]

_OWN_FILTERS = PlanFacts(own_filters=True)


@dataclass(frozen=True, slots=True)
class LogicalQuery:
    """The logical plan of a query.

    query, views   as they run: with decimal literals resolved, zeros without signs, keys of ORDER BY that DataFusion
                   keeps
    requests       what the query needs of each table
    schema         of the result
    written        the plan before optimization
    facts, zeros   of the optimized plan
    scores         the calls of score
    """

    query: str
    views: list[View]
    requests: dict[str, Request]
    schema: pa.Schema
    written: datafusion.LogicalPlan
    facts: PlanFacts
    zeros: Zeros
    scores: tuple[Score, ...]


class Planner:
    """`names` lists tables and views, for error messages."""

    def __init__(self, context: datafusion.SessionContext, names: Callable[[], list[str]]) -> None:
        self._names = names
        self._context = context
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
        types = {name: state.types for name, state in tables.items()}
        written: dict[str, str] = {}

        def with_decimals(view: str) -> str:
            written[view] = self._with_decimals(without_signs(view), None, types, scale)
            return written[view]

        stubs = {name: state.stub for name, state in tables.items()}
        with self.tables(self._context, views, stubs, with_decimals):
            query = self._with_decimals(without_signs(query), parameters, types, scale)
            frame = self.frame(self._context, query, parameters)
            plan = frame.optimized_logical_plan()
            drawn = plan.display_indent()
            asked, wanted = requests(plan, drawn, types), scores(plan, drawn, types)
            facts = plan_facts(plan)
            if facts.regroups_again and count_group_keys(frame.logical_plan()) <= count_group_keys(plan):
                facts = replace(facts, regroups_again=False)  # no key was dropped
            zeros = [*listed_zeros(plan)]
            if has_subqueries(drawn):
                shown = self._with_subqueries(query, parameters)
                facts = PlanFacts.careful() if shown is None else facts | plan_facts(shown) | _OWN_FILTERS
                zeros += () if shown is None else listed_zeros(shown)
            # The plan before optimization has types from before coercion: of a UNION, those of its first part.
            if facts.regroups_again:
                facts |= self._facts_of_all_columns(query, parameters)
            schema = _without_views(self._context.create_dataframe_from_logical_plan(plan).schema())
        views = [(name, written.get(view, view)) for name, view in views]
        if facts.outer_constants or keep_keys:
            query, views = self._with_kept_keys(query, parameters, views, tables)
        return LogicalQuery(query, views, asked, schema, frame.logical_plan(), facts, zeros, wanted)

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

    def _with_kept_keys(
        self, query: str, parameters: Parameters | None, views: list[View], tables: Mapping[str, TableState]
    ) -> tuple[str, list[View]]:
        """The query and its views with keys that DataFusion keeps, if it can plan them."""
        kept, kept_views = with_kept_keys(query), [(name, with_kept_keys(view)) for name, view in views]
        if (kept, kept_views) == (query, views):
            return query, views
        try:
            with self.tables(self._context, kept_views, {name: state.stub for name, state in tables.items()}):
                self.frame(self._context, kept, parameters).optimized_logical_plan()
        except Exception:  # a name that DataFusion makes of a window's text, for instance
            return query, views
        return kept, kept_views

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


def _without_views(schema: pa.Schema) -> pa.Schema:
    """Strings and binaries in the types that every library reads."""
    types = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return pa.schema([field.with_type(types.get(field.type, field.type)) for field in schema], schema.metadata)
