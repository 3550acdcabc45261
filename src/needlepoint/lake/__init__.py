"""The composition root: the only place that chooses backends.

lake          a lake with its registry, queue, stores, indexer and engine put together
node          a reader without a store
locations     where a lake and its tables are
ddl           tables and indexes, checked before they are declared
statements    queries, EXPLAIN, and CREATE, DROP and SHOW
batch_writer  batches of files, from staging to publishing
upkeep/       stores are moved, repaired and swept
advising      which index or order would pay
calibrating   what reads cost on this machine
names         what a query can name, for completion
status        what there is
store_status  the stores of a lake: size, health and lag
dbapi         DB-API 2.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from needlepoint.on_demand import on_demand

if TYPE_CHECKING:
    from needlepoint.lake.batch_writer import BatchWriter
    from needlepoint.lake.calibrating import Calibration, measure
    from needlepoint.lake.dbapi import Connection, connect
    from needlepoint.lake.ddl import all_of_directory, build_index
    from needlepoint.lake.lake import Lake, LakeTable, lake_opener, maintenance_context
    from needlepoint.lake.names import names_in_sql
    from needlepoint.lake.node import has_store
    from needlepoint.lake.status import Status, TableStatus
    from needlepoint.lake.store_status import StoreStatus
    from needlepoint.lake.upkeep.registry_move import MovedRegistry, is_registry, move_registry
    from needlepoint.lake.upkeep.repair import Repair
    from needlepoint.query import Limits

__all__ = [
    "BatchWriter",
    "Calibration",
    "Connection",
    "Lake",
    "LakeTable",
    "Limits",
    "MovedRegistry",
    "Repair",
    "Status",
    "StoreStatus",
    "TableStatus",
    "all_of_directory",
    "build_index",
    "connect",
    "has_store",
    "is_registry",
    "lake_opener",
    "maintenance_context",
    "measure",
    "move_registry",
    "names_in_sql",
]

__getattr__ = on_demand(
    __name__,
    {
        "batch_writer": "BatchWriter",
        "calibrating": "Calibration measure",
        "dbapi": "Connection connect",
        "ddl": "all_of_directory build_index",
        "lake": "Lake LakeTable Limits lake_opener maintenance_context",
        "names": "names_in_sql",
        "node": "has_store",
        "status": "Status TableStatus",
        "store_status": "StoreStatus",
        "upkeep.registry_move": "MovedRegistry is_registry move_registry",
        "upkeep.repair": "Repair",
    },
)
