"""The key index: value -> rows, of all files of a table in one sorted store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from needlepoint.errors import NotIndexable, UsageError
from needlepoint.indexes.base import ColumnSource, IndexPayload, KeysAndRows, Options
from needlepoint.indexes.key import payload
from needlepoint.indexes.key.build import read_keys
from needlepoint.indexes.key.encoding import key_bytes


class KeyKind:
    """One column, no options."""

    name = payload.NAME
    version = payload.VERSION

    def check(self, table: str, fields: Sequence[pa.Field], options: Options) -> None:
        if len(fields) != 1:
            raise NotIndexable("a key index has one column.", hint="A bloom index can have several.")
        if options:
            raise UsageError(f"a key index has no option '{next(iter(options))}'.", hint="It has: store.")
        key_bytes(fields[0].type, fields[0].name, table)

    def build(self, source: ColumnSource) -> IndexPayload:
        return self.pack(source.fields, list(self.keys(source)))

    def key_bytes(self, fields: Sequence[pa.Field]) -> int:
        return key_bytes(fields[0].type)

    def keys(self, source: ColumnSource) -> Iterator[KeysAndRows]:
        return read_keys(source)

    def pack(self, fields: Sequence[pa.Field], parts: Sequence[KeysAndRows]) -> IndexPayload:
        return IndexPayload(payload.to_bytes(fields[0].type, parts), sum(len(rows) for _, rows in parts))

    def unpack(self, data: bytes, fields: Sequence[pa.Field], file_rows: int) -> list[KeysAndRows]:
        return payload.from_bytes(data, fields[0].type, file_rows)

    def declaration(self, fields: Sequence[pa.Field]) -> dict[str, Any]:
        return {"type": str(fields[0].type)}
