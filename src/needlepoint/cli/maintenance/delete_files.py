"""`needle delete-files`"""

from __future__ import annotations

import click

from needlepoint.cli.maintenance.delete import carry_out, deletion_options
from needlepoint.cli.options import open_lake


@click.command("delete-files", short_help="Delete whole files of a table.")
@click.argument("table")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@deletion_options
def command(table: str, paths: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Delete whole files of a table, all at once.

    A PATH is relative to the table's location, or begins with it.

    \b
    Example:
      needle delete-files product year=2024/part-00000.parquet
    """
    with open_lake() as lake:
        carry_out(lake, table, lambda dry: lake.delete_files(table, paths, dry_run=dry), dry_run=dry_run, yes=yes)
