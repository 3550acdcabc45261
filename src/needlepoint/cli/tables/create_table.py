"""`needle create-table`"""

from __future__ import annotations

import os
from pathlib import Path

import click

from needlepoint.cli.messages import say
from needlepoint.cli.options import common_options, open_lake


@click.command("create-table", short_help="Make a table of a directory of Parquet files.")
@click.argument("name")
@click.argument("locations", nargs=-1, metavar="[LOCATION]")
@click.option(
    "--format",
    type=click.Choice(["parquet", "delta", "iceberg"]),
    help="What lists its files; by default a Delta or Iceberg log where there is one.",
)
@common_options
def command(name: str, locations: tuple[str, ...], format: str | None) -> None:
    """Make a table of the Parquet files in a directory or a bucket.

    LOCATION is the directory, or s3://bucket/prefix; without it, the directory NAME in the lake. Files are found in all
    its subdirectories, and column=value in their names becomes a column. The files are not moved or changed.
    A pattern such as 'data/product/*.parquet' means its directory, if all Parquet files in it match.

    The log of a Delta or Iceberg table lists its files; LOCATION can also be an Iceberg metadata file, and
    the table then stays at that version. --format parquet takes every file in the directory, removed ones too.

    \b
    Examples:
      needle create-table product data/product
      needle create-table product s3://bucket/product
      needle --lake lake create-table product
    """
    from needlepoint.printable import count

    with open_lake(create=True) as lake:
        lake.create_table(name, _location(name, locations), format=format)
        table = lake.registry.tables.get(name)
        files = lake.registry.files.of(table)
    rows = count(sum(file.rows or 0 for file in files), "row")
    partitions = f", partitioned by {', '.join(table.partitions)}" if table.partitions else ""
    of_others = f", {table.format.partition('=')[0]}" if table.format != "parquet" else ""
    say(f"table {name}: {count(len(files), 'file')}, {rows}{partitions}{of_others}")


def _location(name: str, locations: tuple[str, ...]) -> str | None:
    """A shell makes of a pattern all files that match it."""
    if len(locations) < 2:
        return locations[0] if locations else None
    from needlepoint.lake import all_of_directory

    if not all(Path(each).is_file() for each in locations):
        shown = ", ".join(locations[:2])
        raise click.UsageError(f"A table has one location, and these are {len(locations)}: {shown}, ….")
    files = [Path(each).parent.resolve() / Path(each).name for each in locations]
    return all_of_directory(name, os.path.commonpath([file.parent for file in files]), files)
