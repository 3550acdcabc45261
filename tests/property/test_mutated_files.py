"""A fixed, small part of what `make fuzz` does with files that somebody damaged."""

from __future__ import annotations

import time

from tests.cases import cases
from tests.fuzz import mutated_files

MOST = cases(120, 40)


def test_mutated_files() -> None:
    """An answer that a scan of the same file gives, or an error that says what is wrong; never the end of a process."""
    tally = mutated_files.run(seed=1, deadline=time.monotonic() + 540, most=MOST)
    assert tally.tried == MOST
    assert tally.findings == []
