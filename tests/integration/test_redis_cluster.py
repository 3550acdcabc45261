"""A lake whose keys are in a Redis cluster, one of whose nodes goes away, or gives an index to another one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.database_servers import PASSWORD, RedisCluster, RedisServer
from tests.integration.test_key_servers import check, write

import needlepoint
from needlepoint.query.kept_plans import LONGEST_KEPT
from needlepoint.stores.keys.space import READ_PAUSE

pytestmark = pytest.mark.long
PAUSE = max(READ_PAUSE, LONGEST_KEPT)


def owner(cluster: RedisCluster) -> tuple[RedisServer, bytes]:
    """The node that has the only index, and a key of it."""
    for node in cluster.nodes:
        with node.client() as client:
            for key in client.scan_iter("needlepoint:{*}:store"):
                return node, key
    raise AssertionError("no node has an index")


def make(root: Path, keys: str) -> needlepoint.Lake:
    write(root, 0)
    lake = needlepoint.open(root, keys=keys, access="pages", block_bytes=0)
    lake.create_table("item")
    lake.create_index("item", "id")
    check(lake, root)
    return lake


def check_that_it_goes_on(lake: needlepoint.Lake, root: Path) -> None:
    """The index is found again and takes another file, and nothing of it is damaged."""
    time.sleep(PAUSE)
    check(lake, root)
    write(root, 1)
    lake.sync()
    check(lake, root)
    assert not lake.verify("item").indexes


@pytest.mark.parametrize("has_the_index", [True, False])
def test_a_node_that_is_killed_and_comes_back(
    tmp_path: Path, redis_cluster: RedisCluster, redis_cluster_url: str, has_the_index: bool
) -> None:
    """Without it the cluster refuses all keys after two seconds, and queries scan."""
    with make(tmp_path, redis_cluster_url) as lake:
        had = owner(redis_cluster)[0]
        node = had if has_the_index else next(each for each in redis_cluster.nodes if each is not had)
        node.kill()
        try:
            check(lake, tmp_path, used=None)  # plans of queries that run again are kept, with the rows that they read
            time.sleep(LONGEST_KEPT)
            for _ in range(4):
                check(lake, tmp_path, used=None if not has_the_index else False)
                time.sleep(READ_PAUSE)
            shown = str(lake.explain("SELECT * FROM item WHERE id = 5"))
            assert "item_id_key (key): not used" in shown and PASSWORD not in shown
        finally:
            redis_cluster.start()
        check_that_it_goes_on(lake, tmp_path)


def test_an_index_that_moves_to_another_node(
    tmp_path: Path, redis_cluster: RedisCluster, redis_cluster_url: str
) -> None:
    """As when the cluster grows: its slot is given to another node while the lake is open, half of it at first."""
    with make(tmp_path, redis_cluster_url) as lake:
        source, key = owner(redis_cluster)
        target = next(each for each in redis_cluster.nodes if each is not source)
        with source.client() as here, target.client() as there:
            slot = here.execute_command("CLUSTER", "KEYSLOT", key)
            ids = [client.execute_command("CLUSTER", "MYID") for client in (here, there)]
            there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
            here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
            keys = sorted(here.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1000))
            for some in (keys[::2], keys[1::2]):
                place = ("127.0.0.1", target.port, "", 0, 5000, "AUTH", PASSWORD)
                here.execute_command("MIGRATE", *place, "KEYS", *some)
                check(lake, tmp_path, used=None)
            for node in redis_cluster.nodes:
                with node.client() as client:
                    client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
        assert owner(redis_cluster)[0] is target
        check_that_it_goes_on(lake, tmp_path)
