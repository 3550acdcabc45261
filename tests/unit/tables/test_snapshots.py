"""A snapshot of a table while its files change: always one state, and never more than two listings."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lakes import products, staged, write

import needlepoint
from needlepoint.tables import snapshots
from needlepoint.tables.listing import Listing
from needlepoint.tables.snapshots import Snapshots


@pytest.fixture
def lake(tmp_path: Path):
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        publish(lake, 0)
        yield lake


def publish(lake, first: int, *, replacing: bool = False, keep: float = 0.0) -> None:
    """Publish twenty rows in two files, which may replace all existing files."""
    staging = lake.writer.staging("product")
    tables = {f"year={2020 + number}/x.parquet": products(first + number * 10, 10) for number in range(2)}
    removed = lake.registry.files.of(lake.registry.tables.get("product")) if replacing else []
    lake.publish("product", staged(staging, tables), staging, removed=removed, keep=keep)


@pytest.fixture
def listing(lake, monkeypatch: pytest.MonkeyPatch):
    """Calls functions before and after the directory is listed, and counts the listings."""
    original, listed = snapshots.list_files, []

    def during(*, before: Callable[[], object] = int, after: Callable[[], object] = int) -> list[str]:
        def busy(location: str) -> Listing:
            listed.append(location)
            before()
            found = original(location)
            after()
            return found

        monkeypatch.setattr(snapshots, "list_files", busy)
        return listed

    return during


def seen(lake) -> tuple[int, int, int]:
    """Numbers of files, of rows, and of files that the registry does not know."""
    files = Snapshots(lake.registry, 0).look("product").files
    return len(files), sum(file.rows or 0 for file in files), sum(file.id is None for file in files)


def test_batches_during_every_listing_are_seen_by_one(lake, listing) -> None:
    listed = listing(after=lambda: publish(lake, 100 * len(listed)))
    assert seen(lake) == (4, 40, 0)
    assert len(listed) == 1
    assert seen(lake) == (6, 60, 0)
    assert len(listed) == 2


@pytest.mark.parametrize("keep", [0.0, 3600.0])
def test_a_swap_during_the_listing_shows_the_new_files(lake, listing, keep: float) -> None:
    listed = listing(after=lambda: publish(lake, 100, replacing=True, keep=keep))
    assert seen(lake) == (2, 20, 0)
    assert len(listed) == 1


@pytest.mark.parametrize("keep", [0.0, 3600.0])
def test_a_batch_that_comes_and_goes_during_the_listing_was_never_there(lake, listing, keep: float) -> None:
    listing(before=lambda: publish(lake, 100), after=lambda: publish(lake, 200, replacing=True, keep=keep))
    assert seen(lake) == (2, 20, 0)


def test_files_that_come_and_are_deleted_during_the_listing_were_never_there(lake, listing) -> None:
    old = {file.path for file in lake.registry.files.of(lake.registry.tables.get("product"))}

    def delete() -> None:
        new = {file.path for file in lake.registry.files.of(lake.registry.tables.get("product"))} - old
        lake.delete_files("product", sorted(new))

    listing(before=lambda: publish(lake, 100), after=lambda: (listing(), delete()))
    assert seen(lake) == (2, 20, 0)


def test_a_batch_that_is_still_on_its_way_is_not_there(lake, listing, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> bool:
        raise RuntimeError

    def begin() -> None:
        monkeypatch.setattr(lake.registry.batches, "commit", fail)
        with pytest.raises(RuntimeError):
            publish(lake, 100)

    listing(before=begin)
    assert seen(lake) == (2, 20, 0)


def test_a_file_that_something_was_embedded_in_during_the_listing_is_the_one_it_is_now(lake, listing) -> None:
    listing(after=lambda: (listing(), lake.create_index("product", "upc", kind="bloom", embed=True)))
    assert seen(lake) == (2, 20, 0)
    listing()
    assert seen(lake) == (2, 20, 0)


@pytest.mark.parametrize("before", [True, False])
def test_what_others_do_during_the_listing_is_seen_too(lake, listing, before: bool) -> None:
    place = lake.root / "product"
    write(products(1000, 5), place / "year=2020/kept.parquet")
    write(products(2000, 5), place / "year=2020/deleted.parquet")
    (first, _) = sorted(place.rglob("part-*.parquet"))

    def change() -> None:
        publish(lake, 100)
        (place / "year=2020/deleted.parquet").unlink()
        write(products(3000, 7), place / "year=2020/kept.parquet")
        if before:
            first.unlink()

    listed = listing(before=change) if before else listing(after=change)
    found = Snapshots(lake.registry, 0).look("product").files
    assert len(listed) == 1
    unknown = [file for file in found if file.id is None]
    kept = (place / "year=2020/kept.parquet").stat()
    assert [(file.path, file.identity.mtime_ns) for file in unknown] == [("year=2020/kept.parquet", kept.st_mtime_ns)]
    assert len(found) == (4 if before else 5)


def test_a_table_that_is_recreated_during_the_listing_is_listed_again(lake, listing, tmp_path: Path) -> None:
    write(products(0, 10), tmp_path / "elsewhere/a.parquet")

    def exchange() -> None:
        listing()
        lake.drop_table("product")
        lake.create_table("product", tmp_path / "elsewhere")

    listing(after=exchange)
    found = Snapshots(lake.registry, 0).look("product")
    assert [file.path for file in found.files] == ["a.parquet"]


@pytest.mark.long
def test_queries_go_on_while_files_are_published_and_swapped(lake, monkeypatch: pytest.MonkeyPatch) -> None:
    original, listed, stop = snapshots.list_files, [], threading.Event()

    def slow(location: str) -> Listing:
        """List one partition after the other, as in a bucket with very many objects."""
        listed.append(location)
        found = {}
        for year in ("year=2020/", "year=2021/"):
            found |= {path: identity for path, identity in original(location).files.items() if path.startswith(year)}
            time.sleep(0.1)
        return Listing(found, complete=True)

    failures: list[BaseException] = []
    changes = []

    def change(keep: float) -> None:
        try:
            with needlepoint.open(lake.root, refresh=0) as writer:
                while not stop.is_set():
                    publish(writer, 0, replacing=True, keep=keep)
                    changes.append(1)
                    writer.sweep(now=True)
        except BaseException as error:
            failures.append(error)

    monkeypatch.setattr(snapshots, "list_files", slow)
    writer = threading.Thread(target=change, args=(0.05,))
    writer.start()
    try:
        for number in range(1, 16):
            assert seen(lake) == (2, 20, 0)
            assert len(listed) == number
        (answer,) = lake.sql("SELECT count(*) AS n, count(DISTINCT product_id) AS d FROM product").rows()
        assert answer == {"n": 20, "d": 20}
    finally:
        stop.set()
        writer.join()
    assert not failures
    assert len(changes) > 15


def test_a_table_that_is_being_listed_keeps_no_other_waiting(lake, monkeypatch: pytest.MonkeyPatch) -> None:
    write(products(0, 10), lake.root / "other/a.parquet")
    lake.create_table("other")
    watched = Snapshots(lake.registry, 600)
    original, begun, end, listed = snapshots.list_files, threading.Event(), threading.Event(), []

    def slow(location: str) -> Listing:
        found = original(location)
        if location.endswith("/product"):
            listed.append(location)
            begun.set()
            assert end.wait(20)
        return found

    monkeypatch.setattr(snapshots, "list_files", slow)
    lister = threading.Thread(target=watched.current, args=("product",))
    lister.start()
    try:
        assert begun.wait(20)
        other = watched.current("other")
        assert len(other.files) == 1
        watched.forget()  # does not wait either
        assert watched.current("other") is other  # the same files
    finally:
        end.set()
        lister.join()
    # A table that was forgotten while it was listed is listed again, once.
    watched.current("product")
    watched.current("product")
    assert len(listed) == 2


@pytest.mark.parametrize("keep", [0.0, 3600.0])
def test_a_swap_while_files_are_recognised_shows_the_new_files(
    lake, monkeypatch: pytest.MonkeyPatch, keep: float
) -> None:
    """Their mode was changed, so the snapshot compares their content; in the meantime they are replaced."""
    lake.indexer.catch_up(lake.registry.tables.get("product"))
    for path in Path(lake.registry.tables.get("product").location).rglob("*.parquet"):
        path.chmod(0o600)
    original = snapshots.changed_files.settle

    def settle(*arguments: object) -> bool:
        recognised = original(*arguments)
        publish(lake, 100, replacing=True, keep=keep)
        return recognised

    monkeypatch.setattr(snapshots.changed_files, "settle", settle)
    assert seen(lake) == (2, 20, 0)
