"""`status` shows size, health and lag of each store, without passwords, and waits for no server that is away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.buckets import Bucket
from tests.database_servers import PASSWORD, PostgresServer, RedisServer
from tests.integration.test_repair import rows_of, write
from tests.lakes import staged

import needlepoint
from needlepoint.cli import main
from needlepoint.lake import StoreStatus, store_status


def stores(lake: needlepoint.Lake) -> dict[str, StoreStatus]:
    found = lake.status().stores
    assert PASSWORD not in str(found)
    return {f"{each.part} {each.place.partition(':')[0]}" if "://" in each.place else each.part: each for each in found}


def test_a_lake_on_one_machine(tmp_path: Path) -> None:
    write(tmp_path, 0)
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("item")
        lake.create_index("item", "id", name="ids")
        lake.create_index("item", "name", kind="distinct", name="names")
        found = stores(lake)
        assert list(found) == ["registry", "keys", "packs", "cards", "queue"]
        assert all(each.bytes and not each.problem and not each.behind for each in [*found.values()][:4])
        assert found["registry"].format == 7 and found["registry"].place.endswith("registry.db")
        write(tmp_path, 1)
        found = stores(lake)
        assert [found[part].behind for part in ("keys", "packs", "cards")] == [1, 1, 1]
        staging = lake.writer.staging("item")
        lake.publish("item", staged(staging, {"a.parquet": rows_of(2)}), staging)
        queue = stores(lake)["queue"]
        assert (queue.behind, queue.unit) == (1, "event") and 0 <= (queue.seconds or 0) < 60
        lake.sync()
        pack = next((tmp_path / ".needlepoint/indexes").glob("*/*.pack"))
        lake.create_index("item", "name", name="in_lake", store="lake:")
        assert [each.name for each in lake.status().stores if each.part == "keys"] == ["rocksdb", "lake:"]
        pack.unlink()
        assert "is missing" in stores(lake)["packs"].problem
        next((tmp_path / ".needlepoint/cards").glob("*.pack")).unlink()
        assert "is missing" in stores(lake)["cards"].problem
    (tmp_path / ".needlepoint/queue.db").write_bytes(b"no database" * 1000)

    def needle(*words: str) -> str:
        done = CliRunner().invoke(main, ["status", *words, "--lake", str(tmp_path)])
        assert done.exit_code == 0, done.output
        return done.output

    shown = needle()
    assert "queue: " in shown and "file is not a database" in shown and "names: " in shown
    assert "keys in rocksdb" in shown and "keys in lake:" in shown
    found = json.loads(needle("--format", "json"))
    assert {each["part"] for each in found["stores"]} == {"registry", "keys", "packs", "cards", "queue"}


@pytest.mark.parametrize("how", ["stopped", "paused"])
def test_a_server_that_is_away(
    tmp_path: Path,
    postgres_url: str,
    redis_url: str,
    redis_server: RedisServer,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_status, "PATIENCE", 0.5)
    write(tmp_path, 0)
    with needlepoint.open(tmp_path, keys=redis_url, queue=postgres_url) as lake:
        lake.create_table("item")
        lake.create_index("item", "id", name="ids")
        found = stores(lake)
        assert not any(each.problem for each in found.values())
        assert found["keys redis"].bytes and found["keys redis"].format and "queue postgresql" in found
        if how == "stopped":
            redis_server.stop()
            try:
                assert "does not answer" in stores(lake)["keys redis"].problem
            finally:
                redis_server.start()
        else:
            with redis_server.paused():
                assert "does not answer within" in stores(lake)["keys redis"].problem


def test_a_queue_that_is_away(tmp_path: Path, postgres_url: str, postgres_server: PostgresServer) -> None:
    with needlepoint.open(tmp_path, queue=postgres_url) as lake:
        lake.queue.put('{"table": "t", "batch": "b", "at": 1000}')
        queue = stores(lake)["queue postgresql"]
        assert queue.behind == 1 and queue.bytes and (queue.seconds or 0) > 1e6
        postgres_server.stop()
        try:
            queue = stores(lake)["queue postgresql"]
            assert queue.problem and not queue.behind and lake.status().waiting_events == 0
        finally:
            postgres_server.start()


def test_what_is_not_published(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put_table("lake/item/0.parquet", rows_of(0))
    with needlepoint.open(bucket.url("lake"), store=tmp_path / "store") as lake:
        lake.create_table("item")
        lake.share()
        found = stores(lake)["published s3"]
        assert found.bytes and found.format == 1 and not found.behind and not found.problem
        bucket.server.before = lambda asked: 403 if asked.method == "PUT" else None
        lake.sql("CREATE VIEW v AS SELECT 1 AS one")
        found = stores(lake)["published s3"]
        assert (found.behind, found.unit) == (1, "change") and found.seconds is not None
        with needlepoint.open(
            bucket.url("lake"), read_only=True, store=tmp_path / "none", cache=tmp_path / "cache"
        ) as reader:
            found = stores(reader)["published s3"]
            assert found.bytes and not found.behind
    bucket.server.before = None
