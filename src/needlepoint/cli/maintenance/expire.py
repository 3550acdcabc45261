"""`needle expire`"""

from __future__ import annotations

import datetime
import re

import click

from needlepoint.cli.maintenance.delete import carry_out, deletion_options
from needlepoint.cli.options import open_lake

_UNITS = {"h": datetime.timedelta(hours=1), "d": datetime.timedelta(days=1), "w": datetime.timedelta(weeks=1)}


@click.command("expire", short_help="Delete rows below a value or beyond an age.")
@click.argument("table")
@click.option("--by", "column", required=True, metavar="COLUMN", help="The column with the age of a row.")
@click.option(
    "--older-than", metavar="AGE", help="As 90d, 12w or 36h, of a date or timestamp, counted from now in UTC."
)
@click.option(
    "--before",
    metavar="VALUE",
    help="The first value that stays: 2023, 2024-01-31, 2024-01-31T12:00Z.",
)
@deletion_options
def command(table: str, column: str, older_than: str | None, before: str | None, dry_run: bool, yes: bool) -> None:
    """Delete the rows whose COLUMN is less than a value, or older than an age.

    For a partition column whole files are deleted without reading them.

    \b
    Examples:
      needle expire visit --by day --older-than 90d
      needle expire product --by year --before 2023 --dry-run
    """
    if (older_than is None) == (before is None):
        raise click.UsageError("Give either --older-than or --before.")
    with open_lake() as lake:
        value: object = before
        if older_than is not None:
            type = str(lake.registry.tables.get(table).field(column).type)
            if not type.startswith(("date", "timestamp")):
                raise click.UsageError(f"{column} is {type}, which has no age: give --before.")
            value = _then(older_than, whole_days=type.startswith("date"))
        carry_out(lake, table, lambda dry: lake.expire(table, column, value, dry_run=dry), dry_run=dry_run, yes=yes)


def _then(age: str, *, whole_days: bool) -> object:
    found = re.fullmatch(r"(\d+)([hdw])", age.strip())
    if found is None:
        raise click.UsageError(f"'{age}' is no age, as 90d, 12w and 36h are.")
    then = datetime.datetime.now(datetime.UTC) - int(found[1]) * _UNITS[found[2]]
    return then.date() if whole_days else then.replace(microsecond=0)
