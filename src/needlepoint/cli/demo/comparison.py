"""The queries of the demo, run with the index and without it.

"Without" is DataFusion alone: its own session with a listing table over the same directory, filters pushed down to the
pages, listings and footers cached between runs. Needlepoint takes no part in it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import datafusion
import pyarrow as pa

from needlepoint.spark import products

if TYPE_CHECKING:
    from needlepoint.lake import Lake
    from needlepoint.query import TableReport

_RUNS = 7
_PATIENCE = 15.0  # seconds for one question, once both ways were measured once
_IDS = 1000


@dataclass(frozen=True, slots=True)
class DemoQuery:
    """`shown` is the SQL as it is printed: a thousand ids fill a screen. DataFusion has no `score`: such a query is
    compared with Needlepoint's own scan."""

    title: str
    sql: str
    shown: str
    by_datafusion: bool = True


@dataclass(frozen=True, slots=True)
class Measurement:
    """An answer, what was read for it, and the median time of either way."""

    question: DemoQuery
    answer: pa.Table
    reports: list[TableReport]
    indexed: float
    scanned: float
    equal: bool

    @property
    def ratio(self) -> float:
        return self.scanned / self.indexed


def text_queries(lake: Lake, rows: int) -> list[DemoQuery]:
    """A phrase of one title, and the titles that are closest to its words."""
    words = str(lake.sql(demo_queries(rows)[0].sql).rows()[0]["title"]).split()
    phrase, ranked = " ".join(words[:3]), " ".join(words[1:3])
    like = f"SELECT product_id, title FROM product WHERE title LIKE '%{phrase}%'"
    best = (
        f"SELECT product_id, title FROM product WHERE text_match(title, '{ranked}') "
        f"ORDER BY score(title, '{ranked}') DESC, product_id LIMIT 5"
    )
    return [
        DemoQuery(f"titles with '{phrase}'", like, like),
        DemoQuery("a ranked search", best, best, by_datafusion=False),
    ]


def demo_queries(rows: int) -> list[DemoQuery]:
    one = products.product_id_of(min(4242, rows - 1))
    none = products.product_id_of(rows + 4242)
    many = [products.product_id_of(row) for row in sorted({number * rows // _IDS for number in range(_IDS)})]
    listed = ", ".join(map(str, many))
    brief = f"{many[0]}, {many[-1]}, … {len(many):,} ids"
    columns = "SELECT title, upc FROM product WHERE product_id ="
    several = "SELECT product_id, title, upc FROM product WHERE product_id IN ({})"
    joined = (
        "SELECT country, count(*) AS products, min(created_timestamp) AS first "
        "FROM product JOIN partner_info ON product.partner = partner_info.partner "
        "WHERE product_id IN ({}) GROUP BY country"
    )
    return [
        DemoQuery("one product", f"{columns} {one}", f"{columns} {one}"),
        DemoQuery(f"{len(many):,} products", several.format(listed), several.format(brief)),
        DemoQuery("a product that does not exist", f"{columns} {none}", f"{columns} {none}"),
        DemoQuery(f"{len(many):,} products, joined and counted", joined.format(listed), joined.format(brief)),
    ]


def plain_datafusion(lake: Lake) -> datafusion.SessionContext:
    """DataFusion's own tables over the directories of the lake."""
    config = datafusion.SessionConfig({"datafusion.execution.parquet.pushdown_filters": "true"})
    context = datafusion.SessionContext(config)
    for table in lake.registry.tables.all():
        columns: list[tuple[str, str | pa.DataType]] = [
            (name, table.schema.field(name).type) for name in table.partitions
        ]
        context.register_parquet(table.name, f"{table.location}/", table_partition_cols=columns)
    return context


def measure(lake: Lake, context: datafusion.SessionContext, question: DemoQuery) -> Measurement:
    """Each way once to warm up and to compare the answers, then in turns."""

    def scan() -> pa.Table:
        if question.by_datafusion:
            return context.sql(question.sql).to_arrow_table()
        return lake.engine.sql(question.sql, use_indexes=False).to_arrow()

    result = lake.sql(question.sql)
    answer, scanned = result.to_arrow(), scan()
    indexed_times, scanned_times = [], []
    deadline = time.perf_counter() + _PATIENCE
    for _ in range(_RUNS):
        indexed_times.append(_seconds(lambda: lake.sql(question.sql)))
        scanned_times.append(_seconds(scan))
        if time.perf_counter() > deadline:
            break
    return Measurement(
        question,
        answer,
        result.report.tables,
        statistics.median(indexed_times),
        statistics.median(scanned_times),
        _sorted_rows(answer) == _sorted_rows(scanned),
    )


def _seconds(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _sorted_rows(table: pa.Table) -> list[str]:
    """Rows in an order of their own: SQL promises none. Names count, types of strings do not."""
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())
