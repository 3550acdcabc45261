"""`needle sync`"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from needlepoint.cli.each_table import for_each_table
from needlepoint.cli.messages import one_line, say
from needlepoint.cli.options import common_options, open_lake

if TYPE_CHECKING:
    from needlepoint.indexer import SyncReport


@click.command("sync", short_help="Find new, changed and removed files, and index them.")
@click.argument("table", required=False)
@common_options
def command(table: str | None) -> None:
    """Find new, changed and removed files, and index what is not indexed yet.

    Without TABLE all tables of the lake. Files that cannot be indexed are named on stderr, and the exit code is 1;
    the other files are indexed.

    \b
    Examples:
      needle sync
      needle sync product
    """
    with open_lake() as lake:
        found, failed = for_each_table(lake, table, lake.sync)
    reports = [report for each in found for report in each]
    for report in reports:
        say(
            f"{report.table}: {report.added:,} added, {report.changed:,} changed, {report.removed:,} removed, "
            f"{report.indexed:,} indexed"
        )
        for path in report.unfinished:
            say(f"{report.table}: {path} has no footer: still being written, or left by a writer that died")
        for path in report.unnamed:
            shown = path.encode("unicode_escape").decode()
            say(f"{report.table}: {shown} has a path that cannot be read: give it another name")
    if not reports and not failed:
        say("there are no tables yet; `needle create-table` or `needle ingest` makes one")
    exit_with_failures(reports)
    if failed:
        click.get_current_context().exit(1)


def exit_with_failures(reports: Sequence[SyncReport]) -> None:
    """Name the files that could not be indexed."""
    failures = [failure for report in reports for failure in report.failures]
    for failure in failures:
        say(f"error: {one_line(failure.reason)}", err=True)
    if failures:
        click.get_current_context().exit(1)
