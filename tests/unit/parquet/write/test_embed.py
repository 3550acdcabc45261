"""Indexes are embedded in a Parquet file and removed again; its data and the rest of its footer do not change."""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from needlepoint.errors import FileChanged, FileError, NameTaken, NotParquet, PayloadDamaged, UsageError
from needlepoint.objects import Identity, identify, open_object, replacing
from needlepoint.parquet.format import footer_edit, thrift
from needlepoint.parquet.format.footer import parse_footer, read_footer
from needlepoint.parquet.write import value_list
from needlepoint.parquet.write.embed import (
    EmbeddedEntry,
    EmbeddedIndexes,
    EmbeddingWriter,
    Payload,
    embed,
    embedded,
    read_payload,
    remove,
)
from needlepoint.parquet.write.embedded import INDEXES, LARGEST, checksum, fingerprint

GOLDEN = Path(__file__).parents[3] / "golden"
KEY = Payload("key", ("id",), 1, b"key " * 1000)
TEXT = Payload("text", ("title",), 3, b"", {"tokens": ["a", "b"], "exact": True})
NOISE = Payload("distinct", ("id", "title"), 2, np.random.default_rng(0).bytes(3000))


def table(rows: int = 1000) -> pa.Table:
    return pa.table({"id": pa.array(range(rows), pa.int64()), "title": [f"title {number}" for number in range(rows)]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file.parquet"
    pq.write_table(table(), path, write_page_index=True, bloom_filter_options={"id": {"ndv": 1000}}, row_group_size=300)
    return path


def listed(path: Path | str) -> EmbeddedIndexes:
    with open_object(str(path)) as file:
        return embedded(file, read_footer(file))


def contents(path: Path | str) -> dict[tuple[str, tuple[str, ...]], bytes]:
    with open_object(str(path)) as file:
        found = embedded(file, read_footer(file))
        assert found.ignored == ()
        return {(entry.kind, entry.columns): read_payload(file, entry) for entry in found.entries}


def expected(*payloads: Payload) -> dict[tuple[str, tuple[str, ...]], bytes]:
    return {(payload.kind, payload.columns): payload.data for payload in payloads}


def with_key(path: Path, value: bytes) -> None:
    """Replace the value of the footer key."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    raw = footer_edit.with_key(data[-8 - length : -8], INDEXES, value)
    path.write_bytes(data[: -8 - length] + footer_edit.tail(raw))


def entries_of(path: Path) -> list[dict[str, object]]:
    with open_object(str(path)) as file:
        found: list[dict[str, object]] = json.loads(dict(read_footer(file).key_value)[INDEXES] or b"")
        return found


def test_what_is_embedded_is_read_again(path: Path) -> None:
    before = path.read_bytes()
    identity = embed(str(path), [KEY, TEXT, NOISE])
    assert identity == identify(str(path)) != Identity(len(before), 0)
    assert contents(path) == expected(KEY, TEXT, NOISE)
    assert pq.read_table(path).equals(table())
    entries = listed(path).entries
    assert [entry.codec for entry in entries] == ["zstd", "none", "none"]
    assert (entries[1].version, entries[1].options) == (3, {"tokens": ["a", "b"], "exact": True})
    assert listed(path).find("text", "title") == entries[1]
    assert listed(path).find("text", "id") is None


def test_removing_all_gives_the_file_as_it_was(path: Path) -> None:
    before = path.read_bytes()
    embed(str(path), [KEY, TEXT])
    embed(str(path), [NOISE])
    remove(str(path), lambda entry: entry.kind == "key")
    assert contents(path) == expected(TEXT, NOISE)
    identity = remove(str(path), lambda entry: True)
    assert path.read_bytes() == before
    assert remove(str(path), lambda entry: True) == identity  # nothing to do


@pytest.mark.parametrize("page_index", [False, True])
def test_both_ways_make_the_same_file(tmp_path: Path, page_index: bool) -> None:
    appended, finished = tmp_path / "appended.parquet", tmp_path / "finished.parquet"
    pq.write_table(table(), appended, write_page_index=page_index)
    embed(str(appended), [KEY, NOISE])
    with EmbeddingWriter(finished, table().schema, write_page_index=page_index) as writer:
        writer.write_table(table())
        writer.add(KEY)
        writer.add(NOISE)
    assert finished.read_bytes() == appended.read_bytes()


def test_the_writer_takes_batches_keys_and_any_sink() -> None:
    sink = BytesIO()
    with EmbeddingWriter(sink, table().schema) as writer:
        for batch in table().to_batches(max_chunksize=100):
            writer.write_batch(batch)
        writer.add(Payload("key", ("id",), 1, b"an earlier one"))
        writer.add(KEY)
        writer.add_key_value_metadata({"mine": "kept"})
    data = sink.getvalue()
    assert pq.read_table(BytesIO(data)).equals(table())
    keys = pq.read_metadata(BytesIO(data)).metadata
    assert keys[b"mine"] == b"kept"
    assert [entry["length"] for entry in json.loads(keys[INDEXES])] == [len(pa.Codec("zstd").compress(KEY.data)) + 4]
    plain = BytesIO()
    with EmbeddingWriter(plain, table().schema) as writer:
        writer.write_table(table())
    usual = BytesIO()
    pq.write_table(table(), usual)
    assert plain.getvalue() == usual.getvalue()


def test_a_writer_that_fails_leaves_no_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    with pytest.raises(ZeroDivisionError), EmbeddingWriter(path, table().schema) as writer:
        writer.write_table(table())
        _ = 1 / 0
    with pytest.raises(NotParquet), open_object(str(path)) as file:
        read_footer(file)


def test_embedding_again_and_again_does_not_grow_the_file(path: Path) -> None:
    embed(str(path), [KEY, NOISE, TEXT])
    size = path.stat().st_size
    for number in range(12):
        kind = (KEY, NOISE, TEXT)[number % 3]
        embed(str(path), [Payload(kind.kind, kind.columns, kind.version, kind.data, kind.options)])
        assert path.stat().st_size == size
    assert contents(path) == expected(KEY, NOISE, TEXT)


def test_replacing_can_be_forbidden(path: Path) -> None:
    embed(str(path), [KEY])
    before = path.read_bytes()
    with pytest.raises(NameTaken, match="key of id"):
        embed(str(path), [TEXT, KEY], replace=False)
    with pytest.raises(UsageError, match="two indexes"):
        embed(str(path), [TEXT, TEXT])
    assert path.read_bytes() == before
    embed(str(path), [TEXT], replace=False)
    assert contents(path) == expected(KEY, TEXT)


def test_another_file_than_planned_is_refused(path: Path) -> None:
    planned = identify(str(path))
    embed(str(path), [KEY], identity=planned)
    for change in (
        lambda: embed(str(path), [TEXT], identity=planned),
        lambda: remove(str(path), bool, identity=planned),
    ):
        with pytest.raises(FileChanged):
            change()
    assert contents(path) == expected(KEY)


def test_keys_copied_into_a_rewritten_file_are_ignored_and_reported(path: Path) -> None:
    embed(str(path), [KEY, TEXT])
    copied = dict(pq.read_metadata(path).metadata)
    pq.write_table(table(999).replace_schema_metadata(copied), path)
    found = listed(path)
    assert found.entries == ()
    assert [(what, "other data" in why) for what, why in found.ignored] == [
        ("key of id", True),
        ("text of title", True),
    ]
    embed(str(path), [NOISE])  # cleans up
    assert contents(path) == expected(NOISE)


def test_a_file_of_the_same_fingerprint_lacks_the_bytes(tmp_path: Path) -> None:
    """Uncompressed values of the same size within the same bounds: only the checksum shows the difference."""
    path = tmp_path / "file.parquet"
    options: dict[str, object] = {"compression": "none", "use_dictionary": False}
    pq.write_table(pa.table({"id": [0, 1, 2, 3, 9]}), path, **options)
    for payload in (KEY, TEXT):
        embed(str(path), [payload])
        keys = dict(pq.read_metadata(path).metadata)
        pq.write_table(pa.table({"id": [0, 1, 2, 4, 9]}).replace_schema_metadata(keys), path, **options)
        for entry in listed(path).entries:
            with open_object(str(path)) as file, pytest.raises((PayloadDamaged, NotParquet)):
                read_payload(file, entry)


@pytest.mark.parametrize(
    "value",
    [b"", b"[", b"{}", b"7", b"null", b"[" * 100_000, b"\xff", b'[1, null, "x", [], {}]', b'[{"kind": "key"}]'],
)
def test_nonsense_in_the_key_is_ignored(path: Path, value: bytes) -> None:
    with_key(path, value)
    found = listed(path)
    assert found.entries == ()
    assert found.ignored
    assert pq.read_table(path).equals(table())
    remove(str(path), lambda entry: False)
    assert listed(path) == EmbeddedIndexes(())


@pytest.mark.parametrize(
    "change",
    [
        {"offset": -1}, {"offset": 0}, {"offset": 10**30}, {"offset": 1.5}, {"offset": True}, {"length": -1},
        {"length": 0}, {"length": 2**63}, {"size": -1}, {"size": LARGEST + 1}, {"size": None}, {"columns": "id"},
        {"columns": [1]}, {"kind": 7}, {"codec": None}, {"options": []}, {"version": "1"}, {"version": -1},
        {"fingerprint": "0"}, {"checksum": 0},
    ],
)  # fmt: skip
def test_hostile_entries_are_ignored(path: Path, change: dict[str, object]) -> None:
    embed(str(path), [KEY, TEXT])
    first, second = entries_of(path)
    with_key(path, json.dumps([first | change, second]).encode())
    found = listed(path)
    assert [entry.kind for entry in found.entries] == ["text"]
    assert len(found.ignored) == 1


def test_an_entry_that_points_at_the_data_destroys_nothing(path: Path) -> None:
    """Even with a correct checksum and fingerprint, everything that the footer refers to is kept."""
    with open_object(str(path)) as file:
        metadata = read_footer(file)
        end = file.size - 8 - len(metadata.raw)
        chunk = metadata.row_groups[-1].columns[-1]
        for start in (4, chunk.start, chunk.offset_index_offset or 0):
            stored = file.read(start, end - start)
            lie = EmbeddedEntry(
                "lie", ("id",), 1, start, len(stored), "none", 1, checksum(stored), fingerprint(metadata)
            )
            with_key(path, json.dumps([lie.to_dict()]).encode())
            assert len(listed(path).entries) == 1
            remove(str(path), lambda entry: True)
            assert listed(path) == EmbeddedIndexes(())
            assert pq.read_table(path).equals(table())


def test_damaged_payloads_are_errors_of_ours(path: Path) -> None:
    embed(str(path), [KEY, NOISE])
    entry = listed(path).entries[0]
    data = bytearray(path.read_bytes())
    data[entry.offset + 10] ^= 1
    path.write_bytes(data)
    with open_object(str(path)) as file, pytest.raises(PayloadDamaged, match=r"key of id.*checksum.*Embed the index"):
        read_payload(file, entry)
    assert contents_of(path, "distinct") == NOISE.data
    embed(str(path), [KEY])
    assert contents(path) == expected(KEY, NOISE)


def contents_of(path: Path, kind: str) -> bytes:
    with open_object(str(path)) as file:
        (entry,) = (entry for entry in embedded(file, read_footer(file)).entries if entry.kind == kind)
        return read_payload(file, entry)


def forge(path: Path, stored: bytes, **change: object) -> None:
    """Replace the only payload of the file, with a correct checksum."""
    entry, *others = entries_of(path)
    assert not others
    data = path.read_bytes()
    start, length = int(str(entry["offset"])), int(str(entry["length"]))
    path.write_bytes(data[:start] + stored + data[start + length :])
    with_key(path, json.dumps([entry | {"length": len(stored), "checksum": checksum(stored)} | change]).encode())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"codec": "zip"}, "packed with 'zip'"),
        ({"size": 3999}, "larger than it says"),
        ({"size": 4001}, "should have 4001"),
        ({"codec": "none"}, "should have 4000"),
    ],
)
def test_entries_that_do_not_fit_their_payload(path: Path, change: dict[str, object], problem: str) -> None:
    embed(str(path), [KEY])
    start = listed(path).entries[0]
    stored = path.read_bytes()[start.offset : start.offset + start.length]
    forge(path, stored, **change)
    with pytest.raises(PayloadDamaged, match=problem):
        contents(path)


def test_a_bomb_is_limited_by_the_size_it_claims(path: Path) -> None:
    embed(str(path), [KEY])
    bomb = pa.Codec("zstd").compress(bytes(1 << 28), asbytes=True)
    forge(path, b"NPX1" + bomb)
    before = pa.total_allocated_bytes()
    with pytest.raises(PayloadDamaged, match="larger than it says"):
        contents(path)
    assert pa.total_allocated_bytes() - before < 1 << 20
    forge(path, b"NPX1" + b"not zstd at all", size=1000)
    with pytest.raises(PayloadDamaged, match="cannot be unpacked"):
        contents(path)


def test_a_small_payload_that_claims_much_is_refused_unread(path: Path) -> None:
    embed(str(path), [KEY])
    bomb = pa.Codec("zstd").compress(bytes(1 << 28), asbytes=True)
    forge(path, b"NPX1" + bomb, size=1 << 28)
    with pytest.raises(PayloadDamaged, match="claims 268,435,456 bytes in"):
        contents(path)
    forge(path, b"NPX1" + b"not zstd at all", size=LARGEST)
    with pytest.raises(PayloadDamaged, match="claims 2,147,483,647 bytes in 19"):
        contents(path)


def test_what_packs_too_well_is_stored_as_it_is(path: Path) -> None:
    """So no payload that we embed is refused when it is read."""
    zeros = Payload("key", ("id",), 1, bytes(4 << 20))
    embed(str(path), [zeros])
    assert listed(path).entries[0].codec == "none"
    assert contents(path) == expected(zeros)


def test_unknown_fields_of_the_footer_are_kept(path: Path) -> None:
    """Fields of the file, of a row group and of a chunk, as a later version of the format may have."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    raw = data[-8 - length : -8]
    group = thrift.parse(raw).structs(4)[0]
    chunk = group.structs(1)[0]
    new_chunk = thrift.rewrite(raw, chunk.start, {40: (thrift.I64, thrift.zigzag(7))})
    chunks = [new_chunk, *(raw[each.start : each.end] for each in group.structs(1)[1:])]
    columns = thrift.list_header(thrift.STRUCT, len(chunks)) + b"".join(chunks)
    new_group = thrift.rewrite(raw, group.start, {1: (thrift.LIST, columns), 90: (thrift.TRUE, b"")})
    groups = [new_group, *(raw[each.start : each.end] for each in thrift.parse(raw).structs(4)[1:])]
    listed_groups = thrift.list_header(thrift.STRUCT, len(groups)) + b"".join(groups)
    raw = thrift.rewrite(raw, 0, {4: (thrift.LIST, listed_groups), 32767: (thrift.BINARY, b"\x03new")})
    path.write_bytes(data[: -8 - length] + footer_edit.tail(raw))
    before = path.read_bytes()

    embed(str(path), [KEY])
    with open_object(str(path)) as file:
        found = thrift.parse(read_footer(file).raw)
    assert found.binary(32767) == b"new"
    assert found.structs(4)[0].optional_boolean(90) is True
    assert found.structs(4)[0].structs(1)[0].integer64(40) == 7
    remove(str(path), lambda entry: True)
    assert path.read_bytes() == before


def test_the_fingerprint_is_of_the_data(tmp_path: Path) -> None:
    def found(data: pa.Table, **options: object) -> str:
        sink = BytesIO()
        pq.write_table(data, sink, **options)
        raw = sink.getvalue()
        return fingerprint(parse_footer(raw[-8 - int.from_bytes(raw[-8:-4], "little") : -8]))

    usual = found(table())
    assert usual == found(table().replace_schema_metadata({"key": "value"}), store_schema=True)
    others = {
        found(table(), compression="zstd"),
        found(table(), row_group_size=100),
        found(table(), write_page_index=True),  # page headers then have no bounds
        found(table(1001)),
        found(table().rename_columns(["a", "title"])),
        found(table().set_column(0, "id", pa.array(range(1, 1001), pa.int64()))),
    }
    assert usual not in others


def test_encrypted_and_broken_files_are_refused(tmp_path: Path, path: Path) -> None:
    whole = path.read_bytes()
    path.unlink()
    length = int.from_bytes(whole[-8:-4], "little")
    # FileMetaData.encryption_algorithm, in a footer that is not encrypted itself
    signed = thrift.rewrite(whole[-8 - length : -8], 0, {8: (thrift.STRUCT, b"\0")})
    for name, content, problem in (
        ("columns", whole[: -8 - length] + footer_edit.tail(signed), "the file is encrypted"),
        ("encrypted", b"PARE" + bytes(100) + (50).to_bytes(4, "little") + b"PARE", "encrypted"),
        ("truncated", b"PAR1" + bytes(100), "truncated"),
        ("other", b"a,b,c\n" * 10, "not a Parquet file"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        for change in (lambda p: embed(p, [KEY]), lambda p: remove(p, lambda entry: True)):
            with pytest.raises(NotParquet, match=problem):
                change(str(path))
        assert path.read_bytes() == content
        assert [*tmp_path.glob(".*")] == []


# Replacing


def test_rights_links_and_checksums(path: Path, tmp_path: Path) -> None:
    path.chmod(0o640)
    (tmp_path / ".file.parquet.crc").write_bytes(b"sum of the old bytes")
    link = tmp_path / "link.parquet"
    link.symlink_to(path)
    embed(str(link), [KEY])
    assert link.is_symlink()
    assert path.stat().st_mode & 0o7777 == 0o640
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file.parquet", "link.parquet"]
    assert contents(path) == expected(KEY)


STEPS = ("_write", "_copy", "os.fsync", "os.fchmod", "identify_file", "os.replace")


@pytest.mark.covering
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("dead", [False, True], ids=["raises", "dies"])
def test_the_old_file_is_intact_until_the_last_step(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, dead: bool
) -> None:
    before = path.read_bytes()
    if dead:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of fork with threads
            child = os.fork()
        if child == 0:
            _break(monkeypatch, step, lambda *_, **__: os._exit(9))
            embed(str(path), [KEY])
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    else:
        with monkeypatch.context() as patch:
            _break(patch, step, _no_space)
            with pytest.raises(FileError, match="cannot be replaced: no space left"):
                embed(str(path), [KEY])
        assert [*tmp_path.iterdir()] == [path]
    assert path.read_bytes() == before
    embed(str(path), [KEY])  # leftover files do not matter, and are removed
    assert [*tmp_path.iterdir()] == [path]
    assert contents(path) == expected(KEY)


def _no_space(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def _break(patch: pytest.MonkeyPatch, step: str, failing: Callable[..., object]) -> None:
    if step == "os.replace":
        patch.setattr(Path, "replace", failing)
    elif step.startswith("os."):
        patch.setattr(replacing.os, step.removeprefix("os."), failing)
    else:
        patch.setattr(replacing, step, failing)


def test_a_file_replaced_meanwhile_is_not_overwritten(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = path.with_name("other")
    pq.write_table(table(5), other)
    copy = replacing._copy

    def meanwhile(*arguments: int) -> None:
        copy(*arguments)
        other.replace(path)

    monkeypatch.setattr(replacing, "_copy", meanwhile)
    with pytest.raises(FileChanged):
        embed(str(path), [KEY])
    assert pq.read_table(path).equals(table(5))


def test_many_at_once_lose_nothing(path: Path) -> None:
    payloads = [Payload("key", (str(number),), 1, os.urandom(100)) for number in range(8)]
    threads = [threading.Thread(target=embed, args=(str(path), [payload])) for payload in payloads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert contents(path) == expected(*payloads)


@pytest.mark.parametrize("kernel", ["none", "refuses", "short"])
def test_files_are_copied_where_the_kernel_does_not(path: Path, monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    def refuses(*_: object) -> int:
        raise OSError(18, "Invalid cross-device link")

    usual = getattr(os, "copy_file_range", None)
    if kernel == "none":
        monkeypatch.delattr(replacing.os, "copy_file_range", raising=False)
    elif kernel == "refuses":
        monkeypatch.setattr(replacing.os, "copy_file_range", refuses, raising=False)
    elif usual is not None:
        monkeypatch.setattr(
            replacing.os, "copy_file_range", lambda a, b, count, at: usual(a, b, min(count, 1000), at), raising=False
        )
    monkeypatch.setattr(replacing, "COPIED_AT_ONCE", 777)
    before = path.read_bytes()
    embed(str(path), [KEY])
    remove(str(path), lambda entry: True)
    assert path.read_bytes() == before


# Properties

kinds = st.sampled_from(["key", "text", "distinct"])
columns = st.lists(st.sampled_from(["id", "title", 'a"b\n', "é\U0001f600"]), max_size=2).map(tuple)
json_values = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.booleans(), max_size=2)
# A payload that begins with a list of values also changes another key of the footer.
data = st.binary(max_size=2000).filter(lambda data: not data.startswith(value_list.MAGIC))
payloads = st.builds(Payload, kinds, columns, st.integers(0, 2**40), data, json_values)
steps = st.lists(st.lists(payloads, max_size=3, unique_by=lambda p: (p.kind, p.columns)) | kinds, max_size=6)


@given(steps=steps, page_index=st.booleans())
@settings(max_examples=cases(40), deadline=None)
def test_any_sequence_keeps_data_and_footer(
    tmp_path_factory: pytest.TempPathFactory, steps: Sequence[list[Payload] | str], page_index: bool
) -> None:
    path = tmp_path_factory.mktemp("property") / "file.parquet"
    pq.write_table(table(50), path, write_page_index=page_index)
    before = path.read_bytes()
    with open_object(str(path)) as file:
        footer = read_footer(file).raw
    core = before[: -8 - len(footer)]
    there: dict[tuple[str, tuple[str, ...]], Payload] = {}
    for step in steps:
        if isinstance(step, str):
            remove(str(path), lambda entry, kind=step: entry.kind == kind)  # type: ignore[misc]
            there = {name: payload for name, payload in there.items() if payload.kind != step}
        else:
            embed(str(path), step)
            there |= {(payload.kind, payload.columns): payload for payload in step}
        assert contents(path) == {name: payload.data for name, payload in there.items()}
        for entry in listed(path).entries:
            payload = there[entry.kind, entry.columns]
            assert (entry.version, dict(entry.options)) == (payload.version, dict(payload.options))
        assert path.read_bytes().startswith(core)
        with open_object(str(path)) as file:
            assert footer_edit.with_key(read_footer(file).raw, INDEXES, None) == footer
        assert path.stat().st_size < len(before) + sum(len(p.data) + 700 for p in there.values()) + 100
    remove(str(path), lambda entry: True)
    assert path.read_bytes() == before


def test_the_golden_file_is_read() -> None:
    """The first version of the format wrote the file; it is never regenerated."""
    path = GOLDEN / "embedded.parquet"
    assert contents(path) == {
        ("key", ("id",)): b"golden key " * 100,
        ("text", ("id", "title")): b"",
        ("other", ()): bytes(range(256)),
    }
    found = listed(path)
    assert [(entry.version, dict(entry.options), entry.codec) for entry in found.entries] == [
        (1, {}, "zstd"),
        (2, {"tokens": ["a", "b"]}, "none"),
        (3, {}, "none"),
    ]
    assert pq.read_table(path).num_rows == 20
