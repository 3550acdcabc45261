"""How many Python calls and modules one warm lookup takes: `python benchmarks/count_calls.py`.

`sys.setprofile` counts them for a lookup of one row and two columns, in a table of one million rows with a key index:

    table.get          lake["product"].get(id=…)
    literal            SELECT … WHERE id = 384209819
    parameter          SELECT … WHERE id = $id

in two layouts: `small` has pages of 250 rows without dictionaries, as Needlepoint writes them, and `pyarrow` has
pyarrow's defaults.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import needlepoint
from needlepoint import Lake

ROWS = 1_000_000
TIMED = 200
LAYOUTS: dict[str, dict[str, Any]] = {
    "small": {"max_rows_per_page": 250, "write_batch_size": 250, "use_dictionary": False, "compression": "zstd"},
    "pyarrow": {},
}


def main() -> None:
    given = _arguments()
    print(f"{'layout':10}{'lookup':12}{'calls':>8}{'modules':>9}{'median ms':>11}")
    for layout, options in LAYOUTS.items():
        with tempfile.TemporaryDirectory() as directory, _lake(Path(directory), options) as lake:
            for name, lookup in _lookups(lake).items():
                for number in range(TIMED):  # each key: the first lookup of a key may read a block of the index
                    lookup(number * 7919 % ROWS)
                calls = _counted(lambda lookup=lookup: lookup(424_242))
                modules = Counter(module for module, _ in calls.elements())
                print(f"{layout:10}{name:12}{calls.total():8}{len(modules):9}{_median_ms(lookup):11.2f}")
                if given.show:
                    for (module, function), count in calls.most_common():
                        print(f"    {count:5} {module}.{function}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true", help="list the functions that are called")
    return parser.parse_args()


def _lake(directory: Path, options: dict[str, Any]) -> Lake:
    """A table of four files with a key index."""
    table = pa.table({"id": np.arange(ROWS), "upc": pa.array(np.arange(ROWS) * 31).cast(pa.string()),
                      "title": pa.array([f"title {number % 5000}" for number in range(ROWS)])})  # fmt: skip
    (directory / "product").mkdir()
    for part in range(4):
        rows = table.slice(part * ROWS // 4, ROWS // 4)
        pq.write_table(rows, directory / "product" / f"{part}.parquet", write_page_index=True, **options)
    lake = needlepoint.open(directory)
    lake.create_table("product")
    lake.create_index("product", "id", kind="key")
    return lake


def _lookups(lake: Lake) -> dict[str, Callable[[int], Any]]:
    product = lake.table("product")
    query = "SELECT upc, title FROM product WHERE id = "
    return {
        "table.get": lambda key: product.get(id=key, columns=["upc", "title"]),
        "literal": lambda key: lake.sql(f"{query}{key}"),
        "parameter": lambda key: lake.sql(f"{query}$id", {"id": key}),
    }


def _counted(run: Callable[[], object]) -> Counter[tuple[str, str]]:
    """Calls of the package's Python functions, by module and function."""
    calls: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("needlepoint"):
            calls[module, frame.f_code.co_name] += 1

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def _median_ms(lookup: Callable[[int], object]) -> float:
    taken = []
    for number in range(TIMED):
        start = time.perf_counter()
        lookup(number * 7919 % ROWS)
        taken.append(time.perf_counter() - start)
    return sorted(taken)[TIMED // 2] * 1000


if __name__ == "__main__":
    main()
