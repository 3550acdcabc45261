"""Rules: what would make the queries of a table faster.

Pure: facts of a table (`table_statistics.py`) and a history (`history.py`) in, advice out. Bytes and seconds "now" were
measured when the queries ran; those "after" are estimated from the sizes of pages and the costs of the cost model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from shlex import quote

import pyarrow as pa

from needlepoint.advisor.history import IndexUsage, ShapeStatistics
from needlepoint.advisor.query_shapes import Shape, conditions, found_by, shown
from needlepoint.advisor.table_statistics import TableStatistics
from needlepoint.indexes.key import key_bytes
from needlepoint.printable import count, size_text
from needlepoint.query import ZSTD

# A shape with fewer queries says nothing.
OFTEN = 3
# Advice must promise this much: of the bytes of a query, or of its time.
WORTHWHILE, LITTLE = 0.5, 32 << 10
UNUSED_DAYS = 7
SMALL_FILE, MANY_FILES, TARGET_FILE = 16 << 20, 16, 128 << 20
# benchmarks/README.md: bytes on disk and keys a second of one process, by the width of a key.
KEY_BYTES, KEY_RATE = {8: 11.1, 16: 17.6}, {8: 1_100_000, 16: 800_000}
TEXT_SHARE, TEXT_RATE = 0.5, 300_000  # of the column's compressed bytes; texts a second
BLOOM_BYTES, BLOOM_WRONG = 2.5, 0.01
MOST_DISTINCT = 10_000  # docs/indexes.md, most_values
# A key index so large, and of more than this share of the table, is too much where a filter does almost as well.
LARGE_INDEX, LARGE_SHARE = 1 << 30, 0.25
# Planning and running a query that reads nothing.
QUERY_SECONDS = 0.6e-3

REWRITES = frozenset({"sort", "compact", "pages"})  # advice that is about the files themselves

EQUALITY = frozenset({"eq", "in"})
BY_KEY = frozenset({"eq", "in", "range", "prefix"})
SORTED = frozenset({"range", "prefix"})
_ANSWERS = {"key": BY_KEY, "distinct": EQUALITY, "bloom": EQUALITY, "text": frozenset({"like", "text_match"})}


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do. Bytes and seconds are those of one query, now and afterwards, on average over `asked` queries;
    None where nothing was measured. `costs` says what doing it takes. Two pieces of advice may help the same queries:
    their gains do not add up."""

    what: str
    command: str
    why: str
    costs: str
    confidence: str
    asked: int = 0
    bytes_now: int | None = None
    bytes_after: int | None = None
    seconds_now: float | None = None
    seconds_after: float | None = None

    @property
    def saved(self) -> float:
        """Seconds in all."""
        return self.asked * ((self.seconds_now or 0.0) - (self.seconds_after or 0.0))


@dataclass(frozen=True, slots=True)
class _QueryCost:
    """What one query takes, by estimate."""

    bytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class _Improvement:
    """Queries of one shape, and what each would take."""

    asked: ShapeStatistics
    after: _QueryCost


@dataclass(frozen=True, slots=True)
class TableAdvice:
    """`queries` were asked of the table since the day (of 1970) on which the history begins; none: it is empty."""

    table: str
    queries: int
    since: int | None
    advice: tuple[Advice, ...]


def advise(
    facts: TableStatistics, history: Sequence[ShapeStatistics], used: Sequence[IndexUsage] = (), today: int = 0
) -> list[Advice]:
    """All that pays, the greatest gain first."""
    often = [asked for asked in history if asked.times >= OFTEN]
    found = [*new_indexes(facts, often), *unused_indexes(facts, used, today), *lacking_files(facts)]
    if facts.ours:
        found += [*sort_orders(facts, often), *small_files(facts, often), *page_layout(facts, often)]
    return sorted(found, key=lambda advice: -advice.saved)


# Indexes


