"""Translate errors of PostgreSQL.

Messages of libpq name users and repeat parts of URLs: of a failed connection only its kind is passed on. Of a failed
statement, the server's own message is: it names what is in the database.
"""

from __future__ import annotations

import re

import psycopg

from needlepoint.errors import StoreError

# Pattern over the SQLSTATE or libpq's text, meaning, what to do: the first match counts.
_MEANINGS = (
    (r"^28|password|authentication|role .* does not exist", "it does not accept the user or password",
     "Check the URL, PGUSER and PGPASSWORD, or ~/.pgpass."),
    (r"^3D000|database .* does not exist", "there is no such database", "Create it, or check its name in the URL."),
    (r"^3F000", "there is no such schema", "Check ?schema=… in the URL."),
    (r"^42501|permission denied", "the user lacks a right",
     "The user must own the schema, or have CREATE on the database; a reader needs USAGE and SELECT."),
    (r"^25006|read-only transaction", "it only lets this user read",
     "Name the primary server, not a standby, or open the lake with read_only."),
    (r"^55P03", "another process has been changing it for a minute", "Retry; look for a process that hangs."),
    (r"^25P03", "a change took too long, and the server ended it", "Nothing was changed. Retry."),
    (r"^53300|too many (clients|connections)", "it has no connection left",
     "Raise its max_connections; a lake takes three in each process."),
    (r"^53100|^58030|^53200|No space left", "it has no room or memory left", "Make room on the server."),
    (r"NUL \(0x00\)|^22021", "a name or text contains the character NUL, which PostgreSQL does not store",
     "Rename the column or file, or keep the registry in SQLite."),
    (r"^57P0|^08|refused|timeout|timed out|closed|reset|resol|translate|lost|SSL|No such file|unreachable|starting|EOF",
     "it does not answer", "Check the host, the port and the network; the lake works again when the server does."),
)  # fmt: skip


def postgres_error(error: psycopg.Error, what: str, shown: str) -> StoreError:
    """The error for a failure of the driver; `what` is the registry, the queue or another part in the database."""
    found = _state(error) or str(error)
    for pattern, problem, hint in _MEANINGS:
        if re.search(pattern, found):
            return StoreError(f"the {what} in {shown} cannot be used: {problem}.", hint=hint)
    said = (error.diag.message_primary or type(error).__name__).rstrip(".")
    code = f" ({error.sqlstate})" if error.sqlstate else ""
    return StoreError(f"the {what} in {shown} cannot be used: {said}{code}.", hint="Check the server and its log.")


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is of no use any more: the server ended it, or the network did."""
    state = _state(error)
    if state:
        return state.startswith(("57P0", "08")) or state == "25P03"
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def _state(error: psycopg.Error) -> str:
    return error.sqlstate or error.diag.sqlstate or ""
