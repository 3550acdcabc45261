"""Postings are tantivy's, and the best rows have the scores of their texts, to the last bit."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.cases import cases, long
from tests.unit.indexes.payloads import StoredBytes, text_source

from needlepoint.indexes.text import (
    Postings,
    RankedTerm,
    TextStatistics,
    best_rows,
    bm25,
    build,
    parse,
    postings,
    terms,
)
from needlepoint.indexes.text.evaluation import term_scores
from needlepoint.indexes.text.kind import TextKind
from needlepoint.indexes.text.query_language import Word
from needlepoint.indexes.text.search import TextIndex
from needlepoint.indexes.text.statistics import statistics
from needlepoint.stores import IndexDamaged

GOLDEN = Path(__file__).parents[3] / "golden"


def opened(texts: pa.Array, place: Path) -> TextIndex:
    built = TextKind().build(text_source(texts, place / "scratch"))
    return TextKind().open(StoredBytes(built.payload, place / "cache"), [], {})


def texts_of(dice: random.Random, rows: int, words: int, longest: int) -> pa.Array:
    """Words with frequencies of natural texts, and some of several bytes."""
    vocabulary = [f"{'wö' if number % 5 == 0 else 'w'}{number}" for number in range(words)]
    weights = [1 / (number + 1) for number in range(words)]
    made = [" ".join(dice.choices(vocabulary, weights, k=dice.randrange(longest))) for _ in range(rows)]
    return pa.array([None if dice.random() < 0.02 else text for text in made], pa.string())


@pytest.mark.parametrize(
    ("rows", "words", "longest"), [(1, 1, 3), (128, 2, 9), (3000, 40, 12), *long((2000, 900, 300))]
)
def test_postings_of_all_words(tmp_path: Path, rows: int, words: int, longest: int) -> None:
    """Lists shorter than a block of 128 rows, of exactly one, and longer; texts that have a word often."""
    texts = texts_of(random.Random(rows), rows, words, longest)
    index = opened(texts, tmp_path)
    counts = [
        {} if text is None else {word: text.split().count(word) for word in text.split()} for text in texts.to_pylist()
    ]
    total = 0
    for place in range(len(index.vocabulary)):
        word = index.vocabulary.at(place)
        found = index.postings(Word(word))
        assert found is not None
        has = [row for row, count in enumerate(counts) if word in count]
        assert found.rows.tolist() == has
        assert found.times.tolist() == [counts[row][word] for row in has]
        assert found.lengths.tolist() == [sum(counts[row].values()) for row in has]
        total += int(found.times.sum())
    assert total == index.total_words
    missing = index.postings(Word("nowhere"))
    assert missing is not None and not len(missing.rows)


@pytest.mark.parametrize("seed", range(cases(60, 6)))
def test_best_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """One word and several, prefixes and near words, in one segment or several, with ties and without, and with rows
    that do not count."""
    dice = random.Random(seed)
    if seed % 3 == 0:
        monkeypatch.setattr(build, "HEAP_PER_TEXT", {"word": 4000})
        monkeypatch.setattr(build, "AT_ONCE", 100)
    rows, words = dice.randint(1, 2000), dice.randint(3, 200)
    texts = texts_of(dice, rows, words, dice.choice([3, 8, 40]))
    index = opened(texts, tmp_path)
    for _ in range(20):
        asked = [f"w{dice.randrange(words)}" for _ in range(dice.choice([1, 1, 2, 3, 4]))]
        query = parse(" ".join(dice.choice([word, word, f"{word[:2]}*", f"{word}~1"]) for word in asked))
        wanted, ties = dice.choice([1, 2, 5, 10, 100]), dice.random() < 0.5
        counted = np.array([dice.random() < 0.3 for _ in range(rows)]) if dice.random() < 0.3 else np.ones(rows, bool)
        known = statistics(index, terms(query))
        assert known == TextStatistics.of(texts, terms(query))
        truth = bm25(query, texts, known)
        ranked = []
        for term in terms(query):
            found = index.postings(term)
            assert found is not None
            ranked.append((term, RankedTerm(found, rows)))
        best = best_rows(ranked, known, wanted, ties, None if counted.all() else counted.__getitem__)
        assert len(set(best.rows.tolist())) == len(best.rows) and counted[best.rows].all()
        assert best.scores.tolist() == truth[best.rows].tolist()
        above = np.sort(truth[counted & (truth > 0)])[::-1]
        expected = above[above >= above[wanted - 1]] if ties and len(above) > wanted else above[:wanted]
        assert np.sort(best.scores)[::-1].tolist() == expected.tolist()


@pytest.mark.parametrize("seed", range(cases(60, 12)))
def test_a_single_word_needs_no_search(seed: int) -> None:
    """Its first classes have the same rows as a search through them finds: with the scores of all rows, and with ties
    exactly these."""
    dice = np.random.default_rng(seed)
    total = int(dice.integers(1, 3000))
    rows = np.flatnonzero(dice.random(total) < dice.random())
    longest, often = int(dice.integers(1, 30)), int(dice.integers(1, 4))
    times = dice.integers(1, often + 1, len(rows))
    term = RankedTerm(Postings(rows, times, times + dice.integers(0, longest, len(rows))), total)
    for words in (total * longest, total * 5):  # a table that changed has other statistics
        known = TextStatistics(total, words, {Word("cow"): len(rows)})
        for wanted in (1, 10, len(rows), len(rows) + 1):
            for ties in (False, True):
                found = best_rows([(Word("cow"), term)], known, wanted, ties)
                searched = best_rows([(Word("cow"), term)], known, wanted, ties, lambda rows: np.ones(len(rows), bool))
                assert sorted(found.scores.tolist()) == sorted(searched.scores.tolist())
                assert len(np.unique(found.rows)) == len(found.rows)
                order, other = np.argsort(found.rows), np.argsort(searched.rows)
                if ties or wanted >= len(rows):
                    assert found.rows[order].tolist() == searched.rows[other].tolist()
                    assert found.scores[order].tolist() == searched.scores[other].tolist()
                places = np.searchsorted(rows, found.rows)
                lengths = np.repeat(term.lengths, np.diff(term.edges))[np.argsort(term.rows)][places]
                assert found.scores.tolist() == term_scores(known, Word("cow"), times[places], lengths).tolist()


def test_what_gives_no_postings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts must be read: of trigrams, of the first version of payloads, of texts that the index does not describe, and
    of another version of tantivy."""
    trigrams = TextKind().build(text_source(pa.array(["cow"]), tmp_path / "t", tokenizer="trigram"))
    assert TextKind().open(StoredBytes(trigrams.payload, tmp_path / "c"), [], {}).postings(Word("cow")) is None
    old = TextKind().open(StoredBytes((GOLDEN / "text-word.nptx").read_bytes(), tmp_path / "old"), [], {})
    assert old.postings(Word("cow")) is None and old.rows_with("cow") is not None
    odd = opened(pa.array(["cow", "x" * 70_000]), tmp_path / "odd")
    assert odd.postings(Word("cow")) is None
    index = opened(pa.array(["cow"]), tmp_path / "other")
    monkeypatch.setattr(postings, "FORMAT", 8)
    assert index.postings(Word("cow")) is None


def test_damaged_postings_are_noticed(tmp_path: Path) -> None:
    """Payloads have checksums. If a byte differs nevertheless, postings raise IndexDamaged, or are possible ones."""
    dice = random.Random(5)
    texts = texts_of(dice, 700, 30, 12)
    payload = TextKind().build(text_source(texts, tmp_path / "scratch")).payload
    for number in range(cases(300)):
        stored = StoredBytes(payload, tmp_path / str(number))
        index = TextKind().open(stored, [], {})
        (path,) = (stored.cache / stored.checksum).glob("*.idx" if number % 2 else "*.term")
        content = bytearray(path.read_bytes())
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        path.unlink()
        path.write_bytes(content if number % 5 else content[: len(content) // 2])
        for place in range(len(index.vocabulary)):
            try:
                found = index.postings(Word(index.vocabulary.at(place)))
            except IndexDamaged:
                continue
            assert found is None or (found.rows < 700).all()
