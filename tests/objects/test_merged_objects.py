"""Maps, sets and counters that live in every partition, and are merged when these meet again."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

import ordercast
from hunts import rounds
from ordercast import Counter, Map, Set
from ordercast.testing import Client, Cluster, World, run, simulated

NETWORK = ("partition", "pause", "slow", "lose")


async def apart(cluster: Cluster) -> None:
    """The third node is cut off from the others."""
    cluster.network.partition({1, 2}, {3})
    await asyncio.gather(cluster.together(1, 2), cluster.together(3))


async def together(cluster: Cluster, *objects: ordercast.Replicated) -> None:
    cluster.network.heal()
    await cluster.together()
    await asyncio.gather(*(each.sync() for each in objects))


def test_a_set_has_what_any_partition_added_and_none_took_out() -> None:
    async def main() -> None:
        async with Cluster(3, seed=1) as cluster:
            sets = [await each.replicate(Set(str), "set", partition="merge") for each in cluster.nodes]
            one, _, three = sets
            for each in ("both", "out here", "out there", "out and in"):
                await one.add(each)
            await three.sync()
            await apart(cluster)
            await one.add("here")
            await three.add("there")
            await one.discard("out here")
            await three.discard("out there")
            await one.discard("out and in")
            await three.discard("out and in")
            await three.add("out and in")
            await together(cluster, *sets)
            expected = {"both", "out and in", "here", "there"}
            assert [set(each.local) for each in sets] == [expected] * 3
            assert one.elements == three.elements

    run(main())


def test_a_counter_counts_each_addition_once() -> None:
    async def main() -> None:
        async with Cluster(3, seed=2) as cluster:
            counters = [await each.replicate(Counter(7), "n", partition="merge") for each in cluster.nodes]
            one, two, three = counters
            await asyncio.gather(one.add(10), two.add(20), three.add(30))
            for _ in range(3):
                await apart(cluster)
                await asyncio.gather(one.add(100), two.add(-200), three.add(300), three.add(4))
                await together(cluster, *counters)
            assert [each.local for each in counters] == [67 + 3 * 204] * 3

    run(main())


def test_a_map_has_the_latest_value_and_no_revision_twice() -> None:
    async def main() -> None:
        async with Cluster(3, seed=3) as cluster:
            maps = [await each.replicate(Map(int), "map", partition="merge") for each in cluster.nodes]
            one, _, three = maps
            for key in ("same", "put", "deleted", "deleted and put"):
                await one.put(key, 0)
            await three.sync()
            same = one.local.entry("same")
            await apart(cluster)
            await one.put("put", 1)
            await one.put("here", 1, ttl=30)
            await asyncio.sleep(0.1)
            await three.put("put", 2)
            await one.delete("deleted")
            await one.delete("deleted and put")
            last = await three.put("deleted and put", 3)
            await together(cluster, *maps)
            expected = {"same": 0, "put": 2, "deleted and put": 3, "here": 1}
            assert [dict(each.local) for each in maps] == [expected] * 3
            assert one.local.entry("same") == same
            merged = one.local.entry("put")
            assert merged is not None
            assert merged.revision > last, "who has read another value with that revision notices"
            with pytest.raises(ordercast.Conflict):
                await three.put("deleted and put", 4, revision=last)
            await asyncio.sleep(40)
            await asyncio.gather(*(each.sync() for each in maps))
            assert ["here" in each.local for each in maps] == [False] * 3
            assert one.entries == three.entries

    run(main())


@pytest.mark.campaign
def test_nothing_answered_is_lost_whatever_the_network_does() -> None:
    @simulated(
        nodes=4, seeds=range(rounds(12, 1000)), voters=(), faults={"partition", "pause", "slow", "lose"}
    )
    async def adding(world: World) -> None:
        async def open_counter(node: ordercast.Node) -> Counter:
            return await node.replicate(Counter(), "n", partition="merge")

        async def open_set(node: ordercast.Node) -> Set[int]:
            return await node.replicate(Set(int), "set", partition="merge")

        async def open_map(node: ordercast.Node) -> Map[int]:
            return await node.replicate(Map(int), "map", partition="merge")

        counter, numbers, entries = (
            world.service(open_counter),
            world.service(open_set),
            world.service(open_map),
        )
        answered, unanswered, added, put = 0, 0, set[int](), set[int]()

        async def writer(client: Client) -> None:
            nonlocal answered, unanswered
            for number in range(20):
                element = int(client.name.split()[-1]) * 1000 + number
                with suppress(ordercast.Unanswered):
                    unanswered += 1
                    await client.call(counter, "add", 1)
                    answered += 1
                    unanswered -= 1
                    await client.call(numbers, "add", element)
                    added.add(element)
                    await client.call(entries, "put", f"{element}", element)
                    put.add(element)
                if client.random.random() < 0.3:  # with or without an answer, it may be gone
                    added.discard(element)
                    put.discard(element)
                    with suppress(ordercast.Unanswered):
                        await client.call(numbers, "discard", element)
                        await client.call(entries, "delete", f"{element}")
                await asyncio.sleep(client.random.random() * client.random.choice((0.5, 0.02)))

        for _ in range(3):
            world.client(writer)
        await asyncio.wait([*world.clients.values()])
        await world.calm()
        await asyncio.gather(*(each.sync() for each in (*counter.there.values(), *numbers.there.values())))
        await asyncio.gather(*(each.sync() for each in entries.there.values()))
        for here in counter.there.values():
            assert answered <= here.local <= answered + unanswered
        for there in numbers.there.values():
            assert added <= set(there.local)
        for each in entries.there.values():
            assert {f"{element}" for element in put} <= each.local.keys()

    adding()
