"""A lake of one generated table, and DuckDB to compare every answer with.

indexed     lake.sql
plain       lake.engine.sql(use_indexes=False)     must always agree with it
DuckDB      the same query over the same files
"""

from __future__ import annotations

import itertools
import os
import pickle
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from tests.property.generated import Column, FileSpec, TableSpec, rows_of, write
from tests.property.queries import Query

import needlepoint
from needlepoint.errors import SqlError
from needlepoint.lake import Lake
from needlepoint.query.report.explain import StepReport
from needlepoint.query.result import Result
from needlepoint.query.sql.statements import quoted
from needlepoint.tables.schemas import unit_of
from needlepoint.tables.staged_file import StagedFile

TAKEN: Counter[str] = Counter()
"""What the run did, for test_way_taken.py."""

_duck = duckdb.connect()
_duck.execute("SET TimeZone = 'UTC'")
_duck.execute("SET threads = 1")
_duck.execute("SET enable_external_file_cache = false")
_copied: Any = None  # which files DuckDB's table holds
_times = itertools.count(1_700_000_000_000_000_000, 1_000_000_000)


class World:
    def __init__(self, root: Path, spec: TableSpec, **settings: Any) -> None:
        self.root = root
        self.spec = spec
        self.settings = settings
        self.location = root / "t"
        self.files: dict[str, FileSpec] = {}
        self._next_id = 0
        self._names = itertools.count()
        for file in spec.files:
            self.add(file)
        if "costs" in settings:
            # A second read of a file costs nothing, so the columns of the predicate are always read first.
            (root / "costs.json").write_text('{"local": {"file": 0, "request": 0}}')
            settings["costs"] = str(root / "costs.json")
        self.lake: Lake = needlepoint.open(root, refresh=0, **settings)
        self.lake.create_table("t")

    def close(self) -> None:
        self.lake.close()

    def reopen(self) -> None:
        self.lake.close()
        self.lake = needlepoint.open(self.root, refresh=0, **self.settings)

    # Files

    def add(self, file: FileSpec, path: str | None = None) -> str:
        """Write a file; if `path` is given, over the file there."""
        path = path or f"{file.directory}/{next(self._names)}.parquet".lstrip("/")
        self._write(file, self.location / path)
        self.files[path] = file
        return path

    def _write(self, file: FileSpec, path: Path) -> None:
        write(rows_of(self.spec, file, self._next_id), path, file.writer)
        self._next_id += file.rows
        # Two versions of a file must differ in size or time, and the kernel's clock ticks every 4 ms.
        moment = next(_times)
        os.utime(path, ns=(moment, moment))

    def delete(self, path: str) -> None:
        (self.location / path).unlink()
        del self.files[path]

    def publish(self, files: list[FileSpec], batch: str) -> None:
        staging = self.lake.writer.staging("t")
        staged = []
        for number, file in enumerate(files):
            path = staging / file.directory / f"{number}.parquet"
            self._write(file, path)
            staged.append(StagedFile(str(path), file.directory, path.stat().st_size, file.rows))
        self.lake.publish("t", staged, staging, batch)

    # Indexes

    def create_index(self, column: Column, kind: str, embed: bool, name: str, build: bool = True) -> None:
        """The kind must suit the column. A distinct index accepts any number of values, since there are few."""
        options = {"most_values": 1_000_000} if kind == "distinct" else {}
        self.lake.create_index("t", column.name, kind, embed=embed, name=name, build=build, **options)
        TAKEN[f"{kind} indexes"] += 1

    # Queries

    def check(self, query: Query, unlike: str = "") -> None:
        """Where DuckDB's form has the text `unlike`, or DuckDB refuses it, it is not asked; and where the query fails
        without indexes, nothing is compared."""
        if not self._same_partition():
            return
        self._reference()
        if query.view is not None:
            self.lake.sql(f"CREATE VIEW v AS {query.view.lake}")
            _duck.execute(f"CREATE OR REPLACE TEMP VIEW v AS {query.view.duck}")
        try:
            plain = self.lake.engine.sql(query.sql.lake, use_indexes=False)
            indexed = self.lake.sql(query.sql.lake)
        except SqlError:
            if not unlike:
                raise
            TAKEN["failed"] += 1
            return
        finally:
            if query.view is not None:
                self.lake.sql("DROP VIEW v")
        TAKEN["queries"] += 1
        _count(indexed)
        answers = [normalised(table, query.ordered) for table in (indexed.to_arrow(), plain.to_arrow())]
        assert answers[0] == answers[1], self._differ("without indexes", query, answers[1], answers[0], indexed)
        if unlike and unlike in query.sql.duck:
            return
        try:
            expected = normalised(_duck.sql(query.sql.duck).to_arrow_table(), query.ordered)
        except duckdb.Error:
            if not unlike:
                raise
            return
        if answers[0] != expected:
            expected = _unoptimized(query)
        assert answers[0] == expected, self._differ("DuckDB", query, expected, answers[0], indexed)

    def rows(self, where: str = "TRUE") -> Any:
        """All rows that match a condition, according to DuckDB."""
        self._reference()
        return normalised(_duck.sql(f"SELECT * FROM t WHERE {where}").to_arrow_table(), False)

    def keyed(self) -> list[Column]:
        """The columns that `get` takes."""
        # A partition column with only NULL has no type to infer: it is a string, which takes no numbers as keys.
        schema, partition = self.lake.table("t").schema, self.spec.partition
        return [
            column
            for column in self.spec.all_columns
            if column.kind.indexed and (column is not partition or schema.field(column.name).type == column.kind.type)
        ]

    def check_get(self, keys: dict[str, list[Any]], columns: list[str] | None = None) -> None:
        """A lookup answers as the SELECT with the same values. Keys are in the unit of the column's kind; columns that
        have a coarser unit, because all files do, are skipped."""
        schema = self.lake.table("t").schema
        by_name = {column.name: column for column in self.spec.all_columns}
        coarser = [name for name in keys if unit_of(schema.field(name).type) != unit_of(by_name[name].kind.type)]
        if coarser or not self._same_partition():
            return
        self._reference()
        result = self.lake.table("t").get(keys, columns=columns)
        TAKEN["gets"] += 1
        _count(result)
        written = {name: column.sql for name, column in by_name.items()}
        names = columns or self.lake.table("t").schema.names
        conditions = []
        for name, values in keys.items():
            items = ", ".join(by_name[name].kind.literal(value).duck for value in values if value is not None)
            conditions.append(f"{written[name]} IN ({items})" if items else "FALSE")
        wanted = ", ".join(f"{written[name]} AS c{number}" for number, name in enumerate(names))
        query = f"SELECT {wanted} FROM t WHERE {' AND '.join(conditions)}"
        expected = normalised(_duck.sql(query).to_arrow_table(), False)
        found = normalised(result.to_arrow(), False)
        assert found == expected, f"get({keys!r})\n{_difference(expected, found)}\n{result.report}"

    def check_read(self, where: str, columns: list[str] | None = None) -> None:
        """A read in parts, each pickled as for another process, answers as the SELECT with the same condition."""
        if not self._same_partition():
            return
        plan = self.lake.plan_read("t", where, columns)
        parts = [pickle.loads(pickle.dumps(part)) for part in plan.parts]
        TAKEN["parts"] += len(parts)
        found = pa.Table.from_batches([batch for part in parts for batch in part.batches()], plan.schema)
        result = self.lake.sql(f"SELECT {', '.join(map(quoted, plan.schema.names))} FROM t WHERE {where}")
        answers = [normalised(table, False) for table in (result.to_arrow(), found)]
        assert answers[0] == answers[1], f"{where}\n{_difference(*answers)}\n{plan}\n{result.report}"

    def _same_partition(self) -> bool:
        """Whether the partition column has the type of its kind: if it has no value at first, it is a string, and stays
        one."""
        partition = self.spec.partition
        return partition is None or self.lake.table("t").schema.field(partition.name).type == partition.kind.type

    def _reference(self) -> None:
        """The table as DuckDB sees it: these files, in the types of the lake's schema.

        Copied into a table: over Parquet files, DuckDB 2.0 skips row groups by bounds that exclude NaN, and loses the
        rows of `x = NaN`.
        """
        global _copied
        paths = sorted(str(path) for path in self.location.rglob("*.parquet"))
        columns = {column.name: column for column in self.spec.all_columns}
        names = self.lake.table("t").schema.names
        state = ([(path, Path(path).stat().st_mtime_ns) for path in paths], names)
        if state == _copied:
            return
        _copied = state
        if not paths:
            empty = ", ".join(f"CAST(NULL AS {columns[name].kind.duck_type}) AS {columns[name].sql}" for name in names)
            _duck.execute(f"CREATE OR REPLACE TEMP TABLE t AS SELECT {empty} WHERE FALSE")
            return
        listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
        options = "union_by_name = true"
        if self.spec.partition is not None:
            partition = self.spec.partition
            options += f", hive_partitioning = true, hive_types = {{'{partition.name}': '{partition.kind.duck_type}'}}"
        else:
            options += ", hive_partitioning = false"
        source = f"read_parquet([{listed}], {options})"
        there = set(_duck.sql(f"SELECT * FROM {source} LIMIT 0").columns)
        # When files are added or removed, the widest type changes, and a column may be in no file.
        chosen = [(columns[name], columns[name].sql if name in there else "NULL") for name in names]
        wanted = ", ".join(f"CAST({value} AS {column.kind.duck_type}) AS {column.sql}" for column, value in chosen)
        _duck.execute(f"CREATE OR REPLACE TEMP TABLE t AS SELECT {wanted} FROM {source}")

    def _differ(self, other: str, query: Query, expected: Any, found: Any, result: Result) -> str:
        view = f"\nCREATE VIEW v AS {query.view.lake}" if query.view else ""
        return f"differs from {other}: {query.sql.lake}{view}\n{_difference(expected, found)}\n{result.report}"


