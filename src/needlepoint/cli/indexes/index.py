"""`needle index build`"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from needlepoint.cli.indexes.sync import exit_with_failures
from needlepoint.cli.messages import say
from needlepoint.cli.options import common_options, open_lake, start_spark

if TYPE_CHECKING:
    from needlepoint.indexer import SyncReport
    from needlepoint.lake import Lake


@click.group("index", short_help="Build the indexes of a large table, here or in Spark.")
@common_options
def command() -> None:
    """Build the indexes of a large table.

    \b
    Examples:
      needle index build product
      needle index build product --on spark --master spark://head:7077
    """


@command.command("build", short_help="Build what the indexes of a table lack.")
@click.argument("table")
@click.option("--index", metavar="NAME", help="Only this one.")
@click.option(
    "--on",
    type=click.Choice(["local", "spark"]),
    default="local",
    show_default=True,
    help="Processes of this machine, or tasks of Spark.",
)
@click.option("--master", metavar="URL", help="Spark's master, as spark://head:7077.  [default: this machine]")
@click.option("--config", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; several times.")
@common_options
def build(table: str, index: str | None, on: str, master: str | None, settings: tuple[str, ...]) -> None:
    """Build what the indexes of a table lack.

    Declare them first, with `needle create-index --no-build`. What was finished of a build that was killed is kept:
    the same command continues from there. docs/spark.md says what executors of Spark need.

    \b
    Examples:
      needle index build product
      needle index build product --on spark
      needle index build product --index product_upc --on spark --master spark://head:7077
      needle index build product --on spark --config spark.executor.memoryOverhead=1g
    """
    from needlepoint.cli.screen import duration
    from needlepoint.printable import count

    if on == "local" and (master or settings):
        raise click.UsageError("--master and --config are for --on spark.")
    config = dict(map(_setting, settings))
    started = time.perf_counter()
    with open_lake() as lake:
        lake.registry.indexes.select(lake.registry.tables.get(table), index)  # refused before Spark starts
        report = _on_spark(lake, table, index, master, config) if on == "spark" else lake.build(table, index)[0]
    took = duration(time.perf_counter() - started)
    say(f"{table}: {count(report.indexed, 'file')} indexed in {took}")
    exit_with_failures([report])


def _on_spark(lake: Lake, table: str, index: str | None, master: str | None, config: dict[str, str]) -> SyncReport:
    from needlepoint import spark

    session = start_spark("needle index build", master=master, config=config)
    return spark.build(session, lake, table, index)


def _setting(text: str) -> tuple[str, str]:
    name, given, value = text.partition("=")
    if not name or not given:
        raise click.BadParameter(f"'{text}' is not NAME=VALUE.", param_hint="--config")
    return name, value
