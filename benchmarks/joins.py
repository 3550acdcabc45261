"""Joins with few keys and first rows of an order, beside DataFusion and DuckDB over the same files, in two layouts.

    make bench-joins                BENCH_ROWS=5000000 by default

All run the same queries in turns, with other keys in each round, and every answer is compared. `scan` is the lake
without indexes. DataFusion filters rows after it reads them, or while it does (pushdown).
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from counts import LAYOUTS as COUNTED
from counts import rows_of

import needlepoint

FILES, ROUNDS, WARMING, SETS = 50, 9, 4, 64
SIZES = (3, 10, 100)
TABLES = ("t", "wanted", "parts")
LAYOUTS = {**COUNTED, "ours": {**COUNTED["ours"], "use_dictionary": False}}
WANTED = "SELECT id FROM wanted WHERE size = {size} AND number = {number}"


def queries() -> dict[str, str]:
    found = {}
    for size in SIZES:
        few = f"w.size = {size} AND w.number = {{number}}"
        found |= {
            f"JOIN, {size} keys": f"SELECT t.id, title FROM t JOIN wanted w ON t.id = w.id WHERE {few}",
            f"IN (SELECT), {size} keys": f"SELECT id, title FROM t WHERE id IN ({WANTED.replace('{size}', str(size))})",
        }
    few = "w.size = 10 AND w.number = {number}"
    return found | {
        "EXISTS, 10 keys": f"SELECT id, title FROM t WHERE EXISTS (SELECT 1 FROM wanted w WHERE w.id = t.id AND {few})",
        "LEFT JOIN, 10 keys": f"SELECT w.id, title FROM wanted w LEFT JOIN t ON t.id = w.id WHERE {few}",
        "id = (SELECT max(id) …)": f"SELECT id, title FROM t WHERE id = (SELECT max(id) FROM wanted w WHERE {few})",
        "two joins, 10 keys": "SELECT t.id, p.name FROM wanted w JOIN t ON t.id = w.id JOIN parts p ON p.part = t.part "
        f"WHERE {few}",
        "10 greatest": "SELECT score, title FROM t ORDER BY score DESC LIMIT 10",
        "10 least, from the 100th on": "SELECT score, title FROM t ORDER BY score LIMIT 10 OFFSET 100",
        "10 greatest of a tenth": "SELECT score, title FROM t WHERE part % 10 = {number} % 10 "
        "ORDER BY score DESC LIMIT 10",
    }


def make(root: Path, rows: int, options: dict[str, Any]) -> needlepoint.Lake:
    """`id`, `part` and `score` are in any order; key indexes on `t.id`, `t.score` and `parts.part`."""
    chance, each = np.random.default_rng(1), rows // FILES
    ids, scores, words = chance.permutation(rows), chance.permutation(rows), np.array(["dairy", "cow", "ice", "goat"])
    for file in range(FILES):
        part = slice(file * each, (file + 1) * each)
        titles = [" ".join(picked) for picked in words[chance.integers(0, len(words), (each, 3))].tolist()]
        numbers = {"id": ids[part], "score": scores[part], "part": chance.integers(0, rows // 10, each)}
        _write(root / "t" / f"{file}.parquet", {**numbers, "title": titles}, options)
    picks = [(size, number, int(ids[chance.integers(0, rows)])) for size in SIZES for number in range(SETS)
             for _ in range(size)]  # fmt: skip
    _write(
        root / "wanted" / "0.parquet",
        dict(zip(("size", "number", "id"), zip(*picks, strict=True), strict=True)),
        options,
    )
    parts = np.arange(rows // 10)
    _write(root / "parts" / "0.parquet", {"part": parts, "name": [f"part {part}" for part in parts.tolist()]}, options)
    lake = needlepoint.open(root)
    for name in TABLES:
        lake.create_table(name)
    for table, column in (("t", "id"), ("t", "score"), ("parts", "part")):
        lake.create_index(table, column)
    return lake


def _write(path: Path, columns: dict[str, Any], options: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)


def measure(ways: dict[str, Callable[[str], pa.Table]], query: str) -> dict[str, float]:
    """The median of each, in milliseconds."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    names = [*ways]
    for turn in range(WARMING + ROUNDS):
        answers = set()
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            started = time.perf_counter()
            answer = ways[name](query.format(number=turn % SETS))
            if turn >= WARMING:
                taken[name].append(time.perf_counter() - started)
            answers.add(tuple(rows_of(answer)))
        assert len(answers) == 1, (query, answers)
    return {name: statistics.median(times) * 1000 for name, times in taken.items()}


def compare(lake: needlepoint.Lake, place: str) -> None:
    plain, pushing = (
        datafusion.SessionContext(
            datafusion.SessionConfig({"datafusion.execution.parquet.pushdown_filters": str(pushdown).lower()})
        )
        for pushdown in (False, True)
    )
    duck = duckdb.connect()
    for name in TABLES:
        plain.register_parquet(name, f"{place}/{name}")
        pushing.register_parquet(name, f"{place}/{name}")
        duck.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{place}/{name}/*.parquet')")
    ways: dict[str, Callable[[str], pa.Table]] = {
        "lake": lambda query: lake.sql(query).to_arrow(),
        "scan": lambda query: lake.engine.sql(query, use_indexes=False).to_arrow(),
        "datafusion": lambda query: plain.sql(query).to_arrow_table(),
        "pushdown": lambda query: pushing.sql(query).to_arrow_table(),
        "duck": lambda query: duck.sql(query).to_arrow_table(),
    }
    print("| query | lake.sql ms | scan ms | DataFusion ms | with pushdown ms | DuckDB ms | of DataFusion |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, query in queries().items():
        found = measure(ways, query)
        times = " | ".join(f"{value:.1f}" for value in found.values())
        ratio = found["lake"] / min(found["datafusion"], found["pushdown"])
        print(f"| {name} | {times} | {ratio:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=int(os.environ.get("BENCH_ROWS", "5000000")))
    rows = parser.parse_args().rows
    for layout, options in LAYOUTS.items():
        with tempfile.TemporaryDirectory(prefix="needlepoint-joins-") as place:
            print(f"\n{rows:,} rows in {FILES} files, layout: {layout}\n")
            with make(Path(place), rows, options) as lake:
                compare(lake, place)


if __name__ == "__main__":
    main()
