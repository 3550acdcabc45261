"""Changed bytes in a lake's store, except in its registry, change no answer and crash no process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cases import cases
from tests.damage_driver import CONDITIONS
from tests.lakes import write

import needlepoint

DRIVER = Path(__file__).parents[1] / "damage_driver.py"


@pytest.fixture(scope="module")
def lake_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with an index of every kind, all of them used, and a waiting event; `pristine` has a copy of its store."""
    root = tmp_path_factory.mktemp("damaged") / "lake"

    def add(number: int) -> None:
        ids = range(number * 1000, number * 1000 + 1000)
        titles = [f"{'goat' if id % 400 == 17 else 'dairy cow'} {id}" for id in ids]
        columns = {
            "id": ids,
            "code": [f"C{id:06d}" for id in ids],
            "brand": ["rare" if id == 1234 else f"b{id % 5}" for id in ids],
            "title": titles,
            "note": titles,
        }
        write(pa.table(columns), root / f"item/f{number}.parquet")

    add(0)
    with needlepoint.open(root, refresh=0) as lake:
        lake.create_table("item")
        lake.create_index("item", "id", name="ids")
        lake.create_index("item", "code", name="codes")
        lake.create_index("item", "brand", kind="distinct", name="brands")
        lake.create_index("item", "code", kind="bloom", name="filters")
        lake.create_index("item", "title", kind="text", name="titles", embed=True)
        lake.create_index("item", "note", kind="text", name="grams", tokenizer="trigram")
        add(1)
        lake.sync()  # each index has two runs or packs
        for name, conditions in CONDITIONS.items():
            for condition in conditions:
                assert (
                    lake.engine.sql(f"SELECT id FROM item WHERE {condition}", use_indexes=name).to_arrow() is not None
                )
        assert lake.sql("SELECT id FROM item WHERE id = 77").rows()  # recorded in the history
        lake.queue.put(json.dumps({"version": 1, "table": "item", "batch": "b", "added": [], "removed": []}))
    shutil.copytree(root / ".needlepoint", root.parent / "pristine")
    return root


def damage(root: Path, seed: int, rounds: dict[str, int]) -> list[str]:
    """The lines that the driver prints; it must not crash."""
    places = [str(root), str(root.parent / "pristine")]
    command = [sys.executable, str(DRIVER), *places, str(seed), *(f"{only}={times}" for only, times in rounds.items())]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ}, timeout=600)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (done.returncode, lines[-2:], done.stderr[-2000:])
    assert lines[-1] == "done"
    return lines


def wrong(lines: list[str]) -> list[str]:
    """Each difference, with the damage that caused it."""
    found, last = [], ""
    for line in lines:
        if line.startswith("WRONG"):
            found.append(f"{last} -> {line}")
        else:
            last = line
    return found


ROUNDS = {
    "unpacked/": cases(12, 1),
    "cards/": cases(12, 2),
    "indexes/": cases(16, 2),
    "queue.db": cases(5, 1),
    "history.db": cases(5, 1),
}


@pytest.mark.long
def test_changed_bytes_change_no_answer(lake_root: Path) -> None:
    lines = damage(lake_root, seed=1, rounds=ROUNDS)
    assert wrong(lines) == []
    assert len(lines) == sum(ROUNDS.values()) + 1
