"""`needle create-table`"""

from __future__ import annotations

import click

from needlepoint.cli.options import common_options, open_lake
from needlepoint.cli.say import say


@click.command("create-table", short_help="Make a table of a directory of Parquet files.")
@click.argument("name")
@click.argument("location", required=False)
@click.option(
    "--format",
    type=click.Choice(["parquet", "delta", "iceberg"]),
    help="Who decides which files belong to it; by default a log of Delta or Iceberg where there is one.",
)
@common_options
def command(name: str, location: str | None, format: str | None) -> None:
    """Make a table of the Parquet files in a directory or a bucket.

    LOCATION is the directory, or s3://bucket/prefix; without it, the directory NAME in the lake. Files are found in all
    its subdirectories, and column=value in their names becomes a column. They stay where they are and as they are.

    In a Delta or Iceberg table its log decides which files belong; LOCATION can also be an Iceberg metadata file, and
    the table then stays at that version. --format parquet takes every file that lies there, removed ones too.

    \b
    Examples:
      needle create-table product data/product
      needle create-table product s3://bucket/product
      needle --lake lake create-table product
    """
    from needlepoint.cli.screen import count

    with open_lake(create=True) as lake:
        lake.create_table(name, location, format=format)
        table = lake.registry.table(name)
        files = lake.registry.files(table)
    rows = count(sum(file.rows or 0 for file in files), "row")
    partitions = f", partitioned by {', '.join(table.partitions)}" if table.partitions else ""
    of_others = f", {table.format.partition('=')[0]}" if table.format != "parquet" else ""
    say(f"table {name}: {count(len(files), 'file')}, {rows}{partitions}{of_others}")
