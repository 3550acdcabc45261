"""Generated tables: columns with pools of values, files that pick from them, and the writers of the files."""

from __future__ import annotations

import datetime
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from tests.property.kinds import BY_NAME, KINDS, Kind

# Names that need quotes in SQL, in schema paths and in DataFusion's expressions.
NAMES = ("a", "b c", "Größe", "select", "A.b", 'q"q', "P", "x")
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
MOST_ROWS = 80
MIXES = (("pyarrow",), ("pyarrow", "duckdb"), ("pyarrow", "duckdb", "polars"), ("duckdb",))
"""Programs that write the files of one table."""


@dataclass(frozen=True)
class Column:
    """Files pick their values from `pool`; None is NULL."""

    name: str
    kind: Kind
    pool: tuple[Any, ...]

    @property
    def sql(self) -> str:
        return '"' + self.name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Writer:
    program: str
    options: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class FileSpec:
    """A file to write: `seed` picks its rows; they are sorted by column `sorted_by` unless that is empty."""

    directory: str
    rows: int
    seed: int
    writer: Writer
    without: frozenset[str] = frozenset()
    narrow: tuple[tuple[str, pa.DataType], ...] = ()
    sorted_by: str = ""


@dataclass(frozen=True)
class TableSpec:
    columns: tuple[Column, ...]
    partition: Column | None
    files: tuple[FileSpec, ...]
    programs: tuple[str, ...]

    @property
    def all_columns(self) -> tuple[Column, ...]:
        return self.columns if self.partition is None else (*self.columns, self.partition)


@st.composite
def tables(draw: DrawFn, mixes: Sequence[tuple[str, ...]] = MIXES, most_files: int = 4) -> TableSpec:
    programs = draw(st.sampled_from(mixes))
    possible = [kind for kind in KINDS if kind.writers.issuperset(programs)]
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    columns = [Column("id", BY_NAME["int64"], ()), *(draw(_columns(name, possible)) for name in names)]
    partition = draw(st.none() | _partitions())
    spec = TableSpec(tuple(columns), partition, (), programs)
    # The first file has every column in its full type, so the table has them too.
    first = replace(draw(files(spec)), without=frozenset(), narrow=())
    others = draw(st.lists(files(spec), max_size=most_files - 1))
    return replace(spec, files=(first, *others))


@st.composite
def _columns(draw: DrawFn, name: str, kinds: Sequence[Kind]) -> Column:
    kind = draw(st.sampled_from(kinds))
    pool = draw(st.lists(kind.values, min_size=1, max_size=8))
    nulls = draw(st.sampled_from([0, 0, 1, 3]))
    return Column(name, kind, (*pool, *[None] * nulls))


@st.composite
def _partitions(draw: DrawFn) -> Column:
    """Hive values are integers, dates or strings; no string may look like another type, which the column would get."""
    name = draw(st.sampled_from(["part", "Teil"]))
    values = {
        "int64": st.integers(-3, 2025),
        "date": st.dates(datetime.date(2024, 1, 1), datetime.date(2024, 1, 9)),
        "string": st.sampled_from(["a/b", "50%", "ü", "a b", "a=b", "x", "y", "Z", "a'b", "a+b", "a:b", "#", "?"]),
    }
    kind = draw(st.sampled_from(sorted(values)))
    pool = draw(st.lists(values[kind], min_size=1, max_size=4, unique=True))
    nulls = [None] if draw(st.booleans()) else []
    return Column(name, BY_NAME[kind], (*pool, *nulls))


@st.composite
def files(draw: DrawFn, spec: TableSpec) -> FileSpec:
    without = draw(st.just([]) | st.lists(st.sampled_from([c.name for c in spec.columns[1:]]), max_size=1))
    narrow = []
    for column in spec.columns:
        if column.kind.narrower and draw(st.integers(0, 3)) == 0:
            type = draw(st.sampled_from(column.kind.narrower))
            if column.name == "id" and type.bit_width < 32:
                continue
            narrow.append((column.name, type))
    directory = ""
    if spec.partition is not None:
        value = draw(st.sampled_from(spec.partition.pool))
        directory = f"{spec.partition.name}={hive(value)}"
    return FileSpec(
        directory,
        draw(st.integers(0, 3) | st.integers(10, MOST_ROWS) | st.integers(40, MOST_ROWS)),
        draw(st.integers(0, 2**16)),
        draw(writers(spec.programs)),
        frozenset(without),
        tuple(narrow),
        draw(st.sampled_from(["", *(c.name for c in spec.columns if c.kind.indexed)])),
    )


def hive(value: Any) -> str:
    return HIVE_NULL if value is None else quote(str(value), safe="")


