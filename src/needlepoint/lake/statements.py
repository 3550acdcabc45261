"""Statements: queries, EXPLAIN, and CREATE, DROP and SHOW for indexes and views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from needlepoint.errors import SqlError, UnknownName
from needlepoint.query import (
    CATALOG,
    SCHEMA,
    CreateIndex,
    CreateView,
    DropIndex,
    DropView,
    Explain,
    Limits,
    Result,
    ShowIndexes,
    ShowTables,
    check_text,
    parse,
)

if TYPE_CHECKING:
    from needlepoint.lake.lake import Lake
    from needlepoint.query import Report


def run_statement(
    lake: Lake, query: str, parameters: Mapping[str, Any] | None, limits: Limits | None, query_id: str
) -> Result:
    check_text(query)
    match parse(query):
        case CreateIndex() as statement:
            return _create_index(lake, statement)
        case DropIndex(name):
            lake.drop_index(name)
            return _answer("dropped", [name])
        case ShowIndexes(table):
            return _show_indexes(lake, table, limits)
        case ShowTables():
            return _show_tables(lake, limits)
        case CreateView(name, view):
            from needlepoint.query import check_view

            check_view(lake.engine.queries.explain, name, view)
            lake.registry.views.create(name, view)
            return _answer("view", [name])
        case DropView(name):
            lake.registry.views.drop(name)
            return _answer("dropped", [name])
        case Explain(explained, analyze):
            report = (
                _analyze(lake, explained, parameters, limits, query_id)
                if analyze
                else explain_statement(lake, explained, parameters, limits)
            )
            return Result(pa.table({"plan": pa.array(str(report).split("\n"), pa.string())}), lambda: report)
    return lake.engine.sql(query, parameters, limits=limits, query_id=query_id)


def explain_statement(lake: Lake, query: str, parameters: Mapping[str, Any] | None, limits: Limits | None) -> Report:
    check_text(query)
    match parse(query):
        case Explain(explained, analyze):
            if analyze:
                return _analyze(lake, explained, parameters, limits)
            return explain_statement(lake, explained, parameters, limits)
        case None:
            pass
        case _:
            raise SqlError("only a query can be explained.", hint="CREATE, DROP and SHOW read no rows.")
    return lake.engine.queries.explain(query, parameters, limits)


def _analyze(
    lake: Lake, query: str, parameters: Mapping[str, Any] | None, limits: Limits | None = None, query_id: str = ""
) -> Report:
    """The report of a query that is run; its rows are dropped."""
    result = lake.engine.sql(query, parameters, limits=limits, query_id=query_id)
    for _ in result.batches():
        pass
    return result.report


def _create_index(lake: Lake, statement: CreateIndex) -> Result:
    given = {key: value for key, value in statement.options.items() if key != "embed"}
    if clash := given.keys() & {"self", "table", "column", "kind", "name", "build"}:
        raise SqlError(f"'{min(clash)}' is not an option of an index.", hint="docs/indexes.md lists them.")
    embed = statement.options.get("embed", False)
    made = lake.create_index(
        statement.table, statement.columns, statement.kind, embed=embed, name=statement.name, **given
    )
    return _answer("index", [made])


def _show_tables(lake: Lake, limits: Limits | None) -> Result:
    """As information_schema.tables has them, where DataFusion calls our tables views."""
    tables, views = lake.engine.visible(limits)
    kinds = dict.fromkeys(tables, "TABLE") | dict.fromkeys(views, "VIEW")
    rows = [(CATALOG, SCHEMA, name, kinds[name]) for name in sorted(kinds)]
    names = ("table_catalog", "table_schema", "table_name", "table_type")
    columns = {name: pa.array([row[at] for row in rows], pa.string()) for at, name in enumerate(names)}
    return Result(pa.table(columns), _nothing_read)


def _show_indexes(lake: Lake, table: str | None, limits: Limits | None) -> Result:
    from needlepoint.lake.status import table_status

    visible, _ = lake.engine.visible(limits)
    if table is not None and table not in visible:
        raise UnknownName("table", table, visible)
    wanted = sorted(visible) if table is None else [table]
    tables = [table_status(lake, lake.registry.tables.get(name)) for name in wanted]
    rows = [index for found in tables for index in found.indexes]
    names = ("name", "table", "column", "kind", "embedded", "files", "entries", "bytes")
    columns = {name: [getattr(row, name) for row in rows] for name in names}
    types = [pa.string()] * 4 + [pa.bool_()] + [pa.int64()] * 3
    return Result(pa.table(columns, pa.schema(list(zip(names, types, strict=True)))), _nothing_read)


def _answer(column: str, values: list[str]) -> Result:
    return Result(pa.table({column: pa.array(values, pa.string())}), _nothing_read)


def _nothing_read() -> Report:
    from needlepoint.query import Report

    return Report(list, list, executed=True)
