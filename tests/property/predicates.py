"""Random WHERE clauses over the columns of a generated table, mostly with values that are in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from tests.property.generated import Column, TableSpec
from tests.property.kinds import BY_NAME, Sql, same

OPERATORS = ("=", "=", "=", "<>", "<", "<=", ">", ">=")


def predicates(spec: TableSpec, depth: int = 3, prefix: str = "") -> SearchStrategy[Sql]:
    """`prefix` is the alias of the table, with its dot."""
    leaf = st.sampled_from(spec.all_columns).flatmap(lambda column: _leaf(spec, column, prefix))
    if depth == 0:
        return leaf
    child = predicates(spec, depth - 1, prefix)
    return (
        leaf
        | leaf
        | st.builds(lambda a, b: Sql.of("({} AND {})", a, b), child, child)
        | st.builds(lambda a, b: Sql.of("({} OR {})", a, b), child, child)
        | st.builds(_negated, child)
    )


def values(column: Column, rows: int = 400) -> SearchStrategy[Any]:
    """Values of the column that are not NULL, and some that are not in it."""
    if column.name == "id":
        return st.integers(0, 120) | st.integers(-1, rows)
    known = [value for value in column.pool if value is not None]
    return st.sampled_from(known) | st.sampled_from(known) | column.kind.values if known else column.kind.values


@st.composite
def _leaf(draw: DrawFn, spec: TableSpec, column: Column, prefix: str) -> Sql:
    kind = column.kind
    name = same(prefix + column.sql)
    literal = values(column).map(kind.literal)
    if not kind.indexed:
        return draw(_nested(name, kind.name))
    # In lists of four and more values, DataFusion 55 distinguishes -0.0 from 0.0; elsewhere they are equal.
    members = _members(name, literal, 3 if kind.float else 10)
    forms = [_compare(name, literal), _compare(name, literal), members, _nulls(name)]
    if kind.name == "bool":
        forms.append(_truth(name))
    else:
        forms.append(st.builds(lambda a, b: Sql.of("{} BETWEEN {} AND {}", name, a, b), literal, literal))
    if kind.text:
        forms += [_like(column, name), _like(column, name), _of_strings(name, literal)]
    if kind.number:
        forms.append(_of_integers(name, literal, wide=kind.type.bit_width == 64))
    if kind.name == "date":
        forms.append(st.builds(_as_timestamp, st.just(name), BY_NAME["timestamp us"].values))
    if pa.types.is_timestamp(kind.type) and kind.type.tz is None:
        forms.append(_of_timestamps(name, literal, column.kind.name == "timestamp ns"))
    others = [each for each in spec.all_columns if each.kind is kind and each is not column]
    if others:
        forms.append(_two_columns(name, [same(prefix + other.sql) for other in others]))
    return draw(st.one_of(forms))


def _negated(condition: Sql) -> Sql:
    return Sql.of("NOT ({})", condition)


@st.composite
def _compare(draw: DrawFn, name: Sql, literal: SearchStrategy[Sql]) -> Sql:
    operator = draw(st.sampled_from((*OPERATORS, "IS DISTINCT FROM", "IS NOT DISTINCT FROM")))
    sides = [name, draw(literal)]
    # DataFusion takes `DATE '…' = d AND d = DATE '…'` for a contradiction (docs/reliability.md): casts come second.
    if draw(st.integers(0, 4)) == 0 and sides[1].lake[:1] in "-0123456789'":
        sides.reverse()
    # Parentheses, since the right side of DataFusion's IS DISTINCT FROM includes a following AND.
    return Sql.of(f"({{}} {operator} {{}})", *sides)


@st.composite
def _members(draw: DrawFn, name: Sql, literal: SearchStrategy[Sql], most: int) -> Sql:
    items = draw(st.lists(literal, min_size=1, max_size=most))
    word = draw(st.sampled_from(["IN", "IN", "NOT IN"]))
    if draw(st.integers(0, 4)) == 0:
        items.append(same("NULL"))
    marks = ", ".join(["{}"] * len(items))
    return Sql.of(f"{{}} {word} ({marks})", name, *items)


def _nulls(name: Sql) -> SearchStrategy[Sql]:
    return st.sampled_from(["{} IS NULL", "{} IS NOT NULL"]).map(lambda form: Sql.of(form, name))


def _truth(name: Sql) -> SearchStrategy[Sql]:
    forms = ["{}", "NOT {}", "{} IS TRUE", "{} IS FALSE", "{} IS NOT TRUE", "{} IS NOT FALSE", "{} = ({} OR TRUE)"]
    return st.sampled_from(forms).map(lambda form: Sql.of(form, name, name))


@st.composite
def _like(draw: DrawFn, column: Column, name: Sql) -> Sql:
    known = draw(values(column))[:80]
    start = draw(st.integers(0, max(len(known) - 1, 0)))
    end = draw(st.integers(start, len(known)))
    # By default, DataFusion escapes with a backslash and DuckDB does not. NUL ends a literal in DuckDB.
    words = [part.replace("\\", "").replace("\0", "") for part in (known[:end], known[start:end])]
    form = draw(st.sampled_from(["{0}%", "{0}%", "%{1}%", "%{1}", "{0}_%", "_{1}%", "{0}", "{0}%{1}%"]))
    pattern = form.format(*words).replace("'", "''")
    word = draw(st.sampled_from(["LIKE", "LIKE", "NOT LIKE"]))
    return Sql.of(f"{{}} {word} {{}}", name, same(f"'{pattern}'"))


@st.composite
def _of_strings(draw: DrawFn, name: Sql, literal: SearchStrategy[Sql]) -> Sql:
    forms = [
        "coalesce({0}, {1}) = {1}",
        "{0} || 'x' = {1} || 'x'",
        "starts_with({0}, {1})",
        "contains({0}, {1})",
        "strpos({0}, {1}) > 0",
        "concat({0}, '') = {1}",
        "left({0}, 2) = {1}",
        "substr({0}, 1, 3) = {1}",
        "NOT ({0} IS NOT DISTINCT FROM {1})",
        "NOT (({0} = {1}) IS TRUE)",
    ]
    return Sql.of(draw(st.sampled_from(forms)), name, draw(literal))


@st.composite
def _of_integers(draw: DrawFn, name: Sql, literal: SearchStrategy[Sql], wide: bool) -> Sql:
    forms = [
        "CAST({0} AS DOUBLE) > CAST('1.5' AS DOUBLE)",
        "CAST({0} AS VARCHAR) = CAST({1} AS VARCHAR)",
        "{0} % 3 = 1",
        "CAST({0} AS DOUBLE) <= CAST('7' AS DOUBLE)",
        "NOT ({0} IS NOT DISTINCT FROM {1})",
        "CASE WHEN {0} = {1} THEN true ELSE false END",
    ]
    # Sums and casts of 64-bit numbers overflow differently in each engine.
    forms += (
        [] if wide else ["CAST({0} AS BIGINT) + 1 > {1}", "CAST({0} AS BIGINT) = {1}", "CAST({0} AS BIGINT) <= {1}"]
    )
    return Sql.of(draw(st.sampled_from(forms)), name, draw(literal))


@st.composite
def _of_timestamps(draw: DrawFn, name: Sql, literal: SearchStrategy[Sql], nanoseconds: bool) -> Sql:
    operands = [name, draw(literal)]
    operator = draw(st.sampled_from(OPERATORS))
    unit = draw(st.sampled_from(["hour", "day", "week", "month", "year"]))
    forms = [
        f"CAST({{0}} AS DATE) {operator} CAST({{1}} AS DATE)",
        f"date_trunc('{unit}', {{0}}) {operator} date_trunc('{unit}', {{1}})",
    ]
    return Sql.of(draw(st.sampled_from(forms)), *(map(_microseconds, operands) if nanoseconds else operands))


def _microseconds(moment: Sql) -> Sql:
    """Cut to microseconds: DuckDB 2.0 rounds nanoseconds before it truncates (23:59:59.9999996 is the next day)."""
    ns = f"epoch_ns({moment.duck})"
    return Sql(moment.lake, f"make_timestamp(({ns} - (({ns} % 1000) + 1000) % 1000) // 1000)")


def _as_timestamp(name: Sql, value: int) -> Sql:
    # DataFusion casts the date to nanoseconds, which fails for years that these cannot hold.
    return Sql.of("{} BETWEEN DATE '1700-01-01' AND DATE '2200-01-01' AND {} >= CAST({} AS DATE)", name, name,
                  BY_NAME["timestamp us"].literal(value))  # fmt: skip


def _nested(name: Sql, kind: str) -> SearchStrategy[Sql]:
    if kind == "struct":
        forms = ["{} IS NULL", "{} IS NOT NULL", "{}['x'] = 1", "{}['x'] IS NULL", "{}['y'] LIKE 'a%'"]
    else:
        forms = ["{} IS NULL", "{} IS NOT NULL", "{}[1] = 1"]
    return st.sampled_from(forms).map(lambda form: Sql.of(form, name))


def _two_columns(name: Sql, others: Sequence[Sql]) -> SearchStrategy[Sql]:
    return st.builds(
        lambda operator, other: Sql.of(f"{{}} {operator} {{}}", name, other),
        st.sampled_from(["=", "<>", "<", ">="]),
        st.sampled_from(others),
    )
