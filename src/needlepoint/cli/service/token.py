"""`needle token`"""

from __future__ import annotations

import re
from pathlib import Path

import click

from needlepoint.cli.messages import say
from needlepoint.cli.options import common_options, global_options
from needlepoint.errors import NeedlepointError, UnknownName

_DAYS = re.compile(r"(\d+)d")


class Days(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.4
    name = "days"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = _DAYS.fullmatch(str(value))
        if found is None:
            self.fail(f"'{value}' is no number of days, such as 90d.", param, ctx)
        return float(found[1])


tokens_option = click.option(
    "--tokens",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("tokens.json"),
    show_default=True,
    help="The file of hashed tokens.",
)


@click.group("token", short_help="Create and revoke tokens of the service.")
@common_options
def command() -> None:
    """Create and revoke tokens of the service. The file has their hashes only.

    \b
    Examples:
      needle token create shop --tables product,price --expires 90d
      needle token list
      needle token revoke shop
    """


@command.command("create", short_help="Create a token, and print it once.")
@click.argument("name")
@click.option("--tables", help="The tables that it may read, separated by commas.  [default: all]")
@click.option("--expires", type=Days(), metavar="DAYS", help="For example 90d.  [default: never]")
@tokens_option
def create(name: str, tables: str | None, expires: float | None, tokens: Path) -> None:
    """Create a token, and print it once: only its hash is stored.

    \b
    Examples:
      needle token create shop --tables product,price --expires 90d
    """
    from needlepoint.service import Tokens

    listed = None if tables is None else [each.strip() for each in tables.split(",") if each.strip()]
    secret = Tokens(tokens).create(name, listed, expires)
    for unknown in _unknown(listed or []):
        say(f"note: {unknown}", err=True)
    say(secret)


def _unknown(tables: list[str]) -> list[UnknownName]:
    """The names that are no tables of the lake, if there is a lake: tables may be created later, or elsewhere."""
    import needlepoint

    chosen = global_options()
    try:
        with needlepoint.open(chosen.lake, store=chosen.store, create=False, read_only=True) as lake:
            there = lake.tables()
    except NeedlepointError:
        return []
    return [UnknownName("table", name, there) for name in tables if name not in there]


@command.command("list", short_help="Show the tokens, without their secrets.")
@tokens_option
def show(tokens: Path) -> None:
    """Show the tokens, without their secrets.

    \b
    Examples:
      needle token list
    """
    from needlepoint.service import Tokens

    for token in Tokens(tokens).all():
        tables = "all tables" if token.tables is None else ", ".join(token.tables) or "no table"
        end = "never expires" if token.expires is None else f"expires {token.expires}"
        say(f"{token.name}  {tables}  {end}{'  (expired)' if token.is_expired else ''}")


@command.command("revoke", short_help="Revoke a token.")
@click.argument("name")
@tokens_option
def revoke(name: str, tokens: Path) -> None:
    """Revoke a token. Running services notice at the next request.

    \b
    Examples:
      needle token revoke shop
    """
    from needlepoint.service import Tokens

    Tokens(tokens).revoke(name)
    say(f"revoked {name}", err=True)
