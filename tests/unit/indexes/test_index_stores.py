"""One class opens, creates, replaces and destroys the storage of indexes of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import needlepoint
from needlepoint.indexes.index_stores import IndexStores
from needlepoint.indexes.kinds import keeps_entries
from needlepoint.stores.base import IndexDamaged
from needlepoint.tables.model import Index


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[needlepoint.Lake]:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"a": range(10)}), tmp_path / "t/0.parquet")
    with needlepoint.open(tmp_path) as opened:
        opened.create_table("t")
        yield opened


@pytest.fixture(params=["key", "bloom"])
def index(lake: needlepoint.Lake, request: pytest.FixtureRequest) -> Index:
    return lake.registry.indexes.get(lake.create_index("t", "a", kind=request.param))


def test_a_store_is_opened_once(lake: needlepoint.Lake) -> None:
    index = lake.registry.indexes.get(lake.create_index("t", "a"))
    assert lake.index_stores.entries(index) is lake.index_stores.entries(index)
    assert lake.index_stores.reader(index) is not lake.index_stores.entries(index)


def test_an_index_that_was_created_is_empty_and_not_lost(lake: needlepoint.Lake) -> None:
    index = lake.registry.indexes.get(lake.create_index("t", "a", build=False))
    lake.index_stores.entries(index).refresh([])
    lake.index_stores.retire(index.id)
    with pytest.raises(IndexDamaged, match="is gone"):
        lake.index_stores.entries(index).refresh([])


def test_a_replaced_index_is_empty_under_a_new_id(lake: needlepoint.Lake, index: Index) -> None:
    stores: IndexStores = lake.index_stores
    assert stores.ids() == [index.id]
    stores.replace_index(index)
    replaced = lake.registry.indexes.get(index.name)
    assert replaced.id != index.id
    assert stores.ids() == [replaced.id] * keeps_entries(index.kind)
    assert lake.registry.indexes.coverage(replaced) == (0, 0)
    stores.replace_index(index)  # a process that still has the old id changes nothing
    assert lake.registry.indexes.get(index.name) == replaced
    lake.sync()
    assert lake.sql("SELECT a FROM t WHERE a = 7").rows() == [{"a": 7}]


def test_a_sweep_destroys_what_no_index_refers_to(lake: needlepoint.Lake, index: Index) -> None:
    left = lake.store / "indexes/99"
    left.mkdir()
    (left / "0.pack").write_bytes(b"x")
    lake.index_stores.sweep()
    assert lake.index_stores.ids() == [index.id]
    lake.drop_index(index.name)
    assert lake.index_stores.ids() == []
