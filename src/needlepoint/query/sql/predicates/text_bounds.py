"""What comparisons of a text that is made of a column require of the column: a prefix of it, or the text in one case.

Each may be TRUE for more rows than the comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from needlepoint.predicate import And, Compare, Constant, In, IsNull, Like, Or, Predicate, StartsWith, Unknown, after
from needlepoint.query.sql.predicates import patterns

# ASCII letters that other letters have in their lower case, as the kelvin sign, or in their upper case, as ß.
_OF_OTHERS = {"lower": frozenset("ik"), "upper": frozenset("AFHIJLNSTWY")}


def of_prefix(column: str, operator: str, values: Sequence[bytes], length: int | None) -> Predicate:
    """The first characters of a text compared, with the number of characters if it is known.

    >>> of_prefix("s", "<=", [b"abc"], 2)
    Compare(column='s', operator='<', value=b'ac')
    """
    match operator:
        case "=" | "IN":
            found = tuple(StartsWith(column, value) if value else Unknown() for value in values)
            return found[0] if len(found) == 1 else Or(found)
        case ">" | ">=":
            return Compare(column, ">=", values[0])  # a text is not less than its prefix
        case "<" | "<=" if length is not None and length > 0:
            beyond = after(values[0].decode()[:length].encode())
            return Unknown() if beyond is None else Compare(column, "<", beyond)
    return Unknown()


def of_case(column: str, function: str, value: bytes) -> Predicate:
    """`lower(column) = value`, or upper: from the text in capitals to that in small letters, as far as it is in ASCII.
    The first letter is in either case. Letters outside of ASCII are above all of it in the order of bytes.

    >>> of_case("s", "lower", b"abc").children[0].children[0]
    And(children=(Compare(column='s', operator='>=', value=b'ABC'), Compare(column='s', operator='<', value=b'Abd')))
    """
    text, others = value.decode(), _OF_OTHERS[function]
    ascii = _until(text, lambda letter: not letter.isascii())
    found: Predicate = Unknown()
    if ascii:
        low, high = ascii[1:].upper(), _until(ascii[1:], lambda letter: letter in others).lower()
        ends = [(first + low, after((first + high).encode())) for first in sorted({ascii[0].upper(), ascii[0].lower()})]
        between = [
            And((Compare(column, ">=", start.encode()), Compare(column, "<", end))) for start, end in ends if end
        ]
        # It may begin with another letter.
        found = Or((*between, *([Compare(column, ">=", b"\xc2")] if ascii[0] in others else [])))
    letters = "".join(letter if letter.isascii() and letter not in others else "%" for letter in text)
    pieces = patterns.of_like(f"%{letters}%", fold=True)
    return And((found, Unknown() if pieces is None else Like(column, pieces.texts, fold=True)))


def _until(text: str, ends: Callable[[str], bool]) -> str:
    return text[: next((at for at, letter in enumerate(text) if ends(letter)), len(text))]


def of_concatenation(
    column: str, fixed: str | int | None, before: bool, values: Sequence[bytes], nulls: bool
) -> Predicate:
    """`'fixed' || column = value`, or the other way around. With `nulls`, NULL counts as an empty text."""
    if not isinstance(fixed, str):
        return Unknown()
    part = fixed.encode()
    if before:
        found = [value[len(part) :] for value in values if value.startswith(part)]
    else:
        found = [value[: len(value) - len(part)] for value in values if value.endswith(part)]
    if not found:
        return Constant(False)
    equal: Predicate = Compare(column, "=", found[0]) if len(found) == 1 else In(column, tuple(sorted(found)))
    return Or((equal, IsNull(column))) if nulls and b"" in found else equal
