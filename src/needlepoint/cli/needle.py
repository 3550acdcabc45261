"""The `needle` command: finds the commands, and turns every error into one line and an exit code.

    0     done
    1     refused, with one line that says why
    2     wrong usage
    130   interrupted; 141 when the reader of a pipe went away

A command's module is imported when it is called, and it imports the library when it runs: `needle --help` is quick.
"""

from __future__ import annotations

import atexit
import contextlib
import difflib
import gc
import importlib
import os
import sys
import threading
import traceback
from typing import Any

import click

from needlepoint import NeedlepointError, __version__
from needlepoint.cli.interrupts import report_interrupt
from needlepoint.cli.messages import one_line, say, show_warnings
from needlepoint.cli.options import GlobalOptions, choose_debug, choose_lake, choose_store, choose_verbose

COMMANDS = {
    "demo": "demo",
    "create-table": "tables",
    "create-index": "indexes",
    "drop-table": "tables",
    "drop-index": "indexes",
    "index": "indexes",
    "sync": "indexes",
    "sql": "query",
    "explain": "query",
    "inspect": "tables",
    "retrofit": "maintenance",
    "status": "tables",
    "advise": "indexes",
    "calibrate": "query",
    "verify": "indexes",
    "repair": "indexes",
    "rebuild": "indexes",
    "store": "indexes",
    "sweep": "maintenance",
    "compact": "maintenance",
    "delete": "maintenance",
    "delete-files": "maintenance",
    "drop-partition": "maintenance",
    "expire": "maintenance",
    "ingest": "tables",
    "indexer": "indexes",
    "share": "service",
    "serve": "service",
    "token": "service",
    "mcp": "service",
}
"""The room of each command, in the order of `needle --help`."""

INTERRUPTED, PIPE_CLOSED = 130, 141
# Objects between two runs of the collector. With Python's 700, it runs fifty times while the libraries are imported.
COLLECT_AFTER = 10_000


class Needle(click.Group):
    """Imports the module of a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        room = COMMANDS.get(cmd_name)
        if room is None:
            return None
        module = importlib.import_module(f"needlepoint.cli.{room}.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            if not close:
                raise
            raise click.UsageError(f"{error.message} Did you mean '{close[0]}'?", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        show_warnings()
        try:
            returned = super().invoke(ctx)
            sys.stdout.flush()
            return returned
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (KeyboardInterrupt, click.Abort) as interrupt:
            report_interrupt(ctx.invoked_subcommand, interrupt)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            _forget_output()
            ctx.exit(PIPE_CLOSED)
        except Exception as error:
            _show(error, ctx.ensure_object(GlobalOptions).debug)
            ctx.exit(1)


def _show(error: Exception, debug: bool) -> None:
    if debug:
        say("".join(traceback.format_exception(error)).rstrip("\n"), err=True)
    said = one_line(error)
    if isinstance(error, NeedlepointError):
        say(f"error: {said}", err=True)
    elif isinstance(error, MemoryError):
        said = f": {said}" if said else ""
        say(f"error: there is not enough memory{said}. docs/settings.md says what takes how much.", err=True)
    else:
        hint = "" if debug else "; run with --debug"
        say(f"internal error: {type(error).__name__}: {said}{hint}", err=True)


def _forget_output() -> None:
    """Python writes what is left in the buffer at exit, and would complain once more."""
    # Not every standard output is a file: tests put a buffer in its place.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group("needle", cls=Needle, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="needle")
@click.option(
    "--lake",
    metavar="PLACE",
    default="lake",
    show_default=True,
    envvar="NEEDLE_LAKE",
    show_envvar=True,
    expose_value=False,
    callback=choose_lake,
    help="The lake's directory, or s3://bucket/prefix. It can be given after the command too.",
)
@click.option(
    "--store",
    metavar="DIR",
    envvar="NEEDLE_STORE",
    show_envvar=True,
    expose_value=False,
    callback=choose_store,
    help="The directory of its registry and indexes; for a directory, by default .needlepoint in it.",
)
@click.option(
    "--verbose", is_flag=True, expose_value=False, callback=choose_verbose, help="Show on stderr what is done."
)
@click.option(
    "--debug", is_flag=True, expose_value=False, callback=choose_debug, help="Show the traceback of an error."
)
def main() -> None:
    """Millisecond point lookups on a plain Parquet lake.

    \b
    Examples:
      needle demo
      needle create-table product data/product
      needle create-index product product_id
      needle sql "SELECT title, upc FROM product WHERE product_id = 384209819"
    """


def run() -> None:
    """`needle` as a program. It ends without freeing all that the libraries made, which takes a tenth of a second."""
    gc.set_threshold(COLLECT_AFTER)
    try:
        main()
    except SystemExit as ended:
        if not isinstance(ended.code, int) or any(not each.daemon for each in threading.enumerate()[1:]):
            raise
        atexit._run_exitfuncs()
        with contextlib.suppress(OSError, ValueError):  # the reader of a pipe may be gone
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(ended.code)
