"""An open text index: rows with words, phrases and prefixes, and rows that can match LIKE.

`find` takes cheap steps first, and stops when the answer is known: which words the conditions need (patterns.py),
whether the file has them and what to search (plan.py), and only then tantivy's postings. If a scan is faster than the
search and reading what it finds, there is no answer.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from needlepoint.access import RowNumbers, Rows
from needlepoint.errors import UsageError
from needlepoint.indexes.base import Answer, Condition, PayloadHandle
from needlepoint.indexes.text.build import MARK, TEXT, segment_name
from needlepoint.indexes.text.evaluation import near
from needlepoint.indexes.text.pairs import PairTable
from needlepoint.indexes.text.patterns import TRIGRAMS, WORDS, WordPattern, WordSequence, WordSequences, wanted
from needlepoint.indexes.text.payload import TextDescription, described, mapped, unpack
from needlepoint.indexes.text.plan import (
    NOWHERE,
    PER_HIT,
    PER_OPTION,
    PER_ROW_OF_ALL,
    PER_ROW_READ,
    QueryPlanner,
    TantivyQuery,
    Vocabulary,
)
from needlepoint.indexes.text.postings import OtherFormat, SegmentPostings
from needlepoint.indexes.text.query_language import Fuzzy, Prefix, Term, Word, parse
from needlepoint.indexes.text.ranking import Postings
from needlepoint.indexes.text.words import letters_in_use, libraries_in_use
from needlepoint.parquet import ByteCache
from needlepoint.predicate import TextMatch
from needlepoint.printable import count
from needlepoint.stores import IndexDamaged

MOST_WORDS_OF_A_TERM = 1000  # whose postings are read for a score
MOST_OPEN = 64  # indexes of a process; for each, a thread of tantivy watches its directory
# Files whose checksums were verified in the last so many seconds are opened without verifying them again.
JUST_CHECKED = 1.0

_SEARCHERS: ByteCache[tuple[Any, Any]] = ByteCache(MOST_OPEN)


@functools.cache
def load_tantivy() -> Any:
    try:
        import tantivy
    except ImportError as error:
        raise UsageError(
            "text indexes need tantivy, which is not installed.", hint="Install needlepoint[text]."
        ) from error
    return tantivy


@contextlib.contextmanager
def tantivy_failures() -> Iterator[None]:
    """Translate what tantivy raises to IndexDamaged. Its panics are not Exceptions."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, IndexDamaged, UsageError):
        raise
    except BaseException as error:
        raise IndexDamaged(f"a text index cannot be read: {str(error)[:200]}.") from error


