"""Views over tables and over each other, created and dropped in any order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.lakes import write

import needlepoint
from needlepoint import Lake
from needlepoint.errors import SqlError, UsageError
from needlepoint.query.sql.views import MOST_VIEWS, views_named


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    write(pa.table({"id": range(100), "a": range(100), "b": range(100)}), tmp_path / "item" / "a.parquet")
    with needlepoint.open(tmp_path / "lake") as opened:
        opened.create_table("item", tmp_path / "item")
        yield opened


def count(lake: Lake, view: str) -> int:
    return int(lake.sql(f"SELECT count(*) AS n FROM {view}").rows()[0]["n"])


def test_a_view_that_is_made_again_serves_those_over_it(lake: Lake) -> None:
    lake.sql("CREATE VIEW a AS SELECT id FROM item WHERE id < 10")
    lake.sql("CREATE VIEW b AS SELECT id FROM a WHERE id < 5")
    lake.sql("CREATE VIEW c AS SELECT b.id FROM b JOIN a ON a.id = b.id")
    lake.sql("DROP VIEW a")
    for view in ("b", "c"):
        with pytest.raises(UsageError, match="view 'b' cannot be used: unknown table 'a'"):
            lake.sql(f"SELECT * FROM {view}")
    lake.sql("CREATE VIEW a AS SELECT id FROM item WHERE id < 3")
    assert (count(lake, "a"), count(lake, "b"), count(lake, "c")) == (3, 3, 3)
    assert lake.explain("SELECT * FROM c").tables[0].table == "item"


def test_views_that_would_name_themselves_are_refused(lake: Lake) -> None:
    lake.sql("CREATE VIEW a AS SELECT id FROM item")
    lake.sql("CREATE VIEW b AS SELECT id FROM a")
    lake.sql("CREATE VIEW c AS SELECT id FROM b")
    lake.sql("DROP VIEW a")
    for query in ("SELECT id FROM c", "SELECT id FROM a", "SELECT x.id FROM item x JOIN b ON x.id = b.id"):
        with pytest.raises(SqlError, match="view 'a' would use itself"):
            lake.sql(f"CREATE VIEW a AS {query}")


def test_views_that_two_processes_made_of_each_other(lake: Lake) -> None:
    lake.registry.views.create("a", "SELECT id FROM b")
    lake.registry.views.create("b", "SELECT id FROM a")
    for view in ("a", "b"):
        with pytest.raises(SqlError, match=r"views a, b use each other.*DROP VIEW"):
            lake.sql(f"SELECT * FROM {view}")
    assert count(lake, "item") == 100
    lake.sql("DROP VIEW b")
    lake.sql("CREATE VIEW b AS SELECT id FROM item")
    assert count(lake, "a") == 100


def test_a_view_named_like_a_column_of_another_is_not_named_by_it(lake: Lake) -> None:
    """View a has a column b, view b a column a: neither uses the other."""
    lake.sql("CREATE VIEW b AS SELECT a FROM item WHERE id < 7")
    lake.sql("CREATE VIEW a AS SELECT b FROM item WHERE id < 4")
    assert (count(lake, "a"), count(lake, "b")) == (4, 7)
    assert lake.sql("SELECT count(*) AS n FROM a JOIN b ON a.b = b.a").rows() == [{"n": 4}]


def test_a_broken_view_is_told_only_where_it_is_used(lake: Lake, tmp_path: Path) -> None:
    write(pa.table({"x": range(3)}), tmp_path / "other" / "a.parquet")
    lake.create_table("other", tmp_path / "other")
    lake.sql("CREATE VIEW b AS SELECT x FROM other")
    lake.drop_table("other")
    assert lake.sql("SELECT b FROM item WHERE id = 5").rows() == [{"b": 5}]
    with pytest.raises(UsageError, match="view 'b' cannot be used: unknown table 'other'"):
        lake.sql("SELECT * FROM b")


def test_a_view_over_many_views_costs_one_plan_each(lake: Lake) -> None:
    """In any order of creation."""
    lake.registry.views.create("v9", "SELECT id FROM v8")
    for number in range(8, 0, -1):
        lake.registry.views.create(f"v{number}", f"SELECT id FROM v{number - 1}")
    lake.registry.views.create("v0", "SELECT id FROM item WHERE id = 5")
    assert lake.sql("SELECT * FROM v9").rows() == [{"id": 5}]


LISTED = "SELECT * FROM information_schema.tables"


def names(lake: Lake, query: str = "SHOW TABLES") -> set[str]:
    return {row["table_name"] for row in lake.sql(query).rows() if row["table_schema"] == "lake"}


def test_views_are_listed_with_the_tables(lake: Lake) -> None:
    lake.sql("CREATE VIEW b AS SELECT id FROM item")
    lake.sql("CREATE VIEW a AS SELECT id, 1.5 AS x FROM b")
    for query in ("SHOW TABLES", "show  tables;", LISTED):
        assert names(lake, query) == {"item", "a", "b"}, query
    kinds = {row["table_name"]: row["table_type"] for row in lake.sql("SHOW TABLES")}
    assert kinds == {"a": "VIEW", "b": "VIEW", "item": "TABLE"}
    query = "SELECT column_name FROM information_schema.columns WHERE table_name = 'a'"
    assert [row["column_name"] for row in lake.sql(query).rows()] == ["id", "x"]


@pytest.mark.long
def test_views_are_listed_also_where_some_are_broken_or_there_are_many(lake: Lake) -> None:
    """A chain that is too deep to plan is left out, like a view that is broken."""
    lake.registry.views.create("broken", "SELECT * FROM nothing")
    lake.registry.views.create("v0", "SELECT id FROM item")
    for number in range(1, MOST_VIEWS + 5):
        lake.registry.views.create(f"v{number}", f"SELECT id FROM v{number - 1}")
        lake.registry.views.create(f"w{number}", "SELECT id FROM item")
    listed = names(lake, LISTED)
    assert {"item", "v0", f"v{MOST_VIEWS - 1}", "w1", f"w{MOST_VIEWS + 4}"} <= listed
    assert listed.isdisjoint({"broken", f"v{MOST_VIEWS}"})
    with pytest.raises(SqlError, match="the limit is 200"):
        lake.sql(f"SELECT id AS show FROM v{MOST_VIEWS + 4}")


def test_a_column_named_show_uses_no_view(lake: Lake) -> None:
    views = [(f"v{number}", f"SELECT id FROM v{number - 1}") for number in range(1, 3000)]
    assert views_named("SELECT id AS show FROM item", views) == []
    assert [name for name, _ in views_named("-- all\nSHOW TABLES", views)] == [f"v{at}" for at in range(1, 201)]
