"""What a query read and why: the funnel files -> row groups -> pages -> rows, and the use of each index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

from needlepoint.printable import count, printable
from needlepoint.query.report.lake_map import TableMap

MOST_NAMED = 5  # skipped files


@dataclass(frozen=True, slots=True)
class StepReport:
    """Files and rows before and after a step."""

    step: str
    files_before: int
    files_after: int
    rows_before: int
    rows_after: int


@dataclass(frozen=True, slots=True)
class IndexUse:
    """How a query used an index, or why it did not."""

    index: str
    kind: str
    column: str
    used: bool
    why: str


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the funnel; `total` is None if it is unknown without reading more."""

    read: int
    total: int | None

    def __str__(self) -> str:
        return f"{self.read:,} of {'?' if self.total is None else f'{self.total:,}'}"


@dataclass(frozen=True, slots=True)
class GroupAccess:
    """What is read of one row group: SKIP, SCAN, or ROWS with the first of its half-open ranges, in row numbers of the
    file. `bar` draws their places."""

    row_group: int
    access: str
    first_row: int
    total: int
    rows: int
    ranges: tuple[tuple[int, int], ...]
    bar: str


@dataclass(frozen=True, slots=True)
class FileAccess:
    """What is read of one file: SCAN, or ROWS with its row groups."""

    path: str
    access: str
    rows: int | None
    total: int | None
    row_groups: tuple[GroupAccess, ...]


@dataclass(frozen=True, slots=True)
class TableReport:
    """`version` is that of an external table format. Skipped files: `unfinished` ones have no footer, `unnamed` ones
    have paths that readers cannot name. `narrowed_by` are conditions that a join or a LIMIT implies. `counted_by` says
    what rows were counted by without reading them.

    `requests` and `sifted_files` (whose predicate columns were read first) are those of page reads.

    `rows` are those read by page, matching or not. `scanned_rows` are those that native scans returned: fewer than they
    read, if they filter. `scan_counted`: DataFusion counted them. Before a query ran, or if it scans several tables,
    they are all rows of the files.

    `bytes` can exceed its total, the size of the files: it includes `filter_bytes` of bloom filters, and a scan may
    read the same bytes again.
    """

    table: str
    files: Level
    row_groups: Level
    pages: Level
    rows: Level
    bytes: Level
    requests: int
    cached_bytes: int
    page_read_files: int
    row_group_files: int
    scanned_files: int
    scanned_rows: int
    scan_counted: bool
    filter_bytes: int
    sifted_files: int
    steps: tuple[StepReport, ...]
    indexes: tuple[IndexUse, ...]
    notes: tuple[str, ...]
    plan: tuple[FileAccess, ...]
    version: str = ""
    unfinished: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()
    narrowed_by: tuple[str, ...] = ()
    counted_by: tuple[str, ...] = ()


@dataclass(repr=False)
class Report:
    """The report of `explain`; every result has one, as `result.report`.

    Pages and row groups are counted for page reads only: a native scan prunes inside DataFusion. `bytes` of a native
    scan is DataFusion's own count, known after the query ran.
    """

    make: Callable[[], list[TableReport]]
    draw: Callable[[], list[TableMap]]
    executed: bool
    seconds: dict[str, float] = field(default_factory=dict)

    @cached_property
    def tables(self) -> list[TableReport]:
        return self.make()

    @cached_property
    def maps(self) -> list[TableMap]:
        """Each table's files, and what is read of them."""
        return self.draw()

    def to_dict(self) -> dict[str, Any]:
        return {
            "executed": self.executed,
            "seconds": self.seconds,
            "tables": [asdict(table) for table in self.tables],
        }

    def _repr_html_(self) -> str:
        from needlepoint.query.report.html import report_html  # which draws this class

        return report_html(self)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines: list[str] = []
        for table in self.tables:
            lines += _table_lines(table, self.executed)
        if not self.tables:
            lines.append("no table is read")
        if self.seconds:
            times = ", ".join(f"{name} {value * 1000:.2f} ms" for name, value in self.seconds.items())
            lines.append(f"time: {times}")
        return "\n".join(map(printable, lines))