class TextIndex:
    """Rows are ascending, and never too few: rows that the index does not describe (`odd`) are in all answers."""

    def __init__(self, stored: PayloadHandle) -> None:
        self._stored = stored
        self._lock = threading.Lock()
        self._tantivy = load_tantivy()
        self._unpack()
        try:
            self.description: TextDescription = described(self._directory)
            self.odd: RowNumbers = np.frombuffer((self._directory / "odd").read_bytes(), "<i8").astype(np.int64)
            self.vocabulary = _vocabulary(self._directory / "words.arrow")
            pairs = PairTable((self._directory / "pairs").read_bytes())
            self._lengths = _lengths(self._directory / "lengths", self.description.rows)
            self._parts = _words_of_parts(self._directory, self.description.parts, len(self.vocabulary))
            if len(self.odd) and (self.odd.min() < 0 or self.odd.max() >= self.description.rows):
                raise ValueError("its odd rows are outside of its rows")
        except (ValueError, KeyError, TypeError, OSError, pa.ArrowException) as error:
            raise IndexDamaged(f"a text index is damaged: {error}.") from error
        self._planner = QueryPlanner(TEXT, self.description.rows, self.total_words, self.vocabulary, pairs)
        self._segments: list[SegmentPostings] | None = None
        self._firsts = np.concatenate(([0], np.cumsum(self.description.parts)))[:-1].astype(np.int64)
        self._tokenizer = TRIGRAMS if self.description.tokenizer == "trigram" else WORDS
        # Built with other tables of letters, the index is asked for ASCII only.
        self._certain = None if _same_letters(self.description) else str.isascii
        parts = 0 if self._parts is None else self._parts.nbytes
        self.memory = 10_000 + self.odd.nbytes + len(pairs) + parts  # words, postings and lengths are mapped

    def close(self) -> None:
        """Let tantivy's threads and files go. A search that still runs opens them again."""
        _SEARCHERS.discard(lambda key: key == self._key)

    @property
    def texts(self) -> int:
        """Rows that are not NULL."""
        return self.description.texts

    @property
    def total_words(self) -> int:
        """Words of all texts, each as often as it occurs."""
        return self.description.total_words

    @property
    def by_words(self) -> bool:
        """Whether the index has whole words. If not (trigrams, or built with other Unicode tables), methods that take
        words answer None: any row can have them."""
        return self._tokenizer is WORDS and self._certain is None

    def document_frequency(self, word: str) -> int | None:
        """In how many rows the word, as `words()` gives it, occurs; odd rows are not counted."""
        if not self.by_words:
            return None
        return int(self.vocabulary.rows[self.vocabulary.matching(WordPattern(word))].sum())

    def rows_with(self, word: str) -> RowNumbers | None:
        """The word, as `words()` gives it."""
        return self.rows_with_phrase([word])

    def rows_with_phrase(self, words: Sequence[str]) -> RowNumbers | None:
        """The words, one directly after the other."""
        return self._rows(self._planner.one(WordSequence(tuple(map(WordPattern, words))))) if self.by_words else None

    def rows_with_prefix(self, prefix: str) -> RowNumbers | None:
        """A word that begins so."""
        return (
            self._rows(self._planner.one(WordSequence((WordPattern(prefix, open_right=True),))))
            if self.by_words
            else None
        )

    def rows_with_fuzzy(self, word: str, distance: int) -> RowNumbers | None:
        """A word that becomes this one with at most `distance` (0 to 2) letters added, left out or changed, or two
        neighbours exchanged."""
        return self._rows(self._planner.fuzzy(Fuzzy(word, distance))) if self.by_words else None

    def postings(self, term: Term) -> Postings | None:
        """The rows that have a term, how often, and how many words each has; None when the texts must be read."""
        if not self.by_words or len(self.odd) or self._lengths is None:
            return None
        words = self._fitting(term)
        if len(words) > MOST_WORDS_OF_A_TERM:
            return None
        try:
            found = [part for segment in self._opened_segments() for part in self._of_segment(segment, words)]
        except OtherFormat:
            return None
        if not found:
            nothing = np.zeros(0, np.int64)
            return Postings(nothing, nothing, nothing)
        rows, times = (np.concatenate(each) for each in zip(*found, strict=True))
        if len(words) == 1 and len(rows) != self.vocabulary.rows[words[0]]:
            raise IndexDamaged("the postings of a text index are damaged.")
        if len(words) > 1:
            rows, places = np.unique(rows, return_inverse=True)
            times = np.bincount(places, times, len(rows)).astype(np.int64)
        return Postings(rows, times, self._lengths[rows].astype(np.int64))

    def _fitting(self, term: Term) -> RowNumbers:
        """The words of a term, by their places in the vocabulary."""
        match term:
            case Word(text):
                return self.vocabulary.matching(WordPattern(text))
            case Prefix(text):
                return self.vocabulary.matching(WordPattern(text, open_right=True))
            case Fuzzy(text, distance):
                return np.flatnonzero(near(self.vocabulary.words.cast(pa.large_string()), text, distance))

    def _of_segment(self, part: int, words: RowNumbers) -> Iterator[tuple[RowNumbers, RowNumbers]]:
        assert self._segments is not None
        segment, numbers = self._segments[part], words
        if self._parts is not None:
            numbers = np.cumsum(self._parts[part])[words[self._parts[part][words]]] - 1
        for number in numbers.tolist():
            rows, times = segment.of(number)
            yield rows + self._firsts[part], times

    def _opened_segments(self) -> range:
        """The numbers of the segments, which are open then."""
        with self._lock:
            if self._segments is None:
                try:
                    self._segments = self._open_segments()
                except IndexDamaged:  # it may have been swept, as in _opened
                    self._unpack()
                    self._segments = self._open_segments()
        return range(len(self._segments))

    def _open_segments(self) -> list[SegmentPostings]:
        found = []
        for part, rows in enumerate(self.description.parts):
            try:
                files = [mapped(self._directory / f"{segment_name(part)}.{kind}") for kind in ("term", "idx")]
            except OSError as error:
                raise IndexDamaged(f"a file of a text index cannot be read: {error}.") from error
            segment = SegmentPostings(files[0], files[1], rows)
            words = len(self.vocabulary) if self._parts is None else int(self._parts[part].sum())
            if segment.words != words:
                raise IndexDamaged("a segment of a text index has other words.")
            found.append(segment)
        return found

    def find(self, conditions: Sequence[Condition], seconds: float) -> Answer:
        asked = [wanted(condition, self._tokenizer, self._certain) for condition in conditions]
        understood = [options for options in asked if options is not None]
        queries = [each.query for each in conditions if isinstance(each, TextMatch)] if self.by_words else []
        if not understood and not queries:
            return Answer(None, "nothing that words can answer")
        shown = " ".join(filter(None, [_shown(understood), *queries]))
        if sum(map(len, understood)) * PER_OPTION > seconds + PER_OPTION:
            return Answer(None, f"{shown}: a scan is faster")
        parts = [each for text in queries if (each := self._planner.matching(parse(text))) is not None]
        if understood:
            parts.append(self._query(understood))
        if not parts:
            return Answer(None, f"{shown}: only excluded words")
        query = self._planner.both(parts)
        reading = min(query.expected * PER_ROW_READ, self._planner.rows * PER_ROW_OF_ALL)
        if query.seconds + query.expected * PER_HIT + reading > seconds:
            return Answer(None, f"{shown}: about {query.expected:,.0f} rows, a scan is faster")
        rows = self._rows(query)
        # One phrase finds little that does not match; several, or trigrams, may occur in another order.
        exact = self._tokenizer is WORDS and all(len(runs) == 1 for options in understood for runs in options)
        return Answer(Rows.of(rows), f"{shown}: {count(len(rows), 'row')}", exact)

    def _query(self, understood: Sequence[Sequence[WordSequences]]) -> TantivyQuery:
        together = [run for options in understood if len(options) == 1 for run in options[0]]
        parts = [self._planner.all_of(together)] if together else []
        for options in understood:
            if NOWHERE in parts:
                break
            if len(options) != 1:
                parts.append(self._planner.any_of(options))
        return self._planner.both(parts)

    def _rows(self, query: TantivyQuery) -> RowNumbers:
        if query.most == 0:
            return self.odd
        with tantivy_failures():
            searcher, schema = self._opened()
            # A constant score saves scoring.
            unscored = self._tantivy.Query.const_score_query(query.query(self._tantivy, schema), 1.0)
            # Tantivy allocates the limit before it searches.
            hits = searcher.search(unscored, limit=max(1, min(query.most, searcher.num_docs)), count=False).hits
            rows: RowNumbers = np.fromiter((hit[1].doc for hit in hits), np.int64, len(hits))
            if len(self._firsts) > 1:
                rows += self._firsts[np.fromiter((hit[1].segment_ord for hit in hits), np.int64, len(hits))]
        rows.sort()
        return np.union1d(rows, self.odd) if len(self.odd) else rows

    def _unpack(self) -> None:
        """Find the files, with every byte as it was written. The inode distinguishes the directory from an earlier one
        at the same path: searchers of that one may be damaged."""
        self._directory = self._stored.directory(unpack)
        self._key = (str(self._directory), self._directory.stat().st_ino)
        self._checked = time.monotonic()

    def _opened(self) -> tuple[Any, Any]:
        """Tantivy's searcher and schema."""
        held = _SEARCHERS.get(self._key)
        if held is not None:
            return held
        with self._lock:
            if time.monotonic() - self._checked > JUST_CHECKED:
                self._unpack()
            try:
                found = _open(self._directory, self.description.parts)
            except IndexDamaged:
                # It may have been swept: unpack it again, to the same place.
                self._unpack()
                found = _open(self._directory, self.description.parts)
            _SEARCHERS.put(self._key, found, 1)
        return found


