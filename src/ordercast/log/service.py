"""A node's log over TCP: clients ask what it holds, and for ranges of it.

Blocks are sent as they are stored, one after the other: a connection takes up a few megabytes, however much
is asked for and however slowly it is read, of a memory that all connections share. How many there may be, and
who has to go when there are too many, is `ordercast.runtime.connections`' business. What has to be read from
the disk or sealed is done in a thread. Garbage on the port is counted, and ends the connection that it came
by and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec

from ordercast.errors import LogError, OrdercastError
from ordercast.keys import Keyring
from ordercast.log import wire
from ordercast.log.position import Position
from ordercast.log.selection import ALL, Selection
from ordercast.log.store import FULL_BYTES
from ordercast.log.view import MOST_BYTES, Piece, View
from ordercast.log.wire import Frames, Malformed
from ordercast.runtime.connections import HANDSHAKE_S, IDLE_S, Connection, Connections, Listener, bound
from ordercast.transport.address import address_text
from ordercast.transport.stream_seal import Refusal

LOG = logging.getLogger("ordercast")

FRAME_S = 60.0
"""How long the rest of a frame may take to come, once it has begun."""
MOST_FIRST = 4096
"""Bytes of a client's first frame: only who has the key, where there is one, can say more."""
LONGEST_NAME = 100
"""Characters of a request's name that are repeated to who asked for what there is not."""
BLOCK_MEMORY = 3 * FULL_BYTES
"""Bytes that a block takes on its way to a client: as it is stored, sealed, and in the transport's buffer."""
SMALL = 16 * 1024
"""Frames of up to so many bytes are not counted in the memory that all connections share."""


class ClientChannel:
    """A connection to a client that has greeted."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        frames: Frames,
        connections: Connections,
        connection: Connection,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.frames = frames
        self._connections = connections
        self.connection = connection

    async def receive(self) -> tuple[dict[str, Any], bytes] | None:
        """What it says next; None when it has gone."""
        proven = self.connection.proven
        try:
            async with asyncio.timeout(IDLE_S if proven else HANDSHAKE_S):
                (length,) = wire.LENGTH.unpack(await self._reader.readexactly(wire.LENGTH.size))
            if length > (wire.MOST_REQUEST if proven else MOST_FIRST):
                raise Malformed("frame too large")
            async with self._memory(length):
                async with asyncio.timeout(FRAME_S if proven else HANDSHAKE_S):
                    inside = await self._reader.readexactly(length)
                header, body = self.frames.taken(inside)
                if not self._connections.prove(self.connection):
                    raise Busy
                return header, bytes(body)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    @asynccontextmanager
    async def _memory(self, size: int) -> AsyncIterator[None]:
        """Have so many bytes of what all connections share, while a large frame is taken."""
        if size <= SMALL:
            yield
            return
        await self._connections.take(self.connection, size)
        try:
            yield
        finally:
            self._connections.give(self.connection, size)

    async def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Send the client a frame: a header, and a body behind it."""
        await self.write(*self.frames.parts(header, body))

    async def write(self, *parts: bytes) -> None:
        """Send a frame that was made; waits while much is on its way."""
        for part in parts:
            self._writer.write(part)
        async with asyncio.timeout(IDLE_S):
            await self._writer.drain()
        self._connections.touch(self.connection)


class Busy(Exception):
    """So many clients are served that there is no place for another one."""


Handler: TypeAlias = Callable[[ClientChannel, dict[str, Any]], Awaitable[None]]
"""Serves what a client asks for, and may go on listening to it."""


Rows: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**62)]
"""How many entries are meant."""


class After(msgspec.Struct, forbid_unknown_fields=True):
    """A request for the end of a range."""

    rows: Rows
    start: Position | None = None
    selected: Selection = ALL
    most_bytes: Rows = MOST_BYTES


class Count(msgspec.Struct, forbid_unknown_fields=True):
    """A request for how many entries a range has."""

    end: Position
    start: Position | None = None
    selected: Selection = ALL


class SentAt(msgspec.Struct, forbid_unknown_fields=True):
    """A request for the first message that was sent at a time or later."""

    time_us: Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class Before(msgspec.Struct, forbid_unknown_fields=True):
    """A request for the begin of a range."""

    rows: Rows
    end: Position


class Read(msgspec.Struct, forbid_unknown_fields=True):
    """A request for the entries of a range."""

    end: Position
    start: Position | None = None
    selected: Selection = ALL


