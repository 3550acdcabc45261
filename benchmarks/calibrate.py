"""Measure page reads and native scans on this machine: the constants of needlepoint/query/scan/cost_model.py.

    python benchmarks/calibrate.py > costs.json          then NEEDLE_COSTS=costs.json

Reads differ in files, pages, requests and bytes; least squares gives a constant for each of them. Only local files are
measured; `remote` stays as it is. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import needlepoint
from needlepoint.access import Rows
from needlepoint.parquet import CachedCard, FileRows, build_card, read_files
from needlepoint.query.scan.cost_model import Costs, by_pages

ROUNDS = 9
COLUMNS = ["id", "x", "title", "price"]


def write_lake(root: Path, files: int, rows: int) -> None:
    (root / "t").mkdir()
    chance = np.random.default_rng(0)
    for number in range(files):
        ids = np.arange(number * rows, (number + 1) * rows)
        table = pa.table(
            {
                "id": chance.permutation(ids),
                "x": ids,
                "title": [f"title {each * 7919 % 1_000_003} of about as many words" for each in ids.tolist()],
                "price": chance.integers(0, 10**9, rows),
            }
        )
        pq.write_table(
            table, root / f"t/{number}.parquet", row_group_size=250_000, max_rows_per_page=1000,
            use_dictionary=False, write_page_index=True, compression="zstd",
        )  # fmt: skip


def best_seconds(action: Callable[[], object]) -> float:
    """The shortest time: what else runs on the machine only adds to it."""
    action()
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times)


def explained(factors: Sequence[Sequence[float]], seconds: Sequence[float]) -> npt.NDArray[np.float64]:
    """The constant of each factor, by relative errors; none is negative."""
    weights = 1 / np.array(seconds)
    matrix = np.array(factors) * weights[:, None]
    used = list(range(matrix.shape[1]))
    while True:
        found = np.zeros(matrix.shape[1])
        found[used] = np.linalg.lstsq(matrix[:, used], np.ones(len(weights)), rcond=None)[0]
        if (found[used] >= 0).all():
            return found
        used = [factor for factor in used if found[factor] > 0]


def page_costs(root: Path) -> dict[str, float]:
    """Measure pages of 100 and of 1,000 rows, to separate the cost of a page from the cost of its bytes, with a codec
    that costs much for each page and one that does not."""
    rows = pq.read_table(root / "t/0.parquet")
    chance = np.random.default_rng(1)
    factors, seconds = [], []
    for page_rows, codec in itertools.product((1000, 100), ("zstd", "snappy")):
        file = str(root / f"{codec}-{page_rows}.parquet")
        pq.write_table(
            rows, file, row_group_size=250_000, max_rows_per_page=page_rows, write_batch_size=page_rows,
            use_dictionary=False, write_page_index=True, compression=codec,
        )  # fmt: skip
        cached = CachedCard(build_card(file))
        for columns in (COLUMNS[:1], COLUMNS[2:3], COLUMNS):
            for pages in (1, 4, 16, 64, 128):
                scattered = np.sort(chance.choice(rows.num_rows // page_rows, pages, replace=False)) * page_rows
                for wanted in (scattered, np.arange(pages * page_rows)):
                    foreseen = by_pages(cached, columns, Rows.of(wanted))
                    factors.append([1, foreseen.pages, foreseen.requests, foreseen.bytes, foreseen.values])
                    ask = functools.partial(read_files, [FileRows(file, cached, wanted)], columns)
                    seconds.append(best_seconds(ask))
    return dict(zip(("file", "page", "request", "byte", "value"), explained(factors, seconds).tolist(), strict=True))


def scan_costs(root: Path) -> dict[str, float]:
    files = sorted(str(path) for path in (root / "t").iterdir())
    cards = [CachedCard(build_card(path)) for path in files]
    factors, seconds = [], []
    with needlepoint.open(root, access="scan", refresh=1000) as lake:
        rows = cards[0].card.num_rows
        for columns in (["x"], ["x", "price"], ["x", "title"], ["x", *COLUMNS]):
            for count in (1, 2, 4, 8):
                for share in (0.01, 0.25, 1.0):
                    # A range in each of the first files: values of x are consecutive over the files.
                    where = " OR ".join(
                        f"x BETWEEN {n * rows} AND {n * rows + int(rows * share) - 1}" for n in range(count)
                    )
                    names = ", ".join(dict.fromkeys(columns))
                    wanted = Rows(np.array([0]), np.array([int(rows * share)]))
                    size = sum(by_pages(card, list(dict.fromkeys(columns)), wanted).bytes for card in cards[:count])
                    query = f"SELECT {names} FROM t WHERE {where}"
                    factors.append([1, count, size])
                    seconds.append(best_seconds(lambda query=query: lake.engine.sql(query, use_indexes=True)))
    return dict(zip(("scan", "scan_file", "scan_byte"), explained(factors, seconds).tolist(), strict=True))


def key_cost(root: Path) -> float:
    with needlepoint.open(root, refresh=1000) as lake:
        name = lake.create_index("t", "id")
        index = lake.registry.indexes.get(name)
        store = lake.index_stores.entries(index)
        from needlepoint.query.pruning.key_step import _key_list

        chance = np.random.default_rng(2)
        keys = _key_list(chance.integers(0, 2_000_000, 1_000).tolist(), pa.int64())
        return best_seconds(lambda: store.find(keys, 10_000)) / len(keys)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=250_000, help="rows in each of the 8 files")
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        print("writing 8 files", file=sys.stderr)
        write_lake(root, 8, rows)
        with needlepoint.open(root) as lake:
            lake.create_table("t")
        print("page reads", file=sys.stderr)
        costs = replace(Costs(), **page_costs(root))
        print("native scans", file=sys.stderr)
        costs = replace(costs, **scan_costs(root))
        print("keys", file=sys.stderr)
        costs = replace(costs, key=key_cost(root))
    print(json.dumps({"local": {name: float(f"{value:.3g}") for name, value in asdict(costs).items()}}, indent=2))


if __name__ == "__main__":
    main()
