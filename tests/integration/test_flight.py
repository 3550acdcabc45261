"""Flight SQL, as ADBC's driver and plain Flight clients use it."""

from __future__ import annotations

import datetime
import random
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import adbc_driver_flightsql as adbc
import adbc_driver_flightsql.dbapi as client
import adbc_driver_manager
import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.parquet as pq
import pytest
import sqlalchemy
from tests.cases import cases
from tests.columns import flat
from tests.lakes import LONG_JOIN

import needlepoint
from needlepoint.service import ServiceOptions, Tokens
from needlepoint.service.flight import messages
from needlepoint.service.flight.server import FlightServer
from needlepoint.service.metrics import Metrics
from needlepoint.service.worker import Worker

ROWS = 20_000
# More rows than the buffers of a connection hold.
JOINED = "SELECT a.id FROM product a JOIN product b ON a.id % 99 = b.id % 99 WHERE a.id < 8000"
TYPES = flat().append_column("list", pa.array([[n, None] for n in range(2000)], pa.list_(pa.int32()))).append_column(
    "struct", pa.array([{"a": n, "b": str(n)} for n in range(2000)])
)  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("flight") / "lake"
    for name in ("product", "secret", "types"):
        (root / name).mkdir(parents=True)
    for name in ("product", "secret"):
        for number in range(2):
            ids = range(number * ROWS, (number + 1) * ROWS)
            rows = pa.table({"id": ids, "title": [f"{name} {id}" for id in ids], "price": [id / 4 for id in ids]})
            pq.write_table(rows, root / name / f"{number}.parquet", row_group_size=5000)
    pq.write_table(TYPES, root / "types" / "0.parquet")
    with needlepoint.open(root) as lake:
        for name in ("product", "secret", "types"):
            lake.create_table(name)
        lake.create_index("product", "id")
        lake.sql("CREATE VIEW cheap AS SELECT id FROM product WHERE price < 1")
    return root


@dataclass
class Served:
    server: FlightServer
    lake: needlepoint.Lake
    worker: Worker
    metrics: Metrics

    @property
    def address(self) -> str:
        return f"grpc://localhost:{self.server.port}"


@contextmanager
def serving(root: Path, **options: Any) -> Iterator[Served]:
    """A server in this process."""
    chosen = ServiceOptions(lake=str(root), flight_port=0, **options)
    worker = Worker(chosen.threads, chosen.waiting)
    with needlepoint.open(root, read_only=True) as lake:
        metrics = Metrics(lake, worker)
        server = FlightServer(lake, chosen, worker, metrics)
        try:
            yield Served(server, lake, worker, metrics)
        finally:
            server.close()
            worker.close()


@contextmanager
def served(root: Path, **options: Any) -> Iterator[str]:
    """The address of such a server."""
    with serving(root, **options) as found:
        yield found.address.replace("grpc", "grpc+tls") if "certificate" in options else found.address


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    with served(root, body_bytes=100_000) as address:
        yield address


@pytest.fixture
def cursor(address: str) -> Iterator[Any]:
    with client.connect(address, autocommit=True) as connection, connection.cursor() as cursor:
        yield cursor


def test_queries(cursor: Any) -> None:
    cursor.execute("SELECT id, title FROM product WHERE id = 30007")
    assert cursor.fetchall() == [(30007, "product 30007")]
    cursor.execute("SELECT id, title FROM product ORDER BY id")
    rows = cursor.fetch_arrow_table()
    assert rows["id"].to_pylist() == list(range(2 * ROWS)) and rows["title"][39_999].as_py() == "product 39999"
    cursor.execute("SELECT id FROM product WHERE id < 0")
    assert cursor.fetch_arrow_table().schema == pa.schema([("id", pa.int64())])
    cursor.execute("SHOW INDEXES FROM product")
    assert [row[0] for row in cursor.fetchall()] == ["product_id_key"]


def test_a_large_result_is_streamed(root: Path, address: str) -> None:
    with client.connect(address, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT a.id, b.title FROM product a JOIN product b ON a.id % 100 = b.id % 100 WHERE a.id < 2000"
        )
        reader = cursor.fetch_record_batch()
        assert sum(batch.num_rows for batch in reader) == 2000 * 400


def test_every_type(cursor: Any) -> None:
    cursor.execute("SELECT * FROM types ORDER BY int64")
    found = cursor.fetch_arrow_table()
    for name in TYPES.schema.names:
        assert str(found[name].to_pylist()) == str(TYPES[name].to_pylist()), name