@contextmanager
def world(spec: TableSpec, **settings: Any) -> Iterator[World]:
    # Not tmp_path: hypothesis runs many examples in one test.
    root = Path(tempfile.mkdtemp(prefix="needlepoint-property-"))
    made = None
    try:
        made = World(root, spec, **settings)
        yield made
    finally:
        if made is not None:
            made.close()
        shutil.rmtree(root, ignore_errors=True)


def _count(result: Result) -> None:
    for table in result.report.tables:
        TAKEN["tables"] += 1
        TAKEN["page reads"] += table.page_read_files > 0
        TAKEN["native scans"] += table.scanned_files > 0
        TAKEN["predicate first"] += table.sifted_files > 0
        TAKEN["row groups left out"] += any(step.step == "by_row_group" and _narrowed(step) for step in table.steps)
        TAKEN["pages left out"] += any(step.step == "by_page" and _narrowed(step) for step in table.steps)
        TAKEN["bloom filters"] += any(index.index.endswith("in the files") for index in table.indexes)
        for kind in ("distinct", "bloom", "text"):
            TAKEN[f"{kind} used"] += any(index.kind == kind and index.used for index in table.indexes)
        TAKEN["both ways"] += table.page_read_files > 0 and table.scanned_files > 0
        TAKEN["files skipped"] += table.files.read < (table.files.total or 0)
        TAKEN["indexes used"] += any(index.used for index in table.indexes)


