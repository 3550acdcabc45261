"""Add indexes to Parquet files, and rewrite files.

embed        puts indexes into files and removes them
embedded     lists and reads the indexes in a file
retrofit     page indexes and bloom filters for files that lack them
page_bounds  a column index, computed from values
bloom_build  a bloom filter, computed from values
physical     columns as they are stored
value_list   the list of values of DataFusion's example of an embedded index
rewrite      new files from the rows of existing ones
"""

from needlepoint.parquet.write import value_list
from needlepoint.parquet.write.embed import Payload, embed, place, remove
from needlepoint.parquet.write.embedded import EmbeddedEntry, is_intact, most_unpacked, read_payload
from needlepoint.parquet.write.retrofit import RetrofitReport, retrofit
from needlepoint.parquet.write.rewrite import (
    ROW_GROUP_ROWS,
    Form,
    Pages,
    common_keys,
    form_of,
    opened,
    read_unchanged,
    taken,
    without_rows,
    write_rows,
)

__all__ = [
    "ROW_GROUP_ROWS",
    "EmbeddedEntry",
    "Form",
    "Pages",
    "Payload",
    "RetrofitReport",
    "common_keys",
    "embed",
    "form_of",
    "is_intact",
    "most_unpacked",
    "opened",
    "place",
    "read_payload",
    "read_unchanged",
    "remove",
    "retrofit",
    "taken",
    "value_list",
    "without_rows",
    "write_rows",
]
