"""The Parquet format: what a file's metadata is made of, byte by byte.

thrift        the compact protocol that metadata is written in
footer        the footer as frozen values
footer_edit   a footer with other key/values or index places
page_index    column and offset indexes
page_headers  pages of a chunk without an offset index
levels        where records begin in a nested column
codecs        compression by the numbers Parquet gives it
bloom_filter  split-block bloom filters of row groups
int96         timestamps of Spark, Hive and Impala
validation    whether a file can be given to other readers
"""

from needlepoint.parquet.format import footer_edit, int96, thrift
from needlepoint.parquet.format.bloom_filter import BLOCK, Matrix, block_numbers, contains, filled, hash_values
from needlepoint.parquet.format.footer import FileMetadata, Statistics, read_footer
from needlepoint.parquet.format.page_index import ColumnIndex, Int64Array, decode_offset_index
from needlepoint.parquet.format.validation import ensure_sound

__all__ = [
    "BLOCK",
    "ColumnIndex",
    "FileMetadata",
    "Int64Array",
    "Matrix",
    "Statistics",
    "block_numbers",
    "contains",
    "decode_offset_index",
    "ensure_sound",
    "filled",
    "footer_edit",
    "hash_values",
    "int96",
    "read_footer",
    "thrift",
]