@pytest.mark.parametrize(
    ("sql", "values", "found"),
    [
        ("SELECT id FROM product WHERE id = ?", [7], [(7,)]),
        ("SELECT id FROM product WHERE id = $1 OR title = $2", [7, "product 9"], [(7,), (9,)]),
        ("SELECT id FROM product WHERE id = $2 OR title = $1", ["product 9", 7], [(7,), (9,)]),
        ("SELECT id FROM product WHERE id BETWEEN $low AND $high AND id <> $low", [3, 5], [(4,), (5,)]),
        ("SELECT id FROM product WHERE title = '?' OR id = ?", [7], [(7,)]),
        ("SELECT id FROM product WHERE id = ? AND title = ?", [7, None], []),
        ("SELECT count(*) FROM types WHERE decimal9 > ?", [Decimal("0.01")], 1),
        ("SELECT count(*) FROM types WHERE date > ?", [datetime.date(1970, 1, 1)], 1),
        ("SELECT count(*) FROM types WHERE timestamp > ?", [datetime.datetime(1970, 1, 1)], 1),
        ('SELECT count(*) FROM types WHERE "binary" > ?', [b"\x00"], 1),
        ('SELECT count(*) FROM types WHERE "double" > ?', [0.5], 1),
        ("SELECT count(*) FROM types WHERE bool = ?", [True], 1),
    ],
)  # fmt: skip
def test_parameters(cursor: Any, sql: str, values: list[Any], found: Any) -> None:
    cursor.execute(sql, values)
    rows = sorted(cursor.fetchall())
    assert rows == found if isinstance(found, list) else len(rows) == found and rows[0][0] > 0


def test_prepared_statements(cursor: Any) -> None:
    query = "SELECT id, title FROM product WHERE id = ? AND title LIKE ?"
    schema = cursor.adbc_prepare(query)
    assert schema.types == [pa.int64(), pa.string()]
    for id in (7, 8):
        cursor.execute(query, (id, "product%"))
        assert cursor.fetchall() == [(id, f"product {id}")]
    assert cursor.adbc_prepare("SELECT 1 AS n") == pa.schema([])
    sets = pa.record_batch({"id": list(range(500))})
    cursor.execute("SELECT title FROM product WHERE id = $id", sets)
    assert [row[0] for row in cursor.fetchall()] == [f"product {id}" for id in range(500)]


def test_what_there_is(address: str) -> None:
    with client.connect(address, autocommit=True) as connection:
        assert connection.adbc_get_info()["vendor_name"] == "Needlepoint"
        assert connection.adbc_get_table_types() == ["TABLE", "VIEW"]
        (catalog,) = connection.adbc_get_objects(depth="columns").read_all().to_pylist()
        (schema,) = catalog["catalog_db_schemas"]
        tables = {each["table_name"]: each for each in schema["db_schema_tables"]}
        assert (catalog["catalog_name"], schema["db_schema_name"]) == ("needle", "lake")
        assert {name: each["table_type"] for name, each in tables.items()} == {
            "product": "TABLE", "secret": "TABLE", "types": "TABLE", "cheap": "VIEW"
        }  # fmt: skip
        assert [each["column_name"] for each in tables["product"]["table_columns"]] == ["id", "title", "price"]
        chosen = connection.adbc_get_objects(table_name_filter="p_oduc%").read_all().to_pylist()
        (only,) = chosen[0]["catalog_db_schemas"][0]["db_schema_tables"]
        assert only["table_name"] == "product"
        assert connection.adbc_get_table_schema("product").names == ["id", "title", "price"]


@pytest.mark.filterwarnings("ignore:Cannot disable autocommit")  # there are no transactions
def test_sqlalchemy(address: str) -> None:
    engine = sqlalchemy.create_engine(f"{address.replace('grpc', 'adbc+flightsql')}?tls=false")
    with engine.connect() as connection:
        query = sqlalchemy.text("SELECT id, title FROM product WHERE id IN (:a, :b) ORDER BY id")
        assert connection.execute(query, {"a": 7, "b": 9}).fetchall() == [(7, "product 7"), (9, "product 9")]
        columns = sqlalchemy.inspect(connection).get_columns("product", schema="lake")
        assert [str(column["type"]) for column in columns] == ["BIGINT", "VARCHAR", "FLOAT"]
    engine.dispose()


