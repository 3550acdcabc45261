"""The nodes of a plan of DataFusion, and their expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

EXPRESSIONS: Mapping[str, Callable[[Any], Iterable[Any]]] = {
    "Projection": lambda node: node.projections(),
    "Filter": lambda node: [node.predicate()],
    "Sort": lambda node: [each.expr() for each in node.sort_exprs()],
    "Aggregate": lambda node: [*node.group_by_exprs(), *node.aggregate_exprs()],
    "Join": lambda node: [each for pair in node.on() for each in pair] + [each for each in [node.filter()] if each],
    "TableScan": lambda node: node.filters(),
    "WindowExpr": lambda node: node.get_window_expr(),
}


def nodes(plan: Any) -> Iterator[tuple[Any, Any]]:
    """All nodes of a plan, each as a plan and as its variant."""
    waiting = [plan]
    while waiting:
        each = waiting.pop()
        yield each, each.to_variant()
        waiting += each.inputs()


def field_names(plan: Any) -> list[str]:
    """The names of its columns. DataFusion does not tell those of a recursive query: its first part has them too."""
    node = plan.to_variant()
    found: list[str] = node.schema().field_names() if hasattr(node, "schema") else field_names(plan.inputs()[0])
    return found


def parts_of(expression: Any) -> Iterator[Any]:
    """An expression and all its operands, at any depth. DataFusion does not expose the operands of some kinds."""
    waiting = [expression]
    while waiting:
        found = waiting.pop()
        yield found
        if found.variant_name() not in ("Column", "Literal"):
            try:
                waiting += reversed(found.rex_call_operands())
            except Exception:
                continue
