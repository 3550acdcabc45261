"""What requests say: their bodies, their keys, and who sends them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from needlepoint.errors import UnknownName, UsageError
from needlepoint.query import Limits, named_by_place
from needlepoint.service.options import ServiceOptions
from needlepoint.service.problems import RequestProblem
from needlepoint.service.tokens import Token, Tokens

_INT64, _INTEGER = pa.int64(), re.compile(r"-?[0-9]{1,18}", re.ASCII)
COLUMNS = "columns"  # the one name in a query string that is not a key


class RequestLimits(BaseModel):
    """Limits of one query. Those of the service are the highest that count."""

    model_config = ConfigDict(extra="forbid")
    seconds: float = Field(0, ge=0, description="Most seconds of work; 0 means the limit of the service.")
    rows: int = Field(0, ge=0, description="Most rows of the result; 0 means the limit of the service.")


class Query(BaseModel):
    """A query, with `$name` for its parameters."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"sql": "SELECT title, upc FROM product WHERE product_id = $id", "parameters": {"id": 384209819}},
                {"sql": "SELECT count(*) AS n FROM product"},
            ]
        },
    )
    sql: str = Field(min_length=1, description="One statement that reads.")
    parameters: dict[str, Any] | list[Any] | None = Field(
        None, description="The value of each `$name`, or a list with that of each `?`."
    )
    limits: RequestLimits = Field(default_factory=lambda: RequestLimits(seconds=0, rows=0))
    scan: bool = Field(False, description="Run it without indexes, to compare.")
    report: bool = Field(False, description="JSON also says what was read, and why.")
    query_id: str = Field("", pattern=r"^[A-Za-z0-9_.-]{0,64}$", description="Names the query, to cancel it.")

    def named(self) -> tuple[str, dict[str, Any] | None]:
        """The SQL with `$name` for each parameter, and their values."""
        if not isinstance(self.parameters, list):
            return self.sql, self.parameters
        return named_by_place(self.sql, self.parameters)


@dataclass(frozen=True, slots=True)
class User:
    """Who sends a request, and the tables that they may read."""

    name: str = ""
    tables: frozenset[str] | None = None

    @classmethod
    def of(cls, token: Token) -> User:
        return cls(token.name, None if token.tables is None else frozenset(token.tables))

    def limits(self, options: ServiceOptions, asked: RequestLimits | None = None) -> Limits:
        seconds, rows = (asked.seconds, asked.rows) if asked is not None else (0.0, 0)
        return Limits(_lower(seconds, options.seconds), int(_lower(rows, options.rows)), options.memory, self.tables)


def user_of(authorization: str | None, tokens: Tokens | None) -> User:
    """Who has the bearer token of this header."""
    if tokens is None:
        return User()
    scheme, _, secret = (authorization or "").partition(" ")
    token = tokens.find(secret.strip()) if scheme.lower() == "bearer" else None
    if token is None:
        raise RequestProblem(
            401,
            "the request has no valid token.",
            hint="Send the header `Authorization: Bearer TOKEN`.",
            headers={"WWW-Authenticate": "Bearer"},
        )
    return User.of(token)


def keys_of(pairs: Iterable[tuple[str, str]], schema: pa.Schema) -> Mapping[str, pa.Array]:
    """The keys of a query string, in the types of their columns; a repeated key means any of its values."""
    texts: dict[str, list[str]] = {}
    for name, text in pairs:
        if name != COLUMNS:
            texts.setdefault(name, []).append(text)
    if not texts:
        raise UsageError("the request names no key.", hint="For example ?product_id=384209819.")
    return {name: _typed(name, values, schema) for name, values in texts.items()}


def _typed(name: str, values: list[str], schema: pa.Schema) -> pa.Array:
    if name not in schema.names:
        raise UnknownName("column", name, schema.names)
    type = schema.field(name).type
    try:
        if type == _INT64 and all(map(_INTEGER.fullmatch, values)):  # ten times as fast as a cast
            return pa.array([int(each) for each in values], type)
        return pa.array(values, pa.string()).cast(type)
    except (pa.ArrowException, ValueError) as error:
        shown = ", ".join(values)[:200]
        raise UsageError(f"'{shown}' is not a value of column '{name}', which is {type}.", hint="") from error


def _lower(asked: float, limit: float) -> float:
    """
    >>> _lower(0, 30), _lower(5, 30), _lower(60, 30), _lower(60, 0)
    (30, 5, 30, 60)
    """
    return min(asked, limit) if asked and limit else asked or limit
