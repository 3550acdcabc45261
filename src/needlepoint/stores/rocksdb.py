"""Entries in RocksDB: one database per index; keys only, empty values.

One process ingests at a time, and briefly, since runs are written outside. Readers are RocksDB secondaries, so any
number of processes can query at the same time.

A run is marked by a key behind all entries, or, if its range overlaps no other, behind its own: then it is the last key
of its file. Before files are compacted, such runs are marked behind all entries too. So all runs can be listed.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import rocksdict

from needlepoint import forks
from needlepoint.errors import StoreError
from needlepoint.stores.base import BLOCK_BYTES, IN_ITS_RANGE, Entries, IndexDamaged, Locations

_HINT = "Queries scan without it; sync builds it again."
_HINT_BLOCK = "Queries scan without it; `needle repair` builds it again."

WRITE_CHUNK = 1 << 16
LOCK_PATIENCE = 120.0
READ_ATTEMPTS = 8
# Runs overlap in level 0, where each costs a lookup about 0.3 µs for its bloom filter; compacting rewrites all keys.
RUNS_BEFORE_COMPACTION = 48
# Stores of format 1 have no mark that says so. Compacted runs were not marked at the end, and cannot all be listed.
FORMAT = 2
_FORMAT_MARK = "~format "


@functools.cache
def _block_cache(size: int) -> rocksdict.Cache:
    """One cache for all indexes with that setting. Blocks of files that are gone stay until others need the place."""
    return rocksdict.Cache(size)


class RocksKeyStore:
    def __init__(self, directory: Path, key_bytes: int, block_bytes: int = BLOCK_BYTES) -> None:
        self._directory = directory
        self._key_bytes = key_bytes
        self._block_bytes = block_bytes
        self._lock = threading.Lock()
        self._reader: rocksdict.Rdict | None = None
        self._secondary: forks.OwnDirectory | None = None
        self._seen: set[str] = set()
        self._has_others: bool | None = None
        forks.own(self)

    def abandon(self) -> None:
        """In a child of the process that opened it: see forks.py."""
        forks.leak(self._reader)
        self._reader, self._lock = None, threading.Lock()

    # Writing

    def write_run(self, path: Path, entries: Entries, name: str) -> None:
        with self._errors():
            writer = self._sst_writer(path)
            rows = np.ascontiguousarray(entries).view(f"V{entries.shape[1]}").ravel()
            for start in range(0, len(rows), WRITE_CHUNK):
                # The library takes one key a call; `map` into an empty deque keeps that loop out of bytecode.
                keys = rows[start : start + WRITE_CHUNK].tolist()
                deque(map(writer.__setitem__, keys, itertools.repeat(b"")), maxlen=0)
            writer[self._mark(name)] = b""
            writer.finish()

    def _sst_writer(self, path: Path) -> rocksdict.SstFileWriter:
        writer = rocksdict.SstFileWriter(options=self._options())
        writer.open(str(path))
        return writer

    def _mark(self, run: str) -> bytes:
        """The key that marks a run: longer than an entry, and greater than all entries, or than those of the run."""
        name, _, last = run.partition(IN_ITS_RANGE)
        return (bytes.fromhex(last) if last else self._end) + name.encode()

    def _mark_at_the_end(self, mark: bytes) -> bytes:
        """Another mark of a run that is marked in its range."""
        width = len(self._end)
        return self._end + mark[width:] + IN_ITS_RANGE.encode() + mark[:width].hex().encode()

    @property
    def _end(self) -> bytes:
        """Behind all entries: locations never reach 2^64 - 1."""
        return b"\xff" * (self._key_bytes + 8)

    def ingest(self, runs: Sequence[Path]) -> None:
        options = rocksdict.IngestExternalFileOptions()
        options.set_move_files(True)
        with self._errors(), self._primary() as database:
            if not database.live_files():
                self._ingest_marks(database, [self._mark(f"{_FORMAT_MARK}{FORMAT}")])
            for run in runs:
                database.ingest_external_file([str(run)], options)
                run.unlink(missing_ok=True)
            if (database.property_int_value("rocksdb.num-files-at-level0") or 0) > RUNS_BEFORE_COMPACTION:
                in_ranges = [mark for mark in self._last_marks(database) if not mark.startswith(self._end)]
                self._ingest_marks(database, [self._mark_at_the_end(mark) for mark in in_ranges])
                database.compact_range(None, None)

    def _ingest_marks(self, database: rocksdict.Rdict, marks: Sequence[bytes]) -> None:
        if not marks:
            return
        file = self._directory / f"{uuid.uuid4().hex}.marks"
        try:
            writer = self._sst_writer(file)
            for mark in sorted(marks):
                writer[mark] = b""
            writer.finish()
            database.ingest_external_file([str(file)])
        finally:
            file.unlink(missing_ok=True)

    def _last_marks(self, database: rocksdict.Rdict) -> list[bytes]:
        """The last keys of files that are marks."""
        ends: list[bytes] = [file["end_key"] for file in database.live_files()]
        return [key for key in ends if len(key) > len(self._end)]

    @contextmanager
    def _primary(self) -> Iterator[rocksdict.Rdict]:
        """The only writer; waits for another process to finish."""
        self._directory.parent.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + LOCK_PATIENCE
        while True:
            try:
                database = self._open(rocksdict.AccessType.read_write())
                break
            except Exception as error:
                if "lock" not in str(error).lower() or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        process = os.getpid()
        try:
            self._refuse_newer(database)
            yield database
        finally:
            if os.getpid() == process:
                database.close()
            else:
                forks.leak(database)

    # Reading

    def refresh(self, runs: Iterable[str]) -> None:
        with self._lock, self._errors():
            wanted = set(runs)
            # A secondary opens without an error, and with fewer entries, when a file is missing or was replaced. One
            # that was open while another process rebuilt the index does not notice either: open it again.
            if not self._sees(wanted):
                self._close_reader()
                if not self._sees(wanted):
                    raise IndexDamaged(f"the index in {self._directory} has lost entries.", hint=_HINT)
            self._seen, self._has_others = wanted, None

    def has_other_runs(self) -> bool:
        """Also if a version wrote the store whose runs cannot be listed."""
        if self._has_others is None:
            with self._errors():
                listed = self._listed_marks()
            format = self._mark(f"{_FORMAT_MARK}{FORMAT}")
            known = {format, *map(self._mark, self._seen)}
            known |= {self._mark_at_the_end(mark) for mark in known if not mark.startswith(self._end)}
            self._has_others = format not in listed or not listed <= known
        return self._has_others

    def _listed_marks(self) -> set[bytes]:
        """The marks that can be found without their names."""
        return {*self._marks_at_the_end(), *self._last_marks(self._open_reader())}

    def _marks_at_the_end(self) -> Iterator[bytes]:
        cursor = self._ordered_cursor()
        cursor.seek(self._end)
        while cursor.valid():
            yield cursor.key()
            cursor.next()
        cursor.status()

    def _sees(self, runs: set[str]) -> bool:
        reader = self._current_reader()
        return all(self._mark(run) in reader for run in runs - self._seen)

    def _current_reader(self) -> rocksdict.Rdict:
        """A secondary of the newest state. While a writer opens or closes, it can take a few tries."""
        for attempt in range(READ_ATTEMPTS):
            try:
                if self._reader is None:
                    self._open_secondary()
                else:
                    self._reader.try_catch_up_with_primary()
                break
            except StoreError:
                raise
            except Exception:
                self._close_reader()
                if attempt == READ_ATTEMPTS - 1:
                    raise
                time.sleep(0.01 * attempt)
        assert self._reader is not None
        return self._reader

    def _open_secondary(self) -> None:
        if not self._directory.exists():
            raise IndexDamaged(f"the index in {self._directory} is gone.", hint=_HINT)
        self._secondary = forks.OwnDirectory()
        self._reader = self._open(rocksdict.AccessType.secondary(self._secondary.name))
        self._seen.clear()
        self._refuse_newer(self._reader)

    def _refuse_newer(self, database: rocksdict.Rdict) -> None:
        mark = self._mark(_FORMAT_MARK)
        cursor = database.iter(self._total_order())
        cursor.seek(mark)
        if cursor.valid() and cursor.key().startswith(mark) and int(cursor.key()[len(mark) :]) > FORMAT:
            raise StoreError(
                f"the index in {self._directory} has format {cursor.key()[len(mark) :].decode()}; this version of "
                f"Needlepoint reads format {FORMAT}.",
                hint="Use the newer version, or rebuild the index with this one.",
            )

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._secondary is not None:
            self._secondary.remove()
            self._secondary = None

    def find(self, keys: Sequence[bytes], limit: int) -> Locations | None:
        options = rocksdict.ReadOptions()
        options.set_prefix_same_as_start(True)
        found: list[bytes] = []
        width = self._key_bytes + 8
        try:  # not `_errors`, which takes longer than a lookup
            cursor = self._cursor(options)
            # `key` is None after the last entry, so there is no need to ask whether there is one.
            seek, current, advance, check = cursor.seek, cursor.key, cursor.next, cursor.status
            for key in keys:
                seek(key)
                entry = current()
                while entry is not None and entry.startswith(key):
                    if len(entry) == width:  # else it is the mark of a run
                        found.append(entry)
                        if len(found) > limit:  # at once: all rows of a table can have one key
                            return None
                    advance()
                    entry = current()
                if entry is None:
                    check()  # a block that cannot be read ends the loop, too
        except StoreError:
            raise
        except Exception as error:
            raise self._translated(error) from error
        return self._locations(found)

    def find_range(self, low: bytes, high: bytes, limit: int) -> Locations | None:
        options = self._total_order()
        # Locations never reach 2^64 - 1, so this bound, which RocksDB excludes, admits every entry of `high`.
        options.set_iterate_upper_bound(high + b"\xff" * 8)
        found: list[bytes] = []
        width = self._key_bytes + 8
        with self._errors():
            cursor = self._cursor(options)
            current, advance = cursor.key, cursor.next
            cursor.seek(low)
            while (entry := current()) is not None and len(found) <= limit:
                if len(entry) == width:
                    found.append(entry)
                advance()
            cursor.status()
        return None if len(found) > limit else self._locations(found)

    def ends(self, count: int, last: bool) -> Entries:
        width = self._key_bytes + 8
        found: list[bytes] = []
        with self._errors():
            cursor = self._ordered_cursor()
            current, advance = cursor.key, cursor.prev if last else cursor.next
            cursor.seek_to_last() if last else cursor.seek_to_first()
            while (entry := current()) is not None and len(found) < count:
                if len(entry) == width:  # else it is the mark of a run
                    found.append(entry)
                advance()
            cursor.status()
        return self._table(found)

    def count(self) -> int:
        with self._errors():
            files = self._open_reader().live_files()
            marks = self._listed_marks().union(map(self._mark, self._seen))
        # RocksDB's own estimate counts twice, in a secondary, what the primary ingests. Marks are no entries.
        return max(0, sum(int(file["num_entries"]) for file in files) - len(marks))

    def scan(self) -> Iterator[Entries]:
        width = self._key_bytes + 8
        found: list[bytes] = []
        with self._errors():
            cursor = self._ordered_cursor()
            current, advance = cursor.key, cursor.next
            cursor.seek_to_first()
            while (entry := current()) is not None:
                if len(entry) == width:  # else it is the mark of a run
                    found.append(entry)
                advance()
                if len(found) == WRITE_CHUNK:
                    yield self._table(found)
                    found = []
            cursor.status()
        yield self._table(found)

    def key_bits(self) -> int:
        return 8 * self._key_bytes

    def _table(self, entries: list[Any]) -> Entries:
        return np.frombuffer(b"".join(entries), dtype=np.uint8).reshape(-1, self._key_bytes + 8)

    def _locations(self, entries: list[Any]) -> Locations:
        table = self._table(entries)
        return np.ascontiguousarray(table[:, self._key_bytes :]).view(">u8").ravel().astype(np.uint64)

    def _ordered_cursor(self) -> Any:
        """Over all entries, in their order."""
        return self._cursor(self._total_order())

    def _total_order(self) -> rocksdict.ReadOptions:
        options = rocksdict.ReadOptions()
        options.set_total_order_seek(True)
        return options

    def _cursor(self, options: rocksdict.ReadOptions) -> Any:
        return self._open_reader().iter(options)

    def _open_reader(self) -> rocksdict.Rdict:
        if self._reader is None:
            raise StoreError(f"the index in {self._directory} was not opened.", hint="Refresh it first.")
        return self._reader

    # Both

    def size(self) -> int:
        found = 0
        for file in self._directory.glob("*"):
            with suppress(FileNotFoundError):  # it was just merged or swept
                found += file.stat().st_size
        return found

    def close(self) -> None:
        with self._lock:
            self._close_reader()

    def destroy(self) -> None:
        self.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _open(self, access: rocksdict.AccessType) -> rocksdict.Rdict:
        options = self._options()
        # Options given only as `options` are dropped when a database is opened again.
        families = {"default": options} if (self._directory / "CURRENT").exists() else None
        return rocksdict.Rdict(str(self._directory), options, column_families=families, access_type=access)

    def _options(self) -> rocksdict.Options:
        table = rocksdict.BlockBasedOptions()
        table.set_bloom_filter(10, False)
        # A lookup in a part that was not read before unpacks a block each of the filter, the index and the entries:
        # 44 µs with these sizes, 70 with 4 KiB each. Smaller ones take more bytes a key, and not less time.
        table.set_block_size(2048)
        table.set_block_cache(_block_cache(self._block_bytes))
        # Filters take 10 bits a key. In small parts they live in the cache with the data; whole they are all held in
        # memory or, since they fit into no shard of the cache, read again for every seek, which takes milliseconds.
        table.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
        table.set_partition_filters(True)
        table.set_metadata_block_size(1024)
        table.set_cache_index_and_filter_blocks(True)
        table.set_pin_top_level_index_and_filter(True)
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(table)
        options.set_compression_type(rocksdict.DBCompressionType.zstd())
        options.set_prefix_extractor(rocksdict.SliceTransform.create_fixed_prefix(self._key_bytes))
        options.set_disable_auto_compactions(True)
        options.set_keep_log_file_num(2)
        return options

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """The border: rocksdict raises bare exceptions."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> StoreError:
        text = " ".join(str(error).split())
        kind = IndexDamaged if "orrupt" in text or "No such file" in text or "MANIFEST" in text else StoreError
        # Sync sees that runs are missing, not that a block inside one is damaged.
        hint = _HINT_BLOCK if "orrupt" in text else _HINT
        return kind(f"the index in {self._directory} cannot be used: {text}.", hint=hint)
