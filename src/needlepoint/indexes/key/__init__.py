"""The key index: value to rows, in one sorted store for all files of a table.

kind      what the indexer and the store need to know
encoding  values as keys
build     columns to keys, keys to entries
search    predicates to keys
payload   the keys of one file, embedded in it
"""

from needlepoint.indexes.key.build import entries_of, sorted_by_key, sorted_once
from needlepoint.indexes.key.encoding import encode, files_of, key_bytes, rows_by_file, split_locations
from needlepoint.indexes.key.search import first_bytes_of, keys_of, range_of, values_of

__all__ = [
    "encode",
    "entries_of",
    "files_of",
    "first_bytes_of",
    "key_bytes",
    "keys_of",
    "range_of",
    "rows_by_file",
    "sorted_by_key",
    "sorted_once",
    "split_locations",
    "values_of",
]
