"""Move the registry of a lake between SQLite, in its store, and PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from needlepoint.errors import NeedlepointError, UsageError
from needlepoint.indexes import keeps_entries, store_of
from needlepoint.lake.lake import Lake
from needlepoint.lake.locations import lake_root
from needlepoint.lake.node import shared_packs
from needlepoint.settings import Settings
from needlepoint.stores import claim, store_directory
from needlepoint.tables import Index
from needlepoint.tables.published import PublishedPlace, StoreState
from needlepoint.tables.registry import Registry
from needlepoint.tables.registry import move_registry as move_rows

SQLITE = "sqlite"
"""The name of the registry in the lake's store, beside URLs."""
SAMPLES = 20


@dataclass(frozen=True, slots=True)
class MovedRegistry:
    """Where a registry is now, and where it was, without passwords; how many rows were compared, and answers of indexes
    with those of scans; and what differs. `setting` is for the setting `registry`. `local` indexes are in the store of
    this machine only. It was `withdrawn` if readers without a store could read it before."""

    place: str
    before: str
    setting: str
    rows: int
    checks: int
    problems: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    withdrawn: bool = False


def is_registry(name: str) -> bool:
    """Whether a store that a user names can only be a registry."""
    return name == SQLITE


def move_registry(root: str | Path, source: str, target: str, settings: Settings) -> MovedRegistry:
    """`source` and `target` are `sqlite` or URLs of PostgreSQL; a password can be that of the setting `registry`."""
    place = lake_root(root)
    store = store_directory(place, settings.store)
    old, new = _url(source, settings.registry), _url(target, settings.registry)
    if _shown(old) == _shown(new):
        raise UsageError("both registries are the same.", hint="Name another one to move to.")
    if not old and not (store / "registry.db").exists():
        raise UsageError(f"there is no registry in {store}.", hint="--lake or NEEDLE_LAKE says where the lake is.")
    claim(store, place, make=True)
    with (
        closing(Registry(store, place, url=old, create=False, for_move=True)) as here,
        closing(Registry(store, place, url=new, for_move=True)) as there,
    ):
        rows = sum(move_rows(here, there).values())
        identity = there.identity()
        moved = MovedRegistry(there.database.describe()[1], here.database.describe()[1], _shown(new), rows, 0)
    if not new:
        StoreState.forget_others(store, identity)
        return _verified(moved, root, replace(settings, registry=new))
    withdrawn = _withdraw(place, store, identity)
    moved = _verified(moved, root, replace(settings, registry=new))
    # A process that was publishing for the first time may have ended that meanwhile.
    return replace(moved, withdrawn=_withdraw(place, store, identity) or withdrawn)


def _withdraw(root: Path | str, store: Path, identity: str) -> bool:
    """Whether there was something to withdraw. The store may have published under another id."""
    place = PublishedPlace(root)
    return place.withdraw(identity) or place.withdraw(StoreState.read(store, identity).registry)


def _verified(moved: MovedRegistry, root: str | Path, settings: Settings) -> MovedRegistry:
    """Open the lake with its new registry, and verify all tables. The move is done, whatever is found."""
    try:
        with Lake(root, create=False, settings=settings) as lake:
            indexes = lake.registry.indexes.all()
            _take_packs(lake, indexes)
            has_all_packs = lake.index_stores.has_all_packs
            reports = [lake.verify(name, SAMPLES) for name in lake.tables()]
    except NeedlepointError as error:
        return replace(moved, problems=(f"the lake could not be verified: {error}",))
    differences = [check for report in reports for check in report.differences]
    wrong = [f"index {check.index} differs from a scan for {check.condition}" for check in differences]
    damaged = [f"index {each.index}: {each.reason}" for report in reports for each in report.indexes]
    cards = [f"table {report.table}: {reason}" for report in reports for reason in report.damaged]
    shared = {each.name for each in indexes if (store_of(each) if keeps_entries(each.kind) else has_all_packs)}
    local = [each.name for each in indexes if not each.embed and each.name not in shared]
    return replace(
        moved,
        checks=sum(len(report.checks) for report in reports),
        problems=(*wrong, *damaged, *cards),
        local=tuple(local) if settings.registry else (),
    )


def _take_packs(lake: Lake, indexes: Sequence[Index]) -> None:
    """Packs of indexes go where the registry went: into the bucket that machines share, or out of it."""
    shared = shared_packs(lake.root, lake.store, lake.registry, None) if isinstance(lake.root, str) else None
    for index in indexes:
        if keeps_entries(index.kind) or shared is None:
            continue
        if lake.settings.registry:
            lake.index_stores.share(index)
        else:
            lake.index_stores.take_packs(index, shared.of(index.id))


def _url(name: str, setting: str) -> str:
    """Empty for SQLite. With the password of the setting if that is the same database."""
    if name == SQLITE:
        return ""
    if not name.startswith(("postgresql://", "postgres://")):
        raise UsageError(
            f"'{name.partition(':')[0]}' has no registry.", hint="Name `sqlite`, or postgresql://user@host/database."
        )
    return setting if setting and _shown(setting) == _shown(name) else name


def _shown(url: str) -> str:
    from needlepoint.stores.postgres import parse_postgres

    return parse_postgres(url).shown if url else ""
