"""A line of JSON for each request. It has no value of a query: neither its text nor its parameters."""

from __future__ import annotations

import datetime
import json
import logging
import sys

_log = logging.getLogger("needlepoint.service")


def log_request(
    *, request_id: str, method: str, route: str, status: int, seconds: float, user: str, error: str = ""
) -> None:
    said = {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        "request_id": request_id,
        "method": method,
        "route": route,
        "status": status,
        "ms": round(seconds * 1000, 3),
        "user": user,
    }
    _log.info("%s", json.dumps(said | ({"error": error} if error else {})))


def log_failure(request_id: str, error: BaseException) -> None:
    """An error that is not ours, with its traceback: only the log has it."""
    _log.error("%s", json.dumps({"request_id": request_id, "failure": repr(error)}), exc_info=error)


def to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    _log.handlers = [handler]
    _log.propagate = False
    _log.setLevel(logging.INFO)
