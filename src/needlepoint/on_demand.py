"""Rooms whose names are imported when they are used: a command does not import what it does not run.

    if TYPE_CHECKING:
        from needlepoint.query.engine import Engine

    __getattr__ = on_demand(__name__, {"engine": "Engine"})

`from needlepoint.query import Engine` then imports `needlepoint.query.engine`, and nothing else of the room.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def on_demand(room: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a room, given the names of each of its modules."""
    owners = {name: module for module, names in modules.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in owners:
            raise AttributeError(f"module '{room}' has no attribute '{name}'")
        found = getattr(importlib.import_module(f"{room}.{owners[name]}"), name)
        setattr(sys.modules[room], name, found)
        return found

    return find
