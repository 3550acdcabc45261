"""Text patterns on titles: an embedded text index, compared with scans of DataFusion and DuckDB and Lance's indexes.

    make bench-text                  BENCH_ROWS=10000000 by default; the files are kept in bench-text/

The titles are those of the Tantivy-in-Parquet demo (jcsherin/datablok): 3 to 8 filler words each, and six control words
with probabilities from 20% to 0.1%, shuffled. The 36 queries are LIKE '%a b%' for every pair of control words, which
match from none to 0.5% of the rows. A second part has harder patterns, a third ranked searches (the ten best titles by
BM25), a fourth the comments of TPC-H's orders (`tpchgen-cli`).

All peers run in turns, and medians are compared: trust the ratios, not the milliseconds. All answers are
compared with DuckDB's. Lance's INVERTED index finds words, not text, so it only runs queries for which both are the
same. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import datafusion
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from quick import report

import needlepoint
from needlepoint.indexes.text import TextStatistics, bm25, parse, terms

CONTROL = {
    "concurrency": 0.20,
    "runtime": 0.10,
    "indexing": 0.05,
    "normalization": 0.01,
    "atomics": 0.005,
    "idempotency": 0.001,
}
# The list includes "concurrency", and "process" twice, as in the demo.
FILLER = """
a an and as at by for from in is it of on that the to was with
api application architecture cache client code concurrency container data database error framework function index
instance language library memory message model network pattern performance process query queue request response
schema server service system thread transaction
avoid build design ensure execute handle implement improve manage optimize process return scale
atomic concurrent distributed efficient high-performance scalable simple stateless
"""
FILLERS = FILLER.split()
FEWEST, MOST = 3, 8
AT_ONCE = 500_000

HARDER = {
    "inside of words": "title LIKE '%dempotency atom%'",
    "beginning": "title LIKE 'idempotency run%'",
    "end": "title LIKE '%atomics idempotency'",
    "any letter": "title LIKE '%atomi_s idempotenc_ %'",
    "two pieces": "title LIKE '%idempotency%atomics%'",
    "either case": "title ILIKE '%Idempotency RUNTIME%'",
    "contains": "contains(title, 'high-performance idempotency')",
    "strpos": "strpos(title, 'normalization atomics') > 0",
    "regular expression": "regexp_like(title, 'idempotency (atomics|normalization)')",
    "no such word": "title LIKE '%dairy cow%'",
    "equal": "title = 'the idempotency of atomics'",
    "common word": "title LIKE '%database%'",
    "no word": "title LIKE '%-%'",
    "empty": "title LIKE '%%'",
}
COMMENTS = {
    "phrase": "comment LIKE '%unusual foxes haggle%'",
    "longer phrase": "comment LIKE '%ironic pinto beans. even%'",
    "inside of words": "comment LIKE '%lly pending dep%'",
    "two pieces": "comment LIKE '%special%requests%'",
    "rare pieces": "comment LIKE '%tithes%Tiresias%'",
    "no such word": "comment LIKE '%dairy cow%'",
    "common word": "comment LIKE '%furiously%'",
}

RANKED = {
    "a rarer word": "idempotency",
    "two rarer words": "idempotency atomics",
    "a frequent word": "concurrency",
    "two frequent words": "concurrency runtime",
}

INDEX = """
import json, resource, sys, time
import needlepoint
lake = needlepoint.open(sys.argv[1], workers=1)
lake.create_table(sys.argv[2])
before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
lake.create_index(sys.argv[2], sys.argv[3], kind="text", embed=True)
after = resource.getrusage(resource.RUSAGE_SELF)
used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
(index,) = lake.status().tables[0].indexes
print(json.dumps([time.perf_counter() - started, used, after.ru_maxrss * 1024, index.bytes]))
"""

Ask = Callable[[], pa.Table]


def titles(rows: int, seed: int) -> pa.Array:
    dice = np.random.default_rng(seed)
    words = pa.array([*FILLERS, *CONTROL])
    nothing = len(words)
    chosen = np.full((rows, MOST + len(CONTROL)), nothing, np.int16)
    count = dice.integers(FEWEST, MOST + 1, rows)
    chosen[:, :MOST] = np.where(np.arange(MOST) < count[:, None], dice.integers(0, len(FILLERS), (rows, MOST)), nothing)
    for at, chance in enumerate(CONTROL.values()):
        chosen[dice.random(rows) < chance, MOST + at] = len(FILLERS) + at
    order = dice.random(chosen.shape)
    order[chosen == nothing] = 2  # after the others
    chosen = np.take_along_axis(chosen, np.argsort(order, axis=1), axis=1)
    there = chosen != nothing
    ends = np.concatenate(([0], np.cumsum(there.sum(axis=1)))).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(ends), words.take(pa.array(chosen[there]))), " ")


def title_batches(rows: int) -> Iterator[pa.Table]:
    for at in range(0, rows, AT_ONCE):
        count = min(AT_ONCE, rows - at)
        yield pa.table({"id": np.arange(at, at + count, dtype=np.uint64), "title": titles(count, at)})


def comment_batches(rows: int, place: Path) -> Iterator[pa.Table]:
    """The comments of TPC-H's orders: 1.5 million at scale 1."""
    subprocess.run(
        ["tpchgen-cli", "parquet", "-s", str(rows / 1_500_000), "--tables=orders", f"--output-dir={place}"], check=True
    )
    for batch in pq.ParquetFile(place / "orders.parquet").iter_batches(AT_ONCE, columns=["o_orderkey", "o_comment"]):
        comments = batch.column("o_comment").cast(pa.string())
        yield pa.table({"id": batch.column("o_orderkey").cast(pa.uint64()), "comment": comments})
    shutil.rmtree(place)


