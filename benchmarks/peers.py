"""Lookups, ranges and an aggregate on the same rows: Needlepoint beside DataFusion, DuckDB, Polars and Lance.

    make bench-peers                 BENCH_ROWS=10000000 by default; the lake is kept in bench-lake/

There are three layouts of the same rows: `spark`, as our pipeline writes them (pages of few rows, sorted by time in
each file), `pyarrow`, the same files with pyarrow's defaults, and `snappy`, ten files without partitions with Snappy
pages of 16 KiB and no dictionaries. All peers run the same queries in turns. Of each, the best median of several runs
is compared: trust the ratios, not the milliseconds. Answers are compared too. Lance has its own copy of the rows.
Needlepoint has key indexes on product_id and created_timestamp, Lance has a BTREE on both. Nothing else should run on
the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import datafusion
import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from quick import make_lake, plain_context, report

import needlepoint
from needlepoint.spark.products import product_id_of

Ask = Callable[[int], pa.Table]
COLUMNS = ["title", "upc"]
INDEXED = ("product_id", "created_timestamp")  # by key indexes, and by a BTREE in Lance
MOST_SECONDS = 6.0  # for one contender and one query
LAYOUTS = ("spark", "pyarrow", "snappy")


def plain_copy(source: Path, target: Path) -> None:
    """The same files as pyarrow writes them by default."""
    if (target / "done").exists():
        return
    shutil.rmtree(target, ignore_errors=True)
    for path in sorted((source / "product").rglob("*.parquet")):
        copy = target / "product" / path.relative_to(source / "product")
        copy.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pq.ParquetFile(path).read(), copy)
    _register(target)


def _register(root: Path) -> None:
    with needlepoint.open(root) as lake:
        lake.create_table("product")
    (root / "done").touch()


def neutral_copy(source: Path, target: Path, files: int = 10) -> None:
    """The same rows in files that are neither ours nor anybody's defaults."""
    if (target / "done").exists():
        return
    shutil.rmtree(target, ignore_errors=True)
    rows = ds.dataset(source / "product", partitioning="hive").to_table()
    step = -(-rows.num_rows // files)
    (target / "product").mkdir(parents=True)
    for number in range(files):
        pq.write_table(
            rows.slice(number * step, step), target / "product" / f"{number}.parquet",
            data_page_size=16 << 10, use_dictionary=False, compression="snappy", write_page_index=True,
        )  # fmt: skip
    _register(target)


def lance_copy(source: Path, target: Path):  # type: ignore[no-untyped-def]
    import lance

    if not (target / "done").exists():
        shutil.rmtree(target, ignore_errors=True)
        rows = ds.dataset(source / "product", partitioning="hive")
        copy = lance.write_dataset(rows.scanner(batch_size=1 << 16).to_reader(), str(target), schema=rows.schema)
        for column in INDEXED:
            copy.create_scalar_index(column, "BTREE")
        (target / "done").touch()
    return lance.dataset(str(target))


class Peers:
    """Each of them runs a selection with a condition, and one aggregate."""

    def __init__(self, root: Path, lance_root: Path | None) -> None:
        self.location = root / "product"
        self.lake = needlepoint.open(root, refresh=60)
        self.table = self.lake.table("product")
        self.datafusion = plain_context(str(self.location), self.table.schema)
        self.duck = duckdb.connect()
        self.duck.execute("SET TimeZone = 'UTC'")
        source = f"read_parquet('{self.location}/**/*.parquet', hive_partitioning = true)"
        self.duck.execute(f"CREATE VIEW product AS SELECT * FROM {source}")
        self.polars = polars.scan_parquet(f"{self.location}/**/*.parquet", hive_partitioning=True)
        self.lance = None if lance_root is None else lance_copy(root, lance_root)

    def sql(self, query: Callable[[int], str]) -> dict[str, Ask]:
        context = polars.SQLContext(product=self.polars)
        return {
            "needlepoint": lambda n: self.lake.sql(query(n)).to_arrow(),
            "datafusion": lambda n: self.datafusion.sql(query(n)).to_arrow_table(),
            "duckdb": lambda n: self.duck.sql(query(n)).to_arrow_table(),
            "polars": lambda n: context.execute(query(n)).collect().to_arrow(),
        }

    def where(self, condition: Callable[[int], str]) -> dict[str, Ask]:
        asked = self.sql(lambda n: f"SELECT title, upc FROM product WHERE {condition(n)}")
        if self.lance is not None:
            found = self.lance
            asked["lance"] = lambda n: found.to_table(columns=COLUMNS, filter=condition(n))
        return asked


def digest(table: pa.Table) -> str:
    """Equal for the same rows, in any order and with any string type."""
    if table.num_rows > 100_000 or "title" not in table.column_names:
        sizes = [pc.sum(pc.binary_length(c.cast(pa.string()))).as_py() for c in table.columns]
        return f"{table.num_rows} rows, {sizes}"
    rows = zip(*(table.column(name).cast(pa.string()).to_pylist() for name in table.column_names), strict=True)
    return json.dumps(sorted(rows, key=str), default=str)


def in_turns(contenders: dict[str, Ask], rounds: int) -> dict[str, float]:
    """Median seconds of each contender. A fast query runs many times per turn, a slow one once."""
    pace = {}
    for name, ask in list(contenders.items()):
        try:
            ask(0)
        except Exception as error:
            print(f"  {name} cannot answer: {str(error)[:100]}")
            del contenders[name]
            continue
        started = time.perf_counter()
        ask(1)
        pace[name] = time.perf_counter() - started
    times: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(rounds):
        answers = {}
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            in_a_row = max(1, min(12, int(0.3 / pace[name])))
            if times[name] and sum(times[name]) > MOST_SECONDS:
                continue
            for number in range(turn * 12, turn * 12 + in_a_row):
                started = time.perf_counter()
                answer = contenders[name](number)
                times[name].append(time.perf_counter() - started)
                if number == turn * 12:
                    answers[name] = digest(answer)
        assert len(set(answers.values())) == 1, {name: text[:200] for name, text in answers.items()}
    return {name: statistics.median(values) for name, values in times.items()}


def questions(peers: Peers, rows: int) -> dict[str, dict[str, Ask]]:
    def ids(number: int, count: int) -> list[int]:
        return [product_id_of((number * 7919 + n * 104_729) % rows) for n in range(count)]

    def among(count: int) -> dict[str, Ask]:
        asked = peers.where(lambda n: f"product_id IN ({', '.join(map(str, ids(n, count)))})")
        return {**asked, "get": lambda n: peers.table.get(product_id=ids(n, count), columns=COLUMNS).to_arrow()}

    def span(column: str, share: float) -> dict[str, Ask]:
        """A range with this share of the values, a different one each time."""
        ends = peers.duck.sql(f"SELECT min({column}), max({column}) FROM product").to_arrow_table().to_pydict()
        low, high = (values[0] for values in ends.values())
        width = (high - low) * share

        def condition(number: int) -> str:
            start = low + (high - low - width) * ((number * 37 % 100) / 100)
            if column == "created_timestamp":
                first, last = (each.strftime("%Y-%m-%d %H:%M:%S+00:00") for each in (start, start + width))
                return f"created_timestamp >= TIMESTAMP '{first}' AND created_timestamp < TIMESTAMP '{last}'"
            return f"{column} >= {int(start)} AND {column} < {int(start + width)}"

        if share < 0.1:
            return peers.where(condition)
        return peers.sql(lambda n: f"SELECT count(*) AS n, max(title) AS t FROM product WHERE {condition(n)}")

    one = peers.where(lambda n: f"product_id = {ids(n, 1)[0]}")
    one["get"] = lambda n: peers.table.get(product_id=ids(n, 1)[0], columns=COLUMNS).to_arrow()
    wide = (
        "SELECT partner, count(*) AS n, min(title) AS a, max(upc) AS b FROM product GROUP BY partner ORDER BY partner"
    )
    return {
        "one row": one,
        "no row": peers.where(lambda n: f"product_id = {product_id_of(rows + n)}"),
        "IN (10)": among(10),
        "IN (1,000)": among(1_000),
        "IN (10,000)": among(10_000),
        "range 0.01%, sorted": span("created_timestamp", 0.0001),
        "range 1%, sorted": span("created_timestamp", 0.01),
        "range 30%, sorted": span("created_timestamp", 0.3),
        "range 0.01%, unsorted": span("product_id", 0.0001),
        "range 1%, unsorted": span("product_id", 0.01),
        "range 30%, unsorted": span("product_id", 0.3),
        "aggregate of all": peers.sql(lambda n: wide),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=int(os.environ.get("BENCH_ROWS", "10000000")))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lake", type=Path, default=Path("bench-lake"))
    parser.add_argument("--runs", type=int, default=1, help="runs of all rounds; the best median counts")
    parser.add_argument("--layout", choices=LAYOUTS, action="append")
    parser.add_argument("--only", help="only queries whose name contains this text")
    parser.add_argument("--no-lance", action="store_true")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    root = arguments.lake / str(arguments.rows)
    make_lake(root, arguments.rows)
    figures: dict[str, object] = {"versions": {"datafusion": datafusion.__version__, "duckdb": duckdb.__version__}}
    for layout in arguments.layout or LAYOUTS:
        place = root if layout == "spark" else arguments.lake / f"{arguments.rows}-{layout}"
        if layout != "spark":
            (plain_copy if layout == "pyarrow" else neutral_copy)(root, place)
        with needlepoint.open(place) as lake:
            indexed = {index.column for index in lake.status().tables[0].indexes}
            for column in INDEXED:
                if column not in indexed:
                    lake.create_index("product", column)
        lance_root = arguments.lake / f"{arguments.rows}-lance"
        peers = Peers(place, None if arguments.no_lance else lance_root)
        shown = []
        headers = [
            "question",
            "needlepoint",
            "get",
            "datafusion",
            "duckdb",
            "polars",
            "lance",
            "of DataFusion",
            "of Lance",
        ]
        for title, contenders in questions(peers, arguments.rows).items():
            if arguments.only and arguments.only not in title:
                continue
            runs = [in_turns(contenders, arguments.rounds) for _ in range(arguments.runs)]
            times = {name: min(run[name] for run in runs) for name in runs[0]}
            figures[f"{layout}: {title}"] = times
            ours = times["needlepoint"]
            shares = [ours / times["datafusion"], ours / times["lance"] if "lance" in times else float("nan")]
            shown.append(
                [title, *(f"{times[name] * 1000:.2f}" if name in times else "" for name in headers[1:7]),
                 *("" if share != share else f"{share:.3f}" for share in shares)]
            )  # fmt: skip
            print(shown[-1], flush=True)
        report(f"{layout} layout, {arguments.rows:,} rows, milliseconds, answers equal", headers, shown)
        peers.lake.close()
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
