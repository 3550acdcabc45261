"""Postings that are stored in parts are made again byte for byte, and forged parts are refused."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.cases import cases
from tests.unit.indexes.payloads import text_source

from needlepoint.errors import NotIndexable
from needlepoint.indexes.text import build, payload, split_postings
from needlepoint.indexes.text.kind import TextKind
from needlepoint.indexes.text.payload import TextDescription, pack, unpack
from needlepoint.indexes.text.postings import SegmentPostings, unpacked_blocks
from needlepoint.indexes.text.split_postings import SplitPostings, joined, split
from needlepoint.stores import IndexDamaged

PARTS = [part.name for part in fields(SplitPostings)]
MOST = 1 << 30


def texts_of(dice: random.Random) -> pa.Array:
    """Frequent and rare words, words that each row has, and rows without any."""
    rows, words = dice.choice([1, 127, 128, 129, 3000, 20_000]), dice.choice([1, 2, 30, 3000])
    weights = [1 / (number + 1) ** dice.choice([0, 1, 2]) for number in range(words)]
    vocabulary = [f"w{number}" for number in range(words)]
    longest = dice.choice([2, 6, 40 if rows < 5000 else 6])
    rare = dice.random()
    made = [
        " ".join(dice.choices(vocabulary, weights, k=dice.randrange(longest))) if dice.random() < rare else ""
        for _ in range(rows)
    ]
    return pa.array([f"all {text}" if longest == 6 else text for text in made])


def files_of(texts: pa.Array, place: Path, **options: Any) -> tuple[bytes, dict[str, bytes]]:
    """The payload of texts, and the files of which it was made."""
    found: dict[str, bytes] = {}

    def recorded(description: TextDescription, files: Mapping[str, bytes]) -> bytes:
        found.update(files)
        return pack(description, files)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "pack", recorded)
        return TextKind().build(text_source(texts, place, **options)).payload, found


@pytest.mark.parametrize("seed", range(cases(100, default=10)))
def test_a_payload_is_unpacked_byte_for_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    dice = random.Random(seed)
    if seed % 3 == 0:  # several segments
        monkeypatch.setattr(build, "HEAP_PER_TEXT", {"word": 400, "trigram": 400})
        monkeypatch.setattr(build, "AT_ONCE", 1000)
    monkeypatch.setattr(payload, "_LISTED", -1 << 30)  # in parts, even if they are larger
    monkeypatch.setattr(split_postings, "AT_ONCE", dice.choice([1, 3, 100, 4096]))
    made, files = files_of(texts_of(dice), tmp_path / "scratch", tokenizer=dice.choice(["word", "word", "trigram"]))
    place = tmp_path / "unpacked"
    place.mkdir()
    unpack(made, place)
    assert {path.name: path.read_bytes() for path in place.iterdir() if path.name != "description.json"} == files
    for name in [name for name in files if name.endswith(".idx")]:
        blocks = [*SegmentPostings(files[name.replace("idx", "term")], files[name], 0).long_lists()]
        assert (name.replace("idx", "gaps") in names_of(made)) == (len(blocks) > 0)


def names_of(made: bytes) -> list[str]:
    """The files in a payload."""
    return [name for name, _, _ in json.loads(payload._parsed(made)[0])["files"]]


def test_frequent_words_are_in_parts(tmp_path: Path) -> None:
    dice = random.Random(3)
    texts = pa.array([" ".join(dice.choices("abcdefghijklmnopqrst", k=5)) for _ in range(20_000)])
    for tokenizer in ("word", "trigram"):
        made, files = files_of(texts, tmp_path / tokenizer, tokenizer=tokenizer)
        names = names_of(made)
        assert not any(name.endswith(".idx") for name in names) and any(name.endswith(".gaps") for name in names)
        (name,) = [name for name in files if name.endswith(".idx")]
        parts = split(files[name.replace("idx", "term")], files[name])
        assert parts is not None and joined(parts, len(files[name])) == files[name]
        with pytest.raises(ValueError, match="its postings would have"):
            joined(parts, len(files[name]) - 1)


def test_what_is_not_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists without blocks, another version of tantivy, and files that are no postings."""
    _, files = files_of(pa.array(["cow"] * 127), tmp_path / "few")
    (name,) = [name for name in files if name.endswith(".idx")]
    assert split(files[name.replace("idx", "term")], files[name]) is None
    _, files = files_of(pa.array(["cow"] * 500), tmp_path / "many")
    terms, postings = files[name.replace("idx", "term")], files[name]
    assert split(terms, postings) is not None
    assert split(terms, postings[:-1]) is None and split(b"", postings) is None
    assert split(terms, terms) is None and split(postings, terms) is None
    monkeypatch.setattr("needlepoint.indexes.text.postings.FORMAT", 8)
    assert split(terms, postings) is None


@pytest.mark.parametrize("width", range(1, 32))
def test_bits_of_each_width(width: int) -> None:
    numbers = np.random.default_rng(width).integers(0, 1 << width, (3, 128)).astype(np.uint32)
    packed = split_postings._packed(numbers, width)
    found = unpacked_blocks(packed.ravel(), np.arange(3) * 16 * width, np.full(3, width))
    assert (found == numbers).all()


