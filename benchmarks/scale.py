"""Does a lookup cost the same in a small table and in a large one?

    python benchmarks/scale.py --rows 1000000 100000000

A lake of each size is written in our layout and indexed. Lookups of single rows alternate between the lakes; medians
are compared. The lakes are kept in bench-lake/scale-ROWS (100 million rows: 3 GB, about ten minutes). Nothing else
should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from quick import report

import needlepoint

ROWS_OF_A_FILE = 1_000_000
WORDS = ["dairy", "cow", "goat", "milk", "fresh", "large", "small", "red", "blue", "green", "organic", "pack", "apple"]
LOOKUPS, ROUNDS, WARMING = 40, 10, 400


def key_of(row: int) -> int:
    """Unique and unordered: multiplication by an odd number permutes the 32-bit numbers."""
    return row * 2_654_435_761 % (1 << 32)


def make_lake(root: Path, rows: int) -> None:
    if (root / "done").exists():
        return
    (root / "product").mkdir(parents=True, exist_ok=True)
    words = pa.array(WORDS)
    started = time.perf_counter()
    for first in range(0, rows, ROWS_OF_A_FILE):
        path = root / f"product/{first // ROWS_OF_A_FILE:05}.parquet"
        if path.exists():
            continue
        chance = np.random.default_rng(first)
        numbers = np.arange(first, min(rows, first + ROWS_OF_A_FILE), dtype=np.uint64)
        keys = (numbers * np.uint64(2_654_435_761) % np.uint64(1 << 32)).astype(np.int64)
        picked = [words.take(pa.array(chance.integers(0, len(WORDS), len(numbers)))) for _ in range(5)]
        table = pa.table({"product_id": keys, "title": pc.binary_join_element_wise(*picked, " ")})
        scratch = path.with_suffix(".writing")
        pq.write_table(
            table, scratch, max_rows_per_page=250, write_batch_size=250, use_dictionary=False, compression="zstd",
            write_page_index=True,
        )  # fmt: skip
        scratch.rename(path)
    print(f"{rows:,} rows written in {time.perf_counter() - started:.0f} s", flush=True)
    started = time.perf_counter()
    with needlepoint.open(root) as lake:
        lake.create_table("product")
        lake.create_index("product", "product_id")
    print(f"{rows:,} rows indexed in {time.perf_counter() - started:.0f} s", flush=True)
    (root / "done").touch()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 100_000_000])
    parser.add_argument("--lake", type=Path, default=Path("bench-lake"))
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    lakes = {}
    for rows in arguments.rows:
        make_lake(arguments.lake / f"scale-{rows}", rows)
        lakes[rows] = needlepoint.open(arguments.lake / f"scale-{rows}", refresh=600)
    times: dict[tuple[int, str], list[float]] = {}
    for turn in range(ROUNDS + 1):
        for rows, lake in lakes.items():
            table = lake.table("product")
            for number in range(WARMING if turn == 0 else LOOKUPS):
                key = key_of((turn * 1_000_003 + number * 104_729 + 17) % rows)
                ways = {
                    "sql": lambda key=key, lake=lake: lake.sql(f"SELECT title FROM product WHERE product_id = {key}"),
                    "get": lambda key=key, table=table: table.get(product_id=key, columns=["title"]),
                }
                for way, ask in ways.items():
                    started = time.perf_counter()
                    found = ask()
                    if turn:
                        times.setdefault((rows, way), []).append(time.perf_counter() - started)
                    assert len(found) == 1, key
    medians = {key: statistics.median(values) * 1000 for key, values in times.items()}
    first = arguments.rows[0]
    shown = [
        [f"{rows:,}", *(f"{medians[rows, way]:.2f}" for way in ("sql", "get")),
         *(f"{medians[rows, way] / medians[first, way]:.2f}" for way in ("sql", "get"))]
        for rows in arguments.rows
    ]  # fmt: skip
    headers = ["rows", "lake.sql ms", "table.get ms", f"sql over {first:,}", f"get over {first:,}"]
    report("one row, warm", headers, shown)
    if arguments.json:
        arguments.json.write_text(json.dumps({f"{rows} {way}": ms for (rows, way), ms in medians.items()}, indent=2))


if __name__ == "__main__":
    main()
