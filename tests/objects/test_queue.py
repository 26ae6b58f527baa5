"""The replicated queue: order, limits, takers that wait, die and are cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ordercast
from ordercast import NotInHand, Process, Queue, QueueFull
from ordercast.objects.queue import Element
from ordercast.replicated.replicated import Turn
from ordercast.testing import Cluster, run

PROTOCOLS = pytest.mark.parametrize(
    ("protocol", "voters"), [("totem", (1, 2, 3)), ("total", ()), ("cm", ())], ids=["totem", "total", "cm"]
)


async def queues_of(cluster: Cluster, limit: int = 100) -> list[Queue[int]]:
    return [await node.replicate(Queue(int, limit=limit), "queue", timeout=30) for node in cluster.nodes]


@PROTOCOLS
def test_elements_are_taken_once_in_their_order(protocol: str, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        async with Cluster(3, seed=1, protocol=protocol, voters=voters) as cluster:
            one, two, three = await queues_of(cluster, limit=4)
            assert await one.take_now() is None
            for number in range(4):
                await one.put(number)
            with pytest.raises(QueueFull, match="its limit"):
                await two.put(4)
            with pytest.raises(TypeError, match="not of the type"):
                await two.put("four")  # type: ignore[arg-type]
            assert [await each.take_now() for each in (two, three, two)] == [0, 1, 2]
            assert await three.take() == 3
            assert len(three) == 0

    run(main())


@PROTOCOLS
def test_takers_wait_in_the_order_in_which_they_asked(protocol: str, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        async with Cluster(3, seed=2, protocol=protocol, voters=voters) as cluster:
            one, two, three = await queues_of(cluster)
            takers: list[asyncio.Task[int]] = []
            for queue in (two, three, two, one):
                takers.append(asyncio.create_task(queue.take()))
                await asyncio.sleep(1)
            await asyncio.sleep(10)
            takers[1].cancel()
            await asyncio.sleep(1)
            for number in range(4):
                await one.put(number)
            assert [await each for each in (takers[0], takers[2], takers[3])] == [0, 1, 2]
            assert await three.take_now() == 3
            await one.sync()
            assert not one.waiting
            assert not one.taken

    run(main())


@PROTOCOLS
def test_what_a_taker_had_in_hand_comes_back(protocol: str, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        async with Cluster(3, seed=3, protocol=protocol, voters=voters) as cluster:
            one, two, three = await queues_of(cluster)
            for number in range(5):
                await one.put(number)
            async with two.in_hand() as element:
                assert element == 0
            failing = two.in_hand()
            assert await failing.__aenter__() == 1
            assert await one.take_now() == 2
            failure = RuntimeError("it fails")
            assert not await failing.__aexit__(RuntimeError, failure, None)
            await asyncio.sleep(1)
            cut_off = three.in_hand()
            assert await cut_off.__aenter__() == 1
            assert await one.take_now() == 3
            cluster.network.partition({3})
            await cluster.together(1, 2)
            assert await one.take() == 1, "it comes back to its place"
            cluster.network.heal()
            await cluster.together()
            with pytest.raises(NotInHand, match="went back"):
                await cut_off.__aexit__(None, None, None)
            assert await three.take_now() == 4
            assert await three.take_now() is None
            await one.sync()
            assert not one.taken

    run(main())


def test_who_waits_in_a_minority_is_told() -> None:
    async def main() -> None:
        async with Cluster(3, seed=4, protocol="total") as cluster:
            _one, two, three = await queues_of(cluster)
            waiting = asyncio.create_task(three.take())
            await asyncio.sleep(1)
            cluster.network.partition({3})
            with pytest.raises((ordercast.NoMajority, ordercast.Unanswered)):
                await waiting
            await two.put(1)
            assert await two.take() == 1

    run(main())


# --- the state by itself ------------------------------------------------------------------------

WHO = st.integers(1, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), WHO, st.just(0)),
        st.tuples(st.just("pop"), WHO, st.just(0)),
        st.tuples(st.just("reserve"), WHO, st.integers(1, 4)),
        st.tuples(st.just("finish"), WHO, st.integers(1, 4)),
        st.tuples(st.just("give back"), WHO, st.integers(1, 4)),
        st.tuples(st.just("left"), WHO, st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_every_element_is_in_one_place_until_it_is_done_with(steps: list[tuple[str, int, int]]) -> None:
    queue: Any = Queue(int, limit=10)
    inside = set[int]()
    for position, (kind, who, number) in enumerate(steps, 1):
        queue._turn = Turn(0, position, Process(who, 1, 1))
        ticket = f"{who}.{number}"
        has = queue.taken.get(ticket)
        if kind == "put" and len(queue.elements) < 10:
            Queue.append.function(queue, b"%d" % position)
            inside.add(position)
        elif kind == "pop":
            first = min((each.position for each in queue.elements), default=None)
            assert Queue.pop.function(queue) == (None if first is None else b"%d" % first)
            inside.discard(first or 0)
        elif kind == "reserve":
            first = min((each.position for each in queue.elements), default=None)
            found = Queue.reserve.function(queue, ticket)
            expected = has.element if has else None if first is None else Element(first, b"%d" % first)
            assert found == expected
        elif kind == "finish":
            assert Queue.finish.function(queue, ticket) == (has is not None)
            if has is not None and has.element is not None:
                inside.discard(has.element.position)
        elif kind == "give back":
            Queue.give_back.function(queue, ticket)
        elif kind == "left":
            queue.left(Process(who, 1, 1))
            assert not any(
                each.process.node == who for each in (*queue.taken.values(), *queue.waiting.values())
            )
        waiting = [each.position for each in queue.elements]
        in_hand: list[Any] = [each.element.position for each in queue.taken.values() if each.element]
        assert waiting == sorted(waiting)
        assert sorted([*waiting, *in_hand]) == sorted(inside)
        assert not (queue.waiting and queue.elements), "nobody waits while there is something"
        assert not queue.waiting.keys() & queue.taken.keys()
