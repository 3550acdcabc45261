"""The order in which a query is rewritten.

AS_READ    what DataFusion reads wrongly; the names of the result's columns are those of this form
AS_RUN     what it answers wrongly, found in the text alone
BY_FACTS   what it answers wrongly, if the plan so far has these facts

A pass returns the text itself if it has nothing to change. A form that DataFusion refuses is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce

import pyarrow as pa

from needlepoint.query.sql.plan_facts import PlanFacts
from needlepoint.query.sql.rewriting import null_safe
from needlepoint.query.sql.rewriting.constants_last import with_constants_last
from needlepoint.query.sql.rewriting.distinct_counts import with_hidden_arguments
from needlepoint.query.sql.rewriting.existence import as_count
from needlepoint.query.sql.rewriting.finer_times import with_finer_times
from needlepoint.query.sql.rewriting.instants import with_zones
from needlepoint.query.sql.rewriting.lossy_casts import with_hidden_casts
from needlepoint.query.sql.rewriting.refused_clauses import check_clauses
from needlepoint.query.sql.rewriting.scalar_subqueries import with_nullable_values
from needlepoint.query.sql.rewriting.separate_lists import with_separate_lists
from needlepoint.query.sql.rewriting.totals import with_limited_totals
from needlepoint.query.sql.rewriting.wildcards import with_named_wildcards
from needlepoint.query.sql.rewriting.zeros import without_signs

Rewrite = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Texts:
    """A query, and the views that it may use. `decimals`: a column or a cast of it may be one. `zones`: a column has a
    zone other than UTC. `times`: the columns that are times, with their types; `digits`: of a second, in parameters."""

    query: str
    views: tuple[str, ...] = ()
    decimals: bool = False
    zones: bool = False
    times: tuple[tuple[str, tuple[pa.TimestampType, ...]], ...] = ()
    digits: int = 0

    def changed(self, query: Rewrite, view: Rewrite | None = None) -> Texts:
        return replace(self, query=query(self.query), views=tuple(map(view or query, self.views)))


@dataclass(frozen=True, slots=True)
class ByFacts:
    """A pass for plans with some facts; views are written as queries are, unless `view` says how."""

    needed: Callable[[PlanFacts], bool]
    query: Rewrite
    view: Rewrite | None = None


Pass = Callable[[Texts], Texts]


def _each(rewrite: Rewrite) -> Pass:
    return lambda texts: texts.changed(rewrite)


def in_zones(texts: Texts) -> Texts:
    return texts.changed(with_zones) if texts.zones else texts


AS_READ: Sequence[Pass] = (
    _each(check_clauses),
    _each(null_safe.with_parentheses),
    _each(without_signs),
    lambda texts: texts.changed(partial(with_named_wildcards, views=texts.views)),
)
AS_RUN: Sequence[Pass] = (
    *AS_READ,
    in_zones,
    lambda texts: texts.changed(partial(with_finer_times, times=dict(texts.times), digits_given=texts.digits)),
    lambda texts: texts.changed(partial(with_constants_last, views=texts.views)),
    _each(with_nullable_values),
    _each(with_separate_lists),
    lambda texts: texts.changed(with_hidden_casts) if texts.decimals else texts,
)
BY_FACTS = (
    ByFacts(lambda facts: facts.own_filters, as_count, lambda view: view),
    ByFacts(lambda facts: facts.empty_parts, with_limited_totals, partial(with_limited_totals, is_view=True)),
    ByFacts(lambda facts: facts.literals, with_hidden_arguments),
    ByFacts(lambda facts: facts.joins and not facts.unfilterable_keys, null_safe.as_lists),
    ByFacts(lambda facts: facts.joins, null_safe.spelled_out),
)


def as_read(texts: Texts) -> Texts:
    return reduce(lambda found, each: each(found), AS_READ, texts)


@lru_cache(maxsize=8)
def as_run(texts: Texts) -> Texts:
    """
    >>> as_run(Texts("SELECT * FROM a JOIN b ON 1 = b.x AND -0.0 < b.y")).query
    'SELECT * FROM a JOIN b ON b.x = 1 AND b.y > 0.0'
    """
    return reduce(lambda found, each: each(found), AS_RUN, texts)
