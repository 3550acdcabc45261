"""Literals with a decimal point, such as 8.64: decimals where they meet decimals, floats everywhere else.

DataFusion 55 parses them as floats and casts the float to compare it with a decimal column: `amount = 8.64` misses rows
that DuckDB, Spark and PostgreSQL find. The setting `parse_float_as_decimal` makes all of them decimals. Float columns
are then cast to DECIMAL(30, 15), which fails on NaN and truncates small numbers. So the plan decides, by its casts
between floats and decimals:

    every literal a float     no such cast: the query stays as it is
    every literal a decimal   no such cast: done
    else                      groups of literals switch type where that removes a cast

Numbers in scientific notation are floats. So are operands of a division, whose result is a float in DuckDB too.

>>> [each.text for each in literals("SELECT 'a 1.5', x1.y / 2.0 FROM t WHERE d IN (8.64, .5) OR e > 1.0e3")]
['8.64', '.5']
>>> with_decimals("d = 8.64", literals("d = 8.64"))
"d = CAST('8.64' AS DECIMAL(3, 2))"
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import datafusion
import pyarrow as pa

from needlepoint.query.sql.plan_nodes import EXPRESSIONS, nodes
from needlepoint.query.sql.tokens import tokens

MOST_DIGITS = 38
# The scale of decimal literals in a retry: some functions, such as round, return another type than they declare.
WIDE_SCALE = 15
# Optimizer rules that move casts to the literals, that move conditions to nodes where the types of columns are unknown,
# or that remove parts without rows, of which the plan that runs evaluates the constants before.
IN_THE_WAY = (
    "simplify_expressions",
    "push_down_filter",
    "eliminate_filter",
    "eliminate_join",
    "eliminate_limit",
    "propagate_empty_relation",
)

# DataFusion does not list the filter of an aggregate or the parts of a window as operands: search their text.
_PARTS = re.compile(
    r"""(?P<cast>\bCAST\() | (?P<literal>Decimal|Float)\d+\( | (?P<open>\w*\() | (?P<close>\))
    | [ ]AS[ ](?P<target>\w+|"(?:[^"]|"")*")(?:\([^()]*\))? | (?P<when>\bWHEN\b) | (?P<then>\bTHEN\b)
    | (?:\w+|"(?:[^"]|"")*")\. | "(?P<quoted>(?:[^"]|"")*)" | (?P<name>\w+)""",
    re.VERBOSE,
)
_OPERATORS = {"IN", "NOT", "BETWEEN", "AND", "OR", "IS", "DISTINCT", "FROM", "THEN", "ELSE", "WHEN"}
_HIDING = (" FILTER (WHERE ", " BETWEEN UNBOUNDED PRECEDING ")
# At most this many groups of literals are tried one by one.
MOST_GROUPS = 32

Types = Mapping[str, pa.DataType]


@dataclass(frozen=True, slots=True)
class Literal:
    """A number with a decimal point and no exponent, or a float parameter. The values of one list, the results of one
    CASE, and literals compared with the same column by the same operator share a group."""

    start: int
    end: int
    text: str
    group: tuple[str, ...]


def literals(query: str, parameters: Mapping[str, Any] | None = None) -> list[Literal]:
    """The literals of a query that can be decimals: up to 38 digits, not next to a division."""
    given = {f"${name}": text for name, value in (parameters or {}).items() if (text := _float_text(value))}
    if "." not in query and not given:
        return []
    found: list[Literal] = []
    parts = tokens(query)
    words = [each[0] for each in parts]
    cases = _cases(words)
    for place, (each, word) in enumerate(zip(parts, words, strict=True)):
        number = given.get(word) or (word if each["number"] and "." in word and not each["exponent"] else "")
        if _is_decimal(number.removeprefix("-")) and "/" not in words[max(place - 1, 0) : place + 2]:
            found.append(Literal(each.start(), each.end(), number, cases.get(place) or _group(words, place)))
    return found


def _cases(words: Sequence[str]) -> dict[int, tuple[str, ...]]:
    """The literals that are results of a CASE. All results of one CASE have one type, so they share a group.

    >>> _cases("CASE WHEN d > 1.05 THEN 2.5 ELSE - 8.64 END".split())
    {6: ('case', '0'), 9: ('case', '0')}
    """
    found: dict[int, tuple[str, ...]] = {}
    open_cases: list[int] = []
    for place, word in enumerate(map(str.upper, words)):
        if word == "CASE":
            open_cases.append(place)
        elif word == "END" and open_cases:
            open_cases.pop()
        elif word in ("THEN", "ELSE") and open_cases:
            value = place + 1 + (words[place + 1 : place + 2] == ["-"])
            if words[value + 1 : value + 2] and words[value + 1].upper() in ("WHEN", "ELSE", "END"):
                found[value] = ("case", str(open_cases[-1]))
    return found


def _float_text(value: Any) -> str:
    """The digits of a finite float, as Python prints it, if it has no exponent."""
    plain = value.as_py() if isinstance(value, pa.Scalar) else value
    text = repr(plain) if isinstance(plain, float) else ""
    return text if _is_decimal(text.removeprefix("-")) else ""


def _group(words: Sequence[str], place: int) -> tuple[str, ...]:
    """The column and operator before a literal, or before the list or BETWEEN that it is in.

    >>> _group("t . d IN ( 0.5 , 0.7".split(), 7)
    ('t', '.', 'd', 'in', '(')
    >>> _group("coalesce ( t . d , 0.7".split(), 6)
    ('t', '.', 'd', ',')
    """
    while place > 1 and _continues(words[place - 2], words[place - 1]):
        place -= 1 if words[place - 1] == "-" else 2
    start = place - 1
    while start > max(place - 6, 0) and (not words[start][0].isalpha() or words[start].upper() in _OPERATORS):
        start -= 1
    if start > 1 and words[start - 1] == ".":
        start -= 2
    return tuple(word.lower() for word in words[max(start, 0) : place])


def _continues(before: str, last: str) -> bool:
    """Whether a list or a BETWEEN continues after these words."""
    return last == "-" or (last.upper() in (",", "AND") and _is_value(before))


def _is_value(word: str) -> bool:
    return word[:1].isdigit() or word[:1] in ".$"


def _is_decimal(number: str) -> bool:
    whole, _, fraction = number.partition(".")
    digits = len(whole.lstrip("0")) + len(fraction)
    return (whole + fraction).isdigit() and digits <= MOST_DIGITS


def with_decimals(query: str, chosen: Iterable[Literal], scale: int = 0) -> str:
    """The query with these literals as decimals of at least this scale."""
    pieces: list[str] = []
    position = 0
    for each in chosen:
        whole, _, fraction = each.text.removeprefix("-").partition(".")
        before = len(whole.lstrip("0"))
        after = max(len(fraction), min(scale, MOST_DIGITS - before))
        pieces += [query[position : each.start], f"CAST('{each.text}' AS DECIMAL({max(before + after, 1)}, {after}))"]
        position = each.end
    return "".join([*pieces, query[position:]])


def resolve_literals(
    query: str,
    context: datafusion.SessionContext,
    frame: Callable[[str], datafusion.DataFrame],
    *,
    frame_as_run: Callable[[str], datafusion.DataFrame],
    parameters: Mapping[str, Any] | None = None,
    types: Types,
    scale: int = 0,
) -> str:
    """The query with the necessary decimal literals, of at least this scale. `frame` plans a query in the context,
    which runs without the rules IN_THE_WAY, and `frame_as_run` with them. `types` has the types of all columns, by
    name."""
    found = literals(query, parameters)

    def count_casts(chosen: Sequence[Literal]) -> float:
        try:
            return _count_mixed_casts(context, frame(with_decimals(query, chosen)), types)
        except Exception:  # GROUP BY has the literal in one type, SELECT in the other
            return math.inf

    if not found or not (floats := count_casts([])):
        return query
    decimals = count_casts(found)
    if floats == decimals == math.inf:
        return query  # it is wrong for another reason, which the run reports

    def has_casts_as_run(query: str) -> bool:
        """Whether the plan that runs has such casts: a comparison may be missing in the other one. It cannot even be
        planned where a decimal meets an infinite literal."""
        try:
            return bool(_count_mixed_casts(context, frame_as_run(query), types))
        except Exception:
            return True

    chosen, left = _reduce_casts(found, decimals, found, count_casts)
    if left or has_casts_as_run(with_decimals(query, chosen, scale)):
        others, fewer = _reduce_casts([], floats, found, count_casts)
        chosen = others if fewer <= left else chosen
    return with_decimals(query, chosen, scale)


def _reduce_casts(
    chosen: Sequence[Literal], casts: float, found: Sequence[Literal], count_casts: Callable[[Sequence[Literal]], float]
) -> tuple[Sequence[Literal], float]:
    """Switch the type of one group after the other where that removes casts; the literals and the casts that remain."""
    groups = dict.fromkeys(each.group for each in found)
    for group in itertools.islice(groups, MOST_GROUPS):
        if not casts:
            break
        kept = set(chosen)
        others = [each for each in found if (each in kept) != (each.group == group)]
        fewer = count_casts(others)
        if fewer < casts:
            chosen, casts = others, fewer
    return chosen, casts


def _count_mixed_casts(context: datafusion.SessionContext, frame: datafusion.DataFrame, types: Types) -> int:
    """The number of casts between floats and decimals in a query."""
    found = 0
    for plan, node in nodes(frame.optimized_logical_plan()):
        below = plan.inputs()
        expressions = list(EXPRESSIONS.get(type(node).__name__, lambda _: ())(node))
        for expression in expressions:
            for target, operand in _cast_operands(expression):
                found += any(_is_cast_from(operand, each, context, target) for each in (*below, plan))
        texts = [expression.canonical_name() for expression in expressions]
        hiding = [text for text in texts if any(sign in text for sign in _HIDING)]
        if hiding:
            named = {**types, **_types_of(below, context)}
            found += sum(_count_mixed_casts_in_text(text, named) for text in hiding)
    return found


def _types_of(plans: Iterable[Any], context: datafusion.SessionContext) -> Types:
    """The types of the columns of these plans, by name: a subquery may have renamed those of the tables."""
    frames = [context.create_dataframe_from_logical_plan(plan) for plan in plans]
    return {field.name: field.type for frame in frames for field in frame.schema()}


@dataclass(slots=True)
class _Parenthesis:
    """What is open in the text of an expression: the kinds of numbers in it, and the target if it is a cast."""

    is_cast: bool
    kinds: set[str]
    target: str = ""
    is_in_condition: bool = False  # of a CASE, which does not decide its type


def _count_mixed_casts_in_text(text: str, types: Types) -> int:
    """The casts to decimals of what has a float in it, and the reverse.

    >>> types = {"r": pa.float32(), "d": pa.decimal128(9, 2), "n": pa.int64()}
    >>> _count_mixed_casts_in_text("CAST(t.d AS Float64) < Float64(1.5) AND CAST(d AS Decimal128(12, 3)) > d", types)
    1
    >>> _count_mixed_casts_in_text("CAST(coalesce(CAST(t.r AS Float64), Float64(1)) AS Decimal128(30, 15))", types)
    1

    Names of tables, what is cast to another type, and conditions do not count:

    >>> _count_mixed_casts_in_text('CAST(d.n AS Float64) + CAST("d"."n" AS Float64) AS d', types)
    0
    >>> _count_mixed_casts_in_text("CAST(CAST(d AS Int64) AS Float64)", types)
    0
    >>> _count_mixed_casts_in_text("CAST(CASE WHEN (d > n) THEN n ELSE Int64(0) END AS Float64)", types)
    0
    """
    found = 0
    waiting = [_Parenthesis(False, set())]
    for part in _PARTS.finditer(text):
        current = waiting[-1]
        if part["cast"] or part["open"] or part["literal"]:
            waiting.append(_Parenthesis(bool(part["cast"]), {part["literal"]} if part["literal"] else set()))
        elif part["target"]:
            current.target = next((kind for kind in ("Decimal", "Float") if part["target"].startswith(kind)), "other")
        elif part["close"] and len(waiting) > 1:
            waiting.pop()
            kinds = current.kinds
            if current.is_cast:
                found += current.target != "other" and bool(kinds - {current.target})
                kinds = {current.target}
            if not waiting[-1].is_in_condition:
                waiting[-1].kinds |= kinds - {"other"}
        elif part["when"] or part["then"]:
            current.is_in_condition = bool(part["when"])
        elif not current.is_in_condition:
            type = types.get(part["quoted"] or part["name"] or "", pa.null())
            current.kinds |= {"Float"} if pa.types.is_floating(type) else set()
            current.kinds |= {"Decimal"} if pa.types.is_decimal(type) else set()
    return found


def _mixes_types(type: pa.DataType, target: str) -> bool:
    """Whether a cast to the target turns a float into a decimal, or a decimal into a float."""
    return bool(pa.types.is_floating(type) if target == "Decimal" else pa.types.is_decimal(type))


def _is_cast_from(expression: Any, plan: Any, context: datafusion.SessionContext, target: str) -> bool:
    """Whether an expression over a plan is a float and the target a decimal, or the reverse."""
    frame = context.create_dataframe_from_logical_plan(plan)
    try:
        type = frame.select(datafusion.Expr(expression)).schema().field(0).type
    except TypeError:  # a bug of ours
        raise
    except Exception:  # some of its columns belong to another input
        return False
    return _mixes_types(type, target)


def _cast_operands(expression: Any) -> Iterator[tuple[str, Any]]:
    """The casts to decimals and to floats in an expression, except those of a division."""
    waiting = [expression]
    while waiting:
        each = waiting.pop()
        variant = each.variant_name()
        if variant in ("Column", "Literal"):
            continue
        try:
            operands = each.rex_call_operands()
        except Exception:  # DataFusion does not expose the operands of this variant
            continue
        if variant == "Cast":
            target = re.match(r"Decimal|Float", each.canonical_name().rpartition(" AS ")[2])
            if target is not None:
                yield target[0], operands[0]
        elif variant == "BinaryExpr" and each.rex_call_operator() == "/":
            operands = [below for operand in operands for below in _under_cast(operand)]
        waiting += operands


def _under_cast(expression: Any) -> list[Any]:
    operands: list[Any] = expression.rex_call_operands() if expression.variant_name() == "Cast" else [expression]
    return operands
