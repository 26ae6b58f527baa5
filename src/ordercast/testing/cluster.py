"""Groups of real nodes on one network in memory, which do what a test tells them and nothing else."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from ordercast.core.identity import NodeId
from ordercast.directory import Directory
from ordercast.groups.api import Node
from ordercast.memory_directory import MemoryDirectory
from ordercast.runtime.config import NodeConfig
from ordercast.runtime.environment import Environment, Trace
from ordercast.runtime.ring_settings import RingSettings
from ordercast.runtime.storage import Memory, Storage
from ordercast.testing.client_network import ClientNetwork, address_of
from ordercast.testing.rows import RowDigest
from ordercast.transport.interface import OneNetwork, Setup
from ordercast.transport.memory import MemoryNetwork
from ordercast.transport.memory_streams import MemoryStreams
from ordercast.transport.streams import Streams

STREAM_BYTES = 65_536
"""Bytes of the stream of clients in memory, few: what is older is read from logs."""


class Cluster:
    """Nodes 1 to `count` on one network in memory. Start them with ``async with``, or `start` and `stop`."""

    def __init__(
        self,
        count: int,
        *,
        seed: int | str = 0,
        protocol: str = "totem",
        settings: Mapping[str, Any] | None = None,
        loss: float = 0.0,
        delay_us: tuple[int, int] = (50, 250),
        voters: Sequence[NodeId] = (),
        rings: Mapping[int, Sequence[NodeId]] | None = None,
        open_trace: Callable[[int], Trace | None] | None = None,
        at_moment: Callable[[NodeId, str], None] = lambda id, moment: None,
        clients: bool = False,
        client_stream: Sequence[str] = (),
    ) -> None:
        """`settings` are the protocol's; `loss` and `delay_us` as in `MemoryNetwork`. With `voters` only a
        majority of them goes on (``primary = "majority"``). `rings`: by the number of each network, the nodes
        on it; who is on several is a gateway (``protocol = "rings"``). `open_trace`: where the rows of a life
        go whose clock is so many microseconds ahead; left out, `trace`. `at_moment` is told that a node has
        come to a moment. With `clients` nodes serve clients; `client_stream`: what these read as a stream of
        JetStream, from logs that the nodes keep then in a temporary directory."""
        ids = range(1, count + 1)
        self._rings = dict(rings or {})
        self.networks = {
            number: MemoryNetwork(nodes, f"{seed}/{number}", loss=loss, delay_us=delay_us)
            for number, nodes in self._rings.items()
        }
        """With `rings`: the network of each."""
        self.network = MemoryNetwork(ids, seed, loss=loss, delay_us=delay_us)
        """Without `rings`: the network of all nodes."""
        self.trace = RowDigest()
        self._open_trace = (lambda ahead_us: self.trace) if open_trace is None else open_trace
        self._at_moment = at_moment
        self._seed = seed
        self._protocol = protocol
        self._settings = settings
        self.voters = tuple(voters)
        """Of whom a majority goes on; none: any partition does, or what the protocol itself says."""
        self._disks: dict[NodeId, Memory] = {}
        self.ahead_us = dict.fromkeys(ids, 0)
        """By how much the clock that each node's next life finds is ahead of virtual time."""
        self._directories: dict[tuple[NodeId, Path], MemoryDirectory] = {}
        self._clients = clients or bool(client_stream)
        self._client_stream = tuple(client_stream)
        networks = tuple(self.networks.values()) or (self.network,)
        self.client_network = ClientNetwork(networks, seed)
        """How clients reach nodes."""
        self._logs = tempfile.TemporaryDirectory(prefix="ordercast-logs-") if client_stream else None
        self._log_of = dict.fromkeys(ids, 1)
        """Which directory has the log that each node's next life finds."""
        self._chance = {id: random.Random(f"{seed}/machine/{id}") for id in ids}
        self.nodes = [self.node(id) for id in ids]

    def node(self, id: NodeId, voters: Sequence[NodeId] | None = None) -> Node:
        """A node on the network, not started yet; for another life of one that was stopped, too. `voters`, if
        it is given others than the cluster."""
        chance, ahead_us = self._chance[id], self.ahead_us[id]
        voters = self.voters if voters is None else tuple(voters)
        environment = Environment(
            now_us=lambda: round(asyncio.get_running_loop().time() * 1_000_000) + ahead_us,
            new_seed=lambda: chance.getrandbits(64),
            open_storage=lambda config: self._open_disk(id),
            open_transport=self._open_transport,
            open_trace=lambda config, node, life, about: self._open_trace(ahead_us),
            open_streams=lambda config, transport, keyring: self._open_streams(id),
            at_moment=lambda moment: self._at_moment(id, moment),
            open_directory=lambda path: self._open_directory(id, path),
            listen_for_clients=self.client_network.listen(id),
        )
        clients: dict[str, Any] = {"clients": address_of(id)} if self._clients else {}
        if self._logs is not None:
            clients |= {"log": self._log(id), "log_sync": False, "client_stream": self._client_stream}
            clients["client_stream_bytes"] = STREAM_BYTES
        return Node(
            id=id,
            protocol=self._protocol,
            settings=self._settings,
            environment=environment,
            primary="majority" if voters and self._protocol in ("totem", "rings") else None,
            voters=voters,
            ring=tuple(RingSettings(network=number) for number, nodes in self._rings.items() if id in nodes),
            **clients,
        )

    def _log(self, id: NodeId) -> Path:
        assert self._logs is not None, "nodes keep logs"
        return Path(self._logs.name, f"{id}-{self._log_of[id]}")

    def _open_disk(self, id: NodeId) -> Storage:
        disk = self._disks.get(id)
        if disk is None:
            disk = self._disks[id] = Memory(id, new=True)
        else:
            disk.begin_next_life()
        return disk

    def lose_disk(self, id: NodeId) -> None:
        """The next life finds an empty disk; it is later than the last one by the clock."""
        lost = self._disks.get(id)
        if lost is not None:
            disk = self._disks[id] = Memory(id, new=True)
            disk.incarnation = lost.incarnation
        for node, path in [each for each in self._directories if each[0] == id]:
            del self._directories[node, path]
        self._log_of[id] += 1

    def damage_disk(self, id: NodeId, chance: random.Random) -> None:
        """One bit of what replicated objects have in the directories is not what was written."""
        found = [directory for (node, _), directory in self._directories.items() if node == id]
        files = [each.content(name) for each in found for name in each.names() if each.size(name)]
        if files:
            file = chance.choice(files)
            file[chance.randrange(len(file))] ^= 1 << chance.randrange(8)

    def crash_disk(self, id: NodeId, chance: random.Random | None) -> None:
        """The process that used the directories is no more; with a `chance` what was not synced may be lost.
        What it writes after that reaches nothing."""
        for (node, path), directory in self._directories.items():
            if node == id:
                directory.crash(chance)
                self._directories[node, path] = directory.copy()
        if self._logs is not None:
            before = self._log(id)
            self._log_of[id] += 1
            if before.exists():
                shutil.copytree(before, self._log(id))

    async def _open_transport(self, config: NodeConfig, setup: Setup) -> OneNetwork:
        return self.networks.get(setup.network, self.network).open(setup)

    def _open_streams(self, id: NodeId) -> Streams:
        networks = [network for number, network in self.networks.items() if id in self._rings[number]]
        return MemoryStreams(id, networks or [self.network])

    def _open_directory(self, id: NodeId, path: Path) -> Directory:
        return self._directories.setdefault((id, path), MemoryDirectory(f"{path} of node {id}"))

    async def start(self) -> None:
        """Start all nodes, and wait until they are members of one configuration."""
        await asyncio.gather(*(node.start() for node in self.nodes))
        await self.together()

    async def together(self, *ids: NodeId) -> None:
        """Wait until these nodes, or all, share one configuration that has no other members."""
        nodes = [node for node in self.nodes if not ids or node.id in ids]
        members = sorted(node.id for node in nodes)
        while any(sorted(node.members) != members for node in nodes) or not all(
            node.status()["settled"] for node in nodes
        ):
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Stop all nodes at once. None of them hears another one leave, as if each had been switched off."""
        for network in (self.network, *self.networks.values()):
            network.partition(*({node} for node in network.nodes))
        await asyncio.gather(*(node.stop() for node in self.nodes))
        self.end()

    def end(self) -> None:
        """Let go of what is kept for the nodes."""
        if self._logs is not None:
            self._logs.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