def test_every_command_has_the_schema_that_it_promises(address: str) -> None:
    with flight.connect(address) as plain:
        for name in messages.COMMANDS:
            if "Statement" in name:
                continue
            info = plain.get_flight_info(flight.FlightDescriptor.for_command(messages.pack(messages.new(name))))
            assert plain.do_get(info.endpoints[0].ticket).read_all().schema == info.schema, name


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM nowhere", "SELEC", "DROP TABLE product", "CREATE INDEX ON product (title)", "SELECT 1/0",
        "COPY product TO '/tmp/x'", "SELECT * FROM '/etc/passwd'", "SELECT id FROM product WHERE id = ?",
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'", "INSERT INTO product VALUES (1)",
    ],
)  # fmt: skip
def test_errors_say_what_and_nothing_of_the_machine(cursor: Any, root: Path, sql: str) -> None:
    with pytest.raises(adbc_driver_manager.Error) as caught:
        cursor.execute(sql)
        cursor.fetchall()
    said = str(caught.value)
    assert "Traceback" not in said and ".py" not in said and str(root) not in said and "failed; its log" not in said


def test_limits(root: Path) -> None:
    with served(root, rows=100, seconds=1, waiting=0, threads=1, body_bytes=100_000) as address, client.connect(
        address, autocommit=True
    ) as connection, connection.cursor() as cursor:  # fmt: skip
        with pytest.raises(adbc_driver_manager.Error, match="100 rows"):
            cursor.execute("SELECT id FROM product")
            cursor.fetchall()
        with pytest.raises(adbc_driver_manager.Error, match="1 second"):
            cursor.execute(LONG_JOIN)
            cursor.fetchall()
        with pytest.raises(adbc_driver_manager.Error, match="parameters have more than 100,000 bytes"):
            cursor.execute("SELECT $x", pa.record_batch({"x": ["long" * 100_000]}))


def test_a_client_cancels(root: Path) -> None:
    with serving(root) as found, client.connect(found.address, autocommit=True) as connection:
        cursor = connection.cursor()
        threading.Timer(0.5, cursor.adbc_cancel).start()
        with pytest.raises(adbc_driver_manager.Error, match=r"(?i)cancel"):
            cursor.execute(LONG_JOIN)
            cursor.fetchall()
        cursor.close()
        eventually(lambda: found.worker.taken == 0 and not found.lake.running())


def test_the_flight_of_a_query_can_be_cancelled(root: Path) -> None:
    with served(root) as address, flight.connect(address) as plain, flight.connect(address) as other:
        command = messages.pack(messages.new("CommandStatementQuery", query=LONG_JOIN))
        info = plain.get_flight_info(flight.FlightDescriptor.for_command(command))
        threading.Timer(0.5, lambda: list(other.do_action(("CancelFlightInfo", _cancelling(info))))).start()
        with pytest.raises(flight.FlightCancelledError):
            plain.do_get(info.endpoints[0].ticket).read_all()


def eventually(holds: Callable[[], bool]) -> None:
    for _ in range(200):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it did not become true")


def ticket(query: str, query_id: str = "", parameters: bytes = b"") -> flight.Ticket:
    handle = messages.new("Statement", query=query, query_id=query_id, parameters=parameters).SerializeToString()
    return flight.Ticket(messages.pack(messages.new("TicketStatementQuery", statement_handle=handle)))


def test_nobody_ends_the_query_of_another(root: Path, tmp_path: Path) -> None:
    """A ticket is what a client makes of it; its id may be that of another's query."""
    tokens = Tokens(tmp_path / "tokens.json")
    ann, bob = (f"Bearer {tokens.create(name, None, None)}".encode() for name in ("ann", "bob"))
    with serving(root, tokens=str(tmp_path / "tokens.json")) as found, flight.connect(found.address) as plain:
        ended: list[BaseException] = []

        def run() -> None:
            try:
                plain.do_get(ticket(LONG_JOIN, "report"), header(ann)).read_all()
            except BaseException as error:
                ended.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        eventually(lambda: bool(found.lake.running()))
        with pytest.raises(flight.FlightServerError, match="id 'report' is running"):
            plain.do_get(ticket("SELECT 1", "report"), header(bob)).read_all()
        info = flight.FlightInfo(pa.schema([]), flight.FlightDescriptor.for_command(b""), [
            flight.FlightEndpoint(ticket(LONG_JOIN, "report"), [])], -1, -1)  # fmt: skip
        for who, status in ((bob, 3), (ann, 1)):
            assert not ended
            (answer,) = plain.do_action(("CancelFlightInfo", _cancelling(info)), header(who))
            assert messages.read("CancelFlightInfoResult", answer.body.to_pybytes()).status == status
        thread.join(20)
        assert isinstance(ended[0], flight.FlightCancelledError)


