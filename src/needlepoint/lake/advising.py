"""Advice for a table, from its files, its indexes and its past queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from needlepoint.advisor import REWRITES, IndexStatistics, TableAdvice, advise, collect_statistics, conditions, today
from needlepoint.lake.status import table_status
from needlepoint.tables.formats import is_external

if TYPE_CHECKING:
    from needlepoint.lake.lake import Lake


def advise_table(lake: Lake, table: str) -> TableAdvice:
    found = lake.registry.tables.get(table)
    history = lake.history.shapes(found.id)
    compared = [column for asked in history for kind, column in conditions(asked.shape) if kind in ("eq", "in")]
    indexes = [
        IndexStatistics(index.name, index.kind, tuple(index.column.split(", ")), index.bytes, index.files)
        for index in table_status(lake, found).indexes
    ]
    costs = lake.engine.costs.of(found.location)
    state, limit = lake.engine.state(table), lake.settings.range_limit
    facts = collect_statistics(state, lake.engine.cards, costs, limit, indexes, list(dict.fromkeys(compared)))
    advice = advise(facts, history, lake.history.index_usage(found.id), today())
    if is_external(found.format):  # Needlepoint does not rewrite its files
        advice = [each for each in advice if each.what not in REWRITES]
    return TableAdvice(table, sum(a.times for a in history), lake.history.since(found.id), tuple(advice))
