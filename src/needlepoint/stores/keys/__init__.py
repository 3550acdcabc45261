"""Key stores in servers: PostgreSQL, MySQL or MariaDB, Redis.

block_store   the key store: sorted parts of blocks, whatever the server
blocks        the bytes of a block
part_writer   entries to blocks
part_merge    several parts as one
run_file      runs on their way to a server
space         what a server must do
sql_space     that, in tables
postgres      PostgreSQL's side of it
mysql         MySQL's
redis         that, in Redis
connections   connections to a database, shared by threads
urls          where a store is, without its password
servers       opens a server by its URL
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from needlepoint.stores.keys.urls import check_url, has_secrets, place_of, without_secrets

if TYPE_CHECKING:
    from needlepoint.stores.keys.block_store import BlockKeyStore
    from needlepoint.stores.keys.run_file import write_run_file
    from needlepoint.stores.keys.servers import key_server
    from needlepoint.stores.keys.space import FORMAT, BlockSpace, KeyServer

# Most lakes have no such store, and need not wait for these when they start.
_LATER = {
    "FORMAT": "space",
    "BlockKeyStore": "block_store",
    "BlockSpace": "space",
    "KeyServer": "space",
    "key_server": "servers",
    "write_run_file": "run_file",
}

__all__ = [
    "FORMAT",
    "BlockKeyStore",
    "BlockSpace",
    "KeyServer",
    "check_url",
    "has_secrets",
    "key_server",
    "place_of",
    "without_secrets",
    "write_run_file",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
