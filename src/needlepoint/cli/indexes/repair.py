"""`needle repair`"""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from needlepoint.cli.messages import one_line, say
from needlepoint.cli.options import common_options, format_option, open_lake, samples_option


@click.command("repair", short_help="Repair what `needle verify` finds.")
@click.argument("table", required=False)
@samples_option
@click.option("--dry-run", is_flag=True, help="Verify, say what would be done, and change nothing.")
@format_option
@common_options
def command(table: str | None, samples: int, dry_run: bool, format: str) -> None:
    """Verify as `needle verify` does, and repair what is found.

    Indexes, cards and zone maps that are damaged, lost or wrong are built again from the data files, wherever they are:
    in the store, in the lake or in a server. Batches that a process began to publish before it died are finished. The
    copy of the registry for other machines is published again. Data files are read, and never written.

    Each line says what was wrong, and what was done. What was repaired is verified once more; if something could not be
    repaired, the exit code is 1. Without TABLE all tables of the lake, and the published registry. Queries go on
    meanwhile, by scans where an index is missing.

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