def header(value: bytes) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(headers=[(b"authorization", value)], timeout=60)


def test_tokens_that_cannot_be_read(root: Path, tmp_path: Path) -> None:
    (tmp_path / "tokens.json").write_text("{")
    with served(root, tokens=str(tmp_path / "tokens.json")) as address, flight.connect(address) as plain:
        with pytest.raises(flight.FlightError) as caught:
            list(plain.do_action(("ClosePreparedStatement", b""), header(b"Bearer x")))
        assert "Traceback" not in str(caught.value) and str(tmp_path) not in str(caught.value)


def test_requests_have_limits(root: Path) -> None:
    def ipc(rows: pa.RecordBatch, **options: Any) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            writer.write_batch(rows)
        return sink.getvalue().to_pybytes()

    one = "SELECT id FROM product WHERE id = $id"
    wrong = {
        "more than 1,000,000 bytes": ticket("SELECT 1 --" + "x" * 1_000_000),
        "not compressed": ticket(one, parameters=ipc(pa.record_batch({"id": [0] * 900}), compression="zstd")),
        "1,500 sets": ticket(one, parameters=ipc(pa.record_batch({"id": list(range(1500))}))),
        " 0 sets": ticket(one, parameters=ipc(pa.record_batch({"id": pa.array([], pa.int64())}))),
        "100 rows": ticket(one, parameters=ipc(pa.record_batch({"id": list(range(101))}))),
        "of both kinds": None,
    }
    with serving(root, rows=100, body_bytes=1_000_000) as found, flight.connect(found.address) as plain:
        for said, given in wrong.items():
            with pytest.raises(flight.FlightServerError, match=said):
                if given is None:
                    query = messages.new("CommandStatementQuery", query="SELECT ?, $p1")
                    plain.get_flight_info(flight.FlightDescriptor.for_command(messages.pack(query)))
                else:
                    plain.do_get(given).read_all()
        hundred = ticket(one, parameters=ipc(pa.record_batch({"id": list(range(100))})))
        assert plain.do_get(hundred).read_all()["id"].to_pylist() == list(range(100))
        counted = found.metrics.text().decode()
        assert 'needlepoint_request_seconds_count{route="flight DoGet",status="400"}' in counted
        assert re.search(r'count\{route="flight DoGet",status="200"\} 1.0', counted)


def test_a_full_queue(root: Path) -> None:
    with serving(root, threads=1, waiting=0, rows=0) as found, flight.connect(found.address) as plain:
        stream = plain.do_get(ticket(JOINED))
        stream.read_chunk()
        with pytest.raises(flight.FlightUnavailableError, match="too many queries"):
            plain.do_get(ticket("SELECT 1")).read_all()
        stream.cancel()
        eventually(lambda: found.worker.taken == 0)
        assert plain.do_get(ticket("SELECT 1 AS one")).read_all().to_pylist() == [{"one": 1}]


@pytest.mark.long
def test_a_client_that_reads_nothing_does_not_keep_the_server(root: Path) -> None:
    with serving(root, shutdown_seconds=1, rows=0) as found:
        plain = flight.connect(found.address)
        stream = plain.do_get(ticket(JOINED))
        stream.read_chunk()
        began = time.monotonic()
        found.server.close()
        assert time.monotonic() - began < 10
        stream.cancel()
        plain.close()


def _cancelling(info: Any) -> bytes:
    return bytes(messages.new("CancelFlightInfoRequest", info=info.serialize()).SerializeToString())