def write(batches: Iterator[pa.Table], path: Path, column: str) -> None:
    """Write a file in the layout of our lakes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = None
    for table in batches:
        writer = writer or pq.ParquetWriter(
            path,
            table.schema,
            compression="zstd",
            use_dictionary=False,
            column_encoding={"id": "DELTA_BINARY_PACKED"},
            write_page_index=True,
            max_rows_per_page=250,
        )
        writer.write_table(table.select(["id", column]))
    assert writer is not None
    writer.close()


@dataclass
class World:
    """The same rows as a lake with an embedded index, as a plain file, and as two Lance datasets."""

    root: Path
    table: str
    column: str
    facts: dict[str, float] = field(default_factory=dict)

    @property
    def plain(self) -> Path:
        return self.root / "plain" / f"{self.table}.parquet"

    @property
    def lake(self) -> Path:
        return self.root / "lake"

    def make(self, batches: Callable[[], Iterator[pa.Table]], lance: bool) -> None:
        facts = self.root / "facts.json"
        if not facts.exists():
            shutil.rmtree(self.root, ignore_errors=True)
            print(f"writing {self.root} (once)", flush=True)
            write(batches(), self.plain, self.column)
            place = self.lake / self.table
            place.mkdir(parents=True)
            shutil.copy(self.plain, place / "part.parquet")
            out = subprocess.check_output(
                [sys.executable, "-c", INDEX, str(self.lake), self.table, self.column], text=True
            )
            wall, used, memory, size = json.loads(out.splitlines()[-1])
            rows = pq.read_metadata(self.plain).num_rows
            self.facts = {
                "rows": rows,
                "rows a second of one core": rows / used,
                "wall seconds": wall,
                "peak memory": memory,
                "index bytes": size,
                "zstd Parquet bytes": self.plain.stat().st_size,
                "uncompressed Parquet bytes": self._uncompressed(),
                "embedded file bytes": sum(path.stat().st_size for path in place.glob("*.parquet")),
            }
            facts.write_text(json.dumps(self.facts, indent=2))
        self.facts = json.loads(facts.read_text())
        if lance:
            self._make_lance()

    def _uncompressed(self) -> int:
        """The size of the file that the demo writes: by default, arrow-rs does not compress."""
        other = self.root / "uncompressed.parquet"
        source = pq.ParquetFile(self.plain)
        with pq.ParquetWriter(other, source.schema_arrow, compression="none") as writer:
            for batch in source.iter_batches(AT_ONCE):
                writer.write_batch(batch)
        size = other.stat().st_size
        other.unlink()
        return size

    def _make_lance(self) -> None:
        import lance

        for kind, options in (
            ("NGRAM", {}),
            ("INVERTED", {"with_position": True, "stem": False, "remove_stop_words": False}),
        ):
            place = self.root / f"lance-{kind.lower()}"
            if (place / "done").exists():
                continue
            shutil.rmtree(place, ignore_errors=True)
            source = pq.ParquetFile(self.plain)
            copy = lance.write_dataset(source.iter_batches(AT_ONCE), str(place), schema=source.schema_arrow)
            before = _size(place)
            started = time.process_time()
            copy.create_scalar_index(self.column, kind, **options)
            self.facts[f"Lance {kind} bytes"] = _size(place) - before
            self.facts[f"Lance {kind} rows a second of one core"] = source.metadata.num_rows / (
                time.process_time() - started
            )
            (place / "done").touch()
        (self.root / "facts.json").write_text(json.dumps(self.facts, indent=2))


def _size(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


class Peers:
    def __init__(self, world: World, lance: bool) -> None:
        self.world = world
        self.lake = needlepoint.open(world.lake, refresh=60)
        config = datafusion.SessionConfig({"datafusion.execution.parquet.pushdown_filters": "true"})
        self.datafusion = datafusion.SessionContext(config)
        self.datafusion.register_parquet(world.table, str(world.plain))
        self.duckdb = duckdb.connect()
        self.duckdb.execute(f"CREATE VIEW {world.table} AS SELECT * FROM read_parquet('{world.plain}')")
        self.ngram = self.inverted = None
        if lance:
            import lance as lancedb

            self.ngram = lancedb.dataset(str(world.root / "lance-ngram"))
            self.inverted = lancedb.dataset(str(world.root / "lance-inverted"))

    def where(self, condition: str, phrase: str | None = None) -> dict[str, Ask]:
        query = f"SELECT id, {self.world.column} FROM {self.world.table} WHERE {condition}"
        theirs = query.replace("regexp_like", "regexp_matches")
        asked: dict[str, Ask] = {
            "needlepoint": lambda: self.lake.sql(query).to_arrow(),
            "datafusion": lambda: self.datafusion.sql(query).to_arrow_table(),
            "duckdb": lambda: self.duckdb.sql(theirs).to_arrow_table(),
        }
        if phrase is not None and self.ngram is not None:
            asked["lance ngram"] = lambda: self._by_ngram(phrase)
            asked["lance inverted"] = lambda: self._by_words(phrase)
        return asked

    def best(self, words: str) -> dict[str, Ask]:
        column, table = self.world.column, self.world.table
        query = f"SELECT id, {column} FROM {table} ORDER BY score({column}, '{words}') DESC LIMIT 10"
        asked: dict[str, Ask] = {"needlepoint": lambda: self.lake.sql(query).to_arrow()}
        if self.inverted is not None:
            asked["lance inverted"] = lambda: self._best_by_words(words)
        return asked

    def check_best(self, words: str, found: pa.Table) -> None:
        """The best have the scores of their texts, and no text has a higher one."""
        query, texts = parse(words), pq.read_table(self.world.plain, columns=[self.world.column]).column(0)
        known = TextStatistics.of(texts, terms(query))
        highest = np.sort(bm25(query, texts, known))[-10:]
        assert np.sort(bm25(query, found.column(self.world.column), known)).tolist() == highest.tolist()

    def _best_by_words(self, words: str) -> pa.Table:
        from lance.query import MatchQuery

        assert self.inverted is not None
        column = self.world.column
        scanner = self.inverted.scanner(
            columns=["id", column],
            full_text_query=MatchQuery(words, column),
            limit=10,
            disable_scoring_autoprojection=True,
        )
        return scanner.to_table()

    def _by_ngram(self, phrase: str) -> pa.Table:
        assert self.ngram is not None
        column = self.world.column
        return self.ngram.to_table(columns=["id", column], filter=f"contains({column}, '{phrase}')")

    def _by_words(self, phrase: str) -> pa.Table:
        from lance.query import PhraseQuery

        assert self.inverted is not None
        column = self.world.column
        rows = int(self.world.facts["rows"])
        scanner = self.inverted.scanner(
            columns=["id", column],
            full_text_query=PhraseQuery(phrase, column),
            limit=rows,
            disable_scoring_autoprojection=True,
        )
        return scanner.to_table()


def digest(table: pa.Table) -> tuple[int, str]:
    """Number and digest of the ids, in any order; the id determines the text."""
    ids = np.sort(table.column("id").to_numpy().astype(np.uint64))
    return len(ids), str(hash(ids.tobytes()))


def in_turns(contenders: dict[str, Ask], rounds: int) -> tuple[int, dict[str, float]]:
    """The number of rows found, and median seconds of each contender. A fast query runs several times a turn."""
    answers = {name: digest(ask()) for name, ask in contenders.items()}
    truth = answers["duckdb"]
    for name in [name for name, answer in answers.items() if answer != truth]:
        assert name.startswith("lance"), f"{name} answers {answers[name]}, DuckDB {truth}"
        print(f"  {name} finds {answers[name][0]} rows, DuckDB {truth[0]}")
        del contenders[name]
    return truth[0], medians(contenders, rounds)


def medians(contenders: dict[str, Ask], rounds: int) -> dict[str, float]:
    pace = {}
    for name, ask in contenders.items():
        started = time.perf_counter()
        ask()
        pace[name] = time.perf_counter() - started
    times: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            for _ in range(max(1, min(10, int(0.05 / pace[name])))):
                started = time.perf_counter()
                contenders[name]()
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in times.items()}


def run(
    peers: Peers, questions: dict[str, tuple[str, str | None]], rounds: int
) -> dict[str, tuple[int, dict[str, float]]]:
    found = {}
    for title, (condition, phrase) in questions.items():
        found[title] = in_turns(peers.where(condition, phrase), rounds)
        rows, times = found[title]
        print(
            f"  {title}: {rows} rows, " + ", ".join(f"{name} {t * 1000:.2f}" for name, t in times.items()), flush=True
        )
    return found


def run_ranked(peers: Peers, rounds: int) -> dict[str, dict[str, float]]:
    found = {}
    for title, words in RANKED.items():
        asked = peers.best(words)
        peers.check_best(words, asked["needlepoint"]())
        found[title] = medians(asked, rounds)
        print(f"  {title}: " + ", ".join(f"{name} {t * 1000:.2f}" for name, t in found[title].items()), flush=True)
    return found


def show(title: str, found: dict[str, tuple[int, dict[str, float]]]) -> None:
    names = ["needlepoint", "datafusion", "duckdb", "lance ngram", "lance inverted"]
    names = [name for name in names if any(name in times for _, times in found.values())]
    rows = [
        [
            question,
            f"{count:,}",
            *(f"{times[name] * 1000:.2f}" if name in times else "" for name in names),
            f"{times['datafusion'] / times['needlepoint']:.1f}x",
        ]
        for question, (count, times) in sorted(
            found.items(), key=lambda entry: entry[1][1]["needlepoint"] / entry[1][1]["datafusion"]
        )
    ]
    report(title, ["question", "rows", *names, "over DataFusion"], rows)


def verdict(facts: dict[str, float], found: dict[str, tuple[int, dict[str, float]]]) -> None:
    ratios = {question: times["datafusion"] / times["needlepoint"] for question, (_, times) in found.items()}
    slower = [question for question, ratio in ratios.items() if ratio < 1]
    noticeably = [question for question in slower if ratios[question] < 1 / 1.05]
    nothing = [ratios[question] for question, (count, _) in found.items() if count == 0]
    size = facts["index bytes"]
    print(
        f"slower than DataFusion's scan: {len(slower)} of {len(found)}, by more than 5%: {len(noticeably)} {noticeably}"
    )
    print(f"no match: {min(nothing, default=0):.0f} to {max(nothing, default=0):.0f} times faster than the scan")
    for name in ("uncompressed Parquet bytes", "zstd Parquet bytes"):
        print(f"index: {size / 1e6:.1f} MB, {size / facts[name]:.1%} of {facts[name] / 1e6:.1f} MB ({name})")
    print(f"built: {facts['rows a second of one core']:,.0f} rows a second of one core")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=int(os.environ.get("BENCH_ROWS", "10000000")))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--place", type=Path, default=Path("bench-text"))
    parser.add_argument("--no-lance", action="store_true")
    parser.add_argument("--no-tpch", action="store_true")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    lance = not arguments.no_lance
    figures: dict[str, object] = {"versions": {"datafusion": datafusion.__version__, "duckdb": duckdb.__version__}}

    world = World(arguments.place / str(arguments.rows) / "titles", "titles", "title")
    world.make(lambda: title_batches(arguments.rows), lance)
    peers = Peers(world, lance)
    asked = {
        f"{left} {right}": (f"title LIKE '%{left} {right}%'", f"{left} {right}")
        for left in CONTROL
        for right in CONTROL
    }
    phrases = run(peers, asked, arguments.rounds)
    harder = run(peers, {title: (condition, None) for title, condition in HARDER.items()}, arguments.rounds)
    show(f"{arguments.rows:,} titles, two words, milliseconds, answers equal", phrases)
    show("harder patterns", harder)
    ranked = run_ranked(peers, arguments.rounds)
    report(
        "the ten best by BM25, milliseconds, scores equal to those of all texts",
        ["words", *next(iter(ranked.values()))],
        [[title, *(f"{seconds * 1000:.2f}" for seconds in times.values())] for title, times in ranked.items()],
    )
    verdict(world.facts, phrases)
    peers.lake.close()
    figures |= {"titles": world.facts, "phrases": phrases, "harder": harder, "ranked": ranked}

    if not arguments.no_tpch:
        rows = arguments.rows // 5
        world = World(arguments.place / str(arguments.rows) / "comments", "comments", "comment")
        world.make(lambda: comment_batches(rows, world.root / "tpch"), lance)
        peers = Peers(world, False)
        comments = run(peers, {title: (condition, None) for title, condition in COMMENTS.items()}, arguments.rounds)
        show(f"{int(world.facts['rows']):,} comments of TPC-H's orders, milliseconds, answers equal", comments)
        verdict(world.facts, comments)
        peers.lake.close()
        figures |= {"comment facts": world.facts, "comments": comments}
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
