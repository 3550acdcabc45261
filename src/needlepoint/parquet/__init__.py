"""Parquet files: their footers, their cards, and single rows out of their pages.

format/   what a file's metadata is made of, byte by byte
card/     all that is needed to read any page of a file without its footer
read/     single rows of a file
write/    indexes added to files, and files rewritten
inspect/  what is in a file, for people

Here are the names of card/ and read/, which import each other. format/, write/ and inspect/ have their own.
"""

from needlepoint.parquet.card import array_container
from needlepoint.parquet.card.array_container import CardCorrupt
from needlepoint.parquet.card.card import ABSENT, FileCard
from needlepoint.parquet.card.describe import FileDescription, build_card, describe
from needlepoint.parquet.read.caches import ByteCache, Caches
from needlepoint.parquet.read.filter_reader import KnownFilters, has_filters, probe
from needlepoint.parquet.read.page_plan import CachedCard
from needlepoint.parquet.read.page_reader import PAGES_FOR_A_THREAD, read_files, reads_jointly
from needlepoint.parquet.read.page_request import foresee_dictionaries, foresee_rows
from needlepoint.parquet.read.utf8 import check_file_texts, holds_text
from needlepoint.parquet.read.wanted_rows import FileRows, ReadStats

__all__ = [
    "ABSENT",
    "PAGES_FOR_A_THREAD",
    "ByteCache",
    "CachedCard",
    "Caches",
    "CardCorrupt",
    "FileCard",
    "FileDescription",
    "FileRows",
    "KnownFilters",
    "ReadStats",
    "array_container",
    "build_card",
    "check_file_texts",
    "describe",
    "foresee_dictionaries",
    "foresee_rows",
    "has_filters",
    "holds_text",
    "probe",
    "read_files",
    "reads_jointly",
]
