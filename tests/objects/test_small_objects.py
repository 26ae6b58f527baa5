"""Counter, set and barrier at real nodes, on a network in memory and in virtual time."""

from __future__ import annotations

import asyncio

import pytest

import ordercast
from ordercast import Barrier, BarrierBroken, Counter, Map, Set
from ordercast.objects.barrier import MOST_REFUSED
from ordercast.testing import Cluster, run

PROTOCOLS = pytest.mark.parametrize(
    ("protocol", "voters"), [("totem", (1, 2, 3)), ("total", ()), ("cm", ())], ids=["totem", "total", "cm"]
)


@PROTOCOLS
def test_a_counter_counts_everything_once(protocol: str, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        async with Cluster(3, seed=1, protocol=protocol, voters=voters) as cluster:
            counters = [await node.replicate(Counter(5), "count", timeout=30) for node in cluster.nodes]
            numbers = await asyncio.gather(*(each.add() for each in counters for _ in range(10)))
            assert sorted(numbers) == list(range(6, 36))
            assert await counters[0].add(-30) == 5
            assert await counters[1].get() == counters[1].local == 5
            assert await counters[1].compare_and_set(5, 2**63 - 1)
            assert not await counters[2].compare_and_set(5, 0)
            with pytest.raises(ordercast.CommandFailed, match="64 bits"):
                await counters[2].add()
            assert await counters[0].get() == 2**63 - 1

    run(main())


@PROTOCOLS
def test_a_set_has_each_element_once(protocol: str, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        async with Cluster(3, seed=2, protocol=protocol, voters=voters) as cluster:
            sets = [await node.replicate(Set(tuple[str, int]), "set", timeout=30) for node in cluster.nodes]
            one, two, three = sets
            added = await asyncio.gather(*(each.add(("a", 1)) for each in sets))
            assert sorted(added) == [False, False, True]
            assert await two.add(("b", 2))
            assert await three.contains(("b", 2))
            assert not await three.contains(("b", 3))
            assert list(three.local) == [("a", 1), ("b", 2)]
            assert three.local & {("b", 2)} == {("b", 2)}
            assert await one.discard(("a", 1))
            assert not await two.discard(("a", 1))
            await one.sync()
            assert len(one.local) == 1

    run(main())


def test_what_is_local_stays_so_when_the_state_of_another_replica_is_taken() -> None:
    async def main() -> None:
        async with Cluster(2, seed=2, protocol="total") as cluster:
            numbers, seen = Map(int), Set(str)
            there = numbers.local, seen.local
            for node, each in zip(cluster.nodes, ((Map(int), Set(str)), (numbers, seen)), strict=True):
                await node.replicate(each[0], "map", timeout=30)
                await node.replicate(each[1], "set", timeout=30)
                await each[0].put("a", node.id)
                await each[1].add(str(node.id))
            assert dict(there[0]) == {"a": 2}
            assert list(there[1]) == ["1", "2"]

    run(main())


@PROTOCOLS
def test_a_barrier_releases_all_parties_at_once_and_again(protocol: str, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        async with Cluster(3, seed=3, protocol=protocol, voters=voters) as cluster:
            barriers = [await node.replicate(Barrier(3), "barrier", timeout=30) for node in cluster.nodes]
            loop = asyncio.get_running_loop()
            for _ in range(3):
                waiting = [asyncio.create_task(each.wait()) for each in barriers[:2]]
                await asyncio.sleep(5)
                assert not any(each.done() for each in waiting)
                began = loop.time()
                await barriers[2].wait()
                await asyncio.gather(*waiting)
                assert loop.time() - began < 1
            waiting = [asyncio.create_task(each.wait()) for each in barriers[:2]]
            await asyncio.sleep(1)
            waiting[0].cancel()
            await asyncio.sleep(1)
            waiting.append(asyncio.create_task(barriers[2].wait()))
            await asyncio.sleep(5)
            assert not any(each.done() for each in waiting[1:]), "who is cancelled has not arrived"
            await barriers[0].wait()
            await asyncio.gather(*waiting[1:])

    run(main())


@PROTOCOLS
def test_a_barrier_breaks_when_a_party_is_gone(protocol: str, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        async with Cluster(3, seed=4, protocol=protocol, voters=voters) as cluster:
            one, two, three = [
                await node.replicate(Barrier(3), "barrier", timeout=30) for node in cluster.nodes
            ]
            first, cut_off = asyncio.create_task(one.wait()), asyncio.create_task(three.wait())
            await asyncio.sleep(1)
            cluster.network.partition({3})
            with pytest.raises(BarrierBroken, match="node 3 was gone while others waited"):
                await first
            with pytest.raises(BarrierBroken, match="node 3"):
                await two.wait()
            cluster.network.heal()
            await cluster.together()
            with pytest.raises((BarrierBroken, ordercast.NoMajority, ordercast.Unanswered)):
                await cut_off
            await three.reset()
            await asyncio.gather(*(each.wait() for each in (one, two, three)))
            waits = asyncio.create_task(one.wait())
            await asyncio.sleep(1)
            await two.reset()
            with pytest.raises(BarrierBroken, match="it was reset"):
                await waits
            await asyncio.gather(*(each.wait() for each in (one, two, three)))
            assert not one.arrived
            with pytest.raises(ordercast.ConfigProblem, match="1 party or more"):
                Barrier(0)

    run(main())


def test_a_barrier_remembers_a_bounded_number_of_who_waits_in_vain() -> None:
    barrier = Barrier(10**9)
    for number in range(2 * MOST_REFUSED):
        Barrier.arrive.function(barrier, str(number))
        if number % 1_000 == 999:
            Barrier.reset.function(barrier)
    assert len(barrier.refused) == MOST_REFUSED
    assert str(2 * MOST_REFUSED - 1) in barrier.refused