@pytest.mark.parametrize("seed", range(cases(50)))
def test_wide_gaps(seed: int) -> None:
    """More rows than a test can index: parts of any widths make a file, and are found in it again."""
    dice = np.random.default_rng(seed)
    runs = dice.integers(1, 6, dice.integers(1, 9))
    row_bits, bits = dice.integers(0, 32, runs.sum()), dice.integers(0, 33, runs.sum())
    gaps = [dice.integers(0, 1 << int(width), 128, np.uint32) for width in row_bits]
    planes = [
        (gap >> 8 * number).astype(np.uint8).tobytes()
        for number in range(4)
        for gap, width in zip(gaps, row_bits, strict=True)
        if width > 8 * number
    ]
    skips = np.zeros((8, len(bits)), np.uint8)
    skips[0], skips[1], skips[2:] = row_bits | 0x40, bits, dice.integers(0, 256, (6, len(bits)))
    before = dice.integers(0, 20, len(runs))
    parts = SplitPostings(
        dice.bytes(int(before.sum()) + 5),
        np.array([before, runs], "<u4").tobytes(),
        skips.tobytes(),
        b"".join(planes),
        dice.bytes(16 * int(bits.sum())),
    )
    file = joined(parts, MOST)
    starts, at, block = [], 0, 0
    for ahead, blocks in zip(before.tolist(), runs.tolist(), strict=True):
        starts.append((at + ahead, blocks))
        at += ahead + 1 + 12 * blocks + 16 * int((row_bits + bits)[block : block + blocks].sum())
        block += blocks
    assert split_postings._split(np.frombuffer(file, np.uint8), starts) == parts


def test_forged_parts_are_refused(tmp_path: Path) -> None:
    """They make a file, or raise ValueError; a file is never larger than what is allowed."""
    dice = random.Random(1)
    texts = pa.array([" ".join(dice.choices("abcdefgh", k=4)) for _ in range(3000)])
    _, files = files_of(texts, tmp_path)
    (name,) = [name for name in files if name.endswith(".idx")]
    parts = split(files[name.replace("idx", "term")], files[name])
    assert parts is not None
    for _ in range(cases(2000)):
        part = dice.choice(PARTS)
        content = bytearray(getattr(parts, part))
        at = dice.randrange(len(content))
        match dice.randrange(3):
            case 0:
                content[at] ^= 1 << dice.randrange(8)
            case 1:
                del content[at:]
            case 2:
                content[at : at + 4] = dice.choice([0, 1, 1 << 31, (1 << 32) - 1]).to_bytes(4, "little")
        try:
            assert len(joined(replace(parts, **{part: bytes(content)}), 200_000)) <= 200_000
        except ValueError:
            continue


def test_many_blocks_of_no_bits_take_little_memory() -> None:
    """A byte for each block, which becomes five."""
    blocks = 1 << 20
    parts = SplitPostings(b"", np.array([0, blocks], "<u4").tobytes(), b"\x40" * blocks, b"", b"")
    tracemalloc.start()
    try:
        assert len(joined(parts, MOST)) == 5 * blocks + 4
        assert tracemalloc.get_traced_memory()[1] < 32 * blocks
        tracemalloc.reset_peak()
        with pytest.raises(ValueError, match="would have 5,242,884 bytes"):
            joined(parts, 5 * blocks)
        assert tracemalloc.get_traced_memory()[1] < 8 * blocks
    finally:
        tracemalloc.stop()


@pytest.mark.long
def test_many_runs_take_little_memory() -> None:
    """Eight bytes for each run of one block, and one for the block: six in the file."""
    runs = 1 << 17
    counts = np.array([[0] * runs, [1] * runs], "<u4").tobytes()
    tracemalloc.start()
    try:
        assert len(joined(SplitPostings(b"", counts, b"\x40" * runs, b"", b""), MOST)) == 6 * runs
        assert tracemalloc.get_traced_memory()[1] < 128 * runs
    finally:
        tracemalloc.stop()


def test_a_payload_with_some_of_the_parts(tmp_path: Path) -> None:
    parts = SplitPostings(b"", np.array([0, 1], "<u4").tobytes(), b"\x40", b"", b"")
    described = TextDescription("word", "", "", 1, 1, 1, (1,))
    whole = {f"1.{part}": content for part, content in asdict(parts).items()}
    for missing in [None, *PARTS]:
        files = {name: content for name, content in whole.items() if name != f"1.{missing}"}
        place = tmp_path / str(missing)
        place.mkdir()
        if missing is None:
            unpack(pack(described, files), place)
            assert (place / "1.idx").read_bytes() == joined(parts, MOST)
            continue
        with pytest.raises(IndexDamaged, match="only some parts"):
            unpack(pack(described, files), place)


def test_parts_that_would_be_refused_are_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Parts may be larger than the file, before they are compressed."""
    made, files = files_of(pa.array(["cow", "goat"] * 5000), tmp_path / "scratch")
    described = payload._parse_description(payload._parsed(made)[0])
    monkeypatch.setattr(payload, "_LISTED", -1 << 30)
    size = sum(map(len, files.values()))
    for most, in_parts in [(size + 20_000, True), (size, False)]:
        monkeypatch.setattr(payload, "most_unpacked", lambda *_, most=most: most)
        assert any(name.endswith(".gaps") for name in names_of(pack(described, files))) == in_parts
    monkeypatch.setattr(payload, "most_unpacked", lambda *_: size - 1)
    with pytest.raises(NotIndexable):
        pack(described, files)
