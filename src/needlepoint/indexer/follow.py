"""Following the queue: one event after the other, at least once, bad ones set aside."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from needlepoint.errors import StoreError, UsageError
from needlepoint.indexer.build import Failure
from needlepoint.indexer.indexer import Indexer
from needlepoint.tables.events import Event
from needlepoint.tables.publishing import recover
from needlepoint.tables.queue import Message, Queue
from needlepoint.tables.registry import Registry

LEASE = 600.0
EVENTS_AT_ONCE = 64
MOST_ATTEMPTS = 5
PAUSE = 0.5


@dataclass(frozen=True, slots=True)
class Handled:
    """What became of one message: `problem` is empty when all went well."""

    message: Message
    indexed: int
    problem: str = ""

    @property
    def body(self) -> str:
        return self.message.body


def follow(registry: Registry, queue: Queue, indexer: Indexer, *, once: bool) -> Iterator[Handled]:
    """Handle events as they come, for ever, or with `once` until the queue is empty.

    Batches whose publisher died are finished first: their event may never have been sent.
    """
    for table in registry.tables():
        recover(registry, queue, table)
    while True:
        messages = queue.receive(EVENTS_AT_ONCE, LEASE)
        if not messages and once:
            return
        if not messages:
            time.sleep(PAUSE)
        left = {message.id: message for message in messages}
        try:
            for handled in _handle_all(registry, queue, indexer, messages):
                del left[handled.message.id]
                yield handled
        finally:
            for message in left.values():
                queue.release(message)


def _handle_all(registry: Registry, queue: Queue, indexer: Indexer, messages: list[Message]) -> Iterator[Handled]:
    """Events of one table are indexed together, which makes fewer and larger runs."""
    by_table: dict[str, list[tuple[Message, Event]]] = {}
    for message in messages:
        try:
            event = Event.from_json(message.body)
            registry.table(event.table)
        except UsageError as error:
            queue.set_aside(message, str(error))
            yield Handled(message, 0, str(error))
            continue
        by_table.setdefault(event.table, []).append((message, event))
    for name, group in by_table.items():
        yield from _handle_table(registry, queue, indexer, name, group)


def _handle_table(
    registry: Registry, queue: Queue, indexer: Indexer, name: str, group: list[tuple[Message, Event]]
) -> Iterator[Handled]:
    """Batches recorded their files; events that name other files speak of what others wrote, and are for sync."""
    table = registry.table(name)
    known = {file.path for file in registry.files(table)}
    recorded = [each for each in group if known.issuperset(each[1].added) and known.isdisjoint(each[1].removed)]
    foreign = [each for each in group if each not in recorded]
    if recorded:
        paths = frozenset(path for _, event in recorded for path in event.added)
        yield from _settle(queue, recorded, lambda: indexer.catch_up(table, only=paths))
    if foreign:
        yield from _settle(queue, foreign, lambda: _synced(indexer, name))


def _synced(indexer: Indexer, name: str) -> tuple[int, tuple[Failure, ...]]:
    report = indexer.sync(name)
    return report.indexed, report.failures


def _settle(
    queue: Queue, group: list[tuple[Message, Event]], index: Callable[[], tuple[int, tuple[Failure, ...]]]
) -> Iterator[Handled]:
    """Done events are acknowledged, hopeless ones set aside; when the store fails they wait for the next try."""
    patience = MOST_ATTEMPTS
    try:
        indexed, failures = index()
        common = ""
    except UsageError as error:
        indexed, failures, common, patience = 0, (), str(error), 0
    except StoreError as error:
        indexed, failures, common = 0, (), str(error)
    for message, event in group:
        own = [each.reason for each in failures if each.path.endswith(event.added)]
        problem = common or "; ".join(own)
        if not problem:
            queue.acknowledge(message)
        elif own or message.attempts > patience:
            queue.set_aside(message, problem)
        yield Handled(message, indexed, problem)
        indexed = 0
