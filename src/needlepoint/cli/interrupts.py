"""What each command leaves when it is interrupted, unless it has said so itself (`if_interrupted`)."""

from __future__ import annotations

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
    "verify": UNCHANGED,
    "rebuild": f"{KEPT} Run `needle sync` to continue.",
    "sweep": "nothing in use was removed. Run the same command to continue.",
    "compact": _STEPS,
    "delete": _STEPS,
    "delete-files": _STEPS,
    "drop-partition": _STEPS,
    "expire": _STEPS,
    "ingest": "the batch is in the table entirely or not at all. With --batch, the same command adds it once.",
    "indexer": "events that were not finished come again.",
}


def report_interrupt(command: str | None, interrupt: BaseException) -> None:
    """One line on stderr. At a question, which comes before any change, click ends a command with Abort."""
    if isinstance(interrupt, ReportedInterrupt):
        return
    left = UNCHANGED if isinstance(interrupt, click.Abort) else LEAVES.get(command or "", UNCHANGED)
    say(f"interrupted: {left}", err=True)
