"""Cards and zone maps in packs: what is read is what was written, or an error."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.lakes import as_format_6

from needlepoint.errors import StoreError
from needlepoint.indexer.card_sweep import SMALL_PACKS, sweep_cards
from needlepoint.objects import Identity
from needlepoint.predicate import Bounds
from needlepoint.stores import PackDamaged
from needlepoint.tables.model import File, Table
from needlepoint.tables.registry import card_packs
from needlepoint.tables.registry import registry as registry_module
from needlepoint.tables.registry.artifacts import FileArtifact
from needlepoint.tables.registry.databases import card_upgrade
from needlepoint.tables.registry.registry import Registry

COLUMNS = ("a", "b", "at")
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("at", pa.timestamp("us"))])
Content = tuple[bytes, dict[str, bytes]]


def an_artifact(file: File, content: Content) -> FileArtifact:
    card, zones = content
    bounds = {column: Bounds(0, 9, 0, 10) for column in COLUMNS}
    return FileArtifact(
        file.id or 0, file.identity, file.identity, 10, 1, 1, card, bounds, zones, {"at": "us"} if "at" in zones else {}
    )


def with_files(registry: Registry, count: int) -> Table:
    table = registry.tables.create("t", "/t", SCHEMA, ())
    registry.files.replace(table, [File(f"{number:05}.parquet", Identity(1, 1)) for number in range(count)], [])
    return table


def contents_of(count: int, seed: int = 0) -> list[Content]:
    def some(number: int, what: str) -> bytes:
        return f"{what} of file {number} {seed} ".encode() * (1 + number % 5)

    return [
        (some(number, "card"), {column: some(number, column) for column in COLUMNS[: 1 + number % 3]})
        for number in range(count)
    ]


def read(registry: Registry, table: Table) -> list[Content]:
    """What the registry has of all files, in the order of paths; errors raise."""
    ids = [file.id or 0 for file in registry.files.of(table)]
    cards = registry.cards.read_all(ids)
    zones = {column: registry.cards.zones(ids, column) for column in COLUMNS}
    found: list[Content] = []
    for id in ids:
        parts = {column: zones[column][id].data for column in COLUMNS if id in zones[column]}
        for part in (cards.get(id), *parts.values()):
            if isinstance(part, PackDamaged):
                raise part
        found.append((cards[id], parts))  # type: ignore[arg-type]
    return found


def commit(registry: Registry, table: Table, contents: list[Content]) -> None:
    files = registry.files.of(table)
    registry.commit_artifacts([an_artifact(f, c) for f, c in zip(files, contents, strict=True)], [])


def packs(directory: Path) -> list[Path]:
    return sorted((directory / "cards").glob("*.pack"))


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    opened = Registry(tmp_path, tmp_path)
    yield opened
    opened.close()


some_bytes = st.binary(max_size=40)
some_content = st.tuples(some_bytes, st.dictionaries(st.sampled_from(COLUMNS), some_bytes))


@settings(max_examples=cases(100, 20), deadline=None)
@given(contents=st.lists(some_content, min_size=1, max_size=12), most=st.integers(1, 200))
def test_what_is_read_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, contents: list[Content], most: int
) -> None:
    directory = tmp_path_factory.mktemp("registry")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(card_packs, "PACK_BYTES", most)
        registry = Registry(directory, directory)
        table = with_files(registry, len(contents))
        commit(registry, table, contents)
        assert read(registry, table) == contents
        # Also after everything was copied, and in a registry that had them in the database.
        registry.cards.copy([use.id for use in registry.cards.uses()], registry.cards.contents([*range(1, 13)])[0])
        assert read(registry, table) == contents
        registry.close()
        with sqlite3.connect(directory / "registry.db") as connection:
            as_format_6(connection)
        connection.close()
        registry = Registry(directory, directory)
        assert read(registry, table) == contents
        registry.close()


@pytest.mark.parametrize("how", ["flip", "cut"])
def test_every_byte_counts(tmp_path: Path, registry: Registry, how: str) -> None:
    contents = contents_of(4)
    table = with_files(registry, 4)
    commit(registry, table, contents)
    (pack,) = packs(tmp_path)
    sound = pack.read_bytes()
    for at in range(len(sound)):
        pack.write_bytes(sound[:at] if how == "cut" else sound[:at] + bytes([sound[at] ^ 64]) + sound[at + 1 :])
        with pytest.raises(PackDamaged, match=r"\.pack are damaged"):
            read(registry, table)
        found, damaged = registry.cards.contents([1, 2, 3, 4])
        assert damaged
        assert damaged == registry.cards.check(table)
        assert {each.file_id for each in found} == {1, 2, 3, 4} - damaged.keys()
        assert all((each.card, each.zones) == contents[each.file_id - 1] for each in found)
    assert bool(registry.cards.lost()) == (how == "cut")


def test_the_cards_of_a_lost_pack_are_forgotten_with_the_reason(tmp_path: Path, registry: Registry) -> None:
    table = with_files(registry, 4)
    commit(registry, table, contents_of(4))
    since = registry.sequence()
    packs(tmp_path)[0].unlink()
    registry.cards.forget_packs(registry.cards.lost())
    files = registry.files.of(table)
    assert [file.has_card for file in files] == [False] * 4
    assert all("is missing" in (file.problem or "") for file in files)
    assert registry.files.changed(table, since) == [1, 2, 3, 4]
    assert registry.cards.lost() == {}
    commit(registry, table, contents_of(4))
    assert [(file.has_card, file.problem) for file in registry.files.of(table)] == [(True, None)] * 4
    assert read(registry, table) == contents_of(4)


def test_a_file_that_is_described_as_before_takes_no_space(tmp_path: Path, registry: Registry) -> None:
    table = with_files(registry, 4)
    contents = contents_of(4)
    commit(registry, table, contents)
    before = packs(tmp_path)
    commit(registry, table, contents)
    assert packs(tmp_path) == before
    contents[2] = (contents[2][0], {**contents[2][1], "a": b"other"})
    commit(registry, table, contents)
    (new,) = {*packs(tmp_path)} - {*before}
    assert new.stat().st_size == sum(map(len, (contents[2][0], *contents[2][1].values())))
    assert read(registry, table) == contents


def test_dead_pieces_are_swept_and_small_packs_merged(tmp_path: Path, registry: Registry) -> None:
    table = with_files(registry, SMALL_PACKS)
    contents = contents_of(SMALL_PACKS)
    files = registry.files.of(table)
    for file, content in zip(files, contents, strict=True):
        registry.commit_artifacts([an_artifact(file, content)], [])
    before = packs(tmp_path)
    assert len(before) == SMALL_PACKS
    sweep_cards(registry, older_than=3600, worth=0.1)
    assert len(packs(tmp_path)) == SMALL_PACKS + 1  # the old ones stay for those who still read them
    assert read(registry, table) == contents
    assert sweep_cards(registry, older_than=0, worth=0.1) == sum(map(len, _pieces(contents)))
    (merged,) = packs(tmp_path)
    assert merged not in before
    registry.files.replace(table, [], [files[0].id or 0])
    sweep_cards(registry, older_than=0, worth=0.0)
    (swept,) = packs(tmp_path)
    assert swept.stat().st_size == sum(map(len, _pieces(contents[1:])))
    assert read(registry, table) == contents[1:]
    assert registry.cards.size() == (1, swept.stat().st_size)


def _pieces(contents: list[Content]) -> list[bytes]:
    return [piece for card, zones in contents for piece in (card, *zones.values())]


def test_a_sweep_leaves_what_was_described_meanwhile(tmp_path: Path, registry: Registry) -> None:
    table = with_files(registry, 3)
    before, after = contents_of(3), contents_of(3, seed=1)
    commit(registry, table, before)
    old = [use.id for use in registry.cards.uses()]
    copied, _ = registry.cards.contents([1, 2, 3])
    registry.commit_artifacts([an_artifact(registry.files.of(table)[1], after[1])], [])
    registry.cards.copy(old, copied)
    assert read(registry, table) == [before[0], after[1], before[2]]


def test_a_sweep_forgets_damaged_cards(tmp_path: Path, registry: Registry) -> None:
    table = with_files(registry, 3)
    contents = contents_of(3)
    commit(registry, table, contents)
    (pack,) = packs(tmp_path)
    data = bytearray(pack.read_bytes())
    data[0] ^= 1
    pack.write_bytes(data)
    registry.files.replace(table, [], [3])
    sweep_cards(registry, older_than=0, worth=0.0)
    first, second = registry.files.of(table)
    assert (first.has_card, second.has_card) == (False, True)
    assert "damaged" in (first.problem or "")
    assert registry.cards.read(2) == contents[1][0]


KILLED = """
import os, signal, sys
from pathlib import Path
from needlepoint.tables.registry import registry as module
from tests.unit.tables.registry.test_cards import commit, contents_of
def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)
module.commit_artifacts = killed
registry = module.Registry(Path(sys.argv[1]), Path(sys.argv[1]))
commit(registry, registry.tables.get("t"), contents_of(4))
"""


@pytest.mark.long
def test_a_killed_commit_leaves_a_pack_that_is_swept(tmp_path: Path, registry: Registry) -> None:
    table = with_files(registry, 4)
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(packs(tmp_path)) == 1
    assert [file.has_card for file in registry.files.of(table)] == [False] * 4
    sweep_cards(registry, older_than=3600, worth=0.0)
    assert len(packs(tmp_path)) == 1  # another process may be about to commit it
    sweep_cards(registry, older_than=0, worth=0.0)
    assert packs(tmp_path) == []
    commit(registry, table, contents_of(4))
    assert read(registry, table) == contents_of(4)


def test_a_commit_that_fails_changes_nothing(tmp_path: Path, registry: Registry, monkeypatch) -> None:
    table = with_files(registry, 2)
    commit(registry, table, contents_of(2))

    def failing(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(registry_module, "commit_artifacts", failing)
    with pytest.raises(StoreError, match="No space"):
        commit(registry, table, contents_of(2, seed=1))
    monkeypatch.undo()
    monkeypatch.setattr("needlepoint.stores.packs.os.fsync", failing)
    with pytest.raises(StoreError, match=r"cards cannot be written: .*No space"):
        commit(registry, table, contents_of(2, seed=2))
    monkeypatch.undo()
    assert len(packs(tmp_path)) == 2  # the second has no name in the registry, the third was removed
    assert read(registry, table) == contents_of(2)


# Upgrades


def in_format_6(directory: Path, count: int) -> None:
    registry = Registry(directory, directory)
    commit(registry, with_files(registry, count), contents_of(count))
    registry.close()
    with sqlite3.connect(directory / "registry.db") as connection:
        as_format_6(connection)
    connection.close()


def version(directory: Path) -> int:
    connection = sqlite3.connect(directory / "registry.db")
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.close()
    return found


def test_an_upgrade_that_fails_is_undone(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(card_packs, "PACK_BYTES", 100)
    in_format_6(tmp_path, 10)
    real, calls = card_upgrade.insert_pack, []

    def failing(*arguments) -> int:
        calls.append(arguments)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(card_upgrade, "insert_pack", failing)
    with pytest.raises(StoreError, match="No space"):
        Registry(tmp_path, tmp_path)
    assert (version(tmp_path), len(packs(tmp_path))) == (6, 3)
    monkeypatch.undo()
    registry = Registry(tmp_path, tmp_path)
    assert read(registry, registry.tables.get("t")) == contents_of(10)
    sweep_cards(registry, older_than=0, worth=0.1)
    assert {pack.name for pack in packs(tmp_path)} == registry.cards.names()
    registry.close()


KILLED_UPGRADE = """
import os, signal, sys
from pathlib import Path
from needlepoint.tables.registry import card_packs
from needlepoint.tables.registry.databases import card_upgrade
from needlepoint.tables.registry.registry import Registry
card_packs.PACK_BYTES = 100
point, left = sys.argv[2], int(sys.argv[3])
real = getattr(card_upgrade, point)
def killed(*arguments):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
setattr(card_upgrade, point, killed)
Registry(Path(sys.argv[1]), Path(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("point", "after"), [("write_packs", 0), ("insert_pack", 0), ("insert_pack", 4), ("insert_card", 9)]
)
def test_a_killed_upgrade_is_undone(tmp_path: Path, point: str, after: int) -> None:
    in_format_6(tmp_path, 10)
    command = [sys.executable, "-c", KILLED_UPGRADE, str(tmp_path), point, str(after)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert version(tmp_path) == 6
    registry = Registry(tmp_path, tmp_path)
    assert read(registry, registry.tables.get("t")) == contents_of(10)
    sweep_cards(registry, older_than=0, worth=0.1)
    assert {pack.name for pack in packs(tmp_path)} == registry.cards.names()
    registry.close()


def test_an_upgrade_makes_the_registry_small(tmp_path: Path) -> None:
    registry = Registry(tmp_path, tmp_path)
    contents: list[Content] = [(bytes(20_000), {"a": bytes(30_000)}) for _ in range(20)]
    commit(registry, with_files(registry, 20), contents)
    registry.close()
    with sqlite3.connect(tmp_path / "registry.db") as connection:
        as_format_6(connection)
    connection.close()
    assert (tmp_path / "registry.db").stat().st_size > 1_000_000
    registry = Registry(tmp_path, tmp_path)
    assert registry.files.changed(registry.tables.get("t"), registry.sequence()) == []
    registry.close()
    assert (tmp_path / "registry.db").stat().st_size < 200_000


def test_an_old_registry_is_not_opened_for_reading_only(tmp_path: Path) -> None:
    in_format_6(tmp_path, 2)
    with pytest.raises(StoreError, match=r"has format 6; this version .* reads format 7.*Open it once for writing"):
        Registry(tmp_path, tmp_path, own=tmp_path / "own")
    assert version(tmp_path) == 6


def test_a_newer_registry_is_refused(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parents[3] / "golden" / "registry-6.db", tmp_path / "registry.db")
    Registry(tmp_path, tmp_path).close()
    with sqlite3.connect(tmp_path / "registry.db") as connection:
        connection.execute("PRAGMA user_version = 8")
    connection.close()
    with pytest.raises(StoreError, match="has format 8; this version"):
        Registry(tmp_path, tmp_path)
