"""Tasks of maintenance: a function of one picklable value each, run in this process or elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from needlepoint.errors import FileChanged

Item = TypeVar("Item")
Made = TypeVar("Made")


class TaskRunner(Protocol):
    """Calls a function for each item, and returns the results in order; FileChanged in the place of a result that could
    not be made because of it. An item can be run twice, even at the same time."""

    def __call__(self, function: Callable[[Item], Made], items: Sequence[Item]) -> list[Made | FileChanged]: ...


def run_here(function: Callable[[Item], Made], items: Sequence[Item]) -> list[Made | FileChanged]:
    """One item after the other, in this process."""
    return [attempt(function, item) for item in items]


def attempt(function: Callable[[Item], Made], item: Item) -> Made | FileChanged:
    try:
        return function(item)
    except FileChanged as error:
        return error
