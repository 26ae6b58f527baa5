"""Streams of bytes between nodes of one process, over a `MemoryNetwork` and with what it does to packets.

Bytes take the network's delays. What the network loses comes later, as if it was sent again; where it is cut,
bytes wait until it is whole. A node that crashes or closes leaves its other ends with what had been sent.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ordercast.core.identity import NodeId
from ordercast.transport.streams import BUFFER, MOST, Channel, Serve

if TYPE_CHECKING:
    from ordercast.transport.memory import MemoryNetwork

LOG = logging.getLogger("ordercast")

AGAIN_US = 200_000
"""How much later what was lost arrives: as long as TCP waits at least before it sends again."""

What = bytes | ConnectionResetError | None
"""Bytes; or how a stream ends: an error, or None where it was closed."""


class End(asyncio.Transport):
    """One end of a stream, as the protocol that reads and writes there knows it."""

    def __init__(self, network: MemoryNetwork, node: NodeId, protocol: asyncio.BaseProtocol) -> None:
        super().__init__({"peername": ("memory", node)})
        self._network = network
        self.node = node
        self._protocol = protocol
        self.context = contextvars.copy_context()
        """In which this end is told what comes."""
        self._other: End | None = None
        self._coming: deque[tuple[int, What]] = deque()
        """What is on its way here, with when it arrives, in microseconds."""
        self._last_us = 0
        self._size = 0
        """Bytes on their way here."""
        self._alarm: asyncio.TimerHandle | None = None
        self._reading = True
        self._closing = False
        self._over = False
        self._held_up = False
        """Whether this end's writer was asked to wait."""
        self._off = False
        """Whether the machine at this end was switched off."""

    def connect(self, other: End) -> None:
        """What is written here comes out there."""
        self._other = other
        self._network.ends[self] = None
        self.context.run(self._protocol.connection_made, self)

    # --- what comes here ------------------------------------------------------------------------

    def come(self, what: What) -> None:
        """Something was sent here."""
        assert self._other is not None, "it is connected"
        if self._over:
            if isinstance(what, bytes) and not (self._off and not self._network.is_up(self.node)):
                self._other.come(ConnectionResetError("the connection was closed by the other end"))
            return
        now_us = round(asyncio.get_running_loop().time() * 1_000_000)
        delay_us = self._network.stream_delay_us(self._other.node, self.node)
        self._last_us = max(self._last_us, now_us + delay_us)
        self._coming.append((self._last_us, what))
        if isinstance(what, bytes):
            self._size += len(what)
        self.wake()

    @property
    def full(self) -> bool:
        """Whether who writes to here has to wait."""
        return self._size > BUFFER

    def wake(self) -> None:
        """See what arrives next, and when: the network, or whether this end reads, may have changed."""
        if self._alarm is None and self._coming and not self._over:
            at_s = self._coming[0][0] / 1_000_000
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_at(at_s, self._arrive, context=self.context)

    def _arrive(self) -> None:
        self._alarm = None
        assert self._other is not None, "it is connected"
        loop = asyncio.get_running_loop()
        now_us = round(loop.time() * 1_000_000)
        while self._coming and self._reading and self._network.passes(self._other.node, self.node):
            at_us, what = self._coming[0]
            if self._over or at_us > now_us:
                break
            self._coming.popleft()
            if isinstance(what, bytes):
                self._size -= len(what)
                self._protocol.data_received(what)  # type: ignore[attr-defined]
            elif what is not None:
                self._end(what)
            elif not self._protocol.eof_received():  # type: ignore[attr-defined]
                self.close()
        if self._coming and self._reading and self._network.passes(self._other.node, self.node):
            self.wake()
        self._other.room()

    def room(self) -> None:
        """Let this end's writer go on, if it waits and most of what it wrote has arrived."""
        assert self._other is not None, "it is connected"
        if self._held_up and self._other._size <= BUFFER // 4 and not self._over:
            self._held_up = False
            loop = asyncio.get_running_loop()
            loop.call_soon(self._protocol.resume_writing, context=self.context)

    def _end(self, error: Exception | None) -> None:
        if self._over:
            return
        self._over = self._closing = True
        del self._network.ends[self]
        if self._alarm is not None:
            self._alarm.cancel()
        loop = asyncio.get_running_loop()
        loop.call_soon(self._protocol.connection_lost, error, context=self.context)

    def crash(self, *, silently: bool = False) -> None:
        """The process at this end is no more: it hears nothing, the other end of its death. Silently: its
        machine is off. Nodes hear of that from the group; a client, once the machine is up again and it says
        something."""
        assert self._other is not None, "it is connected"
        self._over = self._closing = True
        del self._network.ends[self]
        if silently and self._other.node < 0:
            self._off = True
            return
        self._other.come(ConnectionResetError("the connection was reset: the process at the other end ended"))

    # --- what asyncio's protocols ask of a transport --------------------------------------------

    def write(self, data: Any) -> None:
        """Send bytes to the other end."""
        assert self._other is not None, "it is connected"
        if self._closing or not data:
            return
        self._other.come(bytes(data))
        if self._other.full and not self._held_up:
            self._held_up = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Send bytes to the other end."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """No: an end is closed in both directions at once."""
        return False

    def close(self) -> None:
        """Send nothing more: the other end gets what was written before, and then the end of file."""
        if not self._closing:
            assert self._other is not None, "it is connected"
            self._closing = True
            self._other.come(None)
            self._end(None)

    def abort(self) -> None:
        """End it: the other end gets an error behind what was written."""
        if not self._over:
            assert self._other is not None, "it is connected"
            self._closing = True
            self._other.come(ConnectionResetError("the connection was reset by the other end"))
            self._end(None)

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self._closing

    def pause_reading(self) -> None:
        """Keep what comes."""
        self._reading = False

    def resume_reading(self) -> None:
        """Hand over what comes."""
        self._reading = True
        self.wake()

    def is_reading(self) -> bool:
        """Whether what comes is handed over."""
        return self._reading and not self._closing

    def get_write_buffer_size(self) -> int:
        """Bytes on their way to the other end."""
        assert self._other is not None, "it is connected"
        return self._other._size

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The limits are the same for all streams in memory."""


