"""Indexes of single files, external and embedded: declared, built, used, copied, lost, verified and rebuilt."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sqlite3
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cases import long
from tests.lakes import write

import needlepoint
from needlepoint import NotIndexable, UnknownName, UsageError
from needlepoint.access import Rows
from needlepoint.indexer import payloads
from needlepoint.indexes.base import Answer, ColumnSource, IndexPayload
from needlepoint.indexes.distinct.kind import DistinctKind
from needlepoint.indexes.distinct.search import DistinctIndex
from needlepoint.indexes.stored import UnpackedPayloads
from needlepoint.indexes.text.query_language import parse, terms
from needlepoint.indexes.text.search import TextIndex
from needlepoint.objects import replacing
from needlepoint.query.datafusion.scoring import statistics_of
from needlepoint.stores.base import IndexDamaged

FILES, ROWS = 4, 3000
BRANDS = ["acme", "Globex", "umbrella, inc", "hooli\nlabs", "", "initech"]


def brand_lake(root: Path, files: int = FILES) -> Path:
    """`root/item`: brands in runs of 100 rows, so that each value is in few pages; only file 3 has 'rare'."""
    for number in range(files):
        random = np.random.default_rng(number)
        brands: list[str | None] = [BRANDS[(row // 100 + number) % len(BRANDS)] for row in range(ROWS)]
        if number == 3:
            brands[1234] = "rare"
        brands[7] = None
        table = pa.table(
            {
                "id": np.arange(number * ROWS, (number + 1) * ROWS),
                "brand": brands,
                "code": random.integers(0, 1_000_000, ROWS),
                "title": [f"dairy cow {row % 13}" if row % 50 == 0 else f"goat {row}" for row in range(ROWS)],
            }
        )
        write(table, root / "item" / f"f{number}.parquet")
    return root / "item"


@pytest.fixture(params=[False, True], ids=["external", "embedded"])
def embed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def opened(root: Path) -> needlepoint.Lake:
    brand_lake(root)
    lake = needlepoint.open(root, refresh=0)
    lake.create_table("item")
    return lake


def use(report: object, kind: str) -> object:
    return next(use for table in report.tables for use in table.indexes if use.kind == kind)  # type: ignore[attr-defined]


def same(lake: needlepoint.Lake, condition: str) -> int:
    """The number of rows that match a condition; the rows must be the same without indexes."""
    query = f"SELECT id, brand, code, title FROM item WHERE {condition} ORDER BY id"
    indexed = lake.sql(query).to_arrow()
    assert indexed.equals(lake.engine.sql(query, use_indexes=False).to_arrow()), condition
    return indexed.num_rows


def test_distinct_values_rule_out_files_and_pages(tmp_path: Path, embed: bool) -> None:
    with opened(tmp_path) as lake:
        lake.create_index("item", "brand", kind="distinct", embed=embed)
        assert same(lake, "brand = 'rare'") == 1
        found = lake.sql("SELECT id FROM item WHERE brand = 'rare'")
        assert found.report.tables[0].files.read == 1
        assert found.report.tables[0].rows.read == 100  # one page
        assert use(found.report, "distinct").used
        assert lake.sql("SELECT id FROM item WHERE brand = 'nowhere'").report.tables[0].bytes.read == 0
        for condition in (
            "brand = 'hooli\nlabs'", "brand = ''", "brand IN ('rare', 'acme')", "brand <> 'acme'", "brand IS NULL",
            "brand NOT IN ('acme', 'Globex')", "brand LIKE '%, inc'", "brand > 'h'", "NOT (brand = 'rare')",
            "brand = 'rare' OR brand IS NULL", "brand = 'rare' AND title LIKE '%goat%'",
        ):  # fmt: skip
            assert same(lake, condition)


def test_bloom_filters_rule_out_files(tmp_path: Path, embed: bool) -> None:
    with opened(tmp_path) as lake:
        lake.create_index("item", "code", kind="bloom", embed=embed)
        lake.create_index("item", ["brand", "code"], kind="bloom", embed=embed)
        row = lake.sql("SELECT brand, code FROM item WHERE id = 3456").rows()[0]
        found = lake.sql(f"SELECT id FROM item WHERE code = {row['code']}")
        assert {"id": 3456} in found.rows()
        assert use(found.report, "bloom").used
        assert found.report.tables[0].files.read < FILES
        assert same(lake, f"code = {row['code']} AND brand = '{row['brand']}'")
        assert same(lake, f"code IN ({row['code']}, 3)")
        assert [index.column for index in lake.status().tables[0].indexes] == ["brand, code", "code"]


def test_other_readers_read_files_with_embedded_indexes(tmp_path: Path) -> None:
    expected = pq.read_table(brand_lake(tmp_path / "plain")).sort_by("id")
    with opened(tmp_path / "lake") as lake:
        lake.create_index("item", "brand", kind="distinct", embed=True)
        lake.create_index("item", "code", kind="bloom", embed=True)
        lake.create_index("item", "id", embed=True)
    assert pq.read_table(tmp_path / "lake/item").sort_by("id").equals(expected)


def test_embedding_keeps_what_is_indexed(tmp_path: Path) -> None:
    """Files get another size and time; their key entries and the places of other embedded indexes stay valid."""
    with opened(tmp_path) as lake:
        lake.create_index("item", "id")
        lake.create_index("item", "brand", kind="distinct", embed=True)
        lake.create_index("item", "code", kind="bloom", embed=True)
        status = lake.status().tables[0]
        assert (status.indexed, status.unknown) == (FILES, 0)
        found = lake.sql("SELECT title FROM item WHERE id = 77")
        assert found.report.tables[0].rows.read == 1
        assert lake.sync("item")[0].indexed == 0
        lake.drop_index("item_brand_distinct", strip=True)
        code = lake.sql("SELECT code FROM item WHERE id = 5000").rows()[0]["code"]
        assert use(lake.sql(f"SELECT id FROM item WHERE code = {code}").report, "bloom").used
        assert lake.status().tables[0].unknown == 0


def test_files_bring_their_indexes_into_another_lake(tmp_path: Path) -> None:
    with opened(tmp_path / "first") as lake:
        lake.create_index("item", "brand", kind="distinct", embed=True)
        lake.create_index("item", "id", embed=True)
    shutil.copytree(tmp_path / "first/item", tmp_path / "second/item")
    before = {path.name: path.stat().st_size for path in (tmp_path / "second/item").iterdir()}
    spoil_data(tmp_path / "second/item", ["id", "brand"])
    with needlepoint.open(tmp_path / "second", trust_embedded=True) as lake:
        lake.create_table("item")
        lake.create_index("item", "brand", kind="distinct")  # external: copied out of the files
        lake.create_index("item", "id")
        assert {path.name: path.stat().st_size for path in (tmp_path / "second/item").iterdir()} == before
        assert lake.status().tables[0].indexed == FILES
        assert lake.explain("SELECT title FROM item WHERE brand = 'rare'").tables[0].files.read == 1
        assert lake.explain("SELECT title FROM item WHERE id = 4321").tables[0].rows.read == 1


def spoil_data(directory: Path, columns: list[str]) -> None:
    """Make the data pages of these columns unreadable: reading one fails."""
    for path in directory.glob("*.parquet"):
        metadata = pq.read_metadata(path)
        data = bytearray(path.read_bytes())
        for group in range(metadata.num_row_groups):
            for place in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(place)
                if chunk.path_in_schema in columns:
                    start = chunk.data_page_offset
                    data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
        path.write_bytes(data)


def test_rebuilding_from_embedded_indexes_reads_no_data(tmp_path: Path) -> None:
    with opened(tmp_path) as lake:
        lake.create_index("item", "brand", kind="distinct", embed=True)
        lake.create_index("item", "id", embed=True)
        lake.sync()
    spoil_data(tmp_path / "item", ["id", "brand"])
    shutil.rmtree(tmp_path / ".needlepoint")
    with needlepoint.open(tmp_path, trust_embedded=True) as lake:
        lake.create_table("item")
        lake.create_index("item", "brand", kind="distinct", embed=True)
        lake.create_index("item", "id", embed=True)
        assert lake.rebuild("item")[0].failures == ()
        assert lake.status().tables[0].indexed == FILES
        assert lake.explain("SELECT title FROM item WHERE id = 3050").tables[0].rows.read == 1


def test_an_index_that_lost_its_pack_costs_time_only(tmp_path: Path) -> None:
    with opened(tmp_path) as lake:
        lake.create_index("item", "brand", kind="distinct")
        for pack in (tmp_path / ".needlepoint/indexes").rglob("*.pack"):
            pack.unlink()
        assert same(lake, "brand = 'rare'") == 1
        assert not use(lake.explain("SELECT id FROM item WHERE brand = 'rare'"), "distinct").used
        assert lake.sync("item")[0].indexed == FILES
        assert use(lake.explain("SELECT id FROM item WHERE brand = 'rare'"), "distinct").used


def test_payloads_of_earlier_versions(tmp_path: Path) -> None:
    """Those that are only larger stay; others are built again."""
    with opened(tmp_path) as lake:
        index = lake.registry.indexes.get(lake.create_index("item", "title", kind="text"))
        before = lake.registry.payloads.places(index)
        for version, built in ((3, 0), (2, 0), (1, FILES)):
            with sqlite3.connect(tmp_path / ".needlepoint/registry.db") as connection:
                connection.execute("UPDATE payloads SET version = ?", (version,))
                connection.execute("UPDATE sequence SET value = value + 1")
            connection.close()
            assert same(lake, "title LIKE '%airy cow 3%'") > 0
            assert lake.sync("item")[0].indexed == built
            after = lake.registry.payloads.places(index)
            assert {place.version for place in after.values()} == {3 if built else version}
            packs = [{place.pack for place in places.values()} for places in (before, after)]
            assert (packs[0] == packs[1]) == (not built)


def test_a_damaged_payload_costs_time_only(tmp_path: Path, embed: bool) -> None:
    with opened(tmp_path) as lake:
        name = lake.create_index("item", "brand", kind="distinct", embed=embed)
        index = lake.registry.indexes.get(name)
        for id, place in lake.registry.payloads.places(index).items():
            file = next(file for file in lake.registry.files.of(lake.registry.tables.get("item")) if file.id == id)
            path = tmp_path / "item" / file.path
            if place.pack:
                path = tmp_path / ".needlepoint/indexes" / str(index.id) / place.pack
            times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
            data = bytearray(path.read_bytes())
            data[place.offset + place.length // 2] ^= 0xFF
            path.write_bytes(data)
            os.utime(path, ns=times)
        assert same(lake, "brand = 'rare'") == 1
        report = lake.explain("SELECT id FROM item WHERE brand = 'rare'")
        assert not use(report, "distinct").used
        # A file with the embedded index counts as changed, although its modification time is the same.
        reason = "up-to-date index" if embed else "cannot be read"
        assert reason in use(report, "distinct").why
        assert lake.verify("item", samples=5).differences == ()
        lake.rebuild("item")
        assert use(lake.explain("SELECT id FROM item WHERE brand = 'rare'"), "distinct").used


@pytest.mark.long
def test_verify_names_a_wrong_index(tmp_path: Path) -> None:
    with opened(tmp_path) as lake:
        lake.create_index("item", "brand", kind="distinct")
        lake.create_index("item", "id")
        report = lake.verify("item", samples=10, seed=1)
        assert report.differences == ()
        assert {check.index for check in report.checks} == {"item_brand_distinct", "item_id_key"}
        # Use the payload of one file for another file, which has other brands.
        index = lake.registry.indexes.get("item_brand_distinct")
        places = lake.registry.payloads.places(index)
        last, first = max(places), min(places)
        with sqlite3.connect(tmp_path / ".needlepoint/registry.db") as connection:
            connection.execute(
                "UPDATE payloads SET offset = ?, length = ?, size = ?, checksum = ? WHERE file_id = ?",
                (places[first].offset, places[first].length, places[first].size, places[first].checksum, last),
            )
            connection.execute("UPDATE sequence SET value = value + 1")
        connection.close()
        lied = lake.verify("item", samples=60, seed=1).differences
        assert lied
        assert all(check.index == "item_brand_distinct" and check.indexed < check.scanned for check in lied)


def test_too_many_values_are_refused_with_the_figure(tmp_path: Path) -> None:
    with opened(tmp_path) as lake:
        with pytest.raises(NotIndexable, match=r"3,?000"):
            lake.create_index("item", "id", kind="distinct", most_values=100)
        assert lake.status().tables[0].indexes == ()
        lake.create_index("item", "id", kind="distinct", most_values=5000)


def test_a_later_file_with_too_many_values_is_scanned(tmp_path: Path) -> None:
    with opened(tmp_path) as lake:
        lake.create_index("item", "brand", kind="distinct", most_values=10)
        many = pa.table({"id": np.arange(90_000, 91_000), "brand": [f"b{n}" for n in range(1000)]})
        write(many, tmp_path / "item/many.parquet")
        report = lake.sync("item")[0]
        assert "many.parquet" in report.failures[0].reason
        assert lake.sync("item")[0].failures == ()  # it is not tried again
        assert same(lake, "brand = 'b77'") == 1
        assert same(lake, "brand = 'rare'") == 1


def test_what_cannot_be_declared(tmp_path: Path) -> None:
    with opened(tmp_path) as lake:
        with pytest.raises(UnknownName, match="distinct"):
            lake.create_index("item", "brand", kind="distinkt")
        with pytest.raises(UsageError):
            lake.create_index("item", "brand", kind="distinct", colour="red")
        with pytest.raises(UsageError):
            lake.create_index("item", ["brand", "brand"], kind="bloom")
        with pytest.raises(NotIndexable, match="one column"):
            lake.create_index("item", ["brand", "code"])
        assert lake.status().tables[0].indexes == ()


def test_sql_says_the_same(tmp_path: Path) -> None:
    with opened(tmp_path) as lake:
        lake.sql("CREATE INDEX ON item USING distinct (brand) WITH (embed, most_values = 50)")
        lake.sql("CREATE INDEX both ON item USING bloom (brand, code)")
        shown = lake.sql("SHOW INDEXES").rows()
        assert [(row["name"], row["kind"], row["embedded"]) for row in shown] == [
            ("both", "bloom", False),
            ("item_brand_distinct", "distinct", True),
        ]


def test_files_that_come_later_are_embedded_too(tmp_path: Path) -> None:
    with opened(tmp_path) as lake:
        lake.create_index("item", "brand", kind="distinct", embed=True)
        table = pq.read_table(tmp_path / "item/f0.parquet").replace_schema_metadata(None)
        write(table, tmp_path / "item/f9.parquet")
        before = (tmp_path / "item/f9.parquet").stat().st_size
        lake.sync()
        assert (tmp_path / "item/f9.parquet").stat().st_size > before
        assert lake.status().tables[0].indexed == FILES + 1


def test_sweeping_removes_packs_of_files_that_are_gone(tmp_path: Path) -> None:
    with opened(tmp_path) as lake:
        lake.create_index("item", "brand", kind="distinct")
        for path in (tmp_path / "item").iterdir():
            path.unlink()
        write(pa.table({"id": [1], "brand": ["new"], "code": [1], "title": ["t"]}), tmp_path / "item/new.parquet")
        lake.sync()
        packs = list((tmp_path / ".needlepoint/indexes").rglob("*.pack"))
        assert len(packs) == 2
        for pack in packs:
            os.utime(pack, (time.time() - 2 * 24 * 3600,) * 2)
        assert lake.sweep().pack_bytes > 0
        assert same(lake, "brand = 'new'") == 1
        assert len(list((tmp_path / ".needlepoint/indexes").rglob("*.pack"))) == 1


TITLES = [
    "Dairy Cow", "dairy cow", "nondairy cowboy", "the dairy  cow", "dairy, cow", "airy co", "DAIRY COW!", "cow dairy",
    None, "", "50% dairy_cow", "Σίσυφος", "σίσυφοσ", "straße", "牛乳と牛", "e\u0301cole", "x" * 70_000, "goat\ncheese",
]  # fmt: skip
PATTERNS = [
    "title LIKE '%dairy cow%'", "title LIKE '%airy co%'", "title LIKE 'dairy%'", "title LIKE '%cow'", "title LIKE ''",
    "title ILIKE '%DAIRY cow%'", "title LIKE '%50\\%%'", "title LIKE '%dairy_cow%'", "title LIKE '%'",
    "title NOT LIKE '%dairy%'", "contains(title, 'y c')", "strpos(title, 'cow') > 0", "title ~ 'dairy.*cow'",
    "title ~* 'DAIRY'", "title = 'Dairy Cow'", "title IN ('airy co', 'straße')", "title LIKE '%牛%'",
    "title ILIKE '%ΣΊΣΥΦΟΣ%'", "title LIKE '%xxxx%'", "title LIKE '%e\u0301%'", "title LIKE '%goat\ncheese%'",
    "title LIKE '%dairy cow%' AND id < 4000", "title LIKE '%dairy cow%' OR id = 7", "title LIKE '%nowhere at all%'",
    "text_match(title, 'dairy cow')", "text_match(title, '\"dairy cow\" -boy')", "text_match(title, 'cow*')",
    "text_match(title, 'darry~1')", "NOT text_match(title, 'cow')",
]  # fmt: skip


@pytest.mark.parametrize(
    ("embed", "tokenizer"), [(True, "trigram"), *long((False, "word"), (True, "word"), (False, "trigram"))]
)
def test_text_search_is_exactly_sqls(tmp_path: Path, embed: bool, tokenizer: str) -> None:
    for number in range(3):
        titles = [TITLES[(row + number) % len(TITLES)] if row % 7 == 0 else f"filler {row}" for row in range(ROWS)]
        table = pa.table({"id": np.arange(number * ROWS, (number + 1) * ROWS), "title": pa.array(titles, pa.string())})
        write(table, tmp_path / "item" / f"f{number}.parquet")
    with needlepoint.open(tmp_path, refresh=0, access="pages") as lake:
        lake.create_table("item")
        lake.create_index("item", "title", kind="text", embed=embed, tokenizer=tokenizer)
        used = 0
        for condition in PATTERNS:
            query = f"SELECT id, title FROM item WHERE {condition} ORDER BY id"
            found = lake.sql(query)
            assert found.to_arrow().equals(lake.engine.sql(query, use_indexes=False).to_arrow()), condition
            used += use(found.report, "text").used
        assert used > len(PATTERNS) / 2
        assert lake.verify("item", samples=10, seed=3).differences == ()


@pytest.mark.covering
@pytest.mark.parametrize("condition", ["title LIKE '%dairy cows%'", "text_match(title, 'cow bell')", "title = 'cow'"])
def test_text_that_is_nowhere_costs_no_data_page(tmp_path: Path, embed: bool, condition: str) -> None:
    with opened(tmp_path) as lake:
        lake.create_index("item", "title", kind="text", embed=embed)
        nothing = lake.sql(f"SELECT id FROM item WHERE {condition}")
        assert nothing.rows() == []
        assert nothing.report.tables[0].bytes.read == 0


def test_scores_are_the_same_with_an_index_and_read_no_more_texts(tmp_path: Path, embed: bool) -> None:
    query = """SELECT id, score(title, 'dairy "cow 7" goat*') AS s FROM item
               WHERE text_match(title, '"cow 7"') ORDER BY s DESC, id LIMIT 20"""
    with opened(tmp_path) as lake:
        expected = lake.sql(query).to_arrow()
        lake.create_index("item", "title", kind="text", embed=embed)
        assert lake.sql(query).to_arrow().equals(expected)
        snapshot = lake.engine.state("item")
        snapshot.texts.clear()
        spoil_data(tmp_path / "item", ["title"])
        assert len(statistics_of(snapshot, "title", terms(parse("dairy")), lake.engine.queries).frequencies) == 1


def test_the_second_process_does_not_unpack(tmp_path: Path) -> None:
    with opened(tmp_path) as lake:
        lake.create_index("item", "title", kind="text")
        assert lake.sql("SELECT id FROM item WHERE title LIKE '%dairy cow 7%'").rows()
        unpacked = {path: path.stat().st_ino for path in (tmp_path / ".needlepoint/unpacked").rglob("*")}
    with needlepoint.open(tmp_path) as lake:
        assert lake.sql("SELECT id FROM item WHERE title LIKE '%dairy cow 7%'").rows()
        assert {path: path.stat().st_ino for path in (tmp_path / ".needlepoint/unpacked").rglob("*")} == unpacked
        lake.sweep()


def test_unpacked_indexes_are_bounded(tmp_path: Path) -> None:
    unpacked = UnpackedPayloads(tmp_path / "unpacked", limit=25_000)

    def make(place: Path) -> None:
        (place / "file").write_bytes(b"x" * 10_000)

    for number in range(4):
        place = unpacked.get(f"content{number}", make)
        os.utime(place, (time.time() - 1000 + number,) * 2)
    unpacked.get("content4", make)
    assert sorted(path.name for path in (tmp_path / "unpacked").iterdir()) == ["content3", "content4"]


def test_what_is_known_of_a_file_changes_when_an_index_is_put_into_it(tmp_path: Path) -> None:
    with opened(tmp_path) as lake:
        assert same(lake, "brand = 'rare'") == 1
        lake.create_index("item", "id")
        assert same(lake, "id = 77") == 1
        lake.create_index("item", "brand", kind="distinct", embed=True)
        assert same(lake, "brand = 'rare'") == 1
        assert same(lake, "id = 77") == 1
        lake.drop_index("item_brand_distinct", strip=True)
        assert same(lake, "brand = 'rare' OR id = 77") == 2


@pytest.mark.parametrize("how", ["cut", "replaced", "removed"])
def test_unpacked_files_that_were_changed_are_unpacked_again(tmp_path: Path, how: str) -> None:
    with opened(tmp_path) as lake:
        lake.create_index("item", "title", kind="text")
        assert same(lake, "title LIKE '%dairy cow 7%'")
    for path in (tmp_path / ".needlepoint/unpacked").rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            data = path.read_bytes()
            path.unlink()
            if how != "removed":
                path.write_bytes(data[: len(data) // 2] if how == "cut" else bytes(len(data)))
    with needlepoint.open(tmp_path, refresh=0) as lake:
        assert same(lake, "title LIKE '%dairy cow 7%'")
        assert same(lake, "title LIKE '%goat 17%'")
        assert use(lake.explain("SELECT id FROM item WHERE title LIKE '%dairy cow 77%'"), "text").used


def test_verify_asks_each_index_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as lake:
        lake.create_index("item", "brand", kind="distinct")
        lake.create_index("item", "brand")
        monkeypatch.setattr(DistinctIndex, "find", lambda *_: Answer(Rows.of([0])))
        lied = lake.verify("item", samples=10, seed=2).differences
        assert {check.kind for check in lied} == {"distinct"}


def test_verify_samples_the_same_twice(tmp_path: Path) -> None:
    write(pa.table({"id": range(100), "title": ["red", "green"] * 50}), tmp_path / "item/f.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("item")
        lake.create_index("item", "title", kind="text")
        assert lake.verify("item", samples=50, seed=1).differences == ()


def test_a_wrong_embedded_index_is_built_from_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lying(kind: DistinctKind, source: ColumnSource) -> IndexPayload:
        other = pa.record_batch([pa.array(["other"] * source.rows)], ["brand"])
        return build(kind, dataclasses.replace(source, batches=lambda: iter([other])))

    build = DistinctKind.build
    with opened(tmp_path) as lake:
        monkeypatch.setattr(DistinctKind, "build", lying)
        lake.create_index("item", "brand", kind="distinct", embed=True)
        monkeypatch.undo()
        assert lake.verify("item", samples=5, seed=1).differences
        lake.rebuild("item", from_data=True)
        assert lake.verify("item", samples=5, seed=1).differences == ()
        assert same(lake, "brand = 'rare'") == 1


def test_explain_says_that_files_are_not_indexed_as_they_are(tmp_path: Path) -> None:
    with opened(tmp_path) as lake:
        lake.create_index("item", "brand", kind="distinct")
        for path in (tmp_path / "item").iterdir():
            os.utime(path)
        assert "up-to-date index" in use(lake.explain("SELECT id FROM item WHERE brand = 'rare'"), "distinct").why


def test_a_file_that_cannot_be_written_to_is_indexed_in_every_other_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError("read-only")

    with opened(tmp_path) as lake:
        monkeypatch.setattr(payloads, "embed", refused)
        with pytest.raises(NotIndexable, match="read-only"):
            lake.create_index("item", "brand", kind="distinct", embed=True)
        lake.create_index("item", "brand", kind="distinct", embed=True, build=False)
        lake.create_index("item", "id", build=False)
        assert "read-only" in lake.sync()[0].failures[0].reason
        assert lake.explain("SELECT title FROM item WHERE id = 7").tables[0].rows.read == 1
        monkeypatch.undo()
        assert lake.sync()[0].failures == ()
        assert lake.status().tables[0].indexed == FILES


def test_a_kind_that_is_not_installed_stops_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as lake:
        lake.create_index("item", "brand", kind="distinct")
        with sqlite3.connect(tmp_path / ".needlepoint/registry.db") as connection:
            connection.execute("UPDATE indexes SET kind = 'gone'")
            connection.execute("UPDATE sequence SET value = value + 1")
        connection.close()
        assert "gone" in lake.sync()[0].failures[0].reason
        assert same(lake, "brand = 'rare'") == 1
        lake.create_index("item", "id")
        assert same(lake, "id = 77") == 1


def test_stripping_reaches_files_that_changed_since_the_last_sync(tmp_path: Path) -> None:
    with opened(tmp_path) as lake:
        name = lake.create_index("item", "brand", kind="distinct", embed=True)
        os.utime(tmp_path / "item/f1.parquet")
        lake.drop_index(name, strip=True)
        keys = [pq.read_metadata(path).metadata or {} for path in (tmp_path / "item").iterdir()]
        assert not any(b"needlepoint.indexes" in each for each in keys)
        assert same(lake, "brand = 'rare'") == 1


@pytest.mark.parametrize("option", ["kind = 'x'", "table = 'x'", "name = 'x'", "embed = 'no'", "colour = 3"])
def test_options_that_are_none(tmp_path: Path, option: str) -> None:
    with opened(tmp_path) as lake, pytest.raises(UsageError):
        lake.sql(f"CREATE INDEX ON item USING bloom (code) WITH ({option})")


@pytest.mark.parametrize("how", ["embed", "retrofit", "strip"])
def test_a_file_that_another_writer_replaces_at_that_moment_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with opened(tmp_path) as lake:
        lake.create_index("item", "id")
        name = lake.create_index("item", "title", kind="text", embed=True)
        other = pq.read_table(tmp_path / "item/f0.parquet").replace_schema_metadata(None)
        other = other.set_column(0, "id", pa.array(np.arange(70_000, 70_000 + ROWS)))

        def replaced(directory: Path) -> None:
            write(other, tmp_path / "elsewhere.parquet")
            (tmp_path / "elsewhere.parquet").replace(tmp_path / "item/f0.parquet")

        monkeypatch.setattr(replacing, "_sync_directory", replaced)
        if how == "embed":
            lake.create_index("item", "brand", kind="distinct", embed=True)
        elif how == "retrofit":
            lake.retrofit("item", bloom=["id"])
        else:
            lake.drop_index(name, strip=True)
        monkeypatch.undo()
        assert same(lake, "id = 70007") == 1
        lake.sync()
        assert same(lake, "id = 70007") == 1
        assert same(lake, "id = 7") == 0


def test_a_column_with_a_dot_beside_a_struct(tmp_path: Path) -> None:
    table = pa.table({"a": [{"b": 1}, {"b": 2}], "a.b": [30, 40]})
    write(table, tmp_path / "item/f.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("item")
        lake.create_index("item", "a.b", name="dotted")
        assert lake.sql('SELECT "a.b" FROM item WHERE "a.b" = 40').rows() == [{"a.b": 40}]


@pytest.mark.parametrize("method", ["build", "open"])
def test_a_kind_that_fails_costs_time_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    def failing(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    with opened(tmp_path) as lake:
        if method == "open":
            lake.create_index("item", "brand", kind="distinct")
        monkeypatch.setattr(DistinctKind, method, failing)
        if method == "build":
            lake.create_index("item", "brand", kind="distinct", build=False)
            assert "a bug" in lake.sync()[0].failures[0].reason
        assert same(lake, "brand = 'rare'") == 1
        assert not use(lake.explain("SELECT id FROM item WHERE brand = 'rare'"), "distinct").used


def test_scores_do_without_a_damaged_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT id, score(title, 'dair*') AS s FROM item ORDER BY s DESC, id LIMIT 5"
    with opened(tmp_path) as lake:
        expected = lake.sql(query).to_arrow()
        lake.create_index("item", "title", kind="text")

        def damaged(*_: object) -> None:
            raise IndexDamaged("damaged.")

        monkeypatch.setattr(TextIndex, "rows_with_prefix", damaged)
        assert lake.sql(query).to_arrow().equals(expected)


def test_what_no_index_refers_to_is_swept_from_the_unpacked(tmp_path: Path) -> None:
    with opened(tmp_path) as lake:
        name = lake.create_index("item", "title", kind="text")
        assert same(lake, "title LIKE '%dairy cow 7%'")
        unpacked = list((tmp_path / ".needlepoint/unpacked").iterdir())
        assert unpacked
        lake.drop_index(name)
        for path in unpacked:
            os.utime(path, (time.time() - 1000,) * 2)
        assert lake.sweep().unpacked_bytes > 0
        assert list((tmp_path / ".needlepoint/unpacked").iterdir()) == []
