"""The QUERY argument of a command: SQL, or "-" for what comes on stdin."""

from __future__ import annotations

import sys
from typing import Any

import click


class Query(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.4
    name = "query"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        query = str(sys.stdin.read() if value == "-" else value)
        if not query.strip():
            self.fail("there is no query.", param, ctx)
        return query


QUERY = Query()
