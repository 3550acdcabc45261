"""TPC-H: 22 whole queries beside DataFusion and DuckDB, on the same files.

    make bench-tpch                  BENCH_SCALE=1 by default; the files are kept in bench-lake/

Needlepoint has key indexes on the keys of orders and lineitem. DataFusion runs with and without filter pushdown, and
the better of both counts. All run in turns, and the best of several rounds is compared: trust the ratios, not the
milliseconds. Answers are compared with DuckDB's. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import pyarrow as pa

import needlepoint

TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
PARTS = {"lineitem": 8, "orders": 4}  # files of the larger tables
INDEXES = (("orders", "o_orderkey"), ("orders", "o_custkey"), ("lineitem", "l_orderkey"))
ROUNDS = 5
# Lookups by key, with the other tables joined: the index should show.
JOINED = {
    "orders of a customer": "SELECT c_name, o_orderkey, o_totalprice FROM customer JOIN orders ON o_custkey = c_custkey"
    " WHERE c_custkey = 77",
    "their lines": "SELECT o_orderdate, l_linenumber, l_quantity FROM orders JOIN lineitem ON l_orderkey = o_orderkey"
    " WHERE o_custkey = 77",
    "newest orders": "SELECT o_orderkey, o_totalprice FROM orders ORDER BY o_orderkey DESC LIMIT 10",
}


def queries() -> dict[str, str]:
    text = Path(__file__).with_name("queries.sql").read_text()
    found = re.split(r"^-- (q\d+)$", text, flags=re.MULTILINE)[1:]
    return {name: query.strip().rstrip(";") for name, query in zip(found[::2], found[1::2], strict=True)}


def make_files(root: Path, scale: float) -> None:
    """A directory for each table."""
    if (root / "done").exists():
        return
    for table in TABLES:
        parts = [f"--parts={PARTS[table]}"] if table in PARTS else []
        place = root / table
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["tpchgen-cli", "parquet", "-s", str(scale), f"--tables={table}", *parts, f"--output-dir={place}"],
            check=True,
        )
        for file in [*place.rglob("*.parquet")]:  # the parts are in a directory of their own
            file.rename(place / file.name)
        for directory in place.iterdir():
            if directory.is_dir():
                directory.rmdir()
    with needlepoint.open(root) as lake:
        for table in TABLES:
            lake.create_table(table)
        for table, column in INDEXES:
            lake.create_index(table, column)
    (root / "done").touch()


Ask = Callable[[str], pa.Table]


def contenders(root: Path) -> dict[str, Ask]:
    lake = needlepoint.open(root, refresh=600, history="off")
    duck = duckdb.connect()
    made: dict[str, Ask] = {"needlepoint": lambda query: lake.sql(query).to_arrow()}
    for name, pushdown in (("datafusion", "false"), ("datafusion pushdown", "true")):
        options = {"datafusion.execution.parquet.pushdown_filters": pushdown,
                   "datafusion.sql_parser.parse_float_as_decimal": "true"}  # fmt: skip
        context = datafusion.SessionContext(datafusion.SessionConfig(options))
        for table in TABLES:
            context.register_parquet(table, str(root / table))
        made[name] = lambda query, context=context: context.sql(query).to_arrow_table()  # type: ignore[misc]
    for table in TABLES:
        duck.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{root}/{table}/*.parquet')")
    made["duckdb"] = lambda query: duck.sql(query).to_arrow_table()
    return made


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """In any order: not each ORDER BY is unique."""
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return sorted(rows, key=lambda row: [f"{float(each):.3g}" if _is_number(each) else str(each) for each in row])


def are_equal(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> bool:
    """Quotients of decimals have four digits at least: engines round them differently."""
    return len(left) == len(right) and all(
        math.isclose(one, other, rel_tol=1e-4) if _is_number(one) and _is_number(other) else one == other
        for one_row, other_row in zip(left, right, strict=True)
        for one, other in zip(one_row, other_row, strict=True)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, float | Decimal | int)


def main() -> None:
    given = _arguments()
    root = given.directory.absolute()
    make_files(root, given.scale)
    asked = contenders(root)
    wanted = {name: query for name, query in (queries() | JOINED).items() if not given.only or name in given.only}
    print(f"{'query':22}" + "".join(f"{name:>21}" for name in asked) + f"{'ratio':>8}  answers")
    sums = {"needlepoint": 0.0, "datafusion": 0.0}
    results = {}
    for name, query in wanted.items():
        expected, same = rows_of(asked["duckdb"](query)), True
        best = dict.fromkeys(asked, float("inf"))
        for _ in range(given.rounds):
            for contender, ask in asked.items():
                started = time.perf_counter()
                answer = ask(query)
                best[contender] = min(best[contender], time.perf_counter() - started)
                same = same and are_equal(rows_of(answer), expected)
        plain = min(best["datafusion"], best["datafusion pushdown"])
        ratio = best["needlepoint"] / plain
        if name not in JOINED:
            sums["needlepoint"] += best["needlepoint"]
            sums["datafusion"] += plain
        results[name] = {**{each: seconds * 1000 for each, seconds in best.items()}, "ratio": ratio, "equal": same}
        shown = "".join(f"{best[each] * 1000:>18.1f} ms" for each in asked)
        print(f"{name:22}{shown}{ratio:>8.2f}  {'equal' if same else 'DIFFERENT'}", flush=True)
    if sums["datafusion"]:
        print(
            f"sum of the 22: {sums['needlepoint'] / sums['datafusion']:.2f} of the better of DataFusion's two settings"
        )
    if given.output is not None:
        given.output.write_text(json.dumps(results, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    scale = float(os.environ.get("BENCH_SCALE", "1"))
    parser.add_argument("--scale", type=float, default=scale)
    parser.add_argument("--directory", type=Path, default=Path(f"bench-lake/tpch-{scale:g}"))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", nargs="*", help="names of queries")
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
