"""Files of one table may have a column in different units: the table has the finest, and all access paths agree."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cases import cases, long
from tests.lakes import staged

import needlepoint
from needlepoint.errors import SchemaConflict
from needlepoint.indexer.pools import InlinePool
from needlepoint.lake import Lake
from needlepoint.query.report.explain import TableReport

ROWS = 400
START = int(datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC).timestamp())
PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}
UNITS = {"int96": "us", "ns": "ns", "us": "us", "ms": "ms"}
SENTINEL = datetime.datetime(9999, 12, 31)
ZONE = "Europe/Berlin"
TIMES = (pa.time32("ms"), pa.time64("us"), pa.time64("ns"))


def ticks(number: int, unit: str) -> list[int]:
    """Every file has times on the same two days; those in finer units fall between the coarser ones."""
    first = {"ms": 0, "us": 1, "ns": 1}[unit]
    return [START * PER_SECOND[unit] + row * 432 * PER_SECOND[unit] + first * (row % 3) for row in range(ROWS)]


def write(path: Path, kind: str, number: int, zone: str | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unit = UNITS[kind]
    times = pa.array(ticks(number, unit), pa.timestamp(unit, zone))
    pq.write_table(
        pa.table({"i": range(number * ROWS, (number + 1) * ROWS), "t": times}), path, row_group_size=100,
        max_rows_per_page=20, write_batch_size=10, use_dictionary=False, write_page_index=True,
        use_deprecated_int96_timestamps=kind == "int96", coerce_timestamps=None,
    )  # fmt: skip


def everything(kinds: list[str]) -> dict[int, int]:
    """The nanoseconds of each row."""
    found = {}
    for number, kind in enumerate(kinds):
        scale = 10**9 // PER_SECOND[UNITS[kind]]
        found |= {number * ROWS + row: tick * scale for row, tick in enumerate(ticks(number, UNITS[kind]))}
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


ACCESS = [*long("auto"), "pages", "scan"]  # auto chooses one of the others
# The rows of each file that queries ask for.
ASKED = (1, 3, 2, 250)[-cases(4, 2) :]


@pytest.fixture(params=ACCESS)
def lake(root: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    with needlepoint.open(root, refresh=0, access=request.param) as opened:
        yield opened


def literal(nanoseconds: int) -> str:
    return f"arrow_cast({nanoseconds}, 'Timestamp(Nanosecond, None)')"


def check(lake: Lake, kinds: list[str]) -> None:
    """Compare every kind of query with the rows themselves."""
    rows = everything(kinds)
    finest = max((UNITS[kind] for kind in kinds), key=PER_SECOND.__getitem__)
    assert lake.sql("SELECT t FROM t LIMIT 1").to_arrow().schema.field("t").type == pa.timestamp(finest)
    every = lake.sql("SELECT i, t FROM t").to_arrow()
    assert dict(zip(every["i"].to_pylist(), nanoseconds(every["t"]), strict=True)) == rows
    scale = 10**9 // PER_SECOND[finest]
    some = [rows[number * ROWS + row] for number, row in itertools.product(range(len(kinds)), ASKED)]
    near = [each + beside for each in some for beside in (0, -scale, scale)]
    for value in near:
        equal = {i for i, each in rows.items() if each == value}
        assert ids(lake, f"t = {literal(value)}") == equal
        assert ids(lake, f"t >= {literal(value)} AND t < {literal(value + 10**12)}") == {
            i for i, each in rows.items() if value <= each < value + 10**12
        }
        exact = pa.scalar(value, pa.timestamp("ns")).cast(pa.timestamp(finest)).as_py()
        if exact is not None and getattr(exact, "nanosecond", 0) == 0:
            key = exact.to_pydatetime() if hasattr(exact, "to_pydatetime") else exact
            assert {*lake.table("t").get(t=key).to_arrow()["i"].to_pylist()} == equal
    for operator, keep in (("<", int.__lt__), ("<=", int.__le__), (">", int.__gt__), (">=", int.__ge__)):
        assert ids(lake, f"t {operator} {literal(near[4])}") == {i for i, t in rows.items() if keep(t, near[4])}
    listed = ", ".join(map(literal, near))
    assert ids(lake, f"t IN ({listed})") == {i for i, each in rows.items() if each in set(near)}
    assert ids(lake, f"t NOT IN ({listed})") == {i for i, each in rows.items() if each not in set(near)}
    assert ids(lake, f"NOT (t > {literal(near[5])})") == {i for i, each in rows.items() if not each > near[5]}
    second_day = (START + 86_400) * 10**9
    assert ids(lake, "date_trunc('day', t) = TIMESTAMP '2024-01-02'") == {i for i, t in rows.items() if t >= second_day}
    assert ids(lake, "CAST(t AS DATE) = DATE '2024-01-01'") == {i for i, t in rows.items() if t < second_day}
    found = lake.sql("SELECT min(t) AS low, max(t) AS high, count(t) AS n FROM t WHERE i <> 7").to_arrow()
    others = [each for i, each in rows.items() if i != 7]
    assert [*nanoseconds(found["low"]), *nanoseconds(found["high"])] == [min(others), max(others)]
    ordered = lake.sql("SELECT i, t FROM t WHERE i <> 0 ORDER BY t, i LIMIT 5").to_arrow()
    expected = sorted((t, i) for i, t in rows.items() if i)[:5]
    assert [*zip(nanoseconds(ordered["t"]), ordered["i"].to_pylist(), strict=True)] == expected
    joined = lake.sql(f"SELECT l.i AS i FROM t l JOIN t r ON l.t = r.t WHERE r.t = {literal(some[1])}").to_arrow()
    assert {*joined["i"].to_pylist()} == {i for i, each in rows.items() if each == some[1]}


def nanoseconds(column: pa.ChunkedArray) -> list[int]:
    return column.cast(pa.timestamp("ns")).cast(pa.int64()).to_pylist()


def ids(lake: Lake, where: str) -> set[int]:
    found = lake.sql(f"SELECT i FROM t WHERE {where}").to_arrow()["i"].to_pylist()
    plain = lake.engine.sql(f"SELECT i FROM t WHERE {where}", use_indexes=False).to_arrow()["i"].to_pylist()
    assert sorted(found) == sorted(plain) and len(found) == len({*found}), where
    return {*found}


def report(lake: Lake, where: str) -> TableReport:
    (found,) = lake.sql(f"SELECT i FROM t WHERE {where}").report.tables
    return found


@pytest.mark.parametrize(
    "kinds",
    [
        ["ms", "int96", "ns"],
        pytest.param(["us", "ns", "ms"], marks=pytest.mark.long),
        pytest.param(["ns", "int96", "ms"], marks=pytest.mark.long),
        pytest.param(["ms", "us"], marks=pytest.mark.long),
        pytest.param(["us", "ms"], marks=pytest.mark.long),
        pytest.param(["ns", "ms"], marks=pytest.mark.long),
        pytest.param(["ms", "int96"], marks=pytest.mark.long),
    ],
    ids="-".join,
)
@pytest.mark.parametrize("indexed", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize("lake", ["scan", *long("auto", "pages")], indirect=True)
def test_units_that_come_one_after_the_other(root: Path, lake: Lake, kinds: list[str], indexed: bool) -> None:
    for number, kind in enumerate(kinds):
        write(root / f"t/{number}.parquet", kind, number)
        if number == 0:
            lake.create_table("t")
            if indexed:
                lake.create_index("t", "t", name="by_time")
        else:
            check(lake, kinds[: number + 1])
            assert not lake.sync("t")[0].failures
        check(lake, kinds[: number + 1])
    if indexed:
        use = report(lake, "t = TIMESTAMP '2024-01-01 00:00:00'").indexes[0]
        assert use.used and "not indexed" not in use.why
    lake.close()


def test_units_of_a_new_table(root: Path, lake: Lake) -> None:
    kinds = ["us", "int96", "ms"]
    for number, kind in enumerate(kinds):
        write(root / f"t/{number}.parquet", kind, number)
    lake.create_table("t")
    check(lake, kinds)


@pytest.mark.long
@pytest.mark.parametrize("lake", ["pages", *long("auto", "scan")], indirect=True)
def test_units_of_published_batches(root: Path, lake: Lake) -> None:
    kinds = ["us", "ns", "ms"]
    for number, kind in enumerate(kinds):
        staging = lake.writer.staging("t")
        times = pa.array(ticks(number, kind), pa.timestamp(kind))
        rows = pa.table({"i": range(number * ROWS, (number + 1) * ROWS), "t": times})
        lake.publish("t", staged(staging, {"part.parquet": rows}), staging)
        if number == 0:
            lake.create_index("t", "t", name="by_time")
        check(lake, kinds[: number + 1])
        assert not [each.problem for each in lake.follow_events(once=True) if each.problem]
        check(lake, kinds[: number + 1])
        use = report(lake, "t = TIMESTAMP '2024-01-01 00:00:00'").indexes[0]
        assert use.used and "not indexed" not in use.why


@pytest.mark.long
def test_another_process_sees_the_change(root: Path) -> None:
    """A process drops what it cached in the coarser unit: bounds, zone maps and an open index."""
    write(root / "t/0.parquet", "us", 0)
    with needlepoint.open(root, refresh=0) as held, needlepoint.open(root, refresh=0) as other:
        held.create_table("t")
        held.create_index("t", "t", name="by_time")
        check(held, ["us"])
        write(root / "t/1.parquet", "ns", 1)
        check(held, ["us", "ns"])
        other.sync("t")
        check(held, ["us", "ns"])


@pytest.mark.parametrize("indexed", [False, True])
def test_the_unit_changes_between_planning_and_narrowing(
    root: Path, indexed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root / "t/0.parquet", "us", 0)
    with needlepoint.open(root, refresh=0) as held, needlepoint.open(root, refresh=0) as other:
        held.create_table("t")
        if indexed:
            held.create_index("t", "t", name="by_time")
        plan = held.engine.scan_planner.plan

        def late(*arguments: Any, **options: Any) -> Any:
            write(root / "t/1.parquet", "ns", 1)
            other.sync("t")
            return plan(*arguments, **options)

        monkeypatch.setattr(held.engine.scan_planner, "plan", late)
        found = held.sql("SELECT i FROM t WHERE t = TIMESTAMP '2024-01-01 00:07:12.000001'").to_arrow()
        assert found["i"].to_pylist() == [1]


def test_the_unit_changes_while_an_index_is_built(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root / "t/0.parquet", "us", 0)
    with needlepoint.open(root, refresh=0) as held, needlepoint.open(root, refresh=0) as other:
        held.create_table("t")
        held.create_index("t", "t", name="by_time", build=False)
        run = InlinePool.run

        def late(*arguments: Any) -> Iterator[Any]:
            built = list(run(*arguments))
            monkeypatch.undo()
            write(root / "t/1.parquet", "ns", 1)
            other.sync("t")
            yield from built

        monkeypatch.setattr(InlinePool, "run", late)
        held.sync("t")
        monkeypatch.undo()
        check(held, ["us", "ns"])
        check(other, ["us", "ns"])
        held.sync("t")
        check(other, ["us", "ns"])
        assert report(other, "t = TIMESTAMP '2024-01-01 00:00:00'").indexes[0].used


def test_coarser_bounds_rule_out_before_and_after_a_sync(root: Path) -> None:
    write(root / "t/0.parquet", "us", 0)
    with needlepoint.open(root, refresh=0, access="pages") as lake:
        lake.create_table("t")
        write(root / "t/1.parquet", "ns", 1)
        where = "t >= TIMESTAMP '2024-01-01 00:00:00' AND t < TIMESTAMP '2024-01-01 01:00:00'"
        assert report(lake, where).rows.read < 2 * ROWS
        lake.sync("t")
        found = report(lake, where)
        assert (found.page_read_files, found.scanned_files, found.rows.read) == (2, 0, 40)
        assert report(lake, "t > TIMESTAMP '2030-01-01'").files.read == 0


def test_an_index_in_the_coarser_unit_is_not_asked(root: Path) -> None:
    write(root / "t/0.parquet", "us", 0)
    with needlepoint.open(root, refresh=0) as lake:
        lake.create_table("t")
        lake.create_index("t", "t", name="by_time")
        write(root / "t/1.parquet", "ns", 1)
        (use,) = report(lake, "t = TIMESTAMP '2024-01-01'").indexes
        assert not use.used and "finer" in use.why and "sync" in use.why
        lake.sync("t")
        (use,) = report(lake, "t = TIMESTAMP '2024-01-01'").indexes
        assert use.used
        assert len([*(root / ".needlepoint/indexes").iterdir()]) == 1


@pytest.mark.covering
@pytest.mark.parametrize("access", ACCESS)
@pytest.mark.parametrize("zones", [("UTC", ZONE), (ZONE, "UTC")], ids="-".join)
@pytest.mark.parametrize("kinds", [("us", "us"), ("us", "ns"), ("ns", "us")], ids="-".join)
def test_zones(root: Path, access: str, zones: tuple[str, str], kinds: tuple[str, str]) -> None:
    """The instants stay the same, in the first time zone of the table."""
    write(root / "t/0.parquet", kinds[0], 0, zones[0])
    with needlepoint.open(root, refresh=0, access=access) as lake:
        lake.create_table("t")
        write(root / "t/1.parquet", kinds[1], 1, zones[1])
        rows = everything([*kinds])
        for _ in range(2):
            found = lake.sql("SELECT i, t FROM t").to_arrow()
            assert found.schema.field("t").type.tz == zones[0]
            assert dict(zip(found["i"].to_pylist(), nanoseconds_of(found["t"]), strict=True)) == rows
            for value in (rows[1], rows[ROWS + 1]):
                asked = f"arrow_cast({value}, 'Timestamp(Nanosecond, Some(\"{zones[0]}\"))')"
                assert ids(lake, f"t = {asked}") == {i for i, each in rows.items() if each == value}
                assert ids(lake, f"t >= {asked}") == {i for i, each in rows.items() if each >= value}
            high = lake.sql("SELECT max(t) AS t FROM t").to_arrow()["t"]
            assert nanoseconds_of(high) == [max(rows.values())]
            lake.sync("t")


def nanoseconds_of(column: pa.ChunkedArray) -> list[int]:
    return column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64()).to_pylist()


@pytest.mark.parametrize("order", [1, -1])
def test_a_zone_beside_none_is_refused(root: Path, order: int) -> None:
    for number, zone in enumerate([None, "UTC"][::order]):
        write(root / f"t/{number}.parquet", "us", number, zone)
    with needlepoint.open(root) as lake, pytest.raises(SchemaConflict, match="column 't'"):
        lake.create_table("t")


@pytest.mark.covering
@pytest.mark.parametrize("access", ACCESS)
@pytest.mark.parametrize("types", [*itertools.permutations(TIMES)], ids=str)
def test_times(root: Path, access: str, types: tuple[pa.DataType, ...]) -> None:
    (root / "t").mkdir()
    rows: dict[int, int] = {}
    with needlepoint.open(root, refresh=0, access=access) as lake:
        for number, type in enumerate(types):
            ticks = [1 + 40 * row for row in range(100)]
            plain = pa.array(ticks, pa.int32() if type.bit_width == 32 else pa.int64())
            ids_here = range(100 * number, 100 * number + 100)
            pq.write_table(pa.table({"i": ids_here, "t": plain.cast(type)}), root / f"t/{number}.parquet")
            rows |= dict(zip(ids_here, [tick * 10**9 // PER_SECOND[type.unit] for tick in ticks], strict=True))
            if number == 0:
                lake.create_table("t")
                lake.create_index("t", "t")
            for _ in range(2):
                finest = max((each.unit for each in types[: number + 1]), key=PER_SECOND.__getitem__)
                name = {"ms": "Time32(Millisecond)", "us": "Time64(Microsecond)", "ns": "Time64(Nanosecond)"}[finest]
                for value in {rows[100 * number + 1], rows[1], rows[100 * number + 1] + 10**9 // PER_SECOND[finest]}:
                    tick = value * PER_SECOND[finest] // 10**9
                    whole = f"arrow_cast({tick}, 'Int32')" if finest == "ms" else str(tick)
                    asked = f"arrow_cast({whole}, '{name}')"
                    assert ids(lake, f"t = {asked}") == {i for i, each in rows.items() if each == value}
                    assert ids(lake, f"t > {asked}") == {i for i, each in rows.items() if each > value}
                lake.sync("t")


# Values that do not fit in the finer unit


def write_sentinel(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    days = [datetime.datetime(2024, 1, 1) + datetime.timedelta(row) for row in range(100)]
    times = pa.array([*days, SENTINEL], pa.timestamp("us"))
    pq.write_table(
        pa.table({"i": range(1000, 1101), "t": times}), path, row_group_size=50, max_rows_per_page=10,
        write_batch_size=10, use_dictionary=False, write_page_index=True,
    )  # fmt: skip


@pytest.mark.covering
@pytest.mark.parametrize("access", ACCESS)
@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("indexed", [False, True])
def test_values_beyond_the_finer_unit_are_an_error(root: Path, access: str, synced: bool, indexed: bool) -> None:
    write(root / "t/0.parquet", "ns", 0)
    with needlepoint.open(root, refresh=0, access=access) as lake:
        lake.create_table("t")
        if indexed:
            lake.create_index("t", "t", name="by_time")
        write_sentinel(root / "t/1.parquet")
        if synced:
            assert not lake.sync("t")[0].failures
        for query in ("SELECT t FROM t", "SELECT max(t) FROM t", "SELECT count(t) FROM t",
                      "SELECT t FROM t WHERE i = 1100", "SELECT i, t FROM t WHERE t > TIMESTAMP '2100-01-01'",
                      "SELECT l.t FROM t l JOIN t r ON l.t = r.t"):  # fmt: skip
            with pytest.raises(SchemaConflict, match=r"column 't' of .*/1\.parquet.*timestamp\[ns\]"):
                lake.sql(query)
        with pytest.raises(SchemaConflict, match=r"1\.parquet"):
            lake.table("t").get(i=1100)
        assert lake.sql("SELECT i FROM t").to_arrow().num_rows == ROWS + 101
        if synced and access == "pages":
            # Bounds are exact beyond 64 bits, so pages without the value can still be read.
            day = datetime.datetime(2024, 3, 1)
            assert {*lake.sql("SELECT i FROM t WHERE t = TIMESTAMP '2024-03-01'").to_arrow()["i"].to_pylist()} == {1060}
            assert lake.table("t").get(t=day).to_arrow()["i"].to_pylist() == [1060]


def test_a_finer_file_is_refused_where_known_values_have_no_room(root: Path) -> None:
    write_sentinel(root / "t/0.parquet")
    with needlepoint.open(root, refresh=0) as lake:
        lake.create_table("t")
        lake.create_index("t", "t")
        write(root / "t/1.parquet", "ns", 0)
        with pytest.raises(SchemaConflict, match=r"column 't' of .*0\.parquet.*timestamp\[ns\]"):
            lake.sync("t")
        (root / "t/1.parquet").unlink()
        lake.sync("t")
        assert lake.sql("SELECT max(t) AS t FROM t").rows() == [{"t": SENTINEL}]
        assert lake.table("t").get(t=SENTINEL).to_arrow()["i"].to_pylist() == [1100]
        staging = lake.writer.staging("t")
        rows = pa.table({"i": [0], "t": pa.array([0], pa.timestamp("ns"))})
        with pytest.raises(SchemaConflict, match=r"column 't' of .*0\.parquet"):
            lake.publish("t", staged(staging, {"part.parquet": rows}), staging)
        assert lake.sql("SELECT max(t) AS t FROM t").rows() == [{"t": SENTINEL}]


# More digits than the column holds

HALF = "TIMESTAMP '1970-01-01 00:00:00.0005'"
FINER = [
    *(f"ms {operator} {HALF}" for operator in ("=", "<", "<=", ">", ">=", "<>")),
    f"{HALF} > t.ms",
    f"ms IN ({HALF}, TIMESTAMP '1970-01-01 00:00:00.001')",
    f'"ms" NOT IN ({HALF})',
    f"ms BETWEEN {HALF} AND TIMESTAMP '1970-01-01 00:00:00.0015'",
    f"NOT MS < {HALF} AND i < 3",
    f"CASE WHEN ms < {HALF} THEN i < 3 ELSE i = 2 END",
    f"zoned < {HALF}",
    "ms < us", "us <= t.ms", "t.ms <> ns", "us < ns", "ms = us",
]  # fmt: skip


@pytest.fixture
def finer(root: Path) -> Iterator[Lake]:
    (root / "t").mkdir()
    times = {
        "ms": pa.array([0, 1, 2, -1, None], pa.timestamp("ms")),
        "zoned": pa.array([0, 1, 2, -1, None], pa.timestamp("ms", "UTC")),
        "us": pa.array([0, 1500, 1999, -1, 5], pa.timestamp("us")),
        "ns": pa.array([0, 1500, 1_999_000, -1, 5], pa.timestamp("ns")),
    }
    pq.write_table(pa.table({"i": range(5), **times}), root / "t/0.parquet")
    with needlepoint.open(root) as lake:
        lake.create_table("t")
        lake.create_index("t", "ms")
        yield lake


def test_more_digits_than_the_column_holds(finer: Lake, root: Path) -> None:
    """DuckDB compares in the finer unit."""
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    duck.register("t", pq.read_table(root / "t/0.parquet"))

    def agree(query: str, value: datetime.datetime | None = None) -> None:
        given = None if value is None else {"value": value}
        assert finer.sql(query, given).rows() == duck.sql(query, params=given).to_arrow_table().to_pylist(), query

    for condition in FINER:
        agree(f"SELECT i, ms FROM t WHERE {condition} ORDER BY i")
        agree(f"SELECT count(*) AS n, min(ms) AS first FROM t WHERE {condition}")
        agree(f"SELECT ms, count(*) AS n FROM t WHERE {condition} GROUP BY ms HAVING ms > {HALF} ORDER BY ms")
    agree("SELECT a.i FROM t AS a JOIN t AS b ON a.ms < b.us ORDER BY a.i, b.i")
    for micro in (500, 1000):
        for operator in ("=", "<", ">="):
            value = datetime.datetime(1970, 1, 1, 0, 0, 0, micro)
            agree(f"SELECT i FROM t WHERE ms {operator} $value ORDER BY i", value)
    assert not finer.table("t").get(ms=datetime.datetime(1970, 1, 1, 0, 0, 0, 500)).rows()


@pytest.mark.parametrize(
    "number", ["CAST(ms AS BIGINT)", "(t.ms)::double", "TRY_CAST(nullif(ms, NULL) AS DECIMAL(20, 0))",
               "arrow_cast(ms, 'Int64')"],
)  # fmt: skip
def test_numbers_of_times_count_the_units_of_the_column(finer: Lake, number: str) -> None:
    for condition in (f"us > {HALF}", "ns > $value"):
        query = f"SELECT i FROM t WHERE {number} = 1 AND {condition}"
        given = {"value": datetime.datetime(1970, 1, 1, 0, 0, 0, 1)}
        assert finer.sql(query, given if "$" in query else None).rows() == [{"i": 1}], query


NAMED = [
    "SELECT i FROM v WHERE {}",
    "SELECT i FROM (SELECT i, ns ms FROM t) AS x WHERE {}",
    "WITH x(i, ms) AS (SELECT i, ns FROM t) SELECT i FROM x WHERE {}",
    "SELECT b.i FROM (SELECT i, us FROM t) AS a JOIN (SELECT i, ns FROM t) AS b(i, ms) ON a.i = b.i AND {}",
    "SELECT i FROM (SELECT i, ms FROM t WHERE FALSE UNION ALL SELECT i, ns FROM t) AS x WHERE {}",
]


@pytest.mark.parametrize("query", NAMED)
def test_a_finer_time_under_the_name_of_a_column_keeps_its_digits(finer: Lake, query: str) -> None:
    finer.sql("CREATE VIEW v AS SELECT i, ns AS ms FROM t")
    found = finer.sql(query.format("ms > TIMESTAMP '1970-01-01 00:00:00.000001'") + " ORDER BY i").rows()
    assert found == [{"i": 1}, {"i": 2}]


def test_one_name_in_two_units(root: Path) -> None:
    """Times within one millisecond are not joined."""
    for name, unit, times in (("a", "ms", [0, 1, 2, None]), ("b", "us", [0, 1500, 2000, None]),
                              ("c", "ns", [0, 1_500_400, 0, None])):  # fmt: skip
        (root / name).mkdir()
        table = pa.table({"i": range(4), "t": pa.array(times, pa.timestamp(unit))})
        pq.write_table(table, root / name / "0.parquet")
    with needlepoint.open(root) as lake:
        for name in "abc":
            lake.create_table(name)
        joined = lake.sql("SELECT a.i, b.t FROM a JOIN b ON a.t = b.t ORDER BY a.i").to_arrow()
        assert joined["i"].to_pylist() == [0, 2] and joined.schema.field("t").type == pa.timestamp("us")
        assert len(lake.sql("SELECT a.i FROM a, b WHERE b.i = 1 AND b.t > a.t")) == 2
        assert len(lake.sql("SELECT i FROM a WHERE t = TIMESTAMP '1970-01-01 00:00:00.001'")) == 1
        found = lake.sql("SELECT c.i FROM a JOIN c ON a.i = c.i WHERE c.t > TIMESTAMP '1970-01-01 00:00:00.0015'")
        assert found.rows() == [{"i": 1}]


def test_rows_of_another_time_are_not_deleted(finer: Lake) -> None:
    finer.delete("t", f"ms = {HALF}")
    assert len(finer.sql("SELECT i FROM t")) == 5
    finer.delete("t", f"ms < {HALF}")
    assert [row["i"] for row in finer.sql("SELECT i FROM t ORDER BY i").rows()] == [1, 2, 4]


def test_as_many_digits_as_the_column_holds_use_its_index(finer: Lake) -> None:
    (use,) = report(finer, "ms = TIMESTAMP '1970-01-01 00:00:00.002000'").indexes
    assert use.used
    (use,) = report(finer, "ms = TIMESTAMP '1970-01-01 00:00:00.0025'").indexes
    assert not use.used
