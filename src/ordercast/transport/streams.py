"""Streams of bytes between nodes, beside the packets of their group: for what is large and has no order.

Both ends are readers and writers of asyncio, with its flow control. `ordercast.runtime.tcp_streams` has those
of real nodes, `ordercast.transport.memory_streams` those within a process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from ordercast.core.identity import NodeId

Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves one connection, which is closed when this returns, or raises `OSError` or `EOFError`."""

MOST = 16
"""Connections that a node serves at once; further ones are refused."""
BUFFER = 256 * 1024
"""Bytes on their way over a connection, from where on who writes has to wait."""


class Streams(Protocol):
    """The streams of a node in one of its lives. Bytes are as they are given: sealed or checked by nobody."""

    async def serve(self, handle: Serve) -> int:
        """Serve connections from now on; the port, which others have to be told beside the node."""

    async def open(self, node: NodeId, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to what a node serves. Raises `OSError` if nothing is served there.

        It waits for as long as packets to that node are lost, and so do reads: put a timeout around both.
        """

    async def close(self) -> None:
        """Serve nothing more, and end all connections, whoever opened them."""
