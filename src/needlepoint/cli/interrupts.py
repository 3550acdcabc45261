"""What each command leaves when it is interrupted, unless it has said so itself (`if_interrupted`)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click

from needlepoint.cli.messages import KEPT, UNCHANGED, ReportedInterrupt, say

_BUILT = f"{KEPT} Run the same command to continue."
_STEPS = "finished steps stay, and all other rows are where they were. Run the same command to continue."

LEAVES = {
    "demo": "what was made is kept. Run the same command to continue.",
    "create-table": "`needle status` says whether the table exists; if so, `needle sync` completes it.",
    "create-index": "nothing was built; `needle status` lists the index if it is declared.",
    "drop-table": "the table is dropped or not, as `needle status` says; its files stay.",
    "drop-index": "the index is dropped or not, as `needle status` says; answers are the same.",
    "index": _BUILT,
    "sync": _BUILT,
    "sql": UNCHANGED,
    "explain": UNCHANGED,
    "inspect": UNCHANGED,
    "retrofit": "each file has all that was to be added, or is as it was. Run the same command to continue.",
    "status": UNCHANGED,
    "advise": UNCHANGED,
    "calibrate": UNCHANGED,
    "verify": UNCHANGED,
    "repair": "each part is repaired or as it was. Run the same command to continue.",
    "rebuild": f"{KEPT} Run `needle sync` to continue.",
    "store": "what was not moved is where it was, as `needle status` says. Run the same command to continue.",
    "sweep": "nothing in use was removed. Run the same command to continue.",
    "compact": _STEPS,
    "delete": _STEPS,
    "delete-files": _STEPS,
    "drop-partition": _STEPS,
    "expire": _STEPS,
    "ingest": "the batch is in the table entirely or not at all. With --batch, the same command adds it once.",
    "indexer": "events that were not finished come again.",
    "share": "the earlier state is published, or the present one.",
    "serve": "running queries were finished.",
    "mcp": UNCHANGED,
    "token": "the token is there or not, as `needle token list` says.",
}


def report_interrupt(command: str | None, interrupt: BaseException) -> None:
    """One line on stderr. At a question, which comes before any change, click ends a command with Abort."""
    if isinstance(interrupt, ReportedInterrupt):
        return
    left = UNCHANGED if isinstance(interrupt, click.Abort) else LEAVES.get(command or "", UNCHANGED)
    say(f"interrupted: {left}", err=True)


@contextmanager
def ended_by_second_interrupt() -> Iterator[None]:
    """The second Ctrl-C ends the process. DataFusion notices the first one at the end of a batch only, and a batch of a
    cross join may take forever. Only for statements that change nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_end_at_second, args=(reading,), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)


def _end_at_second(reading: int) -> None:
    """Read the numbers of signals, which arrive also while Python code cannot run in the main thread."""
    interrupts = 0
    while number := os.read(reading, 1):
        interrupts += number[0] == signal.SIGINT
        if interrupts > 1:
            say(f"interrupted: {UNCHANGED}", err=True)
            os._exit(130)
    os.close(reading)
