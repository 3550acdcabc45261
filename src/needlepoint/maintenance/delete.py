"""Delete rows: files with some of them are rewritten without them, files with nothing else are removed.

    find      which rows of which files, through the indexes
    rewrite   each file into staging, a row group at a time; embedded indexes are embedded again
    swap      one batch adds the new files and removes the old ones (swap.py)

A large delete takes several swaps. When it is killed, finished swaps stay; run again, it deletes the rest.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from needlepoint.errors import FileChanged, TableChanged, UnknownName, UsageError
from needlepoint.maintenance.choose import CompactionSpec, check, of_partition
from needlepoint.maintenance.swap import SWAP_BYTES, MaintenanceContext, Replacement, in_portions, swap
from needlepoint.objects import identify
from needlepoint.parquet.write import form_of, without_rows
from needlepoint.tables import HIVE_NULL, File, StagedFile, Table, plain

if TYPE_CHECKING:  # Spark's tasks import this room, and need no DataFusion: so functions import it
    from needlepoint.query import MatchedRows

MOST_TRIES = 5
DEFAULT_PAGE_ROWS = 20_000  # the default of Spark and pyarrow


@dataclass(frozen=True, slots=True)
class Deletion:
    """What was deleted, or would be: rows, files that were rewritten without them, and files that were removed whole.
    `bytes` is the size of the old files, `new_bytes` of the new ones."""

    rows: int = 0
    rewritten: int = 0
    removed: int = 0
    bytes: int = 0
    new_bytes: int = 0

    def and_also(self, other: Deletion) -> Deletion:
        return Deletion(
            self.rows + other.rows,
            self.rewritten + other.rewritten,
            self.removed + other.removed,
            self.bytes + other.bytes,
            self.new_bytes + other.new_bytes,
        )


def delete(
    context: MaintenanceContext, name: str, where: str, *, dry_run: bool = False, swap_bytes: int = SWAP_BYTES
) -> Deletion:
    """Delete the rows of a table for which a condition is true. Files that change meanwhile are looked at again."""
    from needlepoint.query import find_matches

    context.writer.refuse_removing(name)
    done = Deletion()
    for attempt in range(1, MOST_TRIES + 1):
        context.sync(name)
        try:
            table, found = find_matches(context.engine, name, where)
            for portion in in_portions(found, lambda each: each.file.identity.size, swap_bytes):
                done = done.and_also(_remove(context, table, portion, dry_run))
            return done
        except (FileChanged, TableChanged):
            if attempt == MOST_TRIES:
                raise
            done = Deletion() if dry_run else done
    raise AssertionError  # never reached


def delete_files(context: MaintenanceContext, name: str, paths: Sequence[str], *, dry_run: bool = False) -> Deletion:
    """Delete whole files of a table, by paths with or without the table's location."""
    context.writer.refuse_removing(name)
    context.sync(name)
    table = context.registry.tables.get(name)
    known = {file.path: file for file in context.registry.files.of(table)}
    wanted = dict.fromkeys(path.removeprefix(f"{table.location}/") for path in paths)
    for path in wanted:
        if path not in known:
            raise UnknownName("file", path, known, where=f" in table '{name}'")
    return _remove_files(context, table, [known[path] for path in wanted], dry_run=dry_run)


def drop_partition(
    context: MaintenanceContext, name: str, values: Mapping[str, object], *, dry_run: bool = False
) -> Deletion:
    """Delete the files with these partition values. A value can be None, for the partition of NULL."""
    context.writer.refuse_removing(name)
    if not values:
        raise UsageError("no partition is given.", hint="For example year=2023.")
    context.sync(name)
    table = context.registry.tables.get(name)
    wanted = tuple((key, HIVE_NULL if value is None else str(value)) for key, value in values.items())
    check(table, CompactionSpec(partition=wanted))
    return _remove_files(context, table, of_partition(table, context.registry.files.of(table), wanted), dry_run=dry_run)


