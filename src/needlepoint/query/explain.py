"""What a query read and why: the funnel files -> row groups -> pages -> rows, and what each index did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any


@dataclass(frozen=True, slots=True)
class StepReport:
    """How many files and rows were left before and after a step."""

    step: str
    files_before: int
    files_after: int
    rows_before: int
    rows_after: int


@dataclass(frozen=True, slots=True)
class IndexUse:
    """What an index did for a query, or why it did nothing."""

    index: str
    kind: str
    column: str
    used: bool
    why: str


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the funnel; `total` is None where it is not known without reading more."""

    read: int
    total: int | None

    def __str__(self) -> str:
        return f"{self.read:,} of {'?' if self.total is None else f'{self.total:,}'}"


@dataclass(frozen=True, slots=True)
class TableReport:
    table: str
    files: Level
    row_groups: Level
    pages: Level
    rows: Level
    bytes: Level
    page_read_files: int
    scanned_files: int
    steps: tuple[StepReport, ...]
    indexes: tuple[IndexUse, ...]


@dataclass
class Report:
    """Everything `explain` shows; also part of every result, as `result.report`.

    Pages and row groups are counted for page reads only: a native scan prunes inside DataFusion. `bytes` of a native
    scan is what DataFusion says it read, known once the query has run.
    """

    make: Callable[[], list[TableReport]]
    executed: bool
    seconds: dict[str, float] = field(default_factory=dict)

    @cached_property
    def tables(self) -> list[TableReport]:
        return self.make()

    def to_dict(self) -> dict[str, Any]:
        return {
            "executed": self.executed,
            "seconds": self.seconds,
            "tables": [asdict(table) for table in self.tables],
        }

    def __str__(self) -> str:
        lines: list[str] = []
        for table in self.tables:
            lines += _table_lines(table, self.executed)
        if not self.tables:
            lines.append("no table is read")
        if self.seconds:
            times = ", ".join(f"{name} {value * 1000:.2f} ms" for name, value in self.seconds.items())
            lines.append(f"time: {times}")
        return "\n".join(lines)


def _table_lines(table: TableReport, executed: bool) -> list[str]:
    lines = [f"{table.table}"]
    levels = [
        ("files", table.files),
        ("row groups", table.row_groups),
        ("pages", table.pages),
        ("rows", table.rows),
    ]
    lines += [f"  {_bar(level)} {name:<10} {level}" for name, level in levels]
    lines.append(f"  {_bar(table.bytes)} {'bytes':<10} {table.bytes}" + ("" if executed else " at most"))
    lines.append(f"  read: {table.page_read_files} files by page, {table.scanned_files} files by native scan")
    steps = [f"{step.step} {step.files_before} -> {step.files_after}" for step in table.steps]
    lines.append(f"  steps: {', '.join(steps)}")
    for use in table.indexes:
        lines.append(f"  index {use.index} ({use.kind}): {'used' if use.used else 'not used'}, {use.why}")
    return lines


def _bar(level: Level, width: int = 20) -> str:
    """The share that was read, drawn; anything read at all shows."""
    if not level.total:
        return " " * width
    filled = min(width, max(1 if level.read else 0, round(width * level.read / level.total)))
    return "█" * filled + "░" * (width - filled)
