"""`table.get`: rows by key without SQL."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.errors import UnknownName, UsageError
from needlepoint.query.cache.table_state import TableState
from needlepoint.query.engine import Engine
from needlepoint.query.point_lookup import PointLookup
from needlepoint.query.result import Result
from needlepoint.query.running import Limits, RunningQuery
from needlepoint.query.sql.parameters import check_parameters
from needlepoint.query.sql.statements import quoted

_INT64, _RANGE = pa.int64(), range(-(1 << 63), 1 << 63)


def get_rows(
    engine: Engine,
    name: str,
    keys: Mapping[str, Any],
    columns: Sequence[str] | None,
    in_order: bool,
    running: RunningQuery,
) -> Result:
    """The rows with these values; with `in_order`, in the order of the first key's values."""
    visible = running.limits.tables
    if visible is not None and name not in visible:
        raise UnknownName("table", name, visible)
    if not keys:
        raise UsageError("get needs at least one key.", hint="For example get(product_id=384209819).")
    columns = [columns] if isinstance(columns, str) else columns
    if columns is not None and len(set(columns)) < len(columns):
        twice = next(column for column in columns if list(columns).count(column) > 1)
        raise UsageError(f"column '{twice}' is named twice.", hint="Name each column once.")
    if not in_order:
        return engine.with_replan(lambda first: _get_once(engine, name, keys, columns, running, first))
    table = engine.state(name).snapshot.table
    wanted = list(columns) if columns is not None else table.schema.names
    first = next(iter(keys))
    with_key = [*wanted, *([] if first in wanted else [first])]
    found = engine.with_replan(lambda first: _get_once(engine, name, keys, with_key, running, first))
    rows = _ordered(found.to_arrow(), first, _values(table.field(first), keys[first]))
    return Result(rows.select(wanted), found.make_report, found.count_bytes)


def get_at_once(
    engine: Engine,
    state: TableState,
    keys: Mapping[str, Any],
    columns: Sequence[str] | None,
    limits: Limits,
) -> Result | None:
    """The rows with these values, if that takes a millisecond or two. Else None, also where `get` reports an error."""
    if len(keys) != 1:
        return None
    fields, wanted = state.fields, tuple(state.fields) if columns is None else tuple(columns)
    ((column, value),) = keys.items()
    if not fields.keys() >= {column, *wanted} or len(set(wanted)) < len(wanted):
        return None
    values = _values(fields[column], value)
    if pa.types.is_nested(values.type) or pa.types.is_floating(values.type):
        return None
    return engine.checked_at_once(PointLookup(state.snapshot.table.name, wanted, {column: values}), state, limits)


def _get_once(
    engine: Engine,
    name: str,
    keys: Mapping[str, Any],
    columns: Sequence[str] | None,
    running: RunningQuery,
    may_list: bool,
) -> Result:
    state = engine.state(name)
    fields = state.fields
    wanted = tuple(fields) if columns is None else tuple(columns)
    for column in (*wanted, *keys):
        if column not in fields:
            state.snapshot.table.field(column)  # raises UnknownName
    lookup = PointLookup(name, wanted, {column: _values(fields[column], value) for column, value in keys.items()})
    for column, array in lookup.values.items():
        if pa.types.is_nested(array.type):
            raise UsageError(f"column '{column}' is {array.type}, which has no equality.")
    if any(pa.types.is_floating(array.type) for array in lookup.values.values()):  # NaN equals nothing, 0.0 is -0.0
        query, parameters = _as_sql(lookup)
        return engine.run_sql(query, parameters, True, running)
    found = engine.lookups.run(lookup, state)
    if not isinstance(found, Result):
        query, parameters = _as_sql(lookup)
        return engine.queries.run_planned(query, parameters, lookup, state, replace(found, may_list=may_list), running)
    running.limits.check_rows(len(found))
    return found


