"""What a file takes in the registry, and in the memory of a node: counted, since 100,000 files are to take 150 MB and
500 MB, and 30 TB (117,188 files of ten columns) 10 GB. `make bench-nodes` and `make bench-scale-simulation` measure
these; here some hundred files show that nobody made each of them larger."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import needlepoint

pytestmark = pytest.mark.long
FILES = 300


def write(root: Path, columns: int, first: int) -> None:
    for number in range(first, first + FILES):
        path = root / "t" / f"part={number // 100}" / f"part-{number:05}-8b2c0d4e-6c2f-4f5e-9d55-2f0f6f1f0a11.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        made = {"id": np.arange(8) * 1000 + number, "title": [f"title {number} {row}" for row in range(8)]}
        made |= {f"c{each}": np.arange(8) + number for each in range(columns - 2)}
        pq.write_table(pa.table(made), path)


def registry_bytes(root: Path, columns: int) -> float:
    """Of a file more, with a key index."""
    sizes = []
    with needlepoint.open(root, history="off", workers=1) as lake:
        for first in (0, FILES):
            write(root, columns, first)
            lake.sync() if first else lake.create_table("t")
            if not first:
                lake.create_index("t", "id")
            lake.sync()
            lake.sweep(now=True)
            sizes.append((root / ".needlepoint/registry.db").stat().st_size)
    return (sizes[1] - sizes[0]) / FILES


@pytest.mark.parametrize(("columns", "most"), [(3, 150e6 / 100_000), (10, 10e9 / 117_188)])
def test_a_file_takes_few_bytes_of_the_registry(tmp_path: Path, columns: int, most: float) -> None:
    found = registry_bytes(tmp_path, columns)
    assert 0 < found < most
    assert found < 400 + 80 * columns  # docs/scale.md


def node_bytes(root: Path, cache: Path, files: int) -> int:
    """Held by Python and numpy after queries."""
    gc.collect()
    tracemalloc.start()
    try:
        with needlepoint.open(root, read_only=True, shared="on", store=root / "none", cache=cache) as node:
            assert node.sql("SELECT count(*) AS n FROM t").rows() == [{"n": 8 * files}]
            assert node.sql("SELECT title FROM t WHERE id = 3017").rows() == [{"title": "title 17 3"}]
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_a_file_takes_few_bytes_of_a_node(tmp_path: Path) -> None:
    held = []
    for number in range(2):
        write(tmp_path, 3, number * FILES)
        with needlepoint.open(tmp_path, history="off", shared="on") as lake:
            if not number:
                lake.create_table("t")
            lake.sync()
            lake.share()
        files = FILES * (number + 1)
        held += [node_bytes(tmp_path, tmp_path / f"cache {number} {turn}", files) for turn in range(2)]
    assert 0 < (held[3] - held[1]) / FILES < 3550  # beside 145 MB of libraries, 100,000 files are 500 MB
