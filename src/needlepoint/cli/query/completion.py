"""Completion of names in the shell: tables, columns, functions, words of SQL, and the shell's own commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from needlepoint.lake import names_in_sql
from needlepoint.query import quoted

if TYPE_CHECKING:
    from needlepoint.lake import Lake

WORDS = """
    ALL ANALYZE AND AS ASC AVG BETWEEN BY CASE CAST COUNT CREATE CROSS DATE DESC DISTINCT DROP ELSE END EXCEPT EXPLAIN
    FIRST FROM FULL GROUP HAVING ILIKE IN INDEX INDEXES INNER INTERSECT INTERVAL IS JOIN LAST LEFT LIKE LIMIT MAX MIN
    NOT NULL NULLS OFFSET ON OR ORDER OVER PARTITION RIGHT SELECT SHOW SUM TABLES THEN UNION USING VIEW WHEN WHERE WITH
""".split()  # noqa: SIM905
COMMANDS = ("\\d", "\\explain", "\\format", "\\q", "\\rows", "\\timing", "\\?")
_WORD = re.compile(r'"?[\w\\?]+$')
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_TABLE_FOLLOWS = re.compile(r"(?:\b(?:from|join)|\\d)\s+$", re.IGNORECASE)


class Names:
    """What can be completed, by name, with what it is. It is read when it is first needed, and again after changes."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._known: dict[str, str] | None = None

    def forget(self) -> None:
        self._known = None

    def all(self) -> dict[str, str]:
        if self._known is None:
            tables, views = self._lake.engine.visible(None)
            found = names_in_sql(self._lake)
            columns = {column: f"column of {name}" for name, columns in found.tables.items() for column in columns}
            self._known = dict.fromkeys(WORDS, "") | dict.fromkeys(found.functions, "function") | columns
            self._known |= dict.fromkeys(views, "view") | dict.fromkeys(tables, "table")
        return self._known


class NamesCompleter(Completer):
    def __init__(self, names: Names) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        before = document.text_before_cursor
        found = _WORD.search(before)
        if found is None:
            return
        begun = found[0].lstrip('"').lower()
        names = dict.fromkeys(COMMANDS, "command") if begun.startswith("\\") else self._names.all()
        if _TABLE_FOLLOWS.search(before[: found.start()]):
            names = {name: what for name, what in names.items() if what in ("table", "view")}
        elif found[0].startswith('"'):
            names = {name: what for name, what in names.items() if what.startswith(("table", "view", "column"))}
        for name in sorted(names, key=lambda name: (not names[name], name.lower())):
            if name.lower().startswith(begun) and name.lower() != begun:
                text = name if name.startswith("\\") else _written(name, names[name])
                yield Completion(text, -len(found[0]), display_meta=names[name])


def _written(name: str, what: str) -> str:
    """A name as SQL has it: in quotes, if it is of the lake and has other signs than small letters."""
    is_plain = what in ("", "function") or _PLAIN.fullmatch(name)
    return name if is_plain else quoted(name)
