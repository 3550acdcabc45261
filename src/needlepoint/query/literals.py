"""Literals with a decimal point, such as 8.64: decimals where they meet decimals, floats everywhere else.

DataFusion 55 reads them as floats, and a decimal column is compared with what is left of the float as a decimal:
`amount = 8.64` misses rows that DuckDB, Spark and PostgreSQL find. Its setting `parse_float_as_decimal` makes all of
them decimals, and then float columns are cast to DECIMAL(30, 15), which fails on NaN and cuts small numbers off. So the
plan decides, by its casts of floats to decimals and of decimals to floats:

    every literal a float     has none: done, and the query stays as it is
    every literal a decimal   has none: done
    else                      literals change sides, one list after the other, where that takes a cast away

Numbers in scientific notation are floats, and so are operands of a division, whose result is a float in DuckDB, too.

>>> [each.text for each in literals("SELECT 'a 1.5', x1.y / 2.0 FROM t WHERE d IN (8.64, .5) OR e > 1.0e3")]
['8.64', '.5']
>>> with_decimals("d = 8.64", literals("d = 8.64"))
"d = CAST('8.64' AS DECIMAL(3, 2))"
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import datafusion
import pyarrow as pa

from needlepoint.query.plan_facts import EXPRESSIONS, nodes

MOST_DIGITS = 38
# With it a decimal is compared as a wider one: some functions, such as round, give another type than they say.
WIDE_SCALE = 15
# Rules of DataFusion's optimizer that move casts to the literals, and conditions to where their columns are not known.
IN_THE_WAY = ("simplify_expressions", "push_down_filter")

# What SQL is made of, as far as it takes to tell a number from the inside of something else.
_TOKENS = re.compile(
    r"""
      (?P<text> [eE]'(?:[^'\\]|\\.)*' | '[^']*' | "[^"]*" | `[^`]*` | --[^\n]* | /\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/ )
    | (?P<strange> /\* | \$\w*\$ )
    | (?P<word> [^\W\d]\w* | \$\w+ )
    | (?P<number> (?:\d+\.\d* | \.\d+ | \d+) (?P<exponent>[eE][+-]?\d+)? \w* )
    | (?P<other> \S )
    """,
    re.VERBOSE | re.DOTALL,
)

# The condition of an aggregate is not among its operands: there casts are told by the types of floats as decimals.
_HIDDEN = " FILTER (WHERE "
_CASTS = re.compile(r"CAST\(Float(?:32|64)\(| AS Decimal128\((?:30, 15|14, 7)\)| AS Float64\)")


@dataclass(frozen=True, slots=True)
class Literal:
    """A number with a decimal point and no exponent. Those of one list have the same group."""

    start: int
    end: int
    text: str
    group: int


def literals(query: str) -> list[Literal]:
    """The literals of a query that can be decimals: up to 38 digits, and not beside a division. None of a query whose
    texts may end elsewhere than they seem to: it has nested comments, or texts between dollar signs."""
    if "." not in query:
        return []
    found: list[Literal] = []
    tokens = [each for each in _TOKENS.finditer(query) if not _is_comment(each[0])]
    if any(each["strange"] for each in tokens):
        return []
    group = 0
    for before, each, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        if each["number"] is None or "." not in each[0] or each["exponent"] or not _is_decimal(each[0]):
            group += each[0] != ","
            continue
        if not any(other is not None and other[0] == "/" for other in (before, after)):
            found.append(Literal(each.start(), each.end(), each[0], group))
    return found


def _is_comment(token: str) -> bool:
    return token.startswith("--") or (token.startswith("/*") and len(token) > 2)


def _is_decimal(number: str) -> bool:
    whole, _, fraction = number.partition(".")
    digits = len(whole.lstrip("0")) + len(fraction)
    return (whole + fraction).isdigit() and digits <= MOST_DIGITS


def with_decimals(query: str, chosen: Iterable[Literal], scale: int = 0) -> str:
    """The query in which these literals are decimals, with at least so many digits after the point."""
    pieces: list[str] = []
    position = 0
    for each in chosen:
        whole, _, fraction = each.text.partition(".")
        before = len(whole.lstrip("0"))
        after = max(len(fraction), min(scale, MOST_DIGITS - before))
        pieces += [query[position : each.start], f"CAST('{each.text}' AS DECIMAL({max(before + after, 1)}, {after}))"]
        position = each.end
    return "".join([*pieces, query[position:]])


def resolved(
    query: str, context: datafusion.SessionContext, frame: Callable[[str], datafusion.DataFrame], scale: int = 0
) -> str:
    """The query with the literals that must be decimals, of at least this scale. `frame` plans a query in the context,
    which is without the rules IN_THE_WAY."""
    found = literals(query)

    def mixed(chosen: Sequence[Literal]) -> int:
        return _mixed(context, frame(with_decimals(query, chosen)))

    if not found or not (floats := mixed([])):
        return query
    chosen, left = _better(found, mixed(found), found, mixed)
    if left:
        others, fewer = _better([], floats, found, mixed)
        chosen = others if fewer < left else chosen
    return with_decimals(query, chosen, scale)


def _better(
    chosen: Sequence[Literal], casts: int, found: Sequence[Literal], mixed: Callable[[Sequence[Literal]], int]
) -> tuple[Sequence[Literal], int]:
    """What is left when literals change sides, one list after the other, where that takes casts away."""
    for _, some in itertools.groupby(found, key=lambda each: each.group):
        if not casts:
            break
        group = set(some)
        others = [each for each in found if (each in chosen) != (each in group)]
        fewer = mixed(others)
        if fewer < casts:
            chosen, casts = others, fewer
    return chosen, casts


def _mixed(context: datafusion.SessionContext, frame: datafusion.DataFrame) -> int:
    """How many casts of floats to decimals and of decimals to floats a query has."""
    found = 0
    for plan, node in nodes(frame.optimized_logical_plan()):
        below = plan.inputs()
        for expression in EXPRESSIONS.get(type(node).__name__, lambda _: ())(node):
            for target, operand in _cast_operands(expression):
                found += any(_is_cast_from(operand, each, context, target) for each in (*below, plan))
            if _HIDDEN in (text := expression.canonical_name()):
                found += len(_CASTS.findall(text))
    return found


def _is_cast_from(expression: Any, plan: Any, context: datafusion.SessionContext, target: str) -> bool:
    """Whether an expression over a plan is a float, where the target is a decimal, or the other way round."""
    frame = context.create_dataframe_from_logical_plan(plan)
    try:
        type = frame.select(datafusion.Expr(expression)).schema().field(0).type
    except TypeError:
        raise
    except Exception:  # some of its columns are those of another input
        return False
    return bool(pa.types.is_floating(type) if target == "Decimal" else pa.types.is_decimal(type))


def _cast_operands(expression: Any) -> Iterator[tuple[str, Any]]:
    """The casts to decimals and to floats in an expression, but for those that a division makes."""
    waiting = [expression]
    while waiting:
        each = waiting.pop()
        variant = each.variant_name()
        if variant in ("Column", "Literal"):
            continue
        try:
            operands = each.rex_call_operands()
        except Exception:  # a variant that DataFusion does not take apart
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
