"""`needle create-index`"""

from __future__ import annotations

import time

import click

from needlepoint.cli.options import common_options, open_lake
from needlepoint.cli.sync import exit_with_failures


@click.command("create-index")
@click.argument("table")
@click.argument("column")
@click.option("--kind", default="key", show_default=True, help="The kind of index: key (value -> rows).")
@click.option("--name", help="The index's name.  [default: TABLE_COLUMN_KIND]")
@click.option("--no-build", is_flag=True, help="Only declare it: the next sync or event builds it.")
@common_options
def command(table: str, column: str, kind: str, name: str | None, no_build: bool) -> None:
    """Declare an index and build it for the files there are.

    Files that come later are indexed by `needle sync` or `needle indexer`.

    \b
    Examples:
      needle create-index product product_id
      needle create-index product upc --name product_upc --no-build
    """
    from needlepoint.cli.screen import count, duration

    started = time.perf_counter()
    with open_lake() as lake:
        made = lake.create_index(table, column, kind, name=name, build=False)
        reports = [] if no_build else lake.sync(table)
        status = next(index for each in lake.status().tables for index in each.indexes if index.name == made)
    if no_build:
        click.echo(f"index {made} is declared; `needle sync {table}` builds it")
        return
    entries = f"{status.entries:,} {'entry' if status.entries == 1 else 'entries'}"
    took = duration(time.perf_counter() - started)
    click.echo(f"index {made}: {entries} of {count(status.files, 'file')} in {took}")
    exit_with_failures(reports)
