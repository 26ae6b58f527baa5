"""Locks and elections: fairness, leases through pauses, crashes and partitions, fencing tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import cast

import pytest

import ordercast
from ordercast import Held, Node
from ordercast.objects.holding import MARGIN, TTL_S, Holding
from ordercast.objects.leases import Lease, Leases
from ordercast.process_groups.views import Process
from ordercast.replicated.replicated import Turn
from ordercast.testing import Cluster, World, run, simulated

PROTOCOLS = pytest.mark.parametrize(
    ("protocol", "voters"), [("totem", (1, 2, 3)), ("total", ()), ("cm", ())], ids=["totem", "total", "cm"]
)


class Watched:
    """Who believes to hold a lock, and that no two do at once."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.who: list[int] = []
        self._held: Held | None = None

    def take(self, node: Node, held: Held) -> None:
        """A node has it now."""
        assert self._held is None or self._held.lost.is_set(), "nobody holds it who believes so yet"
        assert not self.tokens or held.token > self.tokens[-1]
        self._held = held
        self.tokens.append(held.token)
        self.who.append(node.id)


async def with_locks(cluster: Cluster) -> None:
    """All nodes keep the state of locks."""
    await asyncio.gather(*(node.lock("lock").holder() for node in cluster.nodes))


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():
        await asyncio.sleep(0.05)


@PROTOCOLS
def test_tasks_of_all_nodes_hold_it_in_the_order_in_which_they_asked(
    protocol: str, voters: tuple[int, ...]
) -> None:
    async def main() -> None:
        async with Cluster(3, seed=1, protocol=protocol, voters=voters) as cluster:
            await with_locks(cluster)
            watched = Watched()

            async def work(node: Node) -> None:
                lock = node.lock("lock")
                async with lock as held:
                    watched.take(node, held)
                    await asyncio.sleep(3 * TTL_S)  # it is renewed meanwhile
                    assert not held.lost.is_set()
                assert held.lost.is_set()

            tasks = []
            for number in (0, 1, 2, 1, 0):
                tasks.append(asyncio.create_task(work(cluster.nodes[number])))
                await asyncio.sleep(1)
            assert await cluster.nodes[2].lock("lock").try_acquire() is None
            other = await cluster.nodes[2].lock("another").try_acquire()
            assert other is not None
            await other.release()
            await asyncio.gather(*tasks)
            assert watched.who == [1, 2, 3, 2, 1]
            assert await cluster.nodes[2].lock("lock").holder() is None

    run(main())


