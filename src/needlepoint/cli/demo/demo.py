"""`needle demo`"""

from __future__ import annotations

import importlib.util
import json
import shlex
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from needlepoint.cli.messages import say
from needlepoint.cli.options import common_options, global_options, open_lake, start_spark

if TYPE_CHECKING:
    from rich.console import Console

    from needlepoint.cli.demo.comparison import Measurement
    from needlepoint.lake import Lake

MARK = "demo.json"
_MOST_ROWS = 2**31
_PARTITIONS = ("partner", "year", "month")
_ROWS_SHOWN = 3


@click.command("demo", short_help="Make a lake, and query it with and without the index.")
@click.option("--rows", type=click.IntRange(1, _MOST_ROWS), default=2_000_000, show_default=True, help="Products.")
@click.option(
    "--batches", type=click.IntRange(1, 1000), default=4, show_default=True, help="Spark jobs that write them."
)
@click.option("--fresh", is_flag=True, help="Remove the existing demo lake and start again.")
@common_options
def command(rows: int, batches: int, fresh: bool) -> None:
    """Write a lake with Spark, index it, and run queries with and without the index.

    The lake is in demo-lake unless --lake says otherwise; NEEDLE_LAKE does not count here. A second run finds it and
    only runs the queries; an interrupted run continues where it stopped.

    \b
    Examples:
      needle demo
      needle demo --rows 200000 --lake small-demo
      needle demo --rows 10000000 --fresh
    """
    from needlepoint.cli.screen import output

    if batches > rows:
        raise click.BadParameter(f"{batches} batches cannot share {rows} rows.", param_hint="'--batches'")
    directory = global_options().asked or "demo-lake"
    if "://" in directory:
        raise click.BadParameter("the demo's lake is a directory.", param_hint="'--lake'")
    console = output()
    _prepare(Path(directory), {"rows": rows, "batches": batches}, fresh)
    with open_lake(create=True, directory=directory) as lake:
        _heading(console, f"The lake: {rows:,} products in {directory}")
        _build(lake, rows, batches, console)
        equal = _ask(lake, rows, console)
    _farewell(console, directory, rows)
    if not equal:
        say("error: the answers with and without the index differ", err=True)
        click.get_current_context().exit(1)


# The directory


def _prepare(directory: Path, wanted: dict[str, int], fresh: bool) -> None:
    """Make the directory this demo's own, or refuse: nothing but a demo lake is ever removed."""
    from needlepoint.errors import StoreError, UsageError

    try:
        mark = directory / MARK
        found = json.loads(mark.read_text()) if mark.exists() else None
        if found is None and directory.exists() and any(directory.iterdir()):
            raise UsageError(f"'{directory}' is not a demo lake.", hint="Name another directory with --lake.")
        if found is not None and fresh:
            shutil.rmtree(directory)
        elif found is not None and found != wanted:
            raise UsageError(
                f"the lake in '{directory}' is of a demo with {_options(found)}.",
                hint="Run with the same numbers, with --fresh to start again, or with another --lake.",
            )
        directory.mkdir(parents=True, exist_ok=True)
        mark.write_text(json.dumps(wanted))
    except OSError as error:
        raise StoreError(f"'{directory}' cannot be written: {error.strerror or error}.") from error


def _options(mark: dict[str, Any]) -> str:
    return " ".join(f"--{name} {value}" for name, value in mark.items())


# Writing and indexing


def _build(lake: Lake, rows: int, batches: int, console: Console) -> None:
    from needlepoint.cli.batch_summary import published
    from needlepoint.printable import count, size_text

    lake.sync()  # finishes what an interrupted run began
    missing = [number for number in range(batches) if not published(lake, "product", f"demo/{number}")]
    if len(missing) < batches:
        there = "all batches are" if not missing else f"{batches - len(missing)} of {count(batches, 'batch')} are"
        console.print(f"{there} there from an earlier run and used again")
    if missing or not published(lake, "partner_info", "demo/partners"):
        session = _spark(lake)
        for number in missing:
            _write_batch(lake, session, rows, number, batches, console)
            _create_index(lake, console)
    _create_index(lake, console)
    tables = lake.status().tables
    files, total = sum(table.files for table in tables), sum(table.bytes for table in tables)
    console.print(f"{count(files, 'Parquet file')}, {size_text(total)}, partitioned by {', '.join(_PARTITIONS)}")


def _spark(lake: Lake) -> Any:
    """A session, with the small table written."""
    from needlepoint import spark
    from needlepoint.cli.screen import working
    from needlepoint.spark import products

    session = start_spark("needle demo")
    with working("Spark writes the partners"):
        spark.write(products.partners(session), lake, "partner_info", batch="demo/partners", files_per_partition=1)
    list(lake.follow_events(once=True))
    return session


