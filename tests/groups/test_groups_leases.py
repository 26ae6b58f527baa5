"""Locks and elections of a node."""

from __future__ import annotations

import pytest

import ordercast
from ordercast.core.identity import Guarantee
from ordercast.groups.local_process import ADDRESSES
from ordercast.testing import Cluster, run


def test_locks_and_elections_of_a_node_share_what_keeps_them() -> None:
    async def main() -> None:
        async with Cluster(1, protocol="total") as cluster:
            node = cluster.nodes[0]
            async with node.lock("cron") as held, node.election("leader", says="here") as leads:
                assert leads.token > 0
                assert held.token > 0
            await node.stop()
            with pytest.raises(ordercast.NodeClosed):
                node.lock("cron")

    run(main())


async def flood(group: ordercast.Group) -> None:
    for _ in range(100):
        await group.send(b"x" * 100_000, timeout=1)


def test_who_sends_waits_for_what_holds_a_group_up() -> None:
    async def main() -> None:
        async with Cluster(2, protocol="total") as cluster:
            one, two = cluster.nodes
            group = await one.join("orders", receive=False)
            assert two._member is not None
            slow = two._member._slow_readers
            slow.hold("orders", "the disk does not keep up")
            with pytest.raises(ordercast.SendTimeout):
                await flood(group)
            slow.hold("orders", None)
            await group.send(b"x", timeout=60)

    run(main())


def test_lists_of_groups_that_a_process_sends_to_are_remembered_in_a_bounded_way() -> None:
    async def main() -> None:
        async with Cluster(1, protocol="total") as cluster:
            node = cluster.nodes[0]
            assert node._member is not None
            outside = node._member.processes.outside
            for number in range(ADDRESSES + 2):
                outside.front((f"group {number}",))
            assert len(outside._fronts) < ADDRESSES
            assert (
                outside.try_send(("orders",), (b"x",), Guarantee.AGREED, heads=(b"said beside it",))
                is not None
            )
            with pytest.raises(ordercast.MessageTooLarge):
                outside.try_send(("orders",), (b"x" * node._member.gate.largest,), Guarantee.AGREED)

    run(main())
