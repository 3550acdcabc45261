"""Random values and conditions over the columns in scope, typed by family, the same in each dialect."""

from __future__ import annotations

import datetime
import decimal
import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.property.kinds import BY_NAME
from tests.property.trees import Node, listed, node, word
from tests.property.whole_lakes import DAY, POOLS

COMPARED = ("=", "=", "=", "<>", "<", "<=", ">", ">=")
SORTED = ("int", "text", "dec", "real", "time", "instant", "date", "bool")
"""Families in which equal values are identical, so that queries can order, group and join by them."""
_UTC = "'Timestamp(Microsecond, Some(\"UTC\"))'"


@dataclass(frozen=True, slots=True)
class Col:
    """A column in scope; `sql` is how the query refers to it."""

    sql: str
    family: str
    name: str
    unique: bool = False

    @property
    def node(self) -> Node:
        return word(self.sql, self.family)


@dataclass(slots=True)
class Maker:
    """Makes the expressions of one query. `subquery` makes a condition with a subquery."""

    chance: Random
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    parameters: bool = True
    subquery: Callable[[Sequence[Col]], Node] | None = None

    def pick(self, *choices: Any) -> Any:
        return self.chance.choice(choices)

    def often(self, share: float) -> bool:
        return self.chance.random() < share

    # Literals

    def value(self, family: str) -> Any:
        return self.chance.choice(POOLS[family])

    def literal(self, family: str, value: Any = None) -> Node:
        value = self.value(family) if value is None else value
        match family:
            case "int":
                return self._maybe_bound("int", str(value), value)
            case "text":
                return self._maybe_bound("text", "'" + value.replace("'", "''") + "'", value)
            case "bool":
                return word(str(value).upper(), "bool")
            case "dec":
                return self._decimal(value)
            case "real" | "zero":
                return self._float(family, value)
            case "date":
                return self._maybe_bound("date", f"DATE '{value.isoformat()}'", value)
            case "instant":
                return self._instant(value)
            case _:
                return self._time(value)

    def _maybe_bound(self, kind: str, text: str, value: Any, share: float = 0.06) -> Node:
        if not self.parameters or not self.often(share):
            return word(text, kind)
        name = f"p{next(self.numbers)}"
        return Node(kind, (f"${name}",) * 3, (), ((name, value),))

    def _decimal(self, value: decimal.Decimal) -> Node:
        form = self.chance.random()
        if form < 0.5:
            return word(f"{value:f}", "dec")
        if form < 0.65:
            return word(f"{value + decimal.Decimal('0.005'):f}", "dec")
        if form < 0.75:
            return word(f"{value:.1f}", "dec")
        return word(f"CAST('{value:f}' AS DECIMAL(12, 2))", "dec")

    def _float(self, family: str, value: float) -> Node:
        exact = f"CAST('{value!r}' AS DOUBLE)"
        if not math.isfinite(value) or self.often(0.5):
            return word(exact, family)
        if value == int(value) and abs(value) < 100 and self.often(0.4):
            return word(str(int(value)), family)
        if self.often(0.3):
            return word(f"{value:e}", family)
        # The usual form: the lake has to recognise that it is compared with a float.
        return Node(family, (f"{value:f}", f"{value:f}", exact))

    def _time(self, value: int) -> Node:
        literal = BY_NAME["timestamp us"].literal(value)
        text = literal.duck.removeprefix("TIMESTAMP ")
        if self.often(0.3):
            return Node("time", (f"TIMESTAMP {text}", f"TIMESTAMP {text}", f"TIMESTAMP {text}"))
        if value % DAY == 0 and self.often(0.3):
            day = datetime.date(1970, 1, 1) + datetime.timedelta(value // DAY)
            return word(f"DATE '{day.isoformat()}'", "time")
        return Node("time", (literal.lake, literal.duck, literal.lake))

    def _instant(self, value: int) -> Node:
        hours = self.pick(0, 0, 9, -3)
        zone = datetime.timezone(datetime.timedelta(hours=hours))
        moment = datetime.datetime.fromtimestamp(value // 10**6, zone) + datetime.timedelta(microseconds=value % 10**6)
        exact = f"arrow_cast({value}, {_UTC})"
        if self.parameters and self.often(0.06):
            return self._maybe_bound("instant", "", moment, share=1)
        if self.often(0.2):
            return Node("instant", (f"to_timestamp_micros({value})", f"make_timestamptz({value})", exact))
        form = self.pick("TIMESTAMPTZ '{}'", "TIMESTAMP WITH TIME ZONE '{}'", "CAST('{}' AS TIMESTAMPTZ)",
                         "'{}'::timestamptz", "'{}'::TIMESTAMP WITH TIME ZONE").format(moment)  # fmt: skip
        return Node("instant", (form, form, exact))

    # Values

    def of(self, columns: Sequence[Col], family: str) -> Node | None:
        """A column of a family, or an expression over one."""
        found = [column for column in columns if column.family == family]
        if not found:
            return None
        chosen = self.chance.choice(found).node
        return self.dressed(family, chosen) if self.often(0.15) else chosen

    def dressed(self, family: str, value: Node) -> Node:
        other = self.literal(family)
        match family:
            case "int":
                form = self.pick("({} + 1)", "({} * 2)", "({} % 3)", "coalesce({}, {})", "CAST({} AS BIGINT)",
                                 "(5 - {})", "({} * -3)", "({} - 2)", "greatest({}, {})", "least({}, {})",
                                 "abs({})", "(-{})", "nullif({}, {})", "CASE WHEN {} > 2 THEN 1 END")  # fmt: skip
            case "text":
                form = self.pick("upper({})", "({} || 'x')", "coalesce({}, {})", "substr({}, 1, 2)",
                                 "lower({})", "nullif({}, {})", "greatest({}, {})", "least({}, {})")  # fmt: skip
            case "dec":
                form = self.pick("({} + 1.05)", "({} * 2)", "({} - 0.001)", "({} * 1.5)", "coalesce({}, {})", "(-{})",
                                 "CASE WHEN {} > 1.05 THEN 2.5 ELSE 8.64 END")  # fmt: skip
            case "time":
                form = self.pick("date_trunc('day', {})", "date_trunc('month', {})", "coalesce({}, {})",
                                 "greatest({}, {})")  # fmt: skip
            case "instant":
                form = self.pick("coalesce({}, {})", "greatest({}, {})", "least({}, {})", "nullif({}, {})",
                                 "({} + INTERVAL '9 hours')", "({} - INTERVAL '1 day')", "CAST({} AS TIMESTAMPTZ)",
                                 "date_trunc('day', CAST({} AS TIMESTAMPTZ))", "{}::timestamptz")  # fmt: skip
                return _in_zone(family, form, value, *[other] * (form.count("{}") - 1))
            case "bool":
                form = self.pick("(NOT {})", "coalesce({}, {})")
            case "real" | "zero" if self.often(0.6):
                return self._float_arithmetic(family, value)
            case _:
                form = "coalesce({}, {})"
        if form.count("{}") == 1:
            return node(family, form, value)
        return node(family, form, value, other)

    def _float_arithmetic(self, family: str, value: Node) -> Node:
        """No difference is zero: docs/reliability.md says what DataFusion does with a zero that a query computes."""
        form = self.pick("({} + 0.5)", "(0.25 * {})", "({} - 7.0)", "coalesce({}, 0.5)", "nullif({}, 1.0)",
                         "CASE WHEN {} > 0.5 THEN 2.5 ELSE 0.25 END")  # fmt: skip
        plain = re.sub(r"\d+\.\d+", lambda found: f"CAST('{found[0]}' AS DOUBLE)", form)
        cast = "CAST(" + form + " AS DOUBLE)" if "CASE" in form else form  # both branches are decimals
        return Node(family, (cast, cast, plain), (value,))

    # Conditions

    def condition(self, columns: Sequence[Col], depth: int = 2) -> Node:
        form = self.chance.random()
        if depth and form < 0.16:
            return node("bool", "({} AND {})", self.condition(columns, depth - 1), self.condition(columns, depth - 1))
        if depth and form < 0.34:
            return node("bool", "({} OR {})", self.condition(columns, depth - 1), self.condition(columns, depth - 1))
        if depth and form < 0.40:
            return node("bool", "(NOT {})", self.condition(columns, depth - 1))
        if depth and form < 0.50 and self.subquery is not None:
            return self.subquery(columns)
        if depth and form < 0.53:
            truth = self.pick(
                "{} IS TRUE", "{} IS NOT FALSE", "coalesce({}, FALSE)", "CASE WHEN {} THEN TRUE ELSE FALSE END"
            )
            return node("bool", f"({truth})", node("bool", "({})", self.leaf(columns)))
        return self.leaf(columns)

    def leaf(self, columns: Sequence[Col]) -> Node:
        column = self.chance.choice(columns)
        family = column.family
        value = self.dressed(family, column.node) if self.often(0.1) else column.node
        if family == "bool" and self.often(0.5):
            return node("bool", self.pick("{}", "(NOT {})", "{} IS TRUE", "{} IS NOT FALSE", "{} IS NOT TRUE"), value)
        forms = [self.compared] * 5 + [self._member, self._null, self._null, self._between]
        forms += [self._like] if family == "text" else []
        forms += [self._special] if family in ("int", "text", "time", "instant", "date") else []
        others = [each for each in columns if each.family == family and each is not column]
        if others and self.often(0.3):
            other = self.chance.choice(others).node
            return node("bool", f"{{}} {self.pick(*COMPARED)} {{}}", value, other)
        return self.chance.choice(forms)(family, value)

    def compared(self, family: str, value: Node, reverse: float = 0.15) -> Node:
        operator = self.pick(*COMPARED, "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
        pair = [value, self.literal(family)]
        if self.often(reverse):
            pair.reverse()
        form = f"({{}} {operator} {{}})"
        shown = form if self.often(0.5) else form[1:-1]
        return Node("bool", (shown, shown, form), tuple(pair))  # plain DataFusion reads `… DISTINCT FROM (y AND z)`

    def _member(self, family: str, value: Node) -> Node:
        items = [self.literal(family) for _ in range(self.chance.choice((1, 2, 3, 4, 6)))]
        operator = self.pick("IN", "IN", "NOT IN")
        if self.often(0.15):
            items.append(word("NULL"))
        return node("bool", f"{{}} {operator} ({{}})", value, listed(items))

    def _null(self, family: str, value: Node) -> Node:
        return node("bool", self.pick("{} IS NULL", "{} IS NOT NULL"), value)

    def _between(self, family: str, value: Node) -> Node:
        if family == "bool":
            return self._null(family, value)
        form = self.pick("{} BETWEEN {} AND {}", "{} NOT BETWEEN {} AND {}")
        return node("bool", form, value, self.literal(family), self.literal(family))

    def _like(self, family: str, value: Node) -> Node:
        text = self.value("text")
        form = self.pick(f"{text}%", f"%{text}", f"%{text[1:]}%", f"_{text[1:]}", f"{text[:3]}%{text[-1:]}")
        pattern = "'" + form.replace("'", "''") + "'"
        return node("bool", f"{{}} {self.pick('LIKE', 'LIKE', 'NOT LIKE')} {pattern}", value)

    def special(self, column: Col) -> Node | None:
        """A condition on a computed value of a column."""
        return (
            self._special(column.family, column.node)
            if column.family in ("int", "text", "time", "instant", "date")
            else None
        )

    def _special(self, family: str, value: Node) -> Node:
        if family == "int":
            form = self.pick("{} % 2 = 1", "CAST({} AS VARCHAR) = '3'", "CAST({} AS DOUBLE) < CAST('2.5' AS DOUBLE)",
                             "{} + 1 > 3", "CASE WHEN {} = 1 THEN TRUE ELSE FALSE END", "{} < 2.5", "{} = 2.0",
                             "{} + 0.5 > 2", "{} * 1.5 <= 4.5", "{} IN (1.0, 2.5, 3)", "{} * 2 IN (2, 4, 6, 8)",
                             "10 - {} > 7", "CASE WHEN {} = 1 THEN 1 ELSE 0 END > 0", "({} = 2) IS NOT FALSE",
                             "({} > 2) IS NOT TRUE", "coalesce({}, 3) = 3", "abs({}) <= 1", "greatest({}, 3) > 4",
                             "least({}, 4) = 2", "greatest({}, 2) IN (2, 5, 7, 8)",
                             "least({}, 3, NULL) < 2")  # fmt: skip
        elif family == "date":
            form = self.pick("{} > '2024-01-02'", "{} >= TIMESTAMP '2024-01-02 12:00:00'", "extract(day FROM {}) = 2",
                             "extract(year FROM {}) IN (2020, 2021, 2022, 2024)",
                             "{} + INTERVAL '1 day' > DATE '2024-01-02'", "extract(month FROM {}) = 12",
                             "extract(quarter FROM {}) IN (1, 2)", "extract(dow FROM {}) > 2",
                             "date_part('day', {}) <= 2", "greatest({}, DATE '2024-01-02') = DATE '2024-01-03'",
                             "CAST({} AS VARCHAR) = '2024-01-02'")  # fmt: skip
        elif family == "text":
            form = self.pick("length({}) > 2", "upper({}) = 'YES'", "starts_with({}, 'com')", "{} || 'x' = 'ax'",
                             "lower({}) = 'yes'", "left({}, 1) > 'b'", "substr({}, 1, 2) <= 'co'",
                             "left({}, 1) IN ('a', 'y')")  # fmt: skip
        elif family == "instant":
            form = self.pick("CAST(CAST({} AS TIMESTAMPTZ) AS DATE) > DATE '2023-11-14'", "{} < now()",
                             "{} > now() - INTERVAL '1 day'", "{} < current_timestamp", "now() > {}::timestamptz",
                             "extract(hour FROM CAST({} AS TIMESTAMPTZ)) IN (0, 12)",
                             "date_trunc('day', {}::timestamptz) = TIMESTAMPTZ '2023-11-15 00:00:00Z'",
                             "{} BETWEEN TIMESTAMPTZ '2023-11-14 09:00:00+09:00' AND now()")  # fmt: skip
            return _in_zone("bool", form, value)
        else:
            form = self.pick("CAST({} AS DATE) > DATE '2023-11-14'", "{} >= '2023-11-15'",
                             "date_trunc('day', {}) = TIMESTAMP '2023-11-15 00:00:00'",
                             "extract(year FROM {}) = 2024", "extract(month FROM {}) = 12",
                             "(extract(year FROM {0}) = 2023 AND extract(month FROM {0}) > 11)",
                             "(extract(year FROM {0}) < 2025 AND {0} > '2023-01-01' AND extract(day FROM {0}) = 15)",
                             "extract(hour FROM {}) IN (0, 12)", "extract(second FROM {}) <> 0")  # fmt: skip
        return node("bool", form, value)


def _in_zone(kind: str, form: str, *parts: Node) -> Node:
    """An expression over instants, which have no zone in plain DataFusion."""
    plain = re.sub(r"CAST\(({}) AS TIMESTAMPTZ\)|({})::timestamptz", f"arrow_cast({{}}, {_UTC})", form)
    plain = re.sub(r"TIMESTAMPTZ '[^']*'|now\(\)|current_timestamp", rf"arrow_cast(\g<0>, {_UTC})", plain)
    return Node(kind, (form, form, plain), parts)
