"""What is in a Parquet file, for people.

anatomy    all parts of a file, their sizes and what is in the way of lookups
layout     where each part is, and what nothing refers to
page_walk  the pages of a chunk, one after the other
display    numbers and bytes as a person reads them
advice     how to write the file better
html       a file as a picture, for notebooks
"""

from needlepoint.parquet.inspect.advice import LARGE_PAGE
from needlepoint.parquet.inspect.anatomy import Anatomy, ColumnAnatomy, PageAnatomy, inspect, inspect_pages
from needlepoint.parquet.inspect.layout import Segment

__all__ = [
    "LARGE_PAGE",
    "Anatomy",
    "ColumnAnatomy",
    "PageAnatomy",
    "Segment",
    "inspect",
    "inspect_pages",
]
