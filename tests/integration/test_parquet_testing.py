"""Every file of apache/parquet-testing that pyarrow reads, row by row and in random subsets, and as a table of a lake:
page reads, indexes, scans and pyarrow agree. Files that are bad on purpose give a clear error or rows, and no crash.

git clone --depth 1 https://github.com/apache/parquet-testing
NEEDLE_PARQUET_TESTING=parquet-testing make test
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import SessionContext

import needlepoint
from needlepoint.errors import NotIndexable, NotParquet, SqlError
from needlepoint.lake import Lake
from needlepoint.parquet.card.card import FileCard
from needlepoint.parquet.card.describe import build_card
from needlepoint.parquet.read import dictionaries
from needlepoint.parquet.read.caches import Caches
from needlepoint.parquet.read.page_reader import read_rows
from needlepoint.parquet.write.embed import Payload, embed
from needlepoint.parquet.write.retrofit import retrofit
from needlepoint.tables.schemas import plain_schema

VARIABLE = "NEEDLE_PARQUET_TESTING"
DIRECTORY = os.environ.get(VARIABLE, "")
EVERY = (
    sorted(path.relative_to(DIRECTORY).as_posix() for path in Path(DIRECTORY).rglob("*.parquet")) if DIRECTORY else []
)
FILES = [name for name in EVERY if "bad_data/" not in name]
BAD = [name for name in EVERY if "bad_data/" in name]
# Up to this many rows are read one by one; of longer files, only every nth row.
MOST_ROWS = 60
# Files that pyarrow cannot read, with its reason.
UNREADABLE = {
    "incorrect_map_schema.parquet": "Map keys must be annotated as required",
    "large_string_map.brotli.parquet": "not implemented for chunked array outputs",
}
# Files that DataFusion cannot scan, with its reason. Page reads can.
UNSCANNABLE = {
    "dict-page-offset-zero.parquet": "Expected list element type of I64 but got I16",
    "nation.dict-malformed.parquet": "Invalid page header",
}
# pyarrow reads Spark's year 290000 incorrectly (int96_from_spark.md has the correct number).
CORRECTED = {"int96_from_spark.parquet": {-7188624036226874385: 9089380393200000000}}
# Files that we refuse, with our reason: libraries disagree about their rows.
REFUSED = {"repeated_no_annotation.parquet": "it counts 0 rows, and its row groups have 6"}


@pytest.fixture(scope="module", autouse=True)
def collection() -> None:
    if not DIRECTORY:
        pytest.skip(f"{VARIABLE} does not name the data directory of apache/parquet-testing")
    assert FILES, f"no Parquet files in {VARIABLE}={DIRECTORY}"


@pytest.mark.parametrize("name", FILES or ["(none)"])
def test_same_rows_as_pyarrow(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionaries, "SMALLEST_KEPT", 1)
    caches = Caches.of(1 << 24, 1 << 24)
    path = str(Path(DIRECTORY) / name)
    table = read(path)
    card = FileCard.from_bytes(build_card(path).to_bytes())
    assert card.arrow_schema.equals(table.schema, check_metadata=True)
    random = np.random.default_rng(len(name))
    count = table.num_rows
    subsets = [np.array([row]) for row in range(0, count, max(1, count // MOST_ROWS))]
    subsets += [np.flatnonzero(random.random(count) < share) for share in (0.1, 0.5, 1.0)]
    for rows in subsets:
        expected = table.take(pa.array(rows, pa.int64()))
        for kept in (None, caches):
            found, _ = read_rows(path, card, table.column_names, rows, kept)
            found.validate(full=True)
            assert found.schema.equals(expected.schema, check_metadata=True)
            assert same(found, expected)


def read(path: str, name: str = "") -> pa.Table:
    """Read with pyarrow, but INT96 as we read it. Skip the test if pyarrow cannot read the file, or if we refuse it."""
    name = name or Path(path).name
    if name in REFUSED:
        with pytest.raises(NotParquet, match=REFUSED[name]):
            build_card(path)
        pytest.skip(REFUSED[name])
    try:
        table = pq.read_table(path, partitioning=None, coerce_int96_timestamp_unit="us")
    except (pa.ArrowException, OSError) as error:
        assert UNREADABLE[name] in str(error)
        pytest.skip(f"pyarrow cannot read it: {error}")
    return corrected(table, CORRECTED.get(name, {}))


def same(found: pa.Table, expected: pa.Table) -> bool:
    # NaN does not equal NaN, but is the same answer.
    return found.equals(expected) or repr(found.to_pylist()) == repr(expected.to_pylist())


@pytest.mark.parametrize("name", FILES or ["(none)"])
def test_same_rows_after_indexes_were_added(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    path.write_bytes((Path(DIRECTORY) / name).read_bytes())
    before = read(str(path), Path(name).name)
    embed(str(path), [Payload("key", (), 1, b"payload")])
    retrofit(str(path))
    assert same(read(str(path), Path(name).name), before)
    card = build_card(str(path))
    rows = np.flatnonzero(np.random.default_rng(1).random(card.num_rows) < 0.1)
    found, _ = read_rows(str(path), card, card.arrow_schema.names, rows)
    assert same(found, before.take(pa.array(rows, pa.int64())))


MOST_COLUMNS = 5  # columns of a file with conditions and indexes
WAYS = {"pages": ("pages", None), "scan": ("scan", None), "key": ("pages", "key"), "distinct": ("pages", "distinct")}


@pytest.mark.parametrize("name", FILES or ["(none)"])
def test_every_way_gives_the_rows_of_pyarrow(name: str, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    path = tmp_path / "t" / "file.parquet"
    path.write_bytes((Path(DIRECTORY) / name).read_bytes())
    expected = plain(read(str(path), Path(name).name))
    memory = SessionContext()
    memory.from_arrow(expected, "t")
    queries = [f"SELECT {column} FROM t WHERE {where}" for column, where in conditions(expected)]
    answers = {query: rows(memory.sql(query).to_arrow_table()) for query in queries}
    for number, (access, kind) in enumerate(WAYS.values()):
        with needlepoint.open(tmp_path, access=access) as lake:
            if number == 0:
                lake.create_table("t")
            indexed(lake, kind)
            for query, answer in {"SELECT * FROM t": rows(expected), **answers}.items():
                try:
                    found = rows(lake.sql(query).to_arrow())
                except SqlError as error:
                    assert UNSCANNABLE[Path(name).name] in str(error)
                    continue
                assert found == answer, (access, kind, query)


def corrected(table: pa.Table, known: dict[int, int]) -> pa.Table:
    if not known:
        return table
    (column,) = table.columns
    numbers = [known.get(number, number) for number in column.cast(pa.int64()).to_pylist()]
    return pa.table([pa.array(numbers, pa.int64()).cast(column.type)], schema=table.schema)


def indexed(lake: Lake, kind: str | None) -> None:
    """Replace all indexes with indexes of this kind, on the first columns that can have one."""
    table = lake.registry.tables.get("t")
    for index in lake.registry.indexes.of(table):
        lake.drop_index(index.name)
    for column in table.schema.names[:MOST_COLUMNS] if kind else ():
        try:
            lake.create_index("t", column, kind=kind or "key")
        except NotIndexable:
            continue


def plain(table: pa.Table) -> pa.Table:
    """The rows in the types that a table of a lake has."""
    arrays = [
        column.combine_chunks().storage if isinstance(column.type, pa.BaseExtensionType) else column
        for column in table.columns
    ]
    return pa.table(arrays, names=table.column_names).cast(plain_schema(table.schema))


def rows(table: pa.Table) -> list[str]:
    """The rows as sorted text."""
    return sorted(map(repr, zip(*map(values, table.columns), strict=True)))


def values(column: pa.ChunkedArray) -> list[object]:
    """Python values; text where Python has none, such as a datetime in the year 290000."""
    try:
        return column.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(column.type) else column.to_pylist()
    except OverflowError:
        return [chunk.slice(row, 1).to_string() for chunk in column.chunks for row in range(len(chunk))]


def conditions(table: pa.Table) -> Iterator[tuple[str, str]]:
    for field in list(table.schema)[:MOST_COLUMNS]:
        name = '"' + field.name.replace('"', '""') + '"'
        yield name, f"{name} IS NULL"
        yield name, f"{name} IS NOT NULL"
        column = table.column(field.name).drop_null()
        if pa.types.is_nested(field.type) or not len(column):
            continue
        found = [literal(column[place]) for place in (0, len(column) // 2)]
        for value in filter(None, dict.fromkeys(found)):
            for operator in ("=", "<>", "<", ">="):
                yield name, f"{name} {operator} {value}"
        if None not in found:
            yield name, f"{name} BETWEEN {found[0]} AND {found[1]}"
            yield name, f"{name} IN ({', '.join(map(str, found))})"


def literal(value: pa.Scalar) -> str | None:
    """The value as a SQL literal; None for types without literals."""
    type = value.type
    if pa.types.is_boolean(type) or pa.types.is_integer(type):
        return str(value.as_py())
    if pa.types.is_float32(type) or pa.types.is_float64(type):
        return f"CAST('{value.as_py()!r}' AS DOUBLE)"
    if pa.types.is_string(type):
        return "'" + value.as_py().replace("'", "''") + "'"
    if pa.types.is_binary(type):
        return f"X'{value.as_py().hex()}'"
    if pa.types.is_decimal128(type):
        return f"CAST('{value.as_py():f}' AS DECIMAL({type.precision}, {type.scale}))"
    if pa.types.is_timestamp(type):
        unit = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}[type.unit]
        zone = "None" if type.tz is None else f'Some("{type.tz}")'
        return f"arrow_cast({value.value}, 'Timestamp({unit}, {zone})')"
    return f"DATE '{value.as_py()}'" if pa.types.is_date32(type) else None


ASK = """
import sys
import needlepoint
from needlepoint.errors import NeedlepointError

