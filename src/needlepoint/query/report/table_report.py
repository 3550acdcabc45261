"""The report and the map of a scan, planned or done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from needlepoint.access import SKIPPED, Access, Rows
from needlepoint.parquet import FileCard, ReadStats
from needlepoint.parquet.format import Int64Array
from needlepoint.query.cache.card_cache import CardCache
from needlepoint.query.pruning.result import PruningResult
from needlepoint.query.report.explain import FileAccess, GroupAccess, Level, TableReport
from needlepoint.query.report.lake_map import GroupMap, TableMap
from needlepoint.query.scan.cost_model import overlaps
from needlepoint.query.scan.page_reader import estimate_reads, rows_read
from needlepoint.query.scan.scan_plan import ScanMetrics, ScanPlan
from needlepoint.tables import File

# At most this many files are drawn, and this many row ranges in each row group.
MOST_FILES = 8
MOST_RANGES = 16
MOST_MAPPED = 200  # files with pages in the map


def table_report(
    scan: ScanPlan, done: ScanMetrics | None, cards: CardCache, native: Mapping[str, int] | None = None
) -> TableReport:
    """What was read of a table, or what will be; `native` is DataFusion's count."""
    pruning = scan.pruning or PruningResult(scan.access)
    files, scanned = scan.snapshot.files, scan.scanned
    stats = [*pruning.reads, *((done and done.reads) or estimate_reads(scan, cards))]
    bytes_scanned = native["bytes"] if native else sum(file.identity.size for file in scanned)
    rows_scanned = native["rows"] if native else _total(scanned, "rows") or 0
    return TableReport(
        table=scan.snapshot.table.name,
        files=Level(len(scanned) + len(scan.paged), len(files)),
        row_groups=_level(_row_groups(scan, cards), scanned, files, "row_groups"),
        pages=_level(sum(each.pages for each in stats), scanned, files, "pages"),
        rows=Level(rows_read(scan) + rows_scanned, _total(files, "rows")),
        bytes=Level(sum(each.bytes_read for each in stats) + bytes_scanned, sum(file.identity.size for file in files)),
        requests=sum(each.requests for each in stats),
        cached_bytes=sum(each.cached_bytes for each in stats),
        page_read_files=len(scan.paged) - scan.widened,
        row_group_files=scan.widened,
        scanned_files=len(scan.scanned),
        scanned_rows=rows_scanned,
        scan_counted=native is not None,
        filter_bytes=sum(each.bytes_read for each in pruning.reads),
        sifted_files=done.sifted if done else 0,
        steps=pruning.steps,
        indexes=tuple(dict.fromkeys(pruning.indexes)),  # both sides of a self-join may use the same index
        notes=_notes(scan, stats, cards),
        plan=_drawn(scan, cards),
        version=scan.snapshot.version,
        unfinished=scan.snapshot.unfinished,
        unnamed=scan.snapshot.unnamed,
        narrowed_by=scan.narrowed_by,
        counted_by=scan.counted_by,
    )


def _row_groups(scan: ScanPlan, cards: CardCache) -> int:
    """The row groups with page reads. Late materialization reads a file in two passes."""
    files, count = scan.snapshot.files, 0
    for at, rows in scan.access.rows.items():
        card = cards.get(files[at])
        groups = [rows] if card is None else rows.split(card.row_group_rows[1:])
        count += sum(group.count > 0 for group in groups)
    return count


def _total(files: Sequence[File], what: str) -> int | None:
    counts = [getattr(file, what) for file in files]
    return None if None in counts else sum(counts)


def _level(read: int, scanned: Sequence[File], files: Sequence[File], what: str) -> Level:
    return Level(read + (_total(scanned, what) or 0), _total(files, what))


def _notes(scan: ScanPlan, stats: Sequence[ReadStats], cards: CardCache) -> tuple[str, ...]:
    """Why files are read whole, or by whole row groups."""
    scanned = scan.scanned
    unknown = sum(file.id is None for file in scanned)
    waiting = sum(file.id is not None and not file.has_card and file.problem is None for file in scanned)
    notes = [f"{count} without a card: {why}" for why, count in Counter(
        file.problem for file in scanned if file.problem is not None).items()]  # fmt: skip
    lost = Counter(cards.problems(scanned))
    notes += [f"{count} with a lost card or zone map: {why}" for why, count in lost.items()]
    if scan.overruled:
        notes.insert(0, f"{scan.overruled} although only some rows are wanted: that is faster")
    notes += [f"by row group, {reason}" for each in stats for reason in each.reasons]
    if unknown:
        notes.insert(0, f"{unknown} new or changed; run sync to register them")
    if waiting:
        notes.insert(0, f"{waiting} not indexed yet")
    return tuple(notes)


