"""`needle drop-index`"""

from __future__ import annotations

import click

from needlepoint.cli.options import common_options, open_lake


@click.command("drop-index", short_help="Drop an index; answers stay the same.")
@click.argument("name")
@common_options
def command(name: str) -> None:
    """Drop an index. Queries give the same answers without it, later.

    \b
    Example:
      needle drop-index product_product_id_key
    """
    with open_lake() as lake:
        lake.drop_index(name)
    click.echo(f"index {name} is dropped")
