"""Ask the user before something is deleted."""

from __future__ import annotations

import sys

import click

from needlepoint.errors import UsageError


def agreed(question: str) -> bool:
    """Ask on stderr, and read the answer from the terminal or a pipe. Without either it is a UsageError: a script must
    pass --yes."""
    if sys.stdin is not None and sys.stdin.isatty():
        return click.confirm(question, err=True)
    answer = sys.stdin.readline() if sys.stdin is not None else ""
    if not answer:
        raise UsageError(
            "there is no terminal to ask on, and nothing was changed.",
            hint="--yes does it without asking; --dry-run only shows what would be done.",
        )
    return answer.strip().lower() in ("y", "yes")
