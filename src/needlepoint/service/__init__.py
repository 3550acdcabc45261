"""The HTTP service: SQL, lookups by key and status of one lake, for users who may not change it.

app        routes, and what each returns
options    what a server is started with
worker     runs queries in threads, and refuses more than can wait
requests   what requests say, and who sends them
answers    results in the format that a client accepts
problems   errors as JSON, without anything internal
tokens     who may read which tables
metrics    counters and histograms for Prometheus
logs       a line of JSON for each request
server     starts it, with one process or several

It needs the extra `service`, except for tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from needlepoint.service.options import ServiceOptions
from needlepoint.service.tokens import Tokens

if TYPE_CHECKING:
    from needlepoint.service.server import serve

__all__ = ["ServiceOptions", "Tokens", "serve"]


def __getattr__(name: str) -> Any:
    if name == "serve":
        from needlepoint.service.server import serve

        return serve
    raise AttributeError(f"module 'needlepoint.service' has no attribute '{name}'")
