"""One suite over every database of the registry. A new one adds one line to `registries`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import cases

import needlepoint
from needlepoint.objects import Identity
from needlepoint.predicate import Bounds
from needlepoint.tables.model import ALL, Batch, File, Move, Place, Removal, Table
from needlepoint.tables.registry import FileArtifact, KnownFiles, PackEntry, Registry, copying
from needlepoint.tables.registry.databases import database as registry_database

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("ms")), ("name", pa.string()), ("year", pa.int32())])

registries: dict[str, Callable[..., dict[str, Any]]] = {
    "sqlite": lambda request: {},
    "postgres": lambda request: {"url": request.getfixturevalue("postgres_url")},
}

Opener = Callable[..., Registry]


@pytest.fixture(params=registries)
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return registries[request.param](request)


@pytest.fixture
def open_registry(options: dict[str, Any], tmp_path: Path) -> Iterator[Opener]:
    opened = []

    def open_one(**more: Any) -> Registry:
        opened.append(Registry(tmp_path, tmp_path, **options, **more))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@pytest.fixture
def registry(open_registry: Opener) -> Registry:
    return open_registry()


def a_table(registry: Registry, name: str = "t", files: int = 3) -> Table:
    table = registry.tables.create(name, f"/{name}", SCHEMA, ("year",))
    registry.files.replace(table, [File(f"{n}.parquet", Identity(n, n)) for n in range(files)], [])
    return table


def ids_of(registry: Registry, table: Table) -> dict[str, int]:
    return {file.path: file.id or 0 for file in registry.files.of(table)}


def an_artifact(file: File, **known: Any) -> FileArtifact:
    return replace(FileArtifact(file.id or 0, file.identity, file.identity, 5, 1, 1, b"card", {}), **known)


def a_place(pack: str, offset: int = 4) -> Place:
    return Place(pack, offset, 10, "zstd", 20, f"sum of {pack}", 1)


# Tables and views


def test_a_table_is_what_was_created_also_after_opening_again(registry: Registry, open_registry: Opener) -> None:
    made = registry.tables.create("t", "/t", SCHEMA, ("year",), frozenset({"at"}), "delta")
    for each in (registry, open_registry()):
        found = each.tables.get("t")
        assert found == made
        assert (found.schema, found.partitions, found.mixed, found.format) == (SCHEMA, ("year",), {"at"}, "delta")
        assert each.tables.names() == ["t"]
        assert each.tables.all() == [made]


def test_names_are_taken_once(registry: Registry) -> None:
    a_table(registry, "a")
    registry.views.create("v", "SELECT 1")
    for name in ("a", "v"):
        with pytest.raises(needlepoint.NameTaken):
            registry.tables.create(name, "/x", SCHEMA, ())
        with pytest.raises(needlepoint.NameTaken):
            registry.views.create(name, "SELECT 2")
    with pytest.raises(needlepoint.UnknownName, match="Did you mean 'a'"):
        registry.tables.get("aa")
    with pytest.raises(needlepoint.UnknownName):
        registry.views.drop("w")


def test_views_are_in_the_order_of_creation(registry: Registry) -> None:
    for name in ("b", "a", "c"):
        registry.views.create(name, f"SELECT '{name}%' -- ?")
    registry.views.drop("a")
    assert registry.views.all() == [("b", "SELECT 'b%' -- ?"), ("c", "SELECT 'c%' -- ?")]


def test_a_schema_is_widened_and_its_indexes_begin_again(registry: Registry) -> None:
    table = a_table(registry)
    one = registry.indexes.create(table, "one", ("at",), "key")
    two = registry.indexes.create(table, "two", ("id", "at"), "key")
    other = registry.indexes.create(table, "other", ("id",), "key")
    ids = ids_of(registry, table)
    registry.commit_artifacts([], [(one.id, "run")], {one.id: {ids["0.parquet"]: 3}, other.id: {ids["0.parquet"]: 4}})
    finer = pa.schema(
        [*(SCHEMA.remove(1).remove(2)), ("at", pa.timestamp("us")), ("more", pa.int8()), SCHEMA.field("year")]
    )
    widened = registry.tables.widen_schema(table, finer)
    assert widened.schema.field("at").type == pa.timestamp("us")
    assert "more" in widened.schema.names
    assert widened.mixed == {"at"}
    found = {index.name: index for index in registry.indexes.of(widened)}
    assert found["other"] == other
    assert min(found["one"].id, found["two"].id) > max(one.id, two.id, other.id)
    assert registry.indexes.runs(found["one"]) == []
    with pytest.raises(needlepoint.UnknownName):
        registry.indexes.runs(one)
    assert registry.files.of(table)[0].indexed == {other.id}


def test_a_finer_unit_is_refused_where_a_value_does_not_fit(registry: Registry) -> None:
    table = a_table(registry)
    files = registry.files.of(table)
    bounds = {"at": Bounds(0, 2**62, 0, 5), "name": Bounds(b"a", b"\xff\x00", 0, 5), "id": Bounds(1, 5, 0, 5)}
    registry.commit_artifacts([an_artifact(files[0], bounds=bounds, units={"at": "ms"})], [])
    finer = SCHEMA.set(1, pa.field("at", pa.timestamp("ns")))
    before = registry.sequence()
    with pytest.raises(needlepoint.SchemaConflict, match=r"0\.parquet"):
        registry.tables.widen_schema(table, finer)
    assert registry.tables.get("t") == table
    assert registry.sequence() == before


def test_a_schema_follows_its_log(registry: Registry) -> None:
    table = a_table(registry)
    index = registry.indexes.create(table, "i", ("name",), "key")
    followed = registry.tables.follow_schema(table, SCHEMA.remove(2), (), frozenset({"at"}))
    assert (followed.schema, followed.partitions, followed.mixed) == (SCHEMA.remove(2), (), {"at"})
    assert registry.indexes.get("i").id > index.id


def test_dropping_a_table_drops_all_of_it(registry: Registry) -> None:
    table, other = a_table(registry), a_table(registry, "other")
    index = registry.indexes.create(table, "i", ("id",), "key")
    registry.commit_artifacts([an_artifact(registry.files.of(table)[0], entries={index.id: 5})], [(index.id, "run")])
    registry.tables.drop("t")
    assert registry.tables.names() == ["other"]
    assert registry.indexes.all() == []
    assert len(registry.files.of(other)) == 3
    assert registry.files.of(table) == []
    with pytest.raises(needlepoint.UnknownName):
        registry.tables.of(index)


# Files


def test_files_are_in_the_order_of_their_paths(registry: Registry) -> None:
    table = a_table(registry, files=0)
    paths = ["b.parquet", "a=É/x.parquet", "B.parquet", "a=%2F/x.parquet", "_.parquet", "a.parquet", "ä.parquet"]
    registry.files.replace(table, [File(path, Identity(2**40, 2**62, "etag", 7, 8), rows=2**40) for path in paths], [])
    found = registry.files.of(table)
    assert [file.path for file in found] == sorted(paths)
    assert {file.identity for file in found} == {Identity(2**40, 2**62, "etag", 7, 8)}
    assert {file.rows for file in found} == {2**40}
    assert sorted(registry.files.paths(table)) == sorted(paths)
    some = [file.id or 0 for file in found[2:4]]
    assert registry.files.of(table, some) == found[2:4]
    assert registry.files.of(table, []) == []


def test_a_path_that_is_added_again_is_another_file(registry: Registry) -> None:
    table = a_table(registry)
    before = ids_of(registry, table)
    index = registry.indexes.create(table, "i", ("id",), "key")
    registry.commit_artifacts([an_artifact(registry.files.of(table)[0], entries={index.id: 5})], [])
    registry.files.replace(table, [File("0.parquet", Identity(9, 9))], [before["1.parquet"]])
    after = ids_of(registry, table)
    assert after.keys() == {"0.parquet", "2.parquet"}
    assert after["0.parquet"] > max(before.values())
    assert registry.files.of(table)[0] == File("0.parquet", Identity(9, 9), after["0.parquet"])
    assert registry.indexes.coverage(index) == (0, 0)


def test_identities_and_samples_are_recorded_where_nothing_else_changed(registry: Registry) -> None:
    table = a_table(registry)
    ids = ids_of(registry, table)
    new = {ids["0.parquet"]: Identity(0, 0, "", 5, 6), ids["1.parquet"]: Identity(8, 8, "", 5, 6)}
    registry.files.recognise(new, {ids["0.parquet"]: "sample", ids["1.parquet"]: "other"})
    registry.files.recognise({ids["0.parquet"]: Identity(0, 0, "", 7, 8)})
    assert registry.files.samples([*ids.values()]) == {ids["0.parquet"]: "sample"}
    assert [file.identity for file in registry.files.of(table)[:2]] == [Identity(0, 0, "", 7, 8), Identity(1, 1)]


def test_problems_are_noted_until_a_file_is_indexed(registry: Registry) -> None:
    table = a_table(registry)
    file = registry.files.of(table)[0]
    registry.files.note_problems({file.id or 0: "odd: 100% '?'"})
    assert registry.files.of(table)[0].problem == "odd: 100% '?'"
    registry.commit_artifacts([an_artifact(file, blooms=("id",), pages=7)], [])
    (found, *_) = registry.files.of(table)
    assert (found.problem, found.has_card, found.blooms, found.pages, found.rows) == (None, True, {"id"}, 7, 5)


ORDINALS = (
    st.none()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False)
    | st.binary(max_size=40)
    | st.text().map(str.encode)
)


@settings(max_examples=cases(300, 15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lows=st.lists(st.tuples(ORDINALS, ORDINALS, st.none() | st.integers(0, 2**40), st.booleans()), min_size=1))
def test_bounds_come_as_they_were_put(registry: Registry, lows: list[tuple[Any, Any, int | None, bool]]) -> None:
    if "b" not in registry.tables.names():
        a_table(registry, "b", files=0)
    table = registry.tables.get("b")
    known = [Bounds(low, high, nulls, 2**40, nan) for low, high, nulls, nan in lows]
    registry.files.replace(table, [File(str(n), Identity(n, n)) for n in range(len(known))], [])
    files = {file.path: file for file in registry.files.of(table)}
    put = [an_artifact(files[str(n)], bounds={"name": each}) for n, each in enumerate(known)]
    registry.commit_artifacts(put, [])
    registry.commit_artifacts(put, [])  # the same again is the same
    found = dict(registry.files.bounds(table, "name"))
    assert [repr(found[files[str(n)].id or 0]) for n in range(len(known))] == [repr(each) for each in known]
    one = files["0"].id or 0
    assert repr(registry.files.bounds(table, "name", [one])) == repr([(one, known[0])])
    registry.files.replace(table, [], [file.id or 0 for file in registry.files.of(table)])


def test_cards_and_zone_maps_are_read_from_their_packs(registry: Registry, open_registry: Opener) -> None:
    table = a_table(registry)
    first, second, third = registry.files.of(table)
    bounds = {"id": Bounds(1, 2, 0, 5), "at": Bounds(1, 2, 0, 5)}
    zones = {"id": b"zones of id", "at": b"zones of at"}
    artifacts = [
        an_artifact(each, card=f"card of {each.path}".encode(), bounds=bounds, zones=zones, units={"at": "ms"})
        for each in (first, second)
    ]
    registry.commit_artifacts(artifacts, [])
    ids = [each.id or 0 for each in (first, second, third)]
    for each in (registry, open_registry()):
        assert each.cards.read(ids[0]) == b"card of 0.parquet"
        assert each.cards.read(ids[2]) is None
        assert each.cards.read_all(ids) == {ids[0]: b"card of 0.parquet", ids[1]: b"card of 1.parquet"}
        assert {id: (zones.data, zones.unit) for id, zones in each.cards.zones(ids, "at").items()} == {
            ids[0]: (b"zones of at", "ms"), ids[1]: (b"zones of at", "ms")
        }  # fmt: skip
        assert each.cards.zones(ids, "name") == each.cards.zones([], "id") == {}
        assert each.cards.check(table) == each.cards.lost() == {}
        assert each.cards.size()[0] == len(each.cards.names()) == 1
    (use,) = registry.cards.uses()
    assert use.live == use.size
    registry.commit_artifacts(artifacts, [])  # described as before: nothing is written
    assert [each.name for each in registry.cards.uses()] == [use.name]
    registry.commit_artifacts([an_artifact(first, card=b"another", bounds={"id": Bounds(1, 2, 0, 5)})], [])
    assert registry.cards.read(ids[0]) == b"another"
    assert registry.files.bounds(table, "at") == [(ids[1], Bounds(1, 2, 0, 5))]
    contents, damaged = registry.cards.contents(registry.cards.files_of([use.id]))
    assert (damaged, [each.file_id for each in contents]) == ({}, [ids[1]])
    registry.cards.copy([use.id], contents)
    assert registry.cards.drop_unused() == [use.name]
    assert registry.cards.read(ids[1]) == b"card of 1.parquet"
    registry.cards.forget({ids[1]: "lost"})
    assert (registry.cards.read(ids[1]), registry.files.of(table)[1].problem) == (None, "lost")
    (left,) = (each for each in registry.cards.uses() if each.live)
    registry.cards.forget_packs({left.id: "gone"})
    assert registry.cards.read(ids[0]) is None
    assert not registry.files.of(table)[0].has_card


def test_bounds_are_in_the_unit_of_the_table(registry: Registry) -> None:
    table = a_table(registry)
    first, second, _ = registry.files.of(table)
    registry.commit_artifacts(
        [
            an_artifact(first, bounds={"at": Bounds(1, 2, 0, 5)}, units={"at": "s"}),
            an_artifact(second, bounds={"at": Bounds(1, 2, 0, 5)}, units={"at": "us"}),
        ],
        [],
    )
    assert registry.files.bounds(table, "at") == [(first.id, Bounds(1000, 2000, 0, 5))]


# Indexes, payloads and artifacts


def test_indexes_are_declared_once(registry: Registry) -> None:
    table, other = a_table(registry), a_table(registry, "other")
    one = registry.indexes.create(table, "one", ("id",), "key", options={"a": 1})
    several = registry.indexes.create(other, "several", ("id", "name"), "bloom", embed=True)
    assert registry.indexes.all() == [one, several]
    assert (several.columns, several.embed, one.embed, one.options) == (("id", "name"), True, False, '{"a": 1}')
    for again in (("one", ("name",), "key"), ("another", ("id",), "key")):
        with pytest.raises(needlepoint.NameTaken):
            registry.indexes.create(table, *again)
    assert registry.indexes.select(table, "one") == registry.indexes.of(table) == [one]
    assert registry.tables.of(several).name == "other"
    with pytest.raises(needlepoint.UnknownName):
        registry.indexes.select(other, "one")
    registry.indexes.drop("one")
    with pytest.raises(needlepoint.UnknownName):
        registry.indexes.get("one")


def test_entries_and_runs_count_with_their_commit(registry: Registry) -> None:
    table = a_table(registry)
    key = registry.indexes.create(table, "k", ("id",), "key")
    gone = registry.indexes.create(table, "g", ("name",), "key")
    registry.indexes.drop("g")
    first, second, third = registry.files.of(table)
    registry.files.replace(table, [], [third.id or 0])
    artifacts = [an_artifact(each, entries={key.id: 5, gone.id: 5}) for each in (first, third)]
    registry.commit_artifacts(artifacts, [(key.id, "r1"), (gone.id, "r2")], {key.id: {second.id or 0: 2**33, 10**9: 1}})
    assert registry.indexes.entries(key) == {first.id: 5, second.id: 2**33}
    assert registry.indexes.coverage(key) == (2, 5 + 2**33)
    assert registry.indexes.runs(key) == ["r1"]
    assert [file.indexed for file in registry.files.of(table)] == [{key.id}, {key.id}]


def test_positions_in_a_file_are_of_the_version_that_is_there(registry: Registry) -> None:
    """One build reads a file; another one embeds an index in it and commits first."""
    table = a_table(registry)
    file = registry.files.of(table)[0]
    key = registry.indexes.create(table, "k", ("id",), "key")
    packed = registry.indexes.create(table, "p", ("id",), "bloom")
    carried = registry.indexes.create(table, "c", ("name",), "bloom", embed=True)
    embedded = registry.indexes.create(table, "e", ("name",), "distinct", embed=True)
    now = Identity(2, 2)
    slow = an_artifact(
        file,
        entries={key.id: 5, packed.id: 5, carried.id: 5},
        places={packed.id: a_place("a.pack"), carried.id: a_place("")},
    )
    quick = an_artifact(
        file, identity=now, entries={embedded.id: 5}, places={embedded.id: a_place("")}, own={"sum of "}
    )
    registry.commit_artifacts([quick], [])
    since = registry.sequence()
    for _ in range(2):
        registry.commit_artifacts([slow], [(key.id, "run")][: 1 if since == registry.sequence() else 0])
        assert registry.files.changed(table, registry.sequence() - 1) == [file.id]
    (found, *_) = registry.files.of(table)
    assert found.identity == now
    assert found.indexed == {key.id, packed.id, embedded.id}
    assert registry.payloads.places(packed) == {file.id: a_place("a.pack")}
    assert registry.payloads.places(carried) == {}
    assert registry.payloads.embedded([file.id or 0]) == {file.id: {"sum of "}}
    assert registry.payloads.embedded([file.id or 0], own=False) == {file.id: {"sum of "}}


def test_payloads_are_packed_again_and_forgotten(registry: Registry) -> None:
    table = a_table(registry)
    index = registry.indexes.create(table, "p", ("id",), "bloom")
    files = registry.files.of(table)
    registry.commit_artifacts(
        [an_artifact(file, places={index.id: a_place("a", n)}, entries={index.id: 1}) for n, file in enumerate(files)],
        [],
    )
    ids = [file.id or 0 for file in files]
    entries = [PackEntry(id, n, 10) for n, id in enumerate(ids)]
    assert registry.payloads.pack_entries() == {(index.id, "a"): entries}
    assert registry.payloads.packs() == {(index.id, "a")}
    assert registry.payloads.checksums() == {"sum of a"}
    assert registry.payloads.size(index) == 30
    since = registry.sequence()
    registry.payloads.repack(index.id, "a", "b", [(entries[0], 70), (PackEntry(ids[1], 99, 10), 80)])
    assert registry.files.changed(table, since) == [ids[0], ids[1]]
    assert {id: (place.pack, place.offset) for id, place in registry.payloads.places(index).items()} == {
        ids[0]: ("b", 70), ids[1]: ("a", 1), ids[2]: ("a", 2)
    }  # fmt: skip
    registry.payloads.forget(index, ids[:2])
    assert registry.payloads.places(index).keys() == {ids[2]}
    assert [file.indexed for file in registry.files.of(table)] == [set(), set(), {index.id}]


def test_a_generation_replaces_an_index_and_ids_are_never_used_twice(registry: Registry) -> None:
    table = a_table(registry)
    index = registry.indexes.create(table, "i", ("id", "name"), "key", options={"x": 1})
    ids = [*ids_of(registry, table).values()]
    registry.commit_artifacts([], [(index.id, "old")], {index.id: dict.fromkeys(ids, 4)})
    reserved = [registry.generations.reserve() for _ in range(3)]
    assert len({index.id, *reserved}) == 4
    installed = []
    assert registry.generations.replace(index, reserved[0], ids[:2], ["new"], lambda: installed.append(1))
    new = registry.indexes.get("i")
    assert new == replace(index, id=reserved[0])
    assert registry.indexes.entries(new) == dict.fromkeys(ids[:2], 4)
    assert registry.indexes.runs(new) == ["new"]
    assert not registry.generations.replace(index, reserved[1], ids, [], lambda: installed.append(2))
    assert installed == [1]
    assert registry.generations.current_ids() == {new.id}
    later = registry.indexes.create(table, "later", ("name",), "key")
    assert later.id > max(reserved)


def test_a_generation_that_cannot_be_installed_does_not_happen(registry: Registry) -> None:
    table = a_table(registry)
    index = registry.indexes.create(table, "i", ("id",), "key")
    new_id = registry.generations.reserve()

    def fail() -> None:
        raise needlepoint.StoreError("no room.")

    before = registry.sequence()
    with pytest.raises(needlepoint.StoreError, match="no room"):
        registry.generations.replace(index, new_id, [], [], fail)
    assert registry.indexes.all() == [index]
    assert registry.sequence() == before


# Batches


def a_batch(table: Table, name: str = "b", targets: tuple[str, ...] = ("new.parquet",), **more: Any) -> Batch:
    moves = tuple(Move(f"/stage/{target}", target, 5, own=True) for target in targets)
    return replace(Batch(table.id, name, "publishing", "/stage", moves), **more)


def test_a_batch_goes_through_its_states(registry: Registry) -> None:
    table = a_table(registry)
    old = registry.files.of(table)[0]
    removal = Removal(old.id or 0, old.path, old.identity)
    batch = a_batch(table, removals=(removal,), keep_until=1.5e9)
    assert registry.batches.begin(batch)
    assert not registry.batches.begin(batch)
    assert registry.batches.get(table, "b") == batch
    assert registry.batches.unfinished(table) == [batch]
    with pytest.raises(needlepoint.TableChanged, match="not finished"):
        registry.tables.drop("t")
    assert registry.batches.commit(batch, [File("new.parquet", Identity(7, 7), rows=5)])
    assert not registry.batches.commit(batch, [File("new.parquet", Identity(7, 7), rows=5)])
    assert [file.path for file in registry.files.of(table)] == ["1.parquet", "2.parquet", "new.parquet"]
    new = ids_of(registry, table)["new.parquet"]
    assert registry.payloads.embedded([new]) == {new: {ALL}}
    assert registry.payloads.embedded([new], own=False) == {}
    # A listing from before the removal does not bring the file back.
    registry.files.replace(table, [File(old.path, old.identity)], [])
    assert old.path not in ids_of(registry, table)
    removing = registry.batches.announced(registry.batches.get(table, "b") or batch)
    assert removing.state == "removing"
    registry.batches.removed(removing)
    assert registry.batches.unfinished(table) == []
    assert registry.batches.get(table, "b") == replace(batch, state="announced", moves=(), removals=())
    registry.tables.drop("t")


def test_two_batches_do_not_remove_the_same_file(registry: Registry) -> None:
    table = a_table(registry)
    old = registry.files.of(table)[0]
    removal = Removal(old.id or 0, old.path, old.identity)
    assert registry.batches.begin(a_batch(table, "one", removals=(removal,)))
    with pytest.raises(needlepoint.TableChanged, match="'one'"):
        registry.batches.begin(a_batch(table, "two", ("two.parquet",), removals=(removal,)))
    assert registry.batches.get(table, "two") is None
    assert registry.batches.abandon(a_batch(table, "one"))
    registry.batches.forget(a_batch(table, "one"))
    assert registry.batches.get(table, "one") is None
    assert not registry.batches.abandon(a_batch(table, "one"))
    gone = replace(removal, file_id=10**9)
    with pytest.raises(needlepoint.TableChanged, match="disappeared"):
        registry.batches.begin(a_batch(table, "three", removals=(gone,)))


def test_a_batch_of_files_that_another_table_has_too_is_refused(registry: Registry) -> None:
    table = a_table(registry)
    other = registry.tables.create("other", "/t", SCHEMA, ())
    old = registry.files.of(table)[0]
    removal = Removal(old.id or 0, old.path, old.identity)
    with pytest.raises(needlepoint.UsageError, match="also belong"):
        registry.batches.begin(a_batch(table, removals=(removal,)))
    assert registry.batches.get(table, "b") is None
    registry.tables.drop(other.name)
    assert registry.batches.begin(a_batch(table, removals=(removal,)))
    with pytest.raises(needlepoint.UsageError, match="being replaced"):
        registry.tables.create("other", "/t", SCHEMA, ())


# Transactions


def test_a_change_is_undone_as_a_whole(registry: Registry, open_registry: Opener) -> None:
    other = open_registry()
    table = a_table(registry)
    before = registry.sequence()
    with pytest.raises(ZeroDivisionError), registry.database.change() as transaction:
        transaction.execute("DELETE FROM files")
        assert registry.files.of(table) == []  # it sees what it wrote
        transaction.executemany("INSERT INTO views (name, query) VALUES (?, ?)", [("a", "b"), ("c", "d")])
        raise ZeroDivisionError
    for each in (registry, other):
        assert len(each.files.of(table)) == 3
        assert each.views.all() == []
        assert each.sequence() == before


def test_a_statement_that_fails_is_a_store_error_and_changes_nothing(registry: Registry) -> None:
    before = registry.sequence()
    with pytest.raises(needlepoint.StoreError), registry.database.change() as transaction:
        transaction.execute("INSERT INTO views (name, query) VALUES ('v', 'SELECT 1')")
        transaction.execute("INSERT INTO nowhere VALUES (1)")
    assert (registry.views.all(), registry.sequence()) == ([], before)
    registry.views.create("v", "SELECT 1")  # and it works again
    with pytest.raises(needlepoint.StoreError):
        registry.database.read("SELECT nothing FROM nowhere")
    assert [name for name, _ in registry.views.all()] == ["v"]


def test_a_snapshot_is_one_state(registry: Registry, open_registry: Opener) -> None:
    other = open_registry()
    table = a_table(registry)
    with registry.snapshot():
        before = registry.sequence()
        other.files.replace(table, [File("new.parquet", Identity(1, 1))], [])
        with registry.snapshot():
            assert registry.sequence() == before
        assert "new.parquet" not in registry.files.paths(table)
        assert registry.files.changed(table, before) == []
    assert registry.sequence() == before + 1
    assert "new.parquet" in registry.files.paths(table)
    assert registry.files.changed(table, before) == [ids_of(registry, table)["new.parquet"]]


def test_known_files_follow_every_change(registry: Registry, open_registry: Opener) -> None:
    other = open_registry()
    table, beside = a_table(registry, files=20), a_table(registry, "beside")
    index = registry.indexes.create(table, "i", ("id",), "key")
    known = KnownFiles(registry)
    ids = ids_of(registry, table)
    files = {file.path: file for file in registry.files.of(table)}
    known.of(table)
    changes: list[Callable[[], object]] = [
        lambda: other.files.replace(table, [File("new.parquet", Identity(1, 1))], [ids["1.parquet"]]),
        lambda: other.files.replace(table, [File("2.parquet", Identity(9, 9))], []),
        lambda: other.commit_artifacts([an_artifact(files["3.parquet"])], []),
        lambda: other.commit_artifacts([], [], {index.id: {ids["5.parquet"]: 3}}),
        lambda: other.files.note_problems({ids["6.parquet"]: "odd"}),
        lambda: other.payloads.forget(index, [ids["5.parquet"]]),
        lambda: other.indexes.drop("i"),
    ]
    for change in changes:
        change()
        assert known.of(table) == {file.path: file for file in registry.files.of(table)}
    before = known.of(table)
    other.files.replace(beside, [File("x.parquet", Identity(1, 1))], [])
    assert known.of(table) is before


def test_changes_are_remembered_for_a_while(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_database, "CHANGES_KEPT", 5)
    table = a_table(registry)
    since = registry.sequence()
    for number in range(40):
        registry.files.replace(table, [File(f"new{number}.parquet", Identity(1, 1))], [])
    assert registry.sequence() == since + 40
    assert registry.files.changed(table, since) is None
    assert len(registry.files.changed(table, since + 38) or []) == 2
    ((kept,),) = registry.database.read("SELECT count(DISTINCT sequence) FROM changes")
    assert kept <= 5 + 32


def test_threads_share_a_registry(registry: Registry) -> None:
    table = a_table(registry, files=0)
    errors: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for number in range(5):
                registry.files.replace(table, [File(f"{thread}-{number}.parquet", Identity(1, 1))], [])
                with registry.snapshot():
                    sequence, paths = registry.sequence(), registry.files.paths(table)
                    assert (registry.sequence(), registry.files.paths(table)) == (sequence, paths)
        except BaseException as error:
            errors.append(error)

    before = registry.sequence()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(registry.files.paths(table)) == 20
    assert registry.sequence() == before + 20


WRITER = """
import json, sys
from pathlib import Path
from needlepoint.objects import Identity
from needlepoint.tables.model import File
from needlepoint.tables.registry import Registry
directory, options, name = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
registry = Registry(directory, directory, **options)
table = registry.tables.get("t")
for number in range(15):
    with registry.database.change() as transaction:
        seen = transaction.execute("SELECT count(*) FROM files WHERE table_id = ?", (table.id,)).fetchall()[0][0]
        transaction.execute(
            "INSERT INTO files (table_id, path, size, mtime_ns, etag, rows) VALUES (?, ?, 1, 1, '', ?)",
            (table.id, f"{name}-{number}.parquet", seen))
