"""An MCP server over stdio: agents list, describe and query the tables of a lake, and change nothing."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, ParamSpec

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

import needlepoint
from needlepoint.errors import NeedlepointError, UnknownName
from needlepoint.lake import Lake
from needlepoint.query import Limits
from needlepoint.row_formats import described, json_values

INSTRUCTIONS = (
    "Tables of a Parquet lake, read by SQL as DataFusion understands it (close to PostgreSQL). Describe a table before "
    "you query it. Equality on an indexed column is fast; `explain` says what a query would read."
)
_READS = ToolAnnotations(read_only_hint=True)

Arguments = ParamSpec("Arguments")


def create_mcp_server(lake: Lake, *, seconds: float, rows: int) -> MCPServer:
    """The tools over a lake; a query works for some seconds and returns some rows at most."""
    tools = _Tools(lake, Limits(seconds=seconds, memory=1 << 30), rows)
    server = MCPServer("needlepoint", version=needlepoint.__version__, instructions=INSTRUCTIONS)
    for tool in (tools.list_tables, tools.describe_table, tools.query, tools.explain):
        server.tool(annotations=_READS)(_with_clear_errors(tool))
    return server


class _Tools:
    def __init__(self, lake: Lake, limits: Limits, rows: int) -> None:
        self._lake = lake
        self._limits = limits
        self._rows = rows

    def list_tables(self) -> str:
        """The tables with their numbers of rows and files, and the views."""
        tables = [
            {"name": table.name, "rows": table.rows, "files": table.files} for table in self._lake.status().tables
        ]
        return json.dumps({"tables": tables, "views": sorted(self._lake.engine.visible(None)[1])})

    def describe_table(self, table: str) -> str:
        """The columns of a table with their types, its partition columns, and its indexes."""
        found = [each for each in self._lake.status().tables if each.name == table]
        if not found:
            raise UnknownName("table", table, self._lake.tables())
        columns = described(self._lake.table(table).schema)
        indexes = [{"column": index.column, "kind": index.kind} for index in found[0].indexes]
        return json.dumps({"columns": columns, "partitions": found[0].partitions, "indexes": indexes})

    def query(self, sql: str, parameters: dict[str, Any] | None = None) -> str:
        """Run a query that reads, with `$name` for parameters. Returns columns and rows, and whether there are more
        rows than fit."""
        result = self._lake.sql(sql, parameters, limits=self._limits)
        rows: list[dict[str, Any]] = []
        try:
            for batch in result.batches():
                columns = [json_values(column) for column in batch.slice(0, self._rows + 1 - len(rows)).columns]
                rows += [dict(zip(result.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
                if len(rows) > self._rows:
                    break
        finally:
            result.close()
        found = {"columns": described(result.schema), "rows": rows[: self._rows], "more_rows": len(rows) > self._rows}
        return json.dumps(found, ensure_ascii=False)

    def explain(self, sql: str, parameters: dict[str, Any] | None = None) -> str:
        """What a query would read: files, row groups, pages and rows, and what each index does."""
        return str(self._lake.explain(sql, parameters))


def _with_clear_errors(tool: Callable[Arguments, str]) -> Callable[Arguments, str]:
    """Errors of ours are for the agent, which can write another query."""

    @functools.wraps(tool)
    def called(*args: Arguments.args, **kwargs: Arguments.kwargs) -> str:
        try:
            return tool(*args, **kwargs)
        except NeedlepointError as error:
            raise ToolError(str(error)) from error

    return called
