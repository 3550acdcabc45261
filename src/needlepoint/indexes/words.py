"""Words of texts: the one way in which text is taken apart, for indexes and for patterns, queries and scores.

A word is a longest run of letters, marks and digits, in lower case. Letters that are the same when case does not
matter (s and ſ, σ and ς) become one, letter by letter, so a part of a text has the same letters folded alone or within
the text. That is what makes an index by words safe for LIKE and ILIKE.

>>> words(pa.array(["Dairy COW, 2nd", None, "--"])).to_pylist()
[['dairy', 'cow', '2nd'], None, []]
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

# Letters of the same case folding that lower-casing leaves apart (Unicode CaseFolding.txt, status C and S).
# Three are written by number: editors that normalise text would put others in their place.
_FOLDED = dict(
    zip(
        "ſµͅ\u1fbe\u1fd3\u1fe3ϐϵϑϴϰϖϱςϕᲀᲁᲂᲃᲄᲅᲆᲇᲈẛ",
        "sμιιΐΰβεθθκπρσφвдосттъѣꙋṡ",
        strict=True,
    )
)
_ODD = f"[{''.join(_FOLDED)}]"
_BETWEEN = r"[^\p{L}\p{M}\p{N}]+"


def folded(texts: pa.Array) -> pa.Array:
    """The texts with letters of either case alike. No letter becomes two, or none."""
    lower = pc.utf8_lower(texts)
    if not pc.any(pc.match_substring_regex(lower, _ODD)).as_py():
        return lower
    for odd, plain in _FOLDED.items():
        lower = pc.replace_substring(lower, odd, plain)
    return lower


def spaced(texts: pa.Array) -> pa.Array:
    """The words of each text with one space between them, and none around."""
    return pc.ascii_trim(pc.replace_substring_regex(folded(texts), _BETWEEN, " "), " ")


def words(texts: pa.Array) -> pa.Array:
    """A list of words for each text; NULL has none to list, and is NULL."""
    joined = spaced(texts)
    lists = pc.split_pattern(joined, " ")
    # Of an empty text, splitting makes one empty word.
    empty = pc.equal(joined, "")
    return pc.if_else(empty, pa.scalar([], lists.type), lists) if pc.any(empty).as_py() else lists


def folded_text(text: str) -> str:
    found: str = folded(pa.array([text]))[0].as_py()
    return found


def folds_alike(letter: str) -> bool:
    """Whether every engine agrees on the letters that are the same as this one when case does not matter.

    Unicode gets new letters, and with them old ones get another case: of the alphabets of which that is not to be
    feared, and of signs without case, one can be sure.
    """
    code = ord(letter)
    if code < 0x180 or 0x370 <= code < 0x400 or 0x400 <= code < 0x460:
        return letter not in "İıŉ"  # their other case is two letters, or depends on the language
    return letter.lower() == letter == letter.upper() and not letter.istitle()
