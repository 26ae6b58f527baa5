"""Groups of real nodes in one process and in virtual time: only what carries their packets is another."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from ordercast import ConfigurationChange, Delivery, Group, Kind, Rejoined
from ordercast.core.identity import NodeId
from ordercast.testing import Cluster, run

pytestmark = pytest.mark.untraced


class Reader:
    """Reads a group in the background: its messages, and the members of its regular configurations."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.payloads: list[bytes] = []
        self.members: list[tuple[NodeId, ...]] = []
        self.rejoined = 0
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self.group.batches():
            if isinstance(event, Delivery):
                self.payloads += event.payloads
            elif isinstance(event, ConfigurationChange) and event.kind is Kind.REGULAR:
                self.members.append(event.members)
                self.rejoined += isinstance(event, Rejoined)

    async def have(self, count: int) -> list[bytes]:
        """The first so many messages, once they are here."""
        while len(self.payloads) < count:
            assert not self._task.done(), self._task
            await asyncio.sleep(0.001)
        return self.payloads[:count]


async def readers_of(cluster: Cluster) -> list[Reader]:
    return [Reader(await node.join("g")) for node in cluster.nodes]


async def send(readers: Collection[Reader], each: int, word: str) -> None:
    """All of them at once."""
    await asyncio.gather(
        *(
            reader.group.send_many([f"{word} {sender} {number}".encode() for number in range(each)])
            for sender, reader in enumerate(readers)
        )
    )


def test_fifty_nodes_order_ten_thousand_messages_and_survive_a_partition() -> None:
    left, right = set(range(1, 21)), set(range(21, 51))

    async def main() -> None:
        async with Cluster(50, seed=1) as cluster:
            readers = await readers_of(cluster)
            await send(readers, 200, "together")
            orders = [await reader.have(10_000) for reader in readers]
            assert len(set(orders[0])) == 10_000
            assert all(order == orders[0] for order in orders)

            cluster.network.partition(left, right)
            await cluster.together(*left)
            await cluster.together(*right)
            sides = readers[:20], readers[20:]
            for side, word in zip(sides, ("left", "right"), strict=True):
                await send(side[:3], 10, word)
            apart = [[await reader.have(10_030) for reader in side] for side in sides]
            for seen in apart:
                assert all(order == seen[0] for order in seen)
            assert apart[0][0] != apart[1][0]

            cluster.network.heal()
            await cluster.together()
            await send(readers[:1], 10, "again")
            after = [(await reader.have(10_040))[-10:] for reader in readers]
            assert after[0] == [f"again 0 {number}".encode() for number in range(10)]
            assert all(order == after[0] for order in after)
            everybody = tuple(range(1, 51))
            assert all(reader.members[-1] == everybody for reader in readers)

    run(main())


async def a_run(protocol: str, seed: int) -> str:
    """A group that loses packets, is cut and joined again; the checksum of its trace."""
    cluster = Cluster(7, seed=seed, protocol=protocol, loss=0.01)
    async with cluster:
        readers = await readers_of(cluster)
        await send(readers, 20, "together")
        for reader in readers:
            await reader.have(140)
        cluster.network.partition({1, 2})
        await cluster.together(3, 4, 5, 6, 7)
        cluster.network.heal()
        await cluster.together()
        await send(readers, 5, "again")
        rest = [(await reader.have(175))[140:] for reader in readers]
        assert all(order == rest[0] for order in rest)
    assert cluster.trace.rows > 7 * 175
    return cluster.trace.sha256


@pytest.mark.parametrize("protocol", ["totem", "cm", "total"])
def test_the_same_seed_gives_the_same_trace(protocol: str) -> None:
    first, again, other = (run(a_run(protocol, seed)) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_a_minority_of_a_sequencer_group_waits_and_comes_back_as_other_lives() -> None:
    async def main() -> None:
        async with Cluster(5, seed=2, protocol="cm") as cluster:
            readers = await readers_of(cluster)
            await send(readers, 10, "together")
            for reader in readers:
                await reader.have(50)
            cluster.network.partition({4, 5})
            await cluster.together(1, 2, 3)
            await send(readers[:3], 10, "majority")
            orders = [await reader.have(80) for reader in readers[:3]]
            assert all(order == orders[0] for order in orders)
            assert [len(reader.payloads) for reader in readers[3:]] == [50, 50]
            cluster.network.heal()
            await cluster.together()
            assert [reader.rejoined for reader in readers] == [0, 0, 0, 1, 1]
            assert [node.incarnation for node in cluster.nodes] == [0, 0, 0, 1, 1]

    run(main())


def test_a_node_that_is_stopped_comes_back_with_its_disk() -> None:
    async def main() -> None:
        async with Cluster(3, seed=5) as cluster:
            await cluster.nodes[2].stop()
            await cluster.together(1, 2)
            cluster.nodes[2] = cluster.node(3)
            await cluster.nodes[2].start()
            await cluster.together()
            assert cluster.nodes[2].incarnation == 1

    run(main())


def test_the_status_tells_what_the_network_lost() -> None:
    async def main() -> None:
        async with Cluster(3, seed=5, loss=0.05) as cluster:
            readers = await readers_of(cluster)
            for number in range(100):
                await send(readers, 1, str(number))
                await asyncio.sleep(0.002)
            for reader in readers:
                await reader.have(300)
            status = cluster.nodes[0].status()
            assert status["drops"]["lost on the way"] > 0
            assert [peer["node"] for peer in status["peers"]] == [2, 3]
            assert (status["address"], status["sealed"]) == ("memory:1", False)

    run(main())
