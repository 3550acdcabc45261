"""`needle serve`"""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from needlepoint.cli.limits import keep_few_arenas
from needlepoint.cli.messages import say
from needlepoint.cli.options import GlobalOptions, common_options
from needlepoint.errors import UsageError

if TYPE_CHECKING:
    from needlepoint.service import ServiceOptions


@click.command("serve", short_help="Answer SQL and lookups over HTTP.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address; others than loopback need --tokens.")
@click.option("--port", type=click.IntRange(0, 65535), default=8321, show_default=True)
@click.option("--flight-port", type=click.IntRange(1, 65535), help="Also answer Arrow Flight SQL, on this port.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes that share the port.")
@click.option("--allow-host", "hosts", multiple=True, help="Without tokens: a name of it, as behind a proxy.")
@click.option("--tokens", type=click.Path(dir_okay=False), help="File of hashed tokens, of `needle token create`.")
@click.option("--seconds", type=click.FloatRange(0), default=30.0, show_default=True, help="Most time of a query.")
@click.option("--rows", type=click.IntRange(0), default=1_000_000, show_default=True, help="Most rows of a result.")
@click.option("--memory", type=click.IntRange(0), default=1 << 30, show_default=True, help="Most bytes of a query.")
@click.option("--threads", type=click.IntRange(1), help="Queries at a time.  [default: two a core]")
@click.option("--waiting", type=click.IntRange(0), default=128, show_default=True, help="Queries that may wait.")
@click.option("--certificate", type=click.Path(exists=True, dir_okay=False), help="For TLS: the certificate.")
@click.option("--private-key", type=click.Path(exists=True, dir_okay=False), help="For TLS: its private key.")
@click.option("--no-console", is_flag=True, help="Without the web page at /.")
@click.option("--indexer", is_flag=True, help="Also run `needle indexer`, in a process of its own.")
@common_options
@click.pass_context
def command(
    context: click.Context,
    host: str,
    port: int,
    flight_port: int | None,
    workers: int,
    hosts: tuple[str, ...],
    tokens: str | None,
    seconds: float,
    rows: int,
    memory: int,
    threads: int | None,
    waiting: int,
    certificate: str | None,
    private_key: str | None,
    no_console: bool,
    indexer: bool,
) -> None:
    """Answer SQL and lookups over HTTP, for users who cannot change the lake.

    The address that it prints has the console, a page to query the lake. GET /openapi.json describes the routes. The
    service listens on this machine only, unless --host and --tokens are given. Ctrl-C and SIGTERM end it after the
    running queries.

    \b
    Examples:
      needle serve --lake lake
      needle serve --lake lake --workers 2 --indexer
      needle serve --lake lake --flight-port 8322   # for ADBC and JDBC
      curl localhost:8321/v1/tables/product/rows?product_id=384209819
      curl localhost:8321/v1/sql --json '{"sql": "SELECT count(*) AS n FROM product"}'
      curl localhost:8321/v1/sql -H 'Accept: text/csv' --json '{"sql": "SELECT * FROM product LIMIT 9"}'
    """
    keep_few_arenas()
    try:
        from needlepoint.service import ServiceOptions, serve
    except ImportError as error:
        raise UsageError(f"{error.name} is not installed.", hint="pip install 'needlepoint[service]'") from None
    chosen = context.ensure_object(GlobalOptions)
    options = ServiceOptions(
        lake=_absolute(chosen.lake),
        store=chosen.store,
        host=host,
        port=port,
        flight_port=flight_port,
        workers=workers,
        seconds=seconds,
        rows=rows,
        memory=memory,
        waiting=waiting,
        hosts=tuple(host.lower() for host in hosts),
        tokens=tokens,
        certificate=certificate,
        private_key=private_key,
        console=not no_console,
    )
    if threads is not None:
        options = dataclasses.replace(options, threads=threads)
    scheme = "http" if certificate is None else "https"
    what = "SQL and lookups" if no_console else "console, SQL and lookups"
    flight = (
        f"\nFlight SQL: {'grpc' if certificate is None else 'grpc+tls'}://{host}:{flight_port}" if flight_port else ""
    )
    with _beside(options) if indexer else nullcontext():
        serve(options, lambda: say(f"{what}: {scheme}://{host}:{port}/  (Ctrl-C ends it){flight}", err=True))


@contextmanager
def _beside(options: ServiceOptions) -> Iterator[None]:
    """An indexer while the service runs. It ends between two events, as when it runs alone."""
    store = [] if options.store is None else ["--store", options.store]
    command = [sys.executable, "-m", "needlepoint", "--lake", options.lake, *store, "indexer"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    # uvicorn sends itself the signal that ended it once more, which would end this process at once.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _absolute(lake: str) -> str:
    return lake if "://" in lake else str(Path(lake).absolute())
