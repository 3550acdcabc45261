"""Tokens of SQL: just enough to tell words, numbers and signs from strings, quoted names and comments.

>>> [each[0] for each in tokens("SELECT 'a ?', x.y -- why?")]
['SELECT', "'a ?'", ',', 'x', '.', 'y']
"""

from __future__ import annotations

import re

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


def tokens(query: str) -> list[re.Match[str]]:
    """The tokens of a query, without its comments. The list is empty if the query has nested comments or dollar-quoted
    strings: the pattern does not find their ends."""
    found = [each for each in _TOKENS.finditer(query) if not _is_comment(each[0])]
    return [] if any(each["strange"] for each in found) else found


def _is_comment(token: str) -> bool:
    return token.startswith("--") or (token.startswith("/*") and len(token) > 2)
