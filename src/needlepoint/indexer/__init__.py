"""Events and directories in, complete indexes out.

indexer         sync, look and catch up
event_consumer  handles the events of the queue
plan            what indexes lack, and the tasks that build it
run             runs tasks in a pool
pools           this process, or processes of this machine
build           what one task makes: cards, runs and payloads
file_source     the columns of one file
payloads        payloads of one file
progress        how far a build is
sorted_runs     runs of a large build, kept until they are merged
range_merge     merges overlapping runs into disjoint ones
commit          makes visible what tasks made
sweep           removes what indexes keep of files that are gone
card_sweep      removes cards of files that are gone, and merges small packs
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from needlepoint.on_demand import on_demand

if TYPE_CHECKING:
    from needlepoint.indexer.card_sweep import sweep_cards
    from needlepoint.indexer.event_consumer import EventResult, follow
    from needlepoint.indexer.indexer import Indexer, SyncReport
    from needlepoint.indexer.payloads import strip_index
    from needlepoint.indexer.plan import BuildRequest
    from needlepoint.indexer.pools import Pool
    from needlepoint.indexer.progress import Progress, no_progress
    from needlepoint.indexer.sweep import copy_entries, count_entries, sweep_entries, sweep_packs

__all__ = [
    "BuildRequest",
    "EventResult",
    "Indexer",
    "Pool",
    "Progress",
    "SyncReport",
    "copy_entries",
    "count_entries",
    "follow",
    "no_progress",
    "strip_index",
    "sweep_cards",
    "sweep_entries",
    "sweep_packs",
]

__getattr__ = on_demand(
    __name__,
    {
        "card_sweep": "sweep_cards",
        "event_consumer": "EventResult follow",
        "indexer": "Indexer SyncReport",
        "payloads": "strip_index",
        "plan": "BuildRequest",
        "pools": "Pool",
        "progress": "Progress no_progress",
        "sweep": "copy_entries count_entries sweep_entries sweep_packs",
    },
)
