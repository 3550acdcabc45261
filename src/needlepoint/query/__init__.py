"""Queries: from SQL to Arrow.

engine        what queries share: tables as they are now, caches, retries; runs point lookups
sql_queries   runs all other SQL, step by step, with DataFusion
attempt       the ways in which a query is tried
query_plans   from SQL to planned scans
scan_planner  what to read of a table, and how
kept_plans    planned scans of queries that run again over the same files
known_names   the tables and views that a query can name
execution     one run of a planned query
semi_joins    reads small tables first, and of others the rows with their keys
top_rows      ORDER BY with LIMIT reads from the end of an index
ranked_rows   ORDER BY score with LIMIT reads the rows that text indexes name
ranked_search  the same of the plainest queries, without DataFusion
result        its result
row_stream    the rows of a large result, read while they are consumed
running       queries that run, their limits, and how to stop one
point_lookup  rows by key, for `get` and for SQL
get           `table.get`: from Python values to a point lookup
timed_choice  of two ways to run a query, the one that took less time
verify        compares indexes with the data
sql/          from SQL to a request for each table
aggregates/   counts and extremes that indexes know without reading
pruning/      steps that rule out files, row groups, pages and rows
scan/         how the rest is read, and the reading
datafusion/   the border to DataFusion
cache/        state that is kept between queries
report/       what a query read, and why

Nothing is imported before it is used: scan_planner with the first query that is more than a lookup in a key index, and
sql_queries, and so DataFusion, with the first that is more than reads of pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from needlepoint.on_demand import on_demand

if TYPE_CHECKING:
    from needlepoint.query.cache.card_cache import CardCache
    from needlepoint.query.cache.index_cache import IndexCache
    from needlepoint.query.cache.table_state import TableState
    from needlepoint.query.engine import Engine
    from needlepoint.query.get import get_at_once, get_rows
    from needlepoint.query.known_names import CATALOG, SCHEMA
    from needlepoint.query.point_lookup import PointLookup
    from needlepoint.query.pruning.result import PruningResult
    from needlepoint.query.report.explain import Report, TableReport
    from needlepoint.query.result import Result
    from needlepoint.query.running import Limits, RunningQuery
    from needlepoint.query.scan.cost_model import FileSizes
    from needlepoint.query.scan.costs import (
        CODECS_BY_NUMBER,
        ENTRY_BYTES,
        ZSTD,
        Costs,
        as_json,
        keep_costs,
        machine_name,
        measured_costs,
    )
    from needlepoint.query.scan.row_matches import MatchedRows, find_matches
    from needlepoint.query.scan.scan_plan import ScanMetrics, ScanPlan
    from needlepoint.query.scan.scan_tasks import ReadPlan, ScanTask, plan_read
    from needlepoint.query.sql.parameters import check_text, named_by_place, number_marks, placeholders
    from needlepoint.query.sql.statements import (
        CreateIndex,
        CreateView,
        DropIndex,
        DropView,
        Explain,
        ShowIndexes,
        ShowTables,
        parse,
        quoted,
    )
    from needlepoint.query.sql.tokens import split, tokens
    from needlepoint.query.sql.views import check_view
    from needlepoint.query.verify import VerifyReport, verify_indexes

__all__ = [
    "CATALOG",
    "CODECS_BY_NUMBER",
    "CardCache",
    "Costs",
    "CreateIndex",
    "CreateView",
    "DropIndex",
    "DropView",
    "ENTRY_BYTES",
    "Engine",
    "Explain",
    "FileSizes",
    "IndexCache",
    "Limits",
    "MatchedRows",
    "PointLookup",
    "PruningResult",
    "ReadPlan",
    "Report",
    "Result",
    "RunningQuery",
    "SCHEMA",
    "ScanMetrics",
    "ScanPlan",
    "ScanTask",
    "ShowIndexes",
    "ShowTables",
    "TableReport",
    "TableState",
    "VerifyReport",
    "ZSTD",
    "as_json",
    "check_text",
    "check_view",
    "find_matches",
    "get_at_once",
    "get_rows",
    "keep_costs",
    "machine_name",
    "measured_costs",
    "named_by_place",
    "number_marks",
    "parse",
    "placeholders",
    "plan_read",
    "quoted",
    "split",
    "tokens",
    "verify_indexes",
]

__getattr__ = on_demand(
    __name__,
    {
        "cache.card_cache": "CardCache",
        "cache.index_cache": "IndexCache",
        "cache.table_state": "TableState",
        "engine": "Engine",
        "get": "get_at_once get_rows",
        "known_names": "CATALOG SCHEMA",
        "point_lookup": "PointLookup",
        "pruning.result": "PruningResult",
        "report.explain": "Report TableReport",
        "result": "Result",
        "running": "Limits RunningQuery",
        "scan.cost_model": "FileSizes",
        "scan.costs": "CODECS_BY_NUMBER ENTRY_BYTES ZSTD Costs as_json keep_costs machine_name measured_costs",
        "scan.row_matches": "MatchedRows find_matches",
        "scan.scan_plan": "ScanMetrics ScanPlan",
        "scan.scan_tasks": "ReadPlan ScanTask plan_read",
        "sql.parameters": "check_text named_by_place number_marks placeholders",
        "sql.statements": "CreateIndex CreateView DropIndex DropView Explain ShowIndexes ShowTables parse quoted",
        "sql.tokens": "split tokens",
        "sql.views": "check_view",
        "verify": "VerifyReport verify_indexes",
    },
)
