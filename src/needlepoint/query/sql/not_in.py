"""Which columns NOT IN compares.

NOT IN is not TRUE if the value or one in the list is NULL. Where DataFusion knows that neither has a NULL, a simpler
join does. It believes the schemas of files. So a column that has no NULL in any file may be declared so, as far as the
rest of the query cannot suffer: DataFusion 55 does not always see that an outer join, or a scalar subquery without
rows, makes a NULL of it. So the plan before optimization may have lines of these kinds only:

>>> lines = ["Filter: t.a NOT IN (<subquery>)", "  Subquery:", "    TableScan: u", "  TableScan: t"]
>>> makes_no_null("\\n".join(lines))
True
>>> makes_no_null("\\n".join([*lines, "  Left Join: t.a = u.a"])), makes_no_null("Filter: t.a > (<subquery>)")
(False, False)
"""

from __future__ import annotations

import re
from typing import Any

from needlepoint.query.sql.plan_nodes import nodes

_LINE = re.compile(
    r" *(?:(?:Sort|Projection|Aggregate|Filter|SubqueryAlias|TableScan|Subquery|Distinct|Limit):|(?:Inner|Cross) Join:)"
)
_SUBQUERY_AS_VALUE = re.compile(r"(?<!\bIN )(?<!\bEXISTS )\(<subquery>\)")
_GROUPING_SETS = re.compile(r"\b(?:ROLLUP|CUBE|GROUPING SETS) \(")


def makes_no_null(written: str) -> bool:
    """Whether a plan before optimization, as text, has nothing that makes a NULL of a column that has none."""
    return not (_SUBQUERY_AS_VALUE.search(written) or _GROUPING_SETS.search(written)) and all(
        map(_LINE.match, written.split("\n"))
    )


def compared_by_not_in(plan: Any) -> frozenset[str]:
    """The names of the columns that NOT IN compares, in an optimized plan."""
    keys = [
        key
        for each, join in nodes(plan)
        if type(join).__name__ == "Join" and "null_aware" in each.display()
        for pair in join.on()
        for key in pair
    ]
    return frozenset(key.to_variant().name() for key in keys if key.variant_name() == "Column")
