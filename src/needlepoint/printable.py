"""Text for people: safe for a terminal, with units of sizes and plurals of counts.

Names of columns, values, paths and messages of other libraries can be anything. Control characters (C0, C1 and DEL)
move the cursor, set the title or worse; line and paragraph separators end a line; marks of direction make one text look
like another. All are shown as escapes, and so is half of a surrogate pair, which has no UTF-8.
"""

from __future__ import annotations

import re

_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """
    >>> printable("a\\x1b[2Jb\\u202ec\\n")
    'a\\\\x1b[2Jb\\\\u202ec\\\\n'
    """
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def printable_lines(text: str) -> str:
    """The same, but line ends stay."""
    return "\n".join(map(printable, text.split("\n")))


def json_safe(line: str) -> str:
    """A line of JSON with escapes for all that is not printable; its meaning stays the same."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def size_text(number: float) -> str:
    """
    >>> size_text(812), size_text(41_300), size_text(61_400_000)
    ('812 B', '41.3 kB', '61.4 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


def count(number: int, what: str) -> str:
    """
    >>> count(1, "file"), count(2000, "row"), count(0, "index"), count(2, "entry")
    ('1 file', '2,000 rows', '0 indexes', '2 entries')
    """
    plural = what if number == 1 else f"{what}es" if what.endswith(("x", "ch")) else f"{what}s"
    plural = f"{what[:-1]}ies" if number != 1 and what.endswith("ry") else plural
    return f"{number:,} {plural}"
