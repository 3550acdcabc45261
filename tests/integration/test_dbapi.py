"""DB-API 2.0, as PEP 249 has it."""

from __future__ import annotations

import datetime
import decimal
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import needlepoint
from needlepoint.lake import dbapi

DAY = datetime.date(2024, 5, 1)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[dbapi.Connection]:
    (tmp_path / "lake/t").mkdir(parents=True)
    rows = {
        "id": range(3000),
        "title": [f"title {n}" for n in range(3000)],
        "price": pa.array([decimal.Decimal(n) / 100 for n in range(3000)], pa.decimal128(12, 2)),
        "day": [DAY + datetime.timedelta(n) for n in range(3000)],
        "body": [b"%d" % n for n in range(3000)],
    }
    pq.write_table(pa.table(rows), tmp_path / "lake/t/a.parquet")
    with needlepoint.connect(tmp_path / "lake", create=True) as connection:
        connection.lake.create_table("t")
        connection.lake.create_index("t", "id")
        yield connection


def test_module_globals() -> None:
    assert (needlepoint.apilevel, needlepoint.threadsafety, needlepoint.paramstyle) == ("2.0", 2, "qmark")
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 2, "qmark")
    assert issubclass(dbapi.ProgrammingError, dbapi.DatabaseError) and issubclass(dbapi.DatabaseError, dbapi.Error)
    assert dbapi.Connection.OperationalError is dbapi.OperationalError
    assert dbapi.Date(2024, 5, 1) == DAY and dbapi.Binary(b"x") == b"x"
    assert isinstance(dbapi.TimeFromTicks(0), dbapi.Time)


def test_rows_one_by_one_many_and_all(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    cursor.execute("SELECT id, title FROM t WHERE id < ? ORDER BY id", [7])
    assert cursor.rowcount == 7
    assert cursor.fetchone() == (0, "title 0")
    assert cursor.fetchmany() == [(1, "title 1")]
    cursor.arraysize = 2
    assert [row[0] for row in cursor.fetchmany()] == [2, 3]
    assert [row[0] for row in cursor.fetchmany(1)] == [4]
    assert [row[0] for row in cursor] == [5, 6]
    assert cursor.fetchone() is None and cursor.fetchall() == [] and cursor.fetchmany(5) == []
    assert cursor.fetch_arrow_table().num_rows == 7
    assert len(cursor.execute("SELECT x.id, y.id FROM t x JOIN t y ON x.id = y.id").fetchall()) == 3000


def test_parameters(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    assert cursor.execute("SELECT id, '?' FROM t WHERE title = ? -- why?", ("title 9",)).fetchall() == [(9, "?")]
    assert cursor.execute("SELECT id FROM t WHERE id = $id", {"id": 8}).fetchall() == [(8,)]
    assert cursor.execute("SELECT id FROM t WHERE id = any(?) ORDER BY id", [[5, 4]]).fetchall() == [(4,), (5,)]
    assert cursor.execute("SELECT id FROM t WHERE day = ?", [DAY]).fetchall() == [(0,)]
    cursor.executemany("SELECT id FROM t WHERE id = ?", [[1], [2]])
    assert cursor.fetchall() == [(2,)]
    for values in ([], [1, 2]):
        with pytest.raises(dbapi.ProgrammingError, match="1 `\\?`"):
            cursor.execute("SELECT id FROM t WHERE id = ?", values)
    with pytest.raises(dbapi.ProgrammingError):
        cursor.execute("SELECT id FROM t WHERE title = ?", "x")  # type: ignore[arg-type]


def test_types(connection: dbapi.Connection) -> None:
    cursor = connection.cursor().execute("SELECT * FROM t WHERE id = 250")
    assert cursor.description is not None
    groups = [dbapi.NUMBER, dbapi.STRING, dbapi.NUMBER, dbapi.DATETIME, dbapi.BINARY]
    assert [name for name, *_ in cursor.description] == ["id", "title", "price", "day", "body"]
    assert [column[1] for column in cursor.description] == groups
    assert cursor.description[0][1] != dbapi.STRING and all(len(column) == 7 for column in cursor.description)
    day = DAY + datetime.timedelta(250)
    assert cursor.fetchall() == [(250, "title 250", decimal.Decimal("2.50"), day, b"250")]


def test_errors(connection: dbapi.Connection, tmp_path: Path) -> None:
    cursor = connection.cursor()
    with pytest.raises(dbapi.InterfaceError, match="execute"):
        cursor.fetchone()
    with pytest.raises(dbapi.ProgrammingError, match="tt"):
        cursor.execute("SELECT * FROM tt")
    assert cursor.description is None
    with pytest.raises(dbapi.ProgrammingError, match="no lake"):
        needlepoint.connect(tmp_path / "none")
    connection.commit()
    connection.rollback()
    cursor.close()
    with pytest.raises(dbapi.InterfaceError, match="cursor is closed"):
        cursor.execute("SELECT 1")
    other = connection.cursor()
    connection.close()
    connection.close()
    for use in (lambda: other.execute("SELECT 1"), connection.commit):
        with pytest.raises(dbapi.InterfaceError, match="connection is closed"):
            use()


def test_threads_share_a_connection(connection: dbapi.Connection) -> None:
    found: dict[int, list[dbapi.Row]] = {}

    def ask(number: int) -> None:
        found[number] = connection.cursor().execute("SELECT id FROM t WHERE id = ?", [number]).fetchall()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [(number,)] for number in range(8)}
