"""Spark through the index, compared with plain Spark over the same lake.

    make bench-spark                 BENCH_ROWS=10000000 by default; the lake is kept in bench-lake/

    needlepoint     spark.read(session, lake, "product", where=…), planned again for every query
    plain           session.read.parquet(directory).where(…), planned again for every query
    plain, loaded   the same on a DataFrame that is loaded once, so Spark lists the files and reads the schema once

All run in turns; medians and answers are compared. Trust the ratios. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quick import make_lake, report

import needlepoint
from needlepoint import spark as needle_spark
from needlepoint.spark.products import product_id_of

COLUMNS = ["product_id", "title", "upc"]
Ask = Callable[[int], Any]  # a DataFrame for the number of a round


def questions(session: Any, lake: needlepoint.Lake, rows: int) -> dict[str, dict[str, Ask]]:
    location = lake.registry.tables.get("product").location
    loaded = session.read.parquet(location)

    def ids(number: int, count: int) -> list[int]:
        return [product_id_of((number * 7919 + n * 104_729) % rows) for n in range(count)]

    def beside(where: Callable[[int], str]) -> dict[str, Ask]:
        return {
            "needlepoint": lambda n: needle_spark.read(session, lake, "product", where(n), COLUMNS),
            "plain": lambda n: session.read.parquet(location).where(where(n)).select(COLUMNS),
            "plain, loaded": lambda n: loaded.where(where(n)).select(COLUMNS),
        }

    def orders(number: int) -> Any:
        return session.createDataFrame([(id,) for id in ids(number, 1000)], "product_id bigint")

    joined: dict[str, Ask] = {
        "needlepoint": lambda n: needle_spark.lookup_join(orders(n), lake, "product", "product_id", ["title", "upc"]),
        "plain": lambda n: orders(n).join(session.read.parquet(location).select(COLUMNS), "product_id"),
        "plain, loaded": lambda n: orders(n).join(loaded.select(COLUMNS), "product_id"),
    }
    return {
        "one row": beside(lambda n: f"product_id = {ids(n, 1)[0]}"),
        "no row": beside(lambda n: f"product_id = {product_id_of(rows + n)}"),
        "IN (1,000)": beside(lambda n: f"product_id IN ({', '.join(map(str, ids(n, 1000)))})"),
        "title LIKE '%goat%'": beside(lambda n: f"title LIKE '%goat%' AND product_id > {n}"),
        "join of 1,000 keys": joined,
    }


def in_turns(contenders: dict[str, Ask], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        answers = set()
        for name, ask in contenders.items():
            started = time.perf_counter()
            found = ask(number).collect()
            if number:  # not the first round, which starts workers and compiles
                times[name].append(time.perf_counter() - started)
            answers.add(json.dumps(sorted(tuple(row) for row in found), default=str))
        assert len(answers) == 1, "answers differ"
    return {name: statistics.median(taken) for name, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=int(os.environ.get("BENCH_ROWS", "10000000")))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--lake", type=Path, default=Path("bench-lake"))
    arguments = parser.parse_args()
    root = (arguments.lake / str(arguments.rows)).resolve()
    make_lake(root, arguments.rows)
    session = needle_spark.session(memory="4g")
    rows = []
    with needlepoint.open(root) as lake:
        if not lake.registry.indexes.of(lake.registry.tables.get("product")):
            lake.create_index("product", "product_id")
        for title, contenders in questions(session, lake, arguments.rows).items():
            times = in_turns(contenders, arguments.rounds)
            ours, plain, loaded = (times[name] for name in ("needlepoint", "plain", "plain, loaded"))
            shown = [f"{seconds * 1000:.0f}" for seconds in (ours, plain, loaded)]
            rows.append([title, *shown, f"{plain / ours:.1f}x", f"{loaded / ours:.1f}x"])
    headers = ["question", "needlepoint ms", "plain ms", "plain, loaded ms", "gain", "gain over loaded"]
    report(f"Spark over {arguments.rows:,} rows, answers equal", headers, rows)
    session.stop()


if __name__ == "__main__":
    main()
