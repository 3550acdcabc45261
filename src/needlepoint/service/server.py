"""Starts the service, with one process or several."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import uvicorn
from fastapi import FastAPI

import needlepoint
from needlepoint.errors import UsageError
from needlepoint.service.app import create_app
from needlepoint.service.flight.server import FlightServer
from needlepoint.service.logs import to_stderr
from needlepoint.service.metrics import Metrics
from needlepoint.service.options import ServiceOptions
from needlepoint.service.processes import LONGEST_PATH, Processes
from needlepoint.service.worker import Worker

_OPTIONS = "NEEDLE_SERVICE_OPTIONS"  # how worker processes get the options; they have no secret


def serve(options: ServiceOptions, begins: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGINT or SIGTERM; running queries are finished first. `begins` is called before."""
    options.check()
    _check_port(options)
    if options.workers > 1:
        with tempfile.TemporaryDirectory(prefix="needlepoint-") as sockets:
            if len(os.fsencode(sockets)) > LONGEST_PATH - len("/4194304"):
                raise UsageError(f"the path {sockets} is too long for sockets.", hint="Set TMPDIR to a shorter one.")
            _serve_in_processes(replace(options, sockets=sockets), begins)
        return
    to_stderr()
    app = create_app(options)
    begins()
    uvicorn.run(app, **_config(options))


def _serve_in_processes(options: ServiceOptions, begins: Callable[[], None]) -> None:
    os.environ[_OPTIONS] = options.to_json()
    with _flight(options):
        begins()
        uvicorn.run("needlepoint.service.server:worker_app", factory=True, workers=options.workers, **_config(options))


def _check_port(options: ServiceOptions) -> None:
    """A clear error; uvicorn's own comes after it said that it started."""
    try:
        for place in socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[:1]:
            with socket.socket(place[0], socket.SOCK_STREAM) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(place[4])
    except OSError as error:
        why = f"the service cannot listen on {options.host}:{options.port}: {error.strerror or error}."
        raise UsageError(why, hint="Another program may use it; --port chooses another port.") from None


def worker_app() -> FastAPI:
    """The app of a worker process."""
    to_stderr()
    return create_app(ServiceOptions.from_json(os.environ[_OPTIONS]))


@contextmanager
def _flight(options: ServiceOptions) -> Iterator[None]:
    """Flight SQL beside several workers. It is in this process: its port cannot be shared."""
    if options.flight_port is None:
        yield
        return
    to_stderr()
    with needlepoint.open(options.lake, read_only=True, store=options.store) as lake:
        worker = Worker(options.threads, options.waiting)
        metrics = Metrics(lake, worker)
        server = FlightServer(lake, options, worker, metrics)
        processes = Processes(lake, worker, metrics, options.sockets)
        try:
            yield
        finally:
            server.close()
            processes.close()
            worker.close()


def _config(options: ServiceOptions) -> dict[str, Any]:
    return {
        "host": options.host,
        "port": options.port,
        "ssl_certfile": options.certificate,
        "ssl_keyfile": options.private_key,
        "timeout_graceful_shutdown": options.shutdown_seconds,
        "access_log": False,
        "log_level": "warning",
        "server_header": False,
    }
