"""Errors as JSON: what is wrong and what to do, and nothing of the machine."""

from __future__ import annotations

import re

from needlepoint.errors import (
    FileChanged,
    FileError,
    LimitExceeded,
    NeedlepointError,
    QueryCancelled,
    StoreError,
    UnknownName,
    UsageError,
)

_STATUS: list[tuple[type[NeedlepointError], int]] = [
    (UnknownName, 404),
    (LimitExceeded, 422),
    (UsageError, 400),
    (QueryCancelled, 409),
    (FileChanged, 503),
    (StoreError, 503),
    (FileError, 500),
]
_PATH = re.compile(r"(?:[a-z0-9]+:/)?/\S*/")


class RequestProblem(NeedlepointError):
    """A request that is refused before it reaches the lake."""

    def __init__(self, status: int, message: str, *, hint: str = "", headers: dict[str, str] | None = None) -> None:
        self.status = status
        self.headers = headers or {}
        super().__init__(message, hint=hint)


def status_of(error: BaseException) -> int:
    if isinstance(error, RequestProblem):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def problem(error: BaseException, request_id: str) -> dict[str, object]:
    """The body of the response. Errors that are not ours are not shown."""
    if not isinstance(error, NeedlepointError):
        said = {"kind": "InternalError", "message": "the service failed; its log has the request id.", "hint": ""}
    else:
        message, hint = without_paths(error.message), without_paths(error.hint)
        said = {"kind": type(error).__name__, "message": message, "hint": hint}
    return {"error": said, "request_id": request_id}


def without_paths(text: str) -> str:
    """
    >>> without_paths("/data/lake/item/0.parquet: lost its card."), without_paths("s3://a/b/c.parquet is gone; 3/4")
    ('0.parquet: lost its card.', 'c.parquet is gone; 3/4')
    """
    return _PATH.sub("", text)
