"""`text_match` and `score` in SQL, on tables without an index: BM25 covers all files, whatever a query reads."""

from __future__ import annotations

import doctest
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import datafusion
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import needlepoint
from needlepoint.errors import SqlError
from needlepoint.indexes.text.evaluation import evaluate
from needlepoint.indexes.text.query_language import parse
from needlepoint.lake import Lake
from needlepoint.query.attempt import EngineFault
from needlepoint.query.datafusion.session import SessionOptions

FILES, ROWS = 3, 400
WORDS = ["Dairy", "cow", "goat", "ice", "cream", "boat", "night", "TRAIN", "diary", "e-mail"]


def rows_of(number: int) -> pa.Table:
    chance = np.random.default_rng(number)
    # Files differ: a word that is common in one is rare in another.
    likely = np.roll(np.array([8, 5, 3, 3, 2, 2, 1, 1, 1, 1]) / 27, number)
    titles = [" ".join(chance.choice(WORDS, chance.integers(0, 7), p=likely)) for _ in range(ROWS)]
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    return pa.table(
        {
            "id": ids,
            "title": [None if id % 17 == 0 else title for id, title in zip(ids, titles, strict=True)],
            "note": [f"note {id % 7} of a cow" for id in ids],
            "price": chance.integers(0, 100, ROWS),
        }
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("texts")
    for number in range(FILES):
        path = root / f"t/part={number % 2}/{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows_of(number), path, row_group_size=100, max_rows_per_page=20, write_page_index=True)
    (root / "u").mkdir()
    pq.write_table(pa.table({"id": [1, 2, 3, 404], "title": ["cow", "cow goat", None, "boat"]}), root / "u/0.parquet")
    with needlepoint.open(root) as lake:
        lake.create_table("t")
        lake.create_table("u")
        lake.sql("CREATE VIEW seen AS SELECT * FROM t WHERE price >= 0")
    return root


@pytest.fixture(scope="module", params=["auto", "pages"])
def lake(root: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    with needlepoint.open(root, access=request.param) as opened:
        yield opened


@pytest.fixture(scope="module")
def everything() -> pa.Table:
    return pa.concat_tables([rows_of(number) for number in range(FILES)])


def naive(texts: list[str | None], words: list[str]) -> list[float]:
    lists = [None if text is None else text.lower().replace("-", " ").split() for text in texts]
    known = [found for found in lists if found is not None]
    average = sum(map(len, known)) / len(known)
    scores = []
    for found in lists:
        total = 0.0
        for word in words:
            frequency = sum(word in each for each in known)
            times = (found or []).count(word)
            idf = math.log(1 + (len(known) - frequency + 0.5) / (frequency + 0.5))
            total += idf * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * len(found or []) / average))
        scores.append(total)
    return scores


@pytest.mark.covering
@pytest.mark.parametrize(
    "query",
    ["dairy", "dairy cow", "cow OR goat", 'dairy AND (cow OR goat) -"ice cream"', "-dairy", "dair*", "dairy~2",
     "NOT cow", '"night train" OR "ice cream"~1', "e-mail", "nothing"],
)  # fmt: skip
def test_text_match_is_what_evaluation_says(lake: Lake, everything: pa.Table, query: str) -> None:
    mask = evaluate(parse(query), everything.column("title"))
    expected = everything.filter(mask).column("id").to_pylist()
    found = lake.sql(f"SELECT id FROM t WHERE text_match(title, '{query}') ORDER BY id").to_arrow()
    assert found.column("id").to_pylist() == expected
    some = lake.sql(f"SELECT id FROM t WHERE text_match(title, '{query}') AND price < 20 AND id > 300 ORDER BY id")
    prices = dict(zip(everything["id"].to_pylist(), everything["price"].to_pylist(), strict=True))
    assert [row["id"] for row in some.rows()] == [id for id in expected if id > 300 and prices[id] < 20]
    # NULL neither matches nor fails to match.
    others = lake.sql(f"SELECT count(*) AS n FROM t WHERE NOT text_match(title, '{query}')").rows()
    assert others == [{"n": everything["title"].drop_null().length() - len(expected)}]