registry.close()
"""


def test_processes_change_one_after_the_other(registry: Registry, options: dict[str, Any], tmp_path: Path) -> None:
    """Each sees all changes before its own, so the counts that they saw are all numbers."""
    table = a_table(registry, files=0)
    before = registry.sequence()
    command = [sys.executable, "-c", WRITER, str(tmp_path), json.dumps(options)]
    processes = [subprocess.Popen([*command, name]) for name in ("a", "b")]
    sequences = []
    while any(process.poll() is None for process in processes):
        with registry.snapshot():
            sequences.append((registry.sequence(), len(registry.files.paths(table))))
    assert [process.wait() for process in processes] == [0, 0]
    assert sequences == sorted(sequences)
    assert all(sequence - before == count for sequence, count in sequences)
    assert sorted(file.rows or 0 for file in registry.files.of(table)) == [*range(30)]
    assert registry.sequence() == before + 30
    by_change = registry.database.read("SELECT file_id FROM changes WHERE sequence > ? ORDER BY sequence", before)
    rows = {file.id: file.rows for file in registry.files.of(table)}
    assert [rows[id] for (id,) in by_change] == [*range(30)]


# Opening and closing


def test_a_reader_sees_changes_and_makes_none(registry: Registry, open_registry: Opener, tmp_path: Path) -> None:
    reader = open_registry(own=tmp_path / "own")
    table = a_table(registry)
    assert reader.tables.get("t") == table
    assert len(reader.files.of(table)) == 3
    with pytest.raises(needlepoint.UsageError, match="reading only"):
        reader.tables.drop("t")
    assert reader.locks.claim("mine")
    assert not registry.locks.is_claimed("mine")


def test_a_closed_registry_says_so(registry: Registry) -> None:
    registry.close()
    with pytest.raises(needlepoint.UsageError, match="closed"):
        registry.tables.all()


def test_what_was_deleted_can_be_rewritten_away(registry: Registry) -> None:
    a_table(registry)
    registry.tables.drop("t")
    registry.settle()
    registry.settle(whole=True)
    kind, place, size = registry.database.describe()
    assert kind in ("sqlite", "postgresql")
    assert place
    assert size > 0
    a_table(registry)


# Locks


def test_a_claim_is_of_one_at_a_time(registry: Registry, open_registry: Opener) -> None:
    other = open_registry()
    assert registry.locks.claim("x")
    assert registry.locks.is_claimed("x")
    assert other.locks.is_claimed("x")
    assert not other.locks.claim("x")
    assert not registry.locks.claim("x")
    registry.locks.release("x")
    registry.locks.release("never claimed")
    assert not other.locks.is_claimed("x")
    with other.locks.claimed("x") as mine:
        assert mine
        assert not registry.locks.claim("x")
    assert registry.locks.claim("x")
    registry.close()
    assert not other.locks.is_claimed("x")


def test_a_batch_has_one_publisher(registry: Registry, open_registry: Opener) -> None:
    other = open_registry()
    table = a_table(registry)
    with registry.locks.batch_lock(table, "b", wait=True) as mine:
        assert mine
        for each in (registry, other):
            with each.locks.batch_lock(table, "b", wait=False) as again:
                assert not again
            with each.locks.batch_lock(table, "another", wait=False) as free:
                assert free
        assert registry.batches.begin(a_batch(table))
    with other.locks.batch_lock(table, "b", wait=False) as mine:
        assert mine


def test_embedding_and_removing_exclude_each_other(
    registry: Registry, open_registry: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (needlepoint.tables.locks, *(_postgres_locks(registry))):
        monkeypatch.setattr(module, "LONGEST_WAIT", 0.1)
    other = open_registry()
    table, beside = a_table(registry), a_table(registry, "beside")
    with registry.locks.shared(table), other.locks.shared(table), registry.locks.shared(table):
        for each in (registry, other):
            with pytest.raises(needlepoint.StoreError, match="embedding"), each.locks.exclusive(table):
                pass
            with each.locks.exclusive(beside):
                pass
        registry.files.note_problems({registry.files.of(table)[0].id or 0: "a change under the lock"})
    order = []
    with registry.locks.exclusive(table):
        waiting = threading.Thread(target=lambda: _embed(other, table, order))
        waiting.start()
        waiting.join(0.2)
        order.append("removed")
    waiting.join()
    assert order == ["removed", "embedded"]


def _embed(registry: Registry, table: Table, order: list[str]) -> None:
    with registry.locks.shared(table):
        order.append("embedded")


def _postgres_locks(registry: Registry) -> list[Any]:
    return [sys.modules[type(registry.locks).__module__]]


# Copies


def filled(registry: Registry) -> Table:
    table = a_table(registry, files=5)
    registry.views.create("v", "SELECT 1")
    key = registry.indexes.create(table, "k", ("id",), "key")
    several = registry.indexes.create(table, "e", ("id", "name"), "bloom", embed=True)
    files = registry.files.of(table)
    values = [(1, 2**70), (-0.5, float("inf")), (b"a", b"\xff\x00"), (None, 7), (True, 2)]
    registry.commit_artifacts(
        [
            an_artifact(
                file,
                bounds={"id": Bounds(low, high, 0, 5, n == 1), "at": Bounds(1, 2, None, 5)},
                zones={"at": f"zones {n}".encode()},
                units={"at": "ms"},
                entries={key.id: n, several.id: n},
                places={several.id: a_place(f"pack {n}", n)},
                own={"mine"},
                blooms=("id",),
            )
            for n, (file, (low, high)) in enumerate(zip(files, values, strict=True))
        ],
        [(key.id, "run")],
    )
    old = files[0]
    batch = a_batch(table, removals=(Removal(old.id or 0, old.path, old.identity),), keep_until=2e9)
    assert registry.batches.begin(batch)
    assert registry.batches.commit(batch, [File("new.parquet", Identity(7, 7, "etag"), rows=5)])
    registry.files.note_problems({ids_of(registry, table)["new.parquet"]: "odd"})
    gone = registry.tables.create("gone", "/gone", SCHEMA, ())
    registry.files.replace(gone, [File(f"{n}.parquet", Identity(n, n)) for n in range(9)], [])
    registry.tables.drop("gone")
    registry.generations.reserve()
    return table


@pytest.fixture(params=registries)
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Registry]]:
    """Opens another registry of the lake, in either database."""
    options = registries[request.param](request)
    if options:
        options = {"url": f"{options['url']}?schema=copy"}
    opened = []

    def open_one(**more: Any) -> Registry:
        opened.append(Registry(tmp_path / "copy", tmp_path, **options, **more))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def test_a_moved_registry_is_the_same(
    registry: Registry, open_registry: Opener, other: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_PORTION", 2)
    table = filled(registry)
    questions = (
        lambda r: (r.tables.all(), r.views.all(), r.indexes.all(), r.batches.unfinished(table)),
        lambda r: r.files.of(table),
        lambda r: repr([r.files.bounds(table, column) for column in ("id", "at")]),
        lambda r: [(r.cards.read(id), r.cards.zones([id], "at")) for id in ids_of(r, table).values()],
        lambda r: [(r.indexes.entries(i), r.indexes.runs(i), r.payloads.places(i)) for i in r.indexes.all()],
        lambda r: r.payloads.embedded([*ids_of(r, table).values()]),
        lambda r: r.identity(),
    )
    known, before, reserved = [ask(registry) for ask in questions], registry.sequence(), registry.generations.reserve()
    copy = other()
    counts = copying.move_registry(registry, copy)
    assert counts["files"] == 5
    assert set(counts.values()).isdisjoint({0})
    assert [ask(copy) for ask in questions] == known
    # No id is used twice, and nobody takes an earlier state for one since which it knows all changes.
    assert copy.generations.reserve() == reserved + 1
    assert copy.sequence() > before + registry_database.CHANGES_KEPT
    a_table(copy, "later")
    # Neither a process that has the old one open nor another one uses it.
    for use in (registry.sequence, lambda: a_table(registry, "lost"), open_registry, lambda: open_registry(own=None)):
        with pytest.raises(needlepoint.StoreError, match="was moved to") as error:
            use()
        assert "not-to-be-shown" not in str(error.value)
    # It can come back.
    old = open_registry(for_move=True)
    copying.move_registry(copy, old)
    assert old.identity() == known[-1] and sorted(old.tables.names()) == ["later", "t"]
    assert open_registry().files.of(table) == known[1]
    with pytest.raises(needlepoint.StoreError, match="was moved to"):
        other()


def test_a_registry_is_not_moved_into_another_one(registry: Registry, other: Opener) -> None:
    filled(registry)
    copy = other()
    a_table(copy, "own")
    with pytest.raises(needlepoint.UsageError, match="not empty"):
        copying.move_registry(registry, copy)
    assert registry.sequence() and copy.tables.names() == ["own"]


@pytest.mark.parametrize("killed", ["open_registry", "close_registry"])
def test_a_move_that_was_killed_is_done_again(
    registry: Registry, open_registry: Opener, other: Opener, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    """There is always one registry that can be opened, or a move that finishes."""
    table = filled(registry)
    real, calls = getattr(copying, killed), []

    def dies(*given: Any) -> None:
        calls.append(given)
        if killed == "open_registry" or len(calls) == 2:  # the first closes the copy
            raise KeyboardInterrupt
        real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(copying, killed, dies)
        with pytest.raises(KeyboardInterrupt):
            copying.move_registry(registry, other())
    with pytest.raises(needlepoint.StoreError, match="not finished"):
        other()
    if killed == "close_registry":
        a_table(open_registry(), "later")
    copying.move_registry(open_registry(for_move=True), other(for_move=True))
    assert len(other().files.of(table)) == 5
    assert ("later" in other().tables.names()) == (killed == "close_registry")
    with pytest.raises(needlepoint.StoreError, match="was moved to"):
        open_registry()


def test_a_copy_has_all_columns(registry: Registry) -> None:
    """A new column or table must be copied too."""
    kept = {"sequence", "changes", "fences", "formats", "lake", "sqlite_sequence"}
    if registry.database.describe()[0] == "sqlite":
        names = {name for (name,) in registry.database.read("SELECT name FROM sqlite_master WHERE type = 'table'")}
        columns = {name: [row[1] for row in registry.database.read(f"PRAGMA table_info({name})")] for name in names}
    else:
        columns = {}
        query = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
        for name, column in registry.database.read(query):
            columns.setdefault(name, []).append(column)
    found = {name: set(own) for name, own in columns.items() if name not in kept}
    assert found == {name: set(own.replace('"', "").split(", ")) for name, own in copying.COPIED.items()}
