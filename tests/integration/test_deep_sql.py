"""Deep and odd SQL texts give an answer or a clear error, and never crash the process."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import needlepoint
from needlepoint.errors import NeedlepointError, SqlError
from needlepoint.query.sql.views import MOST_VIEWS

ROWS = 1000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("deep")
    (made / "t").mkdir()
    for number in range(2):
        ids = range(number * ROWS, (number + 1) * ROWS)
        table = pa.table({"id": pa.array(ids, pa.int64()), "s": [f"a{at % 50}" for at in ids]})
        pq.write_table(table, made / "t" / f"{number}.parquet")
    with needlepoint.open(made) as lake:
        lake.create_table("t", str(made / "t"))
        lake.create_index("t", "id")
        lake.sync("t")
    return made


def test_many_pairs_are_found(root: Path) -> None:
    pairs = " OR ".join(f"(id = {number} AND s = 'a{number % 50}')" for number in range(0, 1200, 3))
    with needlepoint.open(root) as lake:
        found = lake.sql(f"SELECT id FROM t WHERE {pairs} ORDER BY id").to_arrow()
        assert found.column(0).to_pylist() == list(range(0, 1200, 3))
        wrong = pairs.replace("'a3'", "'b'")
        assert lake.sql(f"SELECT count(*) AS n FROM t WHERE {wrong}").rows() != [{"n": 400}]


def test_many_alternatives_are_found(root: Path) -> None:
    query = "SELECT count(*) AS n FROM t WHERE " + " OR ".join(f"id = {number}" for number in range(5000))
    with needlepoint.open(root) as lake:
        assert lake.sql(query).rows() == [{"n": 2 * ROWS}]


def test_every_way_that_takes_sql_refuses_what_is_too_deep(root: Path) -> None:
    where = " AND ".join(f"id <> {number}" for number in range(5000))
    ways: list[Callable[[needlepoint.Lake], object]] = [
        lambda lake: lake.sql(f"SELECT * FROM t WHERE {where}"),
        lambda lake: lake.explain(f"SELECT * FROM t WHERE {where}"),
        lambda lake: lake.sql(f"CREATE VIEW v AS SELECT * FROM t WHERE {where}"),
        lambda lake: lake.plan_read("t", where=where),
        lambda lake: lake.delete("t", where=where, dry_run=True),
    ]
    with needlepoint.open(root) as lake:
        for way in ways:
            with pytest.raises(SqlError, match=r"conditions \(AND\), and the limit is 1,000"):
                way(lake)


def test_a_long_condition_is_read_in_parts_and_deleted_by(root: Path) -> None:
    where = " OR ".join(f"(id = {number} AND s = 'a{number % 50}')" for number in range(500))
    with needlepoint.open(root) as lake:
        plan = lake.plan_read("t", where=where, columns=["id"])
        assert sum(batch.num_rows for part in plan.parts for batch in part.batches()) == 500
        assert lake.delete("t", where=where, dry_run=True).rows == 500


def test_views_over_views_end_somewhere(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "a.parquet")
    with needlepoint.open(tmp_path / "lake") as lake:
        lake.create_table("t", str(tmp_path))
        lake.sql("CREATE VIEW v0 AS SELECT id FROM t WHERE id > 1")
        for number in range(1, MOST_VIEWS):
            lake.engine._registry.views.create(f"v{number}", f"SELECT id FROM v{number - 1}")
        last = f"v{MOST_VIEWS - 1}"
        assert lake.sql(f"SELECT id FROM {last} ORDER BY id").rows() == [{"id": 2}, {"id": 3}]
        lake.engine._registry.views.create("one_more", f"SELECT id FROM {last}")
        with pytest.raises(SqlError, match=f"the limit is {MOST_VIEWS}"):
            lake.sql("SELECT id FROM one_more")


# A generator of texts


def _terms(rng: random.Random) -> list[str]:
    kinds: list[Callable[[int], str]] = [
        lambda n: f"id <> {n}",
        lambda n: f"s NOT LIKE '%a{n}%'",
        lambda n: f"upper(s) <> 'A{n}'",
        lambda n: f"(id = {n} AND s = 'a')",
        lambda n: f"id BETWEEN {n} AND {n + 5}",
        lambda n: f"CASE WHEN id = {n} THEN true ELSE false END",
        lambda n: f"id IN ({n}, {n + 1}, {n + 2}, {n + 3}, {n + 4})",
        lambda n: f"NOT (id > {n} OR s IS NULL)",
        lambda n: f"id + {n} > 3 - id",
    ]
    chosen = rng.sample(kinds, rng.randrange(1, 4))
    return [rng.choice(chosen)(number) for number in range(rng.choice([40, 300, 900, 3000]))]


def _text(rng: random.Random) -> str:
    many = rng.choice([10, 48, 60, 300, 990, 5000, 100_000])
    few = rng.choice([5, 40, 120])
    select = "SELECT id, s FROM t"
    return rng.choice(
        [
            lambda: f"{select} WHERE " + rng.choice([" AND ", " OR "]).join(_terms(rng)),
            lambda: f"{select} WHERE TRUE" + "".join(f" {rng.choice(['AND', 'OR'])} {term}" for term in _terms(rng)),
            lambda: f"{select} WHERE " + "(" * many + "id = 1" + ")" * many,
            lambda: f"{select} WHERE " + "NOT " * many + "id = 1",
            lambda: f"{select} WHERE id = " + "- " * many + "1",
            lambda: f"{select} WHERE id = " + "+".join(["1"] * min(many, 990)),
            lambda: f"{select} WHERE 'x' = " + " || ".join(["s"] * min(many, 480)),
            lambda: f"{select} WHERE id" + "::bigint" * many + " = 1",
            lambda: f"{select} WHERE (id = 1)" + " IS TRUE" * many,
            lambda: f"SELECT {'CASE WHEN id = 1 THEN 1 ELSE ' * many} 0 {'END ' * many} FROM t",
            lambda: f"SELECT {'abs(' * many}id{')' * many} FROM t",
            lambda: "SELECT * FROM (" * many + select + ")" * many,
            lambda: " UNION ALL ".join([select] * few),
            lambda: " INTERSECT ".join([select] * min(few, 40)),
            lambda: (
                "WITH c0 AS (SELECT * FROM t)"
                + "".join(f", c{n + 1} AS (SELECT * FROM c{n})" for n in range(few))
                + f" SELECT count(*) FROM c{few}"
            ),
            lambda: f"{select} WHERE id IN ({', '.join(map(str, range(many)))})",
            lambda: select + "\n" * many + "-- end",
            lambda: select + rng.choice(["'", '"', "/*", "$$", "(", "[", "{", "\\", "\0", ";", "`"]) * many,
            lambda: "".join(rng.choice("()'\"-/*;,.=<> ORANDNOTselect1a$\n") for _ in range(min(many, 5000))),
            lambda: f"{select} WHERE s ~ '" + rng.choice(["(", "a*", "[a", "a{1}", "(a|b)"]) * min(many, 5000) + "'",
            lambda: f"{select} WHERE s LIKE '" + rng.choice(["a%", "_", "%", "\\"]) * many + "'",
        ]
    )()


def _run(root: str, first: int, last: int) -> None:
    with needlepoint.open(root) as lake:
        for seed in range(first, last):
            text = _text(random.Random(seed))
            print(seed, text[:60].replace("\n", " "), flush=True)
            try:
                lake.sql(text).to_arrow()
            except NeedlepointError as error:
                assert str(error)


@pytest.mark.long
def test_no_text_ends_the_process(root: Path) -> None:
    from tests.cases import cases  # not where this file is run as a script

    first = int(os.environ.get("NEEDLE_DEEP_SEED", "0"))
    last = first + int(os.environ.get("NEEDLE_DEEP_COUNT", cases(40, 20)))
    done = subprocess.run(
        [sys.executable, __file__, str(root), str(first), str(last)], capture_output=True, text=True, timeout=580
    )
    assert done.returncode == 0, f"{done.stdout[-300:]}\n{done.stderr[-2000:]}"


if __name__ == "__main__":
    _run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