def test_the_best_are_the_best_of_all_files(lake: Lake, everything: pa.Table) -> None:
    scores = naive(everything["title"].to_pylist(), ["dairy", "cow"])
    best = sorted(zip(scores, everything["id"].to_pylist(), strict=True), key=lambda pair: (-pair[0], pair[1]))[:10]
    found = lake.sql(
        "SELECT id, score(title, 'dairy cow') AS s FROM t ORDER BY score(title, 'dairy cow') DESC, id LIMIT 10"
    ).rows()
    assert [row["id"] for row in found] == [id for _, id in best]
    assert [row["s"] for row in found] == pytest.approx([score for score, _ in best])


def test_other_predicates_change_no_score(lake: Lake, everything: pa.Table) -> None:
    scores = dict(zip(everything["id"].to_pylist(), naive(everything["title"].to_pylist(), ["goat"]), strict=True))
    found = lake.sql(
        "SELECT id, score(title, 'goat') AS s FROM t WHERE text_match(title, 'goat AND NOT cow') AND id >= 900 "
        "AND part = 0 ORDER BY s DESC, id LIMIT 20"
    ).rows()
    assert found
    assert [row["s"] for row in found] == pytest.approx([scores[row["id"]] for row in found])
    one = lake.sql("SELECT score(title, 'goat') AS s FROM t WHERE id = 5").rows()
    assert one == [{"s": pytest.approx(scores[5])}]
    high = lake.sql("SELECT id FROM t WHERE score(title, 'goat') > 1.5 ORDER BY id").rows()
    assert [row["id"] for row in high] == [id for id, score in scores.items() if score > 1.5]


