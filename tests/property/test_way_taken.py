"""The properties mean little if every query scans: here is what the tests before this one made the engine do."""

from __future__ import annotations

import pytest
from tests.property.worlds import TAKEN


def test_every_way_was_taken() -> None:
    if TAKEN["queries"] < 500:
        pytest.skip("the other properties did not run")
    print(dict(TAKEN))
    assert TAKEN["indexes used"] > TAKEN["queries"] / 5
    assert TAKEN["page reads"] > TAKEN["queries"] / 20
    assert TAKEN["native scans"] > TAKEN["queries"] / 10
    assert TAKEN["files skipped"] > TAKEN["queries"] / 5
    # How often the others come varies: what Hypothesis makes depends on which modules are loaded, too.
    rare = ("both ways", "row groups left out", "pages left out", "predicate first", "bloom filters")
    assert all(TAKEN[way] for way in rare)
