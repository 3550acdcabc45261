"""Which options of DataFusion a query needs for a correct result (`SessionOptions` explains each)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from needlepoint.predicate import Condition, fold, leaves
from needlepoint.query.attempt import Attempt
from needlepoint.query.datafusion import footers
from needlepoint.query.datafusion.session import SessionOptions
from needlepoint.query.scan.scan_plan import ScanPlan
from needlepoint.query.sql.plan_facts import PlanFacts
from needlepoint.query.sql.request import misleads

WORTH_PARTS = 10 << 20  # bytes; DataFusion does not split smaller files


def session_options(
    scans: Iterable[ScanPlan],
    facts: PlanFacts = PlanFacts(),  # noqa: B008
    attempt: Attempt = Attempt.FIRST,
) -> SessionOptions:
    """The options for a query with these plan facts over these scans."""
    scans = list(scans)
    plain = attempt is not Attempt.FIRST
    # DataFusion's caches by path may be of another version: for any object, for a replaced local file, and for a held
    # older version.
    elsewhere = any(scan.remote or scan.held for scan in scans)
    use = footers.record([] if elsewhere else scans)
    forgetful = elsewhere or use.stale
    misleading = any(map(_misleads, scans))
    return SessionOptions(
        statistics=not (forgetful or plain or misleading or (facts.extremes and any(map(_may_differ, scans)))),
        top_groups=not (misleading or facts.reused_names),
        pushdown=not plain,
        moves=not (attempt.follows_failure or facts.empty_totals) or facts.joins,
        regrouping=not attempt.follows_failure,
        parallel=not attempt.follows_failure,
        own_filters=not (attempt.follows_failure or facts.any_table or facts.unfilterable_keys),
        equijoins=not facts.stacked_filters,
        unique_keys=not facts.regroups,
        fewer_keys=not facts.regroups_again,
        leaves=not facts.joins and all(map(_is_bare_scan, scans)),
        sorted_parts=not (facts.unions or facts.outer_constants),
        footers=not forgetful,
        generation=0 if forgetful else use.generation,
        even=not any(map(_has_embedded, scans)),
    )


def _has_embedded(scan: ScanPlan) -> bool:
    """Whether files that are large enough for several cores have embedded indexes."""
    embedded = any(index.embed for index in scan.snapshot.indexes)
    return embedded and any(file.identity.size > WORTH_PARTS for file in scan.scanned)


def _is_bare_scan(scan: ScanPlan) -> bool:
    """Whether DataFusion reads the files directly, without a projection of ours above them."""
    return not (scan.snapshot.table.partitions or scan.unprunable or scan.paged)


def _may_differ(scan: ScanPlan) -> bool:
    """DataFusion does not compare the statistics of files that have a column in different types, such as INT32 and
    INT64, and takes those of the first file for all. It reads texts as different types, also of one file. Of rows that
    are filtered by a column of the files, it takes no result from statistics."""
    if _is_filtered(scan):
        return False
    schema = scan.snapshot.table.schema
    types = [schema.field(name).type for name in scan.columns]
    return len(scan.scanned) > 1 or any(pa.types.is_string(type) or pa.types.is_binary(type) for type in types)


def _is_filtered(scan: ScanPlan) -> bool:
    """Whether each scan of the table, if there are several, filters rows by a column of the files."""
    partitions = scan.snapshot.table.partitions

    def ask(conditions: Sequence[Condition]) -> Iterator[bool | None]:
        for condition in conditions:
            yield any(leaf.column not in partitions for leaf in leaves(condition)) or None

    return fold(scan.predicate, ask, all_of=any, any_of=all, nothing=lambda: True) is True


def _misleads(scan: ScanPlan) -> bool:
    schema = scan.snapshot.table.schema
    return any(misleads(schema.field(name).type) for name in scan.columns)