@st.composite
def writers(draw: DrawFn, programs: Sequence[str]) -> Writer:
    program = draw(st.sampled_from(programs))
    options: dict[str, SearchStrategy[Any]] = {
        "pyarrow": st.fixed_dictionaries(
            {
                "row_group_size": st.sampled_from([7, 30, 100]),
                "max_rows_per_page": st.sampled_from([1, 3, 10, 1000]),
                "write_batch_size": st.sampled_from([1, 2, 8]),
                "data_page_size": st.sampled_from([16, 200, 1 << 20]),
                "use_dictionary": st.booleans(),
                "data_page_version": st.sampled_from(["1.0", "2.0"]),
                "compression": st.sampled_from(["snappy", "zstd", "none"]),
                "write_page_index": st.sampled_from([True, True, False]),
                "write_statistics": st.sampled_from([True, True, False]),
                "store_schema": st.sampled_from([True, True, False]),
                "bloom_filters": st.booleans(),
                "int96": st.booleans(),
            }
        ),
        "duckdb": st.fixed_dictionaries(
            {
                "ROW_GROUP_SIZE": st.sampled_from([10, 2048]),
                "COMPRESSION": st.sampled_from(["snappy", "zstd", "uncompressed"]),
                # Not v2: DataFusion cannot read DuckDB's DELTA_BINARY_PACKED of small integers ('min_delta' too large).
                "PARQUET_VERSION": st.just("v1"),
            }
        ),
        "polars": st.fixed_dictionaries(
            {
                "row_group_size": st.sampled_from([7, 30, 100]),
                "data_page_size": st.sampled_from([16, 200, 1 << 20]),
                "compression": st.sampled_from(["snappy", "zstd", "uncompressed"]),
                "statistics": st.sampled_from([True, False, "full"]),
            }
        ),
        "spark": st.fixed_dictionaries(
            {
                "parquet.page.row.count.limit": st.sampled_from([3, 20_000]),
                "parquet.block.row.count.limit": st.sampled_from([20, 1_000_000]),
                "parquet.enable.dictionary": st.sampled_from(["true", "false"]),
                "parquet.writer.version": st.sampled_from(["PARQUET_1_0", "PARQUET_2_0"]),
                "compression": st.sampled_from(["snappy", "zstd", "none"]),
            }
        ),
    }[program]
    return Writer(program, tuple(draw(options).items()))


def rows_of(spec: TableSpec, file: FileSpec, first_id: int) -> pa.Table:
    chance = random.Random(file.seed)
    narrow = dict(file.narrow)
    picked: dict[str, list[Any]] = {}
    for column in spec.columns:
        if column.name == "id":
            picked["id"] = list(range(first_id, first_id + file.rows))
            continue
        type = narrow.get(column.name)
        pool = [v for v in column.pool if type is None or column.kind.fits(v, type)] or [None]
        # Some files use only a part of the pool, so their bounds exclude the rest.
        pool = pool[: chance.randint(1, len(pool))] if chance.random() < 0.5 else pool
        picked[column.name] = [chance.choice(pool) for _ in range(file.rows)]
    if file.sorted_by:
        keys = picked[file.sorted_by]
        order = sorted(range(file.rows), key=lambda row: (keys[row] is None, 0 if keys[row] is None else keys[row]))
        picked = {name: [values[row] for row in order] for name, values in picked.items()}
    kept = [column for column in spec.columns if column.name not in file.without]
    return pa.table([c.kind.array(picked[c.name], narrow.get(c.name)) for c in kept], names=[c.name for c in kept])


spark_sessions: list[Any] = []
"""The session that writes Spark's files; the test that has a session appends it."""

_writing = duckdb.connect()
_writing.execute("SET TimeZone = 'UTC'")


def _fits_int96(rows: pa.Table) -> bool:
    """INT96, as Spark and Impala used to write it, has nanoseconds, no bounds and no zone. DuckDB truncates it to
    microseconds."""
    times = [column for column in rows.columns if pa.types.is_timestamp(column.type)]
    if any(column.type != pa.timestamp("ns") for column in times):
        return False
    return all((value or 0) % 1000 == 0 for column in times for value in column.cast(pa.int64()).to_pylist())


def write(rows: pa.Table, path: Path, writer: Writer) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    options = dict(writer.options)
    match writer.program:
        case "pyarrow":
            wanted = options.pop("bloom_filters", False)
            # pyarrow writes bloom filters only for flat columns, and not for booleans.
            flat = [
                f.name for f in rows.schema if not (pa.types.is_nested(f.type) or f.type in (pa.bool_(), pa.null()))
            ]
            blooms = {name: {"ndv": 50} for name in flat} if wanted else None
            int96 = options.pop("int96", False) and _fits_int96(rows)
            pq.write_table(rows, path, bloom_filter_options=blooms, use_deprecated_int96_timestamps=int96, **options)
        case "polars":
            polars.DataFrame(rows).write_parquet(path, **options)
        case "duckdb":
            given = ", ".join(f"{name} {value}" for name, value in options.items())
            _writing.register("written", rows)
            _writing.execute(f"COPY written TO '{str(path).replace(chr(39), chr(39) * 2)}' (FORMAT parquet, {given})")
            _writing.unregister("written")
        case "spark":
            staged = path.parent / f"_{path.stem}"
            frame = spark_sessions[-1].createDataFrame(rows).coalesce(1)
            frame.write.options(**options).parquet(str(staged))
            (part,) = staged.glob("*.parquet")
            part.rename(path)
            shutil.rmtree(staged)
