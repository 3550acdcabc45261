"""`needle drop-index`"""

from __future__ import annotations

import click

from needlepoint.cli.messages import say
from needlepoint.cli.options import common_options, open_lake


@click.command("drop-index", short_help="Drop an index; answers stay the same.")
@click.argument("name")
@click.option("--strip", is_flag=True, help="Also remove what it embedded in the Parquet files.")
@common_options
def command(name: str, strip: bool) -> None:
    """Drop an index. Queries give the same answers without it, more slowly.

    \b
    Examples:
      needle drop-index product_product_id_key
      needle drop-index product_title_text --strip
    """
    with open_lake() as lake:
        lake.drop_index(name, strip=strip)
    say(f"index {name} is dropped")
