"""Streams of bytes between nodes over TCP."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Sequence

from ordercast.core.identity import NodeId
from ordercast.transport.streams import BUFFER, MOST, Serve

LOG = logging.getLogger("ordercast")


class TcpStreams:
    """The streams of a real node."""

    def __init__(self, hosts: Sequence[str], host_of: Callable[[NodeId], str | None]) -> None:
        """`hosts`: where the node listens. `host_of` tells where another node's packets come from."""
        self._hosts = hosts
        self._host_of = host_of
        self._servers: list[asyncio.Server] = []
        self._serving: set[asyncio.Task[None]] = set()
        self._opened: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()

    async def serve(self, handle: Serve) -> int:
        """Listen at any free port, the same on all hosts."""

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(self._serving) >= MOST:
                writer.transport.abort()
                return
            task = asyncio.current_task()
            assert task is not None, "asyncio runs this in a task"
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
            writer.transport.set_write_buffer_limits(BUFFER)
            try:
                await handle(reader, writer)
                await writer.drain()
                writer.close()
            except (OSError, EOFError) as error:
                LOG.info("a stream ends: %s", error or type(error).__name__)
            finally:
                if not writer.is_closing():
                    writer.transport.abort()

        assert not self._servers, "it is served once"
        port = 0
        for host in self._hosts:
            server = await asyncio.start_server(accepted, host, port, limit=BUFFER)
            self._servers.append(server)
            port = server.sockets[0].getsockname()[1]
        return port

    async def open(self, node: NodeId, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to that port of the host that the node's packets come from."""
        host = self._host_of(node)
        if host is None:
            raise ConnectionRefusedError(f"node {node} is not reachable")
        reader, writer = await asyncio.open_connection(host, port, limit=BUFFER)
        writer.transport.set_write_buffer_limits(BUFFER)
        self._opened.add(writer)
        return reader, writer

    async def close(self) -> None:
        """End everything at once."""
        for server in self._servers:
            server.close()
        for writer in list(self._opened):
            writer.transport.abort()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
