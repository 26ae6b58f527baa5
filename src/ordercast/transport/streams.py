"""Connections between nodes, beside the packets of their group: for what is large and has no order.

What is said goes in *frames*, each of which arrives whole or not at all: sealed where the group has a key,
with a checksum where it has none. `ordercast.runtime.tcp_streams` has the connections of real nodes,
`ordercast.transport.memory_streams` those within a process.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias
from zlib import crc32

from ordercast.core.identity import NodeId

if TYPE_CHECKING:
    from ordercast.transport.stream_seal import Seal

MOST = 16
"""Connections that a node serves at once; further ones are refused."""
BUFFER = 256 * 1024
"""Bytes on their way over a connection, from where on who writes has to wait."""
MOST_FRAME = 1024 * 1024
"""Bytes of a frame."""
MOST_FIRST = 4096
"""Bytes of the first frame of who has connected: only who has the key, where there is one, can say more."""
FIRST_S = 5.0
"""How long who has connected may take for its first frame."""
IDLE_S = 60.0
"""How long an end waits for a frame, or for room to send one, if it has no timeout of its own."""
_LENGTH = struct.Struct(">I")
_SUM = struct.Struct(">I")


class Damaged(OSError):
    """What came is no frame, or not the one that was sent."""


class Channel:
    """One end of a connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        seal: Seal | None = None,
        heard: Callable[[], None] | None = None,
    ) -> None:
        """`heard` is called with each frame that came or went: who has connected has the key, if there is
        one. Without it, this end is the one that has connected."""
        self._reader = reader
        self._writer = writer
        self._seal = seal
        self._heard = heard
        self._proven = heard is None

    async def send(self, frame: bytes) -> None:
        """Send a frame; waits while much is on its way. Raises `OSError`."""
        body = _SUM.pack(crc32(frame)) + frame if self._seal is None else self._seal.sealed(frame)
        self._writer.write(_LENGTH.pack(len(body)) + body)
        async with asyncio.timeout(IDLE_S):
            await self._writer.drain()
        if self._heard is not None and self._proven:
            self._heard()

    async def receive(self) -> bytes:
        """The next frame. Raises `EOFError` where there is none, or `OSError`."""
        async with asyncio.timeout(IDLE_S if self._proven else FIRST_S):
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if length > (MOST_FRAME if self._proven else MOST_FIRST):
                raise Damaged(f"a frame of {length} bytes")
            body = await self._reader.readexactly(length)
        frame = self._opened(body)
        self._proven = True
        if self._heard is not None:
            self._heard()
        return frame

    def _opened(self, body: bytes) -> bytes:
        if self._seal is None:
            if len(body) < _SUM.size or _SUM.unpack_from(body)[0] != crc32(memoryview(body)[_SUM.size :]):
                raise Damaged("a checksum does not fit")
            return body[_SUM.size :]
        from ordercast.transport.stream_seal import Malformed

        try:
            return bytes(self._seal.opened(body))
        except Malformed as error:
            raise Damaged(str(error)) from error

    def close(self) -> None:
        """Send nothing more: the other end gets what was sent, and then `EOFError`."""
        self._writer.close()


Serve: TypeAlias = Callable[[Channel], Awaitable[None]]
"""Serves one connection, which is closed when this returns, or raises `OSError` or `EOFError`."""


class Streams(Protocol):
    """The connections of a node in one of its lives."""

    async def serve(self, handle: Serve) -> int:
        """Serve connections from now on; the port, which others have to be told beside the node.

        What is served besides has a port of its own.
        """

    async def open(self, node: NodeId, port: int) -> Channel:
        """Connect to what a node serves. Raises `OSError` or `EOFError` if nothing is served there.

        It waits for as long as packets to that node are lost, and so do reads: put a timeout around both.
        """

    def rekeyed(self) -> None:
        """The keys of the group have changed: what was opened with one that it has no more, ends."""

    async def close(self) -> None:
        """Serve nothing more, and end all connections, whoever opened them."""
