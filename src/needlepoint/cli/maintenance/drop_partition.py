"""`needle drop-partition`"""

from __future__ import annotations

import click

from needlepoint.cli.maintenance.compact import partition_values
from needlepoint.cli.maintenance.delete import carry_out, deletion_options
from needlepoint.cli.options import open_lake


@click.command("drop-partition", short_help="Delete all files of a partition.")
@click.argument("table")
@click.argument("values", nargs=-1, required=True, metavar="COLUMN=VALUE...")
@deletion_options
def command(table: str, values: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Delete all files with these partition values, without reading them.

    __HIVE_DEFAULT_PARTITION__ is the value of the partition of NULL.

    \b
    Example:
      needle drop-partition product partner=ABC year=2023
    """
    wanted = partition_values(values)
    with open_lake() as lake:
        carry_out(lake, table, lambda dry: lake.drop_partition(table, wanted, dry_run=dry), dry_run=dry_run, yes=yes)