@PROTOCOLS
def test_who_is_cancelled_or_gone_is_skipped(protocol: str, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        async with Cluster(3, seed=2, protocol=protocol, voters=voters) as cluster:
            await with_locks(cluster)
            one, two, three = cluster.nodes
            held = await one.lock("lock").acquire()
            cancelled = asyncio.create_task(two.lock("lock").acquire())
            await asyncio.sleep(0.5)
            gone = asyncio.create_task(three.lock("lock").acquire())
            await asyncio.sleep(0.5)
            last = asyncio.create_task(two.lock("lock").acquire())
            await asyncio.sleep(0.5)
            cancelled.cancel()
            cluster.network.partition({3})
            await cluster.together(1, 2)
            began = asyncio.get_running_loop().time()
            await held.release()
            async with await last as later:
                assert later.token > held.token
                assert asyncio.get_running_loop().time() - began < TTL_S / 2
            with pytest.raises((ordercast.Unanswered, ordercast.NoMajority)):
                await gone

    run(main())


@PROTOCOLS
def test_who_is_cut_off_knows_before_others_have_it(protocol: str, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        async with Cluster(3, seed=3, protocol=protocol, voters=voters) as cluster:
            await with_locks(cluster)
            watched = Watched()
            held = await cluster.nodes[0].lock("lock").acquire()
            watched.take(cluster.nodes[0], held)
            waiting = asyncio.create_task(cluster.nodes[1].lock("lock").acquire())
            await asyncio.sleep(1)
            cluster.network.partition({1})
            began = asyncio.get_running_loop().time()
            await held.lost.wait()
            assert asyncio.get_running_loop().time() - began < TTL_S
            async with await waiting as later:
                watched.take(cluster.nodes[1], later)
                assert asyncio.get_running_loop().time() - began < 1.5 * TTL_S
                cluster.network.heal()
                await cluster.together()
                await held.release()
                holder = await cluster.nodes[0].lock("lock").holder()
                assert holder is not None
                assert (holder.process.node, holder.token) == (2, later.token), (
                    "an earlier one releases nothing"
                )

    run(main())


@PROTOCOLS
def test_a_node_that_dies_holds_it_until_its_lease_has_run_out(
    protocol: str, voters: tuple[int, ...]
) -> None:
    async def main() -> None:
        async with Cluster(3, seed=4, protocol=protocol, voters=voters) as cluster:
            await with_locks(cluster)
            first = await cluster.nodes[0].lock("lock", ttl=2).acquire()
            cluster.network.partition({1})
            began = asyncio.get_running_loop().time()
            async with cluster.nodes[1].lock("lock") as held:
                passed = asyncio.get_running_loop().time() - began
                assert held.token > first.token
                assert 2 * (1 - 1 / 4) - 0.1 <= passed < 4
            assert first.lost.is_set()

    run(main())


def test_a_node_that_stops_gives_back_what_it_holds() -> None:
    async def main() -> None:
        async with Cluster(3, seed=5, protocol="total") as cluster:
            await with_locks(cluster)
            first = await cluster.nodes[0].lock("lock", ttl=1000).acquire()
            waiting = asyncio.create_task(cluster.nodes[1].lock("lock").acquire())
            await asyncio.sleep(1)
            await cluster.nodes[0].stop()
            began = asyncio.get_running_loop().time()
            async with await waiting as held:
                assert held.token > first.token
                assert asyncio.get_running_loop().time() - began < TTL_S
            assert first.lost.is_set()
            with pytest.raises(ordercast.NodeClosed):
                cluster.nodes[0].lock("lock")

    run(main())


def test_who_was_stopped_for_long_believes_nothing() -> None:
    """As after SIGSTOP: the clock has gone on, and not even a timer was called."""

    async def main() -> None:
        async with Cluster(1, protocol="total") as cluster:
            held = await cluster.nodes[0].lock("lock").acquire()
            loop = asyncio.get_running_loop()
            time = loop.time
            assert not held.lost.is_set()
            held.lost._time = lambda: time() + TTL_S * (1 - MARGIN)
            assert held.lost.is_set()
            await held.lost.wait()
            await held.release()

    run(main())


@PROTOCOLS
def test_a_holder_that_is_stopped_knows_when_it_wakes(protocol: str, voters: tuple[int, ...]) -> None:
    """It is out of the primary partition long before its lease has run out: nobody has it until then."""

    @simulated(nodes=3, seeds=range(1), faults=False, protocol=protocol)
    async def stopped(world: World) -> None:
        watched = Watched()

        async def work(node: Node) -> None:
            if node.id > 1:
                await asyncio.sleep(1)
            async with node.lock("lock", ttl=6) as held:
                watched.take(node, held)
                await (held.lost.wait() if node.id == 1 else asyncio.sleep(1))
                assert node.id > 1 or world.now == pytest.approx(10), "it was stopped when its timer was due"

        world.run(work)
        world.at(2, world.pause, 1)
        world.at(10, world.resume, 1)
        await asyncio.sleep(14)
        assert watched.who in ([1, 2, 3], [1, 3, 2])

    stopped()


def test_a_holder_counts_from_when_it_asked() -> None:
    @simulated(nodes=3, seeds=range(1), faults=False, protocol="total")
    async def slow(world: World) -> None:
        times: list[float] = []

        async def work(node: Node) -> None:
            lock = node.lock("lock", ttl=4)
            await lock.holder()
            if node.id == 1:
                world.slow(1, 0.1)
                await (await lock.acquire()).release()  # from here on it asks for nothing but the lease
                times.append(world.now)
                held = await lock.acquire()
                times.append(world.now)
                held._renewing.cancel()
                await held.lost.wait()
                times.append(world.now)

        world.run(work)
        await asyncio.sleep(20)
        asked, answered, lost = times
        assert answered - asked > 0.2
        assert lost - asked == pytest.approx(4 * (1 - MARGIN))

    slow()


def test_a_block_ends_with_its_own_lease_though_another_task_has_one() -> None:
    async def main() -> None:
        async with Cluster(1, protocol="total") as cluster:
            lock = cluster.nodes[0].lock("lock", ttl=1)
            inside = asyncio.Event()

            async def first() -> None:
                async with lock as held:
                    held._renewing.cancel()
                    await inside.wait()
                    assert held.lost.is_set()

            task = asyncio.create_task(first())
            await asyncio.sleep(0.1)
            async with lock as held:
                inside.set()
                await task
                await asyncio.sleep(3)
                assert not held.lost.is_set()
            with pytest.raises(ordercast.ConfigProblem, match="ttl is 0"):
                cluster.nodes[0].lock("lock", ttl=0)

    run(main())


def test_a_block_may_be_left_in_another_task() -> None:
    """As with fixtures of tests, whose end is a task of its own."""

    async def main() -> None:
        async with Cluster(1, seed=1, protocol="total") as cluster:
            lock, stack = cluster.nodes[0].lock("lock"), AsyncExitStack()
            held = await asyncio.create_task(stack.enter_async_context(lock))
            assert await lock.try_acquire() is None
            await asyncio.create_task(stack.aclose())
            assert held.lost.is_set()
            assert await lock.try_acquire() is not None

    run(main())


@PROTOCOLS
def test_all_know_who_leads(protocol: str, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        async with Cluster(3, seed=6, protocol=protocol, voters=voters) as cluster:
            seen: list[str | None] = []

            async def follow() -> None:
                async for leader in cluster.nodes[2].election("leader").watch():
                    seen.append(None if leader is None else leader.says)

            following = asyncio.create_task(follow())
            elections = [node.election("leader", says=f"at {node.id}") for node in cluster.nodes[:2]]
            assert await elections[0].leader() is None
            async with elections[0] as first:
                second = asyncio.create_task(elections[1].acquire())
                await asyncio.sleep(3 * TTL_S)
                leader = await cluster.nodes[2].election("leader").leader()
                assert leader is not None
                assert (leader.process.node, leader.token, leader.says) == (1, first.token, "at 1")
            async with await second:
                await cluster.nodes[2].election("leader").leader()
                local = cluster.nodes[2].election("leader").local_leader
                assert local is not None
                assert local.says == "at 2"
            await asyncio.sleep(1)
            assert seen == [None, "at 1", "at 2", None]
            following.cancel()

    run(main())


def test_two_nodes_within_one_session_are_two_all_the_same() -> None:
    async def main() -> None:
        async with Cluster(2, seed=7, protocol="total") as cluster:
            waiting: list[asyncio.Task[Held]] = []
            for node in cluster.nodes:
                with ordercast.Session("the same work"):
                    waiting.append(asyncio.create_task(node.lock("lock").acquire()))
            await asyncio.sleep(1)
            assert sum(each.done() for each in waiting) == 1
            first, second = sorted(waiting, key=lambda each: not each.done())
            await first.result().release()
            assert (await second).token > first.result().token
            await second.result().release()

    run(main())


def test_tokens_rise_though_all_nodes_were_started_anew() -> None:
    tokens: list[int] = []
    for hour in (0, 1):
        table = Leases()
        table._turn = Turn(hour * 3600 * 1_000_000 + 10**15, 2)
        Leases.enter.function(table)
        tokens.append(Leases.acquire.function(table, "a", "1.1", 1, 10, False, ""))
    assert tokens[0] < tokens[1]


def test_a_lease_ends_only_for_who_has_seen_its_last_beat() -> None:
    table = Leases()
    assert Leases.acquire.function(table, "a", "1.1", 1, 10, True, "") == table.position
    assert Leases.acquire.function(table, "a", "2.1", 1, 10, True, "") == 0
    assert Leases.renew.function(table, "a", "1.1", 2)
    Leases.expire.function(table, "a", "1.1", 1)
    assert table.held["a"].ticket == "1.1"
    Leases.expire.function(table, "a", "1.1", 2)
    assert table.held["a"].ticket == "2.1"
    assert not Leases.renew.function(table, "a", "1.1", 3)
    Leases.release.function(table, "a", "1.1")
    assert isinstance(table.held["a"], Lease)
    Leases.release.function(table, "a", "2.1")
    assert not table.held
    assert not table.waiting


def test_a_lease_that_is_given_when_the_time_of_the_one_before_is_over_is_not_ended() -> None:
    """All nodes notice at about the same time that a lease is over: the end that another one asked for, and
    the lease that follows, may be told of in the same turn of the event loop."""

    class Told:
        """Is asked that leases end."""

        def __init__(self) -> None:
            self.ended: list[str] = []

        async def expire(self, name: str, ticket: str, beat: int) -> None:
            self.ended.append(ticket)

    async def main() -> None:
        told = Told()
        leases = cast(Leases, told)
        loop = asyncio.get_running_loop()
        never: asyncio.Future[Leases] = loop.create_future()
        holding = Holding(lambda target, name: never)

        def see(ticket: str, beat: int) -> None:
            holding._see(leases, "a", Lease(ticket, Process(1, 0, 0), beat, 1_000_000, "", token=1))

        see("first", 1)
        loop.call_at(loop.time() + 1.0, see, "second", 1)
        await asyncio.sleep(1.0)
        for beat in range(2, 40):
            await asyncio.sleep(0.25)
            see("second", beat)
        assert "second" not in told.ended
        await asyncio.sleep(1.5)
        assert "second" in told.ended, "it is not renewed any more"
        await holding.close()

    run(main())