def expire(context: MaintenanceContext, name: str, column: str, before: object, *, dry_run: bool = False) -> Deletion:
    """Delete the rows whose column is less than a value."""
    from needlepoint.query import quoted

    context.writer.refuse_removing(name)
    field = context.registry.tables.get(name).field(column)
    type = plain(field.type)
    kinds = (pa.types.is_integer, pa.types.is_date, pa.types.is_timestamp, pa.types.is_string)
    if not any(is_kind(type) for is_kind in kinds):
        raise UsageError(
            f"column '{column}' is {type}.", hint="Rows expire by a date, a timestamp, a number or a text."
        )
    try:
        literal = _literal(before, type)
    except ValueError:
        raise UsageError(f"'{before}' is not a value of column '{column}', which is {type}.") from None
    return delete(context, name, f"{quoted(column)} < {literal}", dry_run=dry_run)


def _literal(value: object, type: pa.DataType) -> str:
    """The SQL literal of a value in a column's type; ValueError when it is not one."""
    if pa.types.is_integer(type):
        return str(int(str(value)))
    if pa.types.is_date(type):
        return f"DATE '{datetime.date.fromisoformat(str(value))}'"
    if not pa.types.is_timestamp(type):
        return "'" + str(value).replace("'", "''") + "'"
    # A date means its first moment; a timestamp without a zone is in UTC.
    moment = datetime.datetime.fromisoformat(str(value).strip())
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    if type.tz is None:
        return f"TIMESTAMP '{moment}'"
    # TIMESTAMP '…Z' would be that local time in the zone of the column.
    return f"arrow_cast('{moment}Z', 'Timestamp(Microsecond, Some(\"UTC\"))')"


def _remove_files(context: MaintenanceContext, table: Table, files: Sequence[File], *, dry_run: bool) -> Deletion:
    if not files:
        return Deletion()
    from needlepoint.query import MatchedRows

    return _remove(context, table, [MatchedRows(file, None) for file in files], dry_run)


def _remove(context: MaintenanceContext, table: Table, found: Sequence[MatchedRows], dry_run: bool) -> Deletion:
    """Remove rows, or whole files, in one swap."""
    partly = [each for each in found if each.rows is not None]
    whole = [each.file for each in found if each.rows is None]
    rows = sum(len(each.rows) for each in partly if each.rows is not None) + sum(file.rows or 0 for file in whole)
    size = sum(each.file.identity.size for each in found)
    for each in partly:
        path = f"{table.location}/{each.file.path}"
        if why := form_of(path, each.file.identity).refused():
            raise UsageError(
                f"{path} cannot be written without some of its rows: {why}.",
                hint="Nothing was changed; rewrite the file by other means, then delete the old one.",
            )
    if dry_run:
        return Deletion(rows, len(partly), len(whole), size)

    def rewrite(staging: Path) -> Replacement:
        staged = [_rewritten(context, table, each, staging, number) for number, each in enumerate(partly)]
        return Replacement(staged, [each.file for each in found])

    made = swap(context, table.name, rewrite)
    return Deletion(rows, len(partly), len(whole), size, sum(file.size for file in made.staged))


def _rewritten(context: MaintenanceContext, table: Table, found: MatchedRows, staging: Path, number: int) -> StagedFile:
    assert found.rows is not None
    file = found.file
    directory = file.path.rpartition("/")[0]
    target = "/".join(filter(None, (str(staging), directory, f"{number:05d}.parquet")))
    card = context.engine.cards.get(file)
    page_rows = card.largest_page() if card is not None else 0
    source = f"{table.location}/{file.path}"
    left = without_rows(source, file.identity, target, found.rows, page_rows or DEFAULT_PAGE_ROWS)
    finisher = context.writer.finisher(table.name)
    size = finisher(target) if finisher is not None else identify(target).size
    return StagedFile(target, directory, size, left, own=True)
