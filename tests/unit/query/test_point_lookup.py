from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from tests.lakes import write

import needlepoint
from needlepoint.query import engine
from needlepoint.query.point_lookup import PointLookup, recognise
from needlepoint.query.sql.tokens import words

TYPES = {"id": pa.int64(), "small": pa.uint8(), "s": pa.string(), "f": pa.float64(), "d": pa.decimal128(9, 2)}
RECOGNISED = [
    "SELECT s FROM t WHERE id = 5",
    "select  S , Id from T where ID=5 ;",
    "SELECT s FROM t WHERE id IN (5)",
    "SELECT s, small FROM t WHERE id in ( 5,6 , 5 )",
    "SELECT id FROM t WHERE s IN ('a', '', 'x,y')",
    "SELECT * FROM t WHERE s = 'b'",
    "SELECT s FROM t WHERE s = ''",
    "SELECT s FROM t WHERE id = $id",
    "SELECT id FROM t WHERE s IN ($text, $empty)",
    "SELECT f, d FROM t WHERE id = 7",
]
LEFT_TO_DATAFUSION = [
    "SELECT id FROM t WHERE small IN (1, 300)",
    "SELECT id FROM t WHERE small = 300",
    "SELECT id FROM t WHERE small = $large",
    "SELECT s FROM t WHERE id = $text",
    "SELECT s FROM t WHERE id = $nothing",
    "SELECT s FROM t WHERE id = $yes",
    "SELECT s FROM t WHERE id = $missing",
    "SELECT s FROM t WHERE id IN ($id, 6)",
    "SELECT s FROM t WHERE id = -5",
    "SELECT s FROM t WHERE id = 5.0",
    "SELECT s FROM t WHERE id IN (5, 6.0)",
    "SELECT s FROM t WHERE id IN (5, NULL)",
    "SELECT s FROM t WHERE id IN (5, '6')",
    "SELECT s FROM t WHERE id NOT IN (5, 6)",
    "SELECT id FROM t WHERE s IN ('a', 'it''s')",
    "SELECT s FROM t WHERE id = '5'",
    "SELECT s FROM t WHERE s = 'it''s'",
    "SELECT s FROM t WHERE f = 5",
    "SELECT s FROM t WHERE d = 5",
    "SELECT s AS x FROM t WHERE id = 5",
    "SELECT DISTINCT s FROM t WHERE id = 5",
    "SELECT count(*) AS c FROM t WHERE id = 5",
    "SELECT s FROM t AS x WHERE id = 5",
    "SELECT s FROM t WHERE id = 5 OR id = 6",
    "SELECT s FROM t WHERE id = 5 LIMIT 1",
    "SELECT s FROM t WHERE NOT id = 5",
    'SELECT "s" FROM t WHERE id = 5',
    "SELECT s FROM v WHERE id = 5",
]
PARAMETERS = {"id": 5, "text": "a", "empty": "", "large": 300, "nothing": None, "yes": True}


def look_up(query: str) -> PointLookup | None:
    form = recognise(query)
    if form is None or form.table != "t":
        return None
    return form.lookup(TYPES, {name: pa.scalar(value) for name, value in PARAMETERS.items()})


@pytest.mark.parametrize("query", RECOGNISED)
def test_lookups_are_recognised(query: str) -> None:
    assert look_up(query) is not None


@pytest.mark.parametrize(
    "query", [*LEFT_TO_DATAFUSION, "SELECT nope FROM t WHERE id = 5", "SELECT s FROM t WHERE x = 5"]
)
def test_anything_else_is_not(query: str) -> None:
    assert look_up(query) is None


