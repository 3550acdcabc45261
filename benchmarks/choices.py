"""How good the choices of the cost model are: `make bench-choices`.

A hundred generated queries run over five layouts of the same rows, each with every choice that the engine has:

    auto      the cost model chooses
    pages     indexes and page reads wherever they are possible
    scan      pruning by partitions, bounds and indexes, then DataFusion's native scan

The regret of a query is the time of `auto` divided by the best of all three. Layouts: ours (small pages, zstd, no
dictionaries), and the defaults of pyarrow, Spark and DuckDB, and small Snappy pages. Nothing else should run on the
machine; if it does, `--cpu` compares the CPU time of a process on one core. `--calibrate` measures the machine first.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import needlepoint
from needlepoint import Lake

CHOICES = ("auto", "pages", "scan")
FILES = 8
WARM_UP = 4
TENANTS = 200
COLUMNS = ("id", "at", "tenant", "customer", "title", "price", "note")
WORDS = ("garden", "copper", "lantern", "dairy", "goat", "river", "marble", "velvet", "amber", "thistle", "harbor")


def rows(count: int) -> pa.Table:
    """Shuffled ids, a sorted time, a column with few values, one with many, and texts."""
    chance = np.random.default_rng(7)
    words = np.array([*WORDS, *(f"word{number}" for number in range(5000))])
    weights = 1 / np.arange(1, len(words) + 1)
    picked = chance.choice(len(words), (count, 5), p=weights / weights.sum())
    return pa.table(
        {
            "id": chance.permutation(count),
            "at": np.arange(count) * 1000 + chance.integers(0, 900, count),
            "tenant": pa.array(chance.integers(0, TENANTS, count)).cast(pa.string()),
            "customer": chance.integers(0, count // 15, count),
            "title": [" ".join(row) for row in words[picked].tolist()],
            "price": chance.random(count),
            "note": pa.array(chance.integers(0, 1 << 60, count)).cast(pa.string()),
        }
    )


def write(table: pa.Table, layout: str, directory: Path) -> None:
    directory.mkdir(parents=True)
    step = -(-table.num_rows // FILES)
    parts = [table.slice(start, step) for start in range(0, table.num_rows, step)]
    if layout == "spark":
        _write_with_spark(parts, directory)
        return
    for number, part in enumerate(parts):
        path = directory / f"{number}.parquet"
        if layout == "ours":
            pq.write_table(part, path, max_rows_per_page=250, write_batch_size=250, use_dictionary=False,
                           compression="zstd", write_page_index=True)  # fmt: skip
        elif layout == "pyarrow":
            pq.write_table(part, path)
        elif layout == "snappy":
            pq.write_table(part, path, data_page_size=16 << 10, use_dictionary=False, write_page_index=True)
        else:
            duckdb.sql(f"COPY part TO '{path}' (FORMAT parquet)")


def _write_with_spark(parts: list[pa.Table], directory: Path) -> None:
    from needlepoint import spark

    session = spark.session(memory="4g")
    plain = directory.parent / "spark-source"
    plain.mkdir()
    for number, part in enumerate(parts):
        pq.write_table(part, plain / f"{number}.parquet")
    for number in range(len(parts)):
        session.read.parquet(str(plain / f"{number}.parquet")).coalesce(1).write.mode("append").parquet(str(directory))
    session.stop()
    shutil.rmtree(plain)


@dataclass(frozen=True)
class Queries:
    """Generates queries of many kinds in turn, with random values, columns and sizes."""

    chance: random.Random
    count: int

    def __iter__(self) -> Iterator[str]:
        kinds = [
            self.equal_key, self.several_keys, self.foreign_key, self.window, self.spread, self.few_values, self.like,
            self.match, self.two_indexes, self.several_others, self.beside_a_range, self.not_indexed,
        ]  # fmt: skip
        while True:
            for kind in kinds:
                condition, end = kind()
                yield f"SELECT {self._columns()} FROM t WHERE {condition}{end}"

    def _columns(self) -> str:
        """Few columns, or many."""
        return ", ".join(self.chance.sample(COLUMNS, self.chance.choice([1, 2, 3, len(COLUMNS)])))

    def _listed(self, below: int, count: int) -> str:
        return ", ".join(map(str, self.chance.sample(range(below), min(below, count))))

    def _range(self, column: str, widths: list[int]) -> str:
        width = self.chance.choice(widths) * (1000 if column == "at" else 1)
        start = self.chance.randrange(self.count * (1000 if column == "at" else 1))
        return f"{column} >= {start} AND {column} < {start + width}"

    def _word(self, first: int) -> str:
        """A word that is more or less frequent; the first ones are the most frequent."""
        return self.chance.choice([*WORDS[first:], *(f"word{number}" for number in (5, 50, 500, 4000))])

    def equal_key(self) -> tuple[str, str]:
        return f"id = {self.chance.randrange(self.count)}", ""

    def several_keys(self) -> tuple[str, str]:
        return f"id IN ({self._listed(self.count, self.chance.choice([3, 10, 30, 100, 300, 1000, 3000]))})", ""

    def foreign_key(self) -> tuple[str, str]:
        return f"customer = {self.chance.randrange(self.count // 15)}", ""

    def several_others(self) -> tuple[str, str]:
        if self.chance.random() < 0.5:
            return f"customer IN ({self._listed(self.count // 15, self.chance.choice([2, 20, 200]))})", ""
        tenants = ", ".join(f"'{number}'" for number in self.chance.sample(range(TENANTS), self.chance.choice([2, 5])))
        return f"tenant IN ({tenants})", ""

    def window(self) -> tuple[str, str]:
        return self._range("at", [100, 1000, 10_000, 100_000]), ""

    def spread(self) -> tuple[str, str]:
        return self._range("id", [10, 100, 1000, 10_000, 100_000]), ""

    def few_values(self) -> tuple[str, str]:
        return f"tenant = '{self.chance.randrange(TENANTS)}'", ""

    def like(self) -> tuple[str, str]:
        pieces = [self._word(3) for _ in range(self.chance.choice([1, 2, 2]))]
        return f"title LIKE '%{' '.join(pieces)}%'", ""

    def match(self) -> tuple[str, str]:
        words = " ".join({self._word(5) for _ in range(self.chance.choice([1, 1, 2]))})
        return f"text_match(title, '{words}')", self.chance.choice(["", " LIMIT 10"])

    def two_indexes(self) -> tuple[str, str]:
        other = self.chance.choice([f"tenant = '{self.chance.randrange(TENANTS)}'", f"title LIKE '%{self._word(3)}%'"])
        return f"{other} AND {self._range('at', [10_000, 100_000])}", ""

    def beside_a_range(self) -> tuple[str, str]:
        condition = f"customer < {self.chance.choice([10, 1000])} AND at > {self.chance.randrange(self.count * 1000)}"
        return condition, ""

    def not_indexed(self) -> tuple[str, str]:
        """Only bounds help."""
        return f"price < {self.chance.choice([0.0001, 0.01])} AND {self._range('at', [1000, 10_000, 100_000])}", ""


def on_one_core() -> Callable[[], float]:
    """From now on, threads share nothing, and CPU time is the time of queries, also for the engine. Returns the
    clock."""
    from needlepoint.query import engine, execution, point_lookup
    from needlepoint.query.scan import costs, page_reader

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    costs.THREADS = page_reader.THREADS = 1
    clock = types.SimpleNamespace(perf_counter=time.process_time, monotonic=time.monotonic, time=time.time)
    for module in (engine, execution, point_lookup):
        module.time = clock
    return time.process_time


def timed(lakes: dict[str, Lake], query: str, rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """The least milliseconds of each choice, in turns, after caches are warm and `auto` has tried what it tries.
    Answers have the same size."""
    best: dict[str, float] = {}
    for number in range(-WARM_UP, rounds):
        sizes, order = set(), list(lakes.items())
        # The one after a scan finds the caches of the processor full of other data.
        for choice, lake in order[number % len(order) :] + order[: number % len(order)]:
            started = clock()
            sizes.add(lake.sql(query).to_arrow().num_rows)
            taken = (clock() - started) * 1000
            if number >= 0:
                best[choice] = min(taken, best.get(choice, taken))
        assert len(sizes) == 1, query
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lake", type=Path, default=Path("bench-lake/choices"))
    parser.add_argument("--layout", choices=["ours", "pyarrow", "spark", "snappy", "duckdb"], action="append")
    parser.add_argument("--cpu", action="store_true", help="CPU time on one core, for a busy machine")
    parser.add_argument("--calibrate", action="store_true", help="go by costs that are measured first")
    parser.add_argument("--show", type=int, default=5, help="how many of the worst queries to show")
    given = parser.parse_args()
    clock = on_one_core() if given.cpu else time.perf_counter
    table = None
    print("| layout | queries | median | 95% | worst | sum of auto over the sum of the best |")
    print("| --- | --- | --- | --- | --- | --- |")
    regrets: list[float] = []
    for layout in given.layout or ["ours", "pyarrow", "spark", "snappy", "duckdb"]:
        root = given.lake / f"{given.rows}-{layout}"
        if not (root / "done").exists():
            shutil.rmtree(root, ignore_errors=True)
            table = rows(given.rows) if table is None else table
            write(table, layout, root / "t")
            with needlepoint.open(root) as lake:
                lake.create_table("t")
                for column, kind in (("id", "key"), ("customer", "key"), ("tenant", "distinct"), ("title", "text")):
                    lake.create_index("t", column, kind=kind)
            (root / "done").touch()
        lakes = {choice: needlepoint.open(root, access=choice, refresh=600) for choice in CHOICES}
        if given.calibrate:
            lakes["auto"].calibrate()
        queries = Queries(random.Random(given.seed), given.rows)
        times = {query: timed(lakes, query, given.rounds, clock) for _, query in zip(range(given.queries), queries)}  # noqa: B905
        found = {query: each["auto"] / min(each.values()) for query, each in times.items()}
        whole = sum(each["auto"] for each in times.values()) / sum(min(each.values()) for each in times.values())
        ordered = sorted(found.values())
        print(
            f"| {layout} | {len(found)} | {ordered[len(found) // 2]:.2f} | {ordered[int(len(found) * 0.95)]:.2f} "
            f"| {ordered[-1]:.2f} | {whole:.2f} |", flush=True
        )  # fmt: skip
        regrets += ordered
        for query in sorted(found, key=lambda query: -found[query])[: given.show]:
            milliseconds = ", ".join(f"{choice} {taken:.1f}" for choice, taken in times[query].items())
            print(f"    {found[query]:.2f}: {milliseconds} ms: {query[:110]}", flush=True)
        for lake in lakes.values():
            lake.close()
    regrets.sort()
    print(f"all: median {regrets[len(regrets) // 2]:.2f}, 95% {regrets[int(len(regrets) * 0.95)]:.2f}")


if __name__ == "__main__":
    main()
