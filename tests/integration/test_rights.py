"""A query with `Limits(tables=…)` sees these tables only, whatever it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import needlepoint
from needlepoint import Lake, Limits, UnknownName
from needlepoint.errors import NeedlepointError

PUBLIC = Limits(tables=frozenset({"public"}))


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    for name in ("public", "secret"):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"id": [1, 2, 3], "word": [name] * 3}), tmp_path / name / "0.parquet")
    with needlepoint.open(tmp_path) as lake:
        for name in ("public", "secret"):
            lake.create_table(name)
            lake.create_index(name, "id")
        lake.sql("CREATE VIEW shown AS SELECT word FROM public")
        lake.sql("CREATE VIEW hidden AS SELECT word FROM secret")
        lake.sql("CREATE VIEW above AS SELECT word FROM hidden")
        yield lake


def test_what_it_may_read(lake: Lake) -> None:
    assert len(lake.sql("SELECT * FROM public WHERE id = 2", limits=PUBLIC)) == 1
    assert len(lake.sql("SELECT * FROM public WHERE id < 3", limits=PUBLIC)) == 2
    assert len(lake.sql("SELECT * FROM shown", limits=PUBLIC)) == 3
    assert len(lake.table("public").get(id=2, limits=PUBLIC)) == 1
    assert lake.explain("SELECT * FROM public", limits=PUBLIC).tables[0].table == "public"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM secret",
        "SELECT * FROM secret WHERE id = 1",
        "SELECT id FROM secret WHERE id IN (1, 2)",
        'SELECT * FROM "secret"',
        "SELECT * FROM needle.lake.secret",
        "SELECT * FROM public JOIN secret USING (id)",
        "SELECT (SELECT max(word) FROM secret) FROM public",
        "WITH x AS (SELECT * FROM secret) SELECT * FROM x",
        "SELECT * FROM hidden",
        "SELECT * FROM above",
        "EXPLAIN SELECT * FROM secret",
        "EXPLAIN ANALYZE SELECT * FROM secret",
        "DESCRIBE secret",
        "SHOW INDEXES FROM secret",
        "SHOW COLUMNS FROM secret",
    ],
)
def test_what_it_may_not_read(lake: Lake, query: str) -> None:
    lake.sql(query)  # it exists
    for _ in range(2):  # also when its state is cached
        with pytest.raises(NeedlepointError) as error:
            lake.sql(query, limits=PUBLIC)
        assert "did you mean" not in str(error.value).lower() and "'secret'" not in str(error.value).replace(
            "unknown table 'secret'", ""
        )


@pytest.mark.parametrize(
    "query",
    [
        "SHOW TABLES",
        "SHOW INDEXES",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM information_schema.columns",
        "SELECT * FROM information_schema.views",
    ],
)
def test_lists_have_no_other_tables(lake: Lake, query: str) -> None:
    assert "secret" in str(lake.sql(query).rows()) or query.endswith("views")
    found = str(lake.sql(query, limits=PUBLIC).rows())
    assert "public" in found or query.endswith("views")
    assert "secret" not in found and "hidden" not in found and "above" not in found


def test_other_ways(lake: Lake) -> None:
    with pytest.raises(UnknownName):
        lake.table("secret").get(id=1, limits=PUBLIC)
    with pytest.raises(NeedlepointError):
        lake.explain("SELECT * FROM secret", limits=PUBLIC)
    with pytest.raises(NeedlepointError) as error:
        lake.sql("SELECT * FROM secreet", limits=PUBLIC)
    assert "'secret'" not in str(error.value)
    assert len(lake.sql("SELECT * FROM secret")) == 3  # nothing of it stays