def test_a_view_with_the_name_of_a_table_that_was_dropped(tmp_path: Path) -> None:
    query = "SELECT x FROM t WHERE id = 5"
    for name in ("t", "u"):
        write(pa.table({"id": [5], "x": [name]}), tmp_path / name / "a.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        lake.create_table("u")
        assert lake.sql(query).rows() == [{"x": "t"}]
        lake.drop_table("t")
        with pytest.raises(needlepoint.UnknownName, match="t"):
            lake.sql(query)
        lake.sql("CREATE VIEW t AS SELECT * FROM u")
        assert lake.sql(query).rows() == [{"x": "u"}]


def test_the_answer_is_the_same_either_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table(
        {
            "id": [5, 6, 5, None],
            "small": pa.array([1, 2, 44, 4], pa.uint8()),
            "s": ["a", "b", "", None],
            "f": [1.0, 2.0, None, 0.5],
            "d": pa.array([Decimal("5.00"), Decimal("1.25"), None, Decimal("5.00")], pa.decimal128(9, 2)),
        }
    )
    write(table, tmp_path / "lake/t/a.parquet")
    with needlepoint.open(tmp_path / "lake") as lake:
        lake.create_table("t")
        lake.create_index("t", "id")
        lake.sql("CREATE VIEW v AS SELECT * FROM t")
        answers = {}
        for query in [*RECOGNISED, *LEFT_TO_DATAFUSION]:
            try:
                answers[query] = lake.sql(query, PARAMETERS).to_arrow()
            except needlepoint.SqlError as error:
                answers[query] = str(error)
        monkeypatch.setattr(engine, "recognise", lambda *_: None)
        for query, answer in answers.items():
            try:
                expected = lake.sql(query, PARAMETERS).to_arrow()
                assert answer.schema.types == expected.schema.types, query
                # The query has no order.
                assert sorted(map(str, answer.to_pylist())) == sorted(map(str, expected.to_pylist())), query
            except needlepoint.SqlError as error:
                assert answer == str(error)


# Reserved in SQL, or in DataFusion's dialect of it, and words that only look like it.
WORDS = sorted(
    words(
        "all analyze and any array as asc asof at between both by case cast check cluster collate column comment "
        "constraint count create cross cube current current_catalog current_date current_path current_role "
        "current_row current_schema current_time current_timestamp current_user cursor cycle data date day dec "
        "default deferrable delete desc describe distinct distribute do else end escape every except exclude "
        "execute exists explain extract false fetch filter first float following for foreign format from full "
        "function global grant group grouping having hour id if ilike in index inner insert int integer intersect "
        "interval into is join key lateral leading left level like limit local localtime localtimestamp map match "
        "max merge min minus minute month name natural new no none not now null nulls of offset old on only or "
        "order outer over overlaps partition pivot placing position preceding primary qualify range recursive "
        "references replace returning right rlike rollup row rows schema score second select semi session "
        "session_user set settings show similar some sort start struct substring sum symmetric system_user table "
        "tablesample text text_match then time timestamp to today top trailing trim true truncate try try_cast "
        "type unbounded union unique unknown unnest unpivot update upper user using uuid value values varchar "
        "version view when where window with within without year zone "
    )
)


@pytest.mark.long
def test_only_keywords_can_have_another_meaning(tmp_path: Path) -> None:
    """Where a name is none, the engine does not ask DataFusion what it means: it must mean the column, everywhere."""
    names = [*WORDS, "_", "_1", "a1", "e5", "1", "1e5", "0x1f", "1a", "00", "1_000"]
    columns = {name: pa.array([number], pa.int64()) for number, name in enumerate(names)}
    write(pa.table(columns | {"zz": pa.array([5], pa.int64())}), tmp_path / "t/a.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        planner, state = lake.engine.queries.planner, lake.engine.state("t")

        def agrees(query: str) -> bool:
            form = recognise(query)
            lookup = None if form is None else form.lookup(state.types, None)
            if lookup is None:
                return False
            try:
                logical = planner.plan(query, None, [], {lookup.table: state})
            except Exception:  # it is no query
                return False
            return lookup.agrees(logical.requests.get(lookup.table), logical.schema)

        for number, word in enumerate(names):
            queries = [f"SELECT {selected} FROM t WHERE zz = 5" for selected in (word, f"zz, {word}", f"{word}, zz")]
            queries += [f"SELECT zz FROM t WHERE {word} = {number}", f"SELECT zz FROM {word} WHERE zz IN (5, 6)"]
            assert all(map(agrees, queries)) or PointLookup("t", (word,), {}).has_keywords, word
