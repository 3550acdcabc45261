"""Scores use the statistics of all texts of a table, including files and rows that the query does not read.

find       the score calls of a plan, and the table column of each
count      texts, words and the frequency of each term, over the snapshot; cached with it

A query with scores runs in a context of its own, whose function `score` has the counts (session.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from needlepoint.errors import NeedlepointError, SqlError
from needlepoint.indexes.text import Term, TextStatistics, WordIndex, parse, statistics, terms
from needlepoint.query.cache.table_state import TableState
from needlepoint.query.datafusion.udfs import unresolved_score
from needlepoint.query.sql.plan_nodes import EXPRESSIONS

MOST_TERMS_KEPT = 10_000
_CALL = "score("


@dataclass(frozen=True, slots=True)
class Score:
    """`score(column, 'query')` of a table."""

    table: str
    column: str
    query: str


# Find


def scores(plan: Any, drawn: str, tables: Mapping[str, Mapping[str, pa.DataType]]) -> tuple[Score, ...]:
    """The score calls of an optimized plan. SqlError if the table of one is unknown, or if one query text is used for
    two columns: the function only receives the text and the query."""
    if _CALL not in drawn:
        return ()
    if any(_CALL in line for line in _inside_subqueries(drawn)):
        raise unresolved_score("…")
    found: dict[str, Score] = {}
    for score in dict.fromkeys(_scores(plan, tables)):
        other = found.setdefault(score.query, score)
        if other != score:
            raise SqlError(
                f"score(…, '{score.query}') is used for {other.table}.{other.column} and {score.table}.{score.column}.",
                hint="Make one of the two texts different, for instance by a space at its end.",
            )
    return tuple(found.values())


def _inside_subqueries(drawn: str) -> Iterator[str]:
    """The score calls in scalar subqueries. The plan's text has them, but DataFusion 55 does not expose their plans."""
    inside: int | None = None
    for line in drawn.splitlines():
        depth = len(line) - len(line.lstrip())
        if inside is not None and depth <= inside:
            inside = None
        if inside is not None:
            yield line
        elif line.strip() == "Subquery:":
            inside = depth


def _scores(plan: Any, tables: Mapping[str, Mapping[str, pa.DataType]]) -> Iterator[Score]:
    waiting = [plan]
    while waiting:
        found = waiting.pop()
        yield from _scores_of(found, tables)
        waiting += reversed(found.inputs())


def _scores_of(plan: Any, tables: Mapping[str, Mapping[str, pa.DataType]]) -> Iterator[Score]:
    """The score calls of one node."""
    node = plan.to_variant()
    kind = type(node).__name__
    expressions = EXPRESSIONS.get(kind)
    if expressions is None and _CALL in plan.display():
        raise unresolved_score("…")
    for call in _calls(expressions(node) if expressions else ()):
        text, query = call.rex_call_operands()
        if query.variant_name() != "Literal":
            raise SqlError("the query of score must be a string.", hint="Write score(column, 'words').")
        wanted = query.python_value().as_py()
        if wanted is None:
            continue
        parse(wanted)  # reports an invalid query
        origin = None
        if text.variant_name() == "Column":
            column = text.to_variant()
            if kind == "TableScan":  # its filters can use columns that it does not return
                origin = node.fqn()[2], column.name()
            else:
                origin = _origin(plan.inputs(), column.relation(), column.name())
        if origin is None or not pa.types.is_string(tables.get(origin[0], {}).get(origin[1], pa.null())):
            raise SqlError(
                f"score cannot use {text.canonical_name()}: it is not a text column of one table.",
                hint="A score needs all texts of a table: use it on a plain column.",
            )
        yield Score(*origin, wanted)


def _calls(expressions: Iterable[Any]) -> Iterator[Any]:
    waiting = [*expressions][::-1]
    while waiting:
        expression = waiting.pop()
        variant = expression.variant_name()
        if variant in ("Column", "Literal"):
            continue
        if variant == "ScalarFunction" and expression.rex_call_operator() == "score":
            yield expression
            continue
        try:
            waiting += reversed(expression.rex_call_operands())
        except Exception:
            if _CALL in expression.canonical_name():
                raise unresolved_score("…") from None
            continue


