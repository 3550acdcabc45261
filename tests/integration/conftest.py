"""An S3 and SQS server per module, and a bucket per test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.buckets import Bucket, Server


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    from tests.buckets import aws_server

    with aws_server() as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    running.before = running.after = None
    yield running
    running.before = running.after = None


@pytest.fixture
def bucket(server: Server) -> Bucket:
    return server.bucket()
