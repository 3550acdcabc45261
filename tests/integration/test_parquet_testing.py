"""Every file of apache/parquet-testing that pyarrow reads, row by row and in random subsets.

git clone --depth 1 https://github.com/apache/parquet-testing
NEEDLE_PARQUET_TESTING=parquet-testing/data make test
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from needlepoint.parquet import dictionaries
from needlepoint.parquet.build import build_card
from needlepoint.parquet.caches import Caches
from needlepoint.parquet.card import FileCard
from needlepoint.parquet.embed import Payload, embed
from needlepoint.parquet.pages import read_rows
from needlepoint.parquet.retrofit import retrofit

VARIABLE = "NEEDLE_PARQUET_TESTING"
DIRECTORY = os.environ.get(VARIABLE, "")
FILES = (
    sorted(path.relative_to(DIRECTORY).as_posix() for path in Path(DIRECTORY).rglob("*.parquet")) if DIRECTORY else []
)
# One by one up to this many rows; of longer files, every so many-th.
MOST_ROWS = 60
# Files that pyarrow cannot read, with its reason.
UNREADABLE = {
    "incorrect_map_schema.parquet": "Map keys must be annotated as required",
    "large_string_map.brotli.parquet": "not implemented for chunked array outputs",
}


@pytest.fixture(scope="module", autouse=True)
def collection() -> None:
    if not DIRECTORY:
        pytest.skip(f"{VARIABLE} does not name the data directory of apache/parquet-testing")
    assert FILES, f"no Parquet files in {VARIABLE}={DIRECTORY}"


@pytest.mark.parametrize("name", FILES or ["(none)"])
def test_same_rows_as_pyarrow(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionaries, "SMALLEST_KEPT", 1)
    caches = Caches.of(1 << 24, 1 << 24)
    path = str(Path(DIRECTORY) / name)
    try:
        table = pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        assert UNREADABLE[name] in str(error)
        pytest.skip(f"pyarrow cannot read it: {error}")
    card = FileCard.from_bytes(build_card(path).to_bytes())
    assert card.arrow_schema.equals(table.schema, check_metadata=True)
    random = np.random.default_rng(len(name))
    count = table.num_rows
    subsets = [np.array([row]) for row in range(0, count, max(1, count // MOST_ROWS))]
    subsets += [np.flatnonzero(random.random(count) < share) for share in (0.1, 0.5, 1.0)]
    for rows in subsets:
        expected = table.take(pa.array(rows, pa.int64()))
        for kept in (None, caches):
            found, _ = read_rows(path, card, table.column_names, rows, kept)
            found.validate(full=True)
            assert found.schema.equals(expected.schema, check_metadata=True)
            assert same(found, expected)


def same(found: pa.Table, expected: pa.Table) -> bool:
    # NaN is not equal to NaN, and here it is the same answer.
    return found.equals(expected) or repr(found.to_pylist()) == repr(expected.to_pylist())


@pytest.mark.parametrize("name", FILES or ["(none)"])
def test_same_rows_after_indexes_were_added(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    path.write_bytes((Path(DIRECTORY) / name).read_bytes())
    try:
        before = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        assert UNREADABLE[name] in str(error)
        pytest.skip(f"pyarrow cannot read it: {error}")
    embed(str(path), [Payload("key", (), 1, b"payload")])
    retrofit(str(path))
    assert same(pq.read_table(path), before)
    card = build_card(str(path))
    rows = np.flatnonzero(np.random.default_rng(1).random(card.num_rows) < 0.1)
    found, _ = read_rows(str(path), card, card.arrow_schema.names, rows)
    assert same(found, before.take(pa.array(rows, pa.int64())))