class Service:
    """Serves the log in a directory."""

    def __init__(
        self,
        path: Path,
        keyring: Callable[[], Keyring | None],
        handlers: Mapping[str, Handler] | None = None,
        connections: Connections | None = None,
    ) -> None:
        """`keyring` is asked for each connection; `handlers`: what else can be asked for, by name;
        `connections`: where they are counted, with those of the node's other services."""
        self._path = path
        self._keyring = keyring
        self._handlers: dict[str, Handler] = {
            "bounds": self._bounds,
            "after": self._after,
            "before": self._before,
            "count": self._count,
            "groups": self._groups,
            "sent_at": self._sent_at,
            "read": self._read,
            **(handlers or {}),
        }
        self._connections = Connections() if connections is None else connections
        self._listener: Listener | None = None
        self._view: View | None = None
        self.drops: Counter[str] = Counter()
        """Connections that ended because of what came by them, by reason."""
        self.address = ""

    @property
    def connections(self) -> int:
        """How many clients there are."""
        return 0 if self._listener is None else len(self._listener)

    @property
    def damage_met(self) -> int:
        """How often something that clients asked for was damaged."""
        return 0 if self._view is None else self._view.damage_met

    async def start(self, host: str, port: int) -> None:
        """Listen at this address; port 0 is any that is free."""
        listening = await bound(host, port, "the log", "choose another address for log_listen")
        self._listener = Listener(listening, self._connections, self._serve)
        self.address = address_text(self._listener.address)

    async def close(self) -> None:
        """End all connections and listen no more."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        await listener.close()
        if self._view is not None:
            self._view.close()

    def rekeyed(self) -> None:
        """The keys of the group have changed: what was opened with one that it has no more, ends."""
        keyring = self._keyring()
        self._connections.end_of_other_keys(() if keyring is None else keyring.ids)

    # --- connections ----------------------------------------------------------------------------

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: Connection
    ) -> None:
        try:
            channel = await self._greeted(reader, writer, connection)
            while channel is not None and (said := await channel.receive()) is not None:
                await self._answer(channel, said[0])
        except Malformed as error:
            self.drops[str(error)] += 1
        except Busy:
            self.drops["busy"] += 1
        except TimeoutError:
            self.drops["stalled" if connection.proven else "silent"] += 1
        except ConnectionError:
            pass  # it has gone
        except Exception:
            self.drops["defect"] += 1
            LOG.critical("a connection to the log ends: a defect in ordercast", exc_info=True)

    async def _greeted(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: Connection
    ) -> ClientChannel | None:
        """Agree on keys; None if that is not possible, and the client was told why."""
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                seal, connection.key_id = await wire.HANDSHAKE.accept(
                    reader, writer, self._keyring(), self._busy
                )
        except Refusal as refusal:
            self.drops["busy" if refusal.how == wire.BUSY else "refused"] += 1
            writer.write(refusal.answer)
            await writer.drain()
            return None
        except asyncio.IncompleteReadError:
            return None
        return ClientChannel(reader, writer, Frames(seal), self._connections, connection)

    def _busy(self) -> str:
        if not self._connections.busy:
            return ""
        return f"{self._connections.most_proven} clients read it already: close some, or ask another replica"

    async def _answer(self, channel: ClientChannel, request: dict[str, Any]) -> None:
        name = request.pop("op", None)
        if not isinstance(name, str):
            raise Malformed("malformed wish")
        handler = self._handlers.get(name)
        try:
            if handler is None:
                called = name if len(name) < LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
                raise LogError(f"a log service does not know {called!r}: use the same version on both sides")
            await handler(channel, request)
        except msgspec.ValidationError as error:
            raise Malformed("malformed wish") from error
        except OrdercastError as error:
            await channel.send({"error": type(error).__name__, "message": str(error)})

    # --- what can be asked for ------------------------------------------------------------------

    async def _opened(self) -> View:
        if self._view is None:
            self._view = await asyncio.to_thread(View, self._path)
        return self._view

    async def _bounds(self, channel: ClientChannel, request: dict[str, Any]) -> None:
        view = await self._opened()
        await channel.send({"bounds": await asyncio.to_thread(view.bounds)})

    async def _after(self, channel: ClientChannel, request: dict[str, Any]) -> None:
        asked = msgspec.convert(request, After)
        view = await self._opened()
        end = await asyncio.to_thread(view.after, asked.start, asked.rows, asked.selected, asked.most_bytes)
        await channel.send({"end": end})

    async def _count(self, channel: ClientChannel, request: dict[str, Any]) -> None:
        asked = msgspec.convert(request, Count)
        view = await self._opened()
        counted = await asyncio.to_thread(view.count, asked.start, asked.end, asked.selected)
        await channel.send({"count": counted})

    async def _groups(self, channel: ClientChannel, request: dict[str, Any]) -> None:
        view = await self._opened()
        await channel.send({"groups": await asyncio.to_thread(view.groups)})

    async def _sent_at(self, channel: ClientChannel, request: dict[str, Any]) -> None:
        asked = msgspec.convert(request, SentAt)
        view = await self._opened()
        await channel.send({"at": await asyncio.to_thread(view.sent_at, asked.time_us)})

    async def _before(self, channel: ClientChannel, request: dict[str, Any]) -> None:
        asked = msgspec.convert(request, Before)
        view = await self._opened()
        await channel.send({"start": await asyncio.to_thread(view.before, asked.end, asked.rows)})

    async def _read(self, channel: ClientChannel, request: dict[str, Any]) -> None:
        """Send one block after the other, and then a frame that says that this was all."""
        asked = msgspec.convert(request, Read)
        view = await self._opened()
        pieces = await asyncio.to_thread(view.pieces, asked.start, asked.end, asked.selected)
        next_frame = partial(asyncio.to_thread, _next_frame, channel.frames, pieces)
        memory, client = self._connections, channel.connection
        await memory.take(client, BLOCK_MEMORY)
        making = asyncio.create_task(next_frame())
        try:
            while (frame := await making) is not None:
                ahead = memory.try_take(client, BLOCK_MEMORY)
                if ahead:
                    making = asyncio.create_task(next_frame())  # while this one is on its way
                await channel.write(*frame)
                memory.give(client, BLOCK_MEMORY)
                if not ahead:
                    await memory.take(client, BLOCK_MEMORY)
                    making = asyncio.create_task(next_frame())
        finally:
            await asyncio.gather(making, return_exceptions=True)
            memory.give(client, client.held)
        await channel.send({"done": True})


def _next_frame(frames: Frames, pieces: Iterator[Piece]) -> tuple[bytes, bytes] | None:
    piece = next(pieces, None)
    return None if piece is None else frames.parts({"rows": (piece.begin, piece.end)}, piece.block)
