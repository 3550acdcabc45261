"""Options of every command, and the lake that they select."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from needlepoint.cli.messages import show_everything

if TYPE_CHECKING:
    from needlepoint.lake import Lake
    from needlepoint.spark import SparkSession

Command = TypeVar("Command", bound=Callable[..., Any])

format_option = click.option(
    "--format", type=click.Choice(["table", "json"]), default="table", show_default=True, help="For people or programs."
)
samples_option = click.option(
    "--samples",
    default=20,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="How many values to look up by each index.",
)


@dataclass(slots=True)
class GlobalOptions:
    """`asked` is the lake named on the command line, before or after the command; None if there is none."""

    lake: str = "lake"
    asked: str | None = None
    store: str | None = None
    debug: bool = False
    verbose: bool = False


def choose_lake(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    options = context.ensure_object(GlobalOptions)
    options.lake = value
    if parameter.name and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
        options.asked = value


def choose_store(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(GlobalOptions).store = value


def choose_debug(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(GlobalOptions).debug = True


def choose_verbose(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(GlobalOptions).verbose = True


def common_options(command: Command) -> Command:
    """`--lake`, `--store`, `--verbose` and `--debug`, for use after the command."""
    lake = click.option(
        "--lake",
        metavar="PLACE",
        expose_value=False,
        callback=choose_lake,
        help="The lake's directory, or s3://bucket/prefix.  [env var: NEEDLE_LAKE; default: lake]",
    )
    store = click.option(
        "--store",
        metavar="DIR",
        expose_value=False,
        callback=choose_store,
        help="The directory of its registry and indexes.  [env var: NEEDLE_STORE]",
    )
    debug = click.option(
        "--debug", is_flag=True, expose_value=False, callback=choose_debug, help="Show the traceback of an error."
    )
    verbose = click.option(
        "--verbose", is_flag=True, expose_value=False, callback=choose_verbose, help="Show on stderr what is done."
    )
    return lake(store(verbose(debug(command))))


def global_options() -> GlobalOptions:
    return click.get_current_context().ensure_object(GlobalOptions)


@contextmanager
def open_lake(*, create: bool = False, directory: str | None = None, reads: bool = False) -> Iterator[Lake]:
    """The selected lake, with a progress bar for long work. A command that only `reads` needs no store: it can read a
    lake that another machine publishes."""
    from needlepoint.cli.limits import warn_of_limits
    from needlepoint.cli.pandas_free import load_pyarrow

    warn_of_limits()
    load_pyarrow()
    if global_options().verbose:
        show_everything()
    import needlepoint
    from needlepoint.cli.screen import ProgressBar
    from needlepoint.lake import has_store

    chosen = global_options()
    place = directory or chosen.lake
    read_only = reads and not has_store(place, chosen.store)
    with (
        ProgressBar() as bars,
        needlepoint.open(place, create=create, read_only=read_only, store=chosen.store, progress=bars) as lake,
    ):
        yield lake


def start_spark(name: str, **settings: Any) -> SparkSession:
    """Start Spark for a command, so that an interrupt ends it like other commands."""
    from needlepoint import spark
    from needlepoint.cli.screen import working

    if not global_options().debug:  # py4j logs every call that is interrupted
        logging.getLogger().addHandler(logging.NullHandler())
    # In a thread PySpark installs no handler of interrupts: its own calls the JVM in the middle of another call.
    with working("Spark starts"), _interrupted_later(), ThreadPoolExecutor(1) as thread:
        return thread.submit(spark.session, name, **settings).result()


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Delay an interrupt: a JVM that is starting would be left running."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts:
        raise KeyboardInterrupt