class MemoryStreams:
    """The streams of one node in one of its lives."""

    def __init__(self, node: NodeId, networks: Iterable[MemoryNetwork]) -> None:
        """`networks`: those that the node is on."""
        self.node = node
        self._networks = tuple(networks)
        self._handles: list[Serve] = []
        """What serves each port, from port 1 on."""
        self._context = contextvars.copy_context()
        self._serving: set[asyncio.Task[None]] = set()

    async def serve(self, handle: Serve) -> int:
        """Serve from now on."""
        self._handles.append(handle)
        for network in self._networks:
            network.served[self.node] = self
        return len(self._handles)

    async def open(self, node: NodeId, port: int) -> Channel:
        """Connect to a node that is on one of the same networks."""
        network = next((each for each in self._networks if node in each.nodes), None)
        if network is None:
            raise ConnectionRefusedError(f"node {node} is on no network of node {self.node}")
        await network.travel(self.node, node)
        served = network.served.get(node)
        if served is None or not 0 < port <= len(served._handles) or len(served._serving) >= MOST:
            await network.travel(node, self.node)
            raise ConnectionRefusedError(f"node {node} serves nothing there")
        mine, reader, writer = stream_end(network, self.node)
        theirs, their_reader, their_writer = served._context.run(stream_end, network, node)
        mine.connect(theirs)
        theirs.connect(mine)
        served._context.run(served._accept, served._handles[port - 1], their_reader, their_writer)
        await network.travel(node, self.node)
        return Channel(reader, writer)

    def _accept(self, handle: Serve, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._run(handle, reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _run(self, handle: Serve, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handle(Channel(reader, writer, heard=_nothing))
            await writer.drain()
            writer.close()
        except (OSError, EOFError) as error:
            LOG.info("a stream ends: %s", error or type(error).__name__)
        finally:
            if not writer.is_closing():
                writer.transport.abort()

    def rekeyed(self) -> None:
        """Nothing is sealed here."""

    def crash(self) -> None:
        """The node's process is no more."""
        for network in self._networks:
            if network.served.get(self.node) is self:
                del network.served[self.node]
                network.relays.pop(self.node, None)

    async def close(self) -> None:
        """End everything."""
        self.crash()
        for network in self._networks:
            for end in [end for end in network.ends if end.node == self.node]:
                end.abort()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)


def stream_end(
    network: MemoryNetwork, node: NodeId
) -> tuple[End, asyncio.StreamReader, asyncio.StreamWriter]:
    """One end of a stream, which is not connected yet, and how it is read and written."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=BUFFER, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    end = End(network, node, protocol)
    return end, reader, asyncio.StreamWriter(end, protocol, reader, loop)


def _nothing() -> None:
    """Who connects here is known."""
