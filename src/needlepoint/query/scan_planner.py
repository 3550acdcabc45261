"""What to read of a table: pruning steps rule out files and find rows, then the cost model decides how each file is
read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from needlepoint.access import AccessPlan, Rows
from needlepoint.predicate import And, Constant, In, Predicate, leaves
from needlepoint.query.cache.table_state import TableState
from needlepoint.query.datafusion.filter_choice import first_choice
from needlepoint.query.pruning.context import PruningContext
from needlepoint.query.pruning.result import PruningResult
from needlepoint.query.pruning.steps import prune
from needlepoint.query.scan.access_choice import choose_access
from needlepoint.query.scan.cost_model import NativeFilter, row_seconds
from needlepoint.query.scan.held_files import hold
from needlepoint.query.scan.scan_plan import ScanPlan
from needlepoint.query.sql.request import Request

if TYPE_CHECKING:
    from needlepoint.query.engine import Engine

_ALL = Constant(True)
_NO_ROWS: Mapping[int, Rows] = {}


class ScanPlanner:
    """Plans scans with the caches, costs and key stores of an engine. `access` and `range_limit` are the settings of
    these names."""

    def __init__(self, engine: Engine, access: str, range_limit: int) -> None:
        self._engine = engine
        self._access = access
        self._range_limit = range_limit

    def plan(
        self,
        state: TableState,
        request: Request,
        use_indexes: bool | str = True,
        pushdown: bool = True,
        positions: Sequence[int] | None = None,
        joined: Predicate = _ALL,
        also: Mapping[int, Rows] = _NO_ROWS,
        is_lookup: bool = False,
        access: str = "",
    ) -> ScanPlan:
        """Plan what to read of a table, or of some of its files. `pushdown`: DataFusion filters while it scans. A join
        makes the rows superfluous that the predicate `joined` excludes. Of the files `also`, only these rows are
        read. A lookup (`is_lookup`) is answered without DataFusion, if no file is scanned. `access` overrides the
        setting."""
        engine, snapshot = self._engine, state.snapshot
        predicate = request.predicate if joined is _ALL else And((request.predicate, joined))
        only = use_indexes if isinstance(use_indexes, str) else None
        access = access or (self._access if only is None else "pages")
        costs = engine.costs.of(snapshot.table.location)
        if joined is not _ALL:
            costs = replace(costs, scan_value=0.0, scan_list=0.0)  # a join finds the keys in a hash table
        if is_lookup:
            costs = replace(costs, scan=costs.scan + costs.plan)  # without a scan it needs no DataFusion
        whole = AccessPlan.scan_all(len(snapshot.files))
        if positions is not None:
            whole = whole.without(~np.isin(np.arange(len(snapshot.files)), positions))
        context = PruningContext(
            state,
            predicate,
            request.columns,
            costs,
            lambda index: engine.key_store(index, snapshot),
            engine.cards,
            engine.file_indexes,
            self._range_limit,
            access == "pages",
            only,
            request.limit,
        )
        pruning = prune(whole, context) if use_indexes else PruningResult(whole)
        unprunable = request.unprunable | (request.columns & snapshot.table.mixed)
        scan = ScanPlan(
            snapshot,
            request.columns,
            request.predicate,
            pruning.access.also(also),
            costs,
            unprunable,
            request.zeros,
            constants=request.together.isdisjoint(snapshot.table.partitions),
            pruning=pruning,
            limit=request.limit,
        )
        return self.with_access(scan, predicate, pushdown, access)

    def with_access(self, scan: ScanPlan, predicate: Predicate, pushdown: bool = True, access: str = "") -> ScanPlan:
        """The plan with how each file is read."""
        asked = frozenset(leaf.column for leaf in leaves(predicate)) - scan.unprunable
        conditions = list(leaves(scan.predicate))
        values = max((len(leaf.values) for leaf in conditions if isinstance(leaf, In)), default=0)
        late = first_choice([scan], joins=predicate is not scan.predicate)
        native = NativeFilter(pushdown, asked, values, late, row_seconds(conditions, scan.costs))
        engine, access = self._engine, access or self._access
        return hold(choose_access(scan, engine.cards, native, access, engine.caches, engine.accesses))
