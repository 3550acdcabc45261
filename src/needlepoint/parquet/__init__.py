"""Parquet files: their footers, their cards, and single rows out of their pages."""

from needlepoint.parquet.build import build_card
from needlepoint.parquet.caches import ByteCache, Caches
from needlepoint.parquet.card import FileCard
from needlepoint.parquet.card_format import CardCorrupt
from needlepoint.parquet.pages import ReadStats, read_rows

__all__ = [
    "ByteCache",
    "Caches",
    "CardCorrupt",
    "FileCard",
    "ReadStats",
    "build_card",
    "read_rows",
]
