"""The properties prove little if every query scans: this test checks which access paths the earlier tests took."""

from __future__ import annotations

import pytest
from tests.property.worlds import TAKEN


@pytest.mark.long  # The few cases of `make test` are too small a sample for the rare access paths.
def test_every_way_was_taken() -> None:
    if TAKEN["queries"] < 500:
        pytest.skip("the other properties did not run")
    print(dict(TAKEN))
    assert TAKEN["indexes used"] > TAKEN["queries"] / 5
    assert TAKEN["page reads"] > TAKEN["queries"] / 20
    assert TAKEN["native scans"] > TAKEN["queries"] / 10
    assert TAKEN["files skipped"] > TAKEN["queries"] / 5
    # The counts of the others vary: what Hypothesis generates also depends on which modules are loaded.
    rare = ("both ways", "row groups left out", "pages left out", "predicate first", "bloom filters")
    assert all(TAKEN[way] for way in rare)
