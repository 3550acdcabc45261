"""`needle compact`"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from needlepoint.cli.messages import say
from needlepoint.cli.options import common_options, open_lake, start_spark

if TYPE_CHECKING:
    from needlepoint.maintenance import Compaction, CompactionPlan

# Starting Spark takes longer than rewriting less.
WORTH_SPARK = 256 << 20

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _bytes(context: click.Context, parameter: click.Parameter, value: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", value.strip(), re.IGNORECASE)
    if found is None or float(found[1]) == 0:
        raise click.BadParameter(f"'{value}' is no size, as 128MB is.", context, parameter)
    return max(1, int(float(found[1]) * _UNITS[found[2].upper()]))


def columns(value: str | None) -> list[str]:
    return [name.strip() for name in value.split(",")] if value else []


def partition_values(given: Sequence[str]) -> dict[str, str]:
    """`year=2024` as column and value."""
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise click.UsageError(f"'{each}' is no partition, as year=2024 is.")
        found[name] = value
    return found


@click.command("compact", short_help="Rewrite small or unordered files into better ones.")
@click.argument("table")
@click.option("--sort-by", metavar="A,B", help="Sort rows by these columns, over all files of a partition.")
@click.option("--zorder", metavar="A,B", help="Order rows by all these columns at once.")
@click.option(
    "--target-size", metavar="SIZE", default="128MB", show_default=True, callback=_bytes, help="Of new files."
)
@click.option("--page-rows", type=click.IntRange(min=1), metavar="N", help="Also files with larger pages.  [new: 250]")
@click.option("--partition", metavar="COLUMN=VALUE", multiple=True, help="Only this partition; can be repeated.")
@click.option("--keep", type=click.FloatRange(min=0), default=0, metavar="SECONDS", help="Delete old files later.")
@click.option("--no-index", is_flag=True, help="Leave indexing to `needle indexer`.")
@click.option("--spark/--no-spark", default=None, help="In Spark, or here.  [default: here up to 256 MB]")
@click.option("--dry-run", is_flag=True, help="Show what would be rewritten.")
@click.option("--yes", is_flag=True, help="Do not ask before files of other writers are replaced.")
@common_options
def command(
    table: str,
    sort_by: str | None,
    zorder: str | None,
    target_size: int,
    page_rows: int | None,
    partition: tuple[str, ...],
    keep: float,
    no_index: bool,
    spark: bool | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Rewrite files into fewer and better ones, and replace them atomically.

    Without an order these are the files smaller than half of the target size, where a partition has two or more; with
    --page-rows those with larger pages, too. With --sort-by or --zorder they are all files of a partition, unless they
    are ordered already. Values do not change; a query sees either the old files or the new ones.

    Old files are deleted. Where some of them were not written by Needlepoint, the command asks first: their writer may
    rely on them.

    A large compaction runs in several steps. An interrupted one keeps the finished steps, and the next one continues.

    \b
    Examples:
      needle compact product
      needle compact product --sort-by product_id --target-size 256MB
      needle compact product --zorder price,weight --partition year=2024 --dry-run
    """
    from needlepoint.lake import maintenance_context
    from needlepoint.maintenance import compaction_spec, plan_compaction
    from needlepoint.spark import compact as spark_compact

    chosen = {"sort_by": columns(sort_by), "zorder": columns(zorder), "target_size": target_size}
    more = {"page_rows": page_rows, "partition": partition_values(partition)}
    with open_lake() as lake:
        plan = plan_compaction(maintenance_context(lake), table, compaction_spec(**chosen, **more))  # type: ignore[arg-type]
        if dry_run or not plan.groups:
            _show_plan(table, plan)
            return
        if not yes and not _may_replace(table, plan):
            say("nothing was changed")
            click.get_current_context().exit(1)
        compact = lake.compact
        if spark or (spark is None and sum(group.bytes for group in plan.groups) > WORTH_SPARK):
            compact = partial(spark_compact, start_spark("needle compact"), lake)
        started = time.perf_counter()
        done = compact(table, keep=keep, index=not no_index, **chosen, **more)  # type: ignore[arg-type]
        if not no_index:
            list(lake.follow_events(once=True))  # of what was just done, and is indexed
    _show(table, done, time.perf_counter() - started)


def _may_replace(table: str, plan: CompactionPlan) -> bool:
    """Whether the files that are to be replaced are our own, or the user agrees."""
    from needlepoint.cli.confirm import agreed
    from needlepoint.printable import count
    from needlepoint.tables import is_named_here

    files = [file for group in plan.groups for file in group.files]
    others = [file.path for file in files if not is_named_here(file.path)]
    if not others:
        return True
    _show_plan(table, plan)
    shown = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
    say(f"  {count(len(others), 'file')} not written by Needlepoint would be deleted afterwards: {shown}")
    return agreed("Replace them?")


def _show_plan(table: str, plan: CompactionPlan) -> None:
    from needlepoint.printable import count, size_text

    files = sum(len(group.files) for group in plan.groups)
    outputs = sum(group.outputs for group in plan.groups)
    if not files:
        say(f"{table}: nothing to do")
    else:
        total = size_text(sum(group.bytes for group in plan.groups))
        places = count(len({group.directory for group in plan.groups}), "partition")
        say(f"{table}: {count(files, 'file')} of {places}, {total}, would become about {outputs:,}")
    _show_left(plan.left)


def _show(table: str, done: Compaction, seconds: float) -> None:
    from needlepoint.cli.screen import duration
    from needlepoint.printable import count, size_text

    sizes = f"{size_text(done.bytes)} -> {size_text(done.new_bytes)}"
    say(
        f"{table}: {count(done.files, 'file')} became {done.new_files:,}, {sizes}, {count(done.rows, 'row')}, "
        f"in {count(done.swaps, 'step')} and {duration(seconds)}"
    )
    _show_left(done.left)


def _show_left(left: Sequence[tuple[str, str]]) -> None:
    from needlepoint.printable import printable

    for path, why in left[:10]:
        say(f"  left as it is: {printable(path)}: {printable(why)}")
    if len(left) > 10:
        say(f"  and {len(left) - 10:,} more")
