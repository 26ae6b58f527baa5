"""Stream connections whose bytes are told as they come, without a stream and its task between."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Protocol, TypeAlias, cast

from ordercast.runtime.connections import WRITE_BUFFER, Connection, Connections, Listener


class Handler(Protocol):
    """Is told what comes over one connection."""

    def come(self, data: bytes) -> None:
        """Bytes of the other side."""

    def lost(self) -> None:
        """The connection is closed, by either side."""

    def held_up(self, on: bool) -> None:
        """Much is on its way to the other side, or most of that has gone."""

    async def serve(self) -> None:
        """Serve the connection, which is there now; returns when it is over."""


class Served(asyncio.Protocol):
    """One client of a listener."""

    def __init__(self, connection: Connection, begin: Begin) -> None:
        self.connection = connection
        self.transport: asyncio.Transport | None = None
        """None before the connection is there."""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolved when it is closed."""
        self._early: list[bytes] | None = None
        """What comes while TLS begins, and cannot be answered before it is known where to write."""
        self.handler = begin(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self.use(cast(asyncio.Transport, transport))  # uvloop's are of no class of asyncio

    def use(self, transport: asyncio.Transport) -> None:
        """Write to this from now on."""
        transport.set_write_buffer_limits(WRITE_BUFFER)
        self.transport = self.connection.transport = transport

    async def seal(self, context: ssl.SSLContext, timeout_s: float) -> None:
        """Go on with TLS. Raises `OSError` or `TimeoutError` if the client does not."""
        raw = self.transport
        assert raw is not None, "it is connected"
        self._early = []
        sealed = await asyncio.get_running_loop().start_tls(
            raw, self, context, server_side=True, ssl_handshake_timeout=timeout_s
        )
        assert sealed is not None, "it was not closed before"
        self.use(sealed)
        early, self._early = self._early, None
        for data in early:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        if self._early is not None:
            self._early.append(data)
        else:
            self.handler.come(data)

    def pause_writing(self) -> None:
        """Much is on its way to the client."""
        self.handler.held_up(True)

    def resume_writing(self) -> None:
        """Most of what was on its way to the client has gone."""
        self.handler.held_up(False)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self.handler.lost()
        if not self.over.done():
            self.over.set_result(None)


Begin: TypeAlias = Callable[[Served], Handler]
"""Makes the handler of a client, before the first byte comes."""


class DirectListener(Listener):
    """Accepts connections, counts them, and has each served by a handler of its own."""

    def __init__(
        self, listening: socket.socket, connections: Connections, begin: Begin, refusal: bytes = b""
    ) -> None:
        """`listening` is bound; it is this listener's from now on. Who is refused gets the `refusal`."""
        self._begin_serving = begin
        super().__init__(listening, connections, None, refusal)

    async def _run(self, line: socket.socket, connection: Connection) -> None:
        served = Served(connection, self._begin_serving)
        try:
            await self._loop.connect_accepted_socket(lambda: served, line)
            await served.handler.serve()
        except (asyncio.CancelledError, ConnectionError, TimeoutError):
            pass  # ended by this node, by the other side, or by neither for too long
        finally:
            served.handler.lost()
            if connection.transport is not None:
                connection.transport.abort()
                self._loop.call_soon(self._connections.closed, connection)  # behind the socket being closed
