"""Properties of a logical plan that decide how DataFusion may run it.

DataFusion 55 maps the columns of a pushed-down filter by name (datafusion#25296 and relatives, fixed after 55). Where
the inputs of a join share a name, the filter lands on the wrong column and rows are lost:

    Filter: x.s IS NULL OR y.s IS NULL          stays above the join, since it concerns both sides
      Projection: x.s, y.i, y.s                 two columns named `s`: the filter now means y.s twice
        Right Join: x.i = y.i
          x                 y                   and is applied to y alone

Filters that DataFusion makes itself (for ORDER BY with LIMIT, joins, min and max) are mapped the same way.

DataFusion 55 also takes the keys of a group for unique after a join and another GROUP BY, though a join repeats them.
What it takes for unique decides the order alone, and makes other keys of groups superfluous:

    Sort: x.p, y.id                             is sorted by x.p only; a GROUP BY x.p, y.id above would lose groups
      Aggregate: groupBy=[x.p, y.id]            x.p occurs with every y.id
        Join
          Aggregate: groupBy=[x.p]              x.p is unique here
          y
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa

from needlepoint.query.sql.equal_columns import has_equal_keys
from needlepoint.query.sql.plan_nodes import EXPRESSIONS, field_names, nodes, parts_of

# Nodes that keep the names of columns, or whose renamings the plan shows.
_KEEPS_NAMES = {"Filter", "Projection", "Join", "SubqueryAlias", "Sort", "Limit", "TableScan"}
_ANY = "*"
_GROUPS = {"Aggregate", "Distinct"}
_FIXES_NOTHING = {"SubqueryAlias", "Join", "Sort", "Limit", "Distinct", "Union"}
# Nodes with at most as many rows as their inputs have together.
_KEEPS_COUNT = (_KEEPS_NAMES | _FIXES_NOTHING | {"Aggregate", "WindowExpr", "EmptyRelation", "Values"}) - {"Join"}
# Nodes for which DataFusion filters the scans below by the values seen so far.
_FILTERING = {"Sort", "Aggregate", "Distinct", "WindowExpr", "Join"}
# Nodes whose expressions have parts that DataFusion does not expose, and what is found in their text.
_HIDING = {"Aggregate", "WindowExpr"}
_LIST = re.compile(r" (?:NOT )?IN \(\[(.*?)\]\)")
_FILTERED_NOT_IN = re.compile(r" Filter: .* null_aware")
_NEGATED_MARK = re.compile(r"NOT __correlated_sq_\d+\.mark\b|__correlated_sq_\d+\.mark IS (?:NOT|FALSE|UNKNOWN)")
_SUBQUERY = re.compile(r"(\w*) ?\(<subquery>\)")
_SORTS = re.compile(r"\b(?:Sort|WindowAggr|DistinctOn):")
_ZERO = re.compile(r"Float(?:16|32|64)\((-?0)\)")


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """
    joins             the plan has a join
    shared_names      names that the inputs of a join, or columns of a projection, share
    given_names       names that are not those of the columns of tables: an alias, for instance
    stacked_filters   a filter on such a name is above such a join, and another one below it is above more than a scan
    stacked_keys      the same over a join with USING, which has keys from the start
    own_filters       DataFusion makes filters while it runs
    extremes          it may read the minimum or maximum of a whole table from statistics
    unions            the plan has a union, whose parts may each have a different constant
    outer_constants   an outer join or grouping sets may fill columns with NULL that are constant below
    equal_subtotals   grouping sets fill a column with NULL and not another one, though both are equal below
    anti_joins        the plan has an anti join, for NOT EXISTS or NOT IN
    unknown_in        NOT IN with a correlated subquery, or negated inside another condition: DataFusion takes NULL for
                      FALSE there; or NOT EXISTS inside another condition, which has the same plan
    unfilterable_keys a join may be by floats, lists or structs
    reused_names      a projection gives the name of a column to another value
    empty_parts       a part of the plan has no rows, as DataFusion found, or a condition without columns
    literals          a projection has a literal
    empty_totals      a total (count(*) of everything, or of ROLLUP) has no rows below it
    grows             it may have more rows than its tables
    regroups          groups of a join, one of whose inputs has groups
    regroups_again    and groups of such groups
    """

    joins: bool = False
    shared_names: frozenset[str] = frozenset()
    given_names: frozenset[str] = frozenset()
    stacked_filters: bool = False
    stacked_keys: bool = False
    own_filters: bool = False
    extremes: bool = False
    unions: bool = False
    outer_constants: bool = False
    equal_subtotals: bool = False
    anti_joins: bool = False
    unknown_in: bool = False
    unfilterable_keys: bool = False
    reused_names: bool = False
    empty_parts: bool = False
    literals: bool = False
    empty_totals: bool = False
    grows: bool = False
    regroups: bool = False
    regroups_again: bool = False

    @classmethod
    def careful(cls) -> PlanFacts:
        """For a plan that is not visible. Filters do not count as stacked: that costs most and is rare."""
        return cls(
            joins=True,
            shared_names=frozenset([_ANY]),
            given_names=frozenset([_ANY]),
            own_filters=True,
            extremes=True,
            unions=True,
            outer_constants=True,
            grows=True,
            regroups=True,
            regroups_again=True,
        )

    def __or__(self, other: PlanFacts) -> PlanFacts:
        return PlanFacts(*map(operator.or_, _values(self), _values(other)))

    @property
    def any_table(self) -> bool:
        """Whether a filter on a shared name may reach a table that has no column of that name: it gets that name in the
        query, or filters are stacked."""
        given = self.given_names
        return bool(self.shared_names) and (
            self.stacked_filters or _ANY in given | self.shared_names or not given.isdisjoint(self.shared_names)
        )

    def misleads(self, columns: Iterable[str]) -> bool:
        """Whether a filter on a shared name may reach a table with these columns, though it is not for it."""
        return self.any_table or not self.shared_names.isdisjoint(columns)


_values: Callable[[PlanFacts], tuple[Any, ...]] = operator.attrgetter(*(each.name for each in fields(PlanFacts)))


def plan_facts(plan: Any) -> PlanFacts:
    """The facts of an optimized plan. Scalar subqueries are not inputs of a node: see `has_subqueries`."""
    facts = PlanFacts()
    waiting: list[tuple[Any, frozenset[str]]] = [(plan, frozenset())]
    while waiting:
        node, filtered = waiting.pop()
        kind, inputs = _kind(node), node.inputs()
        facts |= _node_facts(node, kind, inputs, filtered)
        filtered = _filtered_below(node, kind, filtered)
        waiting += [(each, filtered) for each in inputs]
    if not facts.joins:
        return facts
    return facts | PlanFacts(
        regroups=_has_path(plan, (_GROUPS, {"Join"}, _GROUPS)),
        regroups_again=_has_path(plan, (_GROUPS, _GROUPS, {"Join"}, _GROUPS)),
    )


def _node_facts(node: Any, kind: str, inputs: list[Any], filtered: frozenset[str]) -> PlanFacts:
    """The facts of one node. Filters above it are on these columns."""
    found = PlanFacts(own_filters=kind in _FILTERING, grows=kind not in _KEEPS_COUNT, unions=kind == "Union")
    if kind == "EmptyRelation":
        return replace(found, empty_parts=True)
    if kind == "Filter":
        return replace(
            found,
            unknown_in=bool(_NEGATED_MARK.search(node.display())),
            empty_parts=not _has_column(node.to_variant().predicate()),
        )
    if kind == "TableScan":
        scan = node.to_variant()
        made = scan.table_name().endswith("()")  # such as generate_series(1, 9)
        return replace(found, grows=made, empty_parts=not all(map(_has_column, scan.filters())))
    if kind == "Projection":
        return replace(
            found,
            unknown_in=bool(_NEGATED_MARK.search(node.display())),
            reused_names=_reuses_names(node.to_variant(), inputs[0]),
            shared_names=_shared_names([node]),
            given_names=_given_names(node, node.to_variant().projections()),
            literals=not all(map(_has_column, node.to_variant().projections())),
        )
    if kind == "Aggregate":
        aggregate = node.to_variant()
        has_subtotals = _has_grouping_sets(aggregate)
        has_equal = has_subtotals and has_equal_keys(node)
        return replace(
            found,
            given_names=_given_names(node, aggregate.group_by_exprs()),
            extremes=_has_extremes(aggregate),
            outer_constants=has_equal or (has_subtotals and _may_have_constants(inputs[0])),
            equal_subtotals=has_equal,
            empty_totals=(has_subtotals or not aggregate.group_by_exprs()) and _is_empty(inputs[0]),
        )
    if kind == "Join":
        join, twice = node.to_variant(), _shared_names(inputs)
        hit = _ANY in filtered or not filtered.isdisjoint(twice)
        stacked = bool(twice) and hit and any(map(_has_upper_filter, inputs))
        return replace(
            found,
            joins=True,
            anti_joins=str(join.join_type()).endswith("Anti"),
            unknown_in=bool(_FILTERED_NOT_IN.search(node.display())),
            outer_constants=any(map(_may_have_constants, _nullable(node))),
            shared_names=twice,
            given_names=frozenset(["mark"] if str(join.join_type()).endswith("Mark") else []),
            stacked_filters=stacked,
            stacked_keys=stacked and str(join.join_constraint()) == "Using",
        )
    return found if kind in _KEEPS_NAMES or kind == "Distinct" else replace(found, given_names=frozenset([_ANY]))


def _given_names(node: Any, expressions: Sequence[Any]) -> frozenset[str]:
    """The names of the columns of a node, without those of these expressions that are columns below with the same
    name. The expressions are its first columns."""
    names = _names(node)
    kept = [_is_named(each, name) for each, name in zip(expressions, names, strict=False)]
    return frozenset(name for at, name in enumerate(names) if at >= len(kept) or not kept[at])


def _is_named(expression: Any, name: str) -> bool:
    if expression.variant_name() == "Alias":
        expression = expression.to_variant().expr()
    return bool(expression.variant_name() == "Column" and expression.to_variant().name() == name)


def _reuses_names(projection: Any, below: Any) -> bool:
    names = {*_names(below)}
    return any(
        each.to_variant().alias() in names and each.to_variant().expr().variant_name() != "Column"
        for each in projection.projections()
        if each.variant_name() == "Alias"
    )


def _is_empty(plan: Any) -> bool:
    """Whether a plan has no rows, or has a condition without columns: it may be FALSE."""
    return any(
        kind == "EmptyRelation" or (kind == "Filter" and not _has_column(each.to_variant().predicate()))
        for each, kind in ((each, _kind(each)) for each in _chain(plan))
    )


def _chain(plan: Any) -> Iterator[Any]:
    """A plan and its inputs, while there is one each."""
    while True:
        yield plan
        if len(inputs := plan.inputs()) != 1:
            return
        plan = inputs[0]


def _has_path(plan: Any, kinds: Sequence[set[str]]) -> bool:
    """Whether nodes of these kinds are on one path from the top to a scan, in this order, with others between them."""
    waiting = [(plan, 0)]
    while waiting:
        node, found = waiting.pop()
        found += _kind(node) in kinds[found]
        if found == len(kinds):
            return True
        waiting += [(each, found) for each in node.inputs()]
    return False


def count_group_keys(plan: Any) -> int:
    """The number of keys of all groups of a plan: after optimization, fewer if some were dropped."""
    keys = 0
    for each, node in nodes(plan):
        if (kind := type(node).__name__) == "Aggregate":
            keys += len(node.group_by_exprs())
        elif kind == "Distinct":
            keys += len(field_names(each.inputs()[0]))
    return keys


def sorts_inside(plan: Any) -> bool:
    """Whether a plan before optimization sorts above an aggregate, other than by the ORDER BY of the whole query."""
    for kind in ("Limit", "Projection", "Sort"):
        plan = plan.inputs()[0] if _kind(plan) == kind else plan
    sort, groups = _SORTS.search(drawn := plan.display_indent()), drawn.rfind("Aggregate:")
    return sort is not None and sort.start() < groups


def _filtered_below(node: Any, kind: str, filtered: frozenset[str]) -> frozenset[str]:
    """The column names in filters above the inputs of a node; a wildcard where names may change."""
    if kind == "Filter":
        predicate = node.to_variant().predicate()
        return filtered | {each.to_variant().name() for each in _columns(predicate)}
    renames = kind == "Projection" and any(each.variant_name() != "Column" for each in node.to_variant().projections())
    return frozenset([_ANY]) if filtered and (renames or kind not in _KEEPS_NAMES) else filtered


def has_subqueries(drawn: str) -> bool:
    """Whether the text of a plan shows scalar subqueries. A literal with this text only adds needless precautions."""
    return "<subquery>" in drawn


def has_correlated_not_in(written: str) -> bool:
    """Whether the text of a plan before optimization has a NOT IN with a subquery that depends on the row.

    >>> lines = ["Filter: NOT t.g IN (<subquery>)", "  Subquery:", "    Filter: u.g = outer_ref(t.g)", "  TableScan: t"]
    >>> has_correlated_not_in("\\n".join(lines)), has_correlated_not_in("\\n".join(lines).replace("outer_ref", "abs"))
    (True, False)
    """
    lines = written.split("\n")
    for number, line in enumerate(lines):
        if "NOT " in line and "(<subquery>)" in line:
            kinds = [found[1] for found in _SUBQUERY.finditer(line)]
            blocks = _subqueries(lines, number)
            if any("outer_ref(" in block for kind, block in zip(kinds, blocks, strict=False) if kind == "IN"):
                return True
    return False


def _subqueries(lines: Sequence[str], number: int) -> Iterator[str]:
    """The subqueries of a line in the text of a plan, each without those inside it."""
    depth = _depth(lines[number]) + 2
    block: list[str] | None = None
    inner = 0  # the depth of a subquery inside
    for line in lines[number + 1 :]:
        if _depth(line) <= depth:
            if block is not None:
                yield "\n".join(block)
            if _depth(line) < depth or line.strip() != "Subquery:":
                return
            block, inner = [], 0
        elif line.strip() == "Subquery:" and not inner:
            inner = _depth(line)
        elif inner and _depth(line) <= inner:
            inner = 0
        if block is not None and not inner:
            block.append(line)
    if block is not None:
        yield "\n".join(block)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


Zeros = Sequence[tuple[str, float]]


def listed_zeros(plan: Any) -> Iterator[tuple[str, float]]:
    """The zeros in IN lists, with the names of their columns. DataFusion 55 compares lists of four and more values by
    their bits, in which -0.0 and 0.0 differ."""
    for each, node in nodes(plan):
        for expression in EXPRESSIONS.get(type(node).__name__, lambda _: ())(node):
            if type(node).__name__ in _HIDING:
                yield from _hidden_zeros(expression.canonical_name(), each.inputs()[0])
            for part in parts_of(expression):
                if part.variant_name() == "InList":
                    left, *items = part.rex_call_operands()
                    if zeros := [value for value in map(_float, items) if value == 0]:
                        yield from ((column.to_variant().name(), _one_of(zeros)) for column in _columns(left))


def sorted_zeros(plan: Any, written: Any) -> Iterator[tuple[str, float]]:
    """The columns that subqueries with ORDER BY and LIMIT sort by, with the zero that all their zeros become, of an
    optimized plan and the plan before. DataFusion 55 orders -0.0 before 0.0, but skips rows as if both were equal."""
    below = [plan]
    if is_sorted(written):  # datafusion/final_sort.py has the first sort
        below = next((each.inputs() for each in _chain(plan) if _kind(each) == "Sort"), below)
    for each, node in itertools.chain.from_iterable(map(nodes, below)):
        if _kind(each) == "Sort" and node.get_fetch_val() is not None:
            for key in EXPRESSIONS["Sort"](node):
                yield from ((column.to_variant().name(), 0.0) for column in _columns(key))


def is_sorted(plan: Any) -> bool:
    """Whether a plan before optimization has an ORDER BY of the whole query."""
    for kind in ("Limit", "Projection"):
        plan = plan.inputs()[0] if _kind(plan) == kind else plan
    return _kind(plan) == "Sort"


def _hidden_zeros(text: str, below: Any) -> Iterator[tuple[str, float]]:
    """The same for the text of an aggregate or a window: DataFusion exposes its arguments, not its FILTER and keys."""
    for found in _LIST.finditer(text):
        if zeros := [float(zero) for zero in _ZERO.findall(found[1])]:
            left = text[: found.start()]
            names = field_names(below)
            # Before the list is a column, or an expression of columns: then it can be any of those before.
            listed = [name for name in names if left.endswith(name)] or [name for name in names if name in left]
            yield from ((name.rpartition(".")[2], _one_of(zeros)) for name in listed)


def _one_of(zeros: Sequence[float]) -> float:
    """0.0 if it is there, else -0.0."""
    return max(zeros, key=lambda zero: math.copysign(1, zero))


def _float(expression: Any) -> float | None:
    if expression.variant_name() != "Literal":
        return None
    scalar = expression.python_value()
    return scalar.as_py() if pa.types.is_floating(scalar.type) else None


def _kind(plan: Any) -> str:
    return type(plan.to_variant()).__name__


def _nullable(join: Any) -> Iterator[Any]:
    """The inputs of a join whose columns it may fill with NULL."""
    kind, (left, right) = str(join.to_variant().join_type()), join.inputs()
    if kind in ("Right", "Full"):
        yield left
    if kind in ("Left", "Full"):
        yield right


def _may_have_constants(plan: Any) -> bool:
    """Whether a condition, a literal, a window or an aggregate of a whole table may fix a column to one value."""
    return not all(_fixes_nothing(node) for _, node in nodes(plan))


def _fixes_nothing(node: Any) -> bool:
    match type(node).__name__:
        case "TableScan":
            return not node.filters()
        case "Aggregate":
            return bool(node.group_by_exprs())
        case "Projection":
            return all(map(_has_column, node.projections()))
        case kind:
            return kind in _FIXES_NOTHING


def _has_grouping_sets(aggregate: Any) -> bool:
    return any(each.variant_name() == "GroupingSet" for each in aggregate.group_by_exprs())


def _has_column(expression: Any) -> bool:
    return any(True for _ in _columns(expression))


def _columns(expression: Any) -> Iterator[Any]:
    return (part for part in parts_of(expression) if part.variant_name() == "Column")


def _has_extremes(aggregate: Any) -> bool:
    names = [each.canonical_name() for each in aggregate.aggregate_exprs()]
    return not aggregate.group_by_exprs() and any(name.startswith(("min(", "max(")) for name in names)


def _shared_names(inputs: list[Any]) -> frozenset[str]:
    """The names of several columns, of one input or of two. DataFusion makes a projection of an outer join whose
    condition is never TRUE, with NULLs that keep their names."""
    counts = Counter(name for each in inputs for name in _names(each))
    return frozenset(name for name, count in counts.items() if count > 1)


def _names(plan: Any) -> list[str]:
    """The column names of a plan, after the last dot. A name with a dot in it may count as shared when it is not."""
    return [name.rpartition(".")[2] for name in field_names(plan)]


def _has_upper_filter(plan: Any) -> bool:
    """Whether a filter below is above more than the scan of a table."""
    return any(_kind(each) == "Filter" and not _is_scan(each.inputs()[0]) for each, _ in nodes(plan))


def _is_scan(plan: Any) -> bool:
    while (kind := _kind(plan)) in ("SubqueryAlias", "Projection", "Filter"):
        plan = plan.inputs()[0]
    return kind == "TableScan"
