"""A key store in the lake: sorted Parquet files, and a manifest that many machines replace by compare-and-swap."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from needlepoint import forks
from needlepoint.errors import FileError, StoreError
from needlepoint.objects import Identity, concurrently
from needlepoint.parquet import ByteCache
from needlepoint.stores.base import BLOCK_BYTES, Entries, IndexDamaged, Locations, StoreTasks
from needlepoint.stores.leaf_files import manifest as manifests
from needlepoint.stores.leaf_files.cache import LeafCache
from needlepoint.stores.leaf_files.key_form import KeyCut, KeyForm, least_cut, to_alphabets, used_bytes
from needlepoint.stores.leaf_files.keys import different, is_ascending, to_columns, to_entries, to_keys
from needlepoint.stores.leaf_files.leaf_reader import LeafReader
from needlepoint.stores.leaf_files.leaf_writer import FORMAT, META_KEY, LeafWriter
from needlepoint.stores.leaf_files.lookup import find_between, find_keys, first_entries
from needlepoint.stores.leaf_files.manifest import LeafFile, LeafManifest
from needlepoint.stores.leaf_files.merge import due, level_of, merged_entries
from needlepoint.stores.leaf_files.merge_tasks import HERE, new_name, plan_tasks, run_tasks
from needlepoint.stores.leaf_files.page_memory import page_memory
from needlepoint.stores.leaf_files.pages import PagesCorrupt
from needlepoint.stores.leaf_files.place import LeafPlace

# A reader of a manifest that was replaced so long ago may find leaf files gone. Clocks may differ by some hours.
GRACE = 24 * 3600.0
COMMIT_PATIENCE = 120.0
DIRECTORY_BYTES = 256 << 20  # those of a billion keys take 150 MB
READER_BYTES = 1 << 19  # at least, of the bytes above: each open leaf takes a descriptor

_HINT = "Queries scan without it; sync or `needle repair` builds it again."

Answer = TypeVar("Answer")


class LeafState(NamedTuple):
    """A manifest, the version of it that was read, and what is known of the keys of all its leaves."""

    manifest: LeafManifest
    identity: Identity
    size: int
    cut: KeyCut


class LeafKeyStore:
    """`location` is a directory or an `s3://` URL. `cache` keeps parts of objects on the local disk. Stores with
    the same `block_bytes` share that much memory for pages they read. With `key_bits` leaves that are written have the
    first bits of each key only: then keys that agree in them find each other's rows.

    Any number of processes on any number of machines may read and write at the same time.
    """

    def __init__(
        self,
        location: str,
        key_bytes: int,
        cache: LeafCache | None = None,
        block_bytes: int = BLOCK_BYTES,
        key_bits: int | None = None,
    ) -> None:
        self._place = LeafPlace(location)
        self._key_bytes = key_bytes
        self._cut = KeyCut(8 * key_bytes if key_bits is None else min(key_bits, 8 * key_bytes))
        self._cache = cache
        self._block_bytes = block_bytes
        self._lock = threading.Lock()
        self._state: LeafState | None = None
        self._named = 0  # runs, in the last refresh
        self._readers: ByteCache[LeafReader] = ByteCache(DIRECTORY_BYTES)
        forks.own(self)

    def abandon(self) -> None:
        """In a child of the process that opened it: see forks.py."""
        self._lock, self._state, self._readers = threading.Lock(), None, ByteCache(DIRECTORY_BYTES)

    # Writing

    def write_run(self, path: Path, entries: Entries, name: str) -> None:
        """Entries with whole keys, or as a store with the same bits returns them."""
        width = entries.shape[1] - 8
        if width not in (self._key_bytes, self._cut.width):
            raise StoreError(
                f"the keys of run {name} have {width} bytes, not {self._key_bytes}.", hint="Build it again."
            )
        columns = to_columns(entries, width)
        if not is_ascending(columns):
            raise StoreError(f"the entries of run {name} do not ascend.", hint="Sort them, and keep each once.")
        with self._errors():
            columns = self._cut.of_columns(columns, width)
            bits = self._cut.bits if self._cut.bits < 8 * self._key_bytes else 0
            alphabets = to_alphabets(used_bytes(columns.keys, self._cut.width), self._cut) if bits else None
            writer = LeafWriter(path, KeyForm(self._cut, alphabets), bits, runs=[name])
            writer.append(columns)
            writer.finish()

    def ingest(self, runs: Sequence[Path]) -> None:
        self.ingest_and_merge(runs, HERE)

    def ingest_and_merge(self, runs: Sequence[Path], tasks: StoreTasks) -> None:
        """Leaf files first, then one manifest that names them all. A writer that dies in between leaves leaf files that
        nothing names, which `sweep` removes."""
        started = time.monotonic()
        with self._errors():
            leaves: list[LeafFile] = []
            names: list[str] = []
            for run in runs:
                leaf, of_run = _describe(run, self._key_bytes, self._cut)
                names += of_run
                if leaf.entries:
                    name = new_name()
                    leaves.append(replace(leaf, name=name, group=name, level=level_of(leaf.entries)))
                    self._place.add(run, leaves[-1].name)
            self._commit(lambda manifest: manifest.with_added(leaves, names), started)
            for run in runs:
                run.unlink(missing_ok=True)
        if leaves:
            # The runs are committed. A merge that fails, say on another leaf that is damaged, is tried again after the
            # next ones, and lookups tell what is wrong.
            with contextlib.suppress(StoreError):
                self.merge(tasks)

    def merge(self, tasks: StoreTasks = HERE) -> int:
        """Merge levels until none has too many leaf files that overlap. Returns the number of merges."""
        done = 0
        with self._errors():
            while inputs := due(self._poll().manifest.leaves):
                if not self._merge(inputs, tasks):
                    break
                done += 1
        return done

    def _merge(self, inputs: list[LeafFile], tasks: StoreTasks) -> bool:
        """Replace leaves by one sorted run of their entries; False if another process was faster. A commit that fails
        keeps the new leaves: the manifest may name them."""
        started = time.monotonic()
        readers = [self._reader(leaf, keep=False) for leaf in inputs]
        cut = least_cut([self._cut, *(leaf.cut for leaf in inputs)])
        planned = plan_tasks(self._place.location, readers, self._key_bytes, cut)
        made = run_tasks(planned, sum(leaf.entries for leaf in inputs), tasks)
        outputs = sorted(made, key=lambda leaf: (leaf.first, leaf.last))
        level = level_of(sum(leaf.entries for leaf in outputs))
        outputs = [replace(leaf, group=outputs[0].name, level=level) for leaf in outputs]
        if self._commit(lambda manifest: manifest.with_merged(inputs, outputs, time.time()), started) is None:
            self._place.remove([leaf.name for leaf in outputs])
            return False
        return True

    def sweep(self, grace: float = GRACE) -> int:
        """Delete leaf files that no reader can need: those that were merged into others, or that a dead writer left,
        longer ago than `grace` seconds. Less than GRACE is safe only while nobody reads or writes. Returns how many."""
        with self._errors():
            there = list(self._place.listed())  # before the manifest: it names all that are older
            manifest, now = self._poll().manifest, time.time()
            live = {leaf.name for leaf in manifest.leaves}
            young = {each.name for each in manifest.removed if now - each.at <= grace}
            merged_away = {each.name for each in manifest.removed} - young
            left = {name for name, written in there if now - written > grace} - live - young
            doomed = sorted((merged_away | left) - live)
            if not doomed:
                return 0
            self._place.remove(doomed)
            for name in doomed:
                if self._cache is not None:
                    self._cache.forget(name)
            if merged_away:
                self._commit(lambda current: current.without_removed(merged_away), time.monotonic())
            return len(doomed)

    def _commit(self, change: Callable[[LeafManifest], LeafManifest | None], started: float) -> LeafManifest | None:
        """Swap the manifest for what `change` makes of it; again on the new one while other writers are faster. None if
        `change` returns that.

        `started` is before the first leaf was added: leaves that are too old may be swept as if nobody wanted them.
        """
        deadline = time.monotonic() + COMMIT_PATIENCE
        for attempt in range(1, 1 << 30):
            known, current = self._newest()
            changed = change(current)
            if changed is None or changed is current:
                return changed
            if time.monotonic() - started > GRACE / 2:
                raise StoreError(f"a commit to {self._place.location} took too long.", hint="Try it again.")
            if self._place.swap_manifest(manifests.encode(changed), known) is not None:
                return changed
            if time.monotonic() > deadline:
                raise StoreError(
                    f"{self._place.manifest} was replaced by others for {COMMIT_PATIENCE:.0f} seconds.",
                    hint="Try it again with fewer writers at a time.",
                )
            time.sleep(random.uniform(0, min(1.0, 0.005 * 2 ** min(attempt, 10))))
        return None

    def _newest(self) -> tuple[Identity | None, LeafManifest]:
        """The current manifest, or an empty one where there is none."""
        try:
            version = self._place.read_manifest()
        except FileNotFoundError:
            return None, LeafManifest(self._key_bytes, 0, uuid.uuid4().hex)
        assert version is not None
        return version.identity, self._decode(version.data)

    # Reading

    def refresh(self, runs: Iterable[str]) -> None:
        with self._errors():
            state, named = self._poll(), frozenset(runs)
            if not state.manifest.runs.issuperset(named):
                raise IndexDamaged(f"the index in {self._place.location} has lost entries.", hint=_HINT)
            self._named = len(named)

    def has_other_runs(self) -> bool:
        return len(self._open_state().manifest.runs) > self._named

    def _poll(self) -> LeafState:
        """The newest state: one request, which brings nothing if the manifest is the same."""
        with self._lock:
            known = self._state
            try:
                version = self._place.read_manifest(known.identity if known else None)
            except FileNotFoundError as error:
                raise IndexDamaged(f"the index in {self._place.location} is gone.", hint=_HINT) from error
            if version is None:
                assert known is not None
                return known
            manifest = self._decode(version.data)
            seen = {leaf.name for leaf in known.manifest.leaves} if known else set()
            new = {leaf.name: leaf.size for leaf in manifest.leaves if leaf.name not in seen}
            if not self._place.is_remote:  # a query lists no objects
                self._refuse_missing(new)
            cut = least_cut(leaf.cut for leaf in manifest.leaves) if manifest.leaves else self._cut
            self._state = LeafState(manifest, version.identity, len(version.data), cut)
            return self._state

    def check_leaves(self) -> None:
        """IndexDamaged if a leaf file that the newest manifest names is gone or cut. None is read."""
        with self._errors():
            state = self._poll()
            try:
                self._refuse_missing({leaf.name: leaf.size for leaf in state.manifest.leaves})
            except IndexDamaged:
                if self._poll() is state:  # else they were merged and swept meanwhile
                    raise

    def _refuse_missing(self, sizes: dict[str, int]) -> None:
        if missing := self._place.missing(sizes):
            raise IndexDamaged(f"the leaf file {self._place.path(missing[0])} is gone or cut.", hint=_HINT)

    def _decode(self, data: bytes) -> LeafManifest:
        manifest = manifests.decode(data, self._place.manifest)
        if manifest.key_bytes != self._key_bytes:
            raise IndexDamaged(
                f"{self._place.manifest} has keys of {manifest.key_bytes} bytes, not {self._key_bytes}.", hint=_HINT
            )
        return manifest

    def find(self, keys: Sequence[bytes], limit: int) -> Locations | None:
        if not keys:
            return np.empty(0, np.uint64)
        wanted = different(np.sort(to_keys(keys, self._key_bytes)))
        low, high = min(keys), max(keys)
        return self._answer(lambda state: find_keys(self._readers_of(state, low, high), wanted, self._key_bytes, limit))

    def find_range(self, low: bytes, high: bytes, limit: int) -> Locations | None:
        if low > high:
            return np.empty(0, np.uint64)
        return self._answer(lambda state: find_between(self._readers_of(state, low, high), low, high, limit))

    def ends(self, count: int, last: bool) -> Entries:
        def ask(state: LeafState) -> Entries:
            readers, cut = self._readers_of(state), state.cut
            if not readers or not count:
                return np.empty((0, cut.width + 8), np.uint8)
            found = to_entries(first_entries(readers, cut, count, last), cut.width)
            return found[::-1] if last else found

        return self._answer(ask)

    def count(self) -> int:
        return sum(leaf.entries for leaf in self._open_state().manifest.leaves)

    def scan(self) -> Iterator[Entries]:
        with self._errors():
            state = self._open_state()
            leaves, cut = state.manifest.leaves, state.cut
            yield np.empty((0, cut.width + 8), np.uint8)
            for columns in merged_entries([self._reader(leaf, keep=False) for leaf in leaves], cut):
                yield to_entries(columns, cut.width)

    def key_bits(self) -> int:
        with self._errors():
            return self._poll().cut.bits

    def _answer(self, ask: Callable[[LeafState], Answer]) -> Answer:
        with self._errors():
            state = self._open_state()
            try:
                return ask(state)
            except IndexDamaged:
                # A reader that did not refresh for GRACE: the leaves it knows were merged and swept.
                newest = self._poll()
                if newest is state:
                    raise
                return ask(newest)

    def _readers_of(self, state: LeafState, low: bytes = b"", high: bytes | None = None) -> list[LeafReader]:
        """Of the leaves that can have keys from `low` to `high`. Those of objects are opened at the same time."""
        known = state.manifest.leaves
        if low:
            low = state.cut.of_bytes(low)
        leaves = [leaf for leaf in known if leaf.last >= low and (high is None or leaf.first <= high)]
        if self._place.is_remote and sum(leaf.name not in self._readers for leaf in leaves) > 1:
            return concurrently(self._reader, leaves)
        return [self._reader(leaf) for leaf in leaves]

    def _reader(self, leaf: LeafFile, keep: bool = True) -> LeafReader:
        found = self._readers.get(leaf.name)
        if found is None:
            found = LeafReader(self._place, leaf, self._cache, page_memory(self._block_bytes))
            if keep:
                self._readers.put(
                    leaf.name, found, max(READER_BYTES, found.directory.memory + found.slots.slots.nbytes)
                )
        return found

    def _open_state(self) -> LeafState:
        if self._state is None:
            raise StoreError(f"the index in {self._place.location} was not opened.", hint="Refresh it first.")
        return self._state

    # Both

    def size(self) -> int:
        try:
            state = self._poll()
        except IndexDamaged:
            return 0
        return state.size + sum(leaf.size for leaf in state.manifest.leaves)

    def close(self) -> None:
        with self._lock:
            self._state = None
            self._readers.clear()

    def destroy(self) -> None:
        with self._errors():
            if self._cache is not None:
                with contextlib.suppress(StoreError):
                    for leaf in self._poll().manifest.leaves:
                        self._cache.forget(leaf.name)
            self.close()
            self._place.destroy()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """The border: what the file system, Arrow and readers of files raise becomes a StoreError."""
        try:
            yield
        except PagesCorrupt as error:
            raise IndexDamaged(f"a leaf file in {self._place.location} is damaged: {error}.", hint=_HINT) from error
        except (OSError, FileError, pa.ArrowException) as error:
            raise StoreError(
                f"the index in {self._place.location} cannot be used: {error}.",
                hint="Check permissions and free space.",
            ) from error


def _describe(run: Path, key_bytes: int, cut: KeyCut) -> tuple[LeafFile, list[str]]:
    """What a run says about itself, and its names; StoreError if a store of these keys cannot take it."""
    try:
        told = json.loads((pq.read_metadata(run).metadata or {})[META_KEY])
        if told["format"] > FORMAT:
            raise StoreError(f"{run} is of a newer version.", hint="Use the same version of Needlepoint everywhere.")
        width, bits = told["key_bytes"], told.get("bits", 0)
        if (width, bits) not in ((key_bytes, 0), (cut.width, cut.bits)):
            raise ValueError(f"its keys have {width} bytes, not {key_bytes}")
        offset, length = told["directory"]
        leaf = LeafFile(
            run.name, run.name, 0, told["entries"], bytes.fromhex(told["first"]), bytes.fromhex(told["last"]),
            run.stat().st_size, (offset, length), told["checksum"], bits,
        )  # fmt: skip
        return leaf, told["runs"]
    except (KeyError, ValueError, TypeError, pa.ArrowException) as error:
        raise StoreError(f"{run} is no run of this store: {error}.", hint="Write it with write_run.") from error
