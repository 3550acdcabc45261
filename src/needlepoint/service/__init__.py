"""The services, for users who may not change a lake: SQL and lookups over HTTP, Flight SQL, and tools for agents.

app         routes, and what each returns
options     what a server is started with
worker      runs queries in threads, and refuses more than can wait
requests    what requests say, and who sends them
answers     results in the format that a client accepts
problems    errors as JSON, without anything internal
console     the page at `/`; its files are in assets
tokens      who may read which tables
processes   what one of several processes knows of the others
metrics     counters and histograms for Prometheus
logs        a line of JSON for each request
server      starts it, with one process or several
flight/     Arrow Flight SQL
mcp_server  tools for agents, over the Model Context Protocol

HTTP and Flight SQL need the extra `service`, agents the extra `mcp`, tokens none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from needlepoint.service.options import ServiceOptions
from needlepoint.service.tokens import Tokens

if TYPE_CHECKING:
    from needlepoint.service.mcp_server import create_mcp_server
    from needlepoint.service.server import serve

__all__ = ["ServiceOptions", "Tokens", "create_mcp_server", "serve"]


def __getattr__(name: str) -> Any:
    if name == "serve":
        from needlepoint.service.server import serve

        return serve
    if name == "create_mcp_server":
        from needlepoint.service.mcp_server import create_mcp_server

        return create_mcp_server
    raise AttributeError(f"module 'needlepoint.service' has no attribute '{name}'")
