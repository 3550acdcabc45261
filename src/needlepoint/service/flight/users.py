"""Who calls, by the tokens of the service.

A client sends `Authorization: Bearer TOKEN` with every call. Or it sends a name and, as the password, a token with its
first call (Handshake), and gets the header to send with the others.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import pyarrow.flight as flight

from needlepoint.service.flight.problems import flight_error
from needlepoint.service.requests import User, user_of
from needlepoint.service.tokens import Tokens

KEY = "user"


class Users(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    def __init__(self, tokens: Tokens | None) -> None:
        self._tokens = tokens

    def start_call(self, info: Any, headers: Mapping[str, list[str]]) -> Caller:
        (given,) = headers.get("authorization", [""])[:1]
        scheme, _, secret = given.partition(" ")
        is_basic = scheme.lower() == "basic"
        if is_basic:
            given = f"Bearer {_password(secret)}"
        try:
            return Caller(user_of(given, self._tokens), given if is_basic else None)
        except Exception as error:
            raise flight_error(error) from None


class Caller(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, user: User, header: str | None) -> None:
        self.user = user
        self._header = header

    def sending_headers(self) -> dict[str, str]:
        return {"authorization": self._header} if self._header else {}


class Handshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Accepts all handshakes: `Users` has checked their headers."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        pass

    def is_valid(self, token: bytes) -> bytes:
        return b""


def _password(secret: str) -> str:
    """
    >>> _password("YW5uOm5lZWRsZV94"), _password("!")
    ('needle_x', '')
    """
    try:
        return base64.b64decode(secret, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""
