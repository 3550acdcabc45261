"""Index kinds by name: built in, or from a package with an entry point of the group `needlepoint.indexes`.

    [project.entry-points."needlepoint.indexes"]
    geogrid = "needlepoint_geogrid:GeogridKind"

A kind is imported when it is first used; `names` imports none. docs/custom-index.md shows a complete one.
"""

from __future__ import annotations

import functools
import importlib
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from needlepoint.errors import NeedlepointError, UnknownName, UsageError
from needlepoint.indexes.base import EntryKind, IndexKind, PayloadKind

GROUP = "needlepoint.indexes"
BUILT_IN = {
    "bloom": "needlepoint.indexes.bloom.kind:BloomKind",
    "distinct": "needlepoint.indexes.distinct.kind:DistinctKind",
    "key": "needlepoint.indexes.key.kind:KeyKind",
    "text": "needlepoint.indexes.text.kind:TextKind",
}
ENTRY_KINDS = frozenset({"key"})
_PARTS = ("version", "check", "build", "open")


def names() -> list[str]:
    """All kinds, sorted.

    >>> names()[:2]
    ['bloom', 'distinct']
    """
    return sorted({*BUILT_IN, *(found.name for found in entry_points(group=GROUP))})


@functools.cache
def kind(name: str) -> IndexKind:
    """The kind of this name; UnknownName when there is none, UsageError when its package fails.

    >>> kind("distinct").version
    2
    """
    if name in BUILT_IN:
        # An entry point of the same name does not replace it.
        module, attribute = BUILT_IN[name].split(":")
        return cast(IndexKind, getattr(_imported(name, module), attribute)())
    found = tuple(entry_points(group=GROUP, name=name))
    if not found:
        raise UnknownName("index kind", name, names())
    if len({entry.value for entry in found}) > 1:
        packages = ", ".join(sorted(_package(entry) for entry in found))
        raise UsageError(f"several packages have an index kind '{name}': {packages}.", hint="Uninstall all but one.")
    return _loaded(found[0])


def is_current(name: str, version: int) -> bool:
    """Whether payloads of a version are used as they are; others are built again. In `as_good`, a kind may name earlier
    versions that answer as well as its own.

    >>> is_current("text", 2), is_current("text", 1)
    (True, False)
    """
    found = kind(name)
    return version == found.version or version in getattr(found, "as_good", ())


def keeps_entries(name: str) -> bool:
    """Whether a kind is an EntryKind; known without importing it, since the package of another kind may be missing."""
    return name in ENTRY_KINDS


def entry_kind(name: str) -> EntryKind:
    return cast(EntryKind, kind(name))


def payload_kind(name: str) -> PayloadKind:
    return cast(PayloadKind, kind(name))


def _imported(name: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"index kind '{name}' cannot be used: {error}.",
            hint=f"Install it with `pip install 'needlepoint[{name}]'`.",
        ) from error


def _loaded(entry: EntryPoint) -> IndexKind:
    try:
        made: Any = entry.load()
        made = made() if isinstance(made, type) else made
    except NeedlepointError:
        raise
    except Exception as error:  # a package can raise anything when it is imported
        raise _unusable(entry, f"{type(error).__name__}: {error}") from error
    missing = [part for part in _PARTS if not hasattr(made, part)]
    if missing:
        raise _unusable(entry, f"{entry.value} has no {' and no '.join(missing)}")
    if getattr(made, "name", None) != entry.name:
        raise _unusable(entry, f"{entry.value} calls itself {getattr(made, 'name', None)!r}")
    return cast(IndexKind, made)


def _unusable(entry: EntryPoint, problem: str) -> UsageError:
    return UsageError(
        f"index kind '{entry.name}' of {_package(entry)} cannot be used: {problem}.",
        hint="Repair or uninstall the package. Tables without such an index are not affected.",
    )


def _package(entry: EntryPoint) -> str:
    return f"package {entry.dist.name}" if entry.dist is not None else entry.value
