"""Measures what reads cost on this machine, for the cost model: `needle calibrate`.

Small files are written into a temporary directory, and read in many ways. Page reads differ in codec, size of pages,
columns and number of pages; scans in files, pages and columns. Least squares gives a constant for each factor. CPU time
is measured, which other programs on the machine disturb less than elapsed time.

Only local files are measured. `key` and `skimmed_byte` keep their defaults: an index would take longer to build than
all of this takes.

A lake is not measured by its first query: that would take a second more, or measure what else the process does. It is
measured by the command, and after the first long build of an index on a machine.
"""

from __future__ import annotations

import functools
import logging
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from needlepoint.errors import StoreError
from needlepoint.parquet import CachedCard, FileRows, build_card, foresee_rows, read_files
from needlepoint.query import (
    CODECS_BY_NUMBER,
    ENTRY_BYTES,
    Costs,
    FileSizes,
    keep_costs,
    machine_name,
    measured_costs,
)
from needlepoint.settings import Settings

if TYPE_CHECKING:
    from needlepoint.lake.lake import Lake

PAGE_ROWS, SCAN_ROWS = 10_000, 80_000
SMALL, LARGE = 250, 2500
# Short times, of which differences are taken, need more.
ROUNDS, MORE_ROUNDS = 4, 12
# Measurements are off by a tenth or so, and machines by half of what is usual for them; none is so unlike others.
ANCHOR, MOST_UNLIKE = 0.2, 8.0
TEXTS = ("code", "title")
COLUMNS = ("id", "x", *TEXTS)
WORDS = 3000
CODECS = ("none", "zstd", "snappy", "lz4", "gzip")
# Tables to scan: codec and rows per page.
SCANNED = {"plain": ("none", SMALL), "dense": ("zstd", LARGE), "coded": ("snappy", LARGE), "quick": ("lz4", LARGE)}

# Beside a build that took so many seconds, another second does not matter.
WORTH_SECONDS = 30.0

_log = logging.getLogger("needlepoint")
Factors = Mapping[str, float]
USUAL = asdict(Costs())


@dataclass(frozen=True, slots=True)
class Calibration:
    """The measured costs of local files, in seconds by name, beside those that are usual. They are kept in `path`;
    None if they are for this lake object only, because it is open for reading only."""

    machine: str
    costs: Mapping[str, float]
    usual: Mapping[str, float]
    path: Path | None


def calibrate(lake: Lake) -> Calibration:
    """Measure this machine, keep the costs in the lake's store, and go by them from now on."""
    costs = measure()
    path = None
    if not lake.read_only:
        try:
            path = keep_costs(lake.store, costs)
        except OSError as error:
            raise StoreError(
                f"the costs cannot be kept in {lake.store}: {error}.",
                hint="Is it writable? `needle calibrate --output FILE` writes elsewhere.",
            ) from error
    if not lake.settings.costs:  # a file that a person chose counts more
        lake.engine.costs = measured_costs(costs)
    return Calibration(machine_name(), asdict(costs), USUAL, path)


def calibrate_after(lake: Lake, seconds: float) -> None:
    """Measure this machine after a build of so many seconds, if that was long and the machine is not known yet."""
    if seconds < WORTH_SECONDS or lake.read_only or lake.settings.costs or lake.engine.costs.is_measured:
        return
    try:
        calibrate(lake)
    except Exception as error:  # the index is built
        _log.warning("this machine was not measured: %s; `needle calibrate` tries again.", error)


def measure() -> Costs:
    """The costs of this machine. Takes about a second of one core."""
    costs = Costs()
    with tempfile.TemporaryDirectory(prefix="needlepoint-calibrate-") as directory:
        root = Path(directory)
        costs = replace(costs, **_page_costs(root))
        return replace(costs, **_scan_costs(root, costs))


def sample(rows: int) -> pa.Table:
    """Shuffled and sorted numbers, texts of five words, and texts with few values."""
    chance = np.random.default_rng(7)
    words = pa.array([f"word{number}" for number in range(WORDS)])
    drawn = [words.take(pa.array(chance.integers(0, WORDS, rows))) for _ in range(5)]
    return pa.table(
        {
            "id": chance.permutation(rows),
            "x": np.arange(rows),
            "code": pa.array(chance.integers(0, 200, rows)).cast(pa.string()),
            "title": pc.binary_join_element_wise(*drawn, " "),
        }
    )