def new_indexes(facts: TableStatistics, history: Sequence[ShapeStatistics]) -> Iterator[Advice]:
    """Of every column that is asked and that no index serves, the kind that fits."""
    open_questions = [asked for asked in history if not _served(facts, asked.shape)]
    columns = dict.fromkeys(column for asked in open_questions for _, column in conditions(asked.shape))
    for column in columns:
        if column not in facts.columns or pa.types.is_nested(facts.columns[column].type):
            continue  # a partition needs none, and a list can have none
        for kinds in (("key", "distinct"), ("text",)):
            offers = [offer for kind in kinds if (offer := _offer(facts, open_questions, column, kind)) is not None]
            if offers:
                yield max(offers, key=lambda offer: offer.saved)


def _served(facts: TableStatistics, shape: Shape) -> bool:
    return any(
        found_by(shape, column, _ANSWERS.get(index.kind, frozenset()))
        for index in facts.indexes
        for column in index.columns
    )


def _offer(facts: TableStatistics, history: Sequence[ShapeStatistics], column: str, kind: str) -> Advice | None:
    estimate = _ESTIMATES[kind]
    answered = [asked for asked in history if found_by(asked.shape, column, _ANSWERS[kind])]
    helped = [_Improvement(asked, after) for asked in answered if (after := estimate(facts, asked, column)) is not None]
    helped = [each for each in helped if _pays(each)]
    if not helped:
        return None
    type = facts.columns[column].type
    if kind == "key" and _key_size(facts, type) > max(LARGE_INDEX, LARGE_SHARE * facts.bytes):
        estimates = ((each.asked, _by_bloom(facts, each.asked, column)) for each in helped)
        filters = [_Improvement(asked, cost) for asked, cost in estimates if cost is not None]
        if filters and all(map(_pays, filters)) and len(filters) == len(helped):
            helped, kind = filters, "bloom"
    size, rate = {
        "key": (_key_size(facts, type), KEY_RATE[key_bytes(type)]),
        "bloom": (facts.rows * BLOOM_BYTES, 1e6),
        "text": (facts.columns[column].bytes * TEXT_SHARE, TEXT_RATE),
        "distinct": (facts.columns[column].pages * 8, 1e6),
    }[kind]
    option = "" if kind == "key" else f" --kind {kind}"
    why = f"{_questions(helped)}; its bounds leave {_share(facts.columns[column].page_share)} of the pages"
    costs = f"about {size_text(size)} and {_seconds_text(facts.rows / rate)} of one core"
    # Names of tables and indexes are plain words, those of columns whatever a file says.
    return _with_gain("index", f"needle create-index {facts.table} {quote(column)}{option}", why, costs, helped)


def _pays(helped: _Improvement) -> bool:
    sums = helped.asked.sums
    now = sums.bytes / sums.times
    return helped.after.bytes < min(WORTHWHILE * now, now - LITTLE) and helped.after.seconds < sums.seconds / sums.times


def _by_key(facts: TableStatistics, asked: ShapeStatistics, column: str) -> _QueryCost | None:
    rows = _rows_named(facts, asked, column)
    if rows is None or rows > facts.range_limit:
        return None
    keys = asked.sums.compared / asked.times
    found = _reads_of_rows(facts, asked.columns, rows)
    return _QueryCost(found.bytes, found.seconds + keys * facts.costs.key)


def _rows_named(facts: TableStatistics, asked: ShapeStatistics, column: str) -> float | None:
    """The rows that an index on the column names for one query: those that matched, if nothing else was asked; else
    going by how often a value of the column occurs."""
    if _alone(facts, asked, column):
        return asked.sums.matched / asked.times
    kinds = {kind for kind, named in conditions(asked.shape) if named == column}
    known = facts.values.get(column)
    if known is None or not kinds <= EQUALITY or not known.distinct > 0:
        return None
    return max(1.0, asked.sums.compared / asked.times) * facts.rows / known.distinct


