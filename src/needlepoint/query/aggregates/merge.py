"""Puts the parts of an aggregate together, and runs what the query does with its rows.

known      tenant a: 40, tenant b: 2        from indexes
read       tenant b: 5                      the same aggregate over the files that are left
merged     tenant a: 40, tenant b: 7        counts are added; of least values the least counts
above      HAVING, ORDER BY, LIMIT, projections, by DataFusion over these rows
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import datafusion
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import functions

from needlepoint.query.aggregates.facts import part_names
from needlepoint.query.aggregates.known import KnownPart
from needlepoint.query.datafusion.final_sort import ordered, with_equal_zeros
from needlepoint.query.sql.join_edges import unnamed
from needlepoint.query.sql.statements import quoted
from needlepoint.query.sql.table_aggregate import Function, TableAggregate, output_names

# How the results of parts become one.
_MERGED = {"count": "sum", "min": "min", "max": "max"}
_WHOLE = {"count": lambda column: pc.fill_null(pc.sum(column), 0), "min": pc.min, "max": pc.max}
_ONLY = "part"


def read_part(context: datafusion.SessionContext, aggregate: TableAggregate) -> datafusion.DataFrame:
    """The same aggregate over a table that has only the rows that are left to read."""
    frame = context.table(aggregate.table)
    if aggregate.condition is not None:
        frame = frame.filter(datafusion.Expr(aggregate.condition))
    names = part_names(aggregate)
    keys = [_column(aggregate, key).alias(name) for key, name in zip(aggregate.keys, names, strict=False)]
    results = [
        _call(aggregate, function).alias(name)
        for function, name in zip(aggregate.functions, names[len(keys) :], strict=True)
    ]
    return frame.aggregate(keys, results)


def _column(aggregate: TableAggregate, name: str) -> datafusion.Expr:
    return datafusion.col(f"{quoted(aggregate.table)}.{quoted(name)}")


def _call(aggregate: TableAggregate, function: Function) -> datafusion.Expr:
    argument = datafusion.lit(1) if function.column is None else _column(aggregate, function.column)
    call: datafusion.Expr = getattr(functions, function.name)(argument)
    return call


def merged(known: KnownPart, read: Sequence[pa.RecordBatch]) -> pa.Table:
    """The rows of the aggregate."""
    aggregate = known.aggregate
    schema, names = known.groups.schema, part_names(aggregate)
    parts = [known.groups, *(part.group for part in known.parts.values())]
    parts += [pa.Table.from_batches([batch]).rename_columns(names).cast(schema) for batch in read]
    together = pa.concat_tables(parts)
    keys, results = names[: len(aggregate.keys)], names[len(aggregate.keys) :]
    if not keys:
        found = zip(results, aggregate.functions, strict=True)
        whole = [_WHOLE[function.name](together.column(name)) for name, function in found]
        return pa.Table.from_arrays([pa.array([each.as_py()], each.type) for each in whole], schema=schema)
    how = [(name, _MERGED[each.name]) for name, each in zip(results, aggregate.functions, strict=True)]
    groups = together.group_by(keys, use_threads=False).aggregate(how)
    return groups.select([*keys, *(f"{name}_{way}" for name, way in how)]).rename_columns(names).cast(schema)


def above(context: datafusion.SessionContext, known: KnownPart, groups: pa.Table) -> list[Any]:
    """What the query does with the rows of the aggregate, in batches."""
    aggregate = known.aggregate
    if aggregate.limit is not None:
        skip, most = aggregate.limit
        rows = max(0, min(groups.column(0)[0].as_py() - skip, most))
        return _run_all(aggregate, context.read_batches([pa.record_batch([pa.nulls(rows)], names=[_ONLY])]))
    counts = [False] * len(aggregate.keys) + [function.name == "count" for function in aggregate.functions]
    fields = [field.with_nullable(not is_count) for field, is_count in zip(groups.schema, counts, strict=True)]
    groups = groups.cast(pa.schema(fields)).combine_chunks()
    places = _selected(aggregate)
    if places is not None:
        selected: list[Any] = groups.select(places).to_batches()
        return selected
    frame = context.read_batches(groups.to_batches() or [_empty(groups.schema)])
    relation, columns = _ONLY, []
    for (owner, name), part in zip(output_names(aggregate.node), groups.column_names, strict=True):
        relation = owner or relation
        columns.append((owner, name, part))
    frame = frame.select(
        *(datafusion.col(quoted(part)).alias(part if owner is None else name) for owner, name, part in columns)
    ).alias(relation)
    # Keys keep the name of their relation, as the plan refers to them; results have none.
    frame = frame.select(
        *(
            datafusion.col(f"{quoted(relation)}.{quoted(part)}").alias(name)
            if owner is None
            else datafusion.col(f"{quoted(relation)}.{quoted(name)}")
            for owner, name, part in columns
        )
    )
    return _run_all(aggregate, frame)


def _run_all(aggregate: TableAggregate, frame: datafusion.DataFrame) -> list[Any]:
    for node in aggregate.above:
        frame = _run(node.to_variant(), frame)
    found: list[Any] = frame.collect()
    return found


def _selected(aggregate: TableAggregate) -> list[int] | None:
    """The columns of the aggregate that the query returns, if it does nothing else with them."""
    names = [name if owner is None else f"{owner}.{name}" for owner, name in output_names(aggregate.node)]
    places = list(range(len(names)))
    for node in aggregate.above:
        variant = node.to_variant()
        if type(variant).__name__ != "Projection":
            return None
        columns = [unnamed(unnamed(each)) for each in variant.projections()]
        if any(each.variant_name() != "Column" or names.count(each.canonical_name()) != 1 for each in columns):
            return None
        places = [places[names.index(each.canonical_name())] for each in columns]
        names = variant.schema().field_names()
    return places if len(set(places)) == len(places) else None


def _run(node: Any, frame: datafusion.DataFrame) -> datafusion.DataFrame:
    match type(node).__name__:
        case "Projection":
            return frame.select(*map(datafusion.Expr, node.projections()))
        case "Filter":
            return frame.filter(datafusion.Expr(node.predicate()))
        case "Aggregate":
            keys, results = node.group_by_exprs(), node.aggregate_exprs()
            return frame.aggregate([*map(datafusion.Expr, keys)], [*map(datafusion.Expr, results)])
        case "SubqueryAlias":
            return frame.alias(node.alias())
        case "Sort":
            keys, most = node.sort_exprs(), node.get_fetch_val()
            frame = frame.sort(*ordered(with_equal_zeros(frame, keys), keys))
            return frame if most is None else frame.limit(most)
        case "Limit":
            skip, most = (None if each is None else each.python_value().as_py() for each in (node.skip(), node.fetch()))
            return frame.limit(2**62 if most is None else most, skip or 0)
    raise AssertionError(type(node))


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in schema], schema=schema)
