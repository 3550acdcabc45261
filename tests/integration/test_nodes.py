"""Nodes without a store: a lake in a bucket, read on an empty disk from nothing but the bucket."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.buckets import Asked, Bucket, Server
from tests.cases import cases
from tests.lakes import product_lake, products, staged

import needlepoint
from needlepoint.cli.needle import main
from needlepoint.lake import lake_opener
from needlepoint.tables.published import publisher, sweeping

TITLES = ["whole milk", "oat milk", "rye bread", "butter", "dark chocolate", "green tea"]


def orders(first: int, count: int) -> pa.Table:
    chance = np.random.default_rng(first)
    return pa.table(
        {
            "order_id": np.arange(first, first + count),
            "product_id": chance.integers(0, 4000, count),
            "city": [f"city {number}" for number in chance.integers(0, 40, count)],
            "note": [TITLES[number] for number in chance.integers(0, len(TITLES), count)],
        }
    )


class Shared:
    """A bucket, the machine that writes, and readers with an empty disk each."""

    def __init__(self, bucket: Bucket, directory: Path, **settings: Any) -> None:
        self.bucket = bucket
        self.directory = directory
        self.settings = settings
        self.url = bucket.url("lake")
        self.writer = self.write()
        self.readers: list[needlepoint.Lake] = []

    def write(self, **settings: Any) -> needlepoint.Lake:
        given = {"object_refresh": 0, "workers": 1, **self.settings, **settings}
        return needlepoint.open(self.url, store=self.directory / "store", **given)

    def read(self, name: str = "", **settings: Any) -> needlepoint.Lake:
        """Each with a disk of its own."""
        given = {"object_refresh": 0, **self.settings, **settings}
        place = self.directory / f"node{name or len(self.readers)}"
        made = needlepoint.open(self.url, read_only=True, store=place / "none", cache=place / "cache", **given)
        self.readers.append(made)
        return made

    def publish(self, table: str, rows: pa.Table, batch: str | None = None) -> None:
        staging = self.directory / f"stage-{time.monotonic_ns()}"
        self.writer.publish(table, staged(staging, {"a.parquet": rows}), staging, batch)
        self.writer.sync(table)

    def keys(self, below: str = "") -> set[str]:
        found = self.bucket.client.list_objects_v2(Bucket=self.bucket.name, Prefix=f"lake/.needlepoint/{below}")
        return {each["Key"] for each in found.get("Contents", [])}

    def close(self) -> None:
        for each in (*self.readers, self.writer):
            each.close()


@pytest.fixture
def shared(bucket: Bucket, tmp_path: Path) -> Iterator[Shared]:
    made = Shared(bucket, tmp_path)
    yield made
    made.close()


def fill(shared: Shared) -> tuple[pa.Table, pa.Table]:
    """Two tables with indexes of all kinds; all of it published."""
    made = [products(first, 1000) for first in (0, 1000, 2000)], [orders(first, 800) for first in (0, 800)]
    for name, parts in zip(("product", "sale"), made, strict=True):
        for part in parts:
            shared.publish(name, part)
    writer = shared.writer
    writer.create_index("product", "product_id")
    writer.create_index("product", "upc", "distinct")
    writer.create_index("product", "title", "text")
    writer.create_index("sale", "order_id", "bloom")
    writer.create_index("sale", "city", "distinct")
    writer.create_index("sale", "note", "text")
    writer.sql("CREATE VIEW milk AS SELECT * FROM sale WHERE note LIKE '%milk%'")
    if writer.publisher is not None:
        writer.share()
    return pa.concat_tables(made[0]), pa.concat_tables(made[1])


QUERIES = [
    "SELECT * FROM product WHERE product_id = 1234",
    "SELECT product_id FROM product WHERE product_id IN (5, 17, 2999, 8000)",
    "SELECT * FROM product WHERE upc = 'U000000777'",
    "SELECT product_id FROM product WHERE title LIKE '%title 42 %'",
    "SELECT * FROM sale WHERE order_id = 1200",
    "SELECT count(*), min(order_id) FROM sale WHERE city = 'city 7'",
    "SELECT city, count(*) FROM sale WHERE note LIKE '%milk%' GROUP BY city",
    "SELECT s.order_id, p.upc FROM sale s JOIN product p USING (product_id) WHERE s.city = 'city 3' AND p.price > 50",
    "SELECT count(*), sum(product_id), max(price) FROM product WHERE price BETWEEN 10 AND 20",
]


def rows(table: pa.Table) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in table.to_pylist())


def expected(query: str, product: pa.Table, sale: pa.Table) -> list[str]:
    connection = duckdb.connect()
    connection.register("product", product)
    connection.register("sale", sale)
    found = connection.sql(query).fetchall()
    return sorted(repr(tuple(row)) for row in found)


def test_a_node_with_an_empty_disk_answers_as_duckdb_does(shared: Shared, server: Server) -> None:
    product, sale = fill(shared)
    shared.writer.close()
    shutil.rmtree(shared.directory / "store")  # the machine that wrote is gone
    server.asked.clear()
    node = shared.read()
    opening = [each.method for each in server.asked]
    assert opening == ["GET"] * len(opening) and len(opening) <= 4  # the manifest, a checkpoint, deltas
    for query in QUERIES:
        assert rows(node.sql(query).to_arrow()) == expected(query, product, sale), query
    notes = sale["note"].to_pylist()
    milk = notes.count("whole milk") + notes.count("oat milk")
    assert node.sql("SELECT count(*) FROM milk").rows() == [{"count(*)": milk}]
    ours = [each for each in server.asked if ".needlepoint" in each.path]
    assert not server.listings() and {each.method for each in ours} == {"GET"}
    assert node.tables() == ["product", "sale"] and len(node.status().tables) == 2
    used = {line for query in QUERIES for line in str(node.explain(query)).splitlines() if "used" in line}
    assert any("product_upc_distinct (distinct): used" in line for line in used)
    assert any("product_title_text (text): used" in line for line in used)
    assert any("in the store of the machine that writes" in line for line in used)


def test_a_row_takes_few_requests(shared: Shared, server: Server) -> None:
    """And a second one less, also in another process with the same disk: cards are kept there."""
    fill(shared)
    shared.writer.share(whole=True)
    server.asked.clear()
    node = shared.read("a", object_refresh=60)
    assert node.tables() == ["product", "sale"]
    assert len(server.asked) <= 3, server.asked  # the manifest and the checkpoint: it is ready
    counts = []
    for reader in (node, node, shared.read("a", object_refresh=60)):
        reader.sql("SHOW TABLES")
        server.asked.clear()
        assert reader.sql("SELECT * FROM product WHERE upc = 'U000000777'").to_arrow().num_rows == 1
        counts.append(len(server.asked))
    assert counts[0] <= 4 and counts[1] <= counts[0] and counts[2] < counts[0], counts


def test_a_row_by_a_key_index_in_the_lake_takes_few_requests(shared: Shared, server: Server) -> None:
    shared.publish("orders", orders(0, 3000))
    shared.writer.create_index("orders", "order_id", store="lake:")
    shared.writer.share()
    counts = []
    for name in ("a", "a", "b"):  # again after a restart
        node = shared.read(name, object_refresh=60)
        server.asked.clear()
        assert node.sql("SELECT count(*) AS n FROM orders").rows() == [{"n": 3000}]  # it is ready
        assert [each.path.endswith("/manifest.ndjson") for each in server.asked] == [True]
        for number in (1234, 1234, 2999):
            server.asked.clear()
            assert node.sql(f"SELECT * FROM orders WHERE order_id = {number}").to_arrow().num_rows == 1
            counts.append(len(server.asked))
    # A directory and a page of a leaf file, a card, and the pages; the disk keeps what never changes.
    assert counts[:3] == counts[6:] and counts[0] <= 4 and max(*counts[1:3], *counts[3:6]) == 1, counts


def test_a_node_follows_the_lake(shared: Shared, server: Server) -> None:
    fill(shared)
    node, seldom = shared.read(), shared.read(object_refresh=3600)
    count = "SELECT count(*) FROM product"
    assert node.sql(count).rows() == seldom.sql(count).rows() == [{"count(*)": 3000}]
    shared.publish("product", products(3000, 500))
    shared.writer.share()
    assert node.sql(count).rows() == [{"count(*)": 3500}]
    assert seldom.sql(count).rows() == [{"count(*)": 3000}]
    shared.writer.delete("product", "product_id < 250")
    shared.writer.drop_index("sale_city_distinct")
    shared.writer.share()
    assert node.sql(count).rows() == [{"count(*)": 3250}]
    assert "sale_city_distinct" not in [row["name"] for row in node.sql("SHOW INDEXES ON sale").rows()]
    server.asked.clear()
    node.sql(count)
    asked = [each for each in server.asked if "manifest.json" in each.path]
    assert 1 <= len(asked) <= 3 and not [each for each in server.asked if "delta" in each.path]


def test_a_change_is_published_by_itself(shared: Shared) -> None:
    fill(shared)
    node = shared.read()
    shared.publish("sale", orders(1600, 10))
    deadline = time.monotonic() + 20
    while node.sql("SELECT count(*) FROM sale").rows() != [{"count(*)": 1610}]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_files_that_are_replaced_and_deleted(shared: Shared) -> None:
    """A node that has not followed yet notices that files are gone, follows, and answers from those in their place."""
    product, _ = fill(shared)
    node = shared.read(object_refresh=3600)
    query = "SELECT product_id, upc FROM product WHERE product_id >= 1500"
    node.sql("SELECT count(*) FROM product").rows()
    shared.writer.compact("product")
    shared.writer.sweep(now=True)
    assert rows(node.sql(query).to_arrow()) == expected(query, product, product)
    assert node.sql("SELECT upc FROM product WHERE upc = 'U000000003'").to_arrow().num_rows == 1


@pytest.mark.long
def test_packs_that_are_swept_are_there_for_a_while(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    product, sale = fill(shared)
    before = shared.keys("indexes") | shared.keys("cards")
    node = shared.read(object_refresh=3600)
    shared.writer.rebuild("sale")
    shared.writer.drop_index("product_title_text")
    shared.writer.sweep()
    shared.writer.share()
    assert shared.keys("indexes") | shared.keys("cards") >= before
    for query in QUERIES:
        assert rows(node.sql(query).to_arrow()) == expected(query, product, sale), query
    monkeypatch.setattr(sweeping, "PACK_GRACE", 0.0)
    shared.writer.sweep()
    gone = before - shared.keys("indexes") - shared.keys("cards")
    assert gone
    for reader in (node, shared.read()):  # what a node cannot read any more, it scans
        for query in QUERIES:
            assert rows(reader.sql(query).to_arrow()) == expected(query, product, sale), query


@pytest.mark.long
def test_the_cache_is_removed_while_a_node_is_open(shared: Shared) -> None:
    product, sale = fill(shared)
    node = shared.read("x")
    for query in QUERIES[:4]:
        node.sql(query).to_arrow()
    shutil.rmtree(shared.directory / "nodex" / "cache")
    for query in QUERIES:
        assert rows(node.sql(query).to_arrow()) == expected(query, product, sale), query
    shared.publish("sale", orders(1600, 10))
    shared.writer.share()
    assert node.sql("SELECT count(*) FROM sale").rows() == [{"count(*)": 1610}]


def test_the_cache_is_removed_again_and_again_while_queries_run(shared: Shared) -> None:
    """All of it: checkpoints, pieces of packs, unpacked text indexes, leaf files, and the directory of the process."""
    product, sale = fill(shared)
    shared.writer.copy_store("rocksdb", "lake:")
    shared.writer.share()
    node = shared.read("x")
    assert "product_product_id_key (key): used" in str(node.explain(QUERIES[0]))
    answers = {query: expected(query, product, sale) for query in QUERIES}
    cache, removed = shared.directory / "nodex" / "cache", 0

    def ask() -> list[str]:
        return [
            query
            for _ in range(cases(20, 3))
            for query in QUERIES
            if rows(node.sql(query).to_arrow()) != answers[query]
        ]

    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(ask) for _ in range(3)]
        while not all(each.done() for each in asked):
            shutil.rmtree(cache, ignore_errors=True)
            removed += 1
            time.sleep(0.02)
    assert [each.result() for each in asked] == [[], [], []] and removed > 5
    shared.publish("sale", orders(1600, 10))
    shared.writer.share()
    assert node.sql("SELECT count(*) FROM sale").rows() == [{"count(*)": 1610}]


def test_a_writer_that_died_is_published_by_the_next(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(shared)
    shared.writer.close()
    monkeypatch.setattr(publisher, "DELAY", 3600.0)
    shared.writer = shared.write()
    shared.publish("sale", orders(1600, 10))
    assert shared.writer.publisher is not None
    shared.writer.publisher.abandon()  # it ends before it publishes
    shared.writer.close()
    monkeypatch.undo()
    assert shared.read().sql("SELECT count(*) FROM sale").rows() == [{"count(*)": 1600}]
    shared.writer = shared.write()
    shared.writer.close()
    assert shared.read().sql("SELECT count(*) FROM sale").rows() == [{"count(*)": 1610}]


def test_a_bucket_that_fails_for_a_while(shared: Shared, server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """The registry is not undone, and readers go on with what they have."""
    fill(shared)
    node = shared.read()
    node.sql("SELECT count(*) FROM sale WHERE city = 'city 1'").rows()
    server.before = lambda asked: 403 if ".needlepoint" in asked.path else None
    shared.writer.sql("CREATE VIEW v AS SELECT 1 AS one")
    assert shared.writer.publisher is not None and not shared.writer.publisher.try_publish()
    state = shared.writer.publisher.state()
    assert state.lag == 1 and "refused" in state.problem and "is not published" in caplog.text
    assert node.sql("SELECT count(*) FROM sale").rows() == [{"count(*)": 1600}]
    assert "refused" in node.node.follower.problem  # type: ignore[union-attr]
    server.before = None
    assert shared.writer.share().lag == 0
    assert node.sql("SELECT * FROM v").rows() == [{"one": 1}]


def test_a_conditional_put_that_loses(shared: Shared, server: Server) -> None:
    fill(shared)
    lost: list[Asked] = []

    def lose(asked: Asked) -> int | None:
        if asked.method == "PUT" and "manifest" in asked.path and len(lost) < 2:
            lost.append(asked)
            return 412
        return None

    shared.publish("sale", orders(1600, 10))
    server.before = lose
    assert shared.writer.share().lag == 0
    server.before = None
    assert shared.read().sql("SELECT count(*) FROM sale").rows() == [{"count(*)": 1610}]


def test_no_lake_is_there(bucket: Bucket, tmp_path: Path) -> None:
    with pytest.raises(needlepoint.UsageError, match="there is no"):
        needlepoint.open(bucket.url("lake"), read_only=True, store=tmp_path / "a", cache=tmp_path / "b")


def test_a_node_changes_nothing(shared: Shared) -> None:
    fill(shared)
    node = shared.read()
    before = shared.keys()
    for change in (
        lambda: node.create_table("x"),
        lambda: node.sync(),
        lambda: node.share(),
        lambda: node.sweep(),
        lambda: node.delete("sale", "TRUE"),
        lambda: node.create_index("sale", "product_id"),
    ):
        with pytest.raises(needlepoint.NeedlepointError):
            change()
    assert shared.keys() == before


def test_a_lake_that_is_not_shared(bucket: Bucket, tmp_path: Path) -> None:
    with needlepoint.open(bucket.url("lake"), store=tmp_path / "store", shared="off") as lake:
        bucket.put_table("lake/product/a.parquet", products(0, 10))
        lake.create_table("product")
        with pytest.raises(needlepoint.UsageError, match="does not publish"):
            lake.share()
    assert not bucket.client.list_objects_v2(Bucket=bucket.name, Prefix="lake/.needlepoint").get("Contents")


def test_a_directory_that_machines_share(tmp_path: Path) -> None:
    """On a file system that both see; packs are read where the store has them."""
    root = tmp_path / "lake"
    product_lake(root)
    with needlepoint.open(root, shared="on", workers=1) as lake:
        lake.create_table("product")
        lake.create_index("product", "upc", "distinct")
        lake.share()
        node = needlepoint.open(root, read_only=True, shared="on", cache=tmp_path / "cache", refresh=0)
        with node:
            assert node.registry.is_followed
            assert node.sql("SELECT product_id FROM product WHERE upc = 'U000000005'").rows() == [{"product_id": 5}]
            lake.delete("product", "product_id = 5")
            lake.share()
            assert node.sql("SELECT product_id FROM product WHERE upc = 'U000000005'").rows() == []
        assert lake.sync()[0].indexed == 0  # what is published is no part of a table


def test_the_command_line(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(shared)
    shared.writer.close()

    def needle(*arguments: str, store: str) -> str:
        given = {"NEEDLE_LAKE": shared.url, "NEEDLE_STORE": str(shared.directory / store)}
        found = CliRunner(env={**given, "XDG_CACHE_HOME": str(shared.directory / "cache")}).invoke(main, arguments)
        assert found.exit_code == 0, found.output
        return found.output

    assert needle("share", "--whole", store="store").startswith("published at change ")
    query = "SELECT upc FROM product WHERE upc = 'U000000777'"
    assert json.loads(needle("sql", "--format", "json", query, store="none")) == [{"upc": "U000000777"}]
    assert "product_upc_distinct (distinct): used" in needle("explain", query, store="none")
    assert "published at change" in needle("status", store="none")
    assert "published at change" in needle("status", store="store")
    assert (shared.directory / "cache/needlepoint").is_dir() and not (shared.directory / "none").exists()


def test_nothing_of_deleted_rows_is_left(shared: Shared) -> None:
    """In the bucket, after a sweep that waits for nobody."""
    fill(shared)
    shared.publish("sale", pa.table({"order_id": [9000], "product_id": [1], "city": ["Atlantis"], "note": ["milk"]}))
    shared.writer.share()

    def left() -> list[str]:
        found = []
        for key in sorted(shared.keys()):
            data = shared.bucket.client.get_object(Bucket=shared.bucket.name, Key=key)["Body"].read()
            if key.endswith(".zst"):
                data = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
            found += [key] if b"Atlantis" in data else []
        return found

    assert left()
    shared.writer.delete("sale", "order_id = 9000")
    shared.writer.sweep(now=True)
    assert not left()
    assert shared.read().sql("SELECT count(*) FROM sale").rows() == [{"count(*)": 1600}]


def test_other_processes_open_a_node_as_this_one_did(shared: Shared) -> None:
    """Tasks that read with an open lake open it again where they run."""
    fill(shared)
    node = shared.read()
    again = lake_opener(node)()
    try:
        assert again is not node and again.registry.is_followed and again.store != node.store
        assert again.sql("SELECT count(*) FROM sale").rows() == [{"count(*)": 1600}]
    finally:
        again.close()


def test_nodes_of_a_registry_in_postgresql(bucket: Bucket, server: Server, tmp_path: Path, postgres_url: str) -> None:
    """They have nothing but the lake and the registry, and use all indexes; so does a second machine that writes."""
    shared = Shared(bucket, tmp_path, registry=postgres_url, queue=postgres_url)
    try:
        product, sale = fill(shared)
        assert not [*(tmp_path / "store").glob("**/*.pack")]
        second = needlepoint.open(shared.url, store=tmp_path / "second", cache=tmp_path / "c", **shared.settings)
        shared.readers.append(second)
        for lake in (shared.read("x"), second):
            for query in QUERIES:
                assert rows(lake.sql(query).to_arrow()) == expected(query, product, sale), query
            used = {line for query in QUERIES for line in str(lake.explain(query)).splitlines() if "used" in line}
            for name in ("product_product_id_key", "product_upc_distinct", "product_title_text"):
                assert any(f"{name} " in line and ": used" in line for line in used), (name, used)
        again = shared.read("x", object_refresh=60)
        for _ in range(2):
            again.sql("SHOW TABLES")
            server.asked.clear()
            assert again.sql("SELECT * FROM product WHERE upc = 'U000000777'").to_arrow().num_rows == 1
        assert len(server.gets()) == len(server.asked) == 1
        second.delete("sale", "order_id < 400")
        second.rebuild("product")
        second.compact("sale")
        second.sync()
        shared.writer.sweep(now=True)
        left = sale.filter(pa.compute.greater_equal(sale["order_id"], 400))
        for lake in (shared.writer, second, shared.read()):
            for query in QUERIES:
                assert rows(lake.sql(query).to_arrow()) == expected(query, product, left), query
            assert lake.verify("product", samples=2).is_sound
        kept = {
            (each.id, name)
            for each in second.registry.indexes.all()
            for name in second.registry.payloads.packs_of(each)
        }
        assert len(shared.keys("packs/")) == len(kept) + len(second.registry.cards.names())
        second.drop_index("sale_note_text")
        assert len(shared.keys("packs/")) < len(kept) + len(second.registry.cards.names())
    finally:
        shared.close()


def test_a_node_uses_key_indexes_in_the_lake(shared: Shared) -> None:
    writer = shared.writer
    shared.publish("orders", orders(0, 3000))
    writer.create_index("orders", "order_id")
    writer.sql("CREATE INDEX ON orders USING key (product_id) WITH (store = 'lake:')")
    writer.share()
    node = shared.read(access="pages")
    query = "SELECT order_id, city FROM orders WHERE product_id IN (7, 77, 777) ORDER BY order_id"
    expected = writer.sql(query).rows()
    assert expected
    assert node.sql(query).rows() == expected
    assert "orders_product_id_key (key): used" in str(node.explain(query))
    by_order = "SELECT city FROM orders WHERE order_id = 5"
    assert "machine that writes the lake" in str(node.explain(by_order))
    writer.copy_store("rocksdb", "lake:")
    writer.share()
    assert "orders_order_id_key (key): used" in str(node.explain(by_order))
    shared.publish("orders", orders(3000, 500))
    writer.share()
    assert node.sql(query).rows() == writer.sql(query).rows()
    assert node.table("orders").get(order_id=3100).rows() == writer.table("orders").get(order_id=3100).rows() != []
