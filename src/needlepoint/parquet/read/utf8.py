"""Strings must be UTF-8. pyarrow passes on any bytes, and other libraries crash on them or read out of bounds.

>>> wrong = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\\xff"]).buffers())
>>> check_texts("name", pa.chunked_array([wrong]))
Traceback (most recent call last):
    ...
needlepoint.parquet.read.utf8.NotText: column 'name' has strings that are not UTF-8
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from needlepoint.errors import NotParquet

HINT = "Write it again with valid text, or with the column as binary."


class NotText(ValueError):
    """A string column has bytes that are not UTF-8."""


def holds_text(type: pa.DataType) -> bool:
    """Whether values of the type are strings, or hold some.

    >>> holds_text(pa.list_(pa.struct({"a": pa.large_string()}))), holds_text(pa.binary())
    (True, False)
    """
    if isinstance(type, pa.BaseExtensionType):
        return holds_text(type.storage_type)
    if pa.types.is_dictionary(type):
        return holds_text(type.value_type)
    if pa.types.is_nested(type):
        return any(holds_text(type.field(number).type) for number in range(type.num_fields))
    return _is_text(type)


def _is_text(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type))


def check_texts(name: str, column: pa.ChunkedArray) -> None:
    """NotText when a string in the column is not UTF-8. Other types pass."""
    try:
        if _is_text(column.type):
            column.validate(full=True)
        elif holds_text(column.type):
            for chunk in column.chunks:
                for texts in _texts(chunk):
                    texts.validate(full=True)
    except pa.ArrowInvalid:
        raise NotText(f"column '{name}' has strings that are not UTF-8") from None


def check_file_texts(path: str, table: pa.Table) -> None:
    """NotParquet, with path and column, when a string read from a file is not UTF-8."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            check_texts(name, column)
        except NotText as error:
            raise not_text(path, error) from None


def not_text(path: str, error: NotText) -> NotParquet:
    return NotParquet(path, str(error), hint=HINT)


def _texts(array: pa.Array) -> Iterator[pa.Array]:
    """The strings inside an array, without what only its whole buffers hold."""
    type = array.type
    if isinstance(type, pa.BaseExtensionType):
        yield from _texts(array.storage)
    elif pa.types.is_dictionary(type):
        # Not the dictionary: it may be large, and the rows few.
        yield from _texts(array.dictionary_decode())
    elif pa.types.is_struct(type):
        for child in array.flatten():
            yield from _texts(child)
    elif pa.types.is_map(type):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        for child in (array.keys, array.items):  # of the whole buffers
            yield from _texts(child.slice(first, last - first))
    elif pa.types.is_nested(type):  # lists of all kinds
        yield from _texts(array.flatten())
    elif _is_text(type):
        yield array
