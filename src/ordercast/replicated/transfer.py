"""States on their way from one replica to another: over a stream, out of the order.

Who needs a state asks one of those who hold it, by the object's name. The donor says at which place of the
history its state is, and sends it in frames with checksums, piece by piece; meanwhile it carries out nothing,
while the group goes on. If it falls silent or ends, the next one is asked.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from ordercast.core.identity import NodeId
from ordercast.core.wire import UNREADABLE
from ordercast.replicated.command import encode
from ordercast.replicated.durable.heads import Head
from ordercast.replicated.effects import Fetch
from ordercast.replicated.machine import Common
from ordercast.replicated.state import Incoming

if TYPE_CHECKING:
    from ordercast.replicated.replica import Replica
    from ordercast.transport.streams import Streams

LOG = logging.getLogger("ordercast")

STALL_S = 5.0
"""How long a donor may keep a replica waiting for the next frame before another one is asked."""
AGAIN_S = 0.1
"""How long a replica waits before it asks all donors anew."""
CHUNK = 64 * 1024
"""Bytes that are sent before the event loop has its turn."""
MOST_FRAME = 64 * 1024 * 1024
_FRAME = struct.Struct(">II")
_OPENING, _SESSIONS, _FIELD, _END = b"o", b"s", b"f", b"e"


class Opening(msgspec.Struct, array_like=True):
    """How a state begins."""

    head: Head
    common: Common


_opening = msgspec.msgpack.Decoder(Opening).decode


class Broken(OSError):
    """What came is no whole state."""


class Giving:
    """Gives states of a node's objects to other nodes."""

    def __init__(self, find: Callable[[str], Replica | None], at_moment: Callable[[str], None]) -> None:
        """`find`: the replica of an object here, by name."""
        self._find = find
        self._at_moment = at_moment

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: a name, then the state of the object of that name."""
        async with asyncio.timeout(STALL_S):
            name = (await _frame(reader)).decode(errors="replace")
        replica = self._find(name)
        if replica is None or not replica.machine.has_state:
            return
        machine = replica.machine
        machine.pause()
        try:
            chunk = 0
            for frame in _frames(replica):
                writer.write(frame)
                chunk += len(frame)
                if chunk >= CHUNK:
                    chunk = 0
                    self._at_moment("state half sent")
                    async with asyncio.timeout(STALL_S):
                        await writer.drain()
                    await asyncio.sleep(0)
        finally:
            replica.run(machine.resume())
        async with asyncio.timeout(STALL_S):
            await writer.drain()


def _frames(replica: Replica) -> Iterator[bytes]:
    """The state of an object: nothing changes it until all are taken."""
    machine, target = replica.machine, replica.target
    yield _framed(_OPENING + encode(Opening(machine.applied, machine.common)))
    count = 0
    for piece in machine.sessions.pieces():
        yield _framed(_SESSIONS + piece)
        count += 1
    for piece in target._fields.pieces(target):
        yield _framed(_FIELD + piece)
        count += 1
    yield _framed(_END + encode(count))


def _framed(body: bytes) -> bytes:
    return _FRAME.pack(len(body), crc32(body)) + body


async def _frame(reader: asyncio.StreamReader) -> bytes:
    length, checksum = _FRAME.unpack(await reader.readexactly(_FRAME.size))
    if length > MOST_FRAME:
        raise Broken(f"a frame of {length} bytes")
    body = await reader.readexactly(length)
    if crc32(body) != checksum:
        raise Broken("a checksum does not fit")
    return body


class State:
    """A state that came whole."""

    def __init__(self, opening: Opening, sessions: list[bytes], incoming: Incoming) -> None:
        self.head = opening.head
        self.common = opening.common
        self.sessions = sessions
        self.incoming = incoming


async def take(streams: Streams, node: NodeId, port: int, name: str, replica: Replica) -> State:
    """The state of an object, from another node. Raises `OSError` or `EOFError` if that is not to be had."""
    async with asyncio.timeout(STALL_S):
        reader, writer = await streams.open(node, port)
    try:
        writer.write(_framed(name.encode()))
        return await _take(reader, replica)
    except UNREADABLE as error:
        raise Broken(f"it is not of this class: {error}") from error
    finally:
        writer.close()


async def _take(reader: asyncio.StreamReader, replica: Replica) -> State:
    async with asyncio.timeout(STALL_S):
        first = await _frame(reader)
    if first[:1] != _OPENING:
        raise Broken("it has no beginning")
    opening, sessions, count = _opening(first[1:]), list[bytes](), 0
    incoming = replica.target._fields.taking(replica.target)
    while True:
        async with asyncio.timeout(STALL_S):
            frame = await _frame(reader)
        kind, body = frame[:1], frame[1:]
        if kind == _END:
            if msgspec.msgpack.decode(body, type=int) != count:
                raise Broken("pieces are missing")
            return State(opening, sessions, incoming)
        count += 1
        if kind == _SESSIONS:
            sessions.append(body)
        else:
            incoming.add(body)


class Fetching:
    """Gets a state for one replica, from one donor after the other, until it has one."""

    def __init__(
        self, streams: Streams, replica: Replica, fetch: Fetch, at_moment: Callable[[str], None]
    ) -> None:
        self._streams = streams
        self._replica = replica
        self.fetch = fetch
        """From whom; may change while it goes on."""
        self._at_moment = at_moment
        self._task = asyncio.create_task(self._run(), name=f"ordercast-state-{replica.name}")

    @property
    def done(self) -> bool:
        """Whether a state has come."""
        return self._task.done()

    def stop(self) -> None:
        """It is not needed any more."""
        self._task.cancel()

    async def _run(self) -> None:
        replica, tried = self._replica, 0
        self._at_moment("state transfer begins")
        while True:
            sources = self.fetch.sources
            if sources:
                process, port = sources[tried % len(sources)]
                tried += 1
                try:
                    state = await take(self._streams, process.node, port, replica.name, replica)
                    self._at_moment("state transfer ends")
                    replica.state_came(state)
                    return
                except (OSError, EOFError) as error:
                    LOG.info(
                        "the state of %s did not come from node %d: %s", replica.name, process.node, error
                    )
            await asyncio.sleep(AGAIN_S if tried % max(1, len(sources)) == 0 else 0)
