"""Following the queue: one event after the other, at least once, bad ones set aside."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from needlepoint.errors import StoreError, UnknownName, UsageError
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

    body: str
    indexed: int
    problem: str = ""


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
        yield from _handle_all(registry, queue, indexer, messages)


def _handle_all(registry: Registry, queue: Queue, indexer: Indexer, messages: list[Message]) -> Iterator[Handled]:
    """Events of one table are indexed together, which makes fewer and larger runs."""
    by_table: dict[str, list[tuple[Message, Event]]] = {}
    for message in messages:
        try:
            event = Event.from_json(message.body)
            registry.table(event.table)
        except UsageError as error:
            queue.set_aside(message, str(error))
            yield Handled(message.body, 0, str(error))
            continue
        by_table.setdefault(event.table, []).append((message, event))
    for name, group in by_table.items():
        yield from _handle_table(registry, queue, indexer, name, group)


def _handle_table(
    registry: Registry, queue: Queue, indexer: Indexer, name: str, group: list[tuple[Message, Event]]
) -> Iterator[Handled]:
    try:
        indexed, problem = index_events(registry, indexer, name, [event for _, event in group])
    except (StoreError, UsageError) as error:
        indexed, problem = 0, str(error)
    for message, _ in group:
        if not problem:
            queue.acknowledge(message)
        elif message.attempts >= MOST_ATTEMPTS or len(group) == 1:
            queue.set_aside(message, problem)
        # Otherwise the lease runs out and the message comes again, perhaps in better company.
        yield Handled(message.body, indexed, problem)
        indexed = 0


def index_events(registry: Registry, indexer: Indexer, name: str, events: list[Event]) -> tuple[int, str]:
    """Files that a batch recorded are indexed; names the registry lacks were written by others: then sync."""
    try:
        table = registry.table(name)
    except UnknownName as error:
        return 0, str(error)
    known = {file.path for file in registry.files(table)}
    added = frozenset(path for event in events for path in event.added)
    removed = frozenset(path for event in events for path in event.removed)
    if added <= known and not removed & known:
        indexed, failures = indexer.catch_up(table, only=added)
        return indexed, "; ".join(failure.reason for failure in failures)
    report = indexer.sync(name)
    concerned = [f.reason for f in report.failures if any(f.path.endswith(path) for path in added)]
    return report.indexed, "; ".join(concerned)
