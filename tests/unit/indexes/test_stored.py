"""The cache returns unpacked payloads as they were unpacked, whatever has happened to the files since."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.indexes.payloads import text_source

from needlepoint.errors import StoreError
from needlepoint.indexes.stored import MANIFEST, StoredPayload, UnpackedPayloads
from needlepoint.indexes.text import search
from needlepoint.indexes.text.kind import TextKind
from needlepoint.parquet.write.embed import Payload, place
from needlepoint.predicate import Like

CONTENT = {"words": b"dairy cow" * 50, "empty": b"", "rows": bytes(range(256))}


def fill(directory: Path) -> None:
    for name, content in CONTENT.items():
        (directory / name).write_bytes(content)


def held(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.startswith(".")}


def flip(path: Path, at: int = 100) -> None:
    """Change a byte in place; size, time and inode stay."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_what_is_whole_is_not_unpacked_again(tmp_path: Path) -> None:
    first = UnpackedPayloads(tmp_path, 1 << 30).get("c", fill)
    inode = first.stat().st_ino

    def refuse(directory: Path) -> None:
        raise AssertionError(f"{directory} is unpacked again")

    again = UnpackedPayloads(tmp_path, 1 << 30).get("c", refuse)
    assert (again, again.stat().st_ino, held(again)) == (first, inode, CONTENT)


@pytest.mark.parametrize("name", ["words", "rows", MANIFEST])
def test_a_changed_byte_is_noticed(tmp_path: Path, name: str) -> None:
    flip(UnpackedPayloads(tmp_path, 1 << 30).get("c", fill) / name, at=40)
    place = UnpackedPayloads(tmp_path, 1 << 30).get("c", fill)
    assert held(place) == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["c"]  # the damaged copy is gone


@pytest.mark.parametrize("how", ["no manifest", "missing", "more", "empty", "a file"])
def test_what_is_half_unpacked_is_made_again(tmp_path: Path, how: str) -> None:
    place = UnpackedPayloads(tmp_path, 1 << 30).get("c", fill)
    if how == "no manifest":
        (place / MANIFEST).unlink()
    elif how == "missing":
        (place / "rows").unlink()
    elif how == "more":
        (place / "other").write_bytes(b"")
    elif how == "empty":
        (place / MANIFEST).write_bytes(b"")
    else:
        for path in place.iterdir():
            path.unlink()
        place.rmdir()
        place.write_bytes(b"not a directory")
    assert held(UnpackedPayloads(tmp_path, 1 << 30).get("c", fill)) == CONTENT


def test_a_sweep_leaves_what_another_process_is_making(tmp_path: Path) -> None:
    """With a limit of zero bytes and nothing in use, a sweep removes complete copies, but not an unfinished one."""

    def fill_while_swept(directory: Path) -> None:
        (directory / "words").write_bytes(CONTENT["words"])
        UnpackedPayloads(tmp_path, 0).sweep(frozenset(), just_used=-1.0)
        fill(directory)

    made = UnpackedPayloads(tmp_path, 1 << 30).get("c", fill_while_swept)
    assert held(made) == CONTENT
    UnpackedPayloads(tmp_path, 0).sweep(frozenset(), just_used=-1.0)
    assert list(tmp_path.iterdir()) == []


def test_several_unpack_and_repair_at_once(tmp_path: Path) -> None:
    """Each thread has its own cache, as processes do; copies are damaged, moved and swept at the same time."""
    problems: list[str] = []

    def ask(number: int) -> None:
        cache = UnpackedPayloads(tmp_path, 1 << 30)
        for turn in range(60):
            try:
                found = cache.get("c", fill)
            except StoreError as error:
                problems.append(str(error))
                return
            if number == 0 and turn % 3 == 0:
                try:
                    (found / MANIFEST).write_bytes(b"{}")
                except OSError:
                    continue
            elif number == 1 and turn % 7 == 0:
                cache.sweep(frozenset(), just_used=0.0)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert held(UnpackedPayloads(tmp_path, 1 << 30).get("c", fill)) == CONTENT


def test_a_text_index_that_is_opened_again_is_checked_again(tmp_path: Path) -> None:
    """Even in a process that had it open before: its memory map of the damaged files is no longer used."""
    texts = pa.array([f"{'goat' if row % 50 == 7 else 'cow'} {row}" for row in range(500)])
    kind = TextKind()
    built = kind.build(text_source(texts, tmp_path / "scratch"))
    (entry,), (data,) = place([Payload("text", ("t",), kind.version, built.payload)], 0, "")
    (tmp_path / "p.pack").write_bytes(data)
    stored = StoredPayload(str(tmp_path / "p.pack"), None, entry, UnpackedPayloads(tmp_path / "unpacked", 1 << 30))

    def goats() -> list[int]:
        rows = kind.open(stored, [], {}).find([Like("t", ("goat",))], 1e9).rows
        return [] if rows is None else rows.numbers().tolist()

    expected = goats()
    assert expected == list(range(7, 500, 50))
    (directory,) = (tmp_path / "unpacked").iterdir()
    for path in sorted(directory.iterdir()):
        if not path.name.startswith(".") and path.stat().st_size:
            (tmp_path / "unpacked" / directory.name / path.name).rename(tmp_path / "kept")
            (tmp_path / "unpacked" / directory.name / path.name).write_bytes((tmp_path / "kept").read_bytes())
            flip(path, at=path.stat().st_size // 2)
            assert goats() == expected, path.name
            search._SEARCHERS.clear()
            assert goats() == expected, path.name
