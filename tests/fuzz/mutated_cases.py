"""One mutated file after the other, in a process with little memory: `python -m tests.fuzz.mutated_cases`.

For each of them, a query returns the rows of the file or raises a NeedlepointError that says what is wrong. An index
never changes an answer.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import random
import resource
import shutil
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datafusion
import pyarrow as pa
import pyarrow.parquet as pq
from tests.fuzz import mutated_bases, mutations
from tests.fuzz.mutated_bases import BASES, ROWS, WORDS, Base
from tests.fuzz.mutated_payloads import damaged_card, damaged_payload
from tests.fuzz.mutations import Mutated

import needlepoint
from needlepoint import Lake, NeedlepointError
from needlepoint.objects import open_object
from needlepoint.parquet.format.footer import read_footer
from needlepoint.parquet.inspect.anatomy import inspect, inspect_pages
from needlepoint.parquet.write.embed import Payload, embed
from needlepoint.parquet.write.embedded import embedded, read_payload
from needlepoint.stores import PackPiece

MORE_MEMORY = 5 << 30  # in addition to what a process has after it ran queries over intact files
LARGEST_FILE = 1 << 30
SLOW = 20.0  # seconds per case

Rows = Counter[str]

BAD = "bad.parquet"


class Finding(Exception):
    """A wrong answer, a crash, an unclear error or a slow case."""


def _counted(table: pa.Table) -> Rows:
    return Counter(map(repr, zip(*(_values(column) for column in table.columns), strict=True)))


def _flat(table: pa.Table) -> Rows:
    """Rows without nested columns: if a damaged map has different numbers of keys and values, arrow-rs pairs them
    differently in a scan and in a read of some pages."""
    return _counted(table.select([field.name for field in table.schema if not pa.types.is_nested(field.type)]))


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Python values; as stored, if Python may not have them: years beyond 9999, text that is not UTF-8."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.binary())
    return column.to_pylist()


class Cases:
    """A lake in a directory of its own, and the cases that run on it."""

    def __init__(self, template: Path, directory: Path, seed: int) -> None:
        self._template, self._root, self._seed = template, directory / "lake", seed
        self._lakes: list[Lake] = []
        self._originals = {base.name: (template / base.name / BAD).read_bytes() for base in BASES}
        self._plain = datafusion.SessionContext()
        self._restore()

    def _restore(self) -> None:
        """Copy the lake from its template. The registry has the paths of the tables, so update them."""
        self.close()
        shutil.rmtree(self._root, ignore_errors=True)
        shutil.copytree(self._template, self._root)
        with contextlib.closing(sqlite3.connect(self._root / ".needlepoint" / "registry.db")) as registry, registry:
            registry.execute(
                "UPDATE tables SET location = replace(location, ?, ?)", (str(self._template), str(self._root))
            )
        self._open()

    def _open(self) -> None:
        options: dict[str, Any] = {"refresh": 0, "workers": 1, "history": "off"}
        self._lakes = [needlepoint.open(self._root, access=access, **options) for access in ("pages", "scan")]

    def close(self) -> None:
        for lake in self._lakes:
            lake.close()
        self._lakes = []

    def run(self, number: int) -> str:
        """Run a case and return what it did; raise a Finding if it failed."""
        chance = random.Random(f"{self._seed} {number}")
        case = chance.choices((self._file, self._payload, self._store, self._work), (72, 12, 8, 8))[0]
        started = time.monotonic()
        what = ""
        try:
            steps = case(chance)
            what = next(steps)  # the description of the damage; the other steps check its effects
            for _ in steps:
                pass
        except Finding as finding:
            self._restore()
            raise Finding(f"{what}: {finding}") from finding.__cause__
        if time.monotonic() - started > SLOW:
            raise Finding(f"{what}: took {time.monotonic() - started:.0f} s")
        return what

    # Files

    def _file(self, chance: random.Random) -> Iterator[str]:
        base = chance.choice(BASES)
        mutated = mutations.mutated(self._originals[base.name], chance)
        self._put(base, mutated.data)
        synced = chance.random() < 0.5
        yield f"{base.name}, {'synced' if synced else 'not synced'}: {mutated.what}"
        if synced:
            self._allowed(lambda: self._lakes[0].sync(base.name))
        self._ask(base, chance, mutated)
        if chance.random() < 0.2:
            self._inspect(base)

    def _put(self, base: Base, data: bytes) -> Path:
        path = self._root / base.name / BAD
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        return path

    def _inspect(self, base: Base) -> None:
        path = str(self._root / base.name / BAD)
        self._allowed(lambda: inspect(path))
        self._allowed(lambda: inspect_pages(path, "code"))

    def _ask(self, base: Base, chance: random.Random, mutated: Mutated) -> None:
        """Compare every answer by index with a scan, and with a filter over all rows of the table."""
        table = base.name
        whole = self._allowed(lambda: self._scanned(f"SELECT * FROM {table}"))
        for query in self._queries(base, chance):
            scanned = self._allowed(lambda query=query: self._scanned(query))
            indexed = self._allowed(lambda query=query: self._lakes[0].sql(query).to_arrow())
            if indexed is None:
                continue
            shown = _flat if mutated.untrue else _counted
            found = shown(indexed)
            expected = [shown(each) for each in (scanned, self._filtered(whole, table, query)) if each is not None]
            if any(found == each for each in expected) or not expected:
                continue
            if mutated.untrue and any(found <= each for each in expected):
                continue
            if mutated.untrue and self._pyarrow_agrees(base, query, found):
                continue
            raise Finding(f"{query}: {_difference(found, expected)}")

    def _scanned(self, query: str) -> pa.Table:
        return self._lakes[1].engine.sql(query, use_indexes=False).to_arrow()

    def _filtered(self, whole: pa.Table | None, table: str, query: str) -> pa.Table | None:
        """The answer to a query over all rows in memory, where nothing can be skipped."""
        if whole is None:
            return None
        self._plain.register_record_batches(table, [whole.combine_chunks().to_batches()])
        try:
            return self._plain.sql(query).to_arrow_table()
        finally:
            self._plain.deregister_table(table)

    def _pyarrow_agrees(self, base: Base, query: str, found: Rows) -> bool:
        """Whether pyarrow reads these rows, from the damaged file or as it was: readers may decode damaged pages
        differently."""
        paths = sorted((self._root / base.name).glob("*.parquet"))
        for damaged in (None, pa.BufferReader(self._originals[base.name])):
            try:
                parts = [pq.read_table(damaged if damaged and path.name == BAD else path) for path in paths]
                whole = pa.concat_tables(parts, promote_options="permissive")
            except Exception:
                continue
            filtered = self._filtered(whole, base.name, query)
            if filtered is not None and found <= _flat(filtered):
                return True
        return False

    def _queries(self, base: Base, chance: random.Random) -> list[str]:
        known = chance.randrange(2000, 2000 + ROWS)
        word = chance.choice(WORDS)
        rows = mutated_bases.rows(2, base.nested)
        code = rows.column("code")[chance.randrange(ROWS)].as_py()
        at = rows.column("moment")[chance.randrange(ROWS)].as_py()
        questions = [
            f"id = {known}",
            f"id IN ({known}, {known + 3}, 1005)",
            f"id BETWEEN {known} AND {known + 8}",
            f"code = '{code}'",
            f"tag = '{word}'",
            f"small = {chance.randrange(50)}",
            f"title LIKE '%{word} {chance.choice(WORDS)}%'",
            f"moment = TIMESTAMP '{at}'",
            "price > 50",
            "day IS NULL AND small < 20",
            f"amount > {chance.randrange(10000)}",
        ]
        columns = chance.choice(("*", "id, code, title", "id, tag, price", "id, small, day, amount", "id"))
        chosen = chance.sample(questions, 2)
        return [f"SELECT {columns} FROM {base.name} WHERE {question}" for question in chosen] + (
            [f"SELECT count(*) FROM {base.name}"] if chance.random() < 0.3 else []
        )

    # Payloads

    def _payload(self, chance: random.Random) -> Iterator[str]:
        """An embedded index: damaged, or forged with correct checksums."""
        base = next(base for base in BASES if base.embed)
        path = self._put(base, self._originals[base.name])
        with open_object(str(path)) as file:
            entries = embedded(file, read_footer(file)).entries
            entry = chance.choice(entries)
            data = read_payload(file, entry)
        forged = chance.random() < 0.7
        if forged:
            changed, what = damaged_payload(entry.kind, data, chance)
            payload = Payload(entry.kind, entry.columns, entry.version, changed, entry.options)
            embed(str(path), [payload])
        else:
            stored = bytearray(path.read_bytes())
            at = chance.randrange(entry.offset, entry.offset + entry.length)
            stored[at] ^= 1 << chance.randrange(8)
            what = "a bit"
            self._put(base, bytes(stored))
        yield f"payload {entry.name}: {what}"
        self._allowed(lambda: self._lakes[0].sync(base.name))
        # A forged payload may hide rows, and no reader can detect that.
        self._ask(base, chance, Mutated(b"", what, untrue=forged))
        if chance.random() < 0.2:
            self._inspect(base)
            self._allowed(lambda: self._lakes[0].rebuild(base.name))

    # The store

    def _store(self, chance: random.Random) -> Iterator[str]:
        """Damage cards, zone maps and packs."""
        base = chance.choice([base for base in BASES if base.indexed and not base.embed])
        self._put(base, self._originals[base.name])
        self._lakes[0].sync(base.name)
        self.close()
        store = self._root / ".needlepoint"
        forged = chance.random() < 0.5
        packs = sorted(store.glob("indexes/*/*.pack"), key=lambda pack: (pack.parent.name, pack.stat().st_size))
        if chance.random() < 0.3 and packs:
            pack = chance.choice(packs)
            data = bytearray(pack.read_bytes())
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            pack.unlink()
            pack.write_bytes(data)
            what, forged = f"a bit of {pack.name}", False
        else:
            what = self._change_card(store, chance, forged)
        shutil.rmtree(store / "unpacked", ignore_errors=True)
        yield f"store of {base.name}: {what}"
        self._open()
        # A forged card can say that any bytes are a page: only crashes count then.
        with contextlib.suppress(Finding) if forged else contextlib.nullcontext():
            self._ask(base, chance, Mutated(b"", what, untrue=forged))
        self._restore()

    @staticmethod
    def _change_card(store: Path, chance: random.Random, forged: bool) -> str:
        """Put another card, or zone map, of the newest file behind the end of its pack, where the registry finds it."""
        table, prefix, key = chance.choice((("cards", "", "rowid"),) * 2 + (("bounds", "zone_", "column_name"),))
        what = "nothing to change"
        with contextlib.closing(sqlite3.connect(store / "registry.db")) as registry, registry:
            newest = "SELECT max(id) FROM files"
            pieces = f"SELECT {key}, {prefix}start, {prefix}length FROM {table} WHERE file_id = ({newest})"
            held = registry.execute(f"{pieces} AND {prefix}start IS NOT NULL").fetchall()
            query = f"SELECT id, name FROM card_packs JOIN cards ON pack_id = id WHERE file_id = ({newest})"
            for pack_id, name in registry.execute(query).fetchall():
                pack = store / "cards" / name
                data = pack.read_bytes()
                for row, start, length in held:
                    changed, what = damaged_card(data[start : start + length], chance, forged)
                    piece = PackPiece.of(len(data), changed)
                    data += changed
                    registry.execute(
                        f"UPDATE {table} SET {prefix}start = ?, {prefix}length = ?, {prefix}checksum = ? "
                        f"WHERE file_id = ({newest}) AND {key} = ?",
                        (piece.start, piece.length, piece.checksum, row),
                    )
                pack.unlink()
                pack.write_bytes(data)
                registry.execute("UPDATE card_packs SET size = ? WHERE id = ?", (len(data), pack_id))
        return f"{table}: {what}"

    # Work on files

    def _work(self, chance: random.Random) -> Iterator[str]:
        """Maintenance that rewrites files or adds to them never crashes, and keeps the rows."""
        base = chance.choice(BASES)
        mutated = mutations.mutated(self._originals[base.name], chance)
        self._put(base, mutated.data)
        way = chance.randrange(5)
        yield f"{base.name}, {('compact', 'retrofit', 'delete', 'verify', 'create_index')[way]}: {mutated.what}"
        lake = self._lakes[0]
        before = self._allowed(lambda: self._scanned(f"SELECT * FROM {base.name}"))
        works: list[Callable[[], object]] = [
            lambda: lake.compact(base.name),
            lambda: lake.retrofit(base.name, bloom=["id"]),
            lambda: lake.delete(base.name, "id = 2003"),
            lambda: (lake.sync(base.name), lake.verify(base.name, samples=4, seed=1)),
            lambda: lake.create_index(base.name, "day", kind="distinct", name=f"{base.name}_day", embed=True),
        ]
        self._allowed(works[way])
        after = self._allowed(lambda: self._scanned(f"SELECT * FROM {base.name}"))
        if before is not None and after is not None and way in (0, 1, 4) and _counted(before) != _counted(after):
            raise Finding(f"other rows afterwards: {_difference(_counted(after), [_counted(before)])}")
        self._restore()

    @staticmethod
    def _allowed(ask: Callable[[], Any]) -> Any:
        """The result, or None for an error that says what is wrong."""
        try:
            return ask()
        except NeedlepointError as error:
            if len(str(error)) > 3000:
                raise Finding(f"an error of {len(str(error))} letters") from error
            return None
        except Finding:
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            raise Finding(f"{type(error).__module__}.{type(error).__name__}: {str(error)[:300]}") from error


def _difference(found: Rows, expected: list[Rows]) -> str:
    wanted = expected[-1]
    more, less = list((found - wanted).elements())[:2], list((wanted - found).elements())[:2]
    return f"{found.total()} rows, not {wanted.total()}; too many {more}; missing {less}"[:700]


def _limit_memory() -> None:
    """Limit the address space; threads and databases have already reserved theirs."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    if pages:
        most = pages * resource.getpagesize() + MORE_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Print lines of JSON: the number of a case before it begins, then its outcome."""
    template, directory, seed, first, last = Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:6])
    out = os.fdopen(os.dup(1), "w")
    faulthandler.enable()

    def say(**facts: object) -> None:
        out.write(json.dumps(facts) + "\n")
        out.flush()

    cases = Cases(template, directory, seed)
    for base in BASES:  # load what every process needs before its memory is limited
        cases._ask(base, random.Random(0), Mutated(b"", ""))
    _limit_memory()
    with contextlib.redirect_stdout(io.StringIO()):
        for number in range(first, last):
            say(begin=number)
            try:
                what = cases.run(number)
                say(done=number, what=what)
            except Finding as finding:
                say(done=number, finding=str(finding))
    cases.close()


if __name__ == "__main__":
    main()
