"""A lake uses an index embedded in a file only if it embedded it, or if its settings trust other writers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lakes import staged, write

import needlepoint
from needlepoint.objects import identify, open_object
from needlepoint.parquet.format.footer import read_footer
from needlepoint.parquet.write.embed import EmbeddingWriter, Payload, embed, embedded, read_payload

KINDS = [("id", "key", {}), ("brand", "distinct", {}), ("brand", "bloom", {}), ("title", "text", {})]
CONDITIONS = {"id": "id = 77", "brand": "brand = 'rare'", "title": "text_match(title, 'goat')"}


def rows(first: int = 0, *, honest: bool = True) -> pa.Table:
    """With `honest=False`, as many other values of the same types, of which a forged index is built."""
    ids = range(first, first + 500)
    return pa.table(
        {
            "id": [id if honest else -id - 1 for id in ids],
            "brand": ["rare" if id % 100 == 77 and honest else f"b{id % 5}" for id in ids],
            "title": [f"{'goat' if id % 100 == 77 and honest else 'cow'} number {id}" for id in ids],
        }
    )


def payloads_of(path: Path) -> list[Payload]:
    """The indexes that are embedded in a file, ready to be embedded in another."""
    with open_object(str(path)) as file:
        entries = embedded(file, read_footer(file)).entries
        return [
            Payload(each.kind, each.columns, each.version, read_payload(file, each), each.options) for each in entries
        ]


@pytest.fixture
def forged(tmp_path: Path) -> list[Payload]:
    """Valid indexes, but of rows that the file does not have."""
    write(rows(honest=False), tmp_path / "forger/item/f.parquet")
    with needlepoint.open(tmp_path / "forger") as lake:
        lake.create_table("item")
        for column, kind, options in KINDS:
            lake.create_index("item", column, kind=kind, embed=True, **options)
    return payloads_of(tmp_path / "forger/item/f.parquet")


def misses(lake: needlepoint.Lake) -> list[str]:
    """Kinds of indexes with which a query loses rows."""
    found = []
    for index in lake.registry.indexes.all():
        query = f"SELECT id FROM item WHERE {CONDITIONS[index.column]} ORDER BY id"
        expected = lake.engine.sql(query, use_indexes=False).to_arrow()
        assert expected.num_rows
        if not lake.engine.sql(query, use_indexes=index.name).to_arrow().equals(expected):
            found.append(index.kind)
    return sorted(found)


def declare(lake: needlepoint.Lake, *, embed: bool) -> None:
    for column, kind, options in KINDS:
        lake.create_index("item", column, kind=kind, embed=embed, **options)


@pytest.mark.covering
@pytest.mark.parametrize("embed_too", [False, True])
@pytest.mark.parametrize("when", ["before", "after", "published"])
def test_forged_indexes_hide_no_rows(tmp_path: Path, forged: list[Payload], embed_too: bool, when: str) -> None:
    """Neither in a table created over such a file, nor in a file that is added later, nor in a published file."""
    first = write(rows(), tmp_path / "lake/item/a.parquet")
    if when == "before":
        embed(str(first), forged)
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("item")
        declare(lake, embed=embed_too)
        if when == "after":
            embed(str(write(rows(1000), tmp_path / "lake/item/b.parquet")), forged)
        elif when == "published":
            staging = lake.writer.staging("item")
            files = staged(staging, {"x.parquet": rows(1000)})
            embed(files[0].path, forged)
            lake.publish("item", files, staging)
        lake.sync()
        assert misses(lake) == []
        assert lake.status().tables[0].unknown == 0
        lake.rebuild("item")
        assert misses(lake) == []
        lake.rebuild("item", from_data=True)
        assert misses(lake) == []


def test_trusting_all_believes_a_forged_index(tmp_path: Path, forged: list[Payload]) -> None:
    """This is what the setting means, and shows that the other tests can fail."""
    embed(str(write(rows(), tmp_path / "lake/item/a.parquet")), forged)
    with needlepoint.open(tmp_path / "lake", refresh=0, trust_embedded=True) as lake:
        lake.create_table("item")
        declare(lake, embed=True)
        assert misses(lake) == ["bloom", "distinct", "key", "text"]
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:  # used until it is rebuilt
        assert misses(lake) != []
        lake.rebuild("item")
        assert misses(lake) == []


def test_a_forged_index_is_not_found_when_another_is_embedded_or_taken_out(
    tmp_path: Path, forged: list[Payload]
) -> None:
    """An index that is not built for a file is not recorded; the forged one in the file must not be recorded either."""
    path = write(rows(), tmp_path / "lake/item/a.parquet")
    embed(str(path), forged)
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("item")
        lake.create_index("item", "title", kind="text", embed=True, build=False)
        lake.create_index("item", "brand", kind="distinct", embed=True, build=False)
        lake.retrofit("item", bloom=["id"])
        assert misses(lake) == []
        lake.create_index("item", "id", embed=True)
        lake.drop_index("item_brand_distinct", strip=True)
        assert misses(lake) == []


def test_a_file_that_is_replaced_is_not_believed_any_more(tmp_path: Path, forged: list[Payload]) -> None:
    path = write(rows(), tmp_path / "lake/item/a.parquet")
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("item")
        declare(lake, embed=True)
        embed(str(path), forged)
        assert misses(lake) == []
        lake.sync()
        assert misses(lake) == []


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """After a call, every read of rows from a file fails."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("data is read")

    return lambda: monkeypatch.setattr(pq.ParquetFile, "iter_batches", refuse)


