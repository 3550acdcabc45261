"""`needle sql`"""

from __future__ import annotations

import io
import os
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from needlepoint.cli.interrupts import ended_by_second_interrupt
from needlepoint.cli.messages import KEPT, UNCHANGED, if_interrupted, say
from needlepoint.cli.options import common_options, open_lake
from needlepoint.cli.query.query_argument import QUERY
from needlepoint.errors import NeedlepointError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from needlepoint.query import Result

FORMATS = ("table", "json", "ndjson", "csv", "arrow", "parquet")


@click.command("sql")
@click.argument("query", type=QUERY)
@click.option("--format", type=click.Choice(FORMATS), help="[default: from the name of --output, else table]")
@click.option("--output", metavar="FILE", help="Write the rows to a file.")
@click.option("--rows", type=click.IntRange(min=0), default=100, show_default=True, help="Most rows a table shows.")
@click.option("--report", is_flag=True, help="Also show on stderr what was read and which indexes were used.")
@common_options
def command(query: str, format: str | None, output: str | None, rows: int, report: bool) -> None:
    """Run a query and show its rows.

    QUERY "-" is read from stdin. CREATE INDEX, DROP INDEX, SHOW INDEXES, CREATE VIEW and DROP VIEW work too,
    and EXPLAIN and EXPLAIN ANALYZE show what `needle explain` shows.

    \b
    Formats:
      table    for people; at most --rows rows, long values cut on a terminal
      json     one array of objects; dates and times ISO 8601, decimals as strings,
               bytes as hexadecimal digits, NaN and infinity null
      ndjson   the same objects, one a line
      csv      with a header; text quoted, NULL empty
      arrow    Arrow's IPC stream
      parquet  one Parquet file

    \b
    Examples:
      needle sql "SELECT title, upc FROM product WHERE product_id = 384209819"
      needle sql --format json "SELECT * FROM product LIMIT 3" | jq .
      needle sql --output cheap.parquet - < cheap.sql
    """
    chosen = format or _format_of(output)
    if chosen in ("arrow", "parquet") and output is None and sys.stdout.isatty():
        raise click.UsageError(f"{chosen} is binary, and this is a terminal. Use --output FILE or a pipe.")
    from needlepoint.query import Explain, parse

    with open_lake() as lake:
        started = time.perf_counter()
        with if_interrupted(lambda: _left(query)):
            with ended_by_second_interrupt() if _left(query) == UNCHANGED else nullcontext():
                result = lake.sql(query)
            elapsed = time.perf_counter() - started
            if output is not None:
                _write_file(result, chosen, output, rows)
            elif chosen == "table" and isinstance(parse(query), Explain):
                say(str(result.report))
            elif chosen == "table":
                _show(result, rows, elapsed)
            else:
                _write(result, chosen, sys.stdout.buffer, rows)
            if report:
                say(str(result.report), err=True)


def _left(query: str) -> str:
    """What an interrupted statement leaves."""
    from needlepoint.query import CreateIndex, Explain, parse

    try:
        statement = parse(query)
    except NeedlepointError:
        return UNCHANGED
    match statement:
        case None | Explain():
            return UNCHANGED
        case CreateIndex():
            return f"`needle status` lists the index if it is declared; {KEPT} Run `needle sync` to continue."
    return "the statement was carried out entirely or not at all."


def _format_of(output: str | None) -> str:
    if output is None:
        return "table"
    suffix = Path(output).suffix.lower().lstrip(".")
    if suffix not in FORMATS:
        raise click.UsageError(f"The name {output} does not imply a format. Use --format.")
    return suffix


def _write_file(result: Result, format: str, output: str, rows: int) -> None:
    from needlepoint.errors import UsageError
    from needlepoint.printable import count

    try:
        with _complete_or_not_at_all(Path(output)) as file:
            written = _write(result, format, file, rows)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror or error}.") from error
    say(f"{count(written, 'row')} written to {output}", err=True)


@contextmanager
def _complete_or_not_at_all(target: Path) -> Iterator[IO[bytes]]:
    """A file that has its name when all of it is written: on a full disk nothing is left, and what was there before
    stays. A pipe or a device is written to as it is."""
    target = target.resolve()
    if target.exists() and not target.is_file():
        with target.open("wb") as stream:
            yield stream
        return
    beside = target.with_name(f".{target.name[:200]}.{uuid.uuid4().hex}")
    try:
        with beside.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            shutil.copymode(target, beside)
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _write(result: Result, format: str, stream: IO[bytes], rows: int) -> int:
    """Write all rows, in bounded memory, and return their number. A table has some of them."""
    from rich.console import Console

    from needlepoint.cli.screen import WIDTH_OF_A_FILE
    from needlepoint.printable import printable_lines
    from needlepoint.row_formats import ENCODERS

    if format == "table":
        text = io.StringIO()
        console = Console(file=text, width=WIDTH_OF_A_FILE, highlight=False, emoji=False, markup=False)
        total = _show_table(result, rows, console)
        stream.write(text.getvalue().encode())
        return total
    written = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal written
        for batch in result.batches():
            written += batch.num_rows
            yield batch

    # CSV has no escapes: what a terminal cannot show is not the value any more. Files and pipes get it as it is.
    shown = format == "csv" and stream.isatty()
    for piece in ENCODERS[format](result.schema, batches()):
        stream.write(printable_lines(piece.decode()).encode() if shown else piece)
    return written


def _show(result: Result, rows: int, elapsed: float) -> None:
    from needlepoint.cli.screen import duration, funnel, output

    console = output()
    _show_table(result, rows, console)
    if console.is_terminal:
        console.print(duration(elapsed), style="dim", end="")
        console.print("".join(f"  {funnel(table)}" for table in result.report.tables), style="dim")


def _show_table(result: Result, rows: int, console: Console) -> int:
    """Show the first rows, and return the number of all."""
    import pyarrow as pa

    from needlepoint.cli.screen_table import screen_table
    from needlepoint.printable import count

    first, total = list[pa.RecordBatch](), 0
    for batch in result.batches():
        if total < rows:
            first.append(batch.slice(0, rows - total))
        total += batch.num_rows
    if result.schema.names:
        console.print(screen_table(pa.Table.from_batches(first, result.schema), console))
    if total > rows:
        console.print(f"{rows:,} of {count(total, 'row')} shown; --rows shows more")
    else:
        console.print(count(total, "row"))
    return total
