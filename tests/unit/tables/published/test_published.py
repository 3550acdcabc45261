"""A published registry is what readers have: whatever changed, however often it was published and followed."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.unit.tables.published.registries import RandomRegistry, contents

from needlepoint.errors import StoreError
from needlepoint.tables.published import Follower, Publisher, publisher
from needlepoint.tables.published.manifest import ManifestDamaged, RegistryManifest
from needlepoint.tables.published.place import PublishedPlace
from needlepoint.tables.published.store_state import STATE
from needlepoint.tables.registry import Registry
from needlepoint.tables.registry.databases import database as registry_database


class Killed(BaseException):
    """The process ends here."""


class Lake:
    """A lake directory, the registry that is written, and its publisher, which publishes only when it is told to."""

    def __init__(self, directory: Path, seed: int = 0) -> None:
        self.root = directory / "lake"
        self.store = directory / "store"
        self.registry = Registry(self.store, self.root)
        self.random = random.Random(seed)
        self.changes = RandomRegistry(self.registry, self.random)
        self.publisher = self.another()

    def another(self, *, takes_over: bool = False) -> Publisher:
        made = Publisher(self.root, self.store, self.registry, takes_over=takes_over)
        made._closed = True
        if made._timer is not None:
            made._timer.cancel()
        return made

    def change(self, times: int = 1) -> None:
        for _ in range(times):
            self.changes.change()

    def contents(self) -> dict[str, list[tuple[object, ...]]]:
        return contents(self.store / "registry.db")

    def follower(self, cache: Path) -> Follower:
        return Follower(self.root, cache, 0.0)


def copied(follower: Follower) -> dict[str, list[tuple[object, ...]]]:
    return contents(follower.directory / "registry.db")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path)
    yield made
    made.registry.close()


def shorten_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything happens that otherwise needs thousands of changes: changes are forgotten, checkpoints are made."""
    monkeypatch.setattr(registry_database, "CHANGES_KEPT", 15)
    monkeypatch.setattr(publisher, "LEAST_BYTES", 4000)
    monkeypatch.setattr(publisher, "FEW_FILES", 2)
    monkeypatch.setattr(publisher, "MOST_DELTAS", 4)


@pytest.mark.parametrize("remembers", [True, False])
@settings(max_examples=cases(400, 8))
@given(seed=st.integers(0, 2**32))
def test_readers_have_what_the_registry_has(
    tmp_path_factory: pytest.TempPathFactory, remembers: bool, seed: int
) -> None:
    """A reader that follows, one that follows seldom, and a new one."""
    with pytest.MonkeyPatch.context() as patch:
        if not remembers:
            shorten_memory(patch)
        directory = tmp_path_factory.mktemp("lake")
        lake = Lake(directory, seed)
        lake.changes.create_table()
        lake.changes.create_index()
        lake.publisher.publish()
        always, seldom = lake.follower(directory / "a"), lake.follower(directory / "b")
        for number in range(8):
            lake.change(lake.random.choice([1, 2, 5, 20]))
            if lake.random.random() < 0.3:
                lake.publisher = lake.another()  # another process
            lake.publisher.publish()
            always.follow()
            assert copied(always) == lake.contents(), lake.changes.changes
            if number % 4 == 3:
                seldom.follow()
                assert copied(seldom) == lake.contents(), lake.changes.changes
        new = lake.follower(directory / "c")
        assert copied(new) == lake.contents(), lake.changes.changes
        assert not always.problem and not seldom.problem
        for each in (always, seldom, new):
            each.close()
        lake.registry.close()


def test_few_requests_tell_that_nothing_changed(lake: Lake, tmp_path: Path) -> None:
    lake.publisher.publish()
    follower = lake.follower(tmp_path / "cache")
    manifest = follower.manifest
    lake.publisher.publish()  # nothing is new
    follower.follow()
    assert follower.manifest is manifest
    follower.close()


