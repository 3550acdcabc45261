"""`needle store copy`"""

from __future__ import annotations

import click

from needlepoint.cli.messages import say
from needlepoint.cli.options import common_options, open_lake


@click.group("store", short_help="Move key indexes between stores.")
@common_options
def command() -> None:
    """Move key indexes between the lake's own store and servers. docs/stores.md says what each is good for.

    \b
    Examples:
      needle store copy rocksdb lake:
      needle store copy redis://host:6379/0 rocksdb --index product_upc
    """


@command.command("copy", short_help="Copy key indexes from one store to another.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--index", "name", metavar="NAME", help="Only this one.")
@common_options
def copy(source: str, target: str, name: str | None) -> None:
    """Copy the key indexes in one store to another, compare them with a scan, and use them there.

    FROM and TO are URLs, `rocksdb` for the lake's own store, or `lake:` for leaf files in the lake. Queries go on: each
    index changes its store in one commit, and what it had in FROM is removed. Write ${NAME} for a password, which is
    then taken from the environment.

    \b
    Examples:
      needle store copy rocksdb postgresql://me@host/keys
      needle store copy rocksdb 'redis://:${REDIS_PASSWORD}@host:6379/0' --index product_upc
      needle store copy redis://host:6379/0 rocksdb
    """
    from needlepoint.printable import count, size_text

    with open_lake() as lake:
        done = lake.copy_store(source, target, name)
    for each in done:
        entries = f"{each.entries:,} {'entry' if each.entries == 1 else 'entries'}"
        say(f"index {each.name}: {entries}, {size_text(each.bytes)}, {count(each.checks, 'answer')} as a scan's")
    if not done:
        say("no key index is in that store")
