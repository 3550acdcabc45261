"""Random queries over a generated table `t`, the same for DataFusion and for DuckDB."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from tests.property.generated import Column, TableSpec
from tests.property.kinds import Sql, same
from tests.property.predicates import predicates


@dataclass(frozen=True)
class Query:
    """`ordered` answers are compared row by row, others as multisets."""

    sql: Sql
    ordered: bool = False
    view: Sql | None = None


@st.composite
def queries(draw: DrawFn, spec: TableSpec) -> Query:
    """Half are plain selections, for which the engine has the most access paths."""
    forms = [_selection, _selection, _selection, _everything, _aggregates, _ordered, _distinct, _grouped,
             _union, _self_join, _cte, _in_subquery, _scalar_subquery, _exists, _view]  # fmt: skip
    return draw(draw(st.sampled_from(forms))(spec))


@st.composite
def _selection(draw: DrawFn, spec: TableSpec) -> Query:
    chosen = draw(st.lists(st.sampled_from(spec.all_columns), min_size=1, max_size=4))
    return Query(Sql.of(f"SELECT {_list(chosen)} FROM t WHERE {{}}", draw(predicates(spec))))


@st.composite
def _everything(draw: DrawFn, spec: TableSpec) -> Query:
    return Query(Sql.of("SELECT * FROM t WHERE {}", draw(predicates(spec))))


@st.composite
def _aggregates(draw: DrawFn, spec: TableSpec) -> Query:
    where = Sql.of(" WHERE {}", draw(predicates(spec))) if draw(st.booleans()) else same("")
    found = ["count(*)", "CAST(sum(id) AS BIGINT)"]
    for column in spec.columns:
        found.append(f"count({column.sql})")
        if column.kind.text or column.kind.number or column.kind.name in ("date", "timestamp us"):
            # Not floats: engines order NaN differently in min and max.
            found += [f"min({column.sql})", f"max({column.sql})"]
        if column.kind.number and column.kind.type.bit_width < 64:
            # Sums of 64-bit numbers overflow differently in each engine; the type of a sum differs too.
            found.append(f"CAST(sum(CAST({column.sql} AS BIGINT)) AS BIGINT)")
    chosen = draw(st.lists(st.sampled_from(found), min_size=1, max_size=4))
    named = ", ".join(f"{each} AS c{number}" for number, each in enumerate(chosen))
    return Query(Sql.of(f"SELECT {named} FROM t{{}}", where))


@st.composite
def _ordered(draw: DrawFn, spec: TableSpec) -> Query:
    chosen = draw(st.lists(st.sampled_from(spec.all_columns), max_size=3))
    tail = draw(st.sampled_from(["", " DESC"])) + f" LIMIT {draw(st.integers(0, 20))}"
    tail += f" OFFSET {draw(st.integers(0, 5))}" if draw(st.booleans()) else ""
    return Query(Sql.of(f"SELECT {_list([*spec.columns[:1], *chosen])} FROM t WHERE {{}} ORDER BY id{tail}",
                        draw(predicates(spec))), ordered=True)  # fmt: skip


@st.composite
def _distinct(draw: DrawFn, spec: TableSpec) -> Query:
    # -0.0 and 0.0 are one value to one engine and two to the other.
    plain = [column for column in spec.all_columns if not column.kind.float]
    chosen = draw(st.lists(st.sampled_from(plain), min_size=1, max_size=2))
    return Query(Sql.of(f"SELECT DISTINCT {_list(chosen)} FROM t WHERE {{}}", draw(predicates(spec, 2))))


@st.composite
def _grouped(draw: DrawFn, spec: TableSpec) -> Query:
    plain = [column for column in spec.all_columns if not column.kind.float and column.kind.indexed]
    column = spec.partition or draw(st.sampled_from(plain))
    where = Sql.of(" WHERE {}", draw(predicates(spec, 2))) if draw(st.booleans()) else same("")
    having = draw(st.sampled_from(["", " HAVING count(*) > 2", f" HAVING {column.sql} IS NOT NULL"]))
    text = f"SELECT {column.sql}, count(*), min(id) FROM t{{}} GROUP BY {column.sql}{having}"
    return Query(Sql.of(text, where))


@st.composite
def _union(draw: DrawFn, spec: TableSpec) -> Query:
    chosen = _list(draw(st.lists(st.sampled_from(spec.all_columns), min_size=1, max_size=3)))
    text = f"SELECT {chosen} FROM t WHERE {{}} UNION ALL SELECT {chosen} FROM t WHERE {{}}"
    return Query(Sql.of(text, draw(predicates(spec, 1)), draw(predicates(spec, 1))))


@st.composite
def _self_join(draw: DrawFn, spec: TableSpec) -> Query:
    kind = draw(st.sampled_from(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]))
    column = draw(st.sampled_from(spec.all_columns)).sql
    left, right = draw(predicates(spec, 1, "l.")), draw(predicates(spec, 1, "r."))
    where = draw(st.sampled_from(["WHERE {} AND {}", "WHERE {} OR {}", "AND {} WHERE {}", "AND {} AND {}"]))
    text = f"SELECT l.id AS a, r.id AS b, l.{column} AS c FROM t AS l {kind} t AS r ON l.id = r.id + 1 {where}"
    return Query(Sql.of(text, left, right))


@st.composite
def _cte(draw: DrawFn, spec: TableSpec) -> Query:
    text = """WITH few AS (SELECT * FROM t WHERE {})
              SELECT few.id, count(*) FROM few JOIN t ON few.id = t.id WHERE {} GROUP BY few.id"""
    return Query(Sql.of(text, draw(predicates(spec, 1)), draw(predicates(spec, 1, "few."))))


@st.composite
def _in_subquery(draw: DrawFn, spec: TableSpec) -> Query:
    word = draw(st.sampled_from(["IN", "NOT IN"]))
    text = f"SELECT id FROM t WHERE {{}} AND id {word} (SELECT id FROM t WHERE {{}})"
    return Query(Sql.of(text, draw(predicates(spec, 1)), draw(predicates(spec, 1))))


@st.composite
def _scalar_subquery(draw: DrawFn, spec: TableSpec) -> Query:
    forms = [
        "SELECT id FROM t WHERE id = (SELECT max(id) FROM t WHERE {}) OR {}",
        "SELECT id, (SELECT min(id) FROM t WHERE {}) FROM t WHERE {}",
        "SELECT count(*) FROM t WHERE {} AND id > (SELECT min(id) FROM t WHERE {})",
    ]
    return Query(Sql.of(draw(st.sampled_from(forms)), draw(predicates(spec, 1)), draw(predicates(spec, 1))))


@st.composite
def _exists(draw: DrawFn, spec: TableSpec) -> Query:
    word = draw(st.sampled_from(["EXISTS", "NOT EXISTS"]))
    text = f"SELECT l.id FROM t AS l WHERE {{}} AND {word} (SELECT 1 FROM t AS r WHERE r.id = l.id + 1 AND {{}})"
    return Query(Sql.of(text, draw(predicates(spec, 1, "l.")), draw(predicates(spec, 1, "r."))))


@st.composite
def _view(draw: DrawFn, spec: TableSpec) -> Query:
    view = Sql.of("SELECT * FROM t WHERE {}", draw(predicates(spec, 1)))
    return Query(Sql.of("SELECT * FROM v WHERE {}", draw(predicates(spec, 2))), view=view)


def _list(columns: list[Column]) -> str:
    return ", ".join(f"{column.sql} AS c{number}" for number, column in enumerate(columns))


def selections(spec: TableSpec) -> SearchStrategy[Query]:
    return _selection(spec)
