"""Converts conditions of DataFusion to predicates: what makes them TRUE, at most."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from needlepoint.indexes.text import parse
from needlepoint.predicate import (
    And,
    Compare,
    CompareColumns,
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
from needlepoint.query.sql.plan_nodes import parts_of
from needlepoint.query.sql.predicates import patterns, text_bounds, time_bounds
from needlepoint.query.sql.predicates.preimages import literal_text, preimage, same_type
from needlepoint.query.sql.predicates.truths import not_false, not_true
from needlepoint.query.sql.request import Types, misleads
from needlepoint.tables import ordinal

# A predicate is not converted beyond this depth: code that walks the tree may be recursive.
DEEPEST = 50
# An OR with more conditions than this is reduced to the values that all of them require of one column.
MOST_ALTERNATIVES = 64

_SWAPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_PREFIX = re.compile(r"[^%_\\]+%", re.DOTALL)
_PATTERNED = {"~", "~*", "~~", "~~*"}
# Expressions that a predicate can equal, if their operands are columns and literals.
_EXACT = {"BinaryExpr", "InList", "IsNull", "IsNotNull"}
_STRICT = {"=", "!=", "<", "<=", ">", ">=", "+", "-", "*"}
_DEEPEST_CASE = 5
_HOLDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "IN": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip
_TRUTHS: Mapping[str, Callable[[Predicate], Predicate]] = {
    "IsTrue": lambda child: child, "IsFalse": Not, "IsNotTrue": not_true, "IsNotFalse": not_false,
}  # fmt: skip
_OPERATORS = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_WRITTEN = {ours: theirs for theirs, ours in _OPERATORS.items()}


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
    found = Converter(types)(expression)
    return found if _is_known(found) else None


def _is_known(predicate: Predicate) -> bool:
    if isinstance(predicate, And | Or):
        return all(map(_is_known, predicate.children))
    return not isinstance(predicate, Unknown)


class Converter:
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
                return self._in_list(expression, depth)
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
                return self._null(expression.rex_call_operands()[0], kind)
            case "IsUnknown" | "IsNotUnknown" as kind:
                return self._null(expression.rex_call_operands()[0], kind.replace("Unknown", "Null"))
            case "IsTrue" | "IsFalse" | "IsNotTrue" | "IsNotFalse" as kind:
                harmless = self._harmless.copy()
                child = self._convert(expression.rex_call_operands()[0], depth + 1)
                self._harmless = self._harmless if kind == "IsTrue" else harmless
                return _or_false(_TRUTHS[kind](child))
            case "Column":
                column = self._column(expression)
                if column is not None and pa.types.is_boolean(self._types[column]):
                    return Compare(column, "=", 1)
            case "Literal":
                value = expression.python_value()
                if pa.types.is_boolean(value.type):
                    return Constant(value.as_py() is True)  # NULL is not TRUE
        return Unknown()

    def _null(self, expression: Any, kind: str) -> Predicate:
        """Whether an operator has a result: none if, and only if, an operand is NULL."""
        columns: list[str] = []
        for part in parts_of(expression):
            match part.variant_name():
                case "Column" if (column := self._column(part)) is not None:
                    columns.append(column)
                case "BinaryExpr" if part.rex_call_operator() in _STRICT:
                    pass
                case "Literal" if part.python_value().is_valid:
                    pass
                case "Not" | "Negative" | "Cast":
                    pass
                case _:
                    return Unknown()
        if not columns:
            return Unknown()
        if kind == "IsNull":
            return _or_false(any_of(IsNull(column) for column in columns))
        return _or_false(And(tuple(IsNotNull(column) for column in columns)))

    def _column(self, expression: Any) -> str | None:
        name = column_name(expression)
        return name if name in self._types else None

    def _binary(self, expression: Any, depth: int) -> Predicate:
        operator = expression.rex_call_operator()
        if operator in ("AND", "OR"):
            children = [self._convert(term, depth + 1) for term in terms(expression, operator)]
            return And(tuple(children)) if operator == "AND" else any_of(children)
        left, right = expression.rex_call_operands()
        if operator in _PATTERNED:
            return self._patterned(left, operator, right)
        if left.variant_name() == "Literal":
            left, right, operator = right, left, _SWAPPED.get(operator, operator)
        if right.variant_name() != "Literal":
            return self._two_columns(left, operator, right)
        scalar = right.python_value()
        if operator in ("IS NOT DISTINCT FROM", "IS DISTINCT FROM"):
            return self._distinct(left, operator, scalar, depth)
        return self._compared(left, operator, scalar, depth)

    def _distinct(self, left: Any, operator: str, scalar: Any, depth: int) -> Predicate:
        """Comparisons that take NULL for a value. With TRUE, they are the optimizer's form of CASE."""
        if not scalar.is_valid:
            column = self._column(left)
            if column is None:
                return Unknown()
            return _or_false(IsNull(column) if operator == "IS NOT DISTINCT FROM" else IsNotNull(column))
        is_true, harmless = pa.types.is_boolean(scalar.type) and scalar.as_py() is True, self._harmless.copy()
        equal = self._convert(left, depth + 1) if is_true else self._compared(left, "=", scalar, depth)
        if operator == "IS NOT DISTINCT FROM":
            return _or_false(equal)
        self._harmless = harmless
        return _or_false(not_true(equal))

    def _compared(self, left: Any, operator: str, scalar: Any, depth: int) -> Predicate:
        if operator not in _OPERATORS:
            return Unknown()
        if left.variant_name() == "Case":
            return self._case(left, _OPERATORS[operator], (scalar,), depth)
        if _is_extreme(left):
            return self._extreme(left, _OPERATORS[operator], (scalar,), depth)
        if (fields := _fields(left, scalar)) is not None:
            return self._one_of_rows(fields, [scalar], depth) if operator == "=" else Unknown()
        column, value = self._comparable(left, scalar.type), ordinal(scalar)
        if value is None:
            return Unknown()
        if column is None:
            return self._function(left, scalar.type, _OPERATORS[operator], (value,))
        self._harmless[column] += operator == "=" and _is_plain(value)
        return Compare(column, _OPERATORS[operator], value)

    def _case(self, case: Any, operator: str, scalars: Sequence[Any], depth: int) -> Predicate:
        """`CASE WHEN a THEN x ELSE y END = v`: a AND x = v, or y = v where a is not TRUE. `coalesce(x, y)` is
        `CASE WHEN x IS NOT NULL THEN x ELSE y END` here."""
        if depth > _DEEPEST_CASE:
            return Unknown()
        harmless = self._harmless.copy()
        parts = case.rex_call_operands()
        found: list[Predicate] = []
        others: list[Predicate] = []
        for when, then in zip(parts[0::2], parts[1::2], strict=False):
            condition = self._convert(when, depth + 1)
            found.append(And((condition, self._result(then, operator, scalars, depth))))
            others.append(not_true(condition))
        if len(parts) % 2:
            found.append(And((*others, self._result(parts[-1], operator, scalars, depth))))
        self._harmless = harmless
        possible = [each for each in found if Constant(False) not in conjuncts(each)]
        return _or_false(Or(tuple(possible)) if possible else Constant(False))

    def _result(self, then: Any, operator: str, scalars: Sequence[Any], depth: int) -> Predicate:
        """The comparison of one result of a CASE."""
        if then.variant_name() != "Literal":
            if operator == "IN":
                return any_of(self._compared(then, "=", scalar, depth + 1) for scalar in scalars)
            return self._compared(then, _WRITTEN[operator], scalars[0], depth + 1)
        value, others = ordinal(then.python_value()), [ordinal(scalar) for scalar in scalars]
        if not then.python_value().is_valid or not any(scalar.is_valid for scalar in scalars):
            return Constant(False)
        if value is None or None in others or any(scalar.type != then.python_value().type for scalar in scalars):
            return Unknown()
        if any(isinstance(each, float) and (each != each or each == 0) for each in (value, *others)):
            return Unknown()  # engines disagree on NaN and on the sign of zero
        return Constant(any(_HOLDS[operator](value, other) for other in others))

    def _extreme(self, call: Any, operator: str, scalars: Sequence[Any], depth: int) -> Predicate:
        """`greatest(x, y) > v`: one of them is. `greatest(x, y) < v`: so is each, unless it is NULL, which does not
        count. Not for floats: engines disagree on NaN and on the sign of zero."""
        if depth > _DEEPEST_CASE or any(not each.is_valid or pa.types.is_floating(each.type) for each in scalars):
            return Unknown()
        values = [part for part in call.rex_call_operands() if not _is_null(part)]
        harmless = self._harmless.copy()
        results = (self._result(value, operator, scalars, depth) for value in values)
        possible = [result for result in results if Constant(False) not in conjuncts(result)]
        found = [any_of(possible) if possible else Constant(False)]  # the result is one of the values
        ends = {"greatest": ("<", "<="), "least": (">", ">=")}[call.rex_call_operator()]
        if operator == "=" or operator in ends:
            limit = ends[1] if operator == "=" else operator
            found += [self._result_or_null(value, limit, scalars, depth) for value in values]
        self._harmless = harmless
        return _or_false(And(tuple(found)))

    def _result_or_null(self, value: Any, operator: str, scalars: Sequence[Any], depth: int) -> Predicate:
        found = self._result(value, operator, scalars, depth)
        return found if value.variant_name() == "Literal" else any_of((found, self._null(value, "IsNull")))

    def _one_of_rows(self, columns: list[Any], rows: Sequence[Any], depth: int) -> Predicate:
        """`(a, b) IN ((1, 2), …)`. A NULL in a row of the list may equal anything here."""
        harmless = self._harmless.copy()

        def equal(row: Any) -> Predicate:
            pairs = [(column, row[at]) for at, column in enumerate(columns) if row[at].is_valid]
            return And(tuple(self._equal_field(column, value, depth) for column, value in pairs))

        found = any_of(map(equal, rows))
        self._harmless = harmless
        return _or_false(found)

    def _equal_field(self, left: Any, scalar: Any, depth: int) -> Predicate:
        """The comparison of one field of a row, which may be cast as part of the row."""
        column, value = self._column(left), ordinal(scalar)
        if column is not None and value is not None and _cast_keeps_ordinals(self._types[column], scalar.type):
            return Compare(column, "=", value)
        return self._compared(left, "=", scalar, depth + 1)

    def _two_columns(self, left: Any, operator: str, right: Any) -> Predicate:
        """The comparison of two columns of the table."""
        if operator not in _OPERATORS:
            return Unknown()
        inner = [side.rex_call_operands()[0] if side.variant_name() == "Cast" else side for side in (left, right)]
        one, other = map(self._column, inner)
        if one is None or other is None or one == other or (inner[0] is not left and inner[1] is not right):
            return Unknown()
        # At most one of them is cast, to the type of the other.
        casts = (self._types[one], self._types[other]) if inner[1] is right else (self._types[other], self._types[one])
        if not _cast_keeps_ordinals(*casts) or any(map(pa.types.is_floating, casts)):
            return Unknown()
        return CompareColumns(one, _OPERATORS[operator], other)

    def _comparable(self, left: Any, literal: pa.DataType) -> str | None:
        """The column whose ordinals compare with those of a literal of this type."""
        if left.variant_name() == "Cast":
            # Both sides of a comparison have one type, so the column is cast to the literal's.
            column = self._column(left.rex_call_operands()[0])
            return column if column is not None and _cast_keeps_ordinals(self._types[column], literal) else None
        column = self._column(left)
        return column if column is not None and same_type(self._types[column], literal) else None

    def _function(self, left: Any, literal: pa.DataType, operator: str, values: tuple[Ordinal, ...]) -> Predicate:
        """Comparisons of a function of a column, with a value or with several."""
        variant = left.variant_name()
        if variant == "ScalarFunction" or (variant == "BinaryExpr" and left.rex_call_operator() == "||"):
            name, operands = left.rex_call_operator(), left.rex_call_operands()
            if name == "strpos":
                return self._found_at(operands, operator, values)
            if name == "date_part" and (part := self._part(operands, operator, values)) != Unknown():
                return part
            if all(isinstance(value, bytes) for value in values):
                return self._of_text(name, operands, operator, values)
        found = preimage(left, operator, values, literal, self._types)
        return Unknown() if found is None else found.predicate()

    def _part(self, operands: list[Any], operator: str, values: tuple[Ordinal, ...]) -> Predicate:
        """Comparisons of a part of a time, such as its month."""
        column, part = self._column(operands[1]), literal_text(operands[0])
        if column is None or part is None:
            return Unknown()
        return time_bounds.of_part(column, self._types[column], part, operator, values)

    def _of_text(self, name: str, operands: list[Any], operator: str, values: tuple[Any, ...]) -> Predicate:
        """Comparisons of a text that is made of a column."""
        fixed = [_plain_literal(each) for each in operands]
        joins = name == "||" or (name == "concat" and len(operands) == 2)
        place = 1 if joins and fixed[0] is not None else 0
        column = self._text_column(operands[place]) if operands else None
        if column is None:
            return Unknown()
        found: Predicate = Unknown()
        match name:
            case "left" | "substr" if name == "left" or fixed[1] == 1:
                length = fixed[1] if name == "left" else fixed[2] if len(fixed) > 2 else None
                found = text_bounds.of_prefix(column, operator, values, length if isinstance(length, int) else None)
            case "lower" | "upper" if operator in ("=", "IN"):
                found = any_of(text_bounds.of_case(column, name, value) for value in values)
            case "||" | "concat" if joins and operator in ("=", "IN"):
                found = text_bounds.of_concatenation(column, fixed[1 - place], place == 1, values, name == "concat")
        return found if found == Unknown() else And((found, Unknown()))

    def _found_at(self, operands: list[Any], operator: str, places: tuple[Ordinal, ...]) -> Predicate:
        """Comparisons of the position of one text in another: from 1; 0 if it is absent."""
        column, text = self._text_column(operands[0]), literal_text(operands[1])
        if column is None or not text:
            return Unknown()
        lowest = {">": 0, ">=": 1, "<>": 0, "=": 1, "IN": 1}.get(operator)
        exact = operator != "<>" or places == (0,)
        if lowest is None or not exact or any(isinstance(place, bytes) or place < lowest for place in places):
            return Unknown()
        return _holds(column, patterns.of_text(text, starts=operator == "=" and places == (1,)))

    def _in_list(self, expression: Any, depth: int) -> Predicate:
        left, *items = expression.rex_call_operands()
        if any(item.variant_name() != "Literal" for item in items):
            return Unknown()
        # x IN (1, NULL) is TRUE only where x = 1; x NOT IN (1, NULL) is never TRUE, which Not treats as maybe.
        scalars = [scalar for scalar in (item.python_value() for item in items) if scalar.is_valid]
        negated = expression.to_variant().negated()
        if not scalars or any(scalar.type != scalars[0].type for scalar in scalars):
            return Unknown()
        if (fields := _fields(left, scalars[0])) is not None:
            return Unknown() if negated else self._one_of_rows(fields, scalars, depth)
        if left.variant_name() == "Case":
            return Unknown() if negated else self._case(left, "IN", scalars, depth)
        if _is_extreme(left):
            return Unknown() if negated else self._extreme(left, "IN", scalars, depth)
        values = {value for value in map(ordinal, scalars) if value is not None}
        if not values:
            return Unknown()
        column = self._comparable(left, scalars[0].type)
        if column is None:
            several = tuple(sorted(values))
            return Unknown() if negated else self._function(left, scalars[0].type, "IN", several)
        found = In(column, tuple(sorted(values)))
        if negated:
            return Not(found)
        self._harmless[column] += all(map(_is_plain, values))
        return found if len(scalars) == len(items) else _or_false(found)  # where it is NULL, the tree has FALSE

    def _like(self, expression: Any) -> Predicate:
        left, right = expression.rex_call_operands()
        escape = expression.to_variant().escape_char()
        if escape not in (None, "\\"):  # DataFusion 55 rejects it
            return Unknown()
        return self._patterned(left, expression.rex_call_operator(), right)

    def _patterned(self, left: Any, operator: str, right: Any) -> Predicate:
        """A text matched with a pattern, by LIKE or a regular expression."""
        column, pattern = self._text_column(left), literal_text(right)
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
        column, texts = self._text_column(operands[0]) if operands else None, list(map(literal_text, operands[1:]))
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