def _alone(facts: TableStatistics, asked: ShapeStatistics, column: str) -> bool:
    """Whether nothing else decides which rows match, but partitions."""
    return all(named == column or named not in facts.columns for _, named in conditions(asked.shape))


def _by_distinct(facts: TableStatistics, asked: ShapeStatistics, column: str) -> _QueryCost | None:
    known = facts.values.get(column)
    rows = _rows_named(facts, asked, column)
    if rows is None or known is None or not known.distinct <= MOST_DISTINCT:
        return None
    share = min(1.0, rows / known.rows_in_page / max(1.0, facts.columns[column].pages))
    size = sum(facts.columns[name].bytes for name in asked.columns if name in facts.columns) * share
    pages = sum(facts.columns[name].pages for name in asked.columns if name in facts.columns) * share
    return _QueryCost(size, QUERY_SECONDS + facts.files * facts.costs.file + _read_seconds(facts, pages, size))


def _by_bloom(facts: TableStatistics, asked: ShapeStatistics, column: str) -> _QueryCost | None:
    rows = _rows_named(facts, asked, column)
    if rows is None or not found_by(asked.shape, column, EQUALITY):
        return None
    groups = min(facts.groups, rows + BLOOM_WRONG * facts.groups)
    first = facts.columns[column].bytes * groups / facts.groups
    rest = _reads_of_rows(facts, [name for name in asked.columns if name != column], rows)
    return _QueryCost(first + rest.bytes, facts.files * 50e-6 + rest.seconds + first * facts.costs.read_byte(ZSTD))


def _by_text(facts: TableStatistics, asked: ShapeStatistics, column: str) -> _QueryCost | None:
    type = facts.columns[column].type
    if not (pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type)):
        return None
    found = _reads_of_rows(facts, asked.columns, asked.sums.matched / asked.times)
    return _QueryCost(found.bytes, found.seconds + facts.files * 300e-6)


_ESTIMATES: dict[str, Callable[[TableStatistics, ShapeStatistics, str], _QueryCost | None]] = {
    "key": _by_key,
    "distinct": _by_distinct,
    "text": _by_text,
}


def _reads_of_rows(facts: TableStatistics, columns: Sequence[str], rows: float) -> _QueryCost:
    """Rows from all over the table, each in a page of its own until there are more rows than pages."""
    size = pages = 0.0
    for column in (facts.columns[name] for name in columns if name in facts.columns):
        touched = column.pages * -math.expm1(-rows / max(1.0, column.pages))
        pages += touched
        size += touched * column.page_bytes + min(rows, facts.groups) * column.dictionary_bytes
    files = min(rows, facts.files)
    return _QueryCost(size, QUERY_SECONDS + files * facts.costs.file + _read_seconds(facts, pages, size))


def _read_seconds(facts: TableStatistics, pages: float, size: float) -> float:
    costs = facts.costs
    return pages * (costs.page_of(ZSTD) + costs.request) + size * costs.read_byte(ZSTD)


def _key_size(facts: TableStatistics, type: pa.DataType) -> float:
    return facts.rows * KEY_BYTES[key_bytes(type)]


# Order


def sort_orders(facts: TableStatistics, history: Sequence[ShapeStatistics]) -> Iterator[Advice]:
    """A range of a column whose files and pages overlap reads far more than the rows it wants."""
    offers: dict[str, list[_Improvement]] = {}
    for asked in history:
        ranged = {column for kind, column in conditions(asked.shape) if kind in SORTED and column in facts.columns}
        for column in ranged:
            # How many rows a range matches is not known where something else is asked, too.
            if found_by(asked.shape, column, SORTED) and _alone(facts, asked, column):
                after = _if_sorted(facts, asked, 0.0)
                if _pays(_Improvement(asked, after)):
                    offers.setdefault(column, []).append(_Improvement(asked, after))
    advice = {column: _sorted_by(facts, (column,), helped) for column, helped in offers.items()}
    best = sorted(advice, key=lambda column: -advice[column].saved)
    if len(best) > 1 and advice[best[1]].saved > 0.3 * advice[best[0]].saved:
        both = list({id(each.asked): each.asked for name in best[:2] for each in offers[name]}.values())
        # A page of a Z-order is a square: a range of one column meets a row of squares.
        pages = max(facts.columns[name].pages for name in best[:2])
        again = [_Improvement(asked, _if_sorted(facts, asked, 1 / math.sqrt(max(1.0, pages)))) for asked in both]
        again = [each for each in again if _pays(each)]
        if again:
            yield _sorted_by(facts, tuple(best[:2]), again)
            return
    if best:
        yield advice[best[0]]