def _narrowed(step: StepReport) -> bool:
    return step.rows_after < step.rows_before


def normalised(table: pa.Table, ordered: bool) -> Any:
    columns = [_plain_column(column) for column in table.columns]
    rows = list(zip(*columns, strict=True))
    return rows if ordered else Counter(rows)


def _plain_column(column: pa.ChunkedArray) -> list[Any]:
    type = column.type
    if isinstance(type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], type.storage_type)
        type = column.type
    if pa.types.is_timestamp(type):
        column = column.cast(pa.timestamp("ns", type.tz)).cast(pa.int64())
    elif pa.types.is_time(type):
        column = column.cast(pa.time64("ns")).cast(pa.int64())
    return [_plain(value) for value in column.to_pylist()]


def _plain(value: Any) -> Any:
    """A hashable value; equal if the SQL values are equal."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    if isinstance(value, dict):
        return tuple(sorted((name, _plain(each)) for name, each in value.items()))
    if isinstance(value, list):
        return tuple(_plain(each) for each in value)
    if isinstance(value, str) and len(value) == 36 and value.count("-") == 4:
        return uuid.UUID(value).bytes  # DuckDB returns uuids as text
    return value


def _difference(expected: Any, found: Any) -> str:
    if isinstance(expected, list):
        return f"expected {expected[:20]}\nfound    {found[:20]}"
    missing, extra = expected - found, found - expected
    return f"missing {list(missing.items())[:8]}\nextra   {list(extra.items())[:8]}"


def _unoptimized(query: Query) -> Any:
    """DuckDB 2.0 loses rows with NULL in CASE WHEN b = FALSE THEN b ELSE FALSE END IN (FALSE) if no b is TRUE."""
    _duck.execute("PRAGMA disable_optimizer")
    try:
        return normalised(_duck.sql(query.sql.duck).to_arrow_table(), query.ordered)
    finally:
        _duck.execute("PRAGMA enable_optimizer")
