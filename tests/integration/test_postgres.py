"""A registry and queue in PostgreSQL: servers that go away, connections that are cut, processes that are killed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.database_servers import PASSWORD, PostgresServer, wait_until
from tests.lakes import publish_titles, write_titles

import needlepoint
from needlepoint.objects import Identity
from needlepoint.stores.postgres import database as postgres_database
from needlepoint.stores.postgres import parse_postgres
from needlepoint.tables.model import File, Table
from needlepoint.tables.registry import Registry
from needlepoint.tables.registry.databases import postgres, postgres_schema

SCHEMA = pa.schema([("id", pa.int64()), ("title", pa.string())])


@pytest.fixture
def opened(postgres_url: str, tmp_path: Path) -> Iterator[Callable[..., Registry]]:
    found: list[Registry] = []

    def open_one(url: str = postgres_url, **more: Any) -> Registry:
        found.append(Registry(tmp_path, tmp_path, url=url, **more))
        return found[-1]

    yield open_one
    for each in found:
        each.close()


def a_table(registry: Registry, files: int = 3) -> Table:
    table = registry.tables.create("t", "/t", SCHEMA, ())
    registry.files.replace(table, [File(f"{n}.parquet", Identity(n, n)) for n in range(files)], [])
    return table


# Addresses and errors


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{PASSWORD}@with@at@localhost/db",
        f"postgresql://me:{PASSWORD}/slash@localhost/db",
        f"postgresql://me:{PASSWORD}@localhost:{PASSWORD}/db",
        f"postgresql://me:{PASSWORD}@localhost/db?unknown_option=1",
        f"postgresql://me:{PASSWORD}@localhost/db?schema=Pg-Odd",
        f"postgresql://me:{PASSWORD}@localhost:1/db",
        f"postgresql://me:{PASSWORD}@nowhere.invalid/db",
    ],
)
def test_errors_do_not_show_the_password(tmp_path: Path, url: str) -> None:
    with pytest.raises(needlepoint.NeedlepointError) as found:
        needlepoint.open(tmp_path, registry=url)
    chain: BaseException | None = found.value
    while chain is not None:
        assert PASSWORD not in f"{chain} {chain!r}"
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)


def test_what_the_server_refuses_is_said(postgres_url: str, tmp_path: Path) -> None:
    wrong = {
        postgres_url.replace(PASSWORD, "wrong"): "does not accept the user or password",
        postgres_url.replace("/test_", "/other_"): "no such database",
    }
    for url, problem in wrong.items():
        with pytest.raises(needlepoint.StoreError, match=problem):
            Registry(tmp_path, tmp_path, url=url)
    with pytest.raises(needlepoint.UsageError, match="'mysql' is not a kind of registry"):
        Registry(tmp_path, tmp_path, url="mysql://host/db")


def test_a_character_that_postgresql_does_not_store_is_named(opened: Callable[..., Registry]) -> None:
    registry = opened()
    table = a_table(registry)
    with pytest.raises(needlepoint.StoreError, match="contains the character NUL"):
        registry.files.replace(table, [File("a\0b.parquet", Identity(1, 1))], [])
    assert len(registry.files.of(table)) == 3


def test_settings_do_not_show_urls(postgres_url: str) -> None:
    settings = needlepoint.settings.Settings(registry=postgres_url, queue=postgres_url)
    assert PASSWORD not in repr(settings)
    assert PASSWORD not in repr(parse_postgres(postgres_url))


# One schema, one lake; formats


def test_lakes_share_a_database_by_schemas(postgres_url: str, opened: Callable[..., Registry], tmp_path: Path) -> None:
    one, two = opened(), opened(f"{postgres_url}?schema=another")
    a_table(one)
    assert two.tables.names() == []
    with pytest.raises(needlepoint.UsageError, match=f"is the registry of the lake {tmp_path}, not of /elsewhere"):
        Registry(tmp_path, Path("/elsewhere"), url=postgres_url)
    with one.database.change() as transaction:
        transaction.execute("UPDATE lake SET root = ''")
    Registry(tmp_path, Path("/elsewhere"), url=postgres_url).close()


def test_a_lake_that_is_not_there_is_not_made(postgres_url: str, tmp_path: Path) -> None:
    for how in ({"create": False}, {"read_only": True}):
        with pytest.raises(needlepoint.UsageError, match="there is no registry in postgresql://127"):
            needlepoint.open(tmp_path / "lake", registry=postgres_url, **how)
    needlepoint.open(tmp_path / "lake", registry=postgres_url).close()
    needlepoint.open(tmp_path / "lake", registry=postgres_url, read_only=True).close()


def test_a_newer_format_is_refused_and_an_older_one_upgraded(
    postgres_url: str, postgres_server: PostgresServer, opened: Callable[..., Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    a_table(opened())
    upgraded = []

    def upgrade(transaction: Any) -> None:
        upgraded.append(1)
        transaction.execute("ALTER TABLE views ADD COLUMN more TEXT")

    monkeypatch.setattr(postgres, "POSTGRES_FORMAT", 2)
    with pytest.raises(needlepoint.StoreError, match="has format 1; this version of Needlepoint reads format 2"):
        opened()
    monkeypatch.setattr(postgres, "POSTGRES_UPGRADES", {1: upgrade})
    with pytest.raises(needlepoint.StoreError, match="format 1"):
        opened(own=Path("/own"))  # for reading only
    assert upgraded == []
    threads = [threading.Thread(target=opened) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert upgraded == [1]
    assert opened().tables.names() == ["t"]
    monkeypatch.undo()
    assert postgres_schema.POSTGRES_FORMAT == 1
    with pytest.raises(needlepoint.StoreError, match="has format 2"):
        opened()


def test_an_upgrade_that_fails_changes_nothing(
    opened: Callable[..., Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    a_table(opened())

    def upgrade(transaction: Any) -> None:
        transaction.execute("DROP TABLE files CASCADE")
        transaction.execute("SELECT nothing FROM nowhere")

    monkeypatch.setattr(postgres, "POSTGRES_FORMAT", 2)
    monkeypatch.setattr(postgres, "POSTGRES_UPGRADES", {1: upgrade})
    with pytest.raises(needlepoint.StoreError, match="nowhere"):
        opened()
    monkeypatch.undo()
    again = opened()
    assert len(again.files.of(again.tables.get("t"))) == 3


def test_many_open_a_new_one_at_once(opened: Callable[..., Registry]) -> None:
    errors = []

    def one() -> None:
        try:
            opened().tables.all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


# Connections


class Proxy:
    """Forwards connections to a server. `cut_after` says, for each message of a client, whether the client is cut off
    after the server has got it, and before the answer."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.cut_before: Callable[[bytes], bool] = lambda data: False
        self.cut_after: Callable[[bytes], bool] = lambda data: False
        self._open: list[socket.socket] = []
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    client.close()
                    continue
                self._open += [client, server]
                threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self.cut_before(data):
                    client.shutdown(socket.SHUT_RDWR)
                    break
                if self.cut_after(data):
                    client.shutdown(socket.SHUT_RDWR)
                    server.sendall(data)
                    time.sleep(0.3)
                    break
                server.sendall(data)
            server.shutdown(socket.SHUT_RDWR)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # closing does not wake a thread that waits
            each.close()


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[Proxy]:
    made = Proxy(postgres_server.port)
    yield made
    made.close()