def _fields(left: Any, scalar: Any) -> list[Any] | None:
    """The fields of a struct that is compared with a literal."""
    if not pa.types.is_struct(scalar.type):
        return None
    struct = left.rex_call_operands()[0] if left.variant_name() == "Cast" else left
    if struct.variant_name() != "ScalarFunction" or struct.rex_call_operator() != "struct":
        return None
    fields: list[Any] = struct.rex_call_operands()
    return fields if len(fields) == scalar.type.num_fields else None


def _holds(column: str, pieces: patterns.Pieces | None) -> Predicate:
    """What a pattern requires at least. Bounds and keys use the prefix, text indexes the other pieces."""
    if pieces is None:
        return Unknown()
    like = Like(column, pieces.texts, pieces.starts, pieces.ends, pieces.fold)
    if pieces.starts and not pieces.fold:
        return And((StartsWith(column, pieces.texts[0].encode()), like, Unknown()))
    return And((like, Unknown()))


def _is_extreme(expression: Any) -> bool:
    return expression.variant_name() == "ScalarFunction" and expression.rex_call_operator() in ("greatest", "least")


def _is_null(expression: Any) -> bool:
    return expression.variant_name() == "Literal" and not expression.python_value().is_valid


def _or_false(predicate: Predicate) -> Predicate:
    """TRUE where the predicate is, FALSE where it is NULL: that matters below a NOT."""
    return And((predicate, Unknown()))


def terms(expression: Any, operator: str) -> list[Any]:
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
    return same_type(column, target)
