"""`needle rebuild`"""

from __future__ import annotations

import time

import click

from needlepoint.cli.indexes.sync import exit_with_failures
from needlepoint.cli.messages import say
from needlepoint.cli.options import common_options, open_lake


@click.command("rebuild", short_help="Build the indexes of a table again.")
@click.argument("table")
@click.option("--index", help="Only this one.")
@click.option("--from-data", is_flag=True, help="Read the data of files, not embedded indexes, and embed again.")
@common_options
def command(table: str, index: str | None, from_data: bool) -> None:
    """Build the indexes of a table again.

    Embedded indexes are used where files have them; then no data is read.

    \b
    Examples:
      needle rebuild product
      needle rebuild product --index product_title_text --from-data
    """
    from needlepoint.cli.screen import duration
    from needlepoint.printable import count

    started = time.perf_counter()
    with open_lake() as lake:
        reports = lake.rebuild(table, index, from_data=from_data)
    indexed = sum(report.indexed for report in reports)
    say(f"{table}: {count(indexed, 'file')} indexed again in {duration(time.perf_counter() - started)}")
    exit_with_failures(reports)
