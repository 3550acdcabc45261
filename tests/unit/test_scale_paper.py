"""The calculations for docs/scale.md run, and the document has their results."""

from __future__ import annotations

import doctest
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "scale_paper.py"


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    found = importlib.util.spec_from_file_location("scale_paper", SCRIPT)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, "scale_paper", module)
    found.loader.exec_module(module)
    return module


def test_the_formulas(paper: ModuleType) -> None:
    done = doctest.testmod(paper)
    assert done.attempted > 5
    assert not done.failed


def test_the_document_is_what_they_give(paper: ModuleType) -> None:
    assert paper.tables() in paper.DOCUMENT.read_text()


def test_more_data_takes_more_of_everything_and_larger_pages_fewer_cards(paper: ModuleType) -> None:
    small, large = paper.Lake(1e12), paper.Lake(1e15)
    for what in (
        "files",
        "rows",
        "pages",
        "key_index",
        "registry",
        "cards",
        "snapshot_memory",
        "list_dollars",
        "shards",
    ):
        assert getattr(small, what) < getattr(large, what)
    assert small.lookup_dollars == large.lookup_dollars  # the cost of a lookup does not depend on the size of the lake
    assert paper.Lake(1e15, page_rows=1000).cards < large.cards / 3
