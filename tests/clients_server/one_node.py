"""A node that is alone and orders at once: what serving clients needs, without a network between nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ordercast.clients.server import ClientServer
from ordercast.clients.stream import Stream
from ordercast.core.addresses import address
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind
from ordercast.errors import OrdercastError
from ordercast.process_groups.interface import Listener
from ordercast.process_groups.machine import ProcessGroups
from ordercast.process_groups.notes import head
from ordercast.process_groups.views import (
    Installed,
    Left,
    Life,
    Member,
    Numbered,
    Output,
    Received,
    Recounted,
    Unheard,
)
from ordercast.runtime.config import NodeConfig

LONG_S = 60.0


class OneProcess:
    def __init__(self, node: OneNode, listener: Listener[Configuration], number: int) -> None:
        self.node, self.listener, self.number = node, listener, number

    def join(self, group: str, properties: Mapping[str, str] | None = None) -> None:
        self.node.machine.join(self.number, group, properties)
        self.node.order()

    def leave(self, group: str) -> None:
        self.node.machine.leave(self.number, group)
        self.node.order()

    def end(self) -> None:
        if self.node.processes.pop(self.number, None) is not None:
            self.node.machine.end(self.number)
            self.node.order()

    def front(self, groups: tuple[str, ...], *, headed: bool = False) -> bytes:
        return address(self.number, groups, headed=headed)

    def try_send(
        self,
        groups: tuple[str, ...],
        payloads: Sequence[bytes],
        guarantee: Guarantee,
        *,
        heads: Sequence[bytes] | None = None,
    ) -> int | None:
        if self.node.refusal is not None:
            raise self.node.refusal
        if self.node.full.is_set():
            return None
        front = self.front(groups, headed=heads is not None)
        if heads is not None:
            payloads = [head(words) + each for words, each in zip(heads, payloads, strict=True)]
        return self.node.submit([front + each for each in payloads], guarantee)

    async def send(
        self,
        groups: Sequence[str],
        payloads: Sequence[bytes],
        guarantee: Guarantee,
        timeout: float | None = None,
        *,
        heads: Sequence[bytes] | None = None,
    ) -> int:
        while self.node.full.is_set():
            await asyncio.sleep(0.01)
        last = self.try_send(tuple(groups), payloads, guarantee, heads=heads)
        assert last is not None
        return last - len(payloads) + 1


class OneNode:
    """Payloads get their places as they are submitted, and are delivered in the next turn."""

    def __init__(self) -> None:
        self.machine = ProcessGroups(1, 0, numbers=True)
        self.processes: dict[int, OneProcess] = {}
        self.full = asyncio.Event()
        """While it is set, nothing can be sent."""
        self.refusal: OrdercastError | None = None
        """Why nothing can be sent now; None: it can."""
        self.largest = 1 << 24
        """Bytes of the largest message."""
        self.disk = asyncio.Event()
        """While it is not set, the disk takes nothing."""
        self.disk.set()
        self.server: ClientServer | None = None
        self.numbers = self.seq = 0
        self.batches: list[Batch] = []
        here = Configuration(ConfigurationId(4, 1), Kind.REGULAR, (1,))
        self.here = here.id
        self.tell(self.machine.install(here))
        self.order()
        self.deliver()

    def begin(self, listener: Listener[Configuration]) -> OneProcess:
        process = OneProcess(self, listener, self.machine.begin())
        self.processes[process.number] = process
        return process

    @property
    def life(self) -> Life:
        return self.machine.me

    @property
    def alone(self) -> bool:
        return True

    def reached(self, number: int) -> None:
        """It has no other life."""

    def recounted(self, recounted: Recounted) -> None:
        """It is alone."""

    async def kept(self) -> None:
        await self.disk.wait()

    def members(self, group: str) -> tuple[Member, ...]:
        return self.machine._table.members(group)

    def watch(self, on: bool) -> None:
        self.machine.watched = on

    def hand_over(self, received: Received) -> None:
        self.machine.hand_over(received)
        self.order()

    def order(self) -> None:
        while (submit := self.machine.take(1 << 30)) is not None:
            self.submit(submit.payloads, submit.guarantee)

    def submit(self, payloads: Sequence[bytes], guarantee: Guarantee) -> int:
        self.seq += 1
        if not self.batches and self.numbers:
            asyncio.get_running_loop().call_soon(self.deliver)
        self.batches.append(Batch(self.here, self.seq, 0, 1, 0, self.numbers + 1, guarantee, payloads))
        self.numbers += len(payloads)
        return self.numbers

    def deliver(self) -> None:
        batches, self.batches = self.batches, []
        for batch in batches:
            self.tell(self.machine.routing.deliver(batch))
            if self.server is not None:
                self.server.delivered_own(batch.number + len(batch.payloads) - 1)
        self.order()

    def tell(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Received | Installed):
                for number in output.to:
                    if number in self.processes:
                        listener = self.processes[number].listener
                        if isinstance(output, Received):
                            listener.received(output)
                        else:
                            listener.installed(output.view)
                if isinstance(output, Installed) and self.server is not None:
                    self.server.changed(output.view)
            elif isinstance(output, Numbered):
                if self.server is not None:
                    self.server.numbered(output)
            elif isinstance(output, Unheard):
                if output.sender in self.processes:
                    self.processes[output.sender].listener.unheard(output)
            elif isinstance(output, Left) and output.process in self.processes:
                self.processes[output.process].listener.left(output.group, output.cause)


@asynccontextmanager
async def serving(largest: int = 1 << 24, /, **settings: Any) -> AsyncIterator[tuple[OneNode, ClientServer]]:
    """A node that serves clients at a free port of this machine, and takes messages up to `largest` bytes."""
    node = OneNode()
    node.largest = largest
    config = NodeConfig(**{"clients": "127.0.0.1:0", **settings})
    stream = Stream(config.client_stream, config.client_stream_bytes) if config.client_stream else None
    node.server = ClientServer(config, 1, node, lambda: {"node": 1}, stream, node)
    await node.server.start()
    try:
        yield node, node.server
    finally:
        await node.server.close()


class Line:
    """A client that speaks the protocol by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, server: ClientServer, connect: bytes | None = b"{}") -> Line:
        assert server.address is not None
        if server.address.startswith("unix:"):
            streams = await asyncio.open_unix_connection(server.address.removeprefix("unix:"))
        else:
            host, port = server.address.split(":")
            streams = await asyncio.open_connection(host, int(port))
        line = cls(*streams)
        assert (await line.read()).startswith(b"INFO ")
        if connect is not None:
            line.say(b"CONNECT " + connect)
        return line

    def say(self, *lines: bytes) -> None:
        self.writer.write(b"".join(line + b"\r\n" for line in lines))

    async def read(self) -> bytes:
        """The next line; empty if the connection has ended."""
        return await asyncio.wait_for(self.reader.readline(), LONG_S)

    async def answers(self, count: int) -> list[bytes]:
        """The next so many lines, without their ends."""
        return [(await self.read()).rstrip(b"\r\n") for _ in range(count)]

    async def settled(self) -> None:
        """All that was said before is done, and nothing came meanwhile."""
        self.say(b"PING")
        assert await self.read() == b"PONG\r\n"

    async def rest(self) -> bytes:
        """All that comes until the connection has ended."""
        return await asyncio.wait_for(self.reader.read(), LONG_S)

    def close(self) -> None:
        self.writer.close()
