"""Blocks of key stores in servers: what is encoded is decoded, and bytes of earlier versions are read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from needlepoint.errors import StoreError, UsageError
from needlepoint.stores.keys import blocks, check_url
from needlepoint.stores.keys.part_merge import PartMerge
from needlepoint.stores.keys.run_file import RunFile, write_run_file
from needlepoint.stores.keys.space import Part
from needlepoint.stores.keys.urls import expanded, place_of, without_secrets

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "key-block-1.json").read_text())


def test_the_golden_block_and_run(tmp_path: Path) -> None:
    entries = np.array(GOLDEN["entries"], np.uint8)
    block = bytes.fromhex(GOLDEN["block"])
    assert blocks.encode(entries, GOLDEN["part"], GOLDEN["number"]) == [block]
    assert np.array_equal(blocks.decode(block, 16, GOLDEN["part"], GOLDEN["number"]), entries)
    (tmp_path / "run").write_bytes(bytes.fromhex(GOLDEN["run"]))
    run = RunFile(tmp_path / "run", 16)
    assert run.name == GOLDEN["name"]
    assert np.array_equal(np.concatenate(list(run.portions(2))), entries)


@settings(max_examples=cases(200), deadline=None)
@given(st.data())
def test_what_is_encoded_is_decoded(data: st.DataObject) -> None:
    width = data.draw(st.integers(9, 40))
    count = data.draw(st.integers(1, 300))
    seed = data.draw(st.integers(0, 2**32))
    few = data.draw(st.sampled_from([2, 256]))
    entries = np.random.default_rng(seed).integers(0, few, (count, width)).astype(np.uint8)
    made = blocks.encode(entries, seed, -1, -1)
    found = [blocks.decode(block, width, seed, -1 - number) for number, block in enumerate(made)]
    assert np.array_equal(np.concatenate(found), entries)
    together = blocks.decode_all({(seed, -1 - number): block for number, block in enumerate(made)}, width)
    assert np.array_equal(np.concatenate([together[seed, -1 - number] for number in range(len(made))]), entries)
    with pytest.raises(ValueError, match="checksum"):
        blocks.decode(made[0], width, seed + 1, -1)


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    block = bytearray.fromhex(GOLDEN["block"])
    for position in range(len(block)):
        changed = block.copy()
        changed[position] ^= 0x55
        with pytest.raises(ValueError, match="checksum"):
            blocks.decode(bytes(changed), 16, GOLDEN["part"], GOLDEN["number"])
    for end in range(len(block)):
        with pytest.raises(ValueError, match="checksum"):
            blocks.decode(bytes(block[:end]), 16, GOLDEN["part"], GOLDEN["number"])


def test_every_changed_run_is_noticed(tmp_path: Path) -> None:
    write_run_file(tmp_path / "run", np.array(GOLDEN["entries"], np.uint8), "")
    data = (tmp_path / "run").read_bytes()
    for position in range(len(data)):
        for changed in (data[:position], data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]):
            (tmp_path / "other").write_bytes(changed)
            with pytest.raises(StoreError):
                list(RunFile(tmp_path / "other", 16).portions(100))


@settings(max_examples=cases(100), deadline=None)
@given(st.lists(st.sets(st.integers(0, 400), min_size=1), min_size=1, max_size=5), st.integers(1, 3), st.booleans())
def test_a_merge_is_sorted_and_has_everything_once(parts: list[set[int]], at_once: int, last: bool) -> None:
    held, known = {}, []
    for number, values in enumerate(parts):
        table = np.array(sorted(values), ">u8").view(np.uint8).reshape(-1, 8)
        pieces = list(blocks.portions(table, 3))
        held[number] = pieces
        known.append(Part(number, len(pieces), 1, len(table), 0))
    merge = PartMerge(lambda part, numbers: [held[part][each] for each in numbers], known, 8, at_once)
    found = np.concatenate(list(merge.portions(last=last))).view(">u8").ravel().tolist()
    assert found == sorted(set().union(*parts), reverse=last)


def test_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORD", "a b/c@")
    assert expanded("redis://:${WORD}@host") == "redis://:a%20b%2Fc%40@host"
    with pytest.raises(UsageError, match="NO_SUCH is not set"):
        expanded("redis://:${NO_SUCH}@host")
    assert without_secrets("mysql://a:b:c@host/d?tls=true&passwd=e") == "mysql://a@host/d?tls=true"
    assert place_of("redis://host") == place_of("rediss://:secret@HOST:6379/0") != place_of("redis://host/1")
    for wrong in ("redis:/host", "s3://bucket", "redis://", "redis://host:port", 7):
        with pytest.raises(UsageError) as refused:
            check_url(wrong)
        assert "secret" not in str(refused.value)
