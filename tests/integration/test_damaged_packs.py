"""Every region of every pack, leaf file and manifest flipped or cut: in the store, and where readers fetch it."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest
from tests.cases import cases
from tests.fault_driver import Stores, delete_first, prepare
from tests.faults import compare

REGIONS = 12
BELOW = {
    "the store": ("store", ("cards/*.pack", "indexes/*/*.pack")),
    "the lake": ("lake/.needlepoint", ("cards/*.pack", "indexes/*/*.pack", "keys/*/*/*", "keys/*/*/leaves/*")),
}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a lake and its store, which `live` beside it must be: they name each other."""
    base = tmp_path_factory.mktemp("damaged")
    with prepare(_stores(base / "live")) as lake:
        lake.create_index("t", "name", "bloom")
        lake.create_index("t", "name", "text")
        delete_first(lake)
        lake.share()
    return shutil.copytree(base / "live", base / "pristine")


def _stores(base: Path) -> Stores:
    return Stores(str(base / "lake"), str(base / "store"), keys="lake:")


@pytest.mark.parametrize("where", BELOW)
def test_any_region_of_any_file(pristine: Path, tmp_path: Path, where: str) -> None:
    """The answers are right at once, and after `sync` and `rebuild` nothing is left of the damage."""
    below, patterns = BELOW[where]
    files = [path for pattern in patterns for path in sorted((pristine / below).glob(pattern)) if path.is_file()]
    assert len(files) >= 4
    rounds = [(path, region, cut) for path in files for region in range(REGIONS) for cut in (False, True)]
    for number, (path, region, cut) in enumerate(Random(1).sample(rounds, cases(60, 2))):
        base = pristine.parent / "live"
        shutil.rmtree(base)
        shutil.copytree(pristine, base)
        _damage(base / path.relative_to(pristine), region, cut)
        _check(_stores(base), tmp_path / f"cache {number}", where == "the store")


def _damage(path: Path, region: int, cut: bool) -> None:
    data = path.read_bytes()
    at = min(len(data) - 1, len(data) * region // REGIONS)
    path.write_bytes(data[:at] if cut else data[:at] + bytes([data[at] ^ 64]) + data[at + 1 :])


def _check(stores: Stores, cache: Path, repaired: bool) -> None:
    elsewhere = Stores(stores.root, str(cache / "none"), keys="lake:")
    with elsewhere.open(read_only=True, cache=cache) as node:
        compare(node, {1, 2})
    with stores.open() as lake:
        compare(lake, {1, 2})
        lake.sync("t")
        compare(lake, {1, 2})
        lake.rebuild("t")
        compare(lake, {1, 2})
        report = lake.verify("t", samples=3, seed=1)
        assert not report.differences and not report.damaged
        assert "t_id_key (key): used" in str(lake.explain("SELECT name FROM t WHERE id = 17"))
        if repaired:
            lake.share()
    with elsewhere.open(read_only=True, cache=cache / "new") as node:
        compare(node, {1, 2})
