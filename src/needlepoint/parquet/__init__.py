"""Parquet files: their footers, their cards, and single rows out of their pages."""

from needlepoint.parquet.card.array_container import CardCorrupt
from needlepoint.parquet.card.card import FileCard
from needlepoint.parquet.card.describe import build_card
from needlepoint.parquet.read.caches import ByteCache, Caches
from needlepoint.parquet.read.page_reader import ReadStats, read_rows

__all__ = [
    "ByteCache",
    "Caches",
    "CardCorrupt",
    "FileCard",
    "ReadStats",
    "build_card",
    "read_rows",
]
