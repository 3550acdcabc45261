"""Errors as clients of Flight get them."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow.flight as flight

from needlepoint.errors import NeedlepointError, QueryCancelled
from needlepoint.service.flight.messages import UnreadableMessage
from needlepoint.service.logs import log_failure
from needlepoint.service.problems import RequestProblem, problem, status_of


def flight_error(error: BaseException) -> Any:
    """What is wrong and what to do, and nothing of the machine. It is a FlightError: to others, pyarrow adds the
    traceback."""
    if isinstance(error, flight.FlightError):
        return error
    if isinstance(error, UnreadableMessage):
        error = RequestProblem(400, f"{error}.")
    request_id = uuid.uuid4().hex
    if not isinstance(error, NeedlepointError):
        log_failure(request_id, error)
    said: Any = problem(error, request_id)["error"]
    text = " ".join(filter(None, (said["message"], said["hint"]))).removesuffix(".")  # pyarrow adds one
    if isinstance(error, QueryCancelled):
        return flight.FlightCancelledError(text)
    status = status_of(error)
    if status == 401:
        return flight.FlightUnauthenticatedError(text)
    if status in (429, 503):
        return flight.FlightUnavailableError(text)
    return (flight.FlightServerError if status < 500 else flight.FlightInternalError)(text)
