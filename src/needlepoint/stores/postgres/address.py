"""Parse the URL of a PostgreSQL database.

postgresql://user:password@host:5432/database?schema=name&sslmode=require

`schema` is Needlepoint's own: the schema that holds its tables, `needlepoint` unless named. All else is libpq's, and
so are its defaults: PGHOST, PGPASSWORD, ~/.pgpass, a service file.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from needlepoint.errors import UsageError

SCHEMA = "needlepoint"

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(:[0-9]*)?")
_FORM = "Name it as postgresql://user@host:5432/database; docs/settings.md has the rest."


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """`conninfo` is for libpq and may contain a password; `shown` is for messages and has neither user nor password."""

    conninfo: str = field(repr=False)
    shown: str
    schema: str = SCHEMA


def parse_postgres(url: str) -> PostgresAddress:
    """
    >>> found = parse_postgres("postgresql://me:secret@db.example:5432/lakes?schema=sales&sslmode=require")
    >>> found
    PostgresAddress(shown='postgresql://db.example:5432/lakes?schema=sales', schema='sales')
    >>> found.conninfo
    'postgresql://me:secret@db.example:5432/lakes?sslmode=require'
    """
    parts = _split(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(options).get("schema", SCHEMA)
    if not _NAME.fullmatch(schema) or schema.startswith("pg_"):
        raise UsageError(f"'{schema}' cannot name a schema.", hint="Use lower-case letters, digits and _.")
    others = [(name, value) for name, value in options if name != "schema"]
    conninfo = parts._replace(query=urlencode(others)).geturl()
    _check(conninfo)
    host = parts.netloc.rpartition("@")[2] or unquote(dict(options).get("host", ""))
    shown = f"postgresql://{host}{'' if host.startswith('/') else parts.path}?schema={schema}"
    return PostgresAddress(conninfo, shown, schema)


def _split(url: str):  # type: ignore[no-untyped-def]  # a private class of urllib
    """Errors do not show the URL: a character that is not quoted makes a part of a password look like a host."""
    try:
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2].split(",")
        quoted = parts.netloc.count("@") <= 1 and "@" not in parts.path and not parts.fragment
        quoted &= all(_HOST.fullmatch(host) for host in hosts)
    except ValueError:
        quoted = False
    if not quoted:
        raise UsageError(
            "the URL of the PostgreSQL database cannot be parsed.",
            hint="Quote special characters of the password, such as %40 for @, or set PGPASSWORD.",
        )
    return parts


def _check(conninfo: str) -> None:
    if importlib.util.find_spec("psycopg") is None:
        raise UsageError(
            "a PostgreSQL database needs psycopg, which is not installed.",
            hint="Install it: pip install 'needlepoint[postgres]'.",
        )
    import psycopg

    try:
        psycopg.conninfo.conninfo_to_dict(conninfo)
    except psycopg.Error:
        raise UsageError("libpq does not take the URL of the PostgreSQL database.", hint=_FORM) from None