def _origin(plans: Iterable[Any], relation: str | None, name: str) -> tuple[str, str] | None:
    """The table and column of a name above these plans; None if it is computed, or from two tables."""
    found = {origin for plan in plans if (origin := _origin_in(plan, relation, name)) is not _ABSENT}
    return found.pop() if len(found) == 1 else None if found else _ABSENT


_ABSENT = ("", "")  # no such column or table


def _origin_in(plan: Any, relation: str | None, name: str) -> tuple[str, str] | None:
    node = plan.to_variant()
    match type(node).__name__:
        case "TableScan":
            table = node.fqn()[2]
            ours = relation is None or relation.rpartition(".")[2] == table
            return (table, name) if ours and name in (given for _, given in node.projection()) else _ABSENT
        case "SubqueryAlias":
            return _origin(plan.inputs(), None, name) if relation in (None, node.alias()) else _ABSENT
        case "Projection":
            return _projected(node.projections(), plan, relation, name)
        case "Aggregate":
            return _projected(node.group_by_exprs(), plan, relation, name)
    return _origin(plan.inputs(), relation, name)


def _projected(expressions: Iterable[Any], plan: Any, relation: str | None, name: str) -> tuple[str, str] | None:
    for expression in expressions:
        alias = None
        while expression.variant_name() == "Alias":
            alias = alias or expression.to_variant().alias()
            (expression,) = expression.rex_call_operands()
        if expression.variant_name() != "Column":
            if alias == name:
                return None
            continue
        column = expression.to_variant()
        named = alias == name if alias else column.name() == name and relation in (None, column.relation())
        if named:
            return _origin(plan.inputs(), column.relation(), column.name())
    return _ABSENT


# Count


class TextColumn(Protocol):
    """A text column of a snapshot's files."""

    def words(self, state: TableState, column: str, position: int) -> WordIndex | None:
        """The text index of a file, if it has one."""
        ...

    def read(self, state: TableState, column: str, positions: Sequence[int]) -> Iterator[pa.Array]:
        """The texts of these files."""
        ...


def statistics_of(state: TableState, column: str, wanted: Iterable[Term], texts: TextColumn) -> TextStatistics:
    """Over all rows of the snapshot, cached with it. A file with a text index is not read."""
    held = state.texts.get(column)
    missing = [term for term in wanted if held is None or term not in held.frequencies]
    if held is not None and not missing:
        return held
    found = TextStatistics(0, 0, dict.fromkeys(missing, 0))
    unknown: list[int] = []
    for position in range(len(state.snapshot.files)):
        index = texts.words(state, column, position)
        try:
            share = None if index is None else statistics(index, missing)
        except NeedlepointError:
            share = None  # a damaged index: read the texts
        if share is None:
            unknown.append(position)
        else:
            found += share
    for some in texts.read(state, column, unknown) if unknown else ():
        found += TextStatistics.of(some, missing)
    known = held.frequencies if held is not None and len(held.frequencies) < MOST_TERMS_KEPT else {}
    held = TextStatistics(found.texts, found.words, {**known, **found.frequencies})
    state.texts[column] = held
    return held


def count_terms(
    wanted: Iterable[Score],
    states: Mapping[str, TableState],
    texts: TextColumn,
) -> dict[str, TextStatistics]:
    """The statistics for the scores of a query, by query text. Terms of one column are counted together."""
    columns: dict[tuple[str, str], list[Score]] = {}
    for score in wanted:
        columns.setdefault((score.table, score.column), []).append(score)
    found: dict[str, TextStatistics] = {}
    for (table, column), asked in columns.items():
        together = [term for score in asked for term in terms(parse(score.query))]
        statistics = statistics_of(states[table], column, dict.fromkeys(together), texts)
        found |= {score.query: statistics for score in asked}
    return found
