"""Mutated real bytes on the log's wire, at the service and at the client; open and sealed.

Either side is given what the other one would say, with bytes changed, cut, repeated or put in, or with fields
of the headers replaced. A service must go on serving, keep no memory, and have no defect; a client must raise
an error of ours, and where the line is sealed never take anything that was changed on the way.

As a program: ``python wire_fuzz.py --count 200000``.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import socket
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, cast

sys.path.insert(0, str(Path(__file__).parent.parent))

import msgspec
from log_parts import delivered, installed, store

from changed_bytes import Changes, changed_bytes
from ordercast.errors import OrdercastError
from ordercast.keys import Keyring, generate
from ordercast.log import wire
from ordercast.log.client import Connection, Remote
from ordercast.log.position import Position
from ordercast.log.selection import ALL, Selection
from ordercast.log.service import Service
from ordercast.log.view import View
from ordercast.log.wire import Frames


def nested(depth: int) -> list[Any]:
    """Lists in lists: reading, writing or comparing them may need more stack than there is."""
    inside: list[Any] = []
    for _ in range(depth):
        inside = [inside]
    return inside


START, END = Position(4, 1, 0, 0), Position(4, 1, 40, 1)
WISHES: list[dict[str, Any]] = [
    {"op": "bounds"},
    {"op": "after", "start": START, "rows": 7},
    {"op": "after", "start": None, "rows": 3},
    {"op": "before", "end": END, "rows": 5},
    {"op": "after", "start": START, "rows": 7, "selected": Selection(("odd",)), "most_bytes": 20},
    {"op": "count", "start": START, "end": END, "selected": Selection((), ("ev*",))},
    {"op": "groups"},
    {"op": "sent_at", "time_us": 1},
    {"op": "read", "start": START, "end": END, "selected": ALL},
    {"op": "read", "start": None, "end": END, "selected": Selection(("even",))},
]
ODD: list[Any] = [None, -1, 0, 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 1.5, "", b"\xff", [], {}, True]
ODD += [nested(100), nested(800), {"a": nested(300)}]
ODD += [[1, 2, 3, 4], [2**64 - 1] * 4, [-1, 1, 1, 1], ["a"] * 4, [1, 2], [3, 1], [10**9, 2 * 10**9]]


CHANGES = Changes(
    at_once=(1, 1, 2, 5), lengths=(1, 4, 50), openings=(b"\x91", b"\x81\xa1a"), depths=(50, 1_000)
)


def _arguments(wish: dict[str, Any]) -> list[Any]:
    """What is asked for, without the name of the question."""
    return list(wish.values())[1:]


class Sink:
    """Where a service writes to."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        pass


class Outcome(NamedTuple):
    """What came of it."""

    mutations: int
    service: dict[str, int]
    client: dict[str, int]


