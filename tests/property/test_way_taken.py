"""The properties mean little if every query scans: here is what the tests before this one made the engine do."""

from __future__ import annotations

import pytest
from tests.property.worlds import TAKEN


def test_every_way_was_taken() -> None:
    if TAKEN["queries"] < 500:
        pytest.skip("the other properties did not run")
    print(dict(TAKEN))
    assert TAKEN["indexes used"] > TAKEN["queries"] / 5
    assert TAKEN["page reads"] > TAKEN["queries"] / 10
    assert TAKEN["native scans"] > TAKEN["queries"] / 10
    assert TAKEN["files skipped"] > TAKEN["queries"] / 5
    assert TAKEN["both ways"] > 10
    assert TAKEN["row groups left out"] > 10
    assert TAKEN["pages left out"] > 10
    assert TAKEN["predicate first"] > 20
    assert TAKEN["bloom filters"] > 5
