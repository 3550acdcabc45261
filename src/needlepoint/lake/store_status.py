"""The stores of a lake: where each is, its size, whether it answers, and how far it is behind.

Servers are asked at the same time, and waited for `PATIENCE` seconds: one that is away must not keep `status` waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from needlepoint.errors import NeedlepointError, StoreError
from needlepoint.indexes import IN_LAKE_STORE, LEAF_FILES, keeps_entries, store_of
from needlepoint.stores import IN_LAKE
from needlepoint.tables.published import FORMAT as PUBLISHED_FORMAT

if TYPE_CHECKING:
    from needlepoint.lake.lake import Lake
    from needlepoint.lake.status import IndexStatus, QueueStatus, RegistryStatus, TableStatus
    from needlepoint.tables.published import PublishState

PATIENCE = 3.0
_NAMES = {IN_LAKE_STORE: "rocksdb", LEAF_FILES: LEAF_FILES}

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """A place in which a lake keeps something, without secrets. `part` is registry, keys, packs, cards, queue or
    published. `bytes` and `format` are None where they are not known, and `problem` says why it cannot be used now.
    `name` is what `store copy` calls keys on this machine and in the lake: rocksdb or lake:; a server is its place. It
    is `behind` by so many of a `unit`: files that an index does not cover, files without a card, events that wait,
    changes that are not published. The oldest event, or the last publication, is `seconds` old, if that is known."""

    part: str
    place: str
    bytes: int | None
    format: int | None = None
    problem: str = ""
    behind: int = 0
    unit: str = "file"
    seconds: float | None = None
    name: str = ""


def answers(asked: Mapping[str, Callable[[], Answer]]) -> dict[str, Answer | NeedlepointError | None]:
    """What each returns, its error, or None if it does not answer in time."""
    found: dict[str, Answer | NeedlepointError | None] = dict.fromkeys(asked)

    def ask(name: str) -> None:
        try:
            found[name] = asked[name]()
        except NeedlepointError as error:
            found[name] = error
        except Exception as error:  # also of a lake that was closed meanwhile
            found[name] = StoreError(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in asked]
    deadline = time.monotonic() + PATIENCE
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(found)


def no_answer(what: str) -> str:
    return f"{what} does not answer within {PATIENCE:.0f} seconds."


def silent_stores(lake: Lake) -> dict[str, str]:
    """The servers with keys that do not answer in time, by URL, and what to say of them."""
    used = {store_of(index): index for index in lake.registry.indexes.all() if keeps_entries(index.kind)}
    asked = {url: _problem_of(lake, url) for url in used if "://" in url}
    return {url: no_answer(f"the key store {url}") for url, found in answers(asked).items() if found is None}


def _problem_of(lake: Lake, url: str) -> Callable[[], str]:
    index = next(each for each in lake.registry.indexes.all() if store_of(each) == url)
    return lambda: lake.index_stores.problem(index)


def store_statuses(
    lake: Lake,
    registry: RegistryStatus,
    tables: Sequence[TableStatus],
    queue: QueueStatus,
    published: PublishState | None,
) -> tuple[StoreStatus, ...]:
    cards = lake.registry.cards
    lost = "" if lake.node is not None else next(iter(cards.lost().values()), "")
    place = cards.packs.where("").rstrip("/").removesuffix("/.")
    return (
        StoreStatus("registry", registry.place, registry.bytes, registry.format),
        *_of_indexes(lake, tables),
        StoreStatus("cards", place, cards.size()[1], None, lost, sum(table.without_card for table in tables)),
        StoreStatus(
            "queue", queue.place, queue.bytes, None, queue.problem, queue.waiting, "event", queue.oldest_seconds
        ),
        *(() if published is None else (_of_published(lake, published),)),
    )


def _of_indexes(lake: Lake, tables: Sequence[TableStatus]) -> Iterator[StoreStatus]:
    """One for each place of keys, and one for all packs of other indexes. What is inside data files is no store."""
    grouped: dict[str, list[tuple[TableStatus, IndexStatus]]] = {}
    for table in tables:
        for index in table.indexes:
            if keeps_entries(index.kind) or not index.embedded:
                grouped.setdefault(index.store if keeps_entries(index.kind) else "packs", []).append((table, index))
    for store in sorted(grouped):
        own = grouped[store]
        local = f"{lake.root}/{IN_LAKE}/keys" if store == LEAF_FILES else str(lake.store / "indexes")
        yield StoreStatus(
            "packs" if store == "packs" else "keys",
            store if "://" in store else local,
            sum(index.bytes for _, index in own),
            lake.index_stores.format_of(store) if store != "packs" else None,
            next((index.problem for _, index in own if index.problem), ""),
            sum(max(0, table.files - index.files) for table, index in own),
            name=_NAMES.get(store, ""),
        )


def _of_published(lake: Lake, state: PublishState) -> StoreStatus:
    age = max(0.0, time.time() - state.published_at) if state.lag and state.published_at else None
    size, problem = None, state.problem
    if lake.publisher is not None:
        place = lake.publisher.place
        found = answers({"": lake.publisher.published_bytes})[""]
        if isinstance(found, int):
            size = found
        else:
            problem = problem or (no_answer(place.base) if found is None else str(found))
    else:
        assert lake.node is not None
        place, size = lake.node.follower.place, lake.node.follower.manifest.size
    return StoreStatus(
        "published", place.path("registry"), size, PUBLISHED_FORMAT, problem, max(0, state.lag), "change", age
    )
