"""Which servers a client may connect to, in which order, and how long it waits between attempts."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from ordercast.errors import AddressProblem
from ordercast.transport.address import format_address, parse_address

DEFAULT_PORT = 4222
FIRST_WAIT_S = 0.05
LONGEST_WAIT_S = 2.0
MOST_SERVERS = 256
"""Servers that are remembered; of those that others told of, the oldest is forgotten first."""


class Server(NamedTuple):
    """Where a server is, and what its address says of how to log in."""

    host: str
    """Empty for a Unix socket."""
    port: int
    path: str = ""
    """The path of a Unix socket; empty for an address."""
    tls: bool = False
    user: str = ""
    password: str = ""

    @property
    def address(self) -> str:
        """As a user writes it: ``HOST:PORT`` or ``unix:PATH``."""
        return f"unix:{self.path}" if self.path else format_address(self.host, self.port)


def parse_server(text: str) -> Server:
    """``HOST:PORT``, ``HOST``, ``nats://USER:PASSWORD@HOST:PORT``, ``tls://HOST:PORT`` or ``unix:PATH``."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path:
            raise AddressProblem(f"{text!r} names no socket: write its path, as in unix:/run/ordercast.sock")
        return Server("", 0, path)
    scheme, _, rest = text.rpartition("://")
    if scheme not in ("", "nats", "tls"):
        raise AddressProblem(f"{text!r}: a node's clients connect with nats://, tls:// or just host and port")
    login, _, place = rest.rstrip("/").rpartition("@")
    user, _, password = login.partition(":")
    if place and (":" not in place or place.endswith("]")):
        place = f"{place}:{DEFAULT_PORT}"
    host, port = parse_address(place)
    return Server(host, port, tls=scheme == "tls", user=unquote(user), password=unquote(password))


def parse_servers(servers: str | Sequence[str]) -> list[Server]:
    """One address, several with commas between them, or a list of them."""
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    found = list(dict.fromkeys(parse_server(text.strip()) for text in texts))
    if not found:
        raise AddressProblem("a client needs the address of a node, as in 127.0.0.1:4222")
    return found


class ServerPool:
    """The servers that were given and those that servers told of (`connect_urls`), in the order of use."""

    def __init__(self, given: Sequence[Server], chance: random.Random) -> None:
        self._given = list(given)
        self._told: list[Server] = []
        self._chance = chance

    @property
    def known(self) -> list[Server]:
        """All of them, those that were given first."""
        return [*self._given, *self._told]

    def learn(self, addresses: Iterable[object], of: Server) -> None:
        """Other servers, as one told of them: they are logged in to in the same way."""
        for address in addresses:
            if not isinstance(address, str):
                continue
            try:
                host, port = parse_address(address)
            except AddressProblem:
                continue  # an address that only others can use
            if (host, port) not in {(each.host, each.port) for each in self.known}:
                self._told.append(of._replace(host=host, port=port, path=""))
        del self._told[: max(0, len(self._told) - MOST_SERVERS)]

    def attempts(self, last: Server | None) -> Iterator[tuple[Server, float]]:
        """Whom to try next, and how many seconds to wait before it, for ever.

        First all servers at once, the one that was lost last; then round after round, each after a longer
        wait with a random part, so that the clients of a server that ended do not all come together.
        """
        wait = 0.0
        while True:
            others = [server for server in self.known if server != last]
            self._chance.shuffle(others)
            for number, server in enumerate([*others, *([last] if last is not None else [])]):
                yield server, 0.0 if number else wait * self._chance.uniform(0.5, 1.0)
            wait = min(LONGEST_WAIT_S, max(FIRST_WAIT_S, 2 * wait))