def _if_sorted(facts: TableStatistics, asked: ShapeStatistics, more: float) -> _QueryCost:
    """Of each directory the share of the rows that match, and the pages at both ends."""
    share = min(1.0, asked.sums.matched / asked.times / max(1, facts.rows) + more)
    ends = 2 * facts.directories
    size = pages = 0.0
    for column in (facts.columns[name] for name in asked.columns if name in facts.columns):
        touched = min(column.pages, column.pages * share + ends)
        pages += touched
        size += touched * column.page_bytes
    files = min(facts.files, math.ceil(facts.files * share) + facts.directories)
    by_page = files * facts.costs.file + _read_seconds(facts, pages, size)
    by_scan = facts.costs.scan + files * facts.costs.scan_file + size * facts.costs.scanned_byte(ZSTD)
    return _QueryCost(size, QUERY_SECONDS + min(by_page, by_scan))


def _sorted_by(facts: TableStatistics, columns: tuple[str, ...], helped: Sequence[_Improvement]) -> Advice:
    order = f"--sort-by {quote(columns[0])}" if len(columns) == 1 else f"--zorder {quote(','.join(columns))}"
    shares = "; ".join(
        f"bounds of {name} leave {_share(facts.columns[name].file_share)} of the files and "
        f"{_share(facts.columns[name].page_share)} of the pages for one value"
        for name in columns
    )
    why = f"{_questions(helped)}; {shares}"
    costs = f"all {size_text(facts.bytes)} are written again"
    return _with_gain("sort", f"needle compact {facts.table} {order}", why, costs, helped, most="medium")


# Files and pages


def small_files(facts: TableStatistics, history: Sequence[ShapeStatistics]) -> Iterator[Advice]:
    fewer = max(facts.directories, math.ceil(facts.bytes / TARGET_FILE))
    if facts.files < MANY_FILES or facts.file_bytes >= SMALL_FILE or fewer > facts.files / 2:
        return
    share = fewer / facts.files
    helped = []
    for asked in history:
        sums = asked.sums
        files = sums.files / sums.times
        cost = facts.costs.scan_file if sums.scans else facts.costs.file
        # A file is opened in parallel with others, and not below the time of an empty query.
        spared = (files - max(1.0, files * share)) * cost / 2
        now = sums.seconds / sums.times
        if files > 1:
            helped.append(_Improvement(asked, _QueryCost(sums.bytes / sums.times, max(QUERY_SECONDS, now - spared))))
    why = f"{count(facts.files, 'file')} of {size_text(facts.file_bytes)} on average, {fewer:,} would do"
    if helped:
        opened = sum(each.asked.sums.files for each in helped) / sum(each.asked.times for each in helped)
        why += f"; queries open {opened:,.0f} of them"
    command = f"needle compact {facts.table} --target-size {TARGET_FILE >> 20}MB"
    costs = f"all {size_text(facts.bytes)} are written again"
    yield _with_gain("compact", command, why, costs, helped, most="medium")