class Fuzz:
    """A log, its service, and what is done to both."""

    def __init__(self, path: Path, seed: int, sealed: bool) -> None:
        self.chance = random.Random(seed)
        self.key = generate() if sealed else None
        self.keyring = None if self.key is None else Keyring((self.key,))
        self.log = store(path)
        self.log.append([installed("4.1", 1, 2, first=True)])
        for seq in range(1, 60):
            self.log.append([delivered(seq, f"a {seq}", "b", group="even" if seq % 2 == 0 else "odd")])
        self.service = Service(path, lambda: self.keyring)
        self.rows = [row for batch in View(path).read(None, END) for row in batch.to_pylist()]
        self.said: Counter[str] = Counter()

    # --- changing things --------------------------------------------------------------------------

    def mutated(self, data: bytes) -> bytes:
        """Bytes with something changed."""
        return changed_bytes(self.chance, data, CHANGES)

    def odd_header(self, header: dict[str, Any]) -> dict[str, Any]:
        """A header with a field that says something else, or another one, or one less."""
        chance, changed = self.chance, dict(header)
        name = chance.choice([*changed, "error", "more"])
        if chance.random() < 0.2:
            changed.pop(name, None)
        else:
            odd = [*ODD, "OrdercastError", "NotYet", "annotations", "__name__", "bounds", "read"]
            changed[name] = chance.choice(odd)
        return changed

    # --- the service ------------------------------------------------------------------------------

    async def ask(self, wishes: list[dict[str, Any]], broken: bool) -> bytes:
        """What the service answers to a connection that says that, changed if `broken`."""
        sink, reader = Sink(), asyncio.StreamReader()
        own = wire.new_nonce()
        greeting = wire.greeting(own, self.keyring)
        how = self.chance.choice(("greeting", "header", "bytes")) if broken else ""
        reader.feed_data(self.mutated(greeting) if how == "greeting" else greeting)
        connections = self.service._connections
        connection = connections.admit("127.0.0.1")
        assert connection is not None
        writer = cast(asyncio.StreamWriter, sink)
        serving = asyncio.create_task(self.service._serve(reader, writer, connection))
        while not sink.data and not serving.done() and how != "greeting":
            await asyncio.sleep(0)
        frames = self.frames(own, bytes(sink.data)) if how != "greeting" else Frames()
        for wish in wishes:
            said = frames.made(self.odd_header(wish) if how == "header" else wish)
            reader.feed_data(self.mutated(said) if how == "bytes" else said)
        reader.feed_eof()
        await asyncio.wait_for(serving, 30)
        connections.closed(connection)
        assert connection.held == 0, "memory is given back"
        return bytes(sink.data)

    def frames(self, own: bytes, said: bytes) -> Frames:
        """The client's side of a connection that was answered so."""
        _, service, _, _ = wire.read_answer(said[: wire.ANSWER_SIZE])
        return Frames() if self.key is None else Frames.sealed(self.key, own, service, serving=False)

    async def at_the_service(self, count: int) -> None:
        """Changed requests; in between and in the end it still answers what is right."""
        right = self.replies(await self.ask([WISHES[1]], broken=False))
        for number in range(count):
            wishes = self.chance.choices(WISHES, k=self.chance.choice((1, 1, 3)))
            await self.ask(wishes, broken=True)
            assert not self.service.drops["defect"], "what the service met is in the log"
            if number % 500 == 499 or number == count - 1:
                assert self.replies(await self.ask([WISHES[1]], broken=False)) == right
        assert len(self.service._connections) == 0
        if self.service._view is not None:
            self.service._view.close()

    def replies(self, said: bytes) -> int:
        """How long what is said is: sealed answers are never the same."""
        return len(said)

    # --- the client -------------------------------------------------------------------------------

    async def at_the_client(self, count: int) -> None:
        """Changed answers, each to a client that asked for something."""
        for _ in range(count):
            wish = self.chance.choice(WISHES)
            self._one_client(wish)

    def _one_client(self, wish: dict[str, Any]) -> None:
        here, there = socket.socketpair()
        there.settimeout(5)
        connection = Connection.__new__(Connection)
        connection.where, connection._timeout, connection._socket = "fuzz", 5.0, here
        own, service = wire.new_nonce(), wire.new_nonce()
        frames = Frames() if self.key is None else Frames.sealed(self.key, own, service, serving=True)
        connection._frames = (
            Frames() if self.key is None else Frames.sealed(self.key, own, service, serving=False)
        )
        remote = Remote("fuzz", self.keyring, 5.0)
        remote._connection = connection
        remote._connected = lambda: connection  # type: ignore[method-assign]
        headers = self.chance.random() < 0.5
        said = b""
        for header, body in self.answers(wish):
            said += frames.made(self.odd_header(header) if headers else header, body)
        if not headers:
            changed = self.mutated(said)
            headers = changed == said
            said = changed
        there.sendall(said)
        there.shutdown(socket.SHUT_WR)
        try:
            found = self._asked(remote, wish)
        except OrdercastError as error:
            self.said[type(error).__name__] += 1
        else:
            self.said["answered"] += 1
            if self.key is not None and not headers:
                self._check(wish, found)
        finally:
            here.close()
            there.close()

    def _check(self, wish: dict[str, Any], found: Any) -> None:
        """What was taken from a sealed line is what was said."""
        if isinstance(found, list):
            assert all(row in self.rows for row in found)
        else:
            ((header, _),) = self.answers(wish)
            (right,) = header.values()
            assert msgspec.to_builtins(found) == msgspec.to_builtins(right)

    def answers(self, wish: dict[str, Any]) -> list[tuple[dict[str, Any], bytes]]:
        """What a service would say."""
        view = View(self.log.path)
        try:
            match wish["op"]:
                case "bounds":
                    return [({"bounds": msgspec.to_builtins(view.bounds())}, b"")]
                case "after":
                    return [({"end": view.after(*_arguments(wish))}, b"")]
                case "count":
                    return [({"count": view.count(*_arguments(wish))}, b"")]
                case "groups":
                    return [({"groups": view.groups()}, b"")]
                case "sent_at":
                    return [({"at": view.sent_at(*_arguments(wish))}, b"")]
                case "before":
                    return [({"start": view.before(wish["end"], wish["rows"])}, b"")]
            pieces = view.pieces(*_arguments(wish))
            told = [({"rows": (piece.begin, piece.end)}, bytes(piece.block)) for piece in pieces]
            return [*told, ({"done": True}, b"")]
        finally:
            view.close()

    @staticmethod
    def _asked(remote: Remote, wish: dict[str, Any]) -> Any:
        match wish["op"]:
            case "bounds":
                return remote.bounds()
            case "after":
                return remote.after(*_arguments(wish))
            case "count":
                return remote.count(*_arguments(wish))
            case "groups":
                return remote.groups()
            case "sent_at":
                return remote.sent_at(*_arguments(wish))
            case "before":
                return remote.before(wish["end"], wish["rows"])
        batches = remote.read(*_arguments(wish))
        return [row for batch in batches for row in batch.to_pylist()]


def fuzz(path: Path, count: int, seed: int = 1) -> Outcome:
    """So many mutations in all: a quarter each for service and client, open and sealed."""
    service: Counter[str] = Counter()
    client: Counter[str] = Counter()
    for sealed in (False, True):
        directory = path / ("sealed" if sealed else "open")
        directory.mkdir()
        each = Fuzz(directory, seed, sealed)
        try:
            asyncio.run(each.at_the_service(count // 4))
            asyncio.run(each.at_the_client(count // 4))
        finally:
            each.log.close()
        service += each.service.drops
        client += each.said
    return Outcome(count // 4 * 4, dict(service), dict(client))


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--count", type=int, default=200_000)
    asked.add_argument("--seed", type=int, default=1)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        print(fuzz(Path(directory), given.count, given.seed))


if __name__ == "__main__":
    main()
