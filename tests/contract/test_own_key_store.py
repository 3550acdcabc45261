"""The suite of key stores runs over a store that is not in this repository, as docs/stores.md says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "own_key_store"
FORGETFUL = """
import sqlite_blocks
from needlepoint.stores.keys import BlockKeyStore

class Forgetful(sqlite_blocks.SqliteSpace):
    def missing(self, runs):
        return super().missing(runs) - {"another"}

def open_store(directory, key_bytes):
    return BlockKeyStore(Forgetful(directory / "index.db"), key_bytes)
"""


def run_suite(store: str, *directories: Path) -> str:
    searched = os.pathsep.join(map(str, (EXAMPLE, *directories, *sys.path)))
    environment = {**os.environ, "PYTHONPATH": searched, "NEEDLE_TEST_KEY_STORE": store}
    command = [sys.executable, "-m", "pytest", "-m", "", "-q", "-p", "no:cacheprovider", "--no-header", "-rA"]
    done = subprocess.run(
        [*command, "tests/contract/test_key_stores.py"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def test_the_example_keeps_the_contract() -> None:
    told = run_suite("sqlite_blocks:open_store")
    assert "PASSED tests/contract/test_key_stores.py::test_agrees_with_a_dictionary[own]" in told, told
    assert "FAILED" not in told and "ERROR" not in told and "[rocksdb]" not in told, told


def test_a_store_that_forgets_a_run_does_not(tmp_path: Path) -> None:
    (tmp_path / "forgetful.py").write_text(FORGETFUL)
    told = run_suite("forgetful:open_store", tmp_path)
    failed = [line.partition("::")[2].partition(" ")[0] for line in told.splitlines() if line.startswith("FAILED")]
    assert failed == ["test_a_run_that_was_never_ingested_is_missed[own]"], told
