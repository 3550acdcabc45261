"""The text index never misses a row that SQL finds."""

from __future__ import annotations

import functools
import itertools
import json
import os
import random
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import datafusion
import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.unit.indexes.payloads import StoredBytes, text_source

from needlepoint.errors import NotIndexable, UnknownName, UsageError
from needlepoint.indexes.base import ColumnSource, Condition
from needlepoint.indexes.text import build, search
from needlepoint.indexes.text.evaluation import evaluate
from needlepoint.indexes.text.kind import TextKind
from needlepoint.indexes.text.query_language import Word, parse
from needlepoint.indexes.text.search import TextIndex
from needlepoint.indexes.text.words import words
from needlepoint.predicate import Compare, In, IsNull, Like, Not, StartsWith, TextMatch
from needlepoint.stores.base import IndexDamaged

KIND = TextKind()
GOLDEN = Path(__file__).parents[3] / "golden"
TOKENIZERS = ["word", "trigram"]


def opened(texts: Sequence[str | None] | pa.Array, place: Path, memory: int = 64 << 20, **options: object) -> TextIndex:
    array = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
    built = KIND.build(text_source(array, place / "scratch", memory=memory, **options))
    return KIND.open(StoredBytes(built.payload, place / "cache"), [], options)


def found(index: TextIndex, *conditions: Condition, seconds: float = 1e9) -> list[int] | None:
    rows = index.find(conditions, seconds).rows
    return None if rows is None else rows.numbers().tolist()


def test_a_build_that_fails_leaves_no_writer(tmp_path: Path) -> None:
    """If a file is deleted while it is read, the build raises that error, and its directory can be removed."""
    texts = pa.array([f"word{number} and{number % 13}" for number in range(2000)])

    def cut(source: ColumnSource) -> Iterator[pa.RecordBatch]:
        yield from itertools.islice(source.batches(), 1)
        raise FileNotFoundError("gone")

    for _ in range(30):
        with pytest.raises(FileNotFoundError, match="gone"), tempfile.TemporaryDirectory(dir=tmp_path) as place:
            source = text_source(texts, Path(place))
            KIND.build(replace(source, batches=functools.partial(cut, source)))


