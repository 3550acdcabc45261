"""`needle verify`"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from needlepoint.cli.each_table import for_each_table
from needlepoint.cli.messages import one_line, say
from needlepoint.cli.options import common_options, format_option, open_lake, samples_option

if TYPE_CHECKING:
    from needlepoint.query import VerifyReport


@click.command("verify", short_help="Check that indexes are right and whole.")
@click.argument("table", required=False)
@samples_option
@format_option
@common_options
def command(table: str | None, samples: int, format: str) -> None:
    """Check that indexes are right and whole. Nothing is changed.

    Values that are in the table are looked up by each index, and by a scan: both must find the same rows. All bytes of
    the indexes are read, and so are cards and zone maps, which say where in a file values can be. This takes as long as
    some scans and reading all indexes.

    If an index gives other answers, or something is damaged or lost, it is named, and the exit code is 1: `needle
    repair` builds it again. Without TABLE all tables of the lake are checked, and the copy of the registry that it
    publishes for other machines.

    \b
    Examples:
      needle verify
      needle verify product --samples 100
    """
    from needlepoint.printable import count

    with open_lake() as lake:
        reports, failed = for_each_table(lake, table, lambda name: lake.verify(name, samples))
        published = () if table is not None else lake.verify_published()
    if format == "json":
        more = [{"published": published}] if published else []
        say(json.dumps([*(asdict(report) for report in reports), *more], indent=2))
    for report in reports if format == "table" else ():
        indexes = len({check.index for check in report.checks})
        found = "" if report.differences else ", no difference to a scan"
        say(f"{report.table}: {count(len(report.checks), 'question')} to {count(indexes, 'index')}{found}")
        _show_differences(report)
        _show_damage(report)
    for problem in published if format == "table" else ():
        say(f"error: the published registry: {problem}", err=True)
        say("`needle repair` publishes it again", err=True)
    if failed or published or not all(report.is_sound for report in reports):
        click.get_current_context().exit(1)


def _show_damage(report: VerifyReport) -> None:
    for damage in report.damaged:
        say(f"error: {report.table}: a card or zone map is lost: {one_line(damage)}", err=True)
    named = {check.index for check in report.differences}
    indexes = [index for index in report.indexes if index.index not in named]
    for index in indexes:
        what = "cannot be checked" if index.is_away else "is damaged"
        say(f"error: index {index.index} ({index.kind}) {what}: {one_line(index.reason)}", err=True)
    if report.damaged or indexes:
        say(f"answers stay right without it; `needle repair {report.table}` builds it again", err=True)
    for batch in report.unfinished:
        say(f"{report.table}: batch {batch} is unfinished; `needle repair {report.table}` finishes it")


def _show_differences(report: VerifyReport) -> None:
    """One line for each index, with the first of its wrong answers: they most often have one cause."""
    from needlepoint.printable import count

    for name in dict.fromkeys(check.index for check in report.differences):
        wrong = [check for check in report.differences if check.index == name]
        asked, first = sum(check.index == name for check in report.checks), wrong[0]
        say(
            f"error: index {name} ({first.kind}): {len(wrong):,} of {count(asked, 'answer')} differ from a scan's: "
            f"{count(first.indexed, 'row')} for {first.condition}, a scan finds {first.scanned:,}"
            + (", …" if len(wrong) > 1 else ""),
            err=True,
        )
    if report.differences:
        say(f"`needle repair {report.table}` builds them again; --format json lists all answers", err=True)
