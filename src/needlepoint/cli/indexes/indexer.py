"""`needle indexer`"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from needlepoint.cli.limits import keep_few_arenas
from needlepoint.cli.messages import one_line, say
from needlepoint.cli.options import common_options, open_lake

if TYPE_CHECKING:
    from needlepoint.indexer import EventResult

_PAUSE = 0.5


@click.command("indexer", short_help="Follow the queue and index what its events name.")
@click.option("--once", is_flag=True, help="Handle the events there are and exit; the exit code is 1 if one failed.")
@common_options
def command(once: bool) -> None:
    """Follow the queue, and index the files that its events name.

    The queue is the lake's own, or the one of NEEDLE_QUEUE (sqs://name), where notifications of S3 are events too. It
    runs until it gets SIGINT (Ctrl-C) or SIGTERM, and then ends between two events. An event that cannot be
    handled is set aside; `needle status` counts those.

    \b
    Examples:
      needle indexer
      needle indexer --once
    """
    keep_few_arenas()
    failed = False
    with open_lake() as lake, _stop_signals() as stop:
        while not stop:
            for handled in lake.follow_events(once=True):
                failed |= bool(handled.problem)
                _show(handled)
                if stop:
                    break
            if once:
                break
            time.sleep(0 if stop else _PAUSE)
    if once and failed:
        click.get_current_context().exit(1)


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """The signals that arrived: the current work is finished first."""
    arrived: list[int] = []
    before = {
        number: signal.signal(number, lambda received, frame: arrived.append(received))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield arrived
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(handled: EventResult) -> None:
    if handled.problem:
        say(f"error: {handled.what}: {one_line(handled.problem)}", err=True)
    else:
        passed_over = f", {handled.passed_over:,} of no table" if handled.passed_over else ""
        say(f"{handled.what}: {handled.indexed:,} indexed{passed_over}")
