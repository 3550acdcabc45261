"""Key indexes in the lake itself: immutable sorted Parquet files, listed by a manifest (docs/formats.md).

store        LeafKeyStore: writes runs, commits, merges, sweeps, answers
lookup       finds keys and ranges in leaves
merge        which leaves are merged, and how
merge_tasks  a merge as tasks for any processes
manifest     the list of leaves and runs
place        the directory or bucket, and every write to it
leaf_writer  entries to a leaf file
leaf_reader  pages of a leaf file, checked
directory    where the pages of a leaf are, their first keys and checksums
pages        pages to entries
page_table   decoded pages as a table, and searches in it
page_memory  decoded pages that are kept
key_form     what is kept of keys, and the numbers that they are in pages
keys         entries as columns, ordered as numbers or bytes
cache        parts of objects on the local disk
"""

from needlepoint.stores.leaf_files.cache import LeafCache
from needlepoint.stores.leaf_files.leaf_writer import FORMAT
from needlepoint.stores.leaf_files.store import LeafKeyStore

__all__ = ["FORMAT", "LeafCache", "LeafKeyStore"]
