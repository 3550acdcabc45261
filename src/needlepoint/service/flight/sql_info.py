"""What the server can do, as the command GetSqlInfo of Flight SQL describes it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

import needlepoint

# The kinds of values, in the order of the union's type codes.
_VALUES = pa.dense_union(
    [
        pa.field("string_value", pa.string()),
        pa.field("bool_value", pa.bool_()),
        pa.field("bigint_value", pa.int64()),
        pa.field("int32_bitmask", pa.int32()),
        pa.field("string_list", pa.list_(pa.string())),
        pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
    ]
)
SCHEMA = pa.schema([pa.field("info_name", pa.uint32(), False), pa.field("value", _VALUES, False)])
_STRING, _BOOL, _INT32 = 0, 1, 3

# FlightSql.proto, enum SqlInfo
_INFO: dict[int, tuple[int, str | bool | int]] = {
    0: (_STRING, "Needlepoint"),
    1: (_STRING, needlepoint.__version__),
    2: (_STRING, pa.__version__),
    3: (_BOOL, True),  # read only
    4: (_BOOL, True),  # SQL
    5: (_BOOL, False),  # Substrait
    8: (_INT32, 0),  # transactions: none
    9: (_BOOL, False),  # the action CancelQuery, which CancelFlightInfo replaces
    500: (_BOOL, False),  # creates catalogs
    501: (_BOOL, False),  # creates schemas
    502: (_BOOL, False),  # creates tables
    503: (_INT32, 3),  # unquoted names are lowercase
    504: (_STRING, '"'),
    505: (_INT32, 0),  # of quoted names: there is no number for case sensitive
    506: (_BOOL, True),  # all tables can be selected
    507: (_INT32, 0),  # NULLs are sorted high
}


def sql_info(asked: Iterable[int] = ()) -> pa.Table:
    """The asked facts, or all."""
    codes = [code for code in asked or _INFO if code in _INFO]
    kinds = np.array([_INFO[code][0] for code in codes], np.int8)
    children = [
        pa.array([_INFO[code][1] for code in codes if _INFO[code][0] == kind], field.type)
        for kind, field in enumerate(_VALUES)
    ]
    offsets = np.zeros(len(codes), np.int32)
    for kind in range(len(children)):
        offsets[kinds == kind] = np.arange(np.count_nonzero(kinds == kind))
    names = [field.name for field in _VALUES]
    values = pa.UnionArray.from_dense(pa.array(kinds, pa.int8()), pa.array(offsets, pa.int32()), children, names)
    return pa.Table.from_arrays([pa.array(codes, pa.uint32()), values], schema=SCHEMA)
