"""Keys that are cut, and numbers that have their order; stores of them answer as a set of cut keys does."""

from __future__ import annotations

import itertools
import uuid
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import cases

from needlepoint.errors import StoreError
from needlepoint.stores.base import Entries
from needlepoint.stores.leaf_files import LeafKeyStore, leaf_writer, merge, page_memory
from needlepoint.stores.leaf_files.key_form import Alphabets, KeyCut, KeyForm, to_alphabets, used_bytes
from needlepoint.stores.leaf_files.keys import key_table, to_keys

BITS = (64, 65, 70, 94, 96, 127, 128)
LEADING = (
    b"AB-12345",
    b"AB-12346",
    b"AB-99999",
    b"ZZ-00000",
    b"https://",
    b"",
    b"N/A",
    b"\0\0\0\0\0\0\0\1",
    b"\xff" * 8,
)
few_texts = st.sampled_from([each.ljust(8, b"\0") for each in LEADING])
any_texts = st.one_of(few_texts, few_texts, st.binary(min_size=8, max_size=8))
# Hashes that agree in the first bits, or in all but the last ones.
hashes = st.tuples(st.sampled_from((0, 1, 2**63, 2**64 - 16)), st.integers(0, 15)).map(lambda pair: sum(pair))
keys = st.tuples(any_texts, hashes).map(lambda pair: pair[0] + pair[1].to_bytes(8, "big"))
few_keys = st.tuples(few_texts, hashes).map(lambda pair: pair[0] + pair[1].to_bytes(8, "big"))


@given(st.lists(keys, min_size=1, max_size=40, unique=True), st.sampled_from(BITS), st.lists(keys, max_size=20))
def test_numbers_have_the_order_of_keys(own: list[bytes], bits: int, others: list[bytes]) -> None:
    cut = KeyCut(bits)
    kept = sorted({cut.of_bytes(key) for key in own})
    alphabets = to_alphabets(used_bytes(to_keys(kept, cut.width), cut.width), cut)
    if alphabets is None:
        return
    form = KeyForm(cut, alphabets)
    numbers = form.to_pages(to_keys(kept, cut.width))
    assert len(numbers) == len(kept) and (np.diff(numbers.astype(object)) > 0).all()
    assert [line.tobytes() for line in key_table(form.from_pages(numbers), cut.width)] == kept
    assert form.points(cut.of(to_keys(sorted(own), 16), 16)).tolist() == numbers.tolist()
    for key in [*own, *others]:
        assert form.point(key).tolist() == numbers[[cut.of_bytes(key) == each for each in kept]].tolist() or (
            cut.of_bytes(key) not in kept
        )
    for low, high in itertools.pairwise(sorted([*own, *others])):
        found = form.between(low, high)
        inside = [] if found is None else numbers[(numbers >= found[0]) & (numbers <= found[1])].tolist()
        wanted = [cut.of_bytes(low) <= key <= cut.of_bytes(high) for key in kept]
        assert inside == numbers[wanted].tolist()


def test_many_numbers_are_those_of_few() -> None:
    chance = np.random.default_rng(5)
    table = chance.integers(48, 58, (10_000, 12), np.uint8)
    kept = to_keys([line.tobytes() for line in table], 12)
    alphabets = Alphabets(used_bytes(kept[:9000], 12), 30)
    assert alphabets.fits
    with pytest.raises(StoreError, match="does not list"):
        KeyForm(KeyCut(94), alphabets).to_pages(to_keys([b"0" * 12, b"x" * 12], 12))
    at_once = alphabets.numbers(kept, 12)[0]
    assert at_once.tolist() == [int(alphabets.numbers(kept[at : at + 1], 12)[0][0]) for at in range(len(kept))]


def test_keys_of_many_bytes_are_no_numbers() -> None:
    chance = np.random.default_rng(5)
    kept = to_keys([line.tobytes() for line in chance.integers(0, 256, (1000, 12), np.uint8)], 12)
    assert to_alphabets(used_bytes(kept, 12), KeyCut(94)) is None
    assert to_alphabets(used_bytes(kept[:0], 12), KeyCut(94)) is None


def table_of(pairs: list[tuple[bytes, int]]) -> Entries:
    lines = sorted({key + at.to_bytes(8, "big") for key, at in pairs})
    return np.frombuffer(b"".join(lines), np.uint8).reshape(-1, len(lines[0]))


def add(store: LeafKeyStore, directory: Path, table: Entries) -> str:
    name = uuid.uuid4().hex
    store.write_run(directory / name, table, name)
    store.ingest([directory / name])
    return name


