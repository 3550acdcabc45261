"""The HTTP service, as a process on loopback answers it."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uvicorn
from adbc_driver_flightsql.dbapi import connect as flight_client
from tests.lakes import LONG_JOIN, product_lake, products, staged

import needlepoint
from needlepoint import UsageError
from needlepoint.service import ServiceOptions, Tokens
from needlepoint.service.app import create_app

ROWS = 20_000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("service") / "lake"
    for name in ("product", "secret"):
        (root / name).mkdir(parents=True)
        for number in range(2):
            ids = range(number * ROWS, (number + 1) * ROWS)
            rows = pa.table({"id": ids, "title": [f"{name} {id}" for id in ids], "price": [id / 4 for id in ids]})
            pq.write_table(rows, root / name / f"{number}.parquet", row_group_size=5000)
    with needlepoint.open(root) as lake:
        for name in ("product", "secret"):
            lake.create_table(name)
            lake.create_index(name, "id")
        lake.sql("CREATE VIEW cheap AS SELECT id FROM product WHERE price < 1")
    return root


@contextmanager
def served(options: ServiceOptions) -> Iterator[httpx.Client]:
    """A server in this process, on a free port."""
    config = uvicorn.Config(create_app(options), port=0, log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(30)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[httpx.Client]:
    with served(ServiceOptions(lake=str(root), seconds=20, body_bytes=100_000)) as client:
        yield client


def ask(client: httpx.Client, sql: str, parameters: dict[str, Any] | None = None, **more: Any) -> Any:
    found = client.post("/v1/sql", json={"sql": sql, "parameters": parameters, **more})
    assert found.status_code == 200, found.text
    return found.json()


# Rows


def test_sql(client: httpx.Client) -> None:
    found = ask(client, "SELECT id, title FROM product WHERE id = $id", {"id": 77})
    assert found["rows"] == [{"id": 77, "title": "product 77"}]
    assert found["columns"] == [{"name": "id", "type": "int64"}, {"name": "title", "type": "string"}]
    assert found["query_id"] and found["seconds"] > 0
    by_place = {"sql": "SELECT id FROM product WHERE id = ? OR title = ? ORDER BY id", "parameters": [77, "product 5"]}
    assert ask(client, **by_place)["rows"] == [{"id": 5}, {"id": 77}]
    assert client.post("/v1/explain", json=by_place).status_code == 200
    assert client.post("/v1/sql", json=by_place | {"parameters": [1]}).status_code == 400


def test_every_format(client: httpx.Client) -> None:
    def get(accept: str) -> httpx.Response:
        body = {"sql": "SELECT id, title FROM product WHERE id < 3 ORDER BY id"}
        return client.post("/v1/sql", json=body, headers={"Accept": accept})

    rows = [{"id": id, "title": f"product {id}"} for id in range(3)]
    assert get("application/json").json()["rows"] == rows
    assert get("*/*").json()["rows"] == rows
    lines = get("application/x-ndjson")
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line) for line in lines.text.splitlines()] == rows
    assert get("text/csv;q=0.9, application/json;q=0.1").text.splitlines()[:2] == ['"id","title"', '0,"product 0"']
    assert pa.ipc.open_stream(get("application/vnd.apache.arrow.stream").content).read_all().to_pylist() == rows
    assert get("image/png").status_code == 406


def test_a_large_result_is_streamed(root: Path) -> None:
    with served(ServiceOptions(lake=str(root))) as client:
        query = "SELECT a.id, b.title FROM product a JOIN product b ON a.id % 200 = b.id % 200 WHERE a.id < 1000"
        body = {"sql": query}
        with client.stream("POST", "/v1/sql", json=body, headers={"Accept": "application/x-ndjson"}) as response:
            assert response.status_code == 200
            lines = sum(1 for _ in response.iter_lines())
        assert lines == 1000 * ROWS * 2 // 200
        found = client.post("/v1/sql", json=body, headers={"Accept": "application/vnd.apache.arrow.stream"})
        assert pa.ipc.open_stream(io.BytesIO(found.content)).read_all().num_rows == lines
        assert client.get("/v1/queries").json() == {"queries": []}


def test_a_client_that_goes_away_ends_its_query(client: httpx.Client) -> None:
    body = {"sql": "SELECT a.id, b.title FROM product a, product b"}
    with client.stream("POST", "/v1/sql", json=body, headers={"Accept": "application/x-ndjson"}) as response:
        next(response.iter_lines())
    for _ in range(500):
        if not client.get("/v1/queries").json()["queries"]:
            return
        time.sleep(0.02)
    raise AssertionError("the query still runs")


def test_head_is_get_without_a_body(client: httpx.Client) -> None:
    for path in ("/", "/health", "/ready", "/v1/tables", "/v1/tables/product/rows?id=7"):
        got, head = client.get(path), client.head(path)
        assert head.status_code == 200 and not head.content, path
        assert head.headers["content-type"] == got.headers["content-type"], path


def test_a_client_that_leaves_before_the_first_row_ends_its_query(client: httpx.Client) -> None:
    with pytest.raises(httpx.ReadTimeout):
        client.post("/v1/sql", json={"sql": LONG_JOIN, "query_id": "left"}, timeout=1)
    for _ in range(100):
        if not client.get("/v1/queries").json()["queries"]:
            return
        time.sleep(0.05)
    raise AssertionError("the query runs on")


def test_a_client_that_reads_nothing_loses_its_place(root: Path) -> None:
    with served(ServiceOptions(lake=str(root), threads=1, waiting=0, idle=0.5)) as client:
        body = json.dumps({"sql": "SELECT a.id, a.title FROM product a JOIN product b ON a.id % 99 = b.id % 99"})
        head = "POST /v1/sql HTTP/1.1\r\nHost: localhost\r\nAccept: text/csv\r\nContent-Type: application/json\r\n"
        with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as lazy:
            lazy.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            statuses = []
            for _ in range(200):
                statuses.append(client.post("/v1/sql", json={"sql": "SELECT count(*) AS n FROM secret"}).status_code)
                if 429 in statuses and statuses[-1] == 200:
                    return
                time.sleep(0.05)
        raise AssertionError(statuses)


def test_without_tokens_the_service_has_only_names_of_this_machine(root: Path, tmp_path: Path) -> None:
    """Else a page of another site could make its own name mean this machine, and read the lake."""

    def status(client: httpx.Client, host: str) -> int:
        return client.get("/v1/tables", headers={"Host": host}).status_code

    with served(ServiceOptions(lake=str(root), hosts=("lake.example.com",))) as client:
        for name in (
            "localhost",
            "localhost:8321",
            "127.0.0.1",
            "[::1]:8321",
            "lake.example.com",
            "LAKE.example.com:80",
        ):
            assert status(client, name) == 200, name
        for name in (
            "evil.example",
            "evil.example:8321",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
        ):
            assert status(client, name) == 421, name
    Tokens(tmp_path / "tokens.json").create("x", None, None)
    with served(ServiceOptions(lake=str(root), tokens=str(tmp_path / "tokens.json"))) as client:
        assert status(client, "evil.example") == 401


def test_rows_by_key(client: httpx.Client) -> None:
    def rows(query: str) -> Any:
        return client.get(f"/v1/tables/product/rows?{query}").json()["rows"]

    assert rows("id=5") == [{"id": 5, "title": "product 5", "price": 1.25}]
    assert sorted(row["id"] for row in rows("id=5&id=7&columns=id")) == [5, 7]
    assert rows("id=5&columns=title,id") == [{"title": "product 5", "id": 5}]
    assert rows("id=5&title=product+6") == []
    assert rows("price=2.5&columns=id") == [{"id": 10}]


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("product/rows?id=x", 400, "'x' is not a value of column 'id'"),
        ("product/rows?nothing=1", 404, "unknown column 'nothing'"),
        ("product/rows?id=1&columns=nothing", 404, "unknown column 'nothing'"),
        ("product/rows", 400, "names no key"),
        ("nothing/rows?id=1", 404, "unknown table 'nothing'"),
        ("nothing", 404, "unknown table 'nothing'"),
        ("..%2Fsecret/rows?id=1", 404, ""),
    ],
)
def test_wrong_lookups(client: httpx.Client, path: str, status: int, said: str) -> None:
    found = client.get(f"/v1/tables/{path}")
    assert found.status_code == status and said in found.text
    assert found.json()["request_id"] == found.headers["x-request-id"]


# What is there


def test_the_lake(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    assert client.get("/v1/tables").json() == {"tables": ["product", "secret"], "views": ["cheap"]}
    table = client.get("/v1/tables/product").json()
    assert table["rows"] == 2 * ROWS and [column["name"] for column in table["columns"]] == ["id", "title", "price"]
    assert [index["name"] for index in client.get("/v1/indexes").json()["indexes"]] == [
        "product_id_key",
        "secret_id_key",
    ]
    assert client.get("/v1/status").json()["waiting_events"] == 0
    report = client.post("/v1/explain", json={"sql": "SELECT title FROM product WHERE id = 7"}).json()
    assert report["tables"][0]["table"] == "product"
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/v1/sql", "/v1/tables/{table}/rows", "/v1/queries/{query_id}"} <= paths.keys()


def test_what_a_query_reads(client: httpx.Client) -> None:
    query = {"sql": "SELECT title FROM product WHERE id = 30007"}
    (drawn,) = client.post("/v1/map", json=query).json()["tables"]
    (directory,) = drawn["directories"]
    assert directory["names"] == ["0.parquet", "1.parquet"] and directory["access"] == [0, 2]
    assert [drawn["steps"][step] if step >= 0 else None for step in directory["step"]] == ["by_zone", None]
    groups = drawn["pages"]["1.parquet"]
    assert [group["read"] for group in groups] == [0, 0, 1, 0] and all(group["rows"] == 5000 for group in groups)
    assert [lit for group in groups for _, _, lit in group["pages"]].count(1) == 1
    found = ask(client, report=True, **query)
    scanned = ask(client, report=True, scan=True, **query)
    assert found["rows"] == scanned["rows"] == [{"title": "product 30007"}]
    (by_index,), (by_scan,) = found["report"]["tables"], scanned["report"]["tables"]
    assert (by_index["scanned_files"], by_scan["scanned_files"]) == (0, 2)
    assert "report" not in ask(client, **query)


def test_names_and_advice(client: httpx.Client) -> None:
    found = client.get("/v1/completion").json()
    assert found["tables"].keys() == {"product", "secret", "cheap"}
    assert [column["name"] for column in found["tables"]["product"]] == ["id", "title", "price"]
    assert {"upper", "sum", "text_match"} <= set(found["functions"])
    assert [table["table"] for table in client.get("/v1/advise").json()["tables"]] == ["product", "secret"]


def test_names_are_not_counted_as_rows(root: Path) -> None:
    with served(ServiceOptions(lake=str(root), rows=5)) as client:
        assert len(client.get("/v1/completion").json()["functions"]) > 100


def test_a_port_that_is_taken(root: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-m", "needlepoint", "--lake", str(root), "serve", "--port"]
        done = subprocess.run([*command, str(taken.getsockname()[1])], capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2) and "--port chooses another" in done.stderr and "http://" not in done.stderr


def test_metrics(client: httpx.Client) -> None:
    ask(client, "SELECT id FROM product WHERE id = 7")
    text = client.get("/metrics").text
    assert 'needlepoint_request_seconds_count{route="/v1/sql",status="200"}' in text
    lines = [line.split() for line in text.splitlines() if line.startswith("needlepoint_bytes_")]
    sizes = {name: float(value) for name, value in lines}
    assert sizes["needlepoint_bytes_read_total"] > 0 and sizes["needlepoint_bytes_skipped_total"] > 0
    assert "needlepoint_rows_total" in text and 'needlepoint_cache_hits_total{cache="cards"}' in text


# Limits


@pytest.mark.parametrize(
    "sql",
    [
        "SELEC 1",
        "SELECT * FROM nothing",
        "SELECT nothing FROM product",
        "CREATE VIEW x AS SELECT 1",
        "DROP VIEW cheap",
        "CREATE INDEX ON product USING key (title)",
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'",
        "CREATE TABLE x AS SELECT 1",
        "COPY (SELECT 1) TO '/tmp/needlepoint-x.csv'",
        "INSERT INTO product VALUES (1)",
        "SET datafusion.execution.batch_size = 1",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM 's3://other/x.parquet'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM parquet_metadata('/etc/passwd')",
        "",
        "SELECT 1; SELECT 2",
    ],
)
def test_what_sql_may_not_do(client: httpx.Client, root: Path, sql: str) -> None:
    found = client.post("/v1/sql", json={"sql": sql})
    assert found.status_code in (400, 404, 422), found.text
    said = found.json()["error"]
    assert said["message"] and str(root) not in found.text and "root:" not in found.text
    assert not Path("/tmp/needlepoint-x.csv").exists()


def test_limits_of_a_query(client: httpx.Client) -> None:
    body = {"sql": "SELECT * FROM product", "limits": {"rows": 10}}
    found = client.post("/v1/sql", json=body)
    assert found.status_code == 422 and "more than 10 rows" in found.text
    found = client.post("/v1/sql", json={"sql": "x" * 200_000})
    assert found.status_code == 413 and "more than 100,000 bytes" in found.text
    pieces = (b"x" * 50_000 for _ in range(5))
    assert client.post("/v1/sql", content=pieces).status_code == 413
    assert client.post("/v1/sql", json={"sql": "SELECT 1", "more": 1}).status_code == 422
    assert client.post("/v1/sql", content=b"\xff\x00").status_code == 422
    assert client.get("/v1/sql").status_code == 405
    assert client.get("/nothing").status_code == 404


def test_a_client_cancels_its_query(root: Path) -> None:
    """In a process of its own: a join of three tables goes on in the background."""
    with process(root, "--seconds", "60") as (client, _):
        found: list[httpx.Response] = []
        body = {"sql": LONG_JOIN, "query_id": "long"}
        thread = threading.Thread(target=lambda: found.append(client.post("/v1/sql", json=body)))
        thread.start()
        for _ in range(1000):
            running = client.get("/v1/queries").json()["queries"]
            if running:
                break
            time.sleep(0.01)
        assert running[0]["query_id"] == "long" and running[0]["sql"] == LONG_JOIN
        assert client.delete("/v1/queries/other").status_code == 404
        assert client.delete("/v1/queries/long").json() == {"cancelled": "long"}
        thread.join(30)
        assert found[0].status_code == 409 and "cancelled after" in found[0].text
        assert ask(client, "SELECT count(*) AS n FROM product")["rows"] == [{"n": 2 * ROWS}]
        found = [client.post("/v1/sql", json={"sql": LONG_JOIN, "limits": {"seconds": 0.2}})]
        assert found[0].status_code == 422 and "more than 0.2 seconds" in found[0].text


@pytest.mark.long
def test_too_many_queries_wait(root: Path) -> None:
    with process(root, "--threads", "1", "--waiting", "0", "--seconds", "1") as (client, _):
        thread = threading.Thread(target=lambda: client.post("/v1/sql", json={"sql": LONG_JOIN}))
        thread.start()
        for _ in range(1000):
            if client.get("/v1/queries").json()["queries"]:
                break
            time.sleep(0.01)
        refused = client.post("/v1/sql", json={"sql": "SELECT 1"})
        assert refused.status_code == 429 and refused.headers["retry-after"] == "1"
        assert client.get("/health").status_code == 200
        thread.join()
        assert ask(client, "SELECT 1 AS one")["rows"] == [{"one": 1}]


# Rights


def test_tokens(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    tokens = Tokens(file)
    shop, all_tables = tokens.create("shop", ["product"], 90), tokens.create("all", None, None)
    expired = tokens.create("old", None, -1)
    assert file.stat().st_mode & 0o077 == 0 and shop not in file.read_text()
    with served(ServiceOptions(lake=str(root), tokens=str(file))) as client:

        def status(token: str, path: str, **body: Any) -> int:
            headers = {"Authorization": f"Bearer {token}"}
            found = client.post(path, json=body, headers=headers) if body else client.get(path, headers=headers)
            return found.status_code

        for token in ("x", "x y", expired, shop[:-1]):
            assert status(token, "/v1/sql", sql="SELECT 1") == 401
            assert status(token, "/v1/status") == status(token, "/metrics") == status(token, "/v1/queries") == 401
        assert client.get("/v1/tables").headers["www-authenticate"] == "Bearer"
        assert client.get("/health").status_code == client.get("/ready").status_code == 200
        assert status(shop, "/v1/sql", sql="SELECT * FROM product WHERE id = 5") == 200
        assert status(shop, "/v1/sql", sql="SELECT * FROM cheap") == 200
        assert status(shop, "/v1/sql", sql="SELECT * FROM secret WHERE id = 5") == 404
        assert status(shop, "/v1/explain", sql="SELECT * FROM secret") == 404
        assert status(shop, "/v1/tables/secret") == status(shop, "/v1/tables/secret/rows?id=1") == 404
        assert status(shop, "/v1/map", sql="SELECT * FROM secret") == 404
        assert status(shop, "/v1/sql", sql="SELECT * FROM secret WHERE id = 5", scan=True) == 404
        for path in ("/v1/tables", "/v1/indexes", "/v1/status", "/v1/completion", "/v1/advise"):
            assert "secret" not in client.get(path, headers={"Authorization": f"Bearer {shop}"}).text
            assert "secret" in client.get(path, headers={"Authorization": f"Bearer {all_tables}"}).text
        tokens.revoke("shop")
        assert status(shop, "/v1/sql", sql="SELECT 1") == 401


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_nobody_takes_over_the_query_of_another(root: Path, tmp_path: Path, workers: int) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    mine, others = ({"Authorization": f"Bearer {tokens.create(name, None, None)}"} for name in ("mine", "others"))
    with process(root, "--tokens", str(tmp_path / "tokens.json"), "--workers", str(workers)) as (client, _):
        body = {"sql": LONG_JOIN, "query_id": "long"}
        found: list[httpx.Response] = []
        thread = threading.Thread(target=lambda: found.append(client.post("/v1/sql", json=body, headers=mine)))
        thread.start()
        while not client.get("/v1/queries", headers=mine).json()["queries"]:
            time.sleep(0.01)
        for _ in range(5):  # new connections, which any of the processes may take
            with httpx.Client(base_url=client.base_url, headers=others) as other:
                refused = other.post("/v1/sql", json={"sql": "SELECT 1", "query_id": "long"})
                assert (refused.status_code == 409 and "is running" in refused.text) or workers > 1
                assert other.get("/v1/queries").json() == {"queries": []}
                assert other.delete("/v1/queries/long").status_code == 404
        assert client.delete("/v1/queries/long", headers=mine).json() == {"cancelled": "long"}
        thread.join(30)
        assert found[0].status_code == 409


def test_responses_name_no_place_of_the_machine(tmp_path: Path) -> None:
    for name in ("item", "gone"):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"id": [1, 2]}), tmp_path / name / "0.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("item")
        lake.create_table("gone")
    (tmp_path / "gone" / "0.parquet").write_bytes(b"PAR1 and more that is no Parquet file PAR1")
    with served(ServiceOptions(lake=str(tmp_path))) as client:
        query = {"sql": "SELECT * FROM item WHERE id = 1"}
        responses = [
            client.post("/v1/explain", json=query),
            client.post("/v1/explain", json={"sql": "SELECT * FROM gone"}),
        ]
        responses += [client.get(path) for path in ("/v1/status", "/v1/tables/item", "/v1/tables/gone", "/metrics")]
        responses += [client.post("/v1/sql", json={"sql": f"{word} SELECT * FROM gone"}) for word in ("", "EXPLAIN")]
        for response in responses:
            assert str(tmp_path) not in response.text, response.text


def test_only_loopback_without_tokens(root: Path) -> None:
    with pytest.raises(UsageError, match="needs tokens"):
        create_app(ServiceOptions(lake=str(root), host="0.0.0.0"))
    with pytest.raises(UsageError, match="private key"):
        create_app(ServiceOptions(lake=str(root), certificate="x"))


# The process


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def process(root: Path, *options: str) -> Iterator[tuple[httpx.Client, subprocess.Popen[str]]]:
    """`needle serve` on a free port."""
    port = free_port()
    command = [sys.executable, "-m", "needlepoint", "--lake", str(root), "serve", "--port", str(port), *options]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            for _ in range(600):
                assert started.poll() is None, started.communicate()[1]
                try:
                    client.get("/ready")
                    break
                except httpx.TransportError:
                    time.sleep(0.05)
            yield client, started
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def test_datafusion_is_imported_before_the_first_query(root: Path) -> None:
    program = (
        "import sys; from needlepoint.service import ServiceOptions; from needlepoint.service.app import create_app; "
        "begun = 'datafusion' in sys.modules; create_app(ServiceOptions(lake=sys.argv[1])); "
        "print(begun, 'datafusion' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(root)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_sigterm_finishes_running_queries(root: Path) -> None:
    flight_port = free_port()
    with process(root, "--flight-port", str(flight_port)) as (client, server):
        with flight_client(f"grpc://127.0.0.1:{flight_port}", autocommit=True) as flight, flight.cursor() as cursor:
            cursor.execute("SELECT title FROM product WHERE id = ?", [7])
            assert cursor.fetchall() == [("product 7",)]
        found: list[httpx.Response] = []
        query = "SELECT count(*) AS n FROM product a, product b WHERE a.id < 3000 AND b.id < 30000 AND a.id + b.id < 9"
        thread = threading.Thread(target=lambda: found.append(client.post("/v1/sql", json={"sql": query})))
        thread.start()
        while not client.get("/v1/queries").json()["queries"] and not found:
            time.sleep(0.005)
        server.send_signal(signal.SIGTERM)
        thread.join(60)
        assert found[0].json()["rows"] == [{"n": 45}]
        errors = server.communicate(timeout=30)[1]
        assert server.returncode in (0, -signal.SIGTERM), errors
        logged = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
        (sql,) = [line for line in logged if line["route"] == "/v1/sql"]
        assert sql["status"] == 200 and sql["ms"] > 0 and "9000" not in errors and "SELECT" not in errors


@pytest.mark.long
def test_several_processes_of_two_services(root: Path, tmp_path: Path) -> None:
    """The second is refused before the processes of the first listen."""
    command = [sys.executable, "-m", "needlepoint", "--lake", str(root), "serve", "--workers", "2"]
    command += ["--port", str(free_port())]
    services = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) for _ in range(2)]
    try:
        while all(each.poll() is None for each in services):
            time.sleep(0.01)
        (ended,) = [each for each in services if each.poll() is not None]
        assert ended.returncode == 1 and "port" in ended.communicate()[1]
    finally:
        for each in services:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()


@pytest.mark.long
def test_several_processes(root: Path) -> None:
    flight_port = free_port()
    with process(root, "--workers", "2", "--flight-port", str(flight_port)) as (client, server):
        with flight_client(f"grpc://127.0.0.1:{flight_port}", autocommit=True) as flight, flight.cursor() as cursor:
            cursor.execute("SELECT title FROM product WHERE id = ?", [7])
            assert cursor.fetchall() == [("product 7",)]
        for id in range(20):
            assert client.get(f"/v1/tables/product/rows?id={id}").json()["rows"][0]["id"] == id
        url = str(client.base_url)
        while len({*re.findall(r'process="(\d+)"', client.get("/metrics").text)}) < 3:  # and the process of Flight SQL
            time.sleep(0.05)
        others = [socket.create_connection((client.base_url.host, client.base_url.port)) for _ in range(32)]
        for other in others:
            with other:
                other.sendall(b"GET /v1/tables HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert other.recv(12) == b"HTTP/1.1 200"
        text = client.get("/metrics").text
        shares = re.findall(r'request_seconds_count{process="\d+",route="/v1/tables".*} (\S+)', text)
        assert len(shares) == 2 and min(map(float, shares)) >= 4, shares
        running = [
            threading.Thread(target=httpx.post, args=(f"{url}/v1/sql",), kwargs={"json": query, "timeout": 60})
            for query in ({"sql": LONG_JOIN, "query_id": f"long-{number}"} for number in range(4))
        ]
        for thread in running:
            thread.start()
        names = {f"long-{number}" for number in range(4)}
        seen: list[bool] = []
        while len(seen) < 200 and seen[-20:] != [True] * 20:  # whichever process answers, it knows the queries of both
            seen.append({each["query_id"] for each in httpx.get(f"{url}/v1/queries").json()["queries"]} == names)
        assert seen[-20:] == [True] * 20, seen
        for name in names:
            assert httpx.delete(f"{url}/v1/queries/{name}").json() == {"cancelled": name}
        for thread in running:
            thread.join()
        for _ in range(10):
            text = httpx.get(f"{url}/metrics").text
            counts = re.findall(r'request_seconds_count{process="\d+",route="/v1/tables/{table}/rows".*} (\S+)', text)
            assert sum(map(float, counts)) == 20 and text.count("# TYPE needlepoint_rows_total counter") == 1
        server.send_signal(signal.SIGTERM)
        errors = server.communicate(timeout=60)[1]
        assert server.returncode in (0, -signal.SIGTERM) and "Traceback" not in errors, errors


@pytest.mark.long
def test_an_indexer_beside_it(tmp_path: Path) -> None:
    with needlepoint.open(tmp_path) as lake:
        product_lake(tmp_path, files=1)
        lake.create_table("product")
        lake.create_index("product", "product_id")
    with process(tmp_path, "--indexer") as (client, server), needlepoint.open(tmp_path) as lake:
        staging = Path(lake.writer.staging("product"))
        lake.publish("product", staged(staging, {"year=2020/new.parquet": products(900_000, 5)}), staging)
        for _ in range(300):
            table = client.get("/v1/tables/product").json()
            if table["indexed"] == table["files"] == 2:
                break
            time.sleep(0.1)
        assert table["indexed"] == 2
        assert client.get("/v1/tables/product/rows?product_id=900003").json()["rows"][0]["upc"] == "U000900003"
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