def test_a_fault_of_datafusion_in_the_count_of_words_is_avoided(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts are read without the optimizations that a query is retried without."""
    make = lake.engine.queries._contexts

    def faulty(options: SessionOptions) -> datafusion.SessionContext:
        if options.pushdown or options.statistics:
            raise EngineFault("DataFusion failed internally: for this test.")
        return make(options)

    query = "SELECT max(score(title, 'cow')) AS best FROM t"
    expected = lake.sql(query).rows()
    with needlepoint.open(lake.root) as other:
        assert other.engine.queries.planner  # which has contexts of its own
        monkeypatch.setattr(other.engine.queries, "_contexts", faulty)
        assert other.sql(query).rows() == expected


def test_a_null_text_scores_nothing(lake: Lake) -> None:
    assert lake.sql("SELECT score(title, 'cow') AS s FROM t WHERE id = 17").rows() == [{"s": 0.0}]


@pytest.mark.covering
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a.id, score(a.title, 'cow') AS s FROM t a JOIN u ON a.id = u.id ORDER BY s DESC, a.id",
        """SELECT a.id, score(a.title, 'cow') AS s FROM t a LEFT JOIN u ON a.id = u.id WHERE u.id IS NOT NULL
           ORDER BY score(a.title, 'cow') DESC, a.id""",
        """WITH few AS (SELECT id, title AS words FROM t WHERE id IN (1, 2, 3, 404))
           SELECT id, score(words, 'cow') AS s FROM few ORDER BY s DESC, id""",
        """SELECT id, s FROM (SELECT id, score(title, 'cow') AS s FROM t) WHERE id IN (SELECT id FROM u)
           ORDER BY s DESC, id""",
        """SELECT id, max(score(title, 'cow')) AS s FROM lake.t WHERE id IN (1, 2, 3, 404) GROUP BY id
           ORDER BY s DESC, id""",
        "SELECT id, score(title, 'cow') AS s FROM seen WHERE id IN (1, 2, 3, 404) ORDER BY s DESC, id",
    ],
)
def test_scores_through_joins_aliases_and_views(lake: Lake, everything: pa.Table, sql: str) -> None:
    scores = dict(zip(everything["id"].to_pylist(), naive(everything["title"].to_pylist(), ["cow"]), strict=True))
    expected = sorted(((scores[id], id) for id in (1, 2, 3, 404)), key=lambda pair: (-pair[0], pair[1]))
    found = lake.sql(sql).rows()
    assert [(row["s"], row["id"]) for row in found] == [(pytest.approx(score), id) for score, id in expected]


def test_two_tables_are_scored_each_by_its_own_texts(lake: Lake, everything: pa.Table) -> None:
    sql = """SELECT u.id, score(t.title, 'cow') AS a, score(u.title, 'cow ') AS b FROM t JOIN u ON t.id = u.id
             ORDER BY u.id"""
    here = naive(["cow", "cow goat", None, "boat"], ["cow"])
    there = dict(zip(everything["id"].to_pylist(), naive(everything["title"].to_pylist(), ["cow"]), strict=True))
    found = lake.sql(sql).rows()
    assert [row["b"] for row in found] == pytest.approx(here)
    assert [row["a"] for row in found] == pytest.approx([there[row["id"]] for row in found])


def test_parameters(lake: Lake) -> None:
    literal = lake.sql("SELECT id FROM t WHERE text_match(title, 'ice cream') ORDER BY score(title, 'ice') DESC, id")
    given = lake.sql(
        "SELECT id FROM t WHERE text_match(title, $query) ORDER BY score(title, $word) DESC, id",
        {"query": "ice cream", "word": "ice"},
    )
    assert literal.rows() == given.rows()


def test_queries_that_run_at_the_same_time_keep_their_statistics(lake: Lake) -> None:
    queries = [f"SELECT id, score(title, 'cow') AS s FROM {table} WHERE id = 2" for table in ("t", "u")]
    alone = [lake.sql(query).rows() for query in queries]
    assert alone[0] != alone[1]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda number: lake.sql(queries[number % 2]).rows(), range(40)))
    assert found == alone * 20


def test_queries_that_are_data(lake: Lake) -> None:
    """One query for each row."""
    found = lake.sql("SELECT u.id FROM t JOIN u ON t.id = u.id WHERE text_match(t.note, u.title) ORDER BY u.id").rows()
    assert found == [{"id": 1}]


@pytest.mark.covering
@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT id FROM t WHERE text_match(title, 'a (cow')", "the parenthesis at 3 is not closed"),
        ("SELECT text_match(title, 'cow (') FROM t", "a word is missing at the end"),
        ("SELECT score(title, '') FROM t", "it is empty"),
        ("SELECT score(lower(title), 'cow') FROM t", "not a text column of one table"),
        ("SELECT score('a cow', 'cow')", "not a text column of one table"),
        ("SELECT score(title, title) FROM t", "the query of score must be a string"),
        ("SELECT t.id FROM t JOIN u ON score(t.title, 'a') > score(u.title, 'a')", "is used for"),
        ("SELECT id FROM t WHERE id = (SELECT max(id) FROM u WHERE score(title, 'cow') > 0)", "cannot be resolved"),
        ("SELECT row_number() OVER (ORDER BY score(title, 'cow')) FROM t", "cannot be resolved"),
        (
            "SELECT score(title, 'x') FROM (SELECT title FROM t UNION ALL SELECT note FROM t)",
            "not a text column of one",
        ),
        ("SELECT score(id, 'cow') FROM t", "not a text column of one table"),
    ],
)
def test_what_cannot_be_asked_is_said(lake: Lake, sql: str, problem: str) -> None:
    with pytest.raises(SqlError) as raised:
        lake.sql(sql)
    assert problem in str(raised.value)
    assert "Traceback" not in str(raised.value)


def test_new_files_change_the_scores(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"id": [1, 2], "title": ["cow", "goat"]}), tmp_path / "t/0.parquet")
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("t")
        first = lake.sql("SELECT score(title, 'cow') AS s FROM t WHERE id = 1").rows()
        pq.write_table(pa.table({"id": [3, 4], "title": ["cow cow", "a cow"]}), tmp_path / "t/1.parquet")
        second = lake.sql("SELECT score(title, 'cow') AS s FROM t WHERE id = 1").rows()
    assert first[0]["s"] == pytest.approx(naive(["cow", "goat"], ["cow"])[0])
    assert second[0]["s"] == pytest.approx(naive(["cow", "goat", "cow cow", "a cow"], ["cow"])[0])


def test_the_document_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = Path(__file__).parents[2] / "docs/text-search.md"
    failures, tried = doctest.testfile(str(document), module_relative=False)
    assert tried > 5
    assert not failures
