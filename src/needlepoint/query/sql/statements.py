"""Statements beyond queries: CREATE, DROP and SHOW for tables, indexes and views; EXPLAIN with our report.

>>> parse("CREATE INDEX ON product USING key (product_id)")
CreateIndex(table='product', columns=('product_id',), kind='key', name=None, options={})
>>> parse("CREATE INDEX ON product USING text (title) WITH (embed = true, tokenizer = 'trigram')").options
{'embed': True, 'tokenizer': 'trigram'}
>>> parse("SHOW INDEXES")
ShowIndexes()
>>> parse("EXPLAIN ANALYZE SELECT 1")
Explain(query='SELECT 1', analyze=True)
>>> parse("SELECT 1") is None
True
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from needlepoint.errors import SqlError

_WORD = r'(?:[A-Za-z_]\w*|"(?:[^"]|"")+")'
_SELECT = re.compile(r"\s*SELECT\b", re.IGNORECASE)
_CREATE_INDEX = re.compile(
    rf"CREATE\s+INDEX(?:\s+(?!ON\b)({_WORD}))?\s+ON\s+({_WORD})(?:\s+USING\s+({_WORD}))?"
    rf"\s*\(\s*({_WORD}(?:\s*,\s*{_WORD})*)\s*\)(?:\s*WITH\s*\((.*)\))?",
    re.IGNORECASE | re.DOTALL,
)
_OPTION = re.compile(
    rf"\s*({_WORD})(?:\s*=\s*(true|false|'(?:[^']|'')*'|-?\d{{1,40}}(?:\.\d{{1,40}})?(?:[eE][+-]?\d{{1,4}})?))?\s*(?:,|$)",
    re.IGNORECASE,
)
_DROP_INDEX = re.compile(rf"DROP\s+INDEX\s+({_WORD})", re.IGNORECASE)
_SHOW_INDEXES = re.compile(rf"SHOW\s+INDEXES(?:\s+(?:FROM|ON)\s+({_WORD}))?", re.IGNORECASE)
_SHOW_TABLES = re.compile(r"SHOW\s+TABLES", re.IGNORECASE)
_CREATE_VIEW = re.compile(rf"CREATE\s+VIEW\s+({_WORD})\s+AS\s+(.+)", re.IGNORECASE | re.DOTALL)
_DROP_VIEW = re.compile(rf"DROP\s+VIEW\s+({_WORD})", re.IGNORECASE)
# EXPLAIN VERBOSE and EXPLAIN FORMAT … are DataFusion's and show its plans.
_EXPLAIN = re.compile(r"EXPLAIN\s+(ANALYZE\s+)?(?!VERBOSE\b|FORMAT\b|ANALYZE\b)(\S.*)", re.IGNORECASE | re.DOTALL)
_STARTS = re.compile(r"(CREATE|DROP)\s+(?:OR\s+REPLACE\s+)?(INDEX|VIEW)\b|SHOW\s+INDEXES\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CreateIndex:
    table: str
    columns: tuple[str, ...]
    kind: str = "key"
    name: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DropIndex:
    name: str


@dataclass(frozen=True, slots=True)
class ShowIndexes:
    table: str | None = None

    def __repr__(self) -> str:
        return f"ShowIndexes({self.table!r})" if self.table else "ShowIndexes()"


@dataclass(frozen=True, slots=True)
class ShowTables:
    pass


@dataclass(frozen=True, slots=True)
class CreateView:
    name: str
    query: str


@dataclass(frozen=True, slots=True)
class DropView:
    name: str


@dataclass(frozen=True, slots=True)
class Explain:
    query: str
    analyze: bool


Statement = CreateIndex | DropIndex | ShowIndexes | ShowTables | CreateView | DropView | Explain

_FORMS = {
    "INDEX": "CREATE INDEX [name] ON table USING kind (column, …) [WITH (option = value, …)], or DROP INDEX name",
    "VIEW": "CREATE VIEW name AS SELECT … (after DROP VIEW name, if it exists), or DROP VIEW name",
}


def parse(sql: str) -> Statement | None:
    """The statement, or None if DataFusion parses it. SqlError for a statement that is not supported."""
    if _SELECT.match(sql):
        return None
    text = without_comments_before(sql).rstrip().rstrip(";").rstrip()
    if _SHOW_TABLES.fullmatch(text):
        return ShowTables()
    start = _STARTS.match(text)
    if start is None:
        if found := _EXPLAIN.fullmatch(text):
            return _explain(found[2], found[1] is not None)
        from needlepoint.query.sql.refusals import refusal

        if refused := refusal(text):
            raise refused
        return None
    if found := _CREATE_INDEX.fullmatch(text):
        name, table, kind = (_unquoted(word) if word else None for word in found.groups()[:3])
        columns = tuple(_unquoted(word) for word in re.findall(_WORD, found[4]))
        return CreateIndex(table or "", columns, kind or "key", name, _options(found[5] or ""))
    if found := _DROP_INDEX.fullmatch(text):
        return DropIndex(_unquoted(found[1]))
    if found := _SHOW_INDEXES.fullmatch(text):
        return ShowIndexes(_unquoted(found[1]) if found[1] else None)
    if found := _CREATE_VIEW.fullmatch(text):
        return CreateView(_unquoted(found[1]), found[2])
    if found := _DROP_VIEW.fullmatch(text):
        return DropView(_unquoted(found[1]))
    form = _FORMS.get((start[2] or "INDEX").upper(), "")
    raise SqlError(f"'{' '.join(text.split())[:80]}' is not valid.", hint=f"The form is: {form}.")


def _explain(query: str, analyze: bool) -> Explain:
    if parse(query) is not None:
        raise SqlError("only a query can be explained.", hint="The form is: EXPLAIN [ANALYZE] SELECT ….")
    return Explain(query, analyze)


def without_comments_before(sql: str) -> str:
    """The statement without leading comments and blanks."""
    start = 0
    while True:
        while start < len(sql) and sql[start].isspace():
            start += 1
        if sql.startswith("--", start):
            end = sql.find("\n", start)
        elif sql.startswith("/*", start):
            end = sql.find("*/", start + 2) + 1 or -1
        else:
            return sql[start:]
        if end < 0:
            return sql[start:]
        start = end + 1


def _options(text: str) -> dict[str, Any]:
    """`embed, tokenizer = 'trigram'`: an option without a value is true."""
    found: dict[str, Any] = {}
    position = 0
    end = len(text.rstrip())
    while position < end:
        option = _OPTION.match(text, position)
        if option is None:
            shown = text[position:end].strip()[:40]
            raise SqlError(f"'{shown}' is not an index option.", hint="The form is: WITH (embed = true).")
        value = option[2]
        if value is not None and value.startswith("'"):
            found[_unquoted(option[1])] = value[1:-1].replace("''", "'")
        else:
            found[_unquoted(option[1])] = True if value is None else json.loads(value.lower())
        position = option.end()
    return found


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _unquoted(word: str) -> str:
    """SQL folds names to lower case unless they are quoted."""
    return word[1:-1].replace('""', '"') if word.startswith('"') else word.lower()
