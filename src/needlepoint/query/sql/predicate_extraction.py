"""From a DataFusion plan to a request for each table: columns and a predicate.

The SQL is planned against tables without files. The optimizer pushes every predicate it can into the table scans: on
both sides of joins, into CTEs, views and parts of a UNION. This module reads them there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from needlepoint.indexes.text import parse
from needlepoint.predicate import (
    And,
    Between,
    Compare,
    Constant,
    In,
    IsNotNull,
    IsNull,
    Like,
    Not,
    Or,
    Ordinal,
    Predicate,
    StartsWith,
    TextMatch,
    Unknown,
    conjuncts,
)
from needlepoint.query.sql import monotone, patterns
from needlepoint.query.sql.plan_facts import parts_of
from needlepoint.tables import ordinal

# A predicate is not converted beyond this depth: code that walks the tree may be recursive.
DEEPEST = 50
# An OR with more conditions than this is reduced to the values that all of them require of one column.
MOST_ALTERNATIVES = 64

MOST_DIGITS_OF_INT64 = 18

SCAN_LINE = re.compile(r"^ *TableScan: (?:\w+\.)*(\w+)", re.MULTILINE)
_SWAPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_PREFIX = re.compile(r"[^%_\\]+%", re.DOTALL)
_PATTERNED = {"~", "~*", "~~", "~~*"}
# Expressions that a predicate can equal, if their operands are columns and literals.
_EXACT = {"BinaryExpr", "InList", "IsNull", "IsNotNull"}
_OPERATORS = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


@dataclass(frozen=True, slots=True)
class Request:
    """What one query needs of one table, over all its scans of the table.

    unprunable   columns that DataFusion must not prune by: wide decimals, and floats whose predicates depend on the
                 order of NaN or on the sign of zero
    zeros        columns in which DataFusion would distinguish -0.0 from 0.0, with the zero it looks for
    nested       whether a predicate is on a list, struct or map
    together     columns that share a condition with another column
    """

    columns: frozenset[str]
    predicate: Predicate
    unprunable: frozenset[str] = frozenset()
    nested: bool = False
    zeros: Mapping[str, float] = field(default_factory=dict)
    together: frozenset[str] = frozenset()

    def hiding(self, columns: Iterable[str], zeros: Mapping[str, float]) -> Request:
        """The request, with these columns unprunable and these zeros."""
        known = {name: zero for name, zero in zeros.items() if name in self.columns}
        return replace(self, unprunable=self.unprunable.union(columns, known), zeros=known)


Types = Mapping[str, pa.DataType]


def requests(plan: Any, drawn_plan: str, tables: Mapping[str, Types]) -> dict[str, Request]:
    """The request for each table, given the types of its columns and the text of the plan.

    A table with a scan that the plan does not show is requested whole.
    """
    scans: dict[str, list[Request]] = {}
    for scan in _scans(plan):
        name = scan.table_name()
        if name in tables:
            scans.setdefault(name, []).append(_request(scan, tables[name]))
    # Uncorrelated scalar subqueries stay inside expressions, and DataFusion 55 does not expose their plans. But every
    # scan is a line of the plan's text, theirs too. (A literal with such a line in it only adds a needless request.)
    drawn = Counter(SCAN_LINE.findall(drawn_plan))
    return {
        name: _either(scans[name]) if len(scans.get(name, ())) == drawn[name] else everything(types)
        for name, types in tables.items()
        if drawn[name]
    }


def everything(columns: Iterable[str]) -> Request:
    """All columns of all rows, in any condition."""
    names = frozenset(columns)
    return Request(names, Constant(True), together=names)


def _either(found: list[Request]) -> Request:
    if len(found) == 1:
        return found[0]
    columns = frozenset[str]().union(*(request.columns for request in found))
    unprunable = frozenset[str]().union(*(request.unprunable for request in found))
    nested = any(request.nested for request in found)
    together = frozenset[str]().union(*(request.together for request in found))
    return Request(columns, Or(tuple(request.predicate for request in found)), unprunable, nested, together=together)


def _scans(plan: Any) -> Iterator[Any]:
    waiting = [plan]
    while waiting:
        found = waiting.pop()
        node = found.to_variant()
        if type(node).__name__ == "TableScan":
            yield node
        waiting += reversed(found.inputs())


def _request(scan: Any, types: Types) -> Request:
    columns = frozenset(name for _, name in scan.projection() if name in types)
    # The filters of a scan can name columns beyond the projection.
    convert = _Converter(types)
    predicate = _with_float_ranges(And(tuple(convert(expression) for expression in scan.filters())), types)
    nested = any(pa.types.is_nested(types[name]) for name in convert.columns)
    return Request(
        columns | convert.columns, predicate, convert.unprunable, nested, together=_together(scan.filters(), types)
    )


def _together(conditions: Iterable[Any], types: Types) -> frozenset[str]:
    found: set[str] = set()
    for condition in conditions:
        names = {part.to_variant().name() for part in parts_of(condition) if part.variant_name() == "Column"}
        found |= names if len(names) > 1 else set()
    return frozenset(found) & types.keys()


def _with_float_ranges(predicate: Predicate, types: Types) -> Predicate:
    """Bounds exclude NaN, which may sort on either side of a number, but not between two numbers. So where an AND
    bounds a float column on both sides, add that range. An end that is NaN bounds nothing: `f BETWEEN 5 AND 'NaN'`
    includes NaN."""
    match predicate:
        case Or(children):
            return Or(tuple(_with_float_ranges(child, types) for child in children))
        case And(children):
            changed = tuple(_with_float_ranges(child, types) for child in children)
            lows, highs = dict[str, Ordinal](), dict[str, Ordinal]()
            for child in conjuncts(predicate):
                if not isinstance(child, Compare) or not pa.types.is_floating(types[child.column]):
                    continue
                if child.value != child.value:  # NaN
                    continue
                if child.operator in (">", ">="):
                    lows[child.column] = max(child.value, lows.get(child.column, child.value))
                elif child.operator in ("<", "<="):
                    highs[child.column] = min(child.value, highs.get(child.column, child.value))
            both = [Between(name, lows[name], highs[name]) for name in lows.keys() & highs.keys()]
            return And((*changed, *both))
    return predicate


def exact_predicate(expression: Any, types: Types) -> Predicate | None:
    """The predicate that is TRUE for exactly those rows for which an expression is. None where the tree only says which
    rows can match, and for floats, whose NaN and zeros engines compare differently."""
    waiting = [expression]
    while waiting:
        part = waiting.pop()
        operands = part.rex_call_operands() if part.variant_name() in _EXACT else []
        match part.variant_name():
            case "BinaryExpr" if part.rex_call_operator() in ("AND", "OR"):
                waiting += operands
                continue
            case "BinaryExpr" if part.rex_call_operator() in _OPERATORS:
                first, *others = sorted(operands, key=lambda each: each.variant_name())  # a column before a literal
            case "InList" if not part.to_variant().negated():
                first, *others = operands
            case "IsNull" | "IsNotNull":
                first, *others = operands
            case "Column":
                first, others = part, []
            case _:
                return None
        type = types.get(column_name(first) or "")
        if type is None or pa.types.is_floating(type) or pa.types.is_nested(type):
            return None
        if any(other.variant_name() != "Literal" for other in others):
            return None
    found = _Converter(types)(expression)
    return found if _is_known(found) else None


def _is_known(predicate: Predicate) -> bool:
    if isinstance(predicate, And | Or):
        return all(map(_is_known, predicate.children))
    return not isinstance(predicate, Unknown)


class _Converter:
    """Converts expressions. An unknown expression becomes Unknown; only an invalid text query is an error."""

    def __init__(self, types: Types) -> None:
        self._types = types
        self._mentions = Counter[str]()
        self._harmless = Counter[str]()

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(self._mentions)

    @property
    def unprunable(self) -> frozenset[str]:
        """Columns with misleading statistics, except float columns that are only compared for equality with NULL or a
        number other than zero. A bloom filter distinguishes -0.0 from 0.0."""
        return frozenset(
            name
            for name, mentions in self._mentions.items()
            if misleads(self._types[name])
            and (mentions > self._harmless[name] or pa.types.is_decimal(self._types[name]))
        )

    def __call__(self, expression: Any) -> Predicate:
        self._note_columns(expression)
        return self._convert(expression, 0)

    def _note_columns(self, expression: Any) -> None:
        waiting = [expression]
        while waiting:
            found = waiting.pop()
            variant = found.variant_name()
            if variant == "Column":
                name = found.to_variant().name()
                if name in self._types:
                    self._mentions[name] += 1
            elif variant != "Literal":
                try:
                    waiting += found.rex_call_operands()
                except Exception:
                    self._mentions.update(list(self._types))  # it may name any column
                    continue

    def _convert(self, expression: Any, depth: int) -> Predicate:
        if depth > DEEPEST:
            return Unknown()
        match expression.variant_name():
            case "BinaryExpr":
                return self._binary(expression, depth)
            case "InList":
                return self._in_list(expression)
            case "Like":
                return self._like(expression)
            case "ScalarFunction":
                return self._text_function(expression)
            case "Not":
                harmless = self._harmless.copy()
                child = self._convert(expression.rex_call_operands()[0], depth + 1)
                self._harmless = harmless  # NOT f = 1 is TRUE for NaN
                return Not(child)
            case "IsNull" | "IsNotNull" as kind:
                column = self._column(expression.rex_call_operands()[0])
                if column is not None:
                    self._harmless[column] += 1
                    return IsNull(column) if kind == "IsNull" else IsNotNull(column)
            case "IsTrue":
                return _or_false(self._convert(expression.rex_call_operands()[0], depth + 1))
            case "Column":
                column = self._column(expression)
                if column is not None and pa.types.is_boolean(self._types[column]):
                    return Compare(column, "=", 1)
            case "Literal":
                value = expression.python_value()
                if pa.types.is_boolean(value.type):
                    return Constant(value.as_py() is True)  # NULL is not TRUE
        return Unknown()

    def _column(self, expression: Any) -> str | None:
        name = column_name(expression)
        return name if name in self._types else None

    def _binary(self, expression: Any, depth: int) -> Predicate:
        operator = expression.rex_call_operator()
        if operator in ("AND", "OR"):
            children = [self._convert(term, depth + 1) for term in _terms(expression, operator)]
            return And(tuple(children)) if operator == "AND" else any_of(children)
        left, right = expression.rex_call_operands()
        if operator in _PATTERNED:
            return self._patterned(left, operator, right)
        if left.variant_name() == "Literal":
            left, right, operator = right, left, _SWAPPED.get(operator, "")
        if right.variant_name() != "Literal":
            return Unknown()
        scalar = right.python_value()
        if operator == "IS NOT DISTINCT FROM":
            is_true = pa.types.is_boolean(scalar.type) and scalar.as_py() is True  # the optimizer's form of CASE
            return _or_false(self._convert(left, depth + 1) if is_true else self._compared(left, "=", scalar))
        return self._compared(left, operator, scalar)

    def _compared(self, left: Any, operator: str, scalar: Any) -> Predicate:
        if operator not in _OPERATORS:
            return Unknown()
        column, value = self._comparable(left, scalar.type), ordinal(scalar)
        if value is None:
            return Unknown()
        if column is None:
            return self._function(left, scalar.type, _OPERATORS[operator], (value,))
        self._harmless[column] += operator == "=" and _is_plain(value)
        return Compare(column, _OPERATORS[operator], value)

    def _comparable(self, left: Any, literal: pa.DataType) -> str | None:
        """The column whose ordinals compare with those of a literal of this type."""
        if left.variant_name() == "Cast":
            # Both sides of a comparison have one type, so the column is cast to the literal's.
            column = self._column(left.rex_call_operands()[0])
            return column if column is not None and _cast_keeps_ordinals(self._types[column], literal) else None
        column = self._column(left)
        return column if column is not None and _same_type(self._types[column], literal) else None

    def _function(self, left: Any, literal: pa.DataType, operator: str, values: tuple[Ordinal, ...]) -> Predicate:
        """Comparisons of a function that keeps the order of a column, or of a prefix of the column."""
        variant = left.variant_name()
        if variant not in ("Cast", "ScalarFunction"):
            return Unknown()
        operands = left.rex_call_operands()
        name = "cast" if variant == "Cast" else left.rex_call_operator()
        if name == "strpos":
            return self._found_at(operands, operator, values)
        fixed = [_plain_literal(each) for each in operands]
        place = 1 if name == "date_trunc" else 0
        column = self._column(operands[place]) if len(operands) > place else None
        if column is None or pa.types.is_floating(self._types[column]):
            return Unknown()
        type, interval = self._types[column], None
        if name in ("left", "substr") and operator == "=" and pa.types.is_string(type):
            # Both return a prefix of the text: substr if it starts at the first character.
            if isinstance(values[0], bytes) and values[0] and (name == "left" or fixed[1] == 1):
                return And((StartsWith(column, values[0]), Unknown()))
        elif name == "cast":
            interval = monotone.of_cast(type, literal)
        elif name == "date_trunc" and isinstance(fixed[0], str) and _same_type(type, literal):
            interval = monotone.of_truncation(fixed[0], type)
        if interval is None:
            return Unknown()
        asked = monotone.Preimage(column, interval)
        return asked.compare(operator, values[0]) if len(values) == 1 else asked.one_of(values)

    def _found_at(self, operands: list[Any], operator: str, places: tuple[Ordinal, ...]) -> Predicate:
        """Comparisons of the position of one text in another: from 1; 0 if it is absent."""
        column, text = self._text_column(operands[0]), _text(operands[1])
        if column is None or not text:
            return Unknown()
        lowest = {">": 0, ">=": 1, "<>": 0, "=": 1, "IN": 1}.get(operator)
        exact = operator != "<>" or places == (0,)
        if lowest is None or not exact or any(isinstance(place, bytes) or place < lowest for place in places):
            return Unknown()
        return _holds(column, patterns.of_text(text, starts=operator == "=" and places == (1,)))

    def _in_list(self, expression: Any) -> Predicate:
        left, *items = expression.rex_call_operands()
        if any(item.variant_name() != "Literal" for item in items):
            return Unknown()
        # x IN (1, NULL) is TRUE only where x = 1; x NOT IN (1, NULL) is never TRUE, which Not treats as maybe.
        scalars = [scalar for scalar in (item.python_value() for item in items) if scalar.is_valid]
        values = {value for value in map(ordinal, scalars) if value is not None}
        if not values or any(scalar.type != scalars[0].type for scalar in scalars):
            return Unknown()
        column, negated = self._comparable(left, scalars[0].type), expression.to_variant().negated()
        if column is None:
            several = tuple(sorted(values))
            return Unknown() if negated or len(several) < 2 else self._function(left, scalars[0].type, "IN", several)
        found = In(column, tuple(sorted(values)))
        if negated:
            return Not(found)
        self._harmless[column] += all(map(_is_plain, values))
        return found

    def _like(self, expression: Any) -> Predicate:
        left, right = expression.rex_call_operands()
        escape = expression.to_variant().escape_char()
        if escape not in (None, "\\"):  # DataFusion 55 rejects it
            return Unknown()
        return self._patterned(left, expression.rex_call_operator(), right)

    def _patterned(self, left: Any, operator: str, right: Any) -> Predicate:
        """A text matched with a pattern, by LIKE or a regular expression."""
        column, pattern = self._text_column(left), _text(right)
        if column is None or pattern is None:
            return Unknown()
        match operator:
            case "like" | "~~":
                return _holds(column, patterns.of_like(pattern))
            case "ilike" | "~~*":
                return _holds(column, patterns.of_like(pattern, fold=True))
            case "not like" if _PREFIX.fullmatch(pattern):
                return Not(StartsWith(column, pattern[:-1].encode()))
            case "~" | "~*":
                return _holds(column, patterns.of_regex(pattern, "i" if operator == "~*" else ""))
        return Unknown()

    def _text_function(self, expression: Any) -> Predicate:
        """Boolean functions of texts."""
        name, operands = expression.rex_call_operator(), expression.rex_call_operands()
        column, texts = self._text_column(operands[0]) if operands else None, list(map(_text, operands[1:]))
        if column is None or not texts or None in texts:
            return Unknown()
        asked, *flags = (text or "" for text in texts)
        match name:
            case "text_match":
                parse(asked)  # reports an invalid query before anything is read
                return TextMatch(column, asked)
            case "contains":
                return _holds(column, patterns.of_text(asked))
            case "starts_with":
                return _holds(column, patterns.of_text(asked, starts=True))
            case "ends_with":
                return _holds(column, patterns.of_text(asked, ends=True))
            case "regexp_like":
                return _holds(column, patterns.of_regex(asked, "".join(flags)))
        return Unknown()

    def _text_column(self, expression: Any) -> str | None:
        column = self._column(expression)
        return column if column is not None and pa.types.is_string(self._types[column]) else None


def misleads(type: pa.DataType) -> bool:
    """Whether DataFusion 55 loses rows by the statistics of a column: those of floats exclude NaN, and old writers
    ordered decimals in byte arrays as unsigned bytes."""
    return bool(pa.types.is_floating(type) or (pa.types.is_decimal(type) and type.precision > MOST_DIGITS_OF_INT64))


def column_name(expression: Any) -> str | None:
    """The name of the column, if the expression is a column."""
    return expression.to_variant().name() if expression.variant_name() == "Column" else None


def _is_plain(value: Ordinal) -> bool:
    """Whether equality means the same bits: false for NaN, and for zero, which has two signs."""
    return value == value and value != 0


def _plain_literal(expression: Any) -> str | int | None:
    """A string or number literal. Other values are not converted: Python cannot represent all of them, such as a time
    in a zone that it does not know."""
    if expression.variant_name() != "Literal":
        return None
    scalar = expression.python_value()
    plain = pa.types.is_integer(scalar.type) or pa.types.is_string(scalar.type) or pa.types.is_string_view(scalar.type)
    value: str | int | None = scalar.as_py() if plain or pa.types.is_large_string(scalar.type) else None
    return value


def _text(expression: Any) -> str | None:
    value = _plain_literal(expression)
    return value if isinstance(value, str) else None


def _holds(column: str, pieces: patterns.Pieces | None) -> Predicate:
    """What a pattern requires at least. Bounds and keys use the prefix, text indexes the other pieces."""
    if pieces is None:
        return Unknown()
    like = Like(column, pieces.texts, pieces.starts, pieces.ends, pieces.fold)
    if pieces.starts and not pieces.fold:
        return And((StartsWith(column, pieces.texts[0].encode()), like, Unknown()))
    return And((like, Unknown()))


def _or_false(predicate: Predicate) -> Predicate:
    """TRUE where the predicate is, FALSE where it is NULL: that matters below a NOT."""
    return And((predicate, Unknown()))


def _terms(expression: Any, operator: str) -> list[Any]:
    """The terms of a chain of ANDs, or of ORs, from first to last; DataFusion nests them in pairs."""
    found, waiting = [], [expression]
    while waiting:
        part = waiting.pop()
        if part.variant_name() == "BinaryExpr" and part.rex_call_operator() == operator:
            waiting += reversed(part.rex_call_operands())
        else:
            found.append(part)
    return found


def any_of(children: Iterable[Predicate]) -> Predicate:
    """One OR, without ORs directly below it. The optimizer turns `x IN (1, 2, 3)` into ORs; this restores the IN.

    >>> any_of([Compare("x", "=", 1), IsNull("y"), Compare("x", "=", 2)])
    Or(children=(In(column='x', values=(1, 2)), IsNull(column='y')))
    """
    flat: list[Predicate] = []
    values: dict[str, dict[Ordinal, None]] = {}
    for child in children:
        for each in child.children if isinstance(child, Or) else (child,):
            asked = _equal(each)
            if asked is None:
                flat.append(each)
            else:
                values.setdefault(asked[0], {}).update(dict.fromkeys(asked[1]))
    equal: list[Predicate] = [
        Compare(column, "=", *several) if len(several) == 1 else In(column, tuple(several))
        for column, several in values.items()
    ]
    found = (*equal, *flat)
    if len(found) > MOST_ALTERNATIVES:
        return _values_of(found)
    return found[0] if len(found) == 1 else Or(found)


def _equal(predicate: Predicate) -> tuple[str, tuple[Ordinal, ...]] | None:
    match predicate:
        case Compare(column, "=", value) if value == value:  # not NaN: no two NaNs are equal
            return column, (value,)
        case In(column, values) if all(value == value for value in values):
            return column, values
    return None


def _values_of(alternatives: Iterable[Predicate]) -> Predicate:
    """What many alternatives have in common: `(id = 1 AND …) OR (id = 2 AND …)` requires an id of 1 or 2. One index
    lookup for all of them costs less than one for each."""
    common: dict[str, dict[Ordinal, None]] | None = None
    for alternative in alternatives:
        parts = list(conjuncts(alternative))
        asked = dict(each for part in parts if (each := _equal(part)) is not None)
        if common is None:
            common = {column: {} for column in asked}
        common = {column: known for column, known in common.items() if column in asked}
        for column, known in common.items():
            known.update(dict.fromkeys(asked[column]))
    return And((*(In(column, tuple(values)) for column, values in (common or {}).items()), Unknown()))


def _same_type(column: pa.DataType, literal: pa.DataType) -> bool:
    if pa.types.is_string(column):
        return bool(
            pa.types.is_string(literal) or pa.types.is_large_string(literal) or pa.types.is_string_view(literal)
        )
    if pa.types.is_binary(column):
        return bool(
            pa.types.is_binary(literal) or pa.types.is_large_binary(literal) or pa.types.is_binary_view(literal)
        )
    if pa.types.is_timestamp(column) and pa.types.is_timestamp(literal):
        return bool(column.unit == literal.unit and (column.tz is None) == (literal.tz is None))
    return bool(column.equals(literal))


def _cast_keeps_ordinals(column: pa.DataType, target: pa.DataType) -> bool:
    """Casts that change neither a value nor the order."""
    if pa.types.is_integer(column) and pa.types.is_integer(target):
        if pa.types.is_signed_integer(column):
            return bool(pa.types.is_signed_integer(target) and target.bit_width >= column.bit_width)
        wider = target.bit_width > column.bit_width
        return bool(wider or (pa.types.is_unsigned_integer(target) and target.bit_width == column.bit_width))
    if pa.types.is_floating(column) and pa.types.is_floating(target):
        return bool(target.bit_width >= column.bit_width)
    if pa.types.is_decimal(column) and pa.types.is_decimal(target):
        return bool(column.scale == target.scale and target.precision >= column.precision)
    return _same_type(column, target)
