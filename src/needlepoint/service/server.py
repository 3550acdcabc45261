"""Starts the service, with one process or several."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess

from needlepoint.errors import UsageError
from needlepoint.service.app import create_app, open_lake
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
        app = "needlepoint.service.server:worker_app"
        config = uvicorn.Config(app, factory=True, workers=options.workers, **_config(options))
        with _only_service(options.port), _bound(*_address(options), _PortOfMany) as port:
            begins()
            Multiprocess(config, sockets=[port]).run()


class _PortOfMany(socket.socket):
    """A bound port. A process that it is sent to listens on the port with a socket of its own, so the system spreads
    the connections over the processes. From a socket that they share, the first to wake takes all that wait."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _bound, (self.family, self.getsockname())


def _bound(family: int, address: Any, kind: type[socket.socket] = socket.socket) -> socket.socket:
    port = kind(family, socket.SOCK_STREAM)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    port.bind(address)
    return port


@contextmanager
def _only_service(port: int) -> Iterator[None]:
    """Refuse to share the port with another service of this user. Until its processes listen, the system would allow
    that, and spread the connections over both."""
    path = Path(tempfile.gettempdir()) / f"needlepoint-{os.getuid()}-{port}.lock"
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _taken(f"another service uses port {port}") from None
        yield


def _taken(why: str) -> UsageError:
    return UsageError(f"{why}.", hint="Another program may use it; --port chooses another port.")


def _address(options: ServiceOptions) -> tuple[int, Any]:
    """A family, and an address as `bind` takes it."""
    found = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)
    family, *_, address = min(found, key=lambda each: each[0] != socket.AF_INET)  # `localhost` has two
    return family, address


def _check_port(options: ServiceOptions) -> None:
    """A clear error; uvicorn's own comes after it said that it started."""
    try:
        family, place = _address(options)
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(place)
    except OSError as error:
        raise _taken(f"the service cannot listen on {options.host}:{options.port}: {error.strerror or error}") from None


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
    with open_lake(options) as lake:
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
