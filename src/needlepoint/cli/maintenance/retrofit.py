"""`needle retrofit`"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from needlepoint import FileError
from needlepoint.cli.messages import say
from needlepoint.cli.options import common_options, open_lake

if TYPE_CHECKING:
    from needlepoint.parquet.write import RetrofitReport


@click.command("retrofit", short_help="Add page indexes and bloom filters to Parquet files that lack them.")
@click.argument("target", metavar="FILE|TABLE")
@click.option("--page-index", is_flag=True, help="Add column and offset indexes.")
@click.option("--bloom", metavar="COLUMN", multiple=True, help="Add bloom filters of this column; can be repeated.")
@common_options
def command(target: str, page_index: bool, bloom: tuple[str, ...]) -> None:
    """Add the Parquet format's own indexes to files that were written without them.

    Data pages stay as they are; DataFusion, DuckDB, Spark and others prune with what is added, and so does needle. A
    FILE need not belong to a lake; of a TABLE all files are changed and synced. What cannot be added is named, with the
    reason. A second run adds nothing.

    \b
    Examples:
      needle retrofit product/part-00000.parquet --page-index
      needle retrofit product --page-index --bloom product_id --bloom upc
    """
    if not page_index and not bloom:
        raise click.UsageError("Nothing to add: give --page-index, --bloom COLUMN or both.")
    if _is_file(target):
        from needlepoint.parquet.write import retrofit

        try:
            done = retrofit(target, page_index, bloom)
        except FileNotFoundError as error:
            raise FileError(target, "there is no such file", hint="Name a Parquet file, or a table.") from error
        _show(target, [done])
        return
    with open_lake() as lake:
        _show(target, lake.retrofit(target, page_index=page_index, bloom=bloom))


def _is_file(target: str) -> bool:
    return "/" in target or target.endswith(".parquet")


def _show(target: str, done: Sequence[RetrofitReport]) -> None:
    from needlepoint.printable import count, printable, size_text

    changed = [each for each in done if each.changed]
    files = "" if len(done) == 1 else f" in {len(changed):,} of {count(len(done), 'file')}"
    parts = (
        count(sum(each.column_indexes for each in done), "column index"),
        count(sum(each.offset_indexes for each in done), "offset index"),
        count(sum(each.bloom_filters for each in done), "bloom filter"),
    )
    say(f"{target}: {', '.join(parts)} added{files}, {size_text(sum(each.bytes for each in done))}")
    reasons = {skipped: None for each in done for skipped in each.skipped}
    for column, why in reasons:
        say(f"  {printable(column)}: {printable(why)}")
