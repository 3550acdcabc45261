"""A directory of Parquet files that something else writes: index it, look up, let it change, look up again.

.venv/bin/python examples/own_files.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import needlepoint

with tempfile.TemporaryDirectory() as directory:
    orders = Path(directory) / "orders"
    for day in ("2024-05-01", "2024-05-02"):
        (orders / f"day={day}").mkdir(parents=True)
        numbers = range(1000) if day.endswith("1") else range(1000, 2000)
        table = pa.table({"order_id": [f"{day}/{n}" for n in numbers], "amount": [n / 4 for n in numbers]})
        pq.write_table(table, orders / f"day={day}" / "data.parquet", write_page_index=True, max_rows_per_page=100)

    with needlepoint.open(directory, refresh=0) as lake:
        lake.create_table("orders", orders)
        lake.create_index("orders", "order_id")
        result = lake.sql("SELECT amount, day FROM orders WHERE order_id = '2024-05-02/1234'")
        print(result.rows())
        print(result.report)

        # Somebody adds a file: it is there at once, and fast after a sync.
        more = pa.table({"order_id": ["2024-05-02/late"], "amount": [99.5]})
        pq.write_table(more, orders / "day=2024-05-02" / "late.parquet")
        print(lake.table("orders").get(order_id="2024-05-02/late").rows())
        print(lake.sync("orders"))
