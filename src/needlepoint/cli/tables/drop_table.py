"""`needle drop-table`"""

from __future__ import annotations

import click

from needlepoint.cli.messages import say
from needlepoint.cli.options import common_options, open_lake


@click.command("drop-table", short_help="Forget a table; its files stay.")
@click.argument("name")
@common_options
def command(name: str) -> None:
    """Forget a table and its indexes. Its Parquet files stay; replaced files that a compaction keeps for
    other readers are deleted.

    \b
    Examples:
      needle drop-table product
    """
    with open_lake() as lake:
        lake.drop_table(name)
    say(f"table {name} is dropped; its files are where they were")
