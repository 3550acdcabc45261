"""`needle ingest`"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from needlepoint.cli.messages import one_line, say
from needlepoint.cli.options import common_options, open_lake, start_spark
from needlepoint.errors import SchemaConflict

if TYPE_CHECKING:
    from needlepoint.lake import Lake


@click.command("ingest", short_help="Append CSV, JSON or Parquet to a table with Spark.")
@click.argument("table")
@click.argument("source")
@click.option("--partition-by", metavar="A,B", help="Columns that become directories; a table keeps those it has.")
@click.option(
    "--source-format", type=click.Choice(["csv", "tsv", "json", "parquet"]), help="[default: from the file names]"
)
@click.option("--schema", metavar="DDL", help="Columns and types of the source, as Spark writes them.")
@click.option("--batch", metavar="ID", help="The batch's id: ingesting an id again adds nothing.")
@click.option("--files-per-partition", type=click.IntRange(min=1), metavar="N", help="At most N files per partition.")
@click.option("--no-index", is_flag=True, help="Leave the event on the queue, for `needle indexer`.")
@common_options
def command(
    table: str,
    source: str,
    partition_by: str | None,
    source_format: str | None,
    schema: str | None,
    batch: str | None,
    files_per_partition: int | None,
    no_index: bool,
) -> None:
    """Append CSV, JSON or Parquet to a table with Spark, as one batch, and index it.

    SOURCE is a file, a directory, a glob pattern or a URL that Spark can read. The first batch creates the table. A
    batch is published entirely or not at all.

    \b
    Examples:
      needle ingest product feed/*.json --partition-by partner,year
      needle ingest product today.csv --schema "product_id BIGINT, upc STRING" --batch 2025-03-01
    """
    from needlepoint.cli.batch_summary import published

    with open_lake(create=True) as lake:
        if published(lake, table, batch):
            say(f"{table}: batch {batch} was published before, nothing is written")
        else:
            columns = [name.strip() for name in partition_by.split(",")] if partition_by else None
            _write(lake, table, (source, source_format, schema), batch, columns, files_per_partition)
        failed = False if no_index else _index(lake)
    if failed:
        click.get_current_context().exit(1)


def _write(
    lake: Lake,
    table: str,
    source: tuple[str, str | None, str | None],
    batch: str | None,
    partition_by: list[str] | None,
    files_per_partition: int | None,
) -> None:
    from needlepoint import spark
    from needlepoint.cli.batch_summary import brought
    from needlepoint.cli.screen import duration, working

    session = start_spark("needle ingest")
    started = time.perf_counter()
    before = lake.table(table).schema.names if table in lake.tables() else None
    path, source_format, schema = source
    with working(f"Spark reads {path} and writes {table}"):
        frame = spark.read_source(session, path, source_format, schema)
        try:
            done = spark.write(
                frame, lake, table, batch=batch, partition_by=partition_by, files_per_partition=files_per_partition
            )
        except SchemaConflict as error:
            hint = "Name all columns of the source and the table's types with --schema, or correct the source."
            raise SchemaConflict(f"{path} does not fit table '{table}': {error.message}", hint=hint) from error
    took = duration(time.perf_counter() - started)
    say(f"{table}: {brought(done)} published as batch {done.batch} in {took}")
    added = [name for name in lake.table(table).schema.names if before is not None and name not in before]
    if added:
        say(f"{table}: new columns {', '.join(added)}, which are NULL in all rows before")


def _index(lake: Lake) -> bool:
    """Handle the events there are. True if one could not be."""
    from needlepoint.cli.screen import duration
    from needlepoint.printable import count

    started = time.perf_counter()
    handled = list(lake.follow_events(once=True))
    indexed = count(sum(each.indexed for each in handled), "file")
    say(f"indexed {indexed} in {duration(time.perf_counter() - started)}")
    problems = dict.fromkeys(each.problem for each in handled if each.problem)
    for problem in problems:
        say(f"error: {one_line(problem)}", err=True)
    return bool(problems)