def test_two_publishers_lose_nothing(lake: Lake, tmp_path: Path) -> None:
    """Each has read the manifest before the other replaced it."""
    lake.changes.create_table()
    one, other = lake.publisher, lake.another()
    for number in range(6):
        lake.change(3)
        (one if number % 2 else other).publish()
        reader = lake.follower(tmp_path / str(number))
        assert copied(reader) == lake.contents()
        reader.close()
    before = one.publish().sequence
    assert other.publish().sequence == before


def test_an_earlier_state_replaces_no_later_one(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow publisher has made its copy before another published a later state."""
    lake.changes.create_table()
    lake.publisher.publish()
    lake.change(3)
    slow, fast = lake.another(), lake.another()
    put = PublishedPlace.put_manifest

    def interrupted(place: PublishedPlace, data: bytes, known: object) -> object:
        if place is slow.place and fast.state().lag:
            lake.change(3)
            fast.publish()
        return put(place, data, known)  # type: ignore[arg-type]

    monkeypatch.setattr(PublishedPlace, "put_manifest", interrupted)
    assert slow.publish().sequence == lake.registry.sequence()


def test_a_publisher_that_is_killed_leaves_a_published_state(lake: Lake, tmp_path: Path) -> None:
    """At every write of it; the next one publishes."""
    lake.changes.create_table()
    lake.changes.create_index()
    lake.publisher.publish()
    published = lake.contents()
    for whole in (False, True):
        for stop in range(20):
            lake.change(2)
            killed = lake.another()
            with pytest.MonkeyPatch.context() as patch:
                writes = _killing(patch, stop)
                with contextlib.suppress(Killed):
                    killed.publish(whole=whole)
            reader = lake.follower(tmp_path / f"cache{whole}{stop}")
            found = copied(reader)
            assert found in (published, lake.contents())
            lake.another().publish()
            reader.follow()
            published = lake.contents()
            assert copied(reader) == published
            reader.close()
            if writes() <= stop:
                break
        else:
            raise AssertionError("a publisher has fewer writes")


def _killing(patch: pytest.MonkeyPatch, stop: int) -> Callable[[], int]:
    """End the process before write number `stop`; returns a function that counts the writes."""
    done = [0]

    def counted(name: str) -> None:
        original = getattr(PublishedPlace, name)

        def write(*arguments: object) -> object:
            if done[0] == stop:
                raise Killed
            done[0] += 1
            return original(*arguments)

        patch.setattr(PublishedPlace, name, write)

    for name in ("put", "put_manifest", "remove"):
        counted(name)
    return lambda: done[0]


def test_damaged_objects_are_noticed(lake: Lake, tmp_path: Path) -> None:
    """Every region of the manifest, the checkpoint and the delta, flipped or cut."""
    lake.changes.create_table()
    lake.publisher.publish()
    lake.change(5)
    manifest = lake.publisher.publish()
    right = lake.contents()
    names = ["registry/manifest.json", manifest.checkpoint.name, *(each.name for each in manifest.deltas)]
    assert len(names) == 3
    for name in names:
        path = Path(lake.publisher.place.path(name))
        sound = path.read_bytes()
        for at in range(0, len(sound), max(1, len(sound) // cases(12, 5))):
            for damaged in (sound[:at] + bytes([sound[at] ^ 64]) + sound[at + 1 :], sound[:at]):
                path.write_bytes(damaged)
                try:
                    reader = lake.follower(tmp_path / "cache" / name / str(at) / str(len(damaged)))
                except StoreError as error:
                    assert "damaged" in str(error)
                else:
                    assert copied(reader) == right  # such as another space in the text of the manifest
                    reader.close()
        path.write_bytes(sound)


def test_a_check_keeps_nobody_from_publishing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it reads, the registry is published again, and what it is about to read is swept: that is no damage."""
    lake.changes.create_table()
    lake.publisher.publish()
    get, late = PublishedPlace.get, list[bool]()

    def publish() -> None:
        lake.change(5)
        lake.publisher.sweep(now=True)

    def slow(place: PublishedPlace, name: str, size: int, target: Path) -> None:
        if not late:
            thread = threading.Thread(target=publish, daemon=True)
            thread.start()
            thread.join(5.0)
            late.append(thread.is_alive())
        get(place, name, size, target)

    monkeypatch.setattr(PublishedPlace, "get", slow)
    assert lake.publisher.check() == {}
    assert late == [False]
    manifest = lake.publisher.publish()
    Path(lake.publisher.place.path(manifest.checkpoint.name)).write_bytes(b"")
    assert [*lake.publisher.check()] == [manifest.checkpoint.name]
    late.clear()
    assert lake.publisher.check() == {}  # a whole new checkpoint came meanwhile


def test_a_damaged_manifest_is_published_again(lake: Lake, tmp_path: Path) -> None:
    lake.changes.create_table()
    lake.publisher.publish()
    Path(lake.publisher.place.path("registry/manifest.json")).write_bytes(b"{")
    with pytest.raises(ManifestDamaged):
        lake.follower(tmp_path / "cache")
    lake.another().publish()
    reader = lake.follower(tmp_path / "cache")
    assert copied(reader) == lake.contents()
    reader.close()


def test_a_reader_goes_on_while_the_lake_is_damaged(
    lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake.changes.create_table()
    lake.publisher.publish()
    reader = lake.follower(tmp_path / "cache")
    before = copied(reader)
    lake.change(4)
    (delta,) = lake.publisher.publish().deltas
    path = Path(lake.publisher.place.path(delta.name))
    sound = path.read_bytes()
    path.write_bytes(sound[:-1])
    reader.follow()
    assert copied(reader) == before and "damaged" in reader.problem and "damaged" in caplog.text
    path.write_bytes(sound)
    reader.follow()
    assert copied(reader) == lake.contents() and not reader.problem
    reader.close()


def test_damaged_files_of_the_cache_are_fetched_again(lake: Lake, tmp_path: Path) -> None:
    lake.changes.create_table()
    manifest = lake.publisher.publish()
    cache = tmp_path / "cache"
    lake.follower(cache).close()
    held = cache / "objects" / manifest.checkpoint.name.rpartition("/")[2]
    held.write_bytes(held.read_bytes()[:-3] + b"abc")
    reader = lake.follower(cache)
    assert copied(reader) == lake.contents()
    reader.close()


def test_the_cache_can_be_removed_at_any_time(lake: Lake, tmp_path: Path) -> None:
    lake.changes.create_table()
    lake.publisher.publish()
    cache = tmp_path / "cache"
    reader = lake.follower(cache)
    shutil.rmtree(cache)
    for _ in range(3):
        lake.change(4)
        lake.publisher.publish()
        reader.follow()
        assert not reader.problem and reader.sequence() == lake.registry.sequence()
    lake.publisher.publish(whole=True)
    other = lake.follower(cache)
    assert copied(other) == lake.contents()
    other.close()
    reader.close()


def test_directories_of_killed_readers_are_removed(lake: Lake, tmp_path: Path) -> None:
    lake.publisher.publish()
    left = tmp_path / "cache" / "processes" / "0123"
    left.mkdir(parents=True)
    (left / "registry.db").write_bytes(b"")
    reader, other = lake.follower(tmp_path / "cache"), lake.follower(tmp_path / "cache")
    assert not left.exists() and reader.directory.exists() and other.directory.exists()
    reader.close()
    assert not reader.directory.exists()
    other.close()


def test_another_registry_is_refused_unless_it_takes_over(lake: Lake, tmp_path: Path) -> None:
    lake.publisher.publish()
    reader = lake.follower(tmp_path / "cache")
    for name in (STATE, "identity"):
        (lake.store / name).unlink()
    with pytest.raises(StoreError, match="another registry"):
        lake.another().publish()
    other = lake.another()
    assert not other.try_publish() and other.make_known() and "another registry" in other.state().problem
    lake.another(takes_over=True).publish()
    with pytest.raises(StoreError, match="another registry"):
        reader.follow()
    with pytest.raises(StoreError, match="another registry"):
        reader.follow()
    reader.close()


def test_a_restored_registry_is_refused(lake: Lake) -> None:
    lake.change(3)
    lake.publisher.publish()
    with sqlite3.connect(lake.store / "registry.db") as connection:
        connection.execute("UPDATE sequence SET value = 1")
    with pytest.raises(StoreError, match="before the restore"):
        lake.another().publish()


def test_a_later_format_is_refused(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from needlepoint.tables.published import follower, manifest

    lake.publisher.publish()
    with monkeypatch.context() as patch:
        patch.setattr(follower, "FORMAT", 99)
        with pytest.raises(StoreError, match="reads format 99"):
            lake.follower(tmp_path / "cache")
    with monkeypatch.context() as patch:
        patch.setattr(manifest, "FORMAT", 2)
        lake.change()
        lake.publisher._known = None
        with pytest.raises(StoreError, match="has format 1"):
            lake.publisher.publish()


def test_a_registry_that_was_upgraded_is_published_whole(lake: Lake, tmp_path: Path) -> None:
    """Without another change: readers of the new version refuse the old format."""
    lake.changes.create_table()
    first = lake.publisher.publish()
    place, state = Path(lake.publisher.place.path("registry/manifest.json")), lake.store / STATE
    place.write_bytes(replace(first, schema=first.schema - 1).to_bytes())
    state.write_text(json.dumps({**json.loads(state.read_text()), "schema": first.schema - 1}))
    with pytest.raises(StoreError, match=f"has format {first.schema - 1}; this version .* reads format {first.schema}"):
        lake.follower(tmp_path / "cache")
    publisher = Publisher(lake.root, lake.store, lake.registry)
    publisher.close()
    assert publisher.state().lag == 0
    reader = lake.follower(tmp_path / "cache")
    assert copied(reader) == lake.contents()
    assert reader.sequence() == first.sequence
    reader.close()
    published = lake.another().publish()
    assert published.deltas == () and published.checkpoint.name != first.checkpoint.name


def test_replaced_objects_stay_for_a_while(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.changes.create_table()

    def there() -> set[str]:
        return {name for name, _ in lake.publisher.place.listed("registry")}

    for _ in range(5):
        lake.change()
        manifest = lake.publisher.publish()
    assert there() >= {each.name for each in manifest.retired} and manifest.retired
    monkeypatch.setattr(publisher, "GRACE", 0.0)
    lake.change()
    manifest = lake.publisher.publish()
    lake.change()
    manifest = lake.publisher.publish()
    kept = {*manifest.names(), "registry/manifest.json", *(each.name for each in manifest.retired)}
    assert there() == kept and len(manifest.retired) <= 2


def test_a_sweep_removes_packs_some_time_after_nothing_refers_to_them(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from needlepoint.tables.published import sweeping

    lake.changes.create_table()
    lake.changes.add()
    lake.changes.index()
    lake.publisher.publish()
    place = lake.publisher.place
    (pack,) = [name for name, _ in place.listed("cards")]
    lake.registry.cards.forget({file.id or 0: "" for file in lake.registry.files.of(lake.registry.tables.all()[0])})
    lake.registry.cards.drop_unused()
    assert lake.publisher.sweep() == 0 and Path(place.path(pack)).exists()
    monkeypatch.setattr(sweeping, "PACK_GRACE", 0.0)
    assert lake.publisher.sweep() > 0 and not Path(place.path(pack)).exists()
    left = Path(place.path("registry/delta-1-2-0000.zst"))
    left.write_bytes(b"of a publisher that was killed")
    assert lake.publisher.sweep() == 0
    assert lake.publisher.sweep(now=True) >= 30 and not left.exists()
    assert len(list(place.listed("registry"))) == 2  # the manifest and a checkpoint


def test_packs_are_there_before_the_manifest_names_them(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.changes.create_table()
    lake.changes.add()
    put = PublishedPlace.put_manifest

    def checked(place: PublishedPlace, data: bytes, known: object) -> object:
        assert isinstance(RegistryManifest.from_bytes("", data), RegistryManifest)
        for name in lake.registry.cards.names():
            assert Path(place.path(f"cards/{name}")).exists()
        return put(place, data, known)  # type: ignore[arg-type]

    monkeypatch.setattr(PublishedPlace, "put_manifest", checked)
    for _ in range(5):
        lake.changes.index()
        lake.publisher.publish()
