"""Single rows from files of every common writer, with and without the page index."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.unit.parquet.reading import card_of, check_subsets, whole
from tests.unit.parquet.writers import ENCODINGS, FASTPARQUET, FEW, INT96, PYARROW, matrix, write

from needlepoint.parquet.card import describe as describe_module
from needlepoint.parquet.card.card import FileCard
from needlepoint.parquet.card.describe import build_card, describe
from needlepoint.parquet.format.page_index import OffsetIndex
from needlepoint.parquet.format.thrift import ThriftError
from needlepoint.parquet.read import dictionaries, page_reader
from needlepoint.parquet.read.caches import Caches
from needlepoint.parquet.read.wanted_rows import ReadStats
from needlepoint.parquet.write.embed import Payload, embed, remove
from needlepoint.parquet.write.retrofit import retrofit

HADOOP_LZ4 = 5  # parquet.thrift, CompressionCodec.LZ4


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    directory = tmp_path_factory.mktemp("writers")

    def path_of(name: str) -> str:
        path = directory / f"{name.replace('/', '-')}.parquet"
        if not path.exists():
            write(name, path)
        return str(path)

    return path_of


def without_index(path: str, monkeypatch: pytest.MonkeyPatch) -> FileCard:
    """The card that the file would have without a page index."""

    def refuse(_: bytes) -> OffsetIndex:
        raise ThriftError("there is none")

    with monkeypatch.context() as patch:
        patch.setattr(describe_module, "decode_offset_index", refuse)
        return build_card(path)


@pytest.mark.parametrize("name", matrix(short=FEW))
def test_same_rows_as_a_scan(name: str, written: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(name)
    card = build_card(path)
    check_subsets(path, card)
    walked = without_index(path, monkeypatch)
    # The headers give the same pages and rows as the index.
    for chunk in range(len(card.page_starts) - 1):
        mine, theirs = (slice(*each.page_starts[chunk : chunk + 2]) for each in (walked, card))
        if _is_hidden(walked, chunk):
            assert walked.pages.first_row[mine].tolist() == card.pages.first_row[theirs].tolist()[:1]
            continue
        assert walked.pages.offset[mine].tolist() == card.pages.offset[theirs].tolist()
        assert walked.pages.size[mine].tolist() == card.pages.size[theirs].tolist()
        assert walked.pages.first_row[mine].tolist() == card.pages.first_row[theirs].tolist()
    assert walked.chunks.dictionary_size.tolist() == card.chunks.dictionary_size.tolist()
    check_subsets(path, walked)


def _is_hidden(card: FileCard, chunk: int) -> bool:
    """Whether the rows of the chunk's pages are hidden: in levels compressed by Hadoop's LZ4 (version 1 pages)."""
    leaf = card.leaves[chunk // card.num_row_groups]
    return (
        leaf.nested
        and card.chunks.codec[chunk] == HADOOP_LZ4
        and card.page_starts[chunk + 1] - card.page_starts[chunk] == 1
    )


@pytest.mark.parametrize("name", matrix(short=FEW))
def test_same_rows_with_caches(name: str, written: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache every dictionary, whatever its size, and look up every value; first on a miss, then on a hit."""
    monkeypatch.setattr(dictionaries, "SMALLEST_KEPT", 1)
    monkeypatch.setattr(dictionaries, "FEW_ROWS", 50)
    path = written(name)
    caches = Caches.of(1 << 20, 1 << 20)
    for _ in range(2):
        # Fail if an error in a cached read is hidden by a retry without caches.
        with monkeypatch.context() as patch:
            patch.setattr(page_reader, "_total", only_one)
            check_subsets(path, build_card(path), caches)
    assert caches.pages.hits > 0
    encodings = str(pq.read_metadata(path).row_group(0).column(0).encodings)
    if "DICTIONARY" in encodings and card_of(path).chunks.codec[0] != HADOOP_LZ4:
        assert caches.dictionaries.hits > 0
    # Caches without room for anything change nothing.
    check_subsets(path, build_card(path), Caches.of(0, 0))


def only_one(stats: list[ReadStats]) -> ReadStats:
    (found,) = stats
    return found


@pytest.mark.parametrize("name", matrix(PYARROW + ENCODINGS + INT96 + FASTPARQUET))
def test_chunks_without_an_index_have_pages(name: str, written: Callable[[str], str]) -> None:
    card = build_card(written(name))
    counts = np.diff(card.page_starts)
    # Columns of few values (nulls, booleans, small dictionaries) fit into one page.
    assert (counts > 1).mean() > 0.5, f"{name}: {counts.tolist()}"


def test_bounds_of_pages_without_an_index(written: Callable[[str], str], tmp_path: Path) -> None:
    path = written("pyarrow/flat/1.0/snappy")
    description = describe(path)
    card, groups = description.card, description.card.num_row_groups
    values = whole(path)["int32"].to_pylist()
    leaf = card.find("int32").first_leaf
    for group in range(groups):
        bounds = description.page_bounds[card.chunk_index(leaf, group)]
        assert bounds is not None and bounds.null_counts is not None
        chunk = card.chunk_index(leaf, group)
        rows = [*card.pages.first_row[card.page_starts[chunk] : card.page_starts[chunk + 1]].tolist(),
                int(card.row_group_rows[group + 1])]  # fmt: skip
        for page, (first, last) in enumerate(itertools.pairwise(rows)):
            present = [value for value in values[first:last] if value is not None]
            assert bounds.null_counts[page] == last - first - len(present)
            assert not bounds.null_pages[page]
            assert int.from_bytes(bounds.min_values[page], "little", signed=True) == min(present)
            assert int.from_bytes(bounds.max_values[page], "little", signed=True) == max(present)
    nulls = description.page_bounds[card.chunk_index(card.find("all_null").first_leaf, 0)]
    assert nulls is not None and nulls.null_pages.all()


@pytest.mark.parametrize("name", matrix(short=FEW))
def test_same_rows_after_indexes_were_added(name: str, written: Callable[[str], str], tmp_path: Path) -> None:
    """Pages are then found by the added offset indexes; embedded payloads are added and removed."""
    path = tmp_path / "file.parquet"
    shutil.copy(written(name), path)
    before = pq.read_table(path)
    embed(str(path), [Payload("key", ("id",), 1, b"payload")])
    done = retrofit(str(path), bloom=["id"] if "id" in before.column_names else [])
    assert not [why for _, why in done.skipped if "cannot be read" in why]
    assert pq.read_table(path).equals(before) or "float64" in before.column_names  # has NaNs
    check_subsets(str(path), build_card(str(path)))
    assert not retrofit(str(path)).changed
    without = shutil.copy(path, tmp_path / "without.parquet")
    remove(str(without), lambda entry: True)
    check_subsets(str(without), build_card(str(without)))
