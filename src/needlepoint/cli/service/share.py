"""`needle share`"""

from __future__ import annotations

import click

from needlepoint.cli.messages import say
from needlepoint.cli.options import common_options, open_lake


@click.command("share", short_help="Publish the registry in the lake for readers on other machines.")
@click.option("--whole", is_flag=True, help="All of it once more, as after an object of it was damaged.")
@common_options
def command(whole: bool) -> None:
    """Publish the registry in the lake now, for readers that have no store.

    A lake in a bucket does that by itself, a moment after each change; a lake in a directory does it with
    NEEDLE_SHARED=on.

    \b
    Examples:
      needle share
      needle share --whole
    """
    with open_lake(create=False) as lake:
        state = lake.share(whole=whole)
    say(f"published at change {state.published:,}")
