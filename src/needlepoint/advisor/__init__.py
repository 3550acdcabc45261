"""Advice on indexes and layouts, from the history of queries.

history           query shapes, how often they ran, and what they read
query_shapes      predicates without their values
table_statistics  sizes and overlaps of columns, pages and files
advice            rules: which layouts and indexes would pay
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from needlepoint.on_demand import on_demand

if TYPE_CHECKING:
    from needlepoint.advisor.advice import REWRITES, Advice, TableAdvice, advise
    from needlepoint.advisor.history import DAYS, History, today
    from needlepoint.advisor.query_shapes import conditions
    from needlepoint.advisor.table_statistics import IndexStatistics, collect_statistics

__all__ = [
    "DAYS",
    "REWRITES",
    "Advice",
    "History",
    "IndexStatistics",
    "TableAdvice",
    "advise",
    "collect_statistics",
    "conditions",
    "today",
]

__getattr__ = on_demand(
    __name__,
    {
        "advice": "REWRITES Advice TableAdvice advise",
        "history": "DAYS History today",
        "query_shapes": "conditions",
        "table_statistics": "IndexStatistics collect_statistics",
    },
)