def _same_letters(description: TextDescription) -> bool:
    return description.libraries == libraries_in_use() or description.letters == letters_in_use()


def _open(directory: Path, parts: tuple[int, ...]) -> tuple[Any, Any]:
    tantivy = load_tantivy()
    with tantivy_failures():
        index = tantivy.Index.open(str(directory))
        index.config_reader("manual")
        searcher, schema = index.searcher(), index.schema
        marks = searcher.search(tantivy.Query.term_query(schema, MARK, "edge"), limit=2 * len(parts) + 2).hits
    edges = {(hit[1].segment_ord, hit[1].doc) for hit in marks}
    if edges != {(part, row) for part, rows in enumerate(parts) for row in (0, rows - 1)}:
        raise IndexDamaged("the rows of a text index are not where they should be.")
    return searcher, schema


def _lengths(path: Path, rows: int) -> npt.NDArray[Any] | None:
    """The number of words of each row; None if the index has none."""
    size = path.stat().st_size if path.exists() else 0
    if not size or not rows:
        return None
    width, rest = divmod(size, rows)
    if rest or width not in (1, 2, 4):
        raise ValueError("it has another number of lengths")
    return np.frombuffer(mapped(path), f"<u{width}")


def _words_of_parts(directory: Path, parts: Sequence[int], words: int) -> npt.NDArray[np.bool_] | None:
    """Which words each segment has; None if there is one segment, or if it is not known."""
    path = directory / "parts"
    size = path.stat().st_size if path.exists() else 0
    if not size:
        return None
    width = -(-words // 8)
    if size != width * len(parts):
        raise ValueError("it has other words of its segments")
    bits = np.frombuffer(path.read_bytes(), np.uint8).reshape(len(parts), width)
    return np.unpackbits(bits, axis=1, count=words).astype(np.bool_)


def _vocabulary(path: Path) -> Vocabulary:
    table = pa.ipc.open_file(mapped(path)).read_all().combine_chunks()
    table.validate(full=True)  # an offset outside would crash the process
    words, rows = table.column("word"), table.column("rows")
    if words.type != pa.large_binary() or rows.type != pa.int64() or words.null_count or rows.null_count:
        raise ValueError("its words are of another type")
    if len(table) == 0:
        return Vocabulary(pa.array([], pa.large_binary()), np.zeros(0, np.int64))
    return Vocabulary(words.chunk(0), rows.chunk(0).to_numpy())


def _shown(understood: Iterable[Sequence[WordSequences]]) -> str:
    runs = dict.fromkeys(run for options in understood for runs in options for run in runs)
    text = " ".join(f"'{run}'" for run in runs)
    return text if len(text) < 80 else f"{text[:77]}…"