def _write_batch(lake: Lake, session: Any, rows: int, number: int, batches: int, console: Console) -> None:
    from needlepoint import spark
    from needlepoint.cli.batch_summary import brought
    from needlepoint.cli.screen import duration, working
    from needlepoint.spark import products

    started = time.perf_counter()
    with working(f"Spark writes batch {number + 1} of {batches}"):
        done = spark.write(
            products.products(session, rows, batch=number, batches=batches),
            lake,
            "product",
            batch=f"demo/{number}",
            partition_by=_PARTITIONS,
            layout=spark.Layout(dictionary_off=("product_id", "upc")),
            files_per_partition=1,
        )
    written = time.perf_counter()
    list(lake.follow_events(once=True))
    indexed = time.perf_counter()
    times = f"written in {duration(written - started)}, indexed in {duration(indexed - written)}"
    console.print(f"batch {number + 1} of {batches}: {brought(done)}, {times}")


def _create_index(lake: Lake, console: Console) -> None:
    """After the first batch: files that come later are indexed by their events."""
    from needlepoint.cli.screen import duration

    product = lake.registry.tables.get("product")
    there = {index.column for index in lake.registry.indexes.of(product)}
    for column, kind, embed in (("product_id", "key", False), ("title", "text", True)):
        if column not in there and (kind != "text" or _has_text()):
            started = time.perf_counter()
            name = lake.create_index("product", column, kind, embed=embed)
            took, where = duration(time.perf_counter() - started), ", embedded in the files" if embed else ""
            console.print(f"CREATE INDEX {name} ON product USING {kind} ({column}){where}: {took}")


def _has_text() -> bool:
    return importlib.util.find_spec("tantivy") is not None


# Asking


def _ask(lake: Lake, rows: int, console: Console) -> bool:
    """True if every answer is the same with and without the index."""
    from needlepoint.cli.demo.comparison import demo_queries, measure, plain_datafusion, text_queries
    from needlepoint.cli.screen import working

    context = plain_datafusion(lake)
    measured = []
    for question in [*demo_queries(rows), *(text_queries(lake, rows) if _has_text() else ())]:
        _heading(console, question.title)
        console.print(question.shown, style="cyan")
        with working("asking, in turns with and without the index"):
            measured.append(measure(lake, context, question))
        _show(measured[-1], console)
    _summary(measured, console)
    return all(each.equal for each in measured)


def _show(measured: Measurement, console: Console) -> None:
    from needlepoint.cli.screen import duration, funnel
    from needlepoint.cli.screen_table import screen_table
    from needlepoint.printable import count

    answer = measured.answer
    if answer.num_rows:
        console.print(screen_table(answer.slice(0, _ROWS_SHOWN), console))
    more = f", {_ROWS_SHOWN} shown" if answer.num_rows > _ROWS_SHOWN else ""
    console.print(f"{count(answer.num_rows, 'row')}{more}")
    for table in measured.reports:
        console.print(funnel(table), style="dim")
    by = "DataFusion's own scan" if measured.question.by_datafusion else "a scan"
    times = f"{duration(measured.indexed)} with the index, {duration(measured.scanned)} by {by}"
    console.print(f"{times}: {_ratio(measured)}", style="bold")
    if measured.equal:
        console.print("both answers are equal", style="green")
    else:
        console.print("THE ANSWERS DIFFER", style="bold red")


def _summary(measured: list[Measurement], console: Console) -> None:
    from needlepoint.cli.screen import duration, grid

    _heading(console, "In short (medians of warm runs in turns)")
    headers = ("question", "rows", "with the index", "scan", "ratio", "answers")
    table = grid(console, *headers, right=headers[1:5])
    for each in measured:
        times = (duration(each.indexed), duration(each.scanned), _ratio(each))
        same = "equal" if each.equal else "DIFFER"
        table.add_row(each.question.title, f"{each.answer.num_rows:,}", *times, same)
    console.print(table)


def _ratio(measured: Measurement) -> str:
    ratio = measured.ratio
    return f"{ratio:,.0f} times faster" if ratio >= 10 else f"{ratio:.1f} times as fast"


def _heading(console: Console, text: str) -> None:
    from rich.panel import Panel

    console.print()
    console.print(Panel(text, style="bold", expand=False) if console.is_terminal else f"== {text} ==")


def _farewell(console: Console, directory: str, rows: int) -> None:
    from needlepoint.cli.demo.comparison import demo_queries

    console.print()
    console.print("The files are plain Parquet. Go on with:")
    lake = f"needle --lake {shlex.quote(directory)}"
    query = shlex.quote(demo_queries(rows)[0].sql)
    others = (f"{lake} sql    # a shell", f"{lake} serve  # a console in the browser, and HTTP")
    for line in (f"{lake} status", f"{lake} explain --analyze {query}", *others):
        console.print(f"  {line}", style="cyan", soft_wrap=True)
