"""A TCP proxy that cuts connections at a chosen moment, so that the outcome of a request is not known."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


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
        try:
            server = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            client.close()
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
