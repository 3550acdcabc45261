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
      needle store copy redis://host:6379/0 rocksdb --index product_upc
      needle store copy sqlite postgresql://me@host/lake
    """


@command.command("copy", short_help="Copy key indexes, or the registry, from one store to another.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--index", "name", metavar="NAME", help="Only this key index.")
@click.option("--registry", is_flag=True, help="The registry, not key indexes: from one PostgreSQL to another.")
@common_options
def copy(source: str, target: str, name: str | None, registry: bool) -> None:
    """Copy the key indexes in one store to another, compare them with a scan, and use them there.

    FROM and TO are URLs, `rocksdb` for the lake's own store, or `lake:` for leaf files in the lake. Queries go on: each
    index changes its store in one commit, and what it had in FROM is removed. Write ${NAME} for the password of a
    key store, which is then taken from the environment.

    With `sqlite` as FROM or TO, or with --registry, it is the registry that moves: `sqlite` is the one in the lake's
    store, the other is in PostgreSQL. The copy is compared with the original row by row, and indexes with scans.
    Nothing is built again. The old registry says from then on where the new one is, and cannot be opened. Its password
    is that of NEEDLE_REGISTRY, PGPASSWORD or ~/.pgpass.

    \b
    Examples:
      needle store copy rocksdb postgresql://me@host/keys
      needle store copy rocksdb 'redis://:${REDIS_PASSWORD}@host:6379/0' --index product_upc
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
