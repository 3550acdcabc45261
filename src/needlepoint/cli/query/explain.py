"""`needle explain`"""

from __future__ import annotations

import json

import click

from needlepoint.cli.messages import say
from needlepoint.cli.options import common_options, open_lake
from needlepoint.cli.query.query_argument import QUERY


@click.command("explain", short_help="Show what a query reads and what each index does.")
@click.argument("query", type=QUERY)
@click.option("--analyze", is_flag=True, help="Run the query, and show what was read and how long it took.")
@click.option("--format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@common_options
def command(query: str, analyze: bool, format: str) -> None:
    """Show what a query reads, and for each index what it did or why it was not used.

    The funnel goes from files over row groups and pages to rows and bytes. Rows are those read by page, matching or
    not, and those that a native scan returns after its filters. Bytes of bloom filters count too, so the sum can
    exceed the size of the files. Ranges of rows exclude their end: 0-1 is the first row. QUERY "-" is read from stdin.

    \b
    Examples:
      needle explain "SELECT title FROM product WHERE product_id = 384209819"
      needle explain --analyze --format json "SELECT count(*) FROM product"
    """
    with open_lake(reads=True) as lake:
        report = lake.sql(query).report if analyze else lake.explain(query)
        shown = json.dumps(report.to_dict(), indent=2) if format == "json" else str(report)
    say(shown)
