"""Conditions on computed values: arithmetic, casts, parts of times and texts, CASE, rows, and their truth.

Where DuckDB computes something else, or refuses to, only the answers with and without indexes are compared.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from tests.property.generated import Column, TableSpec
from tests.property.kinds import Sql, same
from tests.property.predicates import predicates, values

COMPARED = ("=", "=", "=", "<", "<=", ">", ">=", "<>")
UNLIKE = "unlike()"
"""In the place of SQL that DuckDB answers differently."""

_NUMBERS = ("1", "2", "-3", "7", "100", "0", "-1")
_FLOATS = tuple(f"CAST('{each}' AS DOUBLE)" for each in ("0.1", "1", "-2.5", "1e300", "1e-300", "3"))
_INTERVALS = ("1 day", "36 hours", "1 month", "13 months", "1 month 3 days", "90 seconds")


def conditions(spec: TableSpec, depth: int = 2) -> SearchStrategy[Sql]:
    leaf = st.sampled_from(spec.columns).flatmap(lambda column: computed(spec, column))
    if depth == 0:
        return leaf
    child = conditions(spec, depth - 1)
    return (
        leaf
        | leaf
        | st.builds(lambda a, b: Sql.of("({} AND {})", a, b), child, child)
        | st.builds(lambda a, b: Sql.of("({} OR {})", a, b), child, child | predicates(spec, 0))
        | st.builds(lambda a: Sql.of("NOT ({})", a), child)
        | st.builds(lambda a, truth: Sql.of(f"(({{}}) {truth})", a), child, st.sampled_from(_TRUTHS))
        | st.builds(
            lambda a, value: Sql.of(f"CASE WHEN {{}} THEN 1 ELSE 0 END {value}", a),
            child, st.sampled_from(("= 1", "= 0", "> 0", "IN (1, 2)", "<> 1")),
        )
    )  # fmt: skip


_TRUTHS = ("IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE", "IS UNKNOWN", "IS NOT UNKNOWN")


@st.composite
def computed(draw: DrawFn, spec: TableSpec, column: Column) -> Sql:
    kind, name = column.kind, same(column.sql)
    if not kind.indexed:
        return draw(predicates(spec, 0))
    literal = values(column).map(kind.literal)
    others = [each for each in spec.all_columns if each.kind is kind and each is not column]
    # Zeros have signs, which DuckDB ignores, and so do NaNs.
    forms: list[SearchStrategy[Sql]] = [
        _chosen(name, literal).map(lambda found: Sql(found.lake, UNLIKE) if kind.float else found)
    ]
    if kind.number:
        forms += [_integers(name, literal, kind.type), _integers(name, literal, kind.type)]
    elif kind.float:
        forms += [_floats(name), _floats(name)]
    elif kind.name.startswith("decimal"):
        forms += [_decimals(name), _decimals(name)]
    elif kind.text:
        forms += [_texts(name, column), _texts(name, column)]
    elif kind.name.startswith("timestamp") or kind.name == "date":
        forms += [_times(name, kind.name, literal), _times(name, kind.name, literal)]
    if others:
        other = same(draw(st.sampled_from(others)).sql)
        forms.append(_compared(name, st.just(other)))
    forms.append(_rows(name, literal, spec))
    return draw(st.one_of(forms))


@st.composite
def _compared(draw: DrawFn, value: Sql, literal: SearchStrategy[Sql]) -> Sql:
    operator = draw(st.sampled_from((*COMPARED, "IN", "IS NOT DISTINCT FROM", "IS DISTINCT FROM")))
    if operator == "IN":
        items = draw(st.lists(literal, min_size=1, max_size=6))
        return Sql.of(f"{{}} IN ({', '.join(['{}'] * len(items))})", value, *items)
    return Sql.of(f"({{}} {operator} {{}})", value, draw(literal))


@st.composite
def _chosen(draw: DrawFn, name: Sql, literal: SearchStrategy[Sql]) -> Sql:
    """coalesce, nullif, greatest, least and CASE of any type."""
    forms = ("coalesce({}, {})", "nullif({}, {})", "greatest({}, {})", "least({1}, {0})", "greatest({}, {}, {})",
             "least({}, {})", "CASE WHEN {0} = {1} THEN {0} ELSE {2} END",
             "CASE WHEN {0} > {1} THEN {2} END", "CASE {0} WHEN {1} THEN {2} ELSE {1} END")  # fmt: skip
    form = draw(st.sampled_from(forms))
    value = Sql.of(form, name, draw(literal), draw(literal))
    return draw(_compared(value, literal))


@st.composite
def _integers(draw: DrawFn, name: Sql, literal: SearchStrategy[Sql], type: pa.DataType) -> Sql:
    number = st.sampled_from(_NUMBERS)
    value = name
    for _ in range(draw(st.integers(1, 3))):
        form = draw(st.sampled_from(("({} + N)", "(N + {})", "({} - N)", "(N - {})", "({} * N)", "(- {})", "({} / N)",
                                     "abs({})", "({} % 3)", "CAST({} AS BIGINT)")))  # fmt: skip
        by = draw(number)
        if form == "({} / N)":
            by = "2" if by == "0" else by
            value = Sql(f"({value.lake} / {by})", UNLIKE)
        else:
            value = Sql.of(form.replace("N", by), value)
    if draw(st.integers(0, 4)) == 0:
        value = Sql.of("CAST({} AS DOUBLE)", value)
        literal = st.sampled_from(_FLOATS).map(same)
    elif draw(st.integers(0, 5)) == 0:
        return draw(_compared(Sql.of("CAST({} AS VARCHAR)", name), literal.map(lambda each: Sql.of("'{}'", each))))
    nearby = st.integers(-30, 30).map(lambda each: same(str(each)))
    found = draw(_compared(value, literal | nearby))
    # DuckDB refuses sums that are too large, instead of wrapping around.
    return found if type.bit_width < 32 else Sql(found.lake, UNLIKE)


@st.composite
def _floats(draw: DrawFn, name: Sql) -> Sql:
    number = draw(st.sampled_from(_FLOATS))
    form = draw(st.sampled_from(("({} + N)", "({} - N)", "(N - {})", "({} * N)", "({} / N)", "(- {})", "floor({})",
                                 "ceil({})", "round({})", "trunc({})")))  # fmt: skip
    value = Sql.of(form.replace("N", number), Sql.of("CAST({} AS DOUBLE)", name))
    return Sql(draw(_compared(value, st.sampled_from(_FLOATS).map(same))).lake, UNLIKE)


@st.composite
def _decimals(draw: DrawFn, name: Sql) -> Sql:
    number = f"CAST('{draw(st.sampled_from(('1.5', '-0.25', '3', '10')))}' AS DECIMAL(5, 2))"
    form = draw(st.sampled_from(("({} + N)", "({} - N)", "(N - {})", "({} * N)", "(- {})", "CAST({} AS DOUBLE)",
                                 "CAST({} AS DECIMAL(38, 1))", "CAST({} AS DECIMAL(38, 12))")))  # fmt: skip
    literal = st.integers(-40, 40).map(lambda each: same(f"CAST('{each / 4}' AS DECIMAL(9, 2))"))
    return Sql(draw(_compared(Sql.of(form.replace("N", number), name), literal)).lake, UNLIKE)


@st.composite
def _texts(draw: DrawFn, name: Sql, column: Column) -> Sql:
    def literal(text: str) -> Sql:
        return column.kind.literal(text)

    text: str = draw(values(column))
    length = draw(st.integers(1, 4))
    form = draw(st.sampled_from(("left", "substr", "lower", "upper", "before", "after", "concat")))
    match form:
        case "left" | "substr":
            value = same(f"left({name.lake}, {length})" if form == "left" else f"substr({name.lake}, 1, {length})")
            return draw(_compared(value, st.sampled_from([literal(text[:length]), literal(text[: length + 1])])))
        case "lower" | "upper":
            changed = text.lower() if form == "lower" else text.upper()
            return Sql(draw(_compared(same(f"{form}({name.lake})"), st.just(literal(changed)))).lake, UNLIKE)
        case "concat":
            return draw(
                _compared(same(f"concat({name.lake}, 'x')"), st.sampled_from([literal(text + "x"), same("'x'")]))
            )
    value = same(f"('x' || {name.lake})" if form == "before" else f"({name.lake} || 'x')")
    whole = "x" + text if form == "before" else text + "x"
    return draw(_compared(value, st.sampled_from([literal(whole), literal(text)])))


@st.composite
def _times(draw: DrawFn, name: Sql, kind: str, literal: SearchStrategy[Sql]) -> Sql:
    form = draw(st.sampled_from(("year", "part", "part", "epoch", "date", "interval", "interval", "trunc")))
    years = st.integers(1690, 2260) | st.integers(1968, 2021)
    match form:
        case "year":
            return draw(_compared(same(f"extract(year FROM {name.lake})"), years.map(lambda each: same(str(each)))))
        case "part":
            return draw(_part(name, kind))
        case "epoch":
            value, seconds = f"extract(epoch FROM {name.lake})", st.integers(-(10**6), 10**9)
            return Sql(draw(_compared(same(value), seconds.map(lambda each: same(str(each))))).lake, UNLIKE)
        case "date":
            return Sql(draw(_compared(Sql.of("CAST({} AS DATE)", name), literal)).lake, UNLIKE)
        case "trunc":
            unit = draw(st.sampled_from(("day", "month", "year")))
            return Sql(draw(_compared(Sql.of(f"date_trunc('{unit}', {{}})", name), literal)).lake, UNLIKE)
    sign, interval = draw(st.sampled_from("+-")), draw(st.sampled_from(_INTERVALS))
    return Sql(draw(_compared(Sql.of(f"({{}} {sign} INTERVAL '{interval}')", name), literal)).lake, UNLIKE)


@st.composite
def _part(draw: DrawFn, name: Sql, kind: str) -> Sql:
    """The month or another part of a time, often in a range of years."""
    part, most = draw(st.sampled_from((("month", 13), ("month", 13), ("quarter", 5), ("day", 32), ("dow", 7),
                                       ("hour", 24), ("minute", 60), ("second", 60))))  # fmt: skip
    number = st.integers(0, most).map(lambda each: same(str(each)))
    found = draw(_compared(same(f"extract({part} FROM {name.lake})"), number))
    if draw(st.booleans()):
        first = draw(st.integers(1690, 2250) | st.integers(1968, 2021))
        years = draw(st.sampled_from((f"= {first}", f"BETWEEN {first} AND {first + 3}", f">= {first}")))
        found = Sql.of(f"(extract(year FROM {name.lake}) {years} AND {{}})", found)
    # DuckDB has clocks of its own for zones.
    return found if kind in ("date", "timestamp s", "timestamp ms", "timestamp us") else Sql(found.lake, UNLIKE)


@st.composite
def _rows(draw: DrawFn, name: Sql, literal: SearchStrategy[Sql], spec: TableSpec) -> Sql:
    """`(a, id) IN ((1, 2), …)`."""
    numbers = st.integers(0, 120).map(lambda each: same(str(each)))
    rows = draw(st.lists(st.tuples(literal, numbers), min_size=1, max_size=5))
    marks = ", ".join(["({}, {})"] * len(rows))
    parts: list[Any] = [part for row in rows for part in row]
    return Sql(Sql.of(f'({{}}, "id") IN ({marks})', name, *parts).lake, UNLIKE)
