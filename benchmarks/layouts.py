"""Size against lookup time of codecs and page sizes: how `tables/layout.py` was chosen.

    python benchmarks/layouts.py [--rows 1000000]

Each layout has the same products in ten files, with a key index. CPU time is compared, since decoding pages is most of
a lookup; the best of several runs counts. Answers of all layouts are compared too.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import needlepoint
from needlepoint.spark.products import _WORDS, product_id_of

CODECS = ("zstd", "snappy", "lz4", "none")
PAGE_ROWS = (100, 250, 1000)
FILES = 10
COLUMNS = ["title", "upc"]


def products(rows: int) -> pa.Table:
    """The products of the demo, without Spark."""
    chance = np.random.default_rng(7)
    words, numbers = np.array(_WORDS), np.arange(rows)
    picks = [words[(chance.random(rows) ** 2 * len(words)).astype(int)] for _ in range(6)]
    lengths = chance.integers(2, 7, rows).tolist()
    titles = [" ".join(row[:length]) for length, row in zip(lengths, zip(*picks, strict=True), strict=True)]
    return pa.table(
        {
            "product_id": [product_id_of(number) for number in range(rows)],
            "upc": [f"G0105{number * 0x5851F42D & 0xFFFFFFFF:08X}" for number in range(rows)],
            "created_timestamp": pa.array(1_730_419_200_000_000 + numbers * 1_036_800, pa.timestamp("us", "UTC")),
            "title": titles,
        }
    )


def best(action: Callable[[int], object], times: int) -> float:
    """CPU milliseconds."""
    taken = []
    for number in range(times):
        started = time.process_time()
        action(number)
        taken.append(time.process_time() - started)
    return min(taken) * 1000


def measure(table: pa.Table, codec: str, page_rows: int) -> tuple[float, float, float, pa.Table]:
    """Megabytes of the files, and milliseconds of one row and of a thousand rows, and these rows."""
    rows = table.num_rows
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "product"
        place.mkdir()
        for number in range(FILES):
            part = table.slice(number * rows // FILES, rows // FILES)
            pq.write_table(part, place / f"{number}.parquet", compression=codec, use_dictionary=False,
                           max_rows_per_page=page_rows, write_batch_size=page_rows, write_page_index=True)  # fmt: skip
        size = sum(path.stat().st_size for path in place.iterdir()) / 1e6
        with needlepoint.open(directory, access="pages", refresh=600) as lake:
            product = lake.create_table("product") and lake.table("product")
            index = lake.create_index("product", "product_id")

            def one(number: int) -> object:
                return product.get(product_id=product_id_of(number * 7919 % rows), columns=COLUMNS)

            def many(number: int) -> pa.Table:
                ids = [product_id_of((number * 7919 + n * 104_729) % rows) for n in range(1000)]
                listed = ", ".join(map(str, ids))
                query = f"SELECT title, upc FROM product WHERE product_id IN ({listed})"
                return lake.engine.sql(query, use_indexes=index).to_arrow()

            best(one, 300)
            return size, best(one, 300), best(many, 8), many(0).sort_by("upc")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    table = products(parser.parse_args().rows)
    print(f"{'codec':8}{'rows a page':>12}{'MB':>8}{'one row, ms':>13}{'IN (1,000), ms':>16}")
    expected = None
    for codec in CODECS:
        for page_rows in PAGE_ROWS:
            size, one, many, answer = measure(table, codec, page_rows)
            assert expected is None or answer.equals(expected)
            expected = answer
            print(f"{codec:8}{page_rows:12}{size:8.1f}{one:13.2f}{many:16.1f}", flush=True)


if __name__ == "__main__":
    main()
