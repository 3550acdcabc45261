"""Tables and indexes, checked before they are declared."""

from __future__ import annotations

import glob
import itertools
import json
import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needlepoint.errors import NotIndexable, UsageError
from needlepoint.indexer import SyncReport
from needlepoint.indexes import kind as kind_named
from needlepoint.lake.locations import table_location
from needlepoint.objects import is_url
from needlepoint.tables import LONGEST_NAME, Table, check_name, discover_table, list_files, read_schemas
from needlepoint.tables.formats import check_plain, decide, is_external, open_log
from needlepoint.tables.registry import Registry

if TYPE_CHECKING:
    from needlepoint.lake.lake import Lake


def create_table(lake: Lake, name: str, location: str | Path | None, format: str | None) -> None:
    check_name("a table", name)
    decided, place = decide(directory_of(name, table_location(lake.root, name, location)), format)
    if is_external(decided):
        _create_external_table(lake, name, place, decided)
        return
    if not is_url(place) and Path(place).is_file():
        raise _is_a_file(name, place)
    listing = list_files(place)
    if format is None:
        check_plain(place, listing)
    paths = list(listing.files)
    if not paths:
        there = is_url(place) or Path(place).is_dir()
        if place.endswith(".parquet"):
            raise _is_a_file(name, place)
        raise UsageError(
            f"{'there are no Parquet files in' if there else 'there is no directory'} {place}.",
            hint="Name a directory of Parquet files, or write some first with `needle ingest`.",
        )
    found = discover_table(place, paths, skip_unfinished=lake.settings.unfinished == "skip")
    lake.registry.tables.create(name, place, found.schema, found.partitions, found.mixed)
    lake.indexer.sync(name)


def directory_of(name: str, place: str) -> str:
    """The directory of a pattern, if all Parquet files in it match. A table has all files of its directory, including
    later ones; so a single file is refused: its neighbours were not asked for."""
    if is_url(place):
        if "*" in place and place.lower().endswith(".parquet"):  # otherwise these characters are part of the key
            raise _is_a_pattern(place, f"`needle create-table {name} {_before_pattern(place)}`")
        return place
    if os.path.lexists(place) or not glob.has_magic(place):
        if Path(place).is_file() and place.endswith(".parquet"):
            raise _is_a_file(name, place)
        return place
    directory = _before_pattern(place)
    return all_of_directory(name, directory, Path(directory).glob(place.removeprefix(directory).lstrip("/")))


def all_of_directory(name: str, directory: str, paths: Iterable[Path]) -> str:
    """The directory, if these paths are all its Parquet files."""
    files = {f"{directory}/{path}" for path in list_files(directory).files}
    named = files.intersection(map(str, paths))
    if not files or not named:
        raise UsageError(f"no Parquet file in {directory} matches.", hint="Name the directory that holds them.")
    if files != named:
        raise UsageError(
            f"these are {len(named):,} of {len(files):,} Parquet files in {directory}, and a table has all of them.",
            hint=f"`needle create-table {name} {shlex.quote(directory)}` takes all; or move these into a directory.",
        )
    return directory


def _before_pattern(place: str) -> str:
    """
    >>> _before_pattern("/data/year=*/*.parquet")
    '/data'
    """
    parts = place.split("/")
    first = next(number for number, part in enumerate(parts) if glob.has_magic(part))
    return "/".join(parts[:first]) or "/"


def _is_a_pattern(place: str, instead: str) -> UsageError:
    return UsageError(
        f"{place} is a pattern, and a table has all files below a prefix.", hint=f"Name the prefix: {instead}."
    )


def _is_a_file(name: str, place: str) -> UsageError:
    directory = place.rpartition("/")[0]
    return UsageError(
        f"{place} is one file, and a table has all Parquet files of a directory.",
        hint=f"`needle create-table {name} {shlex.quote(directory)}` takes all; or give it a directory of its own.",
    )


def _create_external_table(lake: Lake, name: str, place: str, format: str) -> None:
    log = open_log(format, place).current()
    found = log.discover(read_schemas(place, list(log.files), log.taken))
    for error in found.unreadable:
        raise error
    lake.registry.tables.create(name, place, found.schema, found.partitions, found.mixed, format)
    lake.indexer.sync(name)


def check_index(
    lake: Lake, table: str, columns: tuple[str, ...], kind: str, embed: bool, options: Mapping[str, Any]
) -> Table:
    """The table, if it can have such an index."""
    found = lake.registry.tables.get(table)
    if is_external(found.format) and not set(columns).issubset(found.schema.names):
        lake.sync(table)  # its log may have the column now
        found = lake.registry.tables.get(table)
    fields = [found.field(each) for each in columns]
    if len(set(columns)) != len(columns) or not columns:
        raise UsageError(f"an index on {', '.join(columns) or 'no column'}.", hint="Name each column once.")
    for each in found.partitions:
        if each in columns:
            raise NotIndexable(
                f"column '{each}' of table '{table}' is a partition column.",
                hint="Partitions are pruned without an index.",
            )
    if not isinstance(embed, bool):
        raise UsageError(f"embed is {embed!r}.", hint="It is true or false.")
    if embed:
        lake.writer.refuse_foreign(table, "Leave embed out: then the index is in the store.")
    try:
        json.dumps(options)
    except (TypeError, ValueError):
        raise UsageError(f"options of an index are texts and numbers, not {options!r}.") from None
    if "compat" in options and not embed:
        raise UsageError("compat is for readers of the files.", hint="Give embed=True too.")
    kind_named(kind).check(table, fields, {name: value for name, value in options.items() if name != "store"})
    return found


def with_store(lake: Lake, kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the store of the index, if it is not in the lake's store. Later settings do not move it."""
    store = lake.index_stores.declared_store(kind, options.get("store"))
    return {
        **{name: value for name, value in options.items() if name != "store"},
        **({"store": store} if store else {}),
    }


def free_index_name(registry: Registry, table: Table, columns: tuple[str, ...], kind: str) -> str:
    """A name that no other index has. The same index has the same name, and is refused for it."""
    taken = {index.name: index for index in registry.indexes.all()}
    for number in itertools.count(1):
        name = _index_name(table.name, "_".join(columns), kind, number)
        other = taken.get(name)
        if other is None or (other.table_id, other.columns, other.kind) == (table.id, columns, kind):
            break
    return name


def _index_name(table: str, column: str, kind: str, number: int) -> str:
    """The default name of an index, with a number where others have the same.

    >>> _index_name("product", "Product Id", "key", 1), _index_name("product", "product.id", "key", 2)
    ('product_product_id_key', 'product_product_id_key_2')
    """
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in column.lower())
    end = f"_{number}" if number > 1 else ""
    return f"{table}_{plain}_{kind}"[: LONGEST_NAME - len(end)] + end


def build_index(lake: Lake, name: str) -> list[SyncReport]:
    """Build what an index lacks. An index that cannot be built from some file is dropped, and NotIndexable says why;
    the reports name files that cannot be read."""
    index = lake.registry.indexes.get(name)
    reports = lake.sync(lake.registry.tables.of(index).name)
    index = lake.registry.indexes.get(name)  # a new generation of it, perhaps
    for failure in (each for report in reports for each in report.failures):
        if failure.index_id == index.id:
            lake.drop_index(name)
            raise NotIndexable(failure.reason)
    return reports
