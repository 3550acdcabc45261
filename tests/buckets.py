"""S3 and SQS on loopback, with queues and with buckets that tests fill, observe and make fail."""

from __future__ import annotations

import functools
import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.config import Config
from moto.backends import get_backend
from moto.core import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

_NUMBERS = itertools.count(1)
ACCESS_KEY, SECRET_KEY = "TESTKEYIDTESTKEYID", "dGhlIHNlY3JldCBvZiB0aGUgdGVzdHM"


@dataclass(frozen=True)
class Asked:
    """One request that the server received."""

    method: str
    path: str
    query: str
    range: str

    @property
    def bytes(self) -> int:
        first, _, last = self.range.removeprefix("bytes=").partition("-")
        return int(last) - int(first) + 1


@dataclass
class Server:
    """`asked` holds every request except those of the tests themselves. `before` is called with each request before it
    is answered; if it returns a status, the server answers with that. `after` is the same when the request was handled
    and before its answer: a status takes the place of that."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    before: Callable[[Asked], int | None] | None = None
    after: Callable[[Asked], int | None] | None = None

    @functools.cached_property
    def client(self) -> Any:
        return self._client("s3")

    @functools.cached_property
    def sqs(self) -> Any:
        return self._client("sqs")

    def _client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(user_agent_extra="of-the-test"),
        )

    def bucket(self) -> Bucket:
        # All servers of a process have the same buckets.
        name = f"bucket-{next(_NUMBERS)}"
        client = self.client
        client.create_bucket(Bucket=name)
        return Bucket(name, self, client)

    def queue(self, name: str, **attributes: str) -> str:
        """The URL of a queue for a lake; creates the queue if it does not exist."""
        fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
        self.sqs.create_queue(QueueName=name, Attributes={**fifo, **attributes})
        return f"sqs://{name}?wait=0"

    def demand_credentials(self, *, demanded: bool = True) -> None:
        count = b"0" if demanded else b"inf"
        text = {"Content-Type": "text/plain"}
        urlopen(Request(f"{self.url}/moto-api/reset-auth", data=count, headers=text, method="POST")).read()

    def listings(self, start: int = 0) -> list[Asked]:
        """Requests for the keys in a bucket."""
        return [each for each in self.asked[start:] if each.method == "GET" and "list-type" in each.query]

    def gets(self, start: int = 0) -> list[Asked]:
        """Requests for the bytes of objects."""
        return [each for each in self.asked[start:] if each.method == "GET" and each.path.endswith(".parquet")]


@dataclass(frozen=True)
class Bucket:
    name: str
    server: Server
    client: Any

    def url(self, key: str) -> str:
        return f"s3://{self.name}/{key}"

    def put(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=content)

    def put_quickly(self, keys: Iterable[str], content: bytes) -> None:
        """Put objects without the server, which takes some milliseconds for each."""
        backend = get_backend("s3")[DEFAULT_ACCOUNT_ID]["aws"]
        for key in keys:
            backend.put_object(self.name, key, content)

    def put_table(self, key: str, table: pa.Table, **options: object) -> None:
        self.put(key, parquet(table, **options))

    def put_directory(self, directory: Path, prefix: str) -> None:
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(directory)}", path.read_bytes())

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=key)


def parquet(table: pa.Table, **options: object) -> bytes:
    out = BytesIO()
    settings = {"write_page_index": True, "max_rows_per_page": 100, "use_dictionary": False, "row_group_size": 1000}
    pq.write_table(table, out, **{**settings, **options})
    return out.getvalue()


@contextmanager
def aws_server() -> Iterator[Server]:
    """A server, with environment variables that point to it."""
    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        for name in (
            "AWS_SESSION_TOKEN",
            "AWS_ENDPOINT_URL_S3",
            "AWS_ENDPOINT_URL_SQS",
            "AWS_ALLOW_HTTP",
            "AWS_PROFILE",
        ):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", server.url)
        yield server


@contextmanager
def s3_server() -> Iterator[Server]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = DomainDispatcherApplication(create_backend_app)
    # For each request it lists the directory of all its services, which takes as long as the rest of an answer.
    moto.get_backend_for_host = functools.cache(moto.get_backend_for_host)  # type: ignore[method-assign]
    server = Server()

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if "of-the-test" not in environ.get("HTTP_USER_AGENT", "") and "moto-api" not in environ["PATH_INFO"]:
            asked = Asked(
                environ["REQUEST_METHOD"],
                environ["PATH_INFO"],
                environ.get("QUERY_STRING", ""),
                environ.get("HTTP_RANGE", ""),
            )
            server.asked.append(asked)
            status = server.before(asked) if server.before is not None else None
            if status is not None:
                return refuse(status, start_response)
            if server.after is not None:
                answer: list[Any] = []
                body = b"".join(moto(environ, lambda *given: answer.extend(given)))
                status = server.after(asked)
                if status is not None:
                    return refuse(status, start_response)
                start_response(*answer)
                return [body]
        return moto(environ, start_response)

    def refuse(status: int, start_response: Callable[..., Any]) -> list[bytes]:
        start_response(f"{status} of the test", [("Content-Length", "0")])
        return [b""]

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps connections open, as S3 does

    listener = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Handler)
    server.url = f"http://127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()
