"""Read single rows of a file.

page_plan           which pages hold the wanted rows
joint_pages         the same for many local files at once
page_reader         fetch them and let pyarrow decode a small file made of them
assembly            that small file
unpacked_pages      that file for many pages of zstd, which are unpacked in one call
arrow_reader        pyarrow's reader: the only user of its private API
row_group_reader    whole row groups, where pages cannot be read one by one
dictionaries        dictionaries that are decoded once
dictionary_indices  single entries of a dictionary-encoded page
take_rows           rows of decoded columns
filter_reader       asks bloom filters which row groups can hold a value
utf8                strings must be UTF-8
caches              decoded dictionaries and small pages, up to a number of bytes
"""

from needlepoint.parquet.read.arrow_reader import open_reader
from needlepoint.parquet.read.assembly import AssembledChunk, Frame, Piece, assemble, chunk_head, make_frame

__all__ = ["AssembledChunk", "Frame", "Piece", "assemble", "chunk_head", "make_frame", "open_reader"]
