"""What a server is started with."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import os
from dataclasses import dataclass

from needlepoint.errors import UsageError


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """
    flight_port             the port of Flight SQL; without one, there is none
    seconds, rows, memory   the limits of a query; a request can only lower them
    threads                 queries that run at the same time in a process
    waiting                 queries that may wait for a thread; more are refused with 429
    body_bytes              the largest request
    hosts                   names that requests may use for the service, if it has no tokens, besides those of loopback
    idle                    seconds that a client may leave the rows of a stream unread
    tokens                  the file of hashed tokens; without one, everyone may read everything
    console                 the page at `/`
    sockets                 a directory in which several processes reach each other; `serve` makes it
    """

    lake: str = "lake"
    store: str | None = None
    host: str = "127.0.0.1"
    port: int = 8321
    flight_port: int | None = None
    workers: int = 1
    seconds: float = 30.0
    rows: int = 1_000_000
    memory: int = 1 << 30
    threads: int = 2 * (os.cpu_count() or 1)
    waiting: int = 128
    body_bytes: int = 1 << 20
    hosts: tuple[str, ...] = ()
    idle: float = 60.0
    tokens: str | None = None
    certificate: str | None = None
    private_key: str | None = None
    shutdown_seconds: int = 30
    console: bool = True
    sockets: str | None = None

    def check(self) -> None:
        """Refuse what would let everyone in."""
        if not is_loopback(self.host) and self.tokens is None:
            raise UsageError(
                f"a service on {self.host} needs tokens: others can reach it.",
                hint="Create one with `needle token create --tokens FILE`, and pass --tokens FILE.",
            )
        if (self.certificate is None) != (self.private_key is None):
            raise UsageError("TLS needs a certificate and its private key.", hint="Pass both, or none.")

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ServiceOptions:
        found = json.loads(text)
        return cls(**{**found, "hosts": tuple(found["hosts"])})

    def accepts(self, host: str) -> bool:
        """Whether a request may name the service so. Without tokens, a page of another site could make its own name
        mean this machine, and then read the lake in a browser here.

        >>> options = ServiceOptions(hosts=("lake.example.com",))
        >>> options.accepts("localhost:8321"), options.accepts("[::1]:80"), options.accepts("lake.example.com")
        (True, True, True)
        >>> options.accepts("evil.example:8321"), ServiceOptions(tokens="file").accepts("evil.example")
        (False, True)
        """
        name = host.removesuffix(f":{host.rpartition(':')[2]}") if host.rpartition(":")[2].isdecimal() else host
        name = name.strip("[]").lower()
        return self.tokens is not None or not name or is_loopback(name) or name in self.hosts


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
