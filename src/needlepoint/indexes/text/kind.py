"""The text index: the words of one string column of a file and their positions, indexed by tantivy.

It finds the rows for LIKE, ILIKE, contains, strpos, regular expressions with a literal part, = and IN, and text_match.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from needlepoint.errors import NotIndexable, UnknownName, UsageError
from needlepoint.indexes.base import ColumnSource, IndexPayload, Options, PayloadHandle
from needlepoint.indexes.text import build
from needlepoint.indexes.text.search import TextIndex, load_tantivy
from needlepoint.tables import plain

TOKENIZERS = ("word", "trigram")


class TextKind:
    """`tokenizer` is "word", or "trigram" for scripts that put no space between words."""

    name = "text"
    version = 3
    as_good = (2,)  # only larger

    def check(self, table: str, fields: Sequence[pa.Field], options: Options) -> None:
        load_tantivy()
        if len(fields) != 1:
            raise NotIndexable(f"a text index is on one column, not {len(fields)}.", hint="Create one for each.")
        kind = plain(fields[0].type)
        if not pa.types.is_string(kind):
            raise NotIndexable(
                f"column '{fields[0].name}' of {table} is {kind}; a text index needs a string column.",
                hint="" if pa.types.is_nested(kind) else "A key index takes other types.",
            )
        for name in options:
            if name != "tokenizer":
                raise UnknownName("option", name, ["tokenizer"], where=" of a text index")
        if options.get("tokenizer", "word") not in TOKENIZERS:
            raise UsageError(
                f"a text index has no tokenizer {options['tokenizer']!r}.", hint=f"There is: {', '.join(TOKENIZERS)}."
            )

    def build(self, source: ColumnSource) -> IndexPayload:
        return build.build(source, load_tantivy())

    def open(self, stored: PayloadHandle, fields: Sequence[pa.Field], options: Options) -> TextIndex:
        return TextIndex(stored)
