"""How clients, which are no nodes, connect to the nodes of a world: over streams in memory."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Iterable

from ordercast.client.environment import Environment
from ordercast.client.servers import Server
from ordercast.core.identity import NodeId
from ordercast.runtime.client_listener import ClientListener, Listen
from ordercast.runtime.config import NodeConfig
from ordercast.runtime.connections import Connections
from ordercast.runtime.direct_connections import Begin, Served
from ordercast.transport.memory import MemoryNetwork
from ordercast.transport.memory_streams import End, stream_end

PORT = 4222


def address_of(node: NodeId) -> str:
    """Where a node of a world serves clients."""
    return f"127.0.{node >> 8}.{node & 255}:{PORT}"


class ClientNetwork:
    """The clients of all nodes."""

    def __init__(self, networks: Iterable[MemoryNetwork], seed: int | str) -> None:
        """`networks`: all that nodes are on."""
        self._networks = tuple(networks)
        self._seed = seed
        self._clients = 0
        self._there: dict[str, _MemoryListener] = {}
        """Those who accept clients, by address."""

    def listen(self, node: NodeId) -> Listen:
        """How a node accepts clients."""
        network = next(each for each in self._networks if node in each.nodes)

        async def listen(
            config: NodeConfig, connections: Connections, begin: Begin, refusal: bytes
        ) -> ClientListener:
            listener = _MemoryListener(network, node, connections, begin, refusal)
            self._there[listener.address] = listener
            return listener

        return listen

    def gone(self, node: NodeId) -> None:
        """The process of a node is no more."""
        self._there.pop(address_of(node), None)

    def environment(self, beside: NodeId | None) -> Environment:
        """That of another client, which is on the side of a node in every partition; None: on all sides."""
        self._clients += 1
        client = -self._clients
        for network in self._networks:
            network.beside[client] = beside

        async def open_connection(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await self._connect(client, server)

        return Environment(open_connection, random.Random(f"{self._seed}/connection {self._clients}"))

    async def _connect(
        self, client: NodeId, server: Server
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        found = [
            (network, node)
            for network in self._networks
            for node in network.nodes
            if address_of(node) == server.address
        ]
        if not found:
            raise ConnectionRefusedError(f"no node of this world is at {server.address}")
        network, node = found[0]
        await network.travel(client, node)
        listener = self._there.get(server.address)
        if listener is None:
            await network.travel(node, client)
            raise ConnectionRefusedError(f"node {node} serves no clients now")
        mine, reader, writer = stream_end(network, client)
        listener.context.run(listener.accept, mine)
        try:
            await network.travel(node, client)
        except BaseException:
            mine.abort()
            raise
        return reader, writer


class _MemoryListener:
    """Accepts clients of one life of a node."""

    def __init__(
        self,
        network: MemoryNetwork,
        node: NodeId,
        connections: Connections,
        begin: Begin,
        refusal: bytes,
    ) -> None:
        self.address = address_of(node)
        self.context = contextvars.copy_context()
        """That of the node's process."""
        self._network = network
        self._node = node
        self._connections = connections
        self._begin = begin
        self._refusal = refusal
        self._refuses = False
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, other: End) -> None:
        """Somebody connects."""
        full = self._refuses or (self._connections.full and not self._connections.make_room())
        connection = None if full else self._connections.admit("memory")
        if connection is None:
            mine, _, writer = stream_end(self._network, self._node)
            mine.connect(other)
            other.connect(mine)
            writer.write(self._refusal)
            writer.close()
            return
        served = Served(connection, self._begin)
        here = End(self._network, self._node, served)
        here.connect(other)
        other.connect(here)
        task = asyncio.get_running_loop().create_task(self._serve(served))
        connection.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, served: Served) -> None:
        try:
            await served.handler.serve()
        except (asyncio.CancelledError, ConnectionError, TimeoutError):
            pass  # ended by this node, by the other side, or by neither for too long
        finally:
            served.handler.lost()
            assert served.transport is not None, "it is connected"
            served.transport.abort()
            self._connections.closed(served.connection)

    def refuse(self) -> None:
        """Accept no more."""
        self._refuses = True

    async def close(self) -> None:
        """Accept no more, and end all connections."""
        self.refuse()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
