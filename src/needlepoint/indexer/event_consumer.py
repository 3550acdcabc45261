"""Consume the queue: every event at least once; events that cannot be handled are set aside.

A batch has recorded its files, so they are indexed. In a bucket, the files that an event or a notification names are
looked at one by one, without listing. In a directory, sync finds files that are not recorded.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from needlepoint.errors import NeedlepointError, StoreError, UsageError
from needlepoint.indexer.indexer import Indexer, SyncReport
from needlepoint.indexer.plan import BuildRequest
from needlepoint.indexer.progress import repeatedly
from needlepoint.objects import identify, is_url
from needlepoint.queues import Message, ObjectNotification, Queue, parse_message
from needlepoint.tables import Table, belongs, recover
from needlepoint.tables.formats import is_external, tells_of_change
from needlepoint.tables.registry import Registry

LEASE = 600.0
RENEWAL = LEASE / 3
EVENTS_AT_ONCE = 64
MOST_ATTEMPTS = 5
PAUSE = 0.5


@dataclass(frozen=True, slots=True)
class EventResult:
    """The outcome of one message: `problem` is empty on success. `passed_over` objects belong to no table."""

    message: Message
    what: str
    indexed: int = 0
    passed_over: int = 0
    problem: str = ""

    @property
    def body(self) -> str:
        return self.message.body


@dataclass(frozen=True, slots=True)
class _TablePaths:
    """Paths of one table."""

    added: tuple[str, ...]
    removed: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        return (*self.added, *self.removed)


@dataclass(slots=True)
class _MessageState:
    """A message in progress: the paths it names of each table that is left to do, and what happened so far."""

    message: Message
    what: str
    passed_over: int = 0
    left: dict[str, _TablePaths] = field(default_factory=dict)
    indexed: int = 0
    problems: list[str] = field(default_factory=list)
    hopeless: bool = False


def follow(registry: Registry, queue: Queue, indexer: Indexer, *, once: bool) -> Iterator[EventResult]:
    """Handle events as they come, forever, or with `once` until the queue is empty.

    Batches whose publisher died are finished first: their event may never have been sent.
    """
    for table in registry.tables.all():
        recover(registry, queue, table)
    while True:
        registry.sequence()  # StoreError if the registry was moved: then events are for others
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
            with contextlib.suppress(StoreError):  # the leases expire
                for message in left.values():
                    queue.release(message)


def _handle_all(registry: Registry, queue: Queue, indexer: Indexer, messages: list[Message]) -> Iterator[EventResult]:
    """Index the files of one table together, which makes fewer and larger runs. A message that names files of several
    tables is done with the last of them."""
    works: list[_MessageState] = []
    for message in messages:
        work = _understand(registry, message)
        works.append(work)
        if not work.left:
            yield _settle(queue, work)
    for name in dict.fromkeys(name for work in works for name in work.left):
        group = [work for work in works if name in work.left]
        with _renewed(queue, [work.message for work in works if work.left]):
            _handle_table(registry, indexer, name, group)
        for work in group:
            del work.left[name]
            if not work.left:
                yield _settle(queue, work)


def _renewed(queue: Queue, messages: Sequence[Message]) -> AbstractContextManager[None]:
    """Renew leases while something is built, however long that takes: no other process begins the same meanwhile. When
    this one dies, its leases end."""

    def renew() -> None:
        for message in messages:
            with contextlib.suppress(NeedlepointError):  # tried again before the lease ends
                queue.renew(message, LEASE)

    return repeatedly(renew, RENEWAL)


def _understand(registry: Registry, message: Message) -> _MessageState:
    work = _MessageState(message, f"event {message.body[:60]!r}")
    try:
        event = parse_message(message.body)
        work.what = str(event)
        if isinstance(event, ObjectNotification):
            work.left, work.passed_over = _by_table(registry.tables.all(), event.objects)
        else:
            work.left[registry.tables.get(event.table).name] = _TablePaths(event.added, event.removed)
    except UsageError as error:
        work.problems, work.hopeless = [str(error)], True
    return work


def _by_table(tables: Sequence[Table], objects: Sequence[str]) -> tuple[dict[str, _TablePaths], int]:
    """Which objects are files of which tables, and how many are of none. An object belongs to every table that would
    list it."""
    found: dict[str, list[str]] = {}
    passed_over = 0
    for url in objects:
        mine = [
            (table.name, path)
            for table in tables
            if url.startswith(f"{table.location}/") and _concerns(table, path := url[len(table.location) + 1 :])
        ]
        passed_over += not mine
        for name, path in mine:
            found.setdefault(name, []).append(path)
    return {name: _TablePaths(tuple(paths)) for name, paths in found.items()}, passed_over


def _concerns(table: Table, path: str) -> bool:
    return tells_of_change(table.format, path) if is_external(table.format) else belongs(path)


def _handle_table(registry: Registry, indexer: Indexer, name: str, group: list[_MessageState]) -> None:
    try:
        table = registry.tables.get(name)
    except UsageError as error:  # it was just dropped
        _refuse(group, error)
        return
    if is_url(table.location):
        _attempt(table, group, lambda some: indexer.look(name, _paths(name, some)))
        return
    known = frozenset(registry.files.paths(table))
    recorded: list[_MessageState] = []
    others: list[_MessageState] = []
    for work in group:
        named = work.left[name]
        is_recorded = known.issuperset(named.added) and known.isdisjoint(named.removed)
        if is_recorded and work.message.attempts > 1:  # a file that was replaced would fail again
            _attempt(table, [work], lambda some: indexer.look(name, _paths(name, some)))
        else:
            (recorded if is_recorded else others).append(work)
    if recorded:
        _attempt(table, recorded, lambda some: _caught_up(indexer, table, _paths(name, some)))
    if others:
        _attempt(table, others, lambda _: indexer.sync(name))


def _paths(name: str, group: Sequence[_MessageState]) -> frozenset[str]:
    return frozenset(path for work in group for path in work.left[name].paths)


def _caught_up(indexer: Indexer, table: Table, paths: frozenset[str]) -> SyncReport:
    built = indexer.catch_up(table, BuildRequest(paths))
    return SyncReport(table.name, indexed=built.indexed, failures=built.failures)


def _attempt(table: Table, group: list[_MessageState], index: Callable[[list[_MessageState]], SyncReport]) -> None:
    """Index what a group of messages names, and record the problems of each message."""
    try:
        report = index(group)
    except UsageError as error:
        if len(group) > 1 and is_url(table.location):
            # Try each message alone: a file that does not fit the table must not block the others.
            for work in group:
                _attempt(table, [work], index)
        else:
            _refuse(group, error)
        return
    except (StoreError, OSError) as error:
        for work in group:
            work.problems.append(str(error))
        return
    for work in group:
        mine = {f"{table.location}/{path}" for path in work.left[table.name].paths}
        own = [each for each in report.failures if each.path in mine and not (each.passing and _is_gone(each.path))]
        work.problems += [each.reason for each in (*own, *report.refused) if each.path in mine]
        work.hopeless |= not all(each.passing for each in own)
    group[0].indexed += report.indexed


def _is_gone(path: str) -> bool:
    """Whether a file was compacted or deleted: then there is nothing left to index."""
    try:
        identify(path)
    except FileNotFoundError:
        return True
    except (OSError, StoreError):
        return False
    return False


def _refuse(group: Sequence[_MessageState], error: UsageError) -> None:
    for work in group:
        work.problems.append(str(error))
        work.hopeless = True


def _settle(queue: Queue, work: _MessageState) -> EventResult:
    """Acknowledge a message that is done, and set a hopeless one aside. If the store or a disk failed, or a file
    changed, the message comes again."""
    problem = "; ".join(work.problems)
    if not problem:
        queue.acknowledge(work.message)
    elif work.hopeless or work.message.attempts > MOST_ATTEMPTS:
        queue.set_aside(work.message, problem)
    return EventResult(work.message, work.what, work.indexed, work.passed_over, problem)
