"""TCP proxies. One cuts a connection at a chosen moment, so that the outcome of a request is not known. One tells what
clients send, and lets a server go away and come back."""

from __future__ import annotations

import contextlib
import enum
import socket
import threading
from collections.abc import Callable, Iterator


class CuttingProxy:
    """Forwards to a port of loopback. At the `cut`-th piece of data from clients (the first is 1), the connection is
    cut: before it is forwarded, or with `after`, when the server has got it and nothing of its answer came back."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.seen = self.cut = 0
        self.after = False
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, cut: int, *, after: bool) -> None:
        with self._lock:
            self.seen, self.cut, self.after = 0, cut, after

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        silent = threading.Event()
        server = _connected(client, self._target)
        if server is None:
            return
        threading.Thread(target=self._answer, args=(server, client, silent), daemon=True).start()
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                with self._lock:
                    self.seen += 1
                    hit = self.seen == self.cut
                if hit and self.after:
                    silent.set()
                    server.sendall(data)
                    server.shutdown(socket.SHUT_WR)  # it handles what it has got
                    silent.wait(0.05)
                if hit:
                    break
                server.sendall(data)
        for each in (client, server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _answer(self, server: socket.socket, client: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 20):
                if not silent.is_set():
                    client.sendall(data)
            if not silent.is_set():
                client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


@contextlib.contextmanager
def cutting_proxy(port: int) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()


class Passage(enum.Enum):
    """What becomes of data of a client."""

    FORWARD = "forward"
    CUT = "cut"  # the connection is cut before the server gets it
    UNANSWERED = "unanswered"  # the server gets it, and the connection is cut before it answers


class WatchingProxy:
    """Forwards to a port of loopback. `watch` sees each piece of data of clients and says what becomes of it. While the
    server is `away`, its connections are cut, and new ones are refused."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.watch: Callable[[], Passage] | None = None
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def go_away(self) -> None:
        _end(self._listener)
        with self._lock:
            cut, self._open = self._open, set()
        for each in cut:
            _end(each)

    def come_back(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = _connected(client, self._target)
        if server is None:
            return
        with self._lock:
            self._open |= {client, server}
        threading.Thread(target=self._answer, args=(server, client), daemon=True).start()
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                passage = Passage.FORWARD if self.watch is None else self.watch()
                if passage is Passage.CUT:
                    break
                if passage is Passage.UNANSWERED:
                    _end(client)
                server.sendall(data)
                if passage is Passage.UNANSWERED:
                    server.shutdown(socket.SHUT_WR)  # it handles what it has got
                    return
        _end(client)
        _end(server)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 20):
                client.sendall(data)
        _end(client)
        _end(server)

    def close(self) -> None:
        self.watch = None
        self.go_away()


def _connected(client: socket.socket, port: int) -> socket.socket | None:
    """A connection for a client; None if the server is not there. Pieces are passed on at once: otherwise one that
    follows another waits for its acknowledgement, which takes 40 ms."""
    try:
        server = socket.create_connection(("127.0.0.1", port))
    except OSError:
        client.close()
        return None
    for each in (client, server):
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return server


def _end(each: socket.socket) -> None:
    """Shut down first: closing does not wake a thread that waits."""
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
