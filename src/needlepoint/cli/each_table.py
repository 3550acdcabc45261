"""Run a command for one table, or for all tables of a lake."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from needlepoint.cli.messages import one_line, say
from needlepoint.errors import NeedlepointError

if TYPE_CHECKING:
    from needlepoint.lake import Lake

Answer = TypeVar("Answer")


def for_each_table(lake: Lake, table: str | None, run: Callable[[str], Answer]) -> tuple[list[Answer], bool]:
    """The answers, and whether a table failed. Of all tables, one that fails is named, and the others run."""
    if table is not None:
        return [run(table)], False
    answers: list[Answer] = []
    failed = False
    for name in lake.tables():
        try:
            answers.append(run(name))
        except NeedlepointError as error:
            failed = True
            say(f"error: table '{name}': {one_line(error)}", err=True)
    return answers, failed