def through(proxy: Proxy, url: str, server: PostgresServer) -> str:
    return url.replace(f":{server.port}/", f":{proxy.port}/")


def once(word: bytes) -> Callable[[bytes], bool]:
    left = [word]
    return lambda data: word in data and bool(left and left.pop())


@pytest.mark.parametrize("arrived", [True, False])
def test_a_connection_cut_in_the_middle_of_a_commit(
    opened: Callable[..., Registry], proxy: Proxy, postgres_url: str, postgres_server: PostgresServer, arrived: bool
) -> None:
    """The server is asked what became of the transaction: the change returns if it happened, and fails if not."""
    registry = opened(through(proxy, postgres_url, postgres_server))
    table = a_table(registry)
    direct = opened()
    before = direct.sequence()
    if arrived:
        proxy.cut_after = once(b"COMMIT\0")
        registry.files.replace(table, [File("new.parquet", Identity(1, 1))], [])
    else:
        proxy.cut_before = once(b"COMMIT\0")
        with pytest.raises(needlepoint.StoreError, match="was not changed") as found:
            registry.files.replace(table, [File("new.parquet", Identity(1, 1))], [])
        assert PASSWORD not in str(found.value)
    for each in (registry, direct):
        assert ("new.parquet" in each.files.paths(table)) is arrived
        assert each.sequence() == before + arrived
    registry.files.replace(table, [File("later.parquet", Identity(1, 1))], [])
    assert "later.parquet" in direct.files.paths(table)


