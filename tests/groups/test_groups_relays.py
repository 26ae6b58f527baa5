"""What nodes say over connections, beside the order, comes to nodes on other rings: gateways carry it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import ordercast
from free_ports import free_address
from ordercast.core.identity import NodeId
from ordercast.keys import create
from ordercast.log.replica import Replica
from ordercast.testing import Cluster, run
from ordercast.transport.relays import MOST_HOPS, Onward
from ordercast.transport.streams import Channel

LINE = {1: (1, 2, 3), 2: (3, 4, 5), 3: (5, 6, 7)}
"""Three rings in a line; the nodes 3 and 5 are the gateways."""
PAIR = {1: (1, 2, 3), 2: (2, 3, 4)}
"""Two rings with two gateways."""
VALUE = "x" * 10_000


def cluster_of(rings: Mapping[int, Sequence[NodeId]], count: int) -> Cluster:
    return Cluster(count, seed=3, protocol="rings", rings=rings, voters=(1,))


async def filled(node: ordercast.Node, entries: int) -> ordercast.Map[str]:
    """A map with that many entries, at this node alone."""
    pages = await node.replicate(ordercast.Map(str), "pages", timeout=10)
    await asyncio.gather(*(pages.put(str(number), VALUE) for number in range(entries)))
    return pages


def test_the_state_of_an_object_comes_from_a_ring_two_gateways_away() -> None:
    async def main() -> None:
        async with cluster_of(LINE, 7) as cluster:
            there = await filled(cluster.nodes[0], 300)
            here = await cluster.nodes[6].replicate(ordercast.Map(str), "pages", timeout=10)
            await here.sync()
            assert dict(here.local) == dict(there.local)
            await here.put("back", "again")
            await there.sync()
            assert there.local["back"] == "again"

    run(main())


def test_it_comes_by_the_other_gateway_where_one_dies_in_between() -> None:
    async def main() -> None:
        async with cluster_of(PAIR, 4) as cluster:
            await filled(cluster.nodes[0], 300)
            coming = asyncio.create_task(cluster.nodes[3].replicate(ordercast.Map(str), "pages", timeout=30))
            while not cluster.networks[2].ends:
                await asyncio.sleep(0.0001)
            cluster.networks[1].crash(2)
            cluster.networks[2].crash(2)
            here = await coming
            assert len(here.local) == 300

    run(main())


async def refusals(cluster: Cluster, node: NodeId, *wanted: Onward) -> list[str]:
    """What comes of opening these at a node."""
    found = []
    for onward in wanted:
        with pytest.raises(ConnectionRefusedError) as refused:
            await cluster.nodes[node - 1]._running.streams._open(onward)
        found.append(str(refused.value))
    return found


def test_who_cannot_be_connected_to_is_told_why() -> None:
    """By the gateway that stands in front of it; and nothing goes in a circle for ever."""

    async def main() -> None:
        async with cluster_of(LINE, 7) as cluster:
            far, close, nobody = await refusals(
                cluster, 1, Onward(7, 1, 2), Onward(6, 1, MOST_HOPS), Onward(99, 1, MOST_HOPS)
            )
            assert far == "node 3: node 5: it is too far away"
            assert close == "node 3: node 5: node 6 serves nothing there"
            assert nobody == "node 99 is on no network of node 1"
            cluster.networks[1].relays.clear()
            (without,) = await refusals(cluster, 1, Onward(7, 1, MOST_HOPS))
            assert without == "node 7 is behind node 3, which carries no streams"

    run(main())


def test_a_gateway_carries_nothing_for_who_does_not_say_where_to() -> None:
    async def main() -> None:
        async with cluster_of(LINE, 7) as cluster:
            one = cluster.nodes[0]._running
            channel: Channel = await one.streams._streams.open(3, one.transport.relay_of(3))
            await channel.send(b"somewhere")
            with pytest.raises((EOFError, ConnectionError)):
                await channel.receive()

    run(main())


def test_over_real_connections_with_a_key_for_each_ring(tmp_path: Path) -> None:
    """Who has either key may read the log of the gateway, too."""
    for number in (1, 2):
        create(tmp_path / f"{number}.key")

    gateway = {number: free_address() for number in (1, 2)}
    log_address = free_address()

    def node(number: NodeId, *networks: int) -> ordercast.Node:
        rings = [
            ordercast.RingSettings(
                network=network,
                listen=gateway[network] if number == 2 else "127.0.0.1:0",
                seeds=(gateway[network],),
                key=tmp_path / f"{network}.key",
            )
            for network in networks
        ]
        return ordercast.Node(
            id=number,
            protocol="rings",
            primary="majority",
            voters=(1,),
            ring=tuple(rings),
            log=tmp_path / "log" if number == 2 else None,
            log_listen=log_address if number == 2 else None,
        )

    def node_of_log(network: int) -> int:
        with Replica(log_address, str(tmp_path / f"{network}.key")) as log:
            return log.bounds().node

    async def main() -> None:
        left, right, between = node(1, 1), node(3, 2), node(2, 1, 2)
        await asyncio.gather(left.start(), right.start(), between.start())
        try:
            there = await filled(left, 50)
            here = await right.replicate(ordercast.Map(str), "pages", timeout=20)
            await here.sync()
            assert dict(here.local) == dict(there.local)
            assert [await asyncio.to_thread(node_of_log, network) for network in (1, 2)] == [2, 2]
        finally:
            await asyncio.gather(left.stop(), right.stop(), between.stop())

    asyncio.run(asyncio.wait_for(main(), 60))