def _table_lines(table: TableReport, executed: bool) -> list[str]:
    lines = [f"{table.table}, version {table.version}" if table.version else table.table]
    levels = [
        ("files", table.files),
        ("row groups", table.row_groups),
        ("pages", table.pages),
    ]
    lines += [f"  {_bar(level)} {name:<10} {level}" for name, level in levels]
    lines.append(f"  {_bar(table.rows)} {'rows':<10} {table.rows}{_of_scans(table)}")
    filters = f", {table.filter_bytes:,} of them for bloom filters" if table.filter_bytes else ""
    lines.append(f"  {_bar(table.bytes)} {'bytes':<10} {table.bytes}{'' if executed else ' at most'}{filters}")
    lines.append(f"  read: {_ways(table)}")
    lines += [f"  read whole: {note}" for note in table.notes]
    if table.unfinished:
        why = "without a footer, still being written or left by a writer that died"
        lines.append(f"  passed over: {_passed_over(table.unfinished, why)}")
    if table.unnamed:
        why = "with an empty part, `.`, `..` or a control character in the path, for which readers have no name"
        lines.append(f"  passed over: {_passed_over(table.unnamed, why)}")
    narrowing = [
        step for step in table.steps if step.rows_after < step.rows_before or step.files_after < step.files_before
    ]
    lines += [f"  narrowed by: {condition}" for condition in table.narrowed_by]
    if table.counted_by:
        lines.append(f"  counted from {'; '.join(table.counted_by)}")
    lines.append("  steps:" if narrowing else "  steps: none could rule anything out")
    lines += [
        f"    {step.step:<13} {step.files_before:,} -> {count(step.files_after, 'file')}, "
        f"{step.rows_before:,} -> {count(step.rows_after, 'row')}"
        for step in narrowing
    ]
    for use in table.indexes:
        lines.append(f"  index {use.index} ({use.kind}): {'used' if use.used else 'not used'}, {use.why}")
    if table.plan:
        lines.append("  access plan, ranges of rows without their end:")
        for file in table.plan:
            lines += _plan_lines(file)
        more, skipped = table.files.read - len(table.plan), (table.files.total or 0) - table.files.read
        if more > 0:
            lines.append(f"    {count(more, 'more file')} {'is' if more == 1 else 'are'} read, {skipped:,} skipped")
        else:
            lines.append(f"    {count(skipped, 'file')} SKIP")
    return lines


def _passed_over(paths: Sequence[str], why: str) -> str:
    """Why files are not in the result.

    >>> _passed_over(["a.parquet", "b\\nc.parquet"], "of others")
    '2 of others: a.parquet, b\\\\nc.parquet'
    """
    named = ", ".join(path.encode("unicode_escape").decode() for path in paths[:MOST_NAMED])
    return f"{len(paths):,} {why}: {named}{', …' if len(paths) > MOST_NAMED else ''}"


def _of_scans(table: TableReport) -> str:
    if not table.scanned_files:
        return ""
    kind = "by native scan, its filters applied" if table.scan_counted else "in files that are scanned"
    return f", {table.scanned_rows:,} {kind}"


def _ways(table: TableReport) -> str:
    ways = [f"{count(table.page_read_files, 'file')} by page"]
    if table.row_group_files:
        ways.append(f"{table.row_group_files} by row group")
    ways.append(f"{table.scanned_files} by native scan")
    requests = f"; {count(table.requests, 'request')}" if table.requests else ""
    requests += f"; {count(table.cached_bytes, 'byte')} from the cache" if table.cached_bytes else ""
    looked = f"; {count(table.sifted_files, 'file')} by the predicate's columns first" if table.sifted_files else ""
    return ", ".join(ways) + requests + looked


def _plan_lines(file: FileAccess) -> list[str]:
    """A file and its row groups; adjacent skipped ones share a line.

    part-0.parquet  ROWS, 150 of 4,000
      row group 0  ░░░░░░░░░░░░░░░░░░░░  SKIP
      row group 1  ░░██░░░█░░░░░░░░░░░░  ROWS 1100-1200, 1350-1400
    """
    if not file.row_groups:
        rows = "" if file.rows is None else f", {count(file.rows, 'row')}"
        return [f"    {file.path}  SCAN{rows}"]
    lines = [f"    {file.path}  ROWS, {file.rows:,} of {file.total:,}"]
    for access, run in groupby(file.row_groups, lambda group: group.access):
        groups = list(run)
        if access != "ROWS" and len(groups) > 1:
            name = f"row groups {groups[0].row_group}-{groups[-1].row_group}"
            lines.append(f"      {name:<16} {groups[0].bar}  {access}")
            continue
        for group in groups:
            ranges = ", ".join(f"{first}-{stop}" for first, stop in group.ranges)
            more = "" if len(group.ranges) < 2 or sum(b - a for a, b in group.ranges) == group.rows else ", …"
            lines.append(
                f"      {f'row group {group.row_group}':<16} {group.bar}  {group.access} {ranges}{more}".rstrip()
            )
    return lines


def _bar(level: Level, width: int = 20) -> str:
    """The share that was read; any non-zero share shows."""
    if not level.total:
        return " " * width
    filled = min(width, max(1 if level.read else 0, round(width * level.read / level.total)))
    return "█" * filled + "░" * (width - filled)
