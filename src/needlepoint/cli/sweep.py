"""`needle sweep`"""

from __future__ import annotations

import click

from needlepoint.cli.options import common_options, open_lake


@click.command("sweep", short_help="Remove what nothing refers to any more.")
@common_options
def command() -> None:
    """Remove what nothing refers to any more: indexes of files that are gone, unpacked text indexes, orphans of writes.

    Data files are never touched.

    \b
    Example:
      needle sweep
    """
    from needlepoint.cli.screen import count, size

    with open_lake() as lake:
        swept = lake.sweep()
    click.echo(
        f"{size(swept.pack_bytes)} of indexes, {size(swept.unpacked_bytes)} of unpacked ones and "
        f"{count(swept.staging, 'orphaned batch')} removed"
    )
