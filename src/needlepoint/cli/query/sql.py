"""`needle sql`"""

from __future__ import annotations

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
from needlepoint.cli.pandas_free import load_pyarrow
from needlepoint.cli.query.query_argument import QUERY
from needlepoint.cli.query.show import FORMATS, show, write
from needlepoint.errors import NeedlepointError

if TYPE_CHECKING:
    from needlepoint.lake import Lake
    from needlepoint.query import Result


@click.command("sql")
@click.argument("query", type=QUERY, required=False)
@click.option("--format", type=click.Choice(FORMATS), help="[default: from the name of --output, else table]")
@click.option("--output", metavar="FILE", help="Write the rows to a file.")
@click.option("--rows", type=click.IntRange(min=0), default=100, show_default=True, help="Most rows a table shows.")
@click.option("--report", is_flag=True, help="Also show on stderr what was read and which indexes were used.")
@common_options
def command(query: str | None, format: str | None, output: str | None, rows: int, report: bool) -> None:
    """Run a query and show its rows. Without a query, on a terminal, open a shell.

    QUERY "-" is read from stdin, and so is what is piped into the command. Semicolons separate several
    statements. CREATE INDEX, DROP INDEX, SHOW INDEXES, CREATE VIEW and DROP VIEW work too, and EXPLAIN and EXPLAIN
    ANALYZE show what `needle explain` shows.

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
      needle sql
    """
    load_pyarrow()
    if query is None and sys.stdin.isatty():
        _open_shell(rows)
        return
    query = query or QUERY.convert("-", None, None)
    chosen = format or _format_of(output)
    if chosen in ("arrow", "parquet") and output is None and sys.stdout.isatty():
        raise click.UsageError(f"{chosen} is binary, and this is a terminal. Use --output FILE or a pipe.")
    from needlepoint.query import split

    statements = split(query)
    if len(statements) > 1 and (chosen != "table" or output is not None):
        raise click.UsageError(f"{output or chosen} holds the rows of one statement, and these are {len(statements)}.")
    with open_lake(reads=True) as lake:
        for statement in statements:
            _run(lake, statement, chosen, output, rows, report)


def _run(lake: Lake, query: str, format: str, output: str | None, rows: int, report: bool) -> None:
    from needlepoint.query import Explain, parse

    started = time.perf_counter()
    with if_interrupted(lambda: _left(query)):
        with ended_by_second_interrupt() if _left(query) == UNCHANGED else nullcontext():
            result = lake.sql(query)
        elapsed = time.perf_counter() - started
        if output is not None:
            _write_file(result, format, output, rows)
        elif format == "table" and isinstance(parse(query), Explain):
            say(str(result.report))
        elif format == "table":
            show(result, rows, elapsed)
        else:
            write(result, format, sys.stdout.buffer, rows)
        if report:
            say(str(result.report), err=True)


def _open_shell(rows: int) -> None:
    from needlepoint.cli.query.shell import Shell

    with open_lake(reads=True) as lake:
        Shell(lake, rows=rows).run()


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
            written = write(result, format, file, rows)
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