def test_what_this_lake_embedded_is_taken_without_reading_data(tmp_path: Path, no_data: Callable[[], None]) -> None:
    write(rows(), tmp_path / "lake/item/a.parquet")
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("item")
        declare(lake, embed=True)
        no_data()
        assert lake.rebuild("item")[0].failures == ()
        lake.drop_index("item_id_key")
        lake.create_index("item", "id")  # copied out of the file
        assert lake.status().tables[0].indexed == 1


def test_what_this_lake_writes_is_taken_without_reading_data(tmp_path: Path, no_data: Callable[[], None]) -> None:
    """Compaction embeds before it publishes; the indexer then finds the payloads in the new file."""
    for number in range(2):
        write(rows(number * 1000), tmp_path / f"lake/item/{number}.parquet")
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("item")
        declare(lake, embed=True)
        lake.compact("item", index=False)
        no_data()
        assert lake.sync()[0].failures == ()
        assert lake.status().tables[0].indexed == 1


def test_what_others_embedded_is_not_taken(tmp_path: Path, no_data: Callable[[], None]) -> None:
    """The counterpart of the two tests above: without its store, the lake does not know that it embedded the index."""
    write(rows(), tmp_path / "lake/item/a.parquet")
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("item")
        declare(lake, embed=True)
    shutil.rmtree(tmp_path / "lake/.needlepoint")
    no_data()
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("item")
        with pytest.raises(AssertionError, match="data is read"):
            lake.create_index("item", "id", embed=True)
    with needlepoint.open(tmp_path / "lake", refresh=0, trust_embedded=True) as lake:
        for column, kind, options in KINDS[1:]:
            lake.create_index("item", column, kind=kind, embed=True, **options)
        assert lake.sync()[0].failures == ()
        assert lake.status().tables[0].indexed == 1


def test_lakes_over_the_same_files_do_not_write_them_in_turns(tmp_path: Path) -> None:
    """They do not trust each other. Each builds the index, finds the same bytes in the file, and does not write it."""
    path = write(rows(), tmp_path / "first/item/a.parquet")
    with needlepoint.open(tmp_path / "first", refresh=0) as first, needlepoint.open(tmp_path / "second") as second:
        first.create_table("item")
        declare(first, embed=True)
        embedded_by_first = identify(str(path))
        second.create_table("item", tmp_path / "first/item")
        declare(second, embed=True)
        assert identify(str(path)) == embedded_by_first
        assert misses(second) == []
        assert second.rebuild("item")[0].failures == ()
        assert identify(str(path)) == embedded_by_first
        second.create_index("item", "title", kind="distinct", embed=True)
        for lake in (first, second, first, second):
            lake.sync()
        settled = identify(str(path))
        first.sync()
        second.sync()
        assert identify(str(path)) == settled
        assert misses(first) == []


def test_a_forged_file_as_our_own_writer_writes_it(tmp_path: Path, forged: list[Payload]) -> None:
    """A forged file that is written with our own class still counts as a file of another writer."""
    path = tmp_path / "lake/item/a.parquet"
    path.parent.mkdir(parents=True)
    table = rows()
    with EmbeddingWriter(path, table.schema) as writer:
        writer.write_table(table)
        for payload in forged:
            writer.add(payload)
    assert pq.read_table(path).num_rows == 500
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("item")
        declare(lake, embed=False)
        assert misses(lake) == []
    shutil.rmtree(tmp_path / "lake/.needlepoint")
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("item")
        declare(lake, embed=True)
        assert misses(lake) == []
