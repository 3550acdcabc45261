"""One line that says what is wrong, from a failure of Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from needlepoint.errors import NeedlepointError, SparkError, UsageError

_LONGEST = 400

_CONDITION = re.compile(r"^\[[A-Z_.]+\]\s*")
_JAVA_CLASS = re.compile(r"^(?:[a-z_$][\w$]*\.)+[A-Z][\w$.]*:\s*")
_SQL_STATE = re.compile(r"\s?SQLSTATE: \w+")
_UNREADABLE_FILE = re.compile(r"^\[FAILED_READ_FILE.*?while reading file (.+?)\.(?:\s|$)")
_STARTUP_NOISE = re.compile(r"^\s*$|^\s+at |^\s*WARNING: |^Using Spark's default|^Setting |^To adjust |\b(WARN|INFO)\b")


def reason(failure: BaseException) -> str:
    """What went wrong, as one line without Java's class names and stack traces.

    >>> reason(ValueError("[PATH_NOT_FOUND] Path does not exist: nope.json. SQLSTATE: 42K03"))
    'Path does not exist: nope.json'
    """
    # A failed job is a chain of causes: the stage, the task, the file, the record. The innermost one is the reason;
    # the others say where in Spark it was noticed.
    *_, innermost = _messages(failure)
    return _one_line(innermost)


def translated(failure: Exception, doing: str) -> NeedlepointError:
    """The Needlepoint error for a failed Spark call: a UsageError if the input is wrong."""
    if isinstance(failure, NeedlepointError):
        return failure
    for message in _messages(failure):
        unreadable = _UNREADABLE_FILE.match(message)
        if unreadable:
            return UsageError(f"{_plain_path(unreadable[1])} cannot be read: {reason(failure)}.")
    why = reason(failure)
    # A JVM that was started in the C locale; needlepoint.spark.session prevents that.
    hint = "Start Spark with LC_ALL=C.UTF-8." if "unmappable characters" in why else ""
    return SparkError(f"{doing} failed: {why}.", hint=hint)


def startup_reason(log: str) -> str:
    """Why a JVM did not start, from its output; empty if it says nothing."""
    telling = [line.strip() for line in log.splitlines() if not _STARTUP_NOISE.search(line)]
    thrown = (line.split(" ", 4)[4] for line in telling if line.startswith('Exception in thread "'))
    return _one_line(next(thrown, "; ".join(telling[:2])))


def _messages(failure: BaseException) -> Iterator[str]:
    link: Any = getattr(failure, "java_exception", None) or getattr(failure, "_origin", None)
    if link is None:
        yield str(failure) or type(failure).__name__
    for _ in range(20):  # a chain of causes can be a cycle
        if link is None:
            return
        yield link.getMessage() or link.getClass().getSimpleName()
        link = link.getCause()


def _one_line(message: str) -> str:
    lines = [line.strip() for line in _SQL_STATE.sub("", message).splitlines() if line.strip()]
    # Python puts what happened last, Java first.
    position = -1 if "Traceback (most recent call last)" in message else 0
    line = lines[position] if lines else ""
    line = _CONDITION.sub("", _JAVA_CLASS.sub("", line)).strip().rstrip(".:; ")
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "…"


def _plain_path(path: str) -> str:
    """The path as a user would write it, from the URI that Spark prints."""
    if not path.startswith("file:"):
        return path
    return "/" + unquote(path.removeprefix("file:")).lstrip("/")
