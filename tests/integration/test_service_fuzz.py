"""Requests that nobody would write: none ends with a 500 or says anything of the machine, and the service goes on."""

from __future__ import annotations

import json
import os
import random
import socket
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import pytest
import schemathesis
from schemathesis import checks
from tests.integration.test_service import served
from tests.lakes import product_lake

import needlepoint
from needlepoint.service import ServiceOptions

THOROUGH = os.environ.get("NEEDLE_TEST_PROFILE") == "thorough"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("service-fuzz")
    with needlepoint.open(root) as lake:
        product_lake(root, files=1)
        lake.create_table("product", root / "product")
        lake.create_index("product", "product_id")
    return root


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[httpx.Client]:
    with served(ServiceOptions(lake=str(root), seconds=5, rows=10_000, body_bytes=50_000)) as client:
        yield client


def checked(found: httpx.Response, root: Path) -> None:
    assert found.status_code < 500, (found.request.url, found.request.content, found.text)
    assert "Traceback" not in found.text and str(root) not in found.text
    assert found.headers["x-request-id"]


def test_requests_of_the_openapi_document(client: httpx.Client, root: Path) -> None:
    schema = schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")
    for operation in schema.get_all_operations():
        call = operation.ok()

        @hypothesis.given(case=call.as_strategy())
        @hypothesis.settings(
            max_examples=300 if THOROUGH else 15,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        def ask(case: Any) -> None:
            case.call_and_validate(checks=[checks.not_a_server_error])

        ask()


WORDS = [
    "SELECT",
    "FROM",
    "product",
    "product_id",
    "'",
    '"',
    "$id",
    "(",
    ")",
    "*",
    "1e999",
    "NULL",
    ";",
    "--",
    "/*",
    "\x00",
    "é",
]


def test_random_bodies(client: httpx.Client, root: Path) -> None:
    generator = random.Random(7)
    values: list[Any] = [
        None,
        True,
        0,
        -1,
        2**63,
        2**64,
        1e308,
        "",
        "x" * 1000,
        "\x00",
        "\ud800",
        [],
        [[]],
        {},
        {"a": 1},
    ]

    def value() -> Any:
        return generator.choice(values)

    for number in range(2000 if THOROUGH else 150):
        sql = " ".join(generator.choices(WORDS, k=generator.randrange(1, 9)))
        body: Any = {
            "sql": generator.choice([sql, "SELECT $id", "SELECT * FROM product WHERE product_id = $id", value()])
        }
        for name in ("parameters", "limits", "query_id", "scan", "report", generator.choice(string.ascii_letters)):
            if generator.random() < 0.3:
                body[name] = generator.choice([value(), {"id": value()}, {"seconds": value(), "rows": value()}])
        content = json.dumps(generator.choice([body, body, body, [body], value()])).encode()
        if number % 5 == 0:
            content = bytes(generator.choice(content) for _ in content)
        path = generator.choice(["/v1/sql", "/v1/explain", "/v1/map"])
        checked(client.post(path, content=content, headers={"Content-Type": "application/json"}), root)


def test_random_keys(client: httpx.Client, root: Path) -> None:
    generator = random.Random(8)
    texts = [
        "",
        "1",
        "-1",
        "9" * 40,
        "1e5",
        "é",
        "\x00",
        "%",
        "a,b",
        "product_id",
        "columns",
        "title",
        "NaN",
        "x" * 3000,
        "../..",
        "'",
    ]
    for _ in range(2000 if THOROUGH else 150):
        keys = [(generator.choice(texts), generator.choice(texts)) for _ in range(generator.randrange(4))]
        table = generator.choice(["product", "nowhere", "..", "%2e%2e", "a%00b", "é"])
        checked(client.get(f"/v1/tables/{table}/rows", params=keys), root)


def test_random_headers(client: httpx.Client, root: Path) -> None:
    generator = random.Random(9)
    names = [
        "Accept",
        "Authorization",
        "Content-Type",
        "X-Request-Id",
        "Host",
        "Origin",
        "Cookie",
        "Content-Encoding",
        "Range",
        "TE",
    ]
    signs = string.ascii_letters + string.digits + ' ,;=*/"\t\x80\xff'
    for _ in range(2000 if THOROUGH else 150):
        chosen = {name.encode(): "".join(generator.choices(signs, k=generator.randrange(40))).strip().encode("latin-1")
                  for name in generator.sample(names, 3)}  # fmt: skip
        found = client.request(
            generator.choice(["GET", "POST", "DELETE", "PUT", "OPTIONS", "HEAD"]),
            generator.choice(["/v1/sql", "/v1/tables", "/v1/tables/product/rows?title=1", "/metrics", "/", "/%00"]),
            headers=list(chosen.items()),
        )  # fmt: skip
        checked(found, root)
        assert "access-control-allow-origin" not in found.headers


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"\r\n\r\n", b"GET", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET " + b"/" * 100_000,
        b"POST /v1/sql HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/sql HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n{}",
        b"POST /v1/sql HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFF\r\n{}",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"A%d: b\r\n" % n for n in range(5000)) + b"\r\n",
    ],
)  # fmt: skip
def test_bytes_that_are_no_request(client: httpx.Client, raw: bytes) -> None:
    with socket.create_connection((client.base_url.host, client.base_url.port or 0), 5) as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(2)
        try:
            found = connection.recv(1000)
        except (TimeoutError, ConnectionError):
            found = b""
    assert b" 500 " not in found and b"Traceback" not in found
    assert client.get("/health").status_code == 200
