"""`needle advise`"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from needlepoint.cli.messages import say
from needlepoint.cli.options import common_options, open_lake

if TYPE_CHECKING:
    from needlepoint.advisor import Advice, TableAdvice


@click.command("advise", short_help="Say which index, order or compaction would pay.")
@click.argument("table")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@common_options
def command(table: str, as_json: bool) -> None:
    """Say which index, sort order or compaction of TABLE would pay, and what it would save.

    The advice is based on the queries of the last 30 days, of which columns and kinds of conditions are kept but no
    values, and on statistics of the files. Nothing is changed: each line names the command to run.

    \b
    Examples:
      needle advise product
      needle advise product --json
    """
    with open_lake() as lake:
        advised = lake.advise(table)
    if as_json:
        say(json.dumps(asdict(advised), indent=2))
        return
    _show(advised)


def _show(advised: TableAdvice) -> None:
    from needlepoint.advisor import DAYS
    from needlepoint.cli.screen import fitted, grid, output
    from needlepoint.printable import count, size_text

    console = output()
    if advised.queries:
        known = (
            f"{count(advised.queries, 'query')} of the last {DAYS} days {'is' if advised.queries == 1 else 'are'} known"
        )
        console.print(f"{advised.table}: {known}")
    else:
        console.print(f"{advised.table}: no query is known yet, so this goes by the files alone")
    if not advised.advice:
        console.print("nothing to do better is known")
        return
    headers = ("", "reads", "would read", "takes", "would take", "asked", "saves", "confidence")
    table = grid(console, *headers, right=headers[:7])
    for number, each in enumerate(advised.advice, 1):
        read = [_known(value, size_text) for value in (each.bytes_now, each.bytes_after)]
        table.add_row(str(number), *read, *_times(each), each.confidence)
    for number, each in enumerate(advised.advice, 1):
        # A terminal that breaks a long line itself copies it as one.
        console.print(f"{number}. {each.command}", soft_wrap=True)
        console.print(f"   {each.why}. Takes: {each.costs}.")
    console.print(fitted(table, console))


def _times(advice: Advice) -> list[str]:
    from needlepoint.cli.screen import duration

    each = [_known(value, duration) for value in (advice.seconds_now, advice.seconds_after)]
    return [*each, f"{advice.asked:,}" if advice.asked else "-", duration(advice.saved) if advice.asked else "-"]


def _known(value: float | None, shown: Callable[[float], str]) -> str:
    return "-" if value is None else shown(value)
