"""`needle sweep`"""

from __future__ import annotations

import click

from needlepoint.cli.messages import say
from needlepoint.cli.options import common_options, open_lake


@click.command("sweep", short_help="Remove what nothing refers to any more.")
@click.option("--now", is_flag=True, help="All of it, whatever may be about to need it.")
@common_options
def command(now: bool) -> None:
    """Remove what nothing refers to any more: what indexes know of files that are gone, unpacked text indexes, orphans
    of writes.

    Files that belong to a table are never touched; those that a batch replaced are deleted when their time has come.
    Key indexes are rewritten when more than a tenth of their entries is dead.

    After `needle delete`, `needle sweep --now` leaves nothing of what was deleted: not one entry, no file that is kept
    for a while, nothing that killed writers and builds left. What another process was about to refer to is made again
    by the next sync.

    \b
    Examples:
      needle sweep
      needle sweep --now
    """
    from needlepoint.cli.screen import count, size

    with open_lake() as lake:
        swept = lake.sweep(now=now)
    say(
        f"{count(swept.entries, 'dead entry')}, {size(swept.pack_bytes)} of indexes, "
        f"{size(swept.unpacked_bytes)} of unpacked ones and {count(swept.staging, 'orphaned batch')} removed"
    )
