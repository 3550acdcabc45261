"""Read single rows of a file.

page_reader         the wanted rows of files: what is fetched together and decoded together
wanted_rows         the rows that are wanted of a file, and what reading them took
page_plan           which pages hold them
page_request        the bytes to fetch for them
joint_pages         both for many local files at once
page_decoder        pyarrow decodes a small file made of the pages
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