def test_tokens(root: Path, tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    shop, everything = tokens.create("shop", ["product"], 90), tokens.create("all", None, None)
    header, name, password = (
        adbc.DatabaseOptions.AUTHORIZATION_HEADER.value,
        adbc_driver_manager.DatabaseOptions.USERNAME.value,
        adbc_driver_manager.DatabaseOptions.PASSWORD.value,
    )

    def rows(sql: str, **options: str) -> list[Any]:
        with client.connect(address, db_kwargs=options, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    with served(root, tokens=str(tmp_path / "tokens.json")) as address:
        for options in ({header: f"Bearer {shop}"}, {name: "anyone", password: shop}):
            assert rows("SELECT id FROM product WHERE id = 5", **options) == [(5,)]
            assert rows("SELECT max(id) FROM cheap", **options) == [(3,)]
            for sql in ("SELECT * FROM secret", "SELECT * FROM secret WHERE id = 5"):
                with pytest.raises(adbc_driver_manager.Error, match="unknown table 'secret'"):
                    rows(sql, **options)
            with client.connect(address, db_kwargs=options, autocommit=True) as connection:
                assert "secret" not in str(connection.adbc_get_objects().read_all())
                assert "product" in str(connection.adbc_get_objects().read_all())
        assert rows("SELECT max(id) FROM secret", **{header: f"Bearer {everything}"}) == [(2 * ROWS - 1,)]
        for wrong in ({}, {header: "Bearer x"}, {header: "Basic !"}, {name: "a", password: "b"}):
            with pytest.raises(adbc_driver_manager.Error, match=r"(?i)token|unauthenticated"):
                rows("SELECT 1", **wrong)
        with flight.connect(address) as plain:
            found = plain.authenticate_basic_token("anyone", shop)
            assert found == (b"authorization", f"Bearer {shop}".encode())


def test_strange_bytes_are_refused(address: str) -> None:
    """No answer has a traceback, and the server goes on."""
    generator = random.Random(5)
    commands = [messages.pack(messages.new(name)) for name in messages.COMMANDS]
    handle = messages.new("Statement", query="SELECT 1", parameters=b"ARROW1 and so on").SerializeToString()
    commands.append(messages.pack(messages.new("TicketStatementQuery", statement_handle=handle)))
    commands.append(messages.pack(messages.new("CommandPreparedStatementQuery", prepared_statement_handle=handle)))
    with flight.connect(address) as plain:
        for number in range(cases(2000, 60)):
            data = bytearray(
                generator.choice(commands) if number % 2 else generator.randbytes(generator.randrange(1, 60))
            )
            for _ in range(generator.randrange(4)):
                data[generator.randrange(len(data))] = generator.randrange(256)
            calls = [
                lambda data=data: plain.get_flight_info(flight.FlightDescriptor.for_command(bytes(data))),
                lambda data=data: plain.do_get(flight.Ticket(bytes(data))).read_all(),
                lambda data=data: list(plain.do_action(("CreatePreparedStatement", bytes(data)))),
                lambda data=data: list(plain.do_action(("CancelFlightInfo", bytes(data)))),
            ]
            for call in calls:
                try:
                    call()
                except (flight.FlightError, pa.ArrowException) as error:
                    assert "Traceback" not in str(error) and "its log" not in str(error), (bytes(data), error)
        assert [each.type for each in plain.list_actions()] == [
            "CreatePreparedStatement", "ClosePreparedStatement", "CancelFlightInfo"
        ]  # fmt: skip
        with pytest.raises(flight.FlightServerError):
            list(plain.list_flights())


def test_tls(root: Path, tmp_path: Path) -> None:
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2",
               "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate]  # fmt: skip
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs openssl")
    options = {adbc.DatabaseOptions.TLS_ROOT_CERTS.value: Path(certificate).read_text()}
    with served(root, certificate=certificate, private_key=key) as address, client.connect(
        address, db_kwargs=options, autocommit=True
    ) as connection, connection.cursor() as cursor:  # fmt: skip
        cursor.execute("SELECT title FROM product WHERE id = 8")
        assert cursor.fetchall() == [("product 8",)]


@pytest.mark.long
def test_a_client_that_reads_nothing_loses_its_place(root: Path) -> None:
    with serving(root, threads=1, waiting=0, idle=2) as found:
        query = "SELECT a.id, a.title, b.title FROM product a JOIN product b ON a.id % 99 = b.id % 99"
        with flight.connect(found.address) as lazy:
            command = messages.pack(messages.new("CommandStatementQuery", query=query))
            info = lazy.get_flight_info(flight.FlightDescriptor.for_command(command))
            stream = lazy.do_get(info.endpoints[0].ticket)
            stream.read_chunk()
            assert found.worker.taken == 1
            eventually(lambda: not found.worker.taken and not found.lake.running())
            with flight.connect(found.address) as other:  # such streams have places of their own
                again = other.get_flight_info(flight.FlightDescriptor.for_command(command)).endpoints[0].ticket
                with pytest.raises(flight.FlightUnavailableError, match="do not read"):
                    other.do_get(again).read_chunk()
            with pytest.raises(flight.FlightCancelledError, match="read nothing"):  # not the end of its rows
                while True:
                    stream.read_chunk()