def test_a_commit_whose_outcome_nobody_knows(
    opened: Callable[..., Registry],
    proxy: Proxy,
    postgres_url: str,
    postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres_database, "PATIENCE", 0.5)
    registry = opened(through(proxy, postgres_url, postgres_server))
    table = a_table(registry)
    cut = once(b"COMMIT\0")

    def cut_for_good(data: bytes) -> bool:
        if cut(data):
            proxy.close()
            return True
        return False

    proxy.cut_before = cut_for_good
    with pytest.raises(needlepoint.StoreError, match="does not say whether the change happened"):
        registry.files.replace(table, [File("new.parquet", Identity(1, 1))], [])


def end_sessions(server: PostgresServer, url: str) -> None:
    name = url.rpartition("/")[2]
    server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
    left = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'"
    wait_until(lambda: server.execute(left) == [(0,)], "the end of all sessions")


def test_lost_connections_are_opened_again(
    opened: Callable[..., Registry], postgres_url: str, postgres_server: PostgresServer
) -> None:
    registry = opened()
    table = a_table(registry)
    end_sessions(postgres_server, postgres_url)
    assert len(registry.files.of(table)) == 3
    end_sessions(postgres_server, postgres_url)
    registry.files.replace(table, [File("new.parquet", Identity(1, 1))], [])
    end_sessions(postgres_server, postgres_url)
    with registry.snapshot():
        assert len(registry.files.of(table)) == 4
        end_sessions(postgres_server, postgres_url)
        with pytest.raises(needlepoint.StoreError, match="does not answer"):
            registry.files.of(table)
    with pytest.raises(needlepoint.StoreError, match="does not answer"), registry.database.change() as transaction:
        transaction.execute("DELETE FROM files")
        end_sessions(postgres_server, postgres_url)
        transaction.execute("DELETE FROM tables")
    assert len(registry.files.of(table)) == 4


