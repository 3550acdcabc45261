"""`needle delete`"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from needlepoint.cli.confirm import agreed
from needlepoint.cli.messages import say
from needlepoint.cli.options import Command, common_options, open_lake

if TYPE_CHECKING:
    from needlepoint.lake import Lake
    from needlepoint.maintenance import Deletion


def deletion_options(command: Command) -> Command:
    dry_run = click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
    yes = click.option("--yes", is_flag=True, help="Do not ask.")
    return dry_run(yes(common_options(command)))


def carry_out(lake: Lake, table: str, remove: Callable[[bool], Deletion], *, dry_run: bool, yes: bool) -> None:
    """Show what would be deleted, ask, and delete it. `remove(True)` is a dry run."""
    if dry_run or not yes:
        would = remove(True)
        if not would.rows + would.removed:
            say(f"{table}: there is nothing to delete")
            return
        say(f"{table}: {_summary(would)} would be deleted")
        if dry_run:
            return
        if not agreed("Delete them?"):
            say("nothing was deleted")
            click.get_current_context().exit(1)
    done = remove(False)
    if not done.rows + done.removed:
        say(f"{table}: there is nothing to delete")
        return
    list(lake.follow_events(once=True))  # of what was just done, and is indexed
    say(f"{table}: {_summary(done)} deleted; `needle sweep --now` takes the rest of them out of the indexes")


def _summary(deleted: Deletion) -> str:
    from needlepoint.printable import count

    rewritten = f"{count(deleted.rewritten, 'file')} rewritten"
    return f"{count(deleted.rows, 'row')} ({rewritten}, {deleted.removed:,} removed)"


@click.command("delete", short_help="Delete the rows of a table for which a condition holds.")
@click.argument("table")
@click.option("--where", metavar="CONDITION", required=True, help="The condition of a WHERE clause.")
@deletion_options
def command(table: str, where: str, dry_run: bool, yes: bool) -> None:
    """Delete the rows for which a condition is true. Rows for which it is false or NULL stay.

    Files with such rows are rewritten without them and replaced atomically; files without other rows are removed. A
    condition that uses only partition columns removes whole files without reading them.

    \b
    Examples:
      needle delete product --where "product_id = 384209819" --dry-run
      needle delete visit --where "user_id = 7" --yes && needle sweep --now
    """
    with open_lake() as lake:
        carry_out(lake, table, lambda dry: lake.delete(table, where, dry_run=dry), dry_run=dry_run, yes=yes)