def _as_sql(lookup: PointLookup) -> tuple[str, Mapping[str, Any] | None]:
    """The query of a lookup, and its parameters."""
    conditions: list[str] = []
    parameters: dict[str, Any] = {}
    for position, (column, array) in enumerate(lookup.values.items()):
        if pa.types.is_integer(array.type):
            listed = ", ".join(map(str, array.to_pylist()))  # faster to parse than as many parameters
            conditions.append(f"{quoted(column)} IN ({listed})" if len(array) else "FALSE")
            continue
        if pa.types.is_floating(array.type):
            # In lists of four and more values DataFusion 55 distinguishes -0.0 from 0.0.
            zeros = pa.array([0.0, -0.0] if 0.0 in array.to_pylist() else [], array.type)
            array = pa.concat_arrays([array, zeros])
        names = [f"p{position}_{number}" for number in range(len(array))]
        parameters |= dict(zip(names, array, strict=True))
        marks = ", ".join(f"${name}" for name in names)
        conditions.append(f"{quoted(column)} IN ({marks})" if names else "FALSE")
    selected, table = ", ".join(map(quoted, lookup.columns)), quoted(lookup.table)
    query = f"SELECT {selected} FROM {table} WHERE {' AND '.join(conditions)}"
    return query, check_parameters(query, parameters)


def _values(field: pa.Field, value: Any) -> pa.Array:
    """One value or a list of values as an array of the column's type; NULL equals nothing."""
    if type(value) is int and field.type == _INT64 and value in _RANGE:  # the commonest by far
        return pa.array([value], _INT64)
    if isinstance(value, pa.Array) and value.type == field.type and not value.null_count:
        return value
    if isinstance(value, pa.Array | pa.ChunkedArray):
        several = value.to_pylist()
    elif isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        several = [value]
    else:
        several = list(value)
        if field.type == _INT64 and {*map(type, several)} == {int}:
            with contextlib.suppress(OverflowError):  # else the values that fit are looked up
                return pa.array(several, _INT64)
    several = [each.item() if isinstance(each, np.generic) else each for each in several]
    try:
        fitting = [each for each in several if each is not None and not _is_no_time(each)]
        fitting = [_in_zone(each, field.type) for each in fitting if _fits(each, field.type)]
        return pa.array(fitting, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"{value!r} is not a value of column '{field.name}', which is {field.type}.", hint=str(error)
        ) from None


def _is_no_time(value: Any) -> bool:
    """pandas' NaT, which equals nothing, like NULL."""
    return isinstance(value, datetime.datetime) and bool(value != value)


def _in_zone(value: Any, type: pa.DataType) -> Any:
    """A time without a zone is in the column's zone, as in SQL. Arrow would assume UTC."""
    zoned = pa.types.is_timestamp(type) and type.tz is not None
    if not zoned or not isinstance(value, datetime.datetime) or value.tzinfo is not None:
        return value
    return pc.assume_timezone(pa.scalar(value, pa.timestamp(type.unit)), type.tz)


def _fits(value: Any, type: pa.DataType) -> bool:
    """Whether the type can hold the exact value. Arrow would truncate it and find another value; 7.5 equals no integer,
    and 2 ** 70 no 64-bit integer."""
    if pa.types.is_integer(type) and isinstance(value, int):
        signed = bool(pa.types.is_signed_integer(type))
        bits: int = type.bit_width
        return -(1 << (bits - 1)) * signed <= value < 1 << (bits - signed)
    if pa.types.is_integer(type) and isinstance(value, float | decimal.Decimal):
        return math.isfinite(value) and value == int(value)
    if isinstance(value, datetime.datetime):
        if pa.types.is_date32(type):
            return value.time() == datetime.time()
        if pa.types.is_timestamp(type):
            return value.microsecond % {"s": 1_000_000, "ms": 1_000}.get(type.unit, 1) == 0
    return True


def _ordered(rows: pa.Table, column: str, values: pa.Array) -> pa.Table:
    """Rows in the order of these values of the column."""
    places = pc.index_in(rows.column(column), values)
    return rows.take(pc.sort_indices(pa.table({"place": places}), sort_keys=[("place", "ascending")]))