runs_of = st.lists(
    st.tuples(
        st.booleans(),
        st.lists(st.tuples(st.one_of(few_keys, few_keys, few_keys, keys), st.integers(0, 60)), min_size=1, max_size=80),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=cases(150, 12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs_of, st.sampled_from(BITS), st.sampled_from((0, 40)), st.integers(0, 60), st.booleans())
def test_answers_are_those_of_a_set_of_cut_keys(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runs, bits: int, slots: int, limit: int, merges: bool
) -> None:
    """Runs are cut, or whole as those of previous versions. With merges, all are one sorted run of small leaves."""
    monkeypatch.setattr(leaf_writer, "page_rows", lambda width: 4)
    monkeypatch.setattr(leaf_writer, "GROUP_ROWS", 8)
    monkeypatch.setattr(merge, "GROUPS_AT_ONCE", 1)
    monkeypatch.setattr(merge, "FAN_OUT", 2 if merges else 100)
    monkeypatch.setattr(merge, "LEAF_ENTRIES", 50)
    location, cut = str(tmp_path / uuid.uuid4().hex), KeyCut(bits)
    store = LeafKeyStore(location, 16, block_bytes=slots * page_memory.SLOT, key_bits=bits)
    whole = LeafKeyStore(location, 16)
    names = [add(whole if is_whole else store, tmp_path, table_of(run)) for is_whole, run in runs]
    store.refresh(names)
    everything = {pair for _, run in runs for pair in run}
    _check(store, everything, cut, limit)
    with monkeypatch.context() as patched:
        patched.setattr(merge, "FAN_OUT", 2)
        store.merge()
    store.refresh(names)
    _check(store, everything, cut, limit)
    copied = LeafKeyStore(f"{location}-copy", 16, key_bits=bits)
    copied.refresh([add(copied, tmp_path, np.concatenate(list(store.scan())))])
    _check(copied, everything, cut, limit)


def _check(store: LeafKeyStore, pairs: set[tuple[bytes, int]], cut: KeyCut, limit: int) -> None:
    """All rows of a key are found, and of others only those whose keys are the same if they are cut."""
    assert store.key_bits() in (cut.bits, 128)  # all, if all runs are whole
    cut = KeyCut(store.key_bits())
    kept = {(cut.of_bytes(key), at) for key, at in pairs}
    expected = table_of(list(kept))
    assert np.concatenate(list(store.scan())).tolist() == expected.tolist()
    known = sorted({key for key, _ in pairs})
    for asked in ([known[0]], known[::3], [*known, b"AB-12345" + b"\1" * 8, b"zzzzzzzz" + b"\1" * 8]):
        needed = {at for key, at in pairs if key in asked}
        allowed = sorted(at for key, at in kept if key in {cut.of_bytes(each) for each in asked})
        found = store.find(asked, 10_000)
        assert found is not None and needed <= set(found.tolist()) <= set(allowed)
        if (most := store.find(asked, limit)) is not None:
            assert len(most) <= limit and needed <= set(most.tolist())
        else:
            assert len(allowed) > limit
    for low, high in zip(known, known[2:] + [b"\xff" * 16] * 2, strict=False):
        needed = sorted(at for key, at in pairs if low <= key <= high)
        allowed = sorted(at for key, at in kept if cut.of_bytes(low) <= key <= cut.of_bytes(high))
        found = store.find_range(low, high, 10_000)
        assert found is not None and set(needed) <= set(found.tolist()) <= set(allowed)
    for count in (1, 7, 1000):
        for last in (False, True):
            ends = store.ends(count, last)
            assert ends[:, :-8].tolist() == (expected[::-1] if last else expected)[:count, :-8].tolist()


def test_a_store_of_whole_keys_refuses_cut_ones(tmp_path: Path) -> None:
    """Zeros in the place of bits that are not known would be keys that nobody looks for."""
    store = LeafKeyStore(str(tmp_path / "cut"), 16, key_bits=94)
    name = add(store, tmp_path, table_of([(b"AB-12345" + b"\1" * 8, 1)]))
    store.refresh([name])
    (_, cut) = store.scan()
    assert cut.shape == (1, 20)
    with pytest.raises(StoreError, match="have 12 bytes, not 16"):
        LeafKeyStore(str(tmp_path / "whole"), 16).write_run(tmp_path / "run", cut, "run")
    store.write_run(tmp_path / "run", cut, "run")
    with pytest.raises(StoreError, match="its keys have 12 bytes, not 16"):
        LeafKeyStore(str(tmp_path / "whole"), 16).ingest([tmp_path / "run"])
