"""What every store of packs with cards must do; a new one adds a line to STORES."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.buckets import Bucket, aws_server
from tests.cases import cases

from needlepoint.stores import BucketPacks, PackDamaged, PackPiece, PackStore, PieceCache


def in_bucket(directory: Path) -> PackStore:
    place = bucket_of_module().url(f"{directory.name}/cards")
    return BucketPacks(lambda: place, PieceCache(directory, 1 << 20), directory / "scratch")


STORES: dict[str, Callable[[Path], PackStore]] = {
    "directory": lambda directory: PackStore(directory / "cards"),
    "bucket": in_bucket,
}
_BUCKETS: list[Bucket] = []


def bucket_of_module() -> Bucket:
    return _BUCKETS[0]


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with aws_server() as server:
        _BUCKETS.append(server.bucket())
        yield
        _BUCKETS.clear()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> PackStore:
    return STORES[request.param](tmp_path)


def placed(pieces: list[bytes]) -> list[PackPiece]:
    starts = [sum(map(len, pieces[:number])) for number in range(len(pieces))]
    return [PackPiece.of(start, data) for start, data in zip(starts, pieces, strict=True)]


@pytest.mark.parametrize("kind", STORES)
@settings(max_examples=cases(50, 15), deadline=None)
@given(pieces=st.lists(st.binary(max_size=5000), min_size=1, max_size=8), data=st.data())
def test_any_pieces_are_read_as_written(
    tmp_path_factory: pytest.TempPathFactory, kind: str, pieces: list[bytes], data: st.DataObject
) -> None:
    store = STORES[kind](tmp_path_factory.mktemp("packs"))
    pack, size = store.write(pieces)
    assert size == sum(map(len, pieces)) == store.sizes()[pack]
    asked = data.draw(st.lists(st.integers(0, len(pieces) - 1), max_size=10))
    assert store.read(pack, [placed(pieces)[at] for at in asked]) == [pieces[at] for at in asked]


def test_what_is_not_as_written_is_an_error_and_the_rest_is_not(store: PackStore) -> None:
    pack, size = store.write([b"first", b"second", b"third"])
    first, second, third = placed([b"first", b"second", b"third"])
    others = [
        replace(first, checksum=first.checksum ^ 1),
        replace(first, length=4),
        replace(second, start=4),
        replace(third, length=100),
        PackPiece.of(10**9, b"beyond"),
        PackPiece.of(-5, b"before"),
    ]
    found = store.read(pack, [first, *others, third], size=size)
    assert (found[0], found[-1]) == (b"first", b"third")
    assert all(isinstance(each, PackDamaged) and store.where(pack) in str(each) for each in found[1:-1])
    missing = store.read("0" * 32 + ".pack", [first, second])
    assert [type(each) for each in missing] == [PackDamaged, PackDamaged]
    assert all("is missing" in str(each) for each in missing)


def test_a_sweep_removes_what_is_old_and_not_wanted(store: PackStore) -> None:
    (wanted, _), (other, _) = store.write([b"wanted"]), store.write([b"other"])
    assert wanted != other
    assert store.sweep({wanted}, older_than=3600) == 0
    store.keep([other, "0" * 32 + ".pack"])
    assert store.sizes().keys() == {wanted, other}
    assert store.sweep({wanted}, older_than=0) == len(b"other")
    assert store.sizes() == {wanted: 6}
    assert store.read(wanted, placed([b"wanted"])) == [b"wanted"]


def test_a_store_without_packs_is_empty(store: PackStore) -> None:
    assert store.sizes() == {}
    assert store.sweep(set(), older_than=0) == 0
    store.keep([])


def test_a_pack_of_nothing(store: PackStore) -> None:
    pack, size = store.write([b"", b""])
    assert size == 0
    assert store.read(pack, placed([b"", b""])) == [b"", b""]
    assert store.read(pack, []) == []
