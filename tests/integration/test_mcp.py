"""`needle mcp`, as an agent's client uses it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

import needlepoint


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "item").mkdir()
    pq.write_table(pa.table({"id": range(1000), "title": ["Dairy Cow"] * 1000}), tmp_path / "item" / "0.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("item")
        lake.create_index("item", "id")
    return tmp_path


def with_client(root: Path, use: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        command = [*["-m", "needlepoint", "mcp", "--rows", "5", "--seconds", "20", "--lake"], str(root)]
        server = StdioServerParameters(command=sys.executable, args=command)
        async with Client(stdio_client(server)) as client:
            await use(client)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_an_agent_queries_a_lake(root: Path) -> None:
    async def use(client: Any) -> None:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == {"list_tables", "describe_table", "query", "explain"}
        assert all(tool.annotations.read_only_hint for tool in tools)

        async def call(name: str, **arguments: Any) -> Any:
            result = await client.call_tool(name, arguments)
            assert not result.is_error, result.content[0].text
            return result.content[0].text

        assert json.loads(await call("list_tables"))["tables"] == [{"name": "item", "rows": 1000, "files": 1}]
        described = json.loads(await call("describe_table", table="item"))
        assert described["columns"][0] == {"name": "id", "type": "int64"}
        assert described["indexes"] == [{"column": "id", "kind": "key"}]
        found = json.loads(await call("query", sql="SELECT title FROM item WHERE id = $id", parameters={"id": 7}))
        assert found["rows"] == [{"title": "Dairy Cow"}] and not found["more_rows"]
        found = json.loads(await call("query", sql="SELECT id FROM item ORDER BY id"))
        assert [row["id"] for row in found["rows"]] == [0, 1, 2, 3, 4] and found["more_rows"]
        assert "item" in await call("explain", sql="SELECT * FROM item WHERE id = 7")
        for name, arguments in (
            ("query", {"sql": "SELECT nothing FROM item"}),
            ("query", {"sql": "DROP VIEW x"}),
            ("query", {"sql": "CREATE VIEW x AS SELECT 1"}),
            ("describe_table", {"table": "nothing"}),
        ):
            result = await client.call_tool(name, arguments)
            assert result.is_error and "Traceback" not in result.content[0].text

    with_client(root, use)
