"""The resources of a large lake, computed from measurements: the tables of docs/scale.md.

    python benchmarks/scale_paper.py            prints them
    python benchmarks/scale_paper.py --write    writes them to docs/scale.md

The formulas, for a lake of `bytes`:

>>> lake = Lake(30e12)
>>> f"{lake.files:,.0f} files, {lake.rows:.3g} rows, {lake.pages:.3g} pages in all columns"
'117,188 files, 2e+11 rows, 8e+09 pages in all columns'
>>> round(lake.key_index / 1e12, 2), round(lake.registry / 1e6), round(lake.cards / 1e9)
(2.22, 141, 83)
>>> round(lake.leaf_index / 1e12, 2)
1.23
>>> round(lake.build_hours(cores=64), 1)
0.8
>>> round(lake.list_dollars, 4), round(Lake(1e15).list_dollars, 3)
(0.0006, 0.02)
>>> Lake(30e12).fits, Lake(1e15).fits
(True, False)

A node without a store was measured with 100,000 files of 3 columns (docs/nodes.md): a registry of 40 MB, a checkpoint
of 8.9 MB, 3 requests, the first answer after 1.3 s, 446 MB. The formulas give, with longer paths in the registry:

>>> node = Lake(100_000 * 256e6, columns=3)
>>> size(node.checkpoint), node.ready_requests, round(node.ready_seconds, 1), size(145e6 + node.node_memory)
('14 MB', 3, 1.3, '445 MB')
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).parents[1] / "docs" / "scale.md"
BEGIN, END = "<!-- computed by benchmarks/scale_paper.py -->", "<!-- until here -->"

# Measured: benchmarks/README.md, on one core of a shared virtual machine.
KEY_BYTES = 11.1  # for an int64; 17.6 for a string
LEAF_KEY_BYTES = 6.13  # for an int64, in leaf files in the lake (`make bench-stores`); 8.9 for a string
KEYS_A_SECOND = 1_100_000  # per core: read, sort, write; 800,000 for a string
CARD_BYTES_A_PAGE, ZONE_BYTES_A_PAGE = 1.6, 8.8  # in packs
REGISTRY_BYTES_A_FILE, REGISTRY_BYTES_A_COLUMN = 400, 80  # a row with its path; bounds, and the place of a zone map
MEMORY_A_FILE = 1_900  # bytes on a query node, with the bounds of one column
FIRST_PLAN = 25e-6  # seconds per file on one core: list it, load it and the bounds of a column
# Measured by benchmarks/nodes.py: a node without a store, and a bucket that answers after 20 ms.
CHECKPOINT_SHARE = 0.22  # of the registry, compressed
NODE_MEMORY_A_FILE = 3_000
NODE_READY = 12.4e-6  # seconds per file on one core: unpack the checkpoint, load files and the bounds of a column
PART, PARTS_AT_ONCE, ANSWER = 8 << 20, 4, 0.02  # bytes of a request, requests at once, seconds
KEY_CACHE = 268e6  # bytes, for all key indexes of a process
FOOTER_SECONDS = 0.002  # on one core, to read and describe a file
LISTED_A_SECOND_S3 = 10_000
# Example prices, in dollars.
GET, LIST, KEYS_OF_A_LIST = 0.0004 / 1000, 0.005 / 1000, 1000
# Limits: a location is 32 bits of file and 32 bits of row.
MOST_FILES, MOST_ROWS_OF_A_FILE = 2**32, 2**32
# Beyond these sizes, one node is impractical: the registry is one file, and a key index in RocksDB one directory on a
# local disk. Packs of cards can be many files.
MOST_REGISTRY, MOST_KEY_INDEX = 200e9, 8e12


@dataclass(frozen=True, slots=True)
class Lake:
    """`row_bytes` is the compressed size of a row; a lookup reads one page of each of `read_columns`."""

    bytes: float
    file_bytes: float = 256e6
    row_bytes: float = 150
    columns: int = 10
    page_rows: int = 250
    read_columns: int = 3

    @property
    def files(self) -> float:
        return self.bytes / self.file_bytes

    @property
    def rows(self) -> float:
        return self.bytes / self.row_bytes

    @property
    def pages(self) -> float:
        return self.rows / self.page_rows * self.columns

    @property
    def key_index(self) -> float:
        return self.rows * KEY_BYTES

    @property
    def leaf_index(self) -> float:
        """The same keys in leaf files."""
        return self.rows * LEAF_KEY_BYTES

    @property
    def registry(self) -> float:
        return self.files * (REGISTRY_BYTES_A_FILE + self.columns * REGISTRY_BYTES_A_COLUMN)

    @property
    def cards(self) -> float:
        """Bytes of all cards and zone maps."""
        return self.pages * (CARD_BYTES_A_PAGE + ZONE_BYTES_A_PAGE)

    def build_hours(self, cores: int) -> float:
        """Hours to build the cards and one key index."""
        return (self.rows / KEYS_A_SECOND + self.files * FOOTER_SECONDS) / cores / 3600

    @property
    def snapshot_memory(self) -> float:
        return self.files * MEMORY_A_FILE

    @property
    def checkpoint(self) -> float:
        """Bytes that a node without a store fetches first, if there are no deltas."""
        return self.registry * CHECKPOINT_SHARE

    @property
    def ready_requests(self) -> int:
        """The manifest, and the checkpoint in parts."""
        return 1 - int(-self.checkpoint // PART)

    @property
    def ready_seconds(self) -> float:
        """Until a node with an empty disk has answered its first query; without the time that bytes travel."""
        waits = 1 - int(-self.checkpoint // (PART * PARTS_AT_ONCE))
        return self.files * NODE_READY + waits * ANSWER

    @property
    def node_memory(self) -> float:
        """Of a node without a store, beside libraries."""
        return self.files * NODE_MEMORY_A_FILE

    @property
    def list_dollars(self) -> float:
        return self.files / KEYS_OF_A_LIST * LIST

    @property
    def list_minutes(self) -> float:
        return self.files / LISTED_A_SECOND_S3 / 60

    @property
    def page_bytes(self) -> float:
        return self.row_bytes / self.columns * self.page_rows

    @property
    def lookup_dollars(self) -> float:
        """Price of a million lookups: one request per column, since columns of a large row group are far apart."""
        return 1e6 * self.read_columns * GET

    @property
    def scan_dollars(self) -> float:
        """Price of the requests for one scan of the key column in ranges of 8 MiB, without compute."""
        return max(self.files, self.bytes / self.columns / (8 << 20)) * GET

    @property
    def shards(self) -> int:
        """Number of lakes whose registries and key indexes stay within the limits."""
        return max(1, -int(-self.registry // MOST_REGISTRY), -int(-self.key_index // MOST_KEY_INDEX))

    @property
    def fits(self) -> bool:
        return self.shards == 1 and self.files < MOST_FILES and self.file_bytes / self.row_bytes < MOST_ROWS_OF_A_FILE


def size(number: float) -> str:
    """
    >>> size(84e9), size(2.2e12), size(1900)
    ('84 GB', '2.2 TB', '1.9 kB')
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 1000:
            return f"{number:.2g} {unit}" if number < 10 else f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.2g} PB"


