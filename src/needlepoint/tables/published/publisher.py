"""Publishing: the state of the registry goes into the lake, after the packs that it refers to.

    packs       those that are not in the lake yet are uploaded
    copy        a delta of what changed since the published state, or a checkpoint when deltas are too many or too large
    manifest    replaced on condition that it is still the one that was read; else all is done again from it

A publisher that is killed leaves objects that nothing names; a sweep removes them. What it did not publish, the next
one does: `published.json` in the store says which state was published last. A failure to publish undoes no change of
the registry: readers see an older state until it succeeds.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import shutil
import sqlite3
import threading
import time
import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from needlepoint import forks
from needlepoint.errors import NeedlepointError, StoreError
from needlepoint.objects import Version
from needlepoint.tables.published import checking, copies, sweeping
from needlepoint.tables.published.manifest import (
    ManifestDamaged,
    RegistryCheckpoint,
    RegistryDelta,
    RegistryManifest,
    Retired,
)
from needlepoint.tables.published.place import MANIFEST, PublishedPlace, is_refusal
from needlepoint.tables.published.store_state import StoreState, identity_of
from needlepoint.tables.registry.databases.schema import FORMAT
from needlepoint.tables.registry.registry import Registry

# Changes within this many seconds are published together.
DELAY = 1.0
# After a failure the next attempt waits longer.
LONGEST_DELAY = 60.0
# Deltas of so many bytes, and of this share of the checkpoint, are replaced by a new checkpoint.
LEAST_BYTES, SHARE = 1 << 20, 0.5
# A delta replaces earlier ones that have no more files than this, or than it has itself.
FEW_FILES = 16
MOST_DELTAS = 16
# A replaced checkpoint or delta is removed after this many seconds.
GRACE = 600.0
# When the lake has refused to be written for so many seconds, files are deleted that readers may still need.
REFUSED_GRACE = 3600.0
TRIES = 20

_log = logging.getLogger("needlepoint")


class AnotherRegistry(StoreError):
    """The registry of another store is published in the lake, or a later state of this one."""


@dataclass(frozen=True, slots=True)
class PublishState:
    """How far readers without the store are behind: the sequence number in the lake, that of the registry, when it was
    published, and why it could not be published last time."""

    published: int
    sequence: int
    published_at: float
    problem: str = ""

    @property
    def lag(self) -> int:
        return self.sequence - self.published


class Publisher:
    """Publishes a registry, in a thread of its own a moment after it changed, and when it is closed.

    `takes_over`: also when another registry is published in the lake, which readers then see no more."""

    def __init__(self, root: Path | str, store: Path, registry: Registry, *, takes_over: bool = False) -> None:
        self.place = PublishedPlace(root)
        self._store = store
        self._registry = registry
        self._takes_over = takes_over
        # In the lake, packs are where the store has them.
        self._packs_there = self.place.base == str(store)
        self._known: tuple[Version, RegistryManifest | None] | None = None
        self._uploaded: set[str] | None = None
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self._timing = threading.Lock()
        self._closed = False
        self._delay = DELAY
        self._problem, self._is_foreign = "", False
        self._warned = ""
        self._last = last = StoreState.read(store, registry.identity())
        self._opened, self._first = time.time(), registry.sequence()
        if self._first < last.sequence:
            self._last = StoreState.after(store, last.registry, last.sequence, last.published_at)
        forks.own(self)
        if self._is_behind():
            self.changed()

    def abandon(self) -> None:
        """In a child of the process that opened it, see forks.py."""
        self._closed, self._timer = True, None
        self._lock, self._timing = threading.RLock(), threading.Lock()

    def changed(self) -> None:
        """Publish soon: the registry has changed."""
        with self._timing:
            if self._timer is None and not self._closed and (self._takes_over or not self._last.declined):
                timer = threading.Timer(self._delay, self._on_time)
                timer.daemon = True
                with contextlib.suppress(RuntimeError):  # the interpreter ends: the next process publishes
                    timer.start()
                    self._timer = timer

    def _on_time(self) -> None:
        with self._timing:
            self._timer = None
        if not self._closed:
            self.try_publish()

    def close(self) -> None:
        """Publish what is not published yet."""
        with self._timing:
            timer, self._timer, already, self._closed = self._timer, None, self._closed, True
        if timer is not None:
            timer.cancel()
        if already:
            return
        with self._lock:  # the thread may be publishing
            if self._is_behind():
                self.try_publish()

    def try_publish(self) -> bool:
        """Publish now; False, with a warning, if that fails."""
        try:
            self.publish()
        except (NeedlepointError, OSError) as error:
            self._problem, self._is_foreign = str(error), isinstance(error, AnotherRegistry)
            if self._is_foreign and not self._last.declined:
                self._last = replace(self._last, declined=True)
                self._last.write(self._store)
            known = self._last.refused_at > 0  # an earlier process has warned
            if is_refusal(error) != known:
                self._last = replace(self._last, refused_at=0.0 if known else time.time())
                self._last.write(self._store)
            if self._warned != self._problem and not (known and is_refusal(error)):
                self._warned = self._problem
                _log.warning("the registry is not published, and readers on other machines see an older one: %s", error)
            self._delay = min(LONGEST_DELAY, self._delay * 2)
            if not self._is_foreign:
                self.changed()
            return False
        self._problem, self._is_foreign, self._delay = "", False, DELAY
        return True

    def make_known(self) -> bool:
        """Publish now. False if readers may see an earlier state of this registry afterwards. Where rights to write
        are lacking, readers are waited for an hour after the first refusal, and not for ever."""
        if self._last.declined and not self._takes_over:
            return True
        return self.try_publish() or self._is_foreign or 0 < self._last.refused_at <= time.time() - REFUSED_GRACE

    def state(self) -> PublishState:
        last = self._last
        refused = f"{self.place.base} could not be written for lack of rights." if last.refused_at else ""
        return PublishState(last.sequence, self._registry.sequence(), last.published_at, self._problem or refused)

    def published_bytes(self) -> int:
        """The bytes of the published checkpoint and deltas. Asks the lake; StoreError if they cannot be read."""
        try:
            found = self.place.manifest()
        except FileNotFoundError:
            if not self._last.sequence:
                return 0
            raise StoreError(f"{self.place.path(MANIFEST)} is gone.", hint="`needle repair` publishes it.") from None
        assert found is not None
        return RegistryManifest.from_bytes(self.place.path("registry"), found.data).size

    def check(self) -> dict[str, str]:
        """What is wrong with published objects, by name: `publish_again` replaces them. Reads them all, and damaged
        ones twice."""
        if not self._last.sequence or (self._last.declined and not self._takes_over):
            return {}
        found = self._damaged(None)
        if MANIFEST in found:
            return self._damaged(None)
        # Nobody waits for the lake to be read, so what was named may be replaced and removed meanwhile.
        return self._damaged(found) if found else {}

    def _damaged(self, only: Collection[str] | None) -> dict[str, str]:
        """Among the objects that are published now, and `only` these."""
        with copies.opened(self._store / "registry.db") as connection:
            packs = set[str]() if self._packs_there else _pack_names(*copies.packs_of(connection))
            now = self._registry.sequence()
        return checking.damaged_objects(self.place, self._last.registry, now, packs, self._store, only)

    def publish_again(self, names: Iterable[str]) -> None:
        """Publish these packs again, and the registry as a new checkpoint."""
        with self._lock:
            self._known = None
            for name in names:
                if name.endswith(".pack"):
                    self._upload(name)
            self.publish(whole=True)

    def publish(self, *, whole: bool = False) -> RegistryManifest:
        """Publish the present state of the registry, with `whole` as a new checkpoint, and return the manifest. Does
        nothing if that or a later state is published."""
        with self._lock:
            for attempt in range(TRIES):
                if attempt:
                    self._known = None
                    time.sleep(min(1.0, 0.02 * attempt))
                before, known = self._manifest()
                if known is not None:
                    if self._is_restored(known):
                        at = known.published_at
                        self._last = StoreState.after(self._store, known.registry, known.sequence, at)
                    self._check_owner(known)
                    if not whole and self._is_current(known):
                        self._note(known)
                        return known
                made = self._next(known, whole=whole)
                data = made.to_bytes()
                identity = self.place.put_manifest(data, None if before is None else before.identity)
                if identity is not None:
                    self._known = (Version(data, identity), made)
                    self._note(made)
                    self._remove_expired(known, made)
                    return made
        raise StoreError(
            f"{self.place.path('registry')} is changed by other writers again and again.", hint="Try again later."
        )

    def sweep(self, *, now: bool = False) -> int:
        """Remove what nothing in the lake refers to. Returns the bytes that are free. With `now` also what readers of
        an earlier state may still need, and a new checkpoint replaces all that has values of deleted rows."""
        if self._last.declined and not self._takes_over:
            return 0
        with self._lock:
            self.publish(whole=now)
            before, known = self._manifest()
            if before is None or known is None:
                return 0
            with copies.opened(self._store / "registry.db") as connection:
                cards, payloads = copies.packs_of(connection)
            wanted = {*_pack_names(cards, payloads), *known.names()}
            swept = sweeping.choose(self.place, known, wanted, packs=not self._packs_there, now=now)
            if now or swept.manifest != known:  # with `now`, whoever is about to publish what is removed begins again
                data = swept.manifest.to_bytes()
                identity = self.place.put_manifest(data, before.identity)
                self._known = None if identity is None else (Version(data, identity), swept.manifest)
                if identity is None:
                    return 0  # another writer publishes: the next sweep
            if self._uploaded is not None:
                self._uploaded -= swept.names.keys()
            self.place.remove([*swept.names])
            return sum(swept.names.values())

    def _manifest(self) -> tuple[Version | None, RegistryManifest | None]:
        """What is published; a damaged manifest counts as none, and is replaced."""
        if self._known is None:
            try:
                found = self.place.manifest()
            except FileNotFoundError:
                return None, None
            assert found is not None
            try:
                manifest = RegistryManifest.from_bytes(self.place.path("registry"), found.data)
            except ManifestDamaged:
                manifest = None
            # Another writer may have swept packs since they were listed.
            self._known, self._uploaded = (found, manifest), None
        return self._known

    def _is_behind(self) -> bool:
        """Whether there is something to publish. A registry in which nothing happened yet is not worth it; and one of
        several for the same lake is published only when someone says so."""
        last = self._last
        if last.declined and not self._takes_over:
            return False
        was_upgraded = last.sequence > 0 and last.schema != FORMAT
        return was_upgraded or self._registry.sequence() != max(1, last.sequence)

    def _is_restored(self, known: RegistryManifest) -> bool:
        """Whether the registry is a backup from before this state was published. A delta from that would mix both, also
        when the sequence number of the restored one is larger by now."""
        if known.registry != self._last.registry:
            return False
        was_there = max(self._first, self._last.sequence)
        is_of_before = known.sequence > was_there and known.published_at < self._opened
        return is_of_before or known.sequence > self._registry.sequence()

    def _check_owner(self, known: RegistryManifest) -> None:
        if known.registry == self._last.registry or self._takes_over:
            return
        is_own = identity_of(known.registry) == identity_of(self._last.registry)
        what = "a state of before the restore of the registry" if is_own else "another registry than that"
        raise AnotherRegistry(
            f"{what} in {self._store} is published in {self.place.base}.",
            hint="Set NEEDLE_SHARED=off to leave it, or NEEDLE_SHARED=on to publish this one in its place.",
        )

    def _is_current(self, known: RegistryManifest) -> bool:
        is_own = known.registry == self._last.registry and known.schema == FORMAT
        return is_own and known.sequence == self._registry.sequence()

    def _note(self, manifest: RegistryManifest) -> None:
        self._last = StoreState(manifest.registry, manifest.sequence, manifest.published_at, schema=manifest.schema)
        self._last.write(self._store)

    def _next(self, known: RegistryManifest | None, *, whole: bool) -> RegistryManifest:
        """Upload packs and a copy of the registry, and return the manifest that names it."""
        scratch = self._store / "scratch" / uuid.uuid4().hex
        self._registry.locks.claim(scratch.name)
        try:
            scratch.mkdir(parents=True)
            with copies.opened(self._store / "registry.db") as connection:
                made = None
                if known is not None and known.registry == self._last.registry and not whole:
                    made = self._with_delta(connection, scratch, known)
                return made or self._with_checkpoint(connection, scratch, known)
        except OSError as error:
            raise StoreError(f"{scratch} cannot be written: {error}.", hint="Check permissions and room.") from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            self._registry.locks.release(scratch.name)

    def _with_delta(
        self, connection: sqlite3.Connection, scratch: Path, known: RegistryManifest
    ) -> RegistryManifest | None:
        """The manifest with one delta more, which can replace others; None when a checkpoint is better."""
        first, kept = known.sequence, list(known.deltas)
        changed = copies.changed_files(connection, first)
        if changed is None:
            return None
        while kept and (len(kept) >= MOST_DELTAS or kept[-1].files <= max(FEW_FILES, changed)):
            more = copies.changed_files(connection, kept[-1].first)
            if more is None:
                break
            first, changed = kept.pop().first, more
        copy = copies.make_delta(connection, scratch / "delta.db", first)
        if copy is None or copy.schema != known.schema or len(kept) >= MOST_DELTAS:
            return None
        size, checksum = copies.pack(scratch / "delta.db", scratch / "delta")
        if sum(each.size for each in kept) + size > max(LEAST_BYTES, SHARE * known.checkpoint.size):
            return None
        self._upload_packs(scratch / "delta.db")
        name = f"registry/delta-{first}-{copy.sequence}-{secrets.token_hex(8)}.zst"
        self.place.put(scratch / "delta", name)
        delta = RegistryDelta(name, size, checksum, first, copy.sequence, copy.files)
        return self._following(known, copy, known.checkpoint, (*kept, delta))

    def _with_checkpoint(
        self, connection: sqlite3.Connection, scratch: Path, known: RegistryManifest | None
    ) -> RegistryManifest:
        """The manifest with a new checkpoint, and a delta from the state before it for those who follow."""
        copy = copies.make_checkpoint(connection, scratch / "checkpoint.db")
        size, checksum = copies.pack(scratch / "checkpoint.db", scratch / "checkpoint")
        self._upload_packs(scratch / "checkpoint.db")
        name = f"registry/checkpoint-{copy.sequence}-{secrets.token_hex(8)}.zst"
        self.place.put(scratch / "checkpoint", name)
        checkpoint = RegistryCheckpoint(name, size, checksum, copy.sequence)
        delta = None
        if known is not None and known.registry == self._last.registry and known.schema == copy.schema:
            delta = self._delta_of_checkpoint(scratch, known, copy)
        return self._following(known, copy, checkpoint, () if delta is None else (delta,))

    def _delta_of_checkpoint(
        self, scratch: Path, known: RegistryManifest, copy: copies.RegistryCopy
    ) -> RegistryDelta | None:
        """From the copy and not from the registry, which may have changed again."""
        if known.sequence >= copy.sequence:
            return None
        with copies.opened(scratch / "checkpoint.db") as connection:
            changes = [each.first for each in known.deltas] + [known.sequence]
            first = next(each for each in changes if each == known.sequence or _is_small(connection, each, copy.files))
            if not _is_small(connection, first, copy.files):
                return None
            made = copies.make_delta(connection, scratch / "following.db", first)
        if made is None:
            return None
        size, checksum = copies.pack(scratch / "following.db", scratch / "following")
        name = f"registry/delta-{first}-{made.sequence}-{secrets.token_hex(8)}.zst"
        self.place.put(scratch / "following", name)
        return RegistryDelta(name, size, checksum, first, made.sequence, made.files)

    def _following(
        self,
        known: RegistryManifest | None,
        copy: copies.RegistryCopy,
        checkpoint: RegistryCheckpoint,
        deltas: tuple[RegistryDelta, ...],
    ) -> RegistryManifest:
        now = time.time()
        made = RegistryManifest(self._last.registry, copy.schema, copy.sequence, now, checkpoint, deltas)
        before = frozenset() if known is None else known.names()
        old = () if known is None else tuple(each for each in known.retired if not _has_expired(each, now))
        retired = (*old, *(Retired(name, now) for name in sorted(before - made.names())))
        return replace(made, retired=retired)

    def _remove_expired(self, known: RegistryManifest | None, made: RegistryManifest) -> None:
        expired = (
            [] if known is None else [each.name for each in known.retired if _has_expired(each, made.published_at)]
        )
        if expired:
            try:
                self.place.remove(expired)
            except (NeedlepointError, OSError) as error:
                _log.warning("replaced objects of the registry stay until the next sweep: %s", error)

    def _upload_packs(self, copy: Path) -> None:
        """Upload the packs that a copy of the registry refers to, and that are not in the lake."""
        if self._packs_there:
            return
        with copies.opened(copy) as connection:
            wanted = _pack_names(*copies.packs_of(connection))
        if self._uploaded is None:
            self._uploaded = {name for below in ("cards", "indexes") for name, _ in self.place.listed(below)}
        missing = sorted(wanted - self._uploaded)
        self._uploaded.update(name for name in self.place.all(self._upload, missing) if name)

    def _upload(self, name: str) -> str:
        """Empty if the pack is gone: it was swept, and a later state of the registry does not name it; or it is lost,
        and readers scan."""
        try:
            self.place.put(self._store / name, name)
        except FileNotFoundError:
            return ""
        return name


def _is_small(connection: sqlite3.Connection, first: int, files: int) -> bool:
    """Whether a delta from a state is worth it, beside a checkpoint of so many files."""
    changed = copies.changed_files(connection, first)
    return changed is not None and changed <= max(FEW_FILES, SHARE * files)


def _has_expired(retired: Retired, now: float) -> bool:
    return retired.name.startswith("registry/") and retired.at <= now - GRACE


def _pack_names(cards: set[str], payloads: set[tuple[int, str]]) -> set[str]:
    """Relative to the store, and to the place in the lake."""
    return {f"cards/{name}" for name in cards} | {f"indexes/{id}/{name}" for id, name in payloads}
