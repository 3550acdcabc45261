"""Build a text index: split texts into words; tantivy sorts them into postings.

A row is a document, so row numbers need not be stored: the documents of a segment are counted from its first row.
Tantivy closes a segment when its memory is full, and does not say at which row. So rows are indexed in parts that are
certain to fit, and the segments of all parts are then listed in one index, in the order of their rows. The first and
the last row of each part have a mark in a field of their own, by which a reader can verify its row numbers (search.py).

Each index that tantivy opens watches its directory in a thread until it is told not to, and nothing waits for the end
of that thread: late, on a busy machine, it can still create a lock file in a directory that is being removed. So each
directory is a new one, and one that cannot be removed is left to whoever removes the scratch directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.access import RowNumbers
from needlepoint.errors import NotIndexable
from needlepoint.indexes.base import ColumnSource, IndexPayload
from needlepoint.indexes.text.pairs import PairCounter
from needlepoint.indexes.text.patterns import padded
from needlepoint.indexes.text.payload import TextDescription, pack
from needlepoint.indexes.text.words import lettered, letters_in_use, libraries_in_use

TEXT, MARK = "t", "m"
AT_ONCE = 1 << 16  # rows
LONGEST_WORD = 65_530  # bytes; tantivy leaves out longer ones
LEAST_HEAP, MOST_HEAP = 32 << 20, 2 << 30
# Tantivy needs 1.3 bytes for a byte of text, 4 for its trigrams, and a hundred for a word it has not seen.
HEAP_PER_TEXT = {"word": 2, "trigram": 8}


class _PartTooLarge(Exception):
    """Tantivy closed a segment before its part was complete."""


def build(source: ColumnSource, tantivy: Any) -> IndexPayload:
    heap = min(max(source.memory // 2, LEAST_HEAP), MOST_HEAP)
    most_text = int(heap / HEAP_PER_TEXT[source.options.get("tokenizer", "word")])
    while True:
        try:
            return _TextBuilder(source, tantivy, heap, most_text).run()
        except _PartTooLarge:
            if most_text < 1 << 16:
                raise NotIndexable("the words of a few texts need more memory than a build may use.") from None
            most_text //= 4


class _TextBuilder:
    def __init__(self, source: ColumnSource, tantivy: Any, heap: int, most_text: int) -> None:
        self.source, self.tantivy, self.heap, self.most_text = source, tantivy, heap, most_text
        self.trigrams = source.options.get("tokenizer") == "trigram"
        self.place = _new_directory(source.scratch)
        self.pairs = PairCounter()
        self.parts: list[int] = []
        self.odd: list[RowNumbers] = []
        self.rows = self.texts = 0

    def run(self) -> IndexPayload:
        with _on_one_core():
            for documents in self._in_parts():
                self._write_part(documents)
        meta = self._join_parts()
        found = self._all_words()
        odd = np.concatenate([*self.odd, np.zeros(0, np.int64)])
        files = {path.name: path.read_bytes() for path in self.place.iterdir() if not path.name.startswith(".")}
        files["meta.json"] = meta
        files["words.arrow"] = _as_ipc(found)
        files["pairs"] = b"" if self.trigrams else self.pairs.packed()
        files["odd"] = odd.astype("<i8").tobytes()
        files["lengths"] = b"" if self.trigrams else packed_lengths(self.pairs.lengths)
        files["parts"] = b"" if self.trigrams or len(self.parts) == 1 else self._words_of_parts(found, meta)
        description = TextDescription(
            "trigram" if self.trigrams else "word",
            letters_in_use(),
            libraries_in_use(),
            self.rows,
            self.texts,
            self.pairs.words,
            tuple(self.parts),
        )
        shutil.rmtree(self.place, ignore_errors=True)
        return IndexPayload(pack(description, files), found.num_rows)

    def _in_parts(self) -> Iterator[Iterator[list[str]]]:
        """The rows as JSON documents, by part, some at a time."""
        chunks = self._chunks()
        for first in chunks:
            yield self._one_part(first, chunks)

    def _one_part(self, first: pa.Array, more: Iterator[pa.Array]) -> Iterator[list[str]]:
        size, chunk = 0, first
        while True:
            size += chunk.nbytes
            yield self._documents(chunk)
            if size + chunk.nbytes > self.most_text:
                return
            following = next(more, None)
            if following is None:
                return
            chunk = following

    def _chunks(self) -> Iterator[pa.Array]:
        for batch in self.source.batches():
            column = batch.column(0).cast(pa.large_string())
            at = 0
            while at < len(column):
                chunk = column.slice(at, AT_ONCE)
                # Fewer long texts at a time.
                share = self.most_text / 4 / max(chunk.nbytes, 1)
                chunk = chunk.slice(0, max(1, int(len(chunk) * min(share, 1))))
                at += len(chunk)
                yield chunk

    def _documents(self, texts: pa.Array) -> list[str]:
        texts, unreadable = _valid(texts)
        self.texts += len(texts) - texts.null_count
        content = lettered(texts)
        long = self.pairs.add(pc.fill_null(content, ""), LONGEST_WORD)
        if self.trigrams:
            long = long[:0]
        self.odd.append(self.rows + np.union1d(unreadable, long).astype(np.int64))
        self.rows += len(texts)
        content = pc.fill_null(padded(texts) if self.trigrams else content, "")
        kind = content.type
        head, tail = pa.scalar(f'{{"{TEXT}":"', kind), pa.scalar('"}', kind)
        # The texts have no character left that JSON escapes.
        documents: list[str] = pc.binary_join_element_wise(head, content, tail, pa.scalar("", kind)).to_pylist()
        return documents

    def _write_part(self, batches: Iterator[list[str]]) -> None:
        place = _new_directory(self.source.scratch)
        index = new_index(self.tantivy, place, self.trigrams)
        with _writer(index, self.heap) as writer:
            rows, last = 0, ""
            for documents in batches:
                if rows:
                    writer.add_json(last)
                else:
                    documents[0] = _marked(documents[0])
                # The last row of a part is known when there are no more.
                last = documents.pop() if documents else ""
                rows += len(documents) + 1
                deque(map(writer.add_json, documents), maxlen=0)
            writer.add_json(_marked(last))
            writer.commit()
        meta = json.loads((place / "meta.json").read_bytes())
        if [segment["max_doc"] for segment in meta["segments"]] != [rows]:
            raise _PartTooLarge
        old = meta["segments"][0]["segment_id"].replace("-", "")
        for path in place.iterdir():
            if path.stem == old:
                path.rename(self.place / f"{segment_name(len(self.parts))}{path.suffix}")
        self.parts.append(rows)
        shutil.rmtree(place, ignore_errors=True)

    def _join_parts(self) -> bytes:
        """List the segments of all parts in one index. They are numbered, so that equal texts make equal payloads."""
        new_index(self.tantivy, self.place, self.trigrams)
        meta = json.loads((self.place / "meta.json").read_bytes())
        meta["segments"] = [
            {"segment_id": _dashed(segment_name(part)), "max_doc": rows, "deletes": None}
            for part, rows in enumerate(self.parts)
        ]
        meta["opstamp"] = 1
        encoded = json.dumps(meta).encode()
        (self.place / "meta.json").write_bytes(encoded)
        return encoded

    def _all_words(self) -> pa.Table:
        """Of the segments that are listed."""
        index = self.tantivy.Index.open(str(self.place))
        index.config_reader("manual")
        searcher = index.searcher()
        found = dict(searcher.terms_with_prefix(TEXT, ""))
        words = pa.array(found, pa.large_string()).cast(pa.large_binary())
        table = pa.table({"word": words, "rows": pa.array(found.values(), pa.int64())})
        return table.sort_by("word")

    def _words_of_parts(self, every: pa.Table, meta: bytes) -> bytes:
        """Which of all words each segment has: a segment numbers its own words only."""
        listed, bits = json.loads(meta), []
        for segment in listed["segments"]:
            (self.place / "meta.json").write_text(json.dumps({**listed, "segments": [segment]}))
            words = self._all_words().column("word").combine_chunks()
            there = pc.is_in(every.column("word"), value_set=words)
            bits.append(np.packbits(there.to_numpy()).tobytes())
        return b"".join(bits)


def _new_directory(scratch: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=scratch))


def new_index(tantivy: Any, place: Path, trigrams: bool) -> Any:
    """An empty index, without norms: they score texts by length, and this index computes no scores."""
    schema = tantivy.SchemaBuilder()
    schema.add_text_field(TEXT, tokenizer_name="needlepoint", index_option="basic" if trigrams else "position")
    schema.add_text_field(MARK, tokenizer_name="raw", index_option="basic")
    tantivy.Index(schema.build(), path=str(place)).config_reader("manual")
    meta = json.loads((place / "meta.json").read_bytes())
    for field in meta["schema"]:
        field["options"]["indexing"]["fieldnorms"] = False
    (place / "meta.json").write_text(json.dumps(meta))
    index = tantivy.Index.open(str(place))
    # Other readers watch the directory in a thread, and create a lock in it for that.
    index.config_reader("manual")
    kinds = tantivy.Tokenizer
    tokenizer = kinds.ngram(3, 3, prefix_only=False) if trigrams else kinds.whitespace()
    index.register_tokenizer("needlepoint", tantivy.TextAnalyzerBuilder(tokenizer).build())
    return index


@contextlib.contextmanager
def _writer(index: Any, heap: int) -> Iterator[Any]:
    """A writer whose threads have ended afterwards. Also after an error: the exception keeps the writer alive, and a
    thread that is still writing makes removing the directory fail."""
    writer = index.writer(heap_size=heap, num_threads=1)
    try:
        yield writer
    except BaseException:
        with contextlib.suppress(Exception):
            writer.wait_merging_threads()
        raise
    writer.wait_merging_threads()


def packed_lengths(lengths: Sequence[npt.NDArray[np.uint32]]) -> bytes:
    every = np.concatenate([*lengths, np.zeros(0, np.uint32)])
    width = np.min_scalar_type(int(every.max(initial=0))).itemsize
    return every.astype(f"<u{width}").tobytes()


def _marked(document: str) -> str:
    return f'{document[:-1]},"{MARK}":"edge"}}'


def segment_name(part: int) -> str:
    """The name of the files of a part."""
    return f"{part + 1:032x}"


def _dashed(segment: str) -> str:
    return "-".join([segment[:8], segment[8:12], segment[12:16], segment[16:20], segment[20:]])


def _valid(texts: pa.Array) -> tuple[pa.Array, RowNumbers]:
    """The texts, with NULL for those that are not UTF-8, and the positions of these."""
    try:
        texts.validate(full=True)
        return texts, np.zeros(0, np.int64)
    except pa.ArrowInvalid:
        values = texts.cast(pa.large_binary()).to_pylist()
        bad = [at for at, value in enumerate(values) if value is not None and not _is_text(value)]
        for at in bad:
            values[at] = None
        return pa.array(values, pa.large_binary()).cast(pa.large_string()), np.array(bad, np.int64)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _as_ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    written: bytes = sink.getvalue().to_pybytes()
    return written


@contextlib.contextmanager
def _on_one_core() -> Iterator[None]:
    """Tantivy hands each document to a thread. On two cores each hand-over wakes the thread: the same titles took twice
    the processor time, and longer, than on one core."""
    try:
        allowed = os.sched_getaffinity(0)
        # proc(5), stat: field 39 is the processor; fields are counted behind the name, which may hold anything.
        here = int(Path("/proc/thread-self/stat").read_text().rpartition(")")[2].split()[36])
        os.sched_setaffinity(0, {here})
    except (AttributeError, OSError, ValueError, IndexError):
        yield
        return
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