ROWS: tuple[tuple[str, Callable[[Lake], str]], ...] = (
    ("files", lambda lake: f"{lake.files:,.0f}"),
    ("rows", lambda lake: f"{lake.rows / 1e9:,.0f} billion"),
    ("one key index (int64)", lambda lake: f"{size(lake.key_index)}, {lake.key_index / lake.bytes:.0%} of the data"),
    ("the same in leaf files in the lake (`lake:`)", lambda lake: size(lake.leaf_index)),
    ("registry, with bounds of 10 columns", lambda lake: size(lake.registry)),
    ("cards and zone maps of 10 columns, pages of 250 rows", lambda lake: size(lake.cards)),
    ("the same with pages of 1,000 rows", lambda lake: size(Lake(lake.bytes, page_rows=1000).cards)),
    ("building both, 64 cores", lambda lake: f"{lake.build_hours(64) * 60:,.0f} min"),
    ("memory of a query node: files and bounds", lambda lake: size(lake.snapshot_memory)),
    ("memory of a query node: key indexes", lambda lake: f"{size(KEY_CACHE)}, a cache"),
    ("first plan of a query node", lambda lake: f"{lake.files * FIRST_PLAN:.1f} s"),
    ("a node without a store: fetches, until it is ready", lambda lake: size(lake.checkpoint)),
    ("the same: requests, time to the first answer", lambda lake: f"{lake.ready_requests}, {lake.ready_seconds:.1f} s"),
    ("the same: memory for files and bounds", lambda lake: size(lake.node_memory)),
    ("one listing on S3", lambda lake: f"${lake.list_dollars:.2g}, {lake.list_minutes * 60:,.1f} s"),
    ("a lookup of 3 columns", lambda lake: f"3 GETs of {size(lake.page_bytes)}"),
    ("a million of them, requests", lambda lake: f"${lake.lookup_dollars:.2f}"),
    ("one scan of the key column, requests", lambda lake: f"${lake.scan_dollars:,.2g}"),
    ("lakes to cut it into", lambda lake: f"{lake.shards}"),
)


def tables() -> str:
    lakes = {"1 TB": Lake(1e12), "30 TB": Lake(30e12), "1 PB": Lake(1e15)}
    lines = [f"| | {' | '.join(lakes)} |", "| --- |" + " --- |" * len(lakes)]
    lines += [f"| {name} | {' | '.join(shown(lake) for lake in lakes.values())} |" for name, shown in ROWS]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    if not parser.parse_args().write:
        print(tables())
        return
    before, rest = DOCUMENT.read_text().split(BEGIN)
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{tables()}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
