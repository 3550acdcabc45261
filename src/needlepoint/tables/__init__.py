"""Tables: what they are, which files they have, and how files are added.

model           tables, files, indexes and batches as frozen values
registry/       what is known, in SQLite or PostgreSQL
published/      the registry in the lake, for readers on other machines
formats/        Delta and Iceberg
listing         the files of a location now
snapshots       what a query sees: the files of a table at one moment
discovery       schema and partitions, found in files
schemas         one schema for all files
partitions      values in the names of directories
layout          how new files are written
publishing      a batch becomes part of a table, whole or not at all
staged_file     what a write left in a staging directory
locks           file locks that serialize changes to a table
postgres_locks  the same in PostgreSQL, for several machines
file_stat       the present identities of files
changed_files   files that look the same and may have changed

registry/, published/ and formats/ have their own names; all others are here.
"""

from needlepoint.tables import changed_files, partitions
from needlepoint.tables.discovery import SchemaDiscovery, discover_schema, discover_table, read_schemas, unfinished_of
from needlepoint.tables.file_stat import those_there
from needlepoint.tables.layout import Layout, lookup_columns
from needlepoint.tables.listing import belongs, list_files
from needlepoint.tables.locks import Locks
from needlepoint.tables.model import ALL, LONGEST_NAME, Batch, File, Index, Place, Table, check_name
from needlepoint.tables.partitions import HIVE_NULL
from needlepoint.tables.publishing import (
    Mover,
    finish_all,
    is_named_here,
    publish,
    recover,
    staging_directory,
    staging_prefix,
    sweep_prefixes,
    sweep_staging,
    sweep_tables,
)
from needlepoint.tables.schemas import (
    PER_SECOND,
    differing,
    ordinal,
    plain,
    plain_schema,
    scale,
    too_far,
    unify,
    unit_of,
)
from needlepoint.tables.snapshots import Snapshot, Snapshots, on_their_way
from needlepoint.tables.staged_file import StagedFile

__all__ = [
    "ALL",
    "HIVE_NULL",
    "LONGEST_NAME",
    "PER_SECOND",
    "Batch",
    "File",
    "Index",
    "Layout",
    "Locks",
    "Mover",
    "Place",
    "SchemaDiscovery",
    "Snapshot",
    "Snapshots",
    "StagedFile",
    "Table",
    "belongs",
    "changed_files",
    "check_name",
    "differing",
    "discover_schema",
    "discover_table",
    "finish_all",
    "is_named_here",
    "list_files",
    "lookup_columns",
    "on_their_way",
    "ordinal",
    "partitions",
    "plain",
    "plain_schema",
    "publish",
    "read_schemas",
    "recover",
    "scale",
    "staging_directory",
    "staging_prefix",
    "sweep_prefixes",
    "sweep_staging",
    "sweep_tables",
    "those_there",
    "too_far",
    "unfinished_of",
    "unify",
    "unit_of",
]