def _write(table: pa.Table, path: Path, codec: str, page_rows: int, dictionary: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        table, path, max_rows_per_page=page_rows, write_batch_size=page_rows, data_page_size=1 << 30,
        use_dictionary=dictionary, write_page_index=True, compression=codec, dictionary_pagesize_limit=1 << 30,
    )  # fmt: skip


def _best_seconds(action: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The least CPU time: what else runs on the machine only adds to it."""
    action()
    times = []
    for _ in range(rounds):
        started = time.process_time()
        action()
        times.append(time.process_time() - started)
    return min(times)


def fit(measured: Sequence[tuple[Factors, float]], usual: Mapping[str, float]) -> dict[str, float]:
    """The constant of each factor, by relative errors. What the measurements do not tell apart stays near what is
    `usual`, faster or slower by as much as this machine is.

    >>> usual = {"page": 1.0, "byte": 0.02}
    >>> found = fit([({"page": 1, "byte": 100}, 6.0), ({"page": 2, "byte": 100}, 8.0)], usual)
    >>> {name: round(seconds, 3) for name, seconds in found.items()}
    {'page': 2.0, 'byte': 0.04}
    """
    names = list(dict.fromkeys(name for factors, _ in measured for name in factors))
    work = [[factors.get(name, 0.0) * usual[name] / seconds for name in names] for factors, seconds in measured]
    slower = 1 / float(np.median(np.sum(work, axis=1)))
    anchors = np.eye(len(names)) * ANCHOR
    matrix, wanted = np.vstack([work, anchors]), [*[1.0] * len(work), *[slower * ANCHOR] * len(names)]
    times = np.linalg.lstsq(matrix, np.array(wanted), rcond=None)[0]
    times = np.clip(times, slower / MOST_UNLIKE, slower * MOST_UNLIKE).tolist()
    return {name: usual[name] * each for name, each in zip(names, times, strict=True)}


def _near(seconds: float, usual: float) -> float:
    """A single measurement, which may be far off."""
    return min(max(seconds, usual / MOST_UNLIKE), usual * MOST_UNLIKE)


# Pages


def _page_costs(root: Path) -> dict[str, float]:
    table = sample(PAGE_ROWS)
    measured: list[tuple[Factors, float]] = []
    for codec in CODECS:
        for page_rows in (LARGE,) if codec == "gzip" else (SMALL, LARGE):  # it takes long to write
            measured += _page_reads(table, root / f"{codec}-{page_rows}.parquet", codec, page_rows)
    measured += _page_reads(table, root / "dictionary.parquet", "snappy", LARGE, dictionary=True)
    return fit(measured, USUAL)


def _page_reads(
    table: pa.Table, path: Path, codec: str, page_rows: int, dictionary: bool = False
) -> Iterator[tuple[Factors, float]]:
    _write(table, path, codec, page_rows, dictionary)
    cached = CachedCard(build_card(str(path)))
    for columns in (["id"], ["title"], list(COLUMNS)):
        size = cached.sizes(tuple(columns))
        for wanted in _wanted(page_rows):
            rows = FileRows(str(path), cached, wanted)
            read = foresee_rows(cached, columns, wanted)
            decoded = read.pages * page_rows / len(columns)
            factors = {
                "file": 1.0,
                "request": read.requests,
                "page": read.pages,
                "byte": read.bytes_read,
                "value": decoded * len(columns) + size.dictionaries / ENTRY_BYTES,
                "text": decoded * size.texts + size.text_dictionaries / ENTRY_BYTES,
            }
            if codec != "none":
                factors |= {f"{codec}_byte": read.bytes_read}
            if codec not in ("none", "gzip"):
                factors |= {f"{codec}_page": read.pages}
            yield factors, _best_seconds(functools.partial(read_files, [rows], columns))


def _wanted(page_rows: int) -> Iterable[npt.NDArray[np.int64]]:
    """One page, some pages that are not adjacent, and adjacent ones."""
    step = 2 * page_rows
    yield np.array([page_rows])
    yield np.arange(0, PAGE_ROWS, step)[:16] + 7
    yield np.arange(min(PAGE_ROWS, 8 * page_rows))


# Scans


class _Ask(Protocol):
    """The seconds of a query that scans."""

    def __call__(self, query: str, rounds: int = ROUNDS) -> float: ...


def _scan_costs(root: Path, costs: Costs) -> dict[str, float]:
    from needlepoint.lake.lake import Lake  # it imports this module

    large, small = sample(SCAN_ROWS), sample(100)
    for number in range(8):
        _write(small, root / f"many/{number}.parquet", "none", LARGE)
    for name, (codec, page_rows) in SCANNED.items():
        _write(large, root / f"{name}/0.parquet", codec, page_rows, dictionary=name == "coded")
    settings = Settings(history="off", refresh=1000.0, access="scan")
    with Lake(root, settings=settings) as lake:
        for name in ("many", *SCANNED):
            lake.create_table(name)
        lake.engine.queries.filters.worth_bytes = 1 << 60  # always filter while reading

        def ask(query: str, rounds: int = ROUNDS) -> float:
            return _best_seconds(functools.partial(lake.engine.sql, query), rounds)

        found = _scan_starts(root, ask, costs.file)
        return found | _scan_reads(lake, ask) | _conditions(ask)


def _scan_starts(root: Path, ask: _Ask, file: float) -> dict[str, float]:
    """What a scan takes beyond page reads, by query and by file; and DataFusion beyond none."""
    from needlepoint.lake.lake import Lake

    query, lookup = "SELECT id + 1 AS n FROM plain WHERE x = 50", "SELECT id FROM plain WHERE x = 50"
    one, eight = (ask(query, MORE_ROUNDS), ask("SELECT id + 1 AS n FROM many WHERE x = 50", MORE_ROUNDS))
    with Lake(root, settings=Settings(history="off", refresh=1000.0, access="pages")) as lake:
        paged, found = (
            _best_seconds(functools.partial(lake.engine.sql, each), MORE_ROUNDS) for each in (query, lookup)
        )
    of_file = _near((eight - one) / 7, USUAL["scan_file"])
    return {
        "plan": _near(paged - found, USUAL["plan"]),
        "scan_file": of_file,
        "scan": _near(one - paged + file - of_file, USUAL["scan"]),
    }


def _scan_reads(lake: Lake, ask: _Ask) -> dict[str, float]:
    """By page, byte and value. Conditions joined by OR read all of their columns and let few rows pass."""
    conditions = {"id": "id = 777", "code": "code = '1234'", "title": "title = 'word5 word6'"}
    measured: list[tuple[Factors, float]] = []
    for table in SCANNED:
        (file,) = lake.engine.state(table).snapshot.files
        cached = lake.engine.cards.cached(file)
        assert cached is not None
        for columns in (("id",), ("id", "code"), ("id", "title"), ("id", "code", "title")):
            read = FileSizes.of([cached], columns).whole()
            factors = {
                "base": 1.0,
                "scan_page": float(read.pages[0]),
                "scan_byte": float(read.bytes[0]),
                "scan_cell": float(read.values[0]),
                "scan_text": float(read.texts[0]),
            }
            if codec := int(read.codec[0]):
                factors[f"scan_{CODECS_BY_NUMBER[codec]}_byte"] = factors["scan_byte"]
            where = " OR ".join(conditions[name] for name in columns)
            measured.append((factors, ask(f"SELECT id FROM {table} WHERE {where}")))
    found = fit(measured, {**USUAL, "base": 2e-3})
    del found["base"]
    return found


def _conditions(ask: _Ask) -> dict[str, float]:
    """To evaluate LIKE and text_match on a text, and what a value of an IN takes, once and for each file."""
    equal = ask("SELECT id FROM plain WHERE title = 'word5 word6'")
    like = ask("SELECT id FROM plain WHERE title LIKE '%word17 word2999%'")
    match = ask("SELECT id FROM plain WHERE text_match(title, 'word17')")
    one, eight = (_of_a_value(ask, table) for table in ("plain", "many"))
    of_file = _near((eight - one) / 7, USUAL["scan_list"])
    return {
        "like": _near((like - equal) / SCAN_ROWS, USUAL["like"]),
        "match": _near((match - equal) / SCAN_ROWS, USUAL["match"]),
        "scan_value": _near(one - of_file, USUAL["scan_value"]),
        "scan_list": of_file,
    }


def _of_a_value(ask: _Ask, table: str) -> float:
    """What a scan of a table takes for each value of an IN."""
    lists = (", ".join(map(str, range(0, 5 * count, 5))) for count in (10, 810))
    few, many = (ask(f"SELECT id FROM {table} WHERE id IN ({values})") for values in lists)
    return (many - few) / 800