def test_a_server_that_goes_away_and_comes_back(
    postgres_url: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with needlepoint.open(tmp_path, registry=postgres_url, queue=postgres_url, refresh=0) as lake:
        publish_titles(lake, "one", 0)
        assert answer(lake) == expected(lake)
        postgres_server.stop()
        try:
            for work in (lambda: answer(lake), lambda: publish_titles(lake, "two", 100), lake.sync, lake.status):
                with pytest.raises(needlepoint.StoreError, match="does not answer") as found:
                    work()
                assert PASSWORD not in str(found.value)
        finally:
            postgres_server.start()
        assert answer(lake) == expected(lake)
        publish_titles(lake, "two", 100)
        assert [each.problem for each in lake.follow_events(once=True)] == [""] * 2
        assert answer(lake) == expected(lake) == (200, sum(range(200)))


def test_a_process_that_hangs_in_a_change_is_named(opened: Callable[..., Registry]) -> None:
    one, two = opened(), opened()
    table = a_table(one)
    with two.database.change():
        one.database._writing.connection().execute("SET lock_timeout TO '100ms'")
        with pytest.raises(needlepoint.StoreError, match="another process has been changing it"):
            one.tables.drop("t")
    assert one.tables.get("t") == table


def test_an_interrupt_leaves_no_transaction_open(opened: Callable[..., Registry]) -> None:
    one, two = opened(), opened()
    table = a_table(one)
    for link in (one.database._reading, one.database._writing):
        connection = link.connection()
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute("SELECT count(*) FROM files")
    two.files.replace(table, [File("new.parquet", Identity(1, 1))], [])
    assert "new.parquet" in one.files.paths(table)
    one.files.replace(table, [File("newer.parquet", Identity(1, 1))], [])
    assert "newer.parquet" in two.files.paths(table)


# Fences


def test_a_publisher_that_was_declared_dead_cannot_finish(
    postgres_url: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """Its connections are lost while it moves files; another process finishes the batch, and a later one replaces it
    and deletes its files. Then the first one wakes up."""
    other = needlepoint.open(
        tmp_path / "lake", registry=postgres_url, queue=postgres_url, store=tmp_path / "b", refresh=0
    )
    slow = needlepoint.open(
        tmp_path / "lake", registry=postgres_url, queue=postgres_url, store=tmp_path / "a", refresh=0
    )
    publish_titles(other, "zero", 1000)

    def slowly(pairs: Any) -> None:
        copies = [(source, f"{source}.copy", target) for source, target in pairs]
        for source, copy, _ in copies:
            shutil.copy(source, copy)
        end_sessions(postgres_server, postgres_url)
        other.sync()
        assert answer(other)[0] == 200
        other.delete("t", "id < 1000")
        other.sweep(now=True)
        assert answer(other)[0] == 100
        for _, copy, target in copies:  # as a copy that arrives late
            Path(copy).parent.mkdir(parents=True, exist_ok=True)
            write_titles(Path(target), 0)

    with pytest.raises(needlepoint.StoreError, match="another process took over"):
        publish_titles(slow, "one", 0, mover=slowly)
    for lake in (slow, other):
        lake.sync()
        assert answer(lake) == expected(lake) == (100, sum(range(1000, 1100)))
        assert lake.registry.batches.unfinished(lake.registry.tables.get("t")) == []
    publish_titles(slow, "two", 0)
    assert answer(other)[0] == 200
    slow.close()
    other.close()


def test_an_embedder_that_was_declared_dead_cannot_commit(
    opened: Callable[..., Registry], postgres_url: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    slow = opened()
    other = Registry(tmp_path / "other", tmp_path, url=postgres_url)  # another machine: no files in common
    table = a_table(slow)
    file = slow.files.of(table)[0]
    with slow.locks.shared(table):
        slow.files.note_problems({file.id or 0: "before"})
        end_sessions(postgres_server, postgres_url)
        slow.files.note_problems({file.id or 0: "nobody took the lock"})
        with other.locks.exclusive(table):
            other.files.note_problems({file.id or 0: "other"})
        with pytest.raises(needlepoint.errors.LockLost):
            slow.files.note_problems({file.id or 0: "after"})
    slow.files.note_problems({file.id or 0: "without the lock"})
    assert other.files.of(table)[0].problem == "without the lock"
    other.close()


def test_locks_are_lost_with_their_session_and_taken_again(
    opened: Callable[..., Registry], postgres_url: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    one = opened()
    other = Registry(tmp_path / "other", tmp_path, url=postgres_url)
    table = a_table(one)
    assert one.locks.claim("a")
    with one.locks.batch_lock(table, "b", wait=True) as mine:
        assert mine
        with other.locks.batch_lock(table, "b", wait=False) as again:
            assert not again
        assert other.locks.is_claimed("a")
        end_sessions(postgres_server, postgres_url)
        assert not other.locks.is_claimed("a")
        with other.locks.batch_lock(table, "b", wait=False) as taken:
            assert taken
            assert one.locks.claim("c")  # another session
            with pytest.raises(needlepoint.errors.LockLost):
                one.tables.drop("t")
        with pytest.raises(needlepoint.errors.LockLost):
            one.tables.drop("t")
    one.tables.drop("t")
    other.close()


# Several processes


def answer(lake: Any) -> tuple[int, int]:
    (row,) = lake.sql("SELECT count(*) AS n, sum(id) AS total FROM t").rows()
    return row["n"], row["total"]


def expected(lake: Any) -> tuple[int, int]:
    (found,) = duckdb.sql(f"SELECT count(*), sum(id)::BIGINT FROM read_parquet('{lake.root}/t/*.parquet')").fetchall()
    return found


PROCESS = """
import sys, time
from pathlib import Path
import needlepoint
from needlepoint.indexer import event_consumer
from tests.lakes import publish_titles
what, root, store, first = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
event_consumer.LEASE, event_consumer.EVENTS_AT_ONCE = 1.0 if what == "hang" else 30.0, 2
lake = needlepoint.open(root, store=store)
def slowly(pairs):
    read = [(Path(source).read_bytes(), Path(target)) for source, target in pairs]
    print("moves", flush=True)
    sys.stdin.readline()
    for content, target in read:  # as copies that arrive late
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
if what == "move":
    try:
        publish_titles(lake, "slow", first, mover=slowly)
    except needlepoint.StoreError as error:
        print(error, flush=True)
elif what == "publish":
    for number in range(5):
        publish_titles(lake, f"batch-{first}-{number}", (first + number) * 100)
        print(first + number, flush=True)
else:
    if what == "hang":
        def hang(*arguments):
            print("took", flush=True)
            time.sleep(600)
        event_consumer._handle_all = hang
    for result in lake.follow_events(once=what == "index"):
        print(result.indexed, result.problem, flush=True)
lake.close()
"""


def start(what: str, root: Path, store: Path, url: str, first: int = 0) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(Path(needlepoint.__file__).parents[1]), str(Path(__file__).parents[2])])
    environment = {**os.environ, "NEEDLE_REGISTRY": url, "NEEDLE_QUEUE": url, "PYTHONPATH": paths}
    command = [sys.executable, "-c", PROCESS, what, str(root), str(store), str(first)]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_publisher_that_sleeps_while_another_process_finishes_its_batch(
    postgres_url: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """A machine pauses between two moves of files, and its sessions end. It cannot finish when it wakes up."""
    root = tmp_path / "lake"
    with needlepoint.open(root, registry=postgres_url, queue=postgres_url, store=tmp_path / "s", refresh=0) as lake:
        publish_titles(lake, "zero", 1000)
        slow = start("move", root, tmp_path / "slow", postgres_url, 0)
        assert slow.stdin is not None and slow.stdout is not None
        assert slow.stdout.readline() == "moves\n"
        slow.send_signal(signal.SIGSTOP)
        try:
            end_sessions(postgres_server, postgres_url)
            lake.sync()
            table = lake.registry.tables.get("t")
            assert lake.registry.batches.unfinished(table) == []
            assert answer(lake) == expected(lake) == (200, sum(range(100)) + sum(range(1000, 1100)))
            lake.delete("t", "id < 100")
            lake.sweep(now=True)
        finally:
            slow.send_signal(signal.SIGCONT)
        told, _ = slow.communicate("\n")
        assert "another process took over" in told
        lake.sync()
        assert answer(lake) == expected(lake) == (100, sum(range(1000, 1100)))


def test_an_indexer_takes_over_the_event_of_a_process_that_died(postgres_url: str, tmp_path: Path) -> None:
    """Its lease, of a second here, ends; until then nobody else gets the event."""
    root = tmp_path / "lake"
    with needlepoint.open(root, registry=postgres_url, queue=postgres_url, store=tmp_path / "s", refresh=0) as lake:
        publish_titles(lake, "one", 0)
        dead = start("hang", root, tmp_path / "d", postgres_url)
        assert dead.stdout is not None
        assert dead.stdout.readline() == "took\n"
        assert list(lake.follow_events(once=True)) == []
        dead.kill()
        dead.wait()
        assert lake.status().tables[0].indexed == 0
        deadline = time.monotonic() + 30
        while not (found := list(lake.follow_events(once=True))) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert [each.problem for each in found] == [""]
        assert (lake.status().tables[0].indexed, lake.queue.waiting()) == (1, 0)


@pytest.mark.long
def test_publishers_and_indexers_of_two_machines_share_a_lake(postgres_url: str, tmp_path: Path) -> None:
    """Each process has a store of its own, as on machines of their own; the index is inside the files."""
    root = tmp_path / "lake"
    with needlepoint.open(root, registry=postgres_url, queue=postgres_url, store=tmp_path / "s", refresh=0) as lake:
        publish_titles(lake, "first", 100_000)
        lake.create_index("t", "title", "bloom", embed=True, build=False)
        publishers = [start("publish", root, tmp_path / f"p{n}", postgres_url, n * 100) for n in range(2)]
        dead = start("hang", root, tmp_path / "d", postgres_url)
        assert dead.stdout is not None
        assert dead.stdout.readline() == "took\n"
        publishers[0].stdout.readline()  # type: ignore[union-attr]
        publishers[0].send_signal(signal.SIGKILL)
        acknowledged = publishers[0].communicate()[0].split()
        assert publishers[1].wait() == 0
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        lake.sync()  # finishes the batch of the dead publisher, if it had begun one
        done = 5 + (len(acknowledged) + 1)
        assert answer(lake) == expected(lake)
        assert answer(lake)[0] in (100 * (done + 1), 100 * (done + 2))
        deadline = time.monotonic() + 60
        problems = []
        while lake.queue.waiting() and time.monotonic() < deadline:
            indexers = [start("index", root, tmp_path / f"i{n}", postgres_url) for n in range(2)]
            problems += [
                line.split(" ", 1)[1].strip() for each in indexers for line in each.communicate()[0].splitlines()
            ]
            time.sleep(0.2)
        assert lake.queue.waiting() == 0
        assert lake.queue.aside_count() == 0
        assert set(problems) <= {""}
        status = lake.status()
        (table,) = status.tables
        assert (table.indexed, table.unknown) == (table.files, 0)
        assert status.registry.kind == "postgresql"
        assert PASSWORD not in json.dumps(status.registry.place)
        assert answer(lake) == expected(lake)
        assert lake.sql("SELECT id FROM t WHERE title = 'title 100007'").rows() == [{"id": 100_007}]
        assert lake.verify("t").differences == ()


def test_two_publishers_of_one_batch_publish_it_once(postgres_url: str, tmp_path: Path) -> None:
    lakes = [
        needlepoint.open(tmp_path / "lake", registry=postgres_url, queue=postgres_url, store=tmp_path / name, refresh=0)
        for name in ("a", "b", "c", "d")
    ]
    publish_titles(lakes[0], "first", 1000)
    errors: list[BaseException] = []

    def work(lake: Any, own: int) -> None:
        try:
            publish_titles(lake, "same", 0)
            publish_titles(lake, f"own {own}", own)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(lake, 2000 + 100 * n)) for n, lake in enumerate(lakes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for lake in lakes:
        assert answer(lake) == expected(lake)
        assert answer(lake)[0] == 600
        lake.close()


def test_a_lake_with_an_index_of_keys_answers_as_duckdb(postgres_url: str, tmp_path: Path) -> None:
    """All of a lake on one machine, with its registry elsewhere."""
    with needlepoint.open(tmp_path, registry=postgres_url, queue=postgres_url, refresh=0) as lake:
        for number in range(4):
            publish_titles(lake, f"b{number}", number * 100)
        lake.create_index("t", "id")
        assert lake.table("t").get(id=[7, 307, 999]).to_arrow().num_rows == 2
        report = lake.explain("SELECT title FROM t WHERE id = 7")
        assert "used" in str(report)
        lake.compact("t")
        lake.delete("t", "id % 2 = 0")
        lake.sync()
        lake.sweep(now=True)
        assert answer(lake) == expected(lake) == (200, sum(range(1, 400, 2)))
        assert lake.verify("t").differences == ()
        assert not (lake.store / "registry.db").exists()
        assert not (lake.store / "queue.db").exists()
    elsewhere = f"{postgres_url}?schema=another"
    with needlepoint.open(tmp_path, registry=postgres_url, queue=elsewhere, read_only=True) as reader:
        assert (reader.status().waiting_events, reader.queue.aside()) == (0, [])
        assert reader.table("t").get(id=[7, 8]).to_arrow().num_rows == 1
        with pytest.raises(needlepoint.UsageError, match="reading only"):
            reader.drop_table("t")


def test_a_fork_leaves_the_connections_of_its_parent_alone(postgres_url: str, tmp_path: Path) -> None:
    with needlepoint.open(tmp_path, registry=postgres_url, queue=postgres_url, refresh=0) as lake:
        publish_titles(lake, "one", 0)
        assert lake.registry.locks.claim("mine")
        child = os.fork()
        if child == 0:
            code = 1
            with contextlib.suppress(needlepoint.UsageError):
                lake.tables()
                code = 2
            os._exit(0 if code == 1 else 3)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert lake.registry.locks.is_claimed("mine")
        assert answer(lake)[0] == 100
        publish_titles(lake, "two", 100)
        assert answer(lake)[0] == 200
