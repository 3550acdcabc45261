"""`needle repair`"""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from needlepoint.cli.messages import one_line, say
from needlepoint.cli.options import common_options, open_lake


@click.command("repair", short_help="Repair what `needle verify` finds.")
@click.argument("table", required=False)
@click.option("--samples", default=20, show_default=True, type=click.IntRange(1, 1000), help="Values of each index.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--format", type=click.Choice(["table", "json"]), default="table", show_default=True)
@common_options
def command(table: str | None, samples: int, dry_run: bool, format: str) -> None:
    """Repair what `needle verify` finds: build damaged or lost indexes, cards and zone maps again, in the store, in the
    lake and in servers; finish batches whose publishers died; publish the registry again.

    Data files are read, and never written. Without TABLE all tables of the lake, and the registry that it publishes.
    What was repaired is verified once more. If something could not be repaired, the exit code is 1.

    \b
    Examples:
      needle repair --dry-run
      needle repair product
    """
    with open_lake() as lake:
        done = lake.repair(table, dry_run=dry_run, samples=samples)
    if format == "json":
        say(json.dumps([asdict(each) for each in done], indent=2))
    for each in done if format == "table" else ():
        where = f"{each.table}: " if each.table else ""
        action = f"would be {each.action}" if dry_run and each.is_done else each.action
        say(f"{where}{each.part}: {one_line(each.reason)} -> {action}", err=not each.is_done)
    if not done and format == "table":
        say("nothing to repair")
    if not all(each.is_done for each in done):
        click.get_current_context().exit(1)
