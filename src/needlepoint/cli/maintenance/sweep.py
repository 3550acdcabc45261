"""`needle sweep`"""

from __future__ import annotations

import click

from needlepoint.cli.messages import say
from needlepoint.cli.options import common_options, open_lake


@click.command("sweep", short_help="Remove files and entries that nothing refers to.")
@click.option("--now", is_flag=True, help="All of it, even if another process may be about to use it.")
@common_options
def command(now: bool) -> None:
    """Remove what nothing refers to: index entries and cards of removed files, unpacked text indexes, leftovers of
    killed processes.

    Files that belong to a table are never touched; replaced files are deleted when their time to keep is over.
    Key indexes are rewritten when more than a tenth of their entries is dead, and so are packs of cards.

    After `needle delete`, `needle sweep --now` leaves nothing of the deleted rows: no index entry, no kept file, no
    leftover of a killed process. The next sync builds again what another process was about to use.

    \b
    Examples:
      needle sweep
      needle sweep --now
    """
    from needlepoint.printable import count, size_text

    with open_lake() as lake:
        swept = lake.sweep(now=now)
    say(
        f"{count(swept.entries, 'dead entry')}, {size_text(swept.pack_bytes)} of indexes and cards, "
        f"{size_text(swept.unpacked_bytes)} of unpacked ones and {count(swept.staging, 'orphaned batch')} removed"
    )
