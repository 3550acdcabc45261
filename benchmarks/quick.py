"""Lookups on 10M rows against DataFusion's own scan, indexing speed and memory, import time.

    make bench-quick                 BENCH_ROWS=10000000 by default; the lake is kept in bench-lake/

Both run the same queries in turns, and medians are compared: trust the ratios, not the milliseconds. Every
answer is compared too. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import datafusion
import pyarrow as pa

import needlepoint
from needlepoint import spark as needle_spark
from needlepoint.spark.products import product_id_of, products

BATCHES = 5
WARMING_LOOKUPS = 400
SCANS_IN_A_ROW, LOOKUPS_IN_A_ROW = 4, 24
LAYOUT = needle_spark.Layout(dictionary_off=("product_id", "upc", "title"), sort_by=("created_timestamp",))
PARTITIONS = ["partner", "year", "month"]

IMPORT = """
import sys, time
started = time.perf_counter()
import needlepoint
print(time.perf_counter() - started)
heavy = {"pyarrow", "numpy", "pyspark", "datafusion", "rocksdict", "tantivy", "redis", "pandas", "polars", "rich"}
print(",".join(sorted(heavy & set(sys.modules))))
"""

INDEX = """
import resource, sys, time
import needlepoint
lake = needlepoint.open(sys.argv[1], workers=1, index_memory=int(sys.argv[2]))
for index in lake.status().tables[0].indexes:
    if index.column == sys.argv[3]:
        lake.drop_index(index.name)
name = lake.create_index("product", sys.argv[3], build=False)
before = resource.getrusage(resource.RUSAGE_SELF)
started = time.perf_counter()
lake.sync("product")
seconds = time.perf_counter() - started
after = resource.getrusage(resource.RUSAGE_SELF)
print(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, after.ru_maxrss * 1024)
(status,) = [index for index in lake.status().tables[0].indexes if index.name == name]
print(status.entries, status.bytes)
"""


def make_lake(root: Path, rows: int) -> None:
    """Write the lake with the Spark pipeline, as users do."""
    with needlepoint.open(root) as lake:
        marker = root / "rows"
        made = f"{rows} rows, {LAYOUT}"
        if marker.exists() and marker.read_text() == made:
            return
        print(f"writing {rows:,} rows with Spark into {root} (once)")
        session = needle_spark.session(memory="4g")
        for batch in range(BATCHES):
            frame = products(session, rows, batch=batch, batches=BATCHES)
            needle_spark.write(
                frame,
                lake,
                "product",
                batch=f"bench/{rows}/{batch}",
                partition_by=PARTITIONS,
                layout=LAYOUT,
                files_per_partition=1,
            )
        session.stop()
        list(lake.follow_events(once=True))
        marker.write_text(made)


def plain_context(location: str, schema: pa.Schema) -> datafusion.SessionContext:
    """DataFusion alone, with filter pushdown, over the same files."""
    config = datafusion.SessionConfig({"datafusion.execution.parquet.pushdown_filters": "true"})
    context = datafusion.SessionContext(config)
    hive = PARTITIONS if any(Path(location).glob("*=*")) else ()
    data = pa.schema([field for field in schema if field.name not in hive])
    partitions = [(name, schema.field(name).type) for name in hive]
    context.register_listing_table("product", f"{location}/", table_partition_cols=partitions, schema=data)
    return context


def in_turns(
    contenders: dict[str, Callable[[int], object]], rounds: int, warming: int = WARMING_LOOKUPS
) -> dict[str, float]:
    """Median seconds of each contender, measured in turns.

    A turn of a lookup has many different queries, and a turn of a scan has a few: a scan evicts everything else from
    the processor's caches, while the benchmark models a service that answers one lookup after the other. Before the
    first turn, every contender has read all files once: a card, like a footer, is read once.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(warming):
        for name, ask in contenders.items():
            if name != "datafusion" or number < 2:
                ask(-1 - number)
    names = list(contenders)
    for turn in range(rounds):
        answers: dict[str, list[str]] = {}
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            in_a_row = SCANS_IN_A_ROW if name == "datafusion" else LOOKUPS_IN_A_ROW
            for number in range(turn * LOOKUPS_IN_A_ROW, turn * LOOKUPS_IN_A_ROW + in_a_row):
                started = time.perf_counter()
                answer = contenders[name](number)
                times[name].append(time.perf_counter() - started)
                answers.setdefault(name, []).append(canonical(answer))
        same = {tuple(each[:SCANS_IN_A_ROW]) for each in answers.values()}
        assert len(same) == 1, f"answers differ: {answers}"
    return {name: statistics.median(values) for name, values in times.items()}


