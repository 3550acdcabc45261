"""A lake whose packs of cards are damaged, lost or swept: answers stay right, reports say why, and builds repair it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.cases import cases
from tests.lakes import products, write

import needlepoint
from needlepoint import Lake
from needlepoint.cli.needle import main
from needlepoint.query.scan.scan_tasks import plan_read

FILES = 4
QUERIES = (
    "SELECT * FROM product WHERE product_id = 1234 ORDER BY product_id",
    "SELECT * FROM product WHERE product_id BETWEEN 900 AND 1105 ORDER BY product_id",
    "SELECT * FROM product WHERE upc = 'U000002001' ORDER BY product_id",
    "SELECT * FROM product WHERE price < 0.5 ORDER BY product_id",
    "SELECT product_id, price FROM product ORDER BY price DESC, product_id LIMIT 5",
    "SELECT count(*), min(product_id), max(upc) FROM product WHERE product_id >= 1500",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cards") / "lake"
    for number in range(FILES):
        write(products(number * 1000, 1000).sort_by("product_id"), root / f"product/{number}.parquet")
    with needlepoint.open(root, history="off") as lake:
        lake.create_table("product")
        lake.create_index("product", "upc", name="upcs")
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """A copy whose files have the same times."""
    shutil.copytree(made, tmp_path / "lake")
    return tmp_path / "lake"


def packs(root: Path) -> list[Path]:
    return sorted((root / ".needlepoint/cards").glob("*.pack"))


def answers(lake: Lake, use_indexes: bool = True) -> list[pa.Table]:
    return [lake.engine.sql(query, use_indexes=use_indexes).to_arrow() for query in QUERIES]


def opened(root: Path, read_only: bool = False) -> Lake:
    return needlepoint.open(root, history="off", refresh=0, access="pages", read_only=read_only)


def check(root: Path, expected: list[pa.Table], read_only: bool = False) -> None:
    with opened(root, read_only) as lake:
        assert answers(lake) == expected


def regions(size: int) -> Iterator[int]:
    yield from np.linspace(0, size - 1, cases(40, 12)).astype(int).tolist()


@pytest.mark.parametrize("how", ["flip", "cut"])
def test_damaged_packs_change_no_answer(root: Path, how: str) -> None:
    with opened(root) as lake:
        expected = answers(lake, use_indexes=False)
        assert answers(lake) == expected
    (pack,) = packs(root)
    sound = pack.read_bytes()
    for at in regions(len(sound)):
        pack.write_bytes(sound[:at] if how == "cut" else sound[:at] + bytes([sound[at] ^ 255]) + sound[at + 1 :])
        check(root, expected)
    check(root, expected, read_only=True)


def test_a_lost_pack_is_explained_and_sync_builds_it_again(root: Path) -> None:
    with opened(root) as lake:
        expected = answers(lake, use_indexes=False)
    packs(root)[0].unlink()
    with opened(root, read_only=True) as lake:
        assert answers(lake) == expected
        shown = str(lake.explain("SELECT * FROM product WHERE upc = 'U000002001'"))
        assert "1 with a lost card or zone map" in shown
        assert ".pack is missing. `needle sync` builds it again." in shown
        assert lake.status().tables[0].indexed == FILES  # what the registry says
    with opened(root) as lake:
        assert answers(lake) == expected
        assert len(lake.engine.cards.problems(lake.engine.state("product").snapshot.files)) == FILES
        lake.sync()
        assert lake.status().tables[0].indexed == FILES
        assert "lost card" not in str(lake.explain("SELECT * FROM product WHERE upc = 'U000002001'"))
        report = lake.sql("SELECT * FROM product WHERE product_id = 1234").report
        assert answers(lake) == expected
        assert report.tables[0].page_read_files == 1
        assert lake.engine.cards.problems(lake.engine.state("product").snapshot.files) == []
    assert len(packs(root)) == 1


@pytest.mark.long
def test_a_flipped_byte_is_found_by_verify_and_repaired_by_rebuild(root: Path) -> None:
    with opened(root) as lake:
        expected = answers(lake, use_indexes=False)
        assert lake.verify("product").damaged == ()
    (pack,) = packs(root)
    data = bytearray(pack.read_bytes())
    data[100] ^= 1
    pack.write_bytes(data)
    done = CliRunner().invoke(main, ["--lake", str(root), "verify", "product"])
    assert done.exit_code == 1
    assert "a card or zone map is lost: bytes 0 to" in done.output
    assert "`needle repair product` builds it again" in done.output
    with opened(root) as lake:
        lake.rebuild("product", "upcs")
        assert lake.verify("product").damaged == ()
        assert answers(lake) == expected
        assert len(packs(root)) == 2  # only the damaged card was written again
        assert packs(root)[0].stat().st_size + packs(root)[1].stat().st_size < 2 * len(data)


def test_parts_for_other_processes_have_the_cards_that_are_in_memory(root: Path) -> None:
    with opened(root) as lake:
        before = plan_read(lake.engine, "product", "upc = 'U000002001'")
        assert sum(len(part.cards) for part in before.parts) == 1
        packs(root)[0].unlink()
        after = plan_read(lake.engine, "product", "upc = 'U000002001'")
        rows = [pa.Table.from_batches(part.batches(), part.schema) for plan in (before, after) for part in plan.parts]
        assert rows[0] == rows[1]
        assert rows[0].column("product_id").to_pylist() == [2001]
    with opened(root) as lake:
        (part,) = plan_read(lake.engine, "product", "upc = 'U000002001'").parts
        assert part.cards == {}
        assert pa.Table.from_batches(part.batches(), part.schema) == rows[0]


def test_a_sweep_leaves_nothing_of_removed_files(root: Path) -> None:
    """Zone maps hold the least and greatest values of pages."""
    write(
        pa.table({"product_id": [10**6], "upc": ["SECRET"], "title": [""], "price": [1.0]}), root / "product/s.parquet"
    )
    with opened(root) as lake:
        lake.sync()
        before = answers(lake)
        held = {pack: pack.read_bytes() for pack in packs(root)}
        (root / "product/s.parquet").unlink()
        lake.sync()
        assert lake.sweep(now=True).pack_bytes > 0
        assert set(packs(root)) < set(held)
        assert all(b"SECRET" not in pack.read_bytes() for pack in packs(root))
        assert answers(lake)[:3] == before[:3]
        assert lake.verify("product").damaged == ()


def test_events_about_single_files_leave_few_packs(root: Path) -> None:
    with opened(root) as lake, opened(root) as other:
        for number in range(FILES, FILES + 8):
            write(products(number * 1000, 10), root / f"product/{number}.parquet")
            lake.indexer.look("product", [f"{number}.parquet"])
        expected = answers(lake, use_indexes=False)
        assert answers(other) == expected
        assert len(packs(root)) == 9
        lake.sweep()
        other.engine.cards.cards.clear()
        assert answers(other) == answers(lake) == expected
        lake.sweep(now=True)
        assert len(packs(root)) == 1
        other.engine.cards.cards.clear()
        assert answers(other) == answers(lake) == expected
        assert not other.engine.cards.problems(other.engine.state("product").snapshot.files)
