"""`needle store copy`"""

from __future__ import annotations

import click

from needlepoint.cli.messages import one_line, say
from needlepoint.cli.options import common_options, global_options, open_lake


@click.group("store", short_help="Move key indexes, or the registry, between stores.")
@common_options
def command() -> None:
    """Move key indexes, or the registry, between the lake's own store and servers. docs/stores.md says what each is
    good for.

    \b
    Examples:
      needle store copy rocksdb lake:
      needle store copy redis://host:6379/0 rocksdb --index product_upc_key
      needle store copy sqlite postgresql://me@host/lake
    """


@command.command("copy", short_help="Move key indexes, or the registry, from one store to another.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--index", "name", metavar="NAME", help="Only this key index.")
@click.option("--registry", is_flag=True, help="Move the registry, not key indexes, where both are URLs.")
@common_options
def copy(source: str, target: str, name: str | None, registry: bool) -> None:
    """Move the key indexes in one store, or the registry, to another: copy, compare, and use the copy from then on.

    Key indexes: FROM and TO are `rocksdb`, which is the lake's own store, `lake:`, which are leaf files in the lake, or
    URLs of servers (postgresql://, mysql://, redis://, redis+cluster://). All key indexes in FROM move, or one with
    --index. The copy is compared with a scan. Queries go on: each index changes its store in one commit, and is then
    removed from FROM. A password in a URL is written as ${NAME}, and taken from that variable of the environment.

    The registry, which is the list of tables, files and indexes: FROM or TO is `sqlite`, which is the file in the
    lake's store, and the other one a URL of PostgreSQL; or both are URLs, with --registry. The copy is compared with
    the original row by row, and no index is built again. Then only the new one can be opened: all processes need
    NEEDLE_REGISTRY as the last lines say, and those that run fail until they are started with it. The password of
    PostgreSQL is that of NEEDLE_REGISTRY, PGPASSWORD or ~/.pgpass.

    If the command is killed, run it again: it starts over, or finishes.

    \b
    Examples:
      needle store copy rocksdb lake:
      needle store copy rocksdb postgresql://me@host/keys
      needle store copy rocksdb 'redis://:${REDIS_PASSWORD}@host:6379/0' --index product_upc_key
      needle store copy redis://host:6379/0 rocksdb
      needle store copy sqlite postgresql://me@host/lake
      needle store copy postgresql://me@host/lake sqlite
    """
    from needlepoint.lake import is_registry

    if registry or is_registry(source) or is_registry(target):
        if name is not None:
            raise click.UsageError("--index is for key indexes: the registry moves as a whole.")
        _move_registry(source, target)
    else:
        _copy_indexes(source, target, name)


def _move_registry(source: str, target: str) -> None:
    import needlepoint
    from needlepoint.printable import count

    chosen = global_options()
    moved = needlepoint.move_registry(chosen.lake, source, target, store=chosen.store)
    say(f"registry: {count(moved.rows, 'row')} as before, {count(moved.checks, 'answer')} as a scan's")
    say(f"it is in {moved.place} now")
    variable = f"NEEDLE_REGISTRY={moved.place}, with its user and password," if moved.setting else "no NEEDLE_REGISTRY"
    say(f"use {variable} from now on: the one in {moved.before} cannot be opened any more")
    if moved.withdrawn:
        say("it is not published in the lake any more: readers need NEEDLE_REGISTRY too")
    if moved.local:
        say(f"only this machine has {', '.join(moved.local)}: docs/stores.md says how other machines get them")
    for problem in moved.problems:
        say(f"error: {one_line(problem)}", err=True)
    if moved.problems:
        say("`needle repair` repairs that", err=True)
        click.get_current_context().exit(1)


def _copy_indexes(source: str, target: str, name: str | None) -> None:
    from needlepoint.printable import count, size_text

    with open_lake() as lake:
        done = lake.copy_store(source, target, name)
    for each in done:
        entries = f"{each.entries:,} {'entry' if each.entries == 1 else 'entries'}"
        say(f"index {each.name}: {entries}, {size_text(each.bytes)}, {count(each.checks, 'answer')} as a scan's")
    if not done:
        say("no key index is in that store")