def attempt(what, ask):
    try:
        print(what, "gives", ask())
    except NeedlepointError as error:
        print(what, "is refused:", error)

for access in ("pages", "scan"):
    with needlepoint.open(sys.argv[1], access=access) as lake:
        if access == "pages":
            attempt("create-table", lambda: lake.create_table("t"))
        if not lake.registry.tables.all():
            break
        columns = lake.registry.tables.get("t").schema.names[:6]
        for column in columns if access == "pages" else ():
            if not any(letter in str(lake.registry.tables.get("t").schema.field(column).type) for letter in "<["):
                attempt("create-index", lambda: lake.create_index("t", column))
        name = columns[0].replace('"', '""')
        for query in ("SELECT * FROM t", f'SELECT * FROM t WHERE "{name}" IS NOT NULL', "SELECT count(*) FROM t"):
            attempt(query, lambda: len(lake.sql(query).to_arrow()))
"""


@pytest.mark.parametrize("name", BAD or ["(none)"])
def test_bad_files_give_clear_errors_and_no_crash(name: str, tmp_path: Path) -> None:
    if not BAD:
        pytest.skip(f"{VARIABLE} names no directory with bad_data")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "file.parquet").write_bytes((Path(DIRECTORY) / name).read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stdout[-2000:]} {done.stderr[-4000:]}"
