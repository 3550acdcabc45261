"""The composition root: the only place that chooses backends.

lake         a lake with its registry, queue, stores, indexer and engine put together
declaring    tables and indexes, checked before they are declared
writing      what a batch, a compaction or a retrofit needs to know of its table
deleting     rows, files and partitions
sweeping     what nothing refers to any more
advising     which index or order would pay
status       what there is
"""

from needlepoint.lake.lake import Lake, LakeTable

__all__ = ["Lake", "LakeTable"]
