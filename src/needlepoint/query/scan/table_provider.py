"""What was read by page and what DataFusion scans natively, joined into one table for it."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence

import datafusion
import pyarrow as pa

from needlepoint.errors import FileChanged, Unfinished
from needlepoint.objects import Identity, identify_all
from needlepoint.parquet.format.validation import ensure_sound
from needlepoint.query.datafusion.native_scan import NativeScans
from needlepoint.query.scan.scan_plan import Reading
from needlepoint.query.sql.statements import quoted
from needlepoint.tables.formats.table_formats import is_of_others
from needlepoint.tables.listing import list_files
from needlepoint.tables.model import File

# Above this many partitions one native listing of the directory is planned faster than an arm for each.
MOST_ARMS = 16
# A listing tells of 1,000 objects in a tenth of a second, one request after the other; a question for a single object
# takes a third of that, with 32 on their way at once. From this share of a table on, listing it is quicker.
SHARE_WORTH_A_LISTING = 0.1
FILES_WORTH_A_LISTING = 32


def as_frame(
    reading: Reading,
    pages: pa.Table | None,
    natives: NativeScans,
    context: datafusion.SessionContext,
    barrier: bool = False,
) -> datafusion.DataFrame:
    """One DataFrame with the table's schema that holds what the plan lets through. With `barrier`, DataFusion's
    physical plan pushes no filter into it."""
    arms = list(_native_arms(reading, natives, context))
    # The partition columns of an arm are literals. DataFusion 55 drops constants from GROUP BY, and then has a group of
    # no rows; and from the keys of ORDER BY … LIMIT in each arm, while the arms share a filter. A column that is not a
    # literal in one arm, even one without rows, is constant in none.
    constant = not reading.listed and not reading.columns.isdisjoint(reading.snapshot.table.partitions)
    if pages is not None or constant or not arms:
        arms.append(
            page_arm(reading, pages if pages is not None else reading.snapshot.table.schema.empty_table(), context)
        )
    frame = arms[0]
    for arm in arms[1:]:
        frame = frame.union(arm)
    return _behind_barrier(frame, reading.snapshot.table.schema.names, context) if barrier else frame


def page_arm(reading: Reading, pages: pa.Table, context: datafusion.SessionContext) -> datafusion.DataFrame:
    """The rows that were read by page."""
    frame = context.read_batches(pages.to_batches() or [empty_batch(pages.schema)])
    return _selected(reading, frame, {}) if reading.zeros else frame


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
    reading: Reading, natives: NativeScans, context: datafusion.SessionContext
) -> Iterator[datafusion.DataFrame]:
    if not reading.scanned:
        return
    if not reading.remote:  # there the check costs requests, and the one after the scan tells all the same
        check_present(reading)
    check_sound(reading)
    groups = arms(reading)
    whole = len(reading.scanned) == len(reading.snapshot.files)
    if len(groups) > MOST_ARMS and whole and reading.snapshot.listable and reading.may_list and not reading.held:
        reading.listed = True
        table = reading.snapshot.table
        columns = [(name, table.schema.field(name).type) for name in table.partitions]
        frame = natives.scan(context, table.data_schema, [f"{table.location}/"], columns)
        yield _selected(reading, frame, {}) if reading.opaque else frame
        return
    for files in groups:
        yield native_arm(reading, files, natives, context)


def arms(reading: Reading) -> list[list[File]]:
    """Files to scan with the same values of the partition columns that the query uses share an arm."""
    used = [name for name in reading.snapshot.table.partitions if name in reading.columns]
    snapshot = reading.snapshot
    shared: dict[str, list[File]] = {}
    for file in reading.scanned:
        shared.setdefault(snapshot.partition(file) if used else "", []).append(file)
    groups: dict[tuple[str, ...], list[File]] = {}
    for partition, files in shared.items():
        # As text: minus zero is not zero.
        values = tuple(repr(snapshot.partitions[partition][name].as_py()) for name in used)
        groups.setdefault(values, []).extend(files)
    return list(groups.values())


def native_arm(
    reading: Reading, files: Sequence[File], natives: NativeScans, context: datafusion.SessionContext
) -> datafusion.DataFrame:
    """The native scan of the files of one arm, beside the values of its partition.

    They are literals, unless a condition compares them with another column. Of `p = id AND id = 4` DataFusion 55 makes
    `4 = id AND id = 4`, and takes that for FALSE; of `id >= 4 AND id > p` it forgets the second part. Then they are the
    columns of one row, which the arm is joined with.
    """
    table = reading.snapshot.table
    frame = natives.scan(context, table.data_schema, [reading.source(file) for file in files])
    if not table.partitions:
        return _selected(reading, frame, {}) if reading.opaque else frame
    fixed = reading.snapshot.partition_values(files[0])
    if not reading.constants:
        values = {name: pa.array([fixed[name].as_py()], table.schema.field(name).type) for name in table.partitions}
        one = context.read_batches([pa.RecordBatch.from_pydict(values)])
        return _selected(reading, one.join_on(frame), {})
    return _selected(
        reading, frame, {name: fixed[name] if name in reading.columns else None for name in table.partitions}
    )


def _selected(
    reading: Reading, frame: datafusion.DataFrame, fixed: Mapping[str, pa.Scalar | None]
) -> datafusion.DataFrame:
    """The table's columns in order. `opaque` ones are hidden from DataFusion's pruning (see engine.py), and in those of
    `zeros` every zero is this one."""
    expressions = []
    for column in reading.snapshot.table.schema:
        name = quoted(column.name)
        if column.name in fixed:
            value = fixed[column.name]
            literal = _null() if value is None or not value.is_valid else datafusion.lit(value)
            expression = literal.cast(column.type)
        elif column.name in reading.opaque:
            hide = datafusion.functions.nanvl if pa.types.is_floating(column.type) else datafusion.functions.greatest
            expression = hide(datafusion.col(name), datafusion.col(name))
            if column.name in reading.zeros:
                expression = _with_zeros(expression, reading.zeros[column.name], column.type)
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


def check_present(reading: Reading) -> None:
    """DataFusion passes over missing and empty files of a list in silence: called before a scan and after it."""
    for file, now in zip(reading.scanned, _identities(reading), strict=True):
        if now != file.identity:
            raise FileChanged(reading.path(file), "changed or went away")
        if not file.identity.size:
            raise Unfinished(
                reading.path(file), "the file is empty", hint="Its writer has not finished, or died; write it again."
            )


def check_sound(reading: Reading) -> None:
    """DataFusion believes what a footer says, and may end the process over it: called before a scan. A file with a card
    was looked at when the card was made."""
    for file in reading.scanned:
        if not file.has_card:
            try:
                ensure_sound(reading.path(file), file.identity)
            except FileNotFoundError:
                raise FileChanged(reading.path(file), "is gone") from None


def _identities(reading: Reading) -> Sequence[Identity | None]:
    """Of the files that are scanned, as they are now; those that are held are what they were."""
    if not reading.held:
        return _at_their_paths(reading, reading.scanned)
    for held in reading.held.values():
        held.check()
    others = [file for file in reading.scanned if file.path not in reading.sources]
    found = dict(zip([file.path for file in others], _at_their_paths(reading, others), strict=True))
    return [found.get(file.path) if file.path in found else file.identity for file in reading.scanned]


def _at_their_paths(reading: Reading, files: Sequence[File]) -> Sequence[Identity | None]:
    wanted, known = len(files), len(reading.snapshot.files)
    own = not is_of_others(reading.snapshot.table.format)  # listings pass over names that a log may well have
    if reading.remote and own and wanted > max(FILES_WORTH_A_LISTING, known * SHARE_WORTH_A_LISTING):
        listed = list_files(reading.snapshot.table.location).files
        return [listed.get(file.path) for file in files]
    return identify_all([reading.path(file) for file in files])
