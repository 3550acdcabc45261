"""`needle inspect`"""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from needlepoint.cli.messages import say
from needlepoint.cli.options import common_options


@click.command("inspect", short_help="Show what is in a Parquet file, where, and what slows lookups down.")
@click.argument("file")
@click.option("--column", metavar="NAME", help="Show each page of this column; a nested one by its path, point.x.")
@click.option("--all", "everything", is_flag=True, help="Show all columns or pages, however many there are.")
@click.option("--json", "as_json", is_flag=True, help="The same, and all of it, as JSON.")
@common_options
def command(file: str, column: str | None, everything: bool, as_json: bool) -> None:
    """Show the anatomy of a Parquet file, and how it could be written better for lookups.

    Where dictionaries, data, indexes and the footer are; types, encodings, sizes and pages of each column; unused
    bytes. No values are decoded. The file need not belong to a lake.

    \b
    Examples:
      needle inspect product/part-00000.parquet
      needle inspect product/part-00000.parquet --column product_id
      needle inspect product/part-00000.parquet --json
    """
    from needlepoint.cli.screen import output
    from needlepoint.cli.tables import inspect_display
    from needlepoint.parquet.inspect import inspect, inspect_pages

    if column is not None:
        pages = inspect_pages(file, column)
        if as_json:
            say(json.dumps({"path": file, "column": column, "pages": [asdict(page) for page in pages]}, indent=2))
        else:
            inspect_display.show_pages(output(), file, column, pages, everything=everything)
        return
    anatomy = inspect(file)
    if as_json:
        say(json.dumps(anatomy.to_dict(), indent=2))
    else:
        inspect_display.show(output(), anatomy, everything=everything)