def page_layout(facts: TableStatistics, history: Sequence[ShapeStatistics]) -> Iterator[Advice]:
    from needlepoint.parquet.inspect import LARGE_PAGE  # every lake loads this module, and few are inspected

    asked_of = {column for asked in history for column in asked.columns}
    columns = {name: facts.columns[name] for name in facts.columns if not history or name in asked_of}
    plain = {name: column for name, column in columns.items() if not pa.types.is_nested(column.type)}
    large = [name for name, column in plain.items() if column.page_bytes > LARGE_PAGE]
    if large:
        worst = max(columns[name].page_bytes for name in large)
        why = f"one row costs a page of up to {size_text(worst)} of {', '.join(large)}"
        yield Advice(
            "pages",
            f"needle compact {facts.table} --page-rows 250",
            why,
            f"all {size_text(facts.bytes)} are written again",
            "medium" if history else "low",
        )
    lacking = [name for name, column in plain.items() if column.page_indexed < 1 and column.bytes > facts.files * 65536]
    if lacking:
        why = f"no page index in some files for {', '.join(lacking)}: their pages cannot be ruled out by bounds"
        costs = "data pages stay as they are; files are read once and get another footer"
        yield Advice("pages", f"needle retrofit {facts.table} --page-index", why, costs, "low")


# Indexes there are


def unused_indexes(facts: TableStatistics, used: Sequence[IndexUsage], today: int) -> Iterator[Advice]:
    known = {each.index: each for each in used}
    for index in facts.indexes:
        seen = known.get(index.name)
        if seen is None or seen.times or today - seen.since < UNUSED_DAYS:
            continue
        why = f"no query used it in {today - seen.since} days"
        yield Advice("drop", f"needle drop-index {index.name}", why, f"frees {size_text(index.bytes)}", "medium")


def lacking_files(facts: TableStatistics) -> Iterator[Advice]:
    lacking = [f"{index.name} lacks {facts.files - index.files:,}" for index in facts.indexes]
    lacking = [text for text, index in zip(lacking, facts.indexes, strict=True) if index.files < facts.files]
    if facts.unknown:
        lacking.insert(0, f"{count(facts.unknown, 'file')} {'is' if facts.unknown == 1 else 'are'} not in the registry")
    if lacking:
        why = f"{'; '.join(lacking)} of {count(facts.files, 'file')}: they are scanned"
        yield Advice("sync", f"needle sync {facts.table}", why, "time to index those files", "high")


# Words


def _with_gain(
    what: str, command: str, why: str, costs: str, helped: Sequence[_Improvement], most: str = "high"
) -> Advice:
    times = sum(each.asked.times for each in helped)
    if not times:
        return Advice(what, command, why, costs, "low")
    weighed = [(each.asked.times / times, each) for each in helped]
    confidence = "high" if times >= 20 else "medium" if times >= 10 else "low"
    return Advice(
        what,
        command,
        why,
        costs,
        most if confidence == "high" else confidence,
        times,
        round(sum(each.asked.sums.bytes for each in helped) / times),
        round(sum(weight * each.after.bytes for weight, each in weighed)),
        sum(each.asked.sums.seconds for each in helped) / times,
        sum(weight * each.after.seconds for weight, each in weighed),
    )


def _questions(helped: Sequence[_Improvement]) -> str:
    """The shapes asked most, and how often all were."""
    ordered = sorted(helped, key=lambda each: -each.asked.times)
    texts = dict.fromkeys(shown(each.asked.shape) for each in ordered)
    several = f" and {len(texts) - 2} more" if len(texts) > 2 else ""
    return f"{', '.join(list(texts)[:2])}{several} asked {count(sum(each.asked.times for each in helped), 'time')}"


def _share(share: float) -> str:
    """
    >>> _share(1.0), _share(0.0312), _share(0.00002)
    ('100%', '3.1%', '0.002%')
    """
    percent = share * 100
    return f"{percent:.0f}%" if percent >= 10 else f"{percent:.1f}%" if percent >= 0.1 else f"{percent:.2g}%"


def _seconds_text(seconds: float) -> str:
    """
    >>> _seconds_text(0.2), _seconds_text(75), _seconds_text(90_000)
    ('1 s', '75 s', '25 h')
    """
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
