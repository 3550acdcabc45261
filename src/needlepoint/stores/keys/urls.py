"""URLs of key stores: where they are, without what must not be shown.

    postgresql://user@host:5432/database      also postgres://
    mysql://user@host:3306/database           also mariadb://
    redis://host:6379/0                       rediss:// with TLS; redis+cluster:// and rediss+cluster:// for a cluster

`${NAME}` in a URL is the value of an environment variable, so that a password need not be in it.
"""

from __future__ import annotations

import difflib
import os
import re
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from needlepoint.errors import UsageError

POSTGRES = ("postgresql", "postgres")
MYSQL = ("mysql", "mariadb")
REDIS = ("redis", "rediss", "redis+cluster", "rediss+cluster")
SCHEMES = (*POSTGRES, *MYSQL, *REDIS)

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SECRETS = ("password", "passwd", "sslpassword", "secret", "token")
_HINT = "There are rocksdb, lake: and servers such as postgresql://user@host/database or redis://host:6379/0."
_LONGEST_MISSPELT = 20


def scheme_of(url: str) -> str:
    return url.partition(":")[0].lower()


def check_url(url: object) -> str:
    """The URL of a server that can hold keys; UsageError for another one."""
    if not isinstance(url, str):
        raise UsageError("the store of an index is a URL.", hint=_HINT)
    scheme, separator, _ = url.partition("://")
    if not separator or scheme.lower() not in SCHEMES:
        known = [*(f"{each}://" for each in SCHEMES), "rocksdb", "lake:"]
        close = difflib.get_close_matches(f"{scheme}{separator}"[:_LONGEST_MISSPELT], known, n=1)
        # A text that is like none of them is not shown: it may be a password.
        shown = f"'{scheme}://…'" if separator else f"'{url}'" if close else "the text"
        raise UsageError(f"{shown} is not a store for keys.", hint=f"Did you mean '{close[0]}'?" if close else _HINT)
    parts = parsed(url)
    if not parts.hostname and "host" not in dict(parse_qsl(parts.query)):
        raise UsageError(f"{without_secrets(url)} names no host.", hint=_HINT)
    return url


def parsed(url: str) -> SplitResult:
    try:
        found = urlsplit(url)
        _ = found.port
    except ValueError:
        raise UsageError(f"the URL of a {scheme_of(url)} store cannot be read.", hint=_HINT) from None
    return found


def expanded(url: str) -> str:
    """With the values of environment variables, quoted."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in os.environ:
            raise UsageError(
                f"the environment variable {name} is not set.",
                hint=f"The URL of the store {without_secrets(url)} needs it.",
            )
        return quote(os.environ[name], safe="")

    return _VARIABLE.sub(value, url)


def without_secrets(url: str) -> str:
    """The URL as it may be shown and kept: no password. A password from the environment stays, as its variable.

    >>> without_secrets("redis://user:secret@host:6379/0"), without_secrets("redis://:${WORD}@host")
    ('redis://user@host:6379/0', 'redis://:${WORD}@host')
    >>> without_secrets("postgresql://host/a?password=b&sslmode=require")
    'postgresql://host/a?sslmode=require'
    """
    parts = parsed(url)
    user, at, host = parts.netloc.rpartition("@")
    name, colon, password = user.partition(":")
    if colon and not _VARIABLE.fullmatch(password):
        user = name
    query = [
        (key, value)
        for key, value in parse_qsl(parts.query, keep_blank_values=True)
        if key.lower() not in _SECRETS or _VARIABLE.fullmatch(value)
    ]
    netloc = f"{user}{at}{host}" if user else host
    return parts._replace(netloc=netloc, query=urlencode(query, safe="${}/"), fragment="").geturl()


def has_secrets(url: str) -> bool:
    """Whether there is a password in the URL itself.

    >>> has_secrets("redis://:word@host"), has_secrets("redis://:${WORD}@host"), has_secrets("mysql://me@host/a")
    (True, False, False)
    """
    parts = parsed(url)
    given = [parts.netloc.rpartition("@")[0].partition(":")[2]]
    given += [value for key, value in parse_qsl(parts.query) if key.lower() in _SECRETS]
    return any(value and not _VARIABLE.fullmatch(value) for value in given)


def place_of(url: str) -> tuple[str, str, int | None, str]:
    """What two URLs of the same store have in common: protocol, host, port and database.

    >>> place_of("postgres://me:secret@Host/a") == place_of("postgresql://host:5432/a?sslmode=require")
    True
    """
    parts = parsed(url)
    scheme = parts.scheme.lower()
    family = next(name for name, names in _FAMILIES.items() if scheme in names)
    host = parts.hostname or dict(parse_qsl(parts.query)).get("host", "")
    database = unquote(parts.path.strip("/"))
    if family == "redis":
        database = "" if "cluster" in scheme else database or "0"
    return family, host.lower(), parts.port or _PORTS[family], database


_FAMILIES = {"postgresql": POSTGRES, "mysql": MYSQL, "redis": REDIS}
_PORTS = {"postgresql": 5432, "mysql": 3306, "redis": 6379}