def _drawn(scan: ScanPlan, cards: CardCache) -> tuple[FileAccess, ...]:
    """The first files that are read, by page before scanned."""
    files, plan = scan.snapshot.files, scan.access
    positions = [*sorted(plan.rows), *plan.scanned()][:MOST_FILES]
    return tuple(_file_access(files[at], plan.selection(at), cards.get(files[at])) for at in positions)


def _file_access(file: File, selection: Access | Rows, card: FileCard | None) -> FileAccess:
    if not isinstance(selection, Rows) or card is None:
        return FileAccess(file.path, "SCAN", file.rows, file.rows, ())
    edges = card.row_group_rows
    groups = []
    for number, rows in enumerate(selection.split(edges[1:])):
        first, total = int(edges[number]), int(edges[number + 1] - edges[number])
        kind = "SKIP" if not rows.count else "SCAN" if rows.count == total else "ROWS"
        starts, stops = (rows.starts + first)[:MOST_RANGES].tolist(), (rows.stops + first)[:MOST_RANGES].tolist()
        shown = tuple(zip(starts, stops, strict=True)) if kind == "ROWS" else ()
        groups.append(GroupAccess(number, kind, first, total, rows.count, shown, _bar(rows, total)))
    return FileAccess(file.path, "ROWS", selection.count, card.num_rows, tuple(groups))


def _bar(rows: Rows, total: int, width: int = 20) -> str:
    """The places of the rows in the row group; a cell is full if any of its rows is read.

    >>> _bar(Rows.of([0, 1, 99]), 100, width=10)
    '█░░░░░░░░█'
    """
    edges = np.arange(width + 1) * total // width
    before = np.searchsorted(rows.stops, edges[:-1], side="right")
    after = np.searchsorted(rows.starts, np.maximum(edges[1:], edges[:-1] + 1), side="left")
    return "".join("█" if full else "░" for full in (after > before).tolist())


def table_map(scan: ScanPlan, cards: CardCache) -> TableMap:
    """The map of a planned scan."""
    files, pruning = scan.snapshot.files, scan.pruning
    access = scan.access.states.astype(np.int64)
    step = np.full(len(files), -1)
    for number, after in reversed(list(enumerate(pruning.accesses if pruning else ()))):
        step[after.states == SKIPPED] = number
    step[access != SKIPPED] = -1
    mapped = {}
    for at, rows in list(scan.access.rows.items())[:MOST_MAPPED]:
        if (card := cards.get(files[at])) is not None:
            mapped[files[at].path] = _mapped(card, rows, scan.stored_columns())
    return TableMap(
        scan.snapshot.table.name,
        tuple(each.step for each in pruning.steps) if pruning else (),
        tuple(file.path for file in files),
        tuple(file.identity.size for file in files),
        tuple(file.rows for file in files),
        access,
        step,
        mapped,
    )


def _mapped(card: FileCard, rows: Rows, columns: list[str]) -> tuple[GroupMap, ...]:
    leaves = [card.find(name).first_leaf for name in columns if card.has(name)] or [0]
    groups = []
    for number, read in enumerate(rows.split(card.row_group_rows[1:])):
        total = int(card.row_group_rows[number + 1] - card.row_group_rows[number])
        edges = max((_edges(card, leaf, number) for leaf in leaves), key=len)
        groups.append(GroupMap(total, read.count, edges, (overlaps(edges[:-1], read) > 0).astype(np.int64)))
    return tuple(groups)


def _edges(card: FileCard, leaf: int, row_group: int) -> Int64Array:
    """The first row of each page of a column chunk, then its number of rows; one page if the pages are unknown."""
    chunk, (first, end) = card.chunk_index(leaf, row_group), card.row_group_rows[row_group : row_group + 2]
    first_rows = card.pages.first_row[card.page_starts[chunk] : card.page_starts[chunk + 1]]
    edges: Int64Array = np.append(first_rows if len(first_rows) else first, end) - first
    return edges
