"""Numbers and bytes of a Parquet file as a person reads them."""

from __future__ import annotations

import decimal
import math
import struct
from collections.abc import Iterable

import pyarrow as pa

# parquet.thrift: Type, CompressionCodec, Encoding
TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
ENCODINGS = (
    "PLAIN", "GROUP_VAR_INT", "PLAIN_DICTIONARY", "RLE", "BIT_PACKED", "DELTA_BINARY_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "RLE_DICTIONARY", "BYTE_STREAM_SPLIT",
)  # fmt: skip

_INTEGERS = {"INT32": "<i", "INT64": "<q"}
_FLOATS = {"FLOAT": "<f", "DOUBLE": "<d"}

Readable = int | float | str | bool


def name_of(names: tuple[str, ...], number: int) -> str:
    """
    >>> name_of(CODECS, 6), name_of(CODECS, 99)
    ('ZSTD', '99')
    """
    return names[number] if 0 <= number < len(names) else str(number)


def names_of(names: tuple[str, ...], numbers: Iterable[int]) -> tuple[str, ...]:
    return tuple(name_of(names, number) for number in sorted(set(numbers)))


def leaf_types(type: pa.DataType) -> list[pa.DataType]:
    """The types of the primitive values in a field, in the order of its columns.

    >>> leaf_types(pa.map_(pa.string(), pa.list_(pa.int32())))
    [DataType(string), DataType(int32)]
    """
    if isinstance(type, pa.BaseExtensionType):
        inner = leaf_types(type.storage_type)
        return [type] if len(inner) == 1 else inner
    if pa.types.is_dictionary(type):
        return leaf_types(type.value_type)
    if pa.types.is_map(type):
        return leaf_types(type.key_type) + leaf_types(type.item_type)
    if pa.types.is_struct(type):
        return [leaf for child in type.fields for leaf in leaf_types(child.type)]
    if pa.types.is_nested(type) and type.num_fields == 1:
        return leaf_types(type.field(0).type)
    return [type]


def bound(raw: bytes | None, type: pa.DataType, physical_type: str) -> Readable | None:
    """A minimum or maximum from its bytes; hexadecimal digits where they do not fit the type.

    >>> bound(b"\\x01\\x00\\x00\\x00", pa.date32(), "INT32"), bound(b"\\xff", pa.binary(), "BYTE_ARRAY")
    ('1970-01-02', 'ff')
    """
    if raw is None:
        return None
    try:
        return _value(raw, type, physical_type)
    except (struct.error, ValueError, OverflowError, decimal.DecimalException, pa.ArrowException):
        return raw.hex()


def _value(raw: bytes, type: pa.DataType, physical_type: str) -> Readable:
    if pa.types.is_decimal(type) and physical_type != "INT96":
        signed = int.from_bytes(raw, "little" if physical_type in _INTEGERS else "big", signed=True)
        with decimal.localcontext(prec=100):
            return f"{decimal.Decimal(signed).scaleb(-type.scale):f}"
    if physical_type in _FLOATS:
        return _number(struct.unpack(_FLOATS[physical_type], raw)[0])
    if pa.types.is_float16(type):
        return _number(struct.unpack("<e", raw)[0])
    if physical_type == "BOOLEAN":
        return bool(raw[0]) if len(raw) == 1 else raw.hex()
    if physical_type in _INTEGERS:
        return _integer(raw, type, physical_type)
    if isinstance(type, pa.UuidType) and len(raw) == 16:
        digits = raw.hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    if pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type):
        return raw.decode()
    return raw.hex()


def _number(number: float) -> Readable:
    return number if math.isfinite(number) else str(number)


def _integer(raw: bytes, type: pa.DataType, physical_type: str) -> Readable:
    number: int = struct.unpack(_INTEGERS[physical_type], raw)[0]
    if pa.types.is_unsigned_integer(type):
        return number % (1 << 8 * len(raw))
    if not pa.types.is_temporal(type) or pa.types.is_date64(type):
        return number
    stored = pa.array([number], pa.int32() if len(raw) == 4 else pa.int64())
    # Arrow writes all dates there are; Python's end with the year 9999.
    text: str = stored.view(type).cast(pa.string())[0].as_py()
    return text.replace(" ", "T", 1) if pa.types.is_timestamp(type) else text