def test_a_lock_that_tantivy_creates_late_fails_no_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the thread that watches an index can still run while its directory is removed."""
    remove = os.rmdir

    def rmdir(path: str, *, dir_fd: int | None = None) -> None:
        place = os.open(path, os.O_RDONLY, dir_fd=dir_fd)
        os.close(os.open(".tantivy-meta.lock", os.O_WRONLY | os.O_CREAT, dir_fd=place))
        os.close(place)
        remove(path, dir_fd=dir_fd)

    monkeypatch.setattr(build, "HEAP_PER_TEXT", {"word": 4000})
    monkeypatch.setattr(build, "AT_ONCE", 100)
    texts = [f"word{row} and{row % 13}" for row in range(1000)]
    with monkeypatch.context() as late:
        late.setattr(os, "rmdir", rmdir)
        index = opened(texts, tmp_path)
    assert len(index.description.parts) > 1
    assert found(index, Like("t", ("word123 and",))) == [123]


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_patterns_begin_and_end_inside_words(tmp_path: Path, tokenizer: str) -> None:
    texts = ["a Dairy Cow", "nondairy cowboy", "dairy, cow", "cow dairy", None, "", "dairy  cow", "fairy cow"]
    index = opened(texts, tmp_path, tokenizer=tokenizer)
    assert 1 in (found(index, Like("t", ("dairy cow",))) or [])
    assert 0 in (found(index, Like("t", ("Dairy Cow",))) or [])
    assert {0, 1, 7} <= set(found(index, Like("t", ("airy co",))) or [])
    assert {0, 1} <= set(found(index, Like("t", ("DAIRY cOw",), fold=True)) or [])
    assert found(index, Like("t", ("cow cow",))) == []


def test_words_narrow_to_what_matches(tmp_path: Path) -> None:
    index = opened(["nondairy cowboy", "dairy cow", "cow dairy", "dairy. cow", "dairycow"], tmp_path)
    assert found(index, Like("t", ("dairy cow",))) == [0, 1, 3]
    assert found(index, Like("t", (" cow",))) == [0, 1, 2, 3]
    assert found(index, Like("t", ("cow",), starts=True)) == [0, 1, 2, 3]
    assert found(index, Like("t", ("dairy cow",), starts=True, ends=True)) == [1, 3]
    assert found(index, Like("t", ("cow",), ends=True)) == [1, 2, 3, 4]
    assert found(index, Like("t", ("dai", "boy"))) == [0]
    assert found(index, Compare("t", "=", b"dairy cow")) == [1, 3]
    assert found(index, In("t", (b"dairycow", b"cow dairy", b"goat"))) == [2, 4]
    assert found(index, StartsWith("t", b"dairyc")) == [4]
    assert found(index, Like("t", ("cow",)), Like("t", ("nond",))) == [0]
    assert found(index, Like("t", ("goat",))) == []


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_what_has_no_word_is_not_asked(tmp_path: Path, tokenizer: str) -> None:
    index = opened(["a-b", "", None], tmp_path, tokenizer=tokenizer)
    for condition in (Like("t", ()), Like("t", ("",)), Not(Like("t", ("a",))), IsNull("t"), Compare("t", "<", b"b")):
        assert found(index, condition) is None, condition
    assert found(index, Compare("t", "=", b"\xff")) is None
    if tokenizer == "word":
        assert found(index, Like("t", ("-",))) is None


# -- every answer contains the rows that SQL finds --

ALPHABETS = [
    "ab ", "aAbB c-,.", "sſSßẞ ", "iIİı j", "σςΣοΟ ", "kK\u212a éÉe\u0301 ", "中文字牛乳を 飲", "🙂🙃a b", 'a_%\\"\'b ',
    "\0\n\t a\u00a0\u2003b", "ǅǆǄ ǰ ŉ ﬁ", "0٣²Ⅷⅷ a", "аАбᲀвВ ", "ͅιΙι ᾳ", "Ꭰꭰ ᏸᏰ", "\u00ad\u200da b",
    "ΐΰ ᾼ Ω\u2126å\u212b",
]  # fmt: skip
COMMON = ["dairy", "cow", "cowboy", "nondairy", "Dairy", "COW", "a", "airy", "x" * 300, "日本語", "naïve", "straße"]


@st.composite
def corpora(draw: st.DrawFn) -> list[str | None]:
    letters = st.text(draw(st.sampled_from(ALPHABETS)), max_size=12)
    phrase = st.lists(st.sampled_from(COMMON), max_size=5).map(" ".join)
    mixed = st.tuples(letters, st.sampled_from([" ", "", ", ", "_"]), phrase).map("".join)
    return draw(st.lists(st.one_of(st.none(), letters, phrase, mixed, st.text(max_size=6)), min_size=1, max_size=12))


def cut(texts: Sequence[str | None], random: random.Random) -> str:
    """A part of one of the texts, sometimes with another case or another letter."""
    text = random.choice([text for text in texts if text] or ["cow"])
    first = random.randrange(len(text))
    part = text[first : first + random.choice([1, 2, 3, 5, 9, len(text)])]
    match random.randrange(8):
        case 0:
            return part.swapcase()
        case 1:
            return part.lower()
        case 2:
            return part + random.choice(COMMON)
    return part


def conditions(texts: Sequence[str | None], random: random.Random) -> tuple[Condition, str]:
    """A condition, and the same in SQL with the column t."""

    def quoted(text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    def escaped(text: str) -> str:
        return "".join(f"\\{letter}" if letter in "%_\\" else letter for letter in text)

    match random.randrange(6):
        case 0:
            value = (
                random.choice([text for text in texts if text] or ["cow"])
                if random.random() < 0.7
                else cut(texts, random)
            )
            return Compare("t", "=", value.encode()), f"t = {quoted(value)}"
        case 1:
            values = [cut(texts, random) for _ in range(3)] + [random.choice([text or "" for text in texts])]
            return In("t", tuple(value.encode() for value in values)), f"t IN ({', '.join(map(quoted, values))})"
        case 2:
            prefix = (random.choice([text or "a" for text in texts]))[: random.randrange(1, 9)]
            return StartsWith("t", prefix.encode()), f"starts_with(t, {quoted(prefix)})"
    pieces = tuple(cut(texts, random) for _ in range(random.choice([1, 1, 1, 2, 3])))
    starts, ends, fold = random.random() < 0.2, random.random() < 0.2, random.random() < 0.5
    between = random.choice(["%", "_", "%_%"])
    pattern = ("" if starts else "%") + between.join(map(escaped, pieces)) + ("" if ends else "%")
    return Like("t", pieces, starts, ends, fold), f"t {'ILIKE' if fold else 'LIKE'} {quoted(pattern)}"


class Engines:
    """Rows that either of two engines finds: if they differ, the candidates must include the rows of both."""

    def __init__(self, texts: Sequence[str | None]) -> None:
        rows = pa.table({"n": pa.array(range(len(texts)), pa.int64()), "t": pa.array(texts, pa.string())})
        self.datafusion = datafusion.SessionContext()
        self.datafusion.register_record_batches("x", [rows.to_batches()])
        self.duckdb = duckdb.connect()
        self.duckdb.register("x", rows)

    def rows(self, condition: str) -> set[int]:
        found = self.datafusion.sql(f"SELECT n FROM x WHERE {condition}").to_arrow_table()["n"].to_pylist()
        if "\0" in condition:  # ends a statement in DuckDB
            return set(found)
        escape = r" ESCAPE '\'" if "LIKE" in condition else ""
        return {
            *found,
            *self.duckdb.sql(f"SELECT n FROM x WHERE {condition}{escape}").to_arrow_table()["n"].to_pylist(),
        }


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@settings(
    max_examples=cases(60, 6),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(texts=corpora(), random=st.randoms(use_true_random=False))
def test_no_row_is_missed(tmp_path: Path, tokenizer: str, texts: list[str | None], random: random.Random) -> None:
    place = tmp_path / str(random.getrandbits(60))
    index, engines = opened(texts, place, tokenizer=tokenizer), Engines(texts)
    for _ in range(12):
        condition, sql = conditions(texts, random)
        rows = found(index, condition)
        if rows is not None:
            assert engines.rows(sql) <= set(rows), (condition, sql, texts)
            assert rows == sorted(set(rows))
    shutil.rmtree(place)


def text_query(texts: Sequence[str | None], random: random.Random, depth: int = 0) -> str:
    known = [word for found in words(pa.array(texts, pa.string())).to_pylist() for word in found or []] or ["cow"]
    word = random.choice([*known, random.choice(COMMON).lower()])
    match random.randrange(9 if depth < 2 else 5):
        case 0:
            return f"{word[:3]}*"
        case 1:
            return f"{(word[1:] + word[:1])[:20]}~{random.choice([1, 2])}"
        case 2:
            at = random.randrange(len(known))
            return f'"{" ".join(known[at : at + 2])}"{random.choice(["", "~1"])}'
        case 5 | 6:
            return f"({text_query(texts, random, depth + 1)} {text_query(texts, random, depth + 1)})"
        case 7:
            return f"({text_query(texts, random, depth + 1)} OR {text_query(texts, random, depth + 1)})"
        case 8:
            return f"({text_query(texts, random, depth + 1)} -{text_query(texts, random, depth + 1)})"
    return word


@pytest.mark.parametrize("letters", ["the same", "others"])
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@settings(max_examples=cases(25, 3), deadline=None, suppress_health_check=list(HealthCheck))
@given(texts=corpora(), random=st.randoms(use_true_random=False))
def test_no_text_match_is_missed(
    tmp_path: Path, tokenizer: str, letters: str, texts: list[str | None], random: random.Random
) -> None:
    place = tmp_path / str(random.getrandbits(60))
    index = opened(texts, place, tokenizer=tokenizer)
    if letters == "others":
        index._certain = str.isascii
    for _ in range(12):
        query = text_query(texts, random)
        rows = found(index, TextMatch("t", query))
        if rows is not None:
            matches = evaluate(parse(query), pa.array(texts, pa.string())).to_pylist()
            assert {row for row, match in enumerate(matches) if match} <= set(rows), (query, texts)
    shutil.rmtree(place)


@settings(
    max_examples=cases(40, 5),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(texts=corpora(), random=st.randoms(use_true_random=False))
def test_the_index_has_the_words_of_words(tmp_path: Path, texts: list[str | None], random: random.Random) -> None:
    index = opened(texts, tmp_path / str(random.getrandbits(60)))
    lists = words(pa.array(texts, pa.string())).to_pylist()
    every = {word for found in lists for word in found or []}
    assert {word.decode() for word in index.vocabulary.words.to_pylist()} == every
    assert index.total_words == sum(len(found or []) for found in lists)
    assert index.texts == sum(text is not None for text in texts)
    for word in every:
        rows = [row for row, found in enumerate(lists) if word in (found or [])]
        answer = index.rows_with(word)
        assert answer is not None and answer.tolist() == rows
        assert index.document_frequency(word) == len(rows)
        begins = [row for row, found in enumerate(lists) if any(each.startswith(word[:2]) for each in found or [])]
        prefixed = index.rows_with_prefix(word[:2])
        assert prefixed is not None and prefixed.tolist() == begins
    for found_words in lists:
        if found_words and len(found_words) > 1:
            pair = found_words[:2]
            rows = [
                row
                for row, found in enumerate(lists)
                if any(list(two) == pair for two in zip(found or [], (found or [])[1:], strict=False))
            ]
            phrase = index.rows_with_phrase(pair)
            assert phrase is not None and phrase.tolist() == rows


# -- odd texts --


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_words_too_long_for_tantivy_and_texts_that_are_none(tmp_path: Path, tokenizer: str) -> None:
    long = "y" * 70_000
    values = [b"cow", f"a {long}z b".encode(), b"\xff\xfe cow", None, ("é" * 40_000).encode()]
    array = pa.array(values, pa.binary())
    texts = pa.Array.from_buffers(pa.string(), len(array), array.buffers(), array.null_count)
    index = opened(texts, tmp_path, tokenizer=tokenizer)
    assert {1} <= set(found(index, Like("t", ("yyyz",))) or [])
    assert {0, 2} <= set(found(index, Like("t", ("cow",))) or [])
    assert {4} <= set(found(index, Like("t", ("éé",))) or [])
    assert 3 not in (found(index, Like("t", ("cow",))) or [])


@pytest.mark.parametrize("type", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_every_string_type(tmp_path: Path, type: pa.DataType) -> None:
    index = opened(pa.array(["dairy cow", None, "goat"], pa.string()).cast(type), tmp_path)
    assert found(index, Like("t", ("airy co",))) == [0]


def test_no_rows_at_all_and_only_nulls(tmp_path: Path) -> None:
    assert found(opened([], tmp_path / "a"), Like("t", ("cow",))) == []
    index = opened([None, None], tmp_path / "b")
    assert found(index, Like("t", ("cow",))) == [] and (index.texts, index.total_words) == (0, 0)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_rows_are_right_in_many_parts(tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "HEAP_PER_TEXT", {"word": 400, "trigram": 400})
    monkeypatch.setattr(build, "AT_ONCE", 700)
    texts = [None if row % 97 == 0 else f"row{row} of {row % 7} cows {'x' * (row % 40)}" for row in range(20_000)]
    index = opened(texts, tmp_path, tokenizer=tokenizer)
    assert len(index.description.parts) > 3 and sum(index.description.parts) == 20_000
    for row in (4_321, 19_998, 19_999):
        assert row in (found(index, Like("t", (f"row{row} of",))) or [])
    if tokenizer == "word":
        assert index.document_frequency("cows") == sum(text is not None for text in texts)
    assert {row for row in range(39, 20_000, 40) if row % 97} <= set(found(index, Like("t", ("x" * 39,))) or [])


@pytest.mark.long
def test_a_segment_closed_too_early_is_built_in_smaller_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "LEAST_HEAP", 15_000_000)
    monkeypatch.setattr(build, "HEAP_PER_TEXT", {"word": 0.5})
    monkeypatch.setattr(build, "AT_ONCE", 1000)
    texts = [f"{row} {'x' * 1000}{row}" for row in range(20_000)]
    index = opened(texts, tmp_path, memory=0)
    assert len(index.description.parts) > 1
    for row in (0, 4_321, 19_999):
        assert found(index, Compare("t", "=", texts[row].encode())) == [row]


def test_the_same_texts_make_the_same_payload(tmp_path: Path) -> None:
    texts = pa.array(["dairy cow", None, "goat"] * 50)
    one, two = (KIND.build(text_source(texts, tmp_path / name)).payload for name in "ab")
    assert one == two


def test_letters_of_another_unicode_are_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = KIND.build(text_source(pa.array(["dairy Ωcow", "goat"]), tmp_path / "scratch"))
    monkeypatch.setattr(search, "libraries_in_use", lambda: "others")
    same = KIND.open(StoredBytes(built.payload, tmp_path / "cache"), [], {})
    assert same.by_words
    monkeypatch.setattr(search, "letters_in_use", lambda: "others")
    index = KIND.open(StoredBytes(built.payload, tmp_path / "cache"), [], {})
    assert found(index, Like("t", ("airy Ωco",))) == [0]
    assert found(index, Like("t", ("Ω",))) is None
    assert not index.by_words and index.rows_with("cow") is None and index.document_frequency("cow") is None


# -- costs --


def test_what_matches_much_is_left_to_the_scan(tmp_path: Path) -> None:
    index = opened(["common word"] * 5_000 + ["rare word"], tmp_path)
    assert found(index, Like("t", ("common",)), seconds=0.001) is None
    assert found(index, Like("t", ("common word",)), seconds=0.001) is None
    assert found(index, Like("t", ("rare",)), seconds=0.01) == [5_000]
    assert found(index, Like("t", ("word word",)), seconds=0.0) == []
    answer = index.find([Like("t", ("common",))], 0.001)
    assert "5,000 rows" in answer.why


def test_unpacked_once_and_again_after_a_sweep(tmp_path: Path) -> None:
    built = KIND.build(text_source(pa.array(["dairy cow"]), tmp_path / "scratch"))
    stored = StoredBytes(built.payload, tmp_path / "cache")
    first, second = KIND.open(stored, [], {}), KIND.open(stored, [], {})
    assert stored.unpacked == 1
    search._SEARCHERS.clear()
    shutil.rmtree(tmp_path / "cache")
    assert found(first, Like("t", ("airy",))) == found(second, Like("t", ("cow",))) == [0]
    assert stored.unpacked == 2


def test_several_threads_ask_at_once(tmp_path: Path) -> None:
    index = opened([f"row {row} cow" for row in range(500)], tmp_path)
    wrong: list[int] = []

    def ask(number: int) -> None:
        wrong.extend(row for row in range(number, 500, 8) if found(index, Like("t", (f"row {row} c",))) != [row])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -- bytes that are not a payload --


def payload(tmp_path: Path) -> bytes:
    return KIND.build(text_source(pa.array(["dairy cow", "goat", None] * 40), tmp_path / "scratch")).payload


def test_damaged_bytes_are_noticed(tmp_path: Path) -> None:
    good, dice = payload(tmp_path), random.Random(5)
    damaged = [b"", b"NPTX", good[:-1], good + b"\0", good[: len(good) // 2], b"x" * 500]
    for at in (dice.randrange(len(good)) for _ in range(150)):
        damaged.append(good[:at] + bytes([good[at] ^ (1 << dice.randrange(8))]) + good[at + 1 :])  # noqa: PERF401
    for number, bad in enumerate(damaged):
        with pytest.raises(IndexDamaged):
            KIND.open(StoredBytes(bad, tmp_path / f"cache{number}"), [], {})


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/b", "..", ".x", "description.json", ""])
def test_files_stay_in_their_directory(tmp_path: Path, name: str) -> None:
    from needlepoint.indexes.text.payload import TextDescription, pack

    bad = pack(TextDescription("word", "", "", 0, 0, 0, ()), {name: b"x"})
    with pytest.raises(IndexDamaged):
        KIND.open(StoredBytes(bad, tmp_path / "cache"), [], {})


def test_unpacked_files_that_were_damaged(tmp_path: Path) -> None:
    good, dice = payload(tmp_path), random.Random(7)
    for number in range(60):
        stored = StoredBytes(good, tmp_path / f"cache{number}")
        index = KIND.open(stored, [], {})
        place = stored.cache / stored.checksum
        paths = sorted(path for path in place.iterdir() if path.stat().st_size)
        path = paths[number % len(paths)]
        content = bytearray(path.read_bytes())
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        path.unlink()
        path.write_bytes(content if number % 3 else content[: len(content) // 2])
        try:
            found(KIND.open(stored, [], {}), Like("t", ("airy co",)))
            found(index, Like("t", ("oat",)))
        except IndexDamaged:
            pass


def test_golden_payload(tmp_path: Path) -> None:
    """Payloads of earlier versions can be read with any installed version of tantivy."""
    expected = json.loads((GOLDEN / "text.json").read_text())
    for name in ("word", "trigram"):
        index = KIND.open(StoredBytes((GOLDEN / f"text-{name}.nptx").read_bytes(), tmp_path / name), [], {})
        for piece, rows in expected[name].items():
            assert found(index, Like("t", (piece,))) == rows, (name, piece)


def test_golden_payload_of_version_2(tmp_path: Path) -> None:
    """With the numbers of words, in three segments."""
    texts = ["Dairy cow", None, "cow cow goat", "", "a nondairy cowboy", "Straße cow"] * 40
    index = KIND.open(StoredBytes((GOLDEN / "text-word-2.nptx").read_bytes(), tmp_path), [], {})
    assert len(index.description.parts) == 3
    assert found(index, Like("t", ("airy cow",))) == [row for row in range(240) if row % 6 in (0, 4)]
    postings = index.postings(Word("cow"))
    assert postings is not None
    assert postings.rows.tolist() == [row for row in range(240) if row % 6 in (0, 2, 5)]
    assert postings.times.tolist() == [1, 2, 1] * 40
    assert postings.lengths.tolist() == [len((texts[row] or "").split()) for row in postings.rows]


@pytest.mark.parametrize("tokenizer", ["word", "trigram"])
def test_golden_payload_of_version_3(tmp_path: Path, tokenizer: str) -> None:
    """With postings in parts."""
    made = (GOLDEN / f"text-{tokenizer}-3.nptx").read_bytes()
    assert b".gaps" in made and b".idx" not in made
    index = KIND.open(StoredBytes(made, tmp_path), [], {})
    words = ["dairy", "cow", "goat", "nondairy", "Straße"]
    texts = [" ".join(words[row * step % 5] for step in range(row % 7)) for row in range(4000)]
    for piece in ("airy cow", "goat", "aße", "cow goat"):
        assert found(index, Like("t", (piece,))) == [row for row, text in enumerate(texts) if piece in text]
    postings = index.postings(Word("cow"))
    assert (postings is None) == (tokenizer == "trigram")
    if postings is not None:
        assert postings.rows.tolist() == [row for row, text in enumerate(texts) if "cow" in text]
        assert postings.times.tolist() == [text.count("cow") for text in texts if "cow" in text]
        assert postings.lengths.tolist() == [len(text.split()) for text in texts if "cow" in text]


# -- what can be indexed --


def test_check() -> None:
    text = pa.field("t", pa.large_string())
    KIND.check("x", [text], {})
    KIND.check("x", [text], {"tokenizer": "trigram"})
    with pytest.raises(NotIndexable, match="string column"):
        KIND.check("x", [pa.field("n", pa.int64())], {})
    with pytest.raises(NotIndexable, match="one column"):
        KIND.check("x", [text, text], {})
    with pytest.raises(UnknownName, match="Did you mean 'tokenizer'"):
        KIND.check("x", [text], {"tokeniser": "word"})
    with pytest.raises(UsageError, match="word, trigram"):
        KIND.check("x", [text], {"tokenizer": "bigram"})


def test_without_tantivy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tantivy", None)
    search.load_tantivy.cache_clear()
    try:
        with pytest.raises(UsageError, match=r"needlepoint\[text\]"):
            KIND.check("x", [pa.field("t", pa.string())], {})
    finally:
        search.load_tantivy.cache_clear()
