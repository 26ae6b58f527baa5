"""A group that nobody sends in: its nodes do little, stay in their configuration, and notice when it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ordercast import Node
from ordercast.testing import Cluster, run

SECONDS = 5
LINE = {1: (1, 2, 3), 2: (3, 4, 5)}
"""Two rings; node 3 is the gateway."""
PROTOCOLS = pytest.mark.parametrize(
    ("protocol", "rings"), [("totem", None), ("rings", LINE)], ids=["totem", "rings"]
)


def cluster_of(protocol: str, rings: Any) -> Cluster:
    return Cluster(5, seed=7, protocol=protocol, rings=rings)


def tokens(node: Node) -> int:
    return int(node.status()["packets_sent"]["token"])


@PROTOCOLS
def test_an_idle_ring_passes_its_token_round_seven_times_a_second_at_most(protocol: str, rings: Any) -> None:
    async def main() -> None:
        async with cluster_of(protocol, rings) as cluster:
            await asyncio.sleep(2)
            before = {node.id: (tokens(node), node.configuration) for node in cluster.nodes}
            await asyncio.sleep(SECONDS)
            for node in cluster.nodes:
                count, configuration = before[node.id]
                rings_of_it = sum(node.id in ring for ring in LINE.values()) if rings else 1
                assert node.configuration == configuration
                assert 6 * SECONDS <= (tokens(node) - count) / rings_of_it <= 7 * SECONDS

    run(main())


@PROTOCOLS
def test_who_sends_after_a_long_pause_does_not_wait_for_the_token_to_be_let_go(
    protocol: str, rings: Any
) -> None:
    async def main() -> None:
        async with cluster_of(protocol, rings) as cluster:
            groups = [await node.join("g") for node in cluster.nodes]
            await asyncio.sleep(SECONDS)
            loop = asyncio.get_running_loop()
            sent = loop.time()
            await groups[1].send(b"now")
            await anext(aiter(groups[4]))
            assert loop.time() - sent < 0.02

    run(main())


@PROTOCOLS
def test_that_a_node_is_gone_is_noticed_within_a_second(protocol: str, rings: Any) -> None:
    """Silently: nobody is told that its process has ended."""

    async def main() -> None:
        async with cluster_of(protocol, rings) as cluster:
            await asyncio.sleep(SECONDS)
            for network in cluster.networks.values() if rings else [cluster.network]:
                network.crash(5, silently=True) if 5 in network.nodes else None
            async with asyncio.timeout(1):
                await cluster.together(1, 2, 3, 4)

    run(main())
