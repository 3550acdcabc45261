"""Opens a server by its URL. Each driver is an extra, and is imported only here and only when it is used."""

from __future__ import annotations

from needlepoint.errors import UsageError
from needlepoint.stores.keys.space import KeyServer
from needlepoint.stores.keys.urls import MYSQL, POSTGRES, check_url, scheme_of


def key_server(url: str) -> KeyServer:
    scheme = scheme_of(check_url(url))
    try:
        if scheme in POSTGRES:
            from needlepoint.stores.keys.postgres import postgres_server

            return postgres_server(url)
        if scheme in MYSQL:
            from needlepoint.stores.keys.mysql import mysql_server

            return mysql_server(url)
        from needlepoint.stores.keys.redis import RedisKeyServer

        return RedisKeyServer(url)
    except ModuleNotFoundError as error:
        extra = "postgres" if scheme in POSTGRES else "mysql" if scheme in MYSQL else "redis"
        raise UsageError(
            f"a key store at {scheme}://… needs the package {error.name}.",
            hint=f"pip install 'needlepoint[{extra}]'",
        ) from None
