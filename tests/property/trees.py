"""SQL as a tree: the one form in which a whole query is generated, written in each dialect, and shrunk.

A node is a template with a placeholder for each of its parts. Its kind says what may replace it: a condition inside a
condition can replace the outer one, an item can be removed from its list, a clause can be removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

LAKE, DUCK, PLAIN = range(3)
"""Dialects: of the lake, of DuckDB, and of plain DataFusion, where a float literal needs a cast."""


@dataclass(frozen=True, slots=True)
class Node:
    """`text` is the template in each dialect. A `list` has its separator as text and any number of parts; `keys` is a
    list that is never shrunk, since ORDER BY with fewer keys is another query. `bound` holds the parameters that the
    node names."""

    kind: str
    text: tuple[str, str, str]
    parts: tuple[Node, ...] = ()
    bound: tuple[tuple[str, Any], ...] = ()

    def sql(self, dialect: int) -> str:
        parts = [part.sql(dialect) for part in self.parts]
        if self.kind in ("list", "keys"):
            return self.text[dialect].join(parts)
        return self.text[dialect].format(*parts)

    def parameters(self) -> dict[str, Any]:
        found = dict(self.bound)
        for part in self.parts:
            found |= part.parameters()
        return found

    def size(self) -> int:
        return 1 + sum(part.size() for part in self.parts)

    def __str__(self) -> str:
        return self.sql(LAKE)


def node(kind: str, template: str, *parts: Node) -> Node:
    return Node(kind, (template, template, template), parts)


def word(text: str, kind: str = "word") -> Node:
    return Node(kind, (text.replace("{", "{{").replace("}", "}}"),) * 3)


def listed(parts: Sequence[Node], separator: str = ", ", kind: str = "list") -> Node:
    return Node(kind, (separator,) * 3, tuple(parts))


NOTHING = word("", "clause")
TRUE = word("TRUE", "bool")


def smaller(tree: Node) -> Iterator[Node]:
    """This tree with one part removed, the largest parts first."""
    yield from _at(tree)
    ordered = sorted(range(len(tree.parts)), key=lambda at: -tree.parts[at].size())
    for at in ordered:
        for part in smaller(tree.parts[at]):
            yield replace(tree, parts=(*tree.parts[:at], part, *tree.parts[at + 1 :]))


def _at(tree: Node) -> Iterator[Node]:
    if tree.kind == "clause" and tree != NOTHING:
        yield NOTHING
    if tree.kind == "list" and len(tree.parts) > 1:
        for at in range(len(tree.parts)):
            yield replace(tree, parts=(*tree.parts[:at], *tree.parts[at + 1 :]))
    if tree.kind in ("list", "keys", "clause", "word"):
        return
    if tree.kind == "bool" and tree.parts:
        yield TRUE
    yield from _inside(tree, tree.kind)


def _inside(tree: Node, kind: str) -> Iterator[Node]:
    """The nearest nodes of a kind below a node."""
    for part in tree.parts:
        if part.kind == kind:
            yield part
        else:
            yield from _inside(part, kind)
