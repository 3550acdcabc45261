"""What was read by page and what DataFusion scans natively, joined into one table for it."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import datafusion
import pyarrow as pa

from needlepoint.errors import FileChanged, Unfinished
from needlepoint.objects import Identity, identify_all
from needlepoint.parquet.format.validation import ensure_sound
from needlepoint.query.datafusion.native_scan import NativeScans
from needlepoint.query.scan.scan_plan import ScanPlan
from needlepoint.query.sql.statements import quoted
from needlepoint.tables.formats.table_formats import is_external
from needlepoint.tables.listing import list_files
from needlepoint.tables.model import File

# Above this many partitions one native listing of the directory is planned faster than an arm for each.
MOST_ARMS = 16
# A listing tells of 1,000 objects in a tenth of a second, one request after the other; a request for a single object
# takes a third of that, with 32 on their way at once. From this share of a table on, listing it is quicker.
SHARE_WORTH_A_LISTING = 0.1
FILES_WORTH_A_LISTING = 32


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
    """One DataFrame with the table's schema that holds what the plan lets through. With `barrier`, DataFusion's
    physical plan pushes no filter into it."""
    arms, listed = _native_arms(scan, natives, context)
    # The partition columns of an arm are literals. DataFusion 55 drops constants from GROUP BY, and then has a group of
    # no rows; and from the keys of ORDER BY … LIMIT in each arm, while the arms share a filter. A column that is not a
    # literal in one arm, even one without rows, is constant in none.
    constant = not listed and not scan.columns.isdisjoint(scan.snapshot.table.partitions)
    if pages is not None or constant or not arms:
        arms.append(page_arm(scan, pages if pages is not None else scan.snapshot.table.schema.empty_table(), context))
    frame = arms[0]
    for arm in arms[1:]:
        frame = frame.union(arm)
    frame = _behind_barrier(frame, scan.snapshot.table.schema.names, context) if barrier else frame
    return TableFrame(frame, listed)


def page_arm(scan: ScanPlan, pages: pa.Table, context: datafusion.SessionContext) -> datafusion.DataFrame:
    """The rows that were read by page."""
    frame = context.read_batches(pages.to_batches() or [empty_batch(pages.schema)])
    return _selected(scan, frame, {}) if scan.zeros else frame


def _behind_barrier(
    frame: datafusion.DataFrame, columns: Sequence[str], context: datafusion.SessionContext
) -> datafusion.DataFrame:
    """The frame times one row. The logical plan pushes the query's filters through a cross join, with their columns
    resolved; the physical plan, which maps them by name alone (plan_facts.py), pushes none. That the row is filtered
    hides how many rows there are: of exact counts DataFusion 55 makes results, also where an aggregate has a filter."""
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
    """The native scans of all files, and whether it is one of the whole directory."""
    if not scan.scanned:
        return [], False
    if not scan.remote:  # there the check costs requests, and the one after the scan finds the same
        check_present(scan)
    check_sound(scan)
    groups = arms(scan)
    whole = len(scan.scanned) == len(scan.snapshot.files)
    if len(groups) > MOST_ARMS and whole and scan.snapshot.listable and scan.may_list and not scan.held:
        table = scan.snapshot.table
        columns = [(name, table.schema.field(name).type) for name in table.partitions]
        frame = natives.scan(context, table.data_schema, [f"{table.location}/"], columns)
        return [_selected(scan, frame, {}) if scan.unprunable else frame], True
    return [native_arm(scan, files, natives, context) for files in groups], False


def arms(scan: ScanPlan) -> list[list[File]]:
    """Files to scan with the same values of the partition columns that the query uses share an arm."""
    used = [name for name in scan.snapshot.table.partitions if name in scan.columns]
    snapshot = scan.snapshot
    shared: dict[str, list[File]] = {}
    for file in scan.scanned:
        shared.setdefault(snapshot.partition(file) if used else "", []).append(file)
    groups: dict[tuple[str, ...], list[File]] = {}
    for partition, files in shared.items():
        # As text: minus zero is not zero.
        values = tuple(repr(snapshot.partitions[partition][name].as_py()) for name in used)
        groups.setdefault(values, []).extend(files)
    return list(groups.values())


def native_arm(
    scan: ScanPlan, files: Sequence[File], natives: NativeScans, context: datafusion.SessionContext
) -> datafusion.DataFrame:
    """The native scan of the files of one arm, beside the values of its partition.

    They are literals, unless a condition compares them with another column. Of `p = id AND id = 4` DataFusion 55 makes
    `4 = id AND id = 4`, and takes that for FALSE; of `id >= 4 AND id > p` it forgets the second part. Then they are the
    columns of one row, which the arm is joined with.
    """
    table = scan.snapshot.table
    frame = natives.scan(context, table.data_schema, [scan.source(file) for file in files])
    if not table.partitions:
        return _selected(scan, frame, {}) if scan.unprunable else frame
    fixed = scan.snapshot.partition_values(files[0])
    if not scan.constants:
        values = {name: pa.array([fixed[name].as_py()], table.schema.field(name).type) for name in table.partitions}
        one = context.read_batches([pa.RecordBatch.from_pydict(values)])
        return _selected(scan, one.join_on(frame), {})
    return _selected(scan, frame, {name: fixed[name] if name in scan.columns else None for name in table.partitions})


def _selected(
    scan: ScanPlan, frame: datafusion.DataFrame, fixed: Mapping[str, pa.Scalar | None]
) -> datafusion.DataFrame:
    """The table's columns in order. `unprunable` ones are hidden from DataFusion's pruning (see engine.py), and in
    those of `zeros` every zero is this one."""
    expressions = []
    for column in scan.snapshot.table.schema:
        name = quoted(column.name)
        if column.name in fixed:
            value = fixed[column.name]
            literal = _null() if value is None or not value.is_valid else datafusion.lit(value)
            expression = literal.cast(column.type)
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
    """The same numbers, in which every zero is this one: -0.0 + 0.0 is 0.0, and all other numbers stay."""
    plus = datafusion.lit(0.0).cast(type)
    if math.copysign(1, zero) > 0:
        return expression + plus
    minus = datafusion.lit(-1.0).cast(type)
    return (expression * minus + plus) * minus


@functools.cache
def _null() -> datafusion.Expr:
    return datafusion.lit(None)  # a third of a millisecond


def check_present(scan: ScanPlan) -> None:
    """DataFusion passes over missing and empty files of a list in silence: called before a scan and after it."""
    for file, now in zip(scan.scanned, _identities(scan), strict=True):
        if now != file.identity:
            raise FileChanged(scan.path(file), "changed or went away")
        if not file.identity.size:
            raise Unfinished(
                scan.path(file), "the file is empty", hint="Its writer has not finished, or died; write it again."
            )


def check_sound(scan: ScanPlan) -> None:
    """DataFusion believes what a footer says, and may end the process over it: called before a scan. A file with a card
    was looked at when the card was made."""
    for file in scan.scanned:
        if not file.has_card:
            try:
                ensure_sound(scan.path(file), file.identity)
            except FileNotFoundError:
                raise FileChanged(scan.path(file), "is gone") from None


def _identities(scan: ScanPlan) -> Sequence[Identity | None]:
    """Of the files that are scanned, as they are now; those that are held are what they were."""
    if not scan.held:
        return _at_their_paths(scan, scan.scanned)
    for held in scan.held.values():
        held.check()
    others = [file for file in scan.scanned if file.path not in scan.sources]
    found = dict(zip([file.path for file in others], _at_their_paths(scan, others), strict=True))
    return [found.get(file.path) if file.path in found else file.identity for file in scan.scanned]


def _at_their_paths(scan: ScanPlan, files: Sequence[File]) -> Sequence[Identity | None]:
    wanted, known = len(files), len(scan.snapshot.files)
    own = not is_external(scan.snapshot.table.format)  # listings pass over names that a log may well have
    if scan.remote and own and wanted > max(FILES_WORTH_A_LISTING, known * SHARE_WORTH_A_LISTING):
        listed = list_files(scan.snapshot.table.location).files
        return [listed.get(file.path) for file in files]
    return identify_all([scan.path(file) for file in files])