def canonical(answer: object) -> str:
    table = answer.to_arrow() if isinstance(answer, needlepoint.query.result.Result) else answer  # type: ignore[attr-defined]
    rows = [tuple(row.values()) for row in pa.table(table).to_pylist()]
    return json.dumps(sorted(rows, key=str), default=str)


def lookups(lake: needlepoint.Lake, rows: int, rounds: int) -> list[tuple[str, dict[str, float]]]:
    table = lake.table("product")
    plain = plain_context(lake.registry.tables.get("product").location, table.schema)

    def three(where: Callable[[int], str], keys: Callable[[int], object]) -> dict[str, Callable[[int], object]]:
        query = "SELECT title, upc FROM product WHERE product_id {}"
        return {
            "datafusion": lambda n: plain.sql(query.format(where(n))).to_arrow_table(),
            "lake.sql": lambda n: lake.sql(query.format(where(n))),
            "table.get": lambda n: table.get(product_id=keys(n), columns=["title", "upc"]),
        }

    def ids(number: int, count: int) -> list[int]:
        return [product_id_of((number * 7919 + n * 104_729) % rows) for n in range(count)]

    def several(count: int) -> dict[str, Callable[[int], object]]:
        return three(lambda n: f"IN ({', '.join(map(str, ids(n, count)))})", lambda n: ids(n, count))

    one = three(lambda n: f"= {ids(n, 1)[0]}", lambda n: ids(n, 1)[0])
    missing = three(lambda n: f"= {product_id_of(rows + n)}", lambda n: product_id_of(rows + n))
    return [
        ("one row", in_turns(one, rounds)),
        ("no row", in_turns(missing, rounds)),
        ("IN (10)", in_turns(several(10), rounds)),
        ("IN (1,000)", in_turns(several(1000), 3, warming=3)),
    ]


def run(program: str, *arguments: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.split("\n")


def report(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in (headers, *rows)) for i in range(len(headers))]
    print(f"\n{title}")
    for row in (headers, *rows):
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=int(os.environ.get("BENCH_ROWS", "10000000")))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--lake", type=Path, default=Path("bench-lake"))
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    root = arguments.lake / str(arguments.rows)
    make_lake(root, arguments.rows)
    figures: dict[str, object] = {
        "rows": arguments.rows,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "versions": {"datafusion": datafusion.__version__, "pyarrow": pa.__version__},
    }

    imports = sorted(float(run(IMPORT)[0]) for _ in range(7))
    figures["import_ms"] = imports[3] * 1000
    report(
        "import needlepoint", ["median ms", "heavy modules"], [[f"{imports[3] * 1000:.0f}", run(IMPORT)[1] or "none"]]
    )

    rows = []
    for column in ("product_id", "upc"):
        for memory in (128 << 20, 512 << 20):
            times, counts = run(INDEX, str(root), str(memory), column)[:2]
            seconds, cpu, peak = map(float, times.split())
            entries, size = map(int, counts.split())
            figures[f"index_{column}_{memory >> 20}"] = {"keys_per_second": entries / seconds, "peak_bytes": peak}
            rows.append([
                column, f"{memory >> 20} MiB", f"{entries / seconds:,.0f}", f"{entries / cpu:,.0f}",
                f"{peak / (1 << 20):,.0f} MiB", f"{size / entries:.1f}",
            ])  # fmt: skip
    headers = ["column", "memory setting", "keys/s, one process", "keys per CPU second", "peak memory", "bytes/key"]
    report("indexing", headers, rows)

    rows = []
    with needlepoint.open(root) as lake:
        for title, times in lookups(lake, arguments.rows, arguments.rounds):
            scan, sql, get = times["datafusion"], times["lake.sql"], times["table.get"]
            figures[title] = times
            rows.append([
                title, f"{scan * 1000:.1f}", f"{sql * 1000:.2f}", f"{get * 1000:.2f}",
                f"{scan / sql:.0f}x", f"{scan / get:.0f}x", f"{sql / get:.1f}x",
            ])  # fmt: skip
    headers = ["lookup", "DataFusion ms", "lake.sql ms", "table.get ms", "sql gain", "get gain", "get over sql"]
    report(f"warm lookups of two columns in {arguments.rows:,} rows, answers equal", headers, rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
