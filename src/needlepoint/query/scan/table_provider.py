"""Joins page reads and native scans into one table for DataFusion."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import datafusion
import pyarrow as pa

from needlepoint.errors import FileChanged, Unfinished
from needlepoint.objects import Identity, identify_all
from needlepoint.parquet.format import ensure_sound
from needlepoint.predicate import Compare, IsNull, Or, Predicate
from needlepoint.query.datafusion.native_scan import NativeScans, viewed, with_views
from needlepoint.query.scan.late_materialization import scalar_of
from needlepoint.query.scan.scan_plan import ScanPlan, ScoreAtLeast
from needlepoint.query.sql.statements import quoted, text_literal
from needlepoint.tables import File, list_files
from needlepoint.tables.formats import is_external

# With more partitions than this, one native scan of the directory is planned faster than an arm for each.
MOST_ARMS = 16
# A listing returns 1,000 objects in a tenth of a second, one request after the other. A request for a single object
# takes a third of that, 32 at once. Above this share of a table, a listing is faster.
SHARE_WORTH_A_LISTING = 0.1
FILES_WORTH_A_LISTING = 32


_Compared = Callable[[datafusion.Expr, datafusion.Expr], datafusion.Expr]
_COMPARED: Mapping[str, _Compared] = {">=": operator.ge, "<=": operator.le, "<": operator.lt}


@dataclass(frozen=True, slots=True)
class TableFrame:
    """A table for DataFusion, and whether it lists the directory while it runs."""

    frame: datafusion.DataFrame
    listed: bool


def as_frame(
    scan: ScanPlan,
    pages: pa.Table | None,
    natives: NativeScans,
    context: datafusion.SessionContext,
    barrier: bool = False,
) -> TableFrame:
    """One DataFrame with the table's schema and the rows of the plan. With `barrier`, DataFusion's physical plan pushes
    no filter into it."""
    arms, listed = _native_arms(scan, natives, context)
    # The partition columns of an arm are literals. DataFusion 55 drops constants from GROUP BY, and then returns a
    # group without rows. It also drops them from the keys of ORDER BY … LIMIT in each arm, while the arms share a
    # filter. A column that is not a literal in one arm, even in one without rows, is constant in none.
    constant = not listed and not scan.columns.isdisjoint(scan.snapshot.table.partitions)
    if pages is not None or constant or not arms:
        arms.append(page_arm(scan, pages if pages is not None else scan.snapshot.table.schema.empty_table(), context))
    frame = arms[0]
    for arm in arms[1:]:
        frame = frame.union(arm)
    if scan.only is not None:
        frame = frame.filter(_as_condition(scan.only, frame, scan.snapshot.table.schema))
    frame = _behind_barrier(frame, scan.snapshot.table.schema.names, context) if barrier else frame
    return TableFrame(frame, listed)


def _as_condition(
    condition: Predicate | ScoreAtLeast, frame: datafusion.DataFrame, schema: pa.Schema
) -> datafusion.Expr:
    """A condition of top_rows.py or ranked_rows.py for DataFusion."""
    match condition:
        case ScoreAtLeast():
            score = frame.parse_sql_expr(f"score({quoted(condition.column)}, {text_literal(condition.query)})")
            return score >= datafusion.lit(condition.floor)
        case Compare(name, sign, value):
            literal = datafusion.lit(scalar_of(value, schema.field(name).type))
            return _COMPARED[sign](_column(name), literal)
        case IsNull(name):
            return _column(name).is_null()
        case Or((first, *others)):
            found = _as_condition(first, frame, schema)
            for each in others:
                found = found | _as_condition(each, frame, schema)
            return found
    raise ValueError(condition)


def page_arm(scan: ScanPlan, pages: pa.Table, context: datafusion.SessionContext) -> datafusion.DataFrame:
    """The rows that were read by page."""
    pages = pages.cast(_schema(scan, pages.schema))
    frame = context.read_batches(pages.to_batches() or [empty_batch(pages.schema)])
    return _selected(scan, frame, {}) if scan.zeros else frame


def _schema(scan: ScanPlan, schema: pa.Schema) -> pa.Schema:
    return with_views(schema) if scan.views else schema


def _behind_barrier(
    frame: datafusion.DataFrame, columns: Sequence[str], context: datafusion.SessionContext
) -> datafusion.DataFrame:
    """The frame joined with one row. The logical plan pushes the query's filters through a cross join with resolved
    columns; the physical plan, which maps them by name only (plan_facts.py), pushes none. The filter on the row hides
    the row count: DataFusion 55 computes aggregates from exact counts, even where an aggregate has a filter."""
    one = context.read_batches([pa.RecordBatch.from_arrays([pa.array([True])], ["one"])])
    one = one.filter(datafusion.col("one")).select(datafusion.col("one").alias(_free(columns)))
    return one.join_on(frame).select(*map(_column, columns))


def _free(columns: Sequence[str]) -> str:
    name = "one"
    while name in columns:
        name += "_"
    return name


def _column(name: str) -> datafusion.Expr:
    return datafusion.col(quoted(name))


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], column.type) for column in schema], schema=schema)


def _native_arms(
    scan: ScanPlan, natives: NativeScans, context: datafusion.SessionContext
) -> tuple[list[datafusion.DataFrame], bool]:
    """The native scans, and whether they are one scan of the whole directory."""
    if not scan.scanned:
        return [], False
    check_before(scan)
    groups = arms(scan)
    whole = len(scan.scanned) == len(scan.snapshot.files)
    if len(groups) > MOST_ARMS and whole and scan.snapshot.listable and scan.may_list and not scan.held:
        table = scan.snapshot.table
        columns = [(name, table.schema.field(name).type) for name in table.partitions]
        frame = natives.scan(context, _schema(scan, table.data_schema), [f"{table.location}/"], columns)
        return [_selected(scan, frame, {}) if scan.unprunable else frame], True
    return [native_arm(scan, files, natives, context) for files in groups], False


def arms(scan: ScanPlan) -> list[list[File]]:
    """Groups of files to scan that share the partition values that the query uses."""
    used = [name for name in scan.snapshot.table.partitions if name in scan.columns]
    snapshot = scan.snapshot
    shared: dict[str, list[File]] = {}
    for file in scan.scanned:
        shared.setdefault(snapshot.partition(file) if used else "", []).append(file)
    groups: dict[tuple[str, ...], list[File]] = {}
    for partition, files in shared.items():
        # Compared as text: -0.0 and 0.0 differ.
        values = tuple(repr(snapshot.partitions[partition][name].as_py()) for name in used)
        groups.setdefault(values, []).extend(files)
    return list(groups.values())


def native_arm(
    scan: ScanPlan, files: Sequence[File], natives: NativeScans, context: datafusion.SessionContext
) -> datafusion.DataFrame:
    """The native scan of the files of one arm, with its partition values.

    The values are literals, unless a condition compares them with another column. DataFusion 55 turns `p = id AND
    id = 4` into `4 = id AND id = 4`, and that into FALSE; of `id >= 4 AND id > p` it drops the second part. In that
    case the values are the columns of one row, which is joined with the arm.
    """
    table = scan.snapshot.table
    schema = _schema(scan, _filled(table.data_schema, scan.filled))
    frame = natives.scan(context, schema, [scan.source(file) for file in files])
    if not table.partitions:
        return _selected(scan, frame, {}) if scan.unprunable else frame
    fixed = scan.snapshot.partition_values(files[0])
    if not scan.constants:
        types = _schema(scan, table.schema)
        values = {name: pa.array([fixed[name].as_py()], types.field(name).type) for name in table.partitions}
        one = context.read_batches([pa.RecordBatch.from_pydict(values)])
        return _selected(scan, one.join_on(frame), {})
    return _selected(scan, frame, {name: fixed[name] if name in scan.columns else None for name in table.partitions})


def _filled(schema: pa.Schema, columns: frozenset[str]) -> pa.Schema:
    """The schema that tells DataFusion that these columns have no NULL."""
    fields = [field.with_nullable(field.nullable and field.name not in columns) for field in schema]
    return pa.schema(fields, schema.metadata)


def _selected(
    scan: ScanPlan, frame: datafusion.DataFrame, fixed: Mapping[str, pa.Scalar | None]
) -> datafusion.DataFrame:
    """The table's columns in order. DataFusion's pruning does not see `unprunable` ones (see sql_queries.py); in those
    of `zeros`, every zero becomes the given one."""
    expressions = []
    for column in scan.snapshot.table.schema:
        name = quoted(column.name)
        if column.name in fixed:
            value = fixed[column.name]
            literal = _null() if value is None or not value.is_valid else datafusion.lit(value)
            expression = literal.cast(viewed(column.type) if scan.views else column.type)
        elif column.name in scan.unprunable:
            hide = datafusion.functions.nanvl if pa.types.is_floating(column.type) else datafusion.functions.greatest
            expression = hide(datafusion.col(name), datafusion.col(name))
            if column.name in scan.zeros:
                expression = _with_zeros(expression, scan.zeros[column.name], column.type)
        else:
            expression = datafusion.col(name)
        expressions.append(expression.alias(column.name))
    return frame.select(*expressions)


def _with_zeros(expression: datafusion.Expr, zero: float, type: pa.DataType) -> datafusion.Expr:
    """The same numbers, with every zero replaced by this one: -0.0 + 0.0 is 0.0, and other numbers do not change."""
    plus = datafusion.lit(0.0).cast(type)
    if math.copysign(1, zero) > 0:
        return expression + plus
    minus = datafusion.lit(-1.0).cast(type)
    return (expression * minus + plus) * minus


@functools.cache
def _null() -> datafusion.Expr:
    return datafusion.lit(None)  # takes a third of a millisecond


def check_before(scan: ScanPlan) -> None:
    """Call this before each native scan."""
    if not scan.remote:  # for objects this costs requests, and the check after the scan is enough
        check_present(scan)
    check_sound(scan)


def check_present(scan: ScanPlan) -> None:
    """DataFusion silently skips missing and empty files of a list: call this before and after a scan."""
    for file, now in zip(scan.scanned, _identities(scan), strict=True):
        if now != file.identity:
            raise FileChanged(scan.path(file), "changed or was removed")
        if not file.identity.size:
            raise Unfinished(
                scan.path(file), "the file is empty", hint="Its writer has not finished, or has failed; write it again."
            )


def check_counted(scan: ScanPlan) -> None:
    """The files whose rows are counted and not read must be those of the snapshot. Of objects this would be a request
    each: like objects that are ruled out, they are as of the last listing."""
    if scan.counted and not scan.remote:
        for file, now in zip(scan.counted, identify_all([scan.path(file) for file in scan.counted]), strict=True):
            if now != file.identity:
                raise FileChanged(scan.path(file), "changed or was removed")


def check_sound(scan: ScanPlan) -> None:
    """DataFusion trusts a footer, and a wrong one may crash the process: call this before a scan. A file with a card
    was validated when its card was made."""
    for file in scan.scanned:
        if not file.has_card:
            try:
                ensure_sound(scan.path(file), file.identity)
            except FileNotFoundError:
                raise FileChanged(scan.path(file), "is gone") from None


def _identities(scan: ScanPlan) -> Sequence[Identity | None]:
    """The current identities of the scanned files; held files keep theirs."""
    if not scan.held:
        return _at_their_paths(scan, scan.scanned)
    for held in scan.held.values():
        held.check()
    others = [file for file in scan.scanned if file.path not in scan.sources]
    found = dict(zip([file.path for file in others], _at_their_paths(scan, others), strict=True))
    return [found.get(file.path) if file.path in found else file.identity for file in scan.scanned]


def _at_their_paths(scan: ScanPlan, files: Sequence[File]) -> Sequence[Identity | None]:
    wanted, known = len(files), len(scan.snapshot.files)
    own = not is_external(scan.snapshot.table.format)  # listings skip names that a log may contain
    if scan.remote and own and wanted > max(FILES_WORTH_A_LISTING, known * SHARE_WORTH_A_LISTING):
        listed = list_files(scan.snapshot.table.location).files
        return [listed.get(file.path) for file in files]
    return identify_all([scan.path(file) for file in files])
