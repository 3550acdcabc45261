"""`needle create-index`"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from needlepoint.cli.indexes.sync import exit_with_failures
from needlepoint.cli.messages import if_interrupted, say
from needlepoint.cli.options import common_options, open_lake

if TYPE_CHECKING:
    from needlepoint.lake import Lake


@click.command("create-index")
@click.argument("table")
@click.argument("columns", nargs=-1, required=True, metavar="COLUMN…")
@click.option("--kind", default="key", show_default=True, help="key, distinct, bloom, text, or one you installed.")
@click.option("--embed", is_flag=True, help="Keep it inside the Parquet files.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of the kind; several times.")
@click.option("--name", help="The index's name.  [default: TABLE_COLUMN_KIND]")
@click.option("--no-build", is_flag=True, help="Only declare it: the next sync or event builds it.")
@common_options
def command(
    table: str,
    columns: tuple[str, ...],
    kind: str,
    embed: bool,
    options: tuple[str, ...],
    name: str | None,
    no_build: bool,
) -> None:
    """Declare an index and build it for the existing files.

    Files that come later are indexed by `needle sync` or `needle indexer`. docs/indexes.md says what each kind is for.
    After an interrupt the index stays declared and keeps what was built; the next build or sync continues.

    \b
    Examples:
      needle create-index product product_id
      needle create-index product title --kind text --embed
      needle create-index product brand --kind distinct --option most_values=50000
      needle create-index product upc --name product_upc --no-build
    """
    from needlepoint.cli.screen import duration
    from needlepoint.lake import build_index
    from needlepoint.printable import count

    started = time.perf_counter()
    with open_lake() as lake:
        chosen = dict(map(_option, options))
        made = lake.create_index(table, columns, kind, embed=embed, name=name, build=False, **chosen)
        with if_interrupted(lambda: _left(lake, table, made)):
            reports = [] if no_build else build_index(lake, made)
        status = next(index for each in lake.status().tables for index in each.indexes if index.name == made)
    if no_build:
        say(f"index {made} is declared; `needle index build {table}` builds it")
        return
    entries = f"{status.entries:,} {'entry' if status.entries == 1 else 'entries'}"
    took = duration(time.perf_counter() - started)
    say(f"index {made}: {entries} of {count(status.files, 'file')} in {took}")
    exit_with_failures(reports)


def _left(lake: Lake, table: str, name: str) -> str:
    """What an interrupted build leaves."""
    from needlepoint.printable import count

    files, index = lake.registry.files.of(lake.registry.tables.get(table)), lake.registry.indexes.get(name)
    done = sum(index.id in file.indexed for file in files)
    return (
        f"index {name} is declared, and has {done:,} of {count(len(files), 'file')}; queries scan the others. "
        f"`needle index build {table}` or any sync continues it, `needle drop-index {name}` drops it."
    )


def _option(text: str) -> tuple[str, Any]:
    """`most_values=500` is a number, `tokenizer=trigram` a text, `NAME` alone is true."""
    name, given, value = text.partition("=")
    if not name.isidentifier() or name in ("embed", "name", "build", "table", "column", "kind", "self"):
        raise click.BadParameter(f"'{text}' is not NAME=VALUE.", param_hint="--option")
    if not given:
        return name, True
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
