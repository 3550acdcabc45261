"""Split texts into words, in one way for indexes, patterns, queries and scores.

A word is a maximal sequence of letters, marks and digits, in lower case. Letters that are equal without case (s and ſ,
σ and ς) become one, letter by letter, so a part of a text folds to the same letters alone or within the text. That
makes an index of words safe for LIKE and ILIKE.

>>> words(pa.array(["Dairy COW, 2nd", None, "--"])).to_pylist()
[['dairy', 'cow', '2nd'], None, []]
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Letters of the same case folding that lower-casing leaves apart (Unicode CaseFolding.txt, status C and S).
# Three are escaped: editors that normalise text would replace them.
_FOLDED = dict(
    zip(
        "ſµͅ\u1fbe\u1fd3\u1fe3ϐϵϑϴϰϖϱςϕᲀᲁᲂᲃᲄᲅᲆᲇᲈẛ",
        "sμιιΐΰβεθθκπρσφвдосттъѣꙋṡ",
        strict=True,
    )
)
_ODD = f"[{''.join(_FOLDED)}]"
_BETWEEN = r"[^\p{L}\p{M}\p{N}]"

# `lettered` for ASCII characters: a table is twenty times faster than the expression above.
_LETTERED = bytes(ord(chr(code).lower()) if code < 128 and chr(code).isalnum() else ord(" ") for code in range(256))


def folded(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The texts with case folded. Each letter becomes exactly one letter."""
    texts = _plain(texts)
    if pc.all(pc.string_is_ascii(texts)).as_py():
        # Not ascii_lower: pyarrow 26 returns uninitialised memory when the first text is not at byte 0 of the data, as
        # in a slice that was cast (string to large_string).
        return _bytes_changed(texts, bytes.lower)
    lower = pc.utf8_lower(texts)
    if not pc.any(pc.match_substring_regex(lower, _ODD)).as_py():
        return lower
    for odd, plain in _FOLDED.items():
        lower = pc.replace_substring(lower, odd, plain)
    return lower


def lettered(texts: pa.Array) -> pa.Array:
    """The texts folded, with a space for each character that is not part of a word.

    >>> lettered(pa.array(["Dairy COW, 2nd!", "ΟΔΟΣ—"])).to_pylist()
    ['dairy cow  2nd ', 'οδοσ ']
    """
    texts = _plain(texts)
    ascii = pc.fill_null(pc.string_is_ascii(texts), True)
    if not pc.all(ascii).as_py():
        rest = pc.replace_substring_regex(folded(texts.filter(pc.invert(ascii))), _BETWEEN, " ")
        return pc.replace_with_mask(_bytes_changed(texts, _lettered), pc.invert(ascii), rest)
    return _bytes_changed(texts, _lettered)


def _lettered(text: bytes) -> bytes:
    return text.translate(_LETTERED)


def _plain(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    known = pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)
    return texts if known else texts.cast(pa.large_string())


def _bytes_changed(texts: pa.Array, change: Callable[[bytes], bytes]) -> pa.Array:
    """Each text with its bytes changed, one for one."""
    present, offsets, data = texts.buffers()
    if data is None:
        return texts
    width = 8 if pa.types.is_large_string(texts.type) else 4
    ends = np.frombuffer(offsets, f"i{width}", len(texts) + 1, texts.offset * width)
    letters = change(data[int(ends[0]) : int(ends[-1])].to_pybytes())
    moved = ends - ends[0]
    if texts.offset and present is not None:
        present = pc.is_valid(texts).buffers()[1]
    buffers = [present, pa.py_buffer(moved), pa.py_buffer(letters)]
    return pa.Array.from_buffers(texts.type, len(texts), buffers, texts.null_count)


def words(texts: pa.Array) -> pa.Array:
    """A list of words for each text; NULL for NULL."""
    joined = pc.ascii_trim_whitespace(lettered(texts))
    lists = pc.ascii_split_whitespace(joined)
    # Splitting an empty text makes one empty word.
    empty = pc.equal(joined, "")
    return pc.if_else(empty, pa.scalar([], lists.type), lists) if pc.any(empty).as_py() else lists


def words_of(text: str) -> list[str]:
    """The words of one text."""
    found: list[str] = words(pa.array([text]))[0].as_py()
    return found


def folded_text(text: str) -> str:
    found: str = folded(pa.array([text]))[0].as_py()
    return found


def folds_alike(letter: str) -> bool:
    """Whether all engines agree on which letters are equal to this one without case.

    New versions of Unicode give old letters another case. They do not in these alphabets, nor for characters without
    case.
    """
    code = ord(letter)
    if code < 0x180 or 0x370 <= code < 0x400 or 0x400 <= code < 0x460:
        return letter not in "İıŉ"  # their other case is two letters, or depends on the language
    return letter.lower() == letter == letter.upper() and not letter.istitle()


@functools.cache
def letters_in_use() -> str:
    """A hash of which characters are letters here and how they fold: pyarrow follows new versions of Unicode."""
    # The planes that have characters; Unicode does not plan letters in the others.
    codes = np.concatenate((np.arange(0xD800), np.arange(0xE000, 0x34000), np.arange(0xE0000, 0xE1000)))
    every = codes.astype("<u4").tobytes().decode("utf-32-le")
    return hashlib.sha256(str(lettered(pa.array([every]))[0]).encode()).hexdigest()[:16]


def libraries_in_use() -> str:
    """If this is equal, so is `letters_in_use`, and it is faster to compute."""
    return f"pyarrow {pa.__version__}, {hashlib.sha256(f'{_FOLDED} {_BETWEEN}'.encode()).hexdigest()[:16]}"
