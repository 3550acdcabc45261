"""Instants beside columns in several zones: now(), TIMESTAMPTZ and to_timestamp, compared with DuckDB."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.others import rows_in_utc

import needlepoint
from needlepoint import SqlError

L = "TIMESTAMPTZ '2024-03-31 11:00:00+02:00'"
QUERIES = [
    f"SELECT id FROM a WHERE z > {L}",
    f"SELECT id FROM a WHERE z BETWEEN {L} AND CAST('2024-03-31 15:00:00Z' AS TIMESTAMPTZ)",
    f"SELECT id FROM a WHERE NOT z > {L}",
    f"SELECT id FROM a WHERE z IN ({L}, TIMESTAMP WITH TIME ZONE '2024-03-31 10:00:00Z')",
    f"SELECT id FROM a WHERE {L} < z OR z IS NULL",
    f"SELECT id FROM a WHERE z - INTERVAL '1 day' < {L} - INTERVAL '20 hours'",
    f"SELECT id FROM a WHERE z + INTERVAL '1 hour' = {L}",
    "SELECT id FROM a WHERE CAST(CAST(z AS TIMESTAMPTZ) AS DATE) = DATE '2024-03-31'",
    "SELECT CAST(CAST(z AS TIMESTAMPTZ) AS DATE) AS d, count(*) FROM a GROUP BY 1",
    "SELECT date_trunc('hour', CAST(z AS TIMESTAMPTZ)) AS h, count(*) FROM a GROUP BY 1",
    "SELECT id FROM a WHERE date_trunc('day', CAST(z AS TIMESTAMPTZ)) = TIMESTAMPTZ '2024-03-31 00:00:00Z'",
    f"SELECT id FROM a WHERE coalesce(z, {L}) >= {L}",
    f"SELECT CASE WHEN z > {L} THEN 'new' ELSE 'old' END AS c, count(*) FROM a GROUP BY 1",
    "SELECT max(CAST(z AS TIMESTAMPTZ)) AS m, min(z::timestamptz) AS n FROM a",
    "SELECT a.id, b.id AS bid FROM a JOIN b ON a.z = b.z",
    f"SELECT a.id, b.id AS bid FROM a JOIN b ON a.z = b.z AND a.z > {L}",
    f"SELECT a.id, c.id AS cid FROM a LEFT JOIN c ON a.z = c.u AND c.z > {L} WHERE a.k = 1",
    f"SELECT id FROM a WHERE z IN (SELECT z FROM b WHERE z > {L})",
    f"SELECT id FROM a WHERE z = (SELECT max(z) FROM b WHERE z < {L})",
    f"SELECT id FROM a x WHERE EXISTS (SELECT 1 FROM b WHERE b.z = x.z AND b.u < {L})",
    f"WITH w AS (SELECT id, z FROM a WHERE z > {L}) SELECT count(*) FROM w WHERE z < {L} + INTERVAL '7 hours'",
    f"SELECT id FROM v WHERE z < {L}",
    f"SELECT k, count(*) FROM v WHERE z <> {L} GROUP BY k",
    f"SELECT id FROM a WHERE z > {L} UNION SELECT id FROM b WHERE z > {L}",
    f"SELECT id FROM a ORDER BY z > {L} DESC NULLS LAST, id LIMIT 9",
    f"SELECT id FROM a WHERE z > {L} ORDER BY z DESC, id LIMIT 5",
    f"SELECT count(*) FROM a WHERE u > {L} AND z < {L}",
    "SELECT count(*) FROM a WHERE u > z",
    f"SELECT count(*) FILTER (WHERE z > {L}) AS n FROM a",
    f"SELECT id, row_number() OVER (PARTITION BY z > {L} ORDER BY id) AS n FROM a WHERE z IS NOT NULL",
    "SELECT count(*) FROM a WHERE s::timestamptz = z",
    "SELECT count(*) FROM a WHERE s::timestamptz::timestamptz = z",
    "SELECT count(*) FROM a WHERE s::text::TIMESTAMP WITH TIME ZONE::timestamptz = z",
    "SELECT CAST(z::timestamptz::date AS DATE) AS d, count(*) FROM a GROUP BY 1",
    "SELECT count(*) FROM a WHERE TRY_CAST(s AS TIMESTAMPTZ) = z",
    f"SELECT count(*) FROM a WHERE greatest(z::timestamptz, {L}) = {L}",
    "SELECT extract(hour FROM CAST(z AS TIMESTAMPTZ)) AS h, count(*) FROM a GROUP BY 1",
    f"SELECT count(*) FROM a WHERE extract(hour FROM {L}) = 9",
    f"SELECT id AS now, k AS current_timestamp FROM a WHERE z > {L}",
    "SELECT count(*) FROM a WHERE now() > z AND current_timestamp > z",
    f"SELECT id FROM b WHERE z > {L} AND u <> {L}",
    f"SELECT count(*) AS n FROM a GROUP BY z HAVING z > {L}",
    f"SELECT id FROM a x WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.z = x.z AND b.z > {L})",
    f"SELECT count(*) FROM a WHERE z IS DISTINCT FROM {L}",
    "SELECT count(*) FROM a WHERE z >= $p",
    f"SELECT count(*) FROM a WHERE z >= $p AND z < {L}",
]
FIRST = datetime.datetime(2024, 3, 30, 20, tzinfo=datetime.UTC)


class World:
    """The same three tables in a lake and in DuckDB."""

    def __init__(self, root: Path) -> None:
        self.duck = duckdb.connect()
        self.duck.execute("SET TimeZone = 'UTC'")
        tables = {"a": _table(200, "Asia/Tokyo"), "b": _table(60, "-03:30"), "c": _table(60, "UTC")}
        for name, rows in tables.items():
            (root / name).mkdir()
            for number in range(4):
                part = rows.slice(number * len(rows) // 4, len(rows) // 4)
                pq.write_table(part, root / name / f"{number}.parquet", row_group_size=20)
            self.duck.register("rows", rows)
            self.duck.execute(f"CREATE TABLE {name} AS SELECT * FROM rows")
            self.duck.unregister("rows")
        self.lake = needlepoint.open(root)
        for name in tables:
            self.lake.create_table(name)
        self.lake.create_index("a", "z")
        self.lake.create_index("b", "z", kind="bloom")
        view = "CREATE VIEW v AS SELECT id, z, k FROM a WHERE z >= TIMESTAMPTZ '2024-03-31 02:00:00Z'"
        self.lake.sql(view)
        self.duck.execute(view)


def _table(rows: int, zone: str) -> pa.Table:
    chance = Random(rows)

    def instants() -> list[datetime.datetime | None]:
        return [
            None if chance.random() < 0.1 else FIRST + datetime.timedelta(minutes=30 * chance.randrange(60))
            for _ in range(rows)
        ]

    z = instants()
    return pa.table(
        {
            "id": range(rows),
            "z": pa.array(z, pa.timestamp("us", zone)),
            "u": pa.array(instants(), pa.timestamp("us", "UTC")),
            "s": [None if each is None else each.isoformat() for each in z],
            "k": [chance.randrange(5) for _ in range(rows)],
        }
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("zones"))
    with made.lake:
        yield made


@pytest.mark.parametrize("query", QUERIES)
def test_whole_queries(world: World, query: str) -> None:
    nine = datetime.datetime(2024, 3, 31, 9, tzinfo=datetime.timezone(datetime.timedelta(hours=3)))
    bound = {"p": nine} if "$p" in query else None
    assert rows_in_utc(world.lake.sql(query, bound).to_arrow()) == rows_in_utc(
        world.duck.sql(query, params=bound).to_arrow_table()
    )


def test_columns_are_named_as_they_are_written(world: World) -> None:
    found = world.lake.sql("SELECT now(), to_timestamp(s), z > current_timestamp FROM a LIMIT 1").to_arrow()
    assert found.schema.names == ["now()", "to_timestamp(a.s)", "a.z > current_timestamp()"]


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "-03:30"])
def test_literals_with_a_zone_are_instants(tmp_path: Path, zone: str, indexed: bool) -> None:
    """Also where the column has another zone than UTC: it only says how an instant is shown."""
    (tmp_path / "t").mkdir()
    instants = [datetime.datetime(2024, 3, 31, hour, tzinfo=datetime.UTC) for hour in range(24)]
    for number in range(4):
        z = pa.array(instants[number::4], pa.timestamp("us", zone))
        pq.write_table(
            pa.table({"id": range(number, 24, 4), "z": z, "s": [str(each) for each in instants[number::4]]}),
            tmp_path / f"t/{number}.parquet",
        )
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        if indexed:
            lake.create_index("t", "z")
        lake.sql("CREATE VIEW recent AS SELECT id FROM t WHERE z > TIMESTAMPTZ '2024-03-31 12:00:00Z'")
        assert len(lake.sql("SELECT id FROM recent")) == 11
        assert len(lake.sql("SELECT id FROM t WHERE to_timestamp(s) = z AND s::timestamptz = z")) == 24
        noon = ("TIMESTAMPTZ '2024-03-31 14:00:00+02:00'", "CAST('2024-03-31T12:00:00Z' AS TIMESTAMPTZ)",
                "'2024-03-31 12:00:00Z'::TIMESTAMPTZ",
                "TRY_CAST('2024-03-31 14:00:00+02:00' AS TIMESTAMP WITH TIME ZONE)",
                "TIMESTAMP WITH TIME ZONE '2024-03-31 12:00:00'", "to_timestamp('2024-03-31T12:00:00Z')",
                "to_timestamp(1711886400)",
                "arrow_cast('2024-03-31T12:00:00Z', 'Timestamp(ns, \"+00:00\")')")  # fmt: skip
        for literal in noon:
            assert [row["id"] for row in lake.sql(f"SELECT id FROM t WHERE z = {literal}")] == [12]
            assert [row["id"] for row in lake.sql(f"SELECT id FROM t WHERE z IN ({literal})")] == [12]
            assert lake.sql(f"SELECT count(*) AS n FROM t WHERE z > {literal}").rows() == [{"n": 11}]
            assert lake.sql(f"SELECT count(*) AS n FROM t WHERE z <= {literal} - INTERVAL '2 hours'").rows() == [
                {"n": 11}
            ]
        assert lake.delete("t", "z >= TIMESTAMPTZ '2024-03-31 14:00:00+02:00'").rows == 12


def test_recent_rows_of_a_zone(tmp_path: Path) -> None:
    """`now()` is an instant, too: the clock of the column's zone is hours away from it."""
    (tmp_path / "t").mkdir()
    ago = [datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=hours, minutes=30) for hours in range(9)]
    pq.write_table(
        pa.table({"id": range(9), "z": pa.array(ago, pa.timestamp("us", "Asia/Tokyo"))}), tmp_path / "t/a.parquet"
    )
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        recent = lake.sql("SELECT id FROM t WHERE z > now() - INTERVAL '3 hours' ORDER BY id")
        assert [row["id"] for row in recent] == [0, 1, 2]
        with pytest.raises(SqlError, match="Write CAST"):
            lake.sql("SELECT id FROM t WHERE now() - z < INTERVAL '3 hours'")
        young = lake.sql("SELECT id FROM t WHERE now() - CAST(z AS TIMESTAMPTZ) < INTERVAL '3 hours' ORDER BY id")
        assert [row["id"] for row in young] == [0, 1, 2]
