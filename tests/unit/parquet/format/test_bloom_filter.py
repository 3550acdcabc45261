from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from needlepoint.objects.local import LocalFile
from needlepoint.parquet.card.card import ABSENT, FileCard
from needlepoint.parquet.card.describe import build_card
from needlepoint.parquet.format.bloom_filter import (
    HEADER_WINDOW,
    BloomHeader,
    contains,
    decode_header,
    hash_values,
    mask,
)
from needlepoint.parquet.format.thrift import Writer
from needlepoint.parquet.read.filter_reader import KnownFilters, probe

ROWS = 20_000


def header(size: int = 64, algorithm: int = 1, hash: int = 1, compression: int = 1) -> bytes:
    writer = Writer()
    writer.integer32(1, size)
    for field, member in ((2, algorithm), (3, hash), (4, compression)):
        writer.begin(field)
        writer.begin(member)
        writer.end()
        writer.end()
    return writer.finish()


def numbers(values: Sequence[int]) -> np.ndarray:
    return hash_values([value.to_bytes(8, "little", signed=True) for value in values])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Even numbers, 5,000 of them in each of four row groups; `b` has no filter."""
    path = str(tmp_path_factory.mktemp("bloom") / "file.parquet")
    even = np.arange(ROWS) * 2
    table = pa.table({"a": even, "b": even})
    options = {"a": {"ndv": ROWS // 4, "fpp": 0.01}}
    pq.write_table(table, path, row_group_size=ROWS // 4, bloom_filter_options=options)
    return path


def without_lengths(card: FileCard) -> FileCard:
    absent = np.full_like(card.chunks.bloom_filter_length, ABSENT)
    return replace(card, chunks=replace(card.chunks, bloom_filter_length=absent))


def test_header() -> None:
    data = header(4096)
    assert decode_header(data + b"bits") == BloomHeader(4096, len(data))
    for bad in (header(0), header(-32), header(33), header(algorithm=2), header(hash=2), header(compression=2)):
        assert decode_header(bad) is None
    assert decode_header(data[:-1]) is None
    assert decode_header(b"") is None


@given(st.binary(max_size=100))
def test_hostile_headers(data: bytes) -> None:
    found = decode_header(data)
    assert found is None or (found.num_bytes >= 32 and 0 < found.length <= len(data))


def test_one_bit_in_each_word() -> None:
    hashes = hash_values([b"", b"a", b"b"])
    assert np.bitwise_count(mask(hashes)).tolist() == [[1] * 8] * 3
    assert contains(np.full((3, 8), 2**32 - 1, np.uint32), hashes).all()
    assert not contains(np.zeros((3, 8), np.uint32), hashes).any()


@pytest.mark.parametrize("lengths", [True, False])
def test_no_false_negatives_and_few_false_positives(path: str, lengths: bool) -> None:
    card = build_card(path) if lengths else without_lengths(build_card(path))
    with LocalFile(path) as file:
        there = probe(file, card, 0, range(4), numbers(range(0, 2 * ROWS, 2)))
        for group in range(4):
            assert there[group, group * ROWS // 4 : (group + 1) * ROWS // 4].all()
        missing = probe(file, card, 0, range(4), numbers(range(1, 2 * ROWS, 2)))
    assert 0 < missing.mean() < 0.01  # pyarrow rounds the size up to a power of two


def test_one_value_reads_a_few_bytes_of_each_filter(path: str) -> None:
    card = build_card(path)
    length = int(card.chunks.bloom_filter_length[0])
    assert length > 8000
    known: KnownFilters = {}
    with LocalFile(path) as file:
        found = probe(file, card, 0, [0, 1, 2, 3], numbers([2 * 7000]), known)
        assert found.tolist() == [[False], [True], [False], [False]]
        assert file.bytes_requested <= 4 * (32 + 32) + 3 * 4096  # neighbours within 4 KiB are read together
        before = file.bytes_requested
        probe(file, card, 0, [2], numbers([5]), known)
        assert file.bytes_requested - before == 32  # the header is already known
    with LocalFile(path) as file:
        probe(file, without_lengths(card), 0, [2], numbers([5]))
        assert file.bytes_requested == HEADER_WINDOW + 32


def test_many_values_read_a_filter_once(path: str) -> None:
    card = build_card(path)
    with LocalFile(path) as file:
        probe(file, card, 0, [1], numbers(range(50_000)))
        assert file.bytes_requested <= int(card.chunks.bloom_filter_length[0])
        assert file.requests == 1


def test_many_pairs_are_worked_on_in_parts(path: str) -> None:
    card = build_card(path)
    hashes = numbers(range(200_000))
    with LocalFile(path) as file:
        together = probe(file, card, 0, [3, 0], hashes)
        assert np.array_equal(together[1], probe(file, card, 0, [0], hashes)[0])
    assert together.shape == (2, 200_000)


def test_nothing_to_ask(path: str) -> None:
    card = build_card(path)
    with LocalFile(path) as file:
        assert probe(file, card, 1, [0, 1], numbers([1])).all()
        assert probe(file, card, 0, [], numbers([1])).shape == (0, 1)
        assert probe(file, card, 0, [0], numbers([])).shape == (1, 0)
        assert file.bytes_requested == 0


def test_a_filter_that_cannot_be_asked_says_maybe(path: str, tmp_path: Path) -> None:
    card = build_card(path)
    start = int(card.chunks.bloom_filter_offset[1])
    good = Path(path).read_bytes()
    size = int(card.chunks.bloom_filter_length[1]) // 32 * 32
    for bad in (header(size, hash=3), header(size * 2), header(size - 32), b"\xff" * 15, b"\0" * 15):
        file_path = tmp_path / "bad.parquet"
        file_path.write_bytes(good[:start] + bad + good[start + len(bad) :])
        for described in (build_card(str(file_path)), without_lengths(build_card(str(file_path)))):
            with LocalFile(str(file_path)) as file:
                answers = probe(file, described, 0, [0, 1], numbers([3, 5, 7, 9]))
            assert not answers[0].all()
            # Without a length, a wrong size cannot be detected.
            assert answers[1].all() or (decode_header(bad) and described.chunks.bloom_filter_length[1] == ABSENT)


@settings(deadline=None, max_examples=cases(200))
@given(
    offset=st.integers(-(2**40), 2**40) | st.integers(0, 200_000),
    length=st.integers(-1, 2**40) | st.integers(-1, 40_000),
)
def test_hostile_places(path: str, offset: int, length: int) -> None:
    card = build_card(path)
    offsets, lengths = card.chunks.bloom_filter_offset.copy(), card.chunks.bloom_filter_length.copy()
    offsets[0], lengths[0] = offset, length
    chunks = replace(card.chunks, bloom_filter_offset=offsets, bloom_filter_length=lengths)
    with LocalFile(path) as file:
        answers = probe(file, replace(card, chunks=chunks), 0, [0, 1], numbers([2, 5002 * 2]))
    assert answers[0, 0] and answers[1, 1]
