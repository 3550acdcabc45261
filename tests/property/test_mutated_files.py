"""A small, fixed part of what `make fuzz` does with damaged files."""

from __future__ import annotations

import time

from tests.cases import cases
from tests.fuzz import mutated_files

MOST = cases(120, 8)


def test_mutated_files() -> None:
    """A query answers as a scan of the same file does, or raises an error that says what is wrong. It never crashes."""
    tally = mutated_files.run(seed=1, deadline=time.monotonic() + 540, most=MOST)
    assert tally.tried == MOST
    assert tally.findings == []
