"""Objects whose commands the primary alone carries out: what they change is taken over by all (004 §4.3)."""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple

import msgspec
import pytest
from accounts import DEPOSITS, Accounts, tellers

import ordercast
from hunts import rounds
from ordercast.core.identity import Guarantee
from ordercast.replicated.command import listed
from ordercast.replicated.notes import Calls, Run, written
from ordercast.testing import World, simulated


class Drawn(NamedTuple):
    """Somebody drew a number."""

    who: str
    number: float


class Lottery(ordercast.Replicated):
    """Does what no command may do that every replica carries out: draws by chance, iterates over a set."""

    numbers: dict[str, float]
    names: set[str]
    first: str
    log: list[str]
    deep: dict[str, list[int]]

    def __init__(self) -> None:
        self.numbers = {}
        self.names = set()
        self.first = ""
        self.log = []
        self.deep = {}

    @ordercast.command
    def draw(self, who: str) -> float:
        self.numbers[who] = random.random()
        self.names.add(who)
        self.first = next(iter(self.names))
        self.log.append(who)
        self.deep.setdefault(who[:1], []).append(len(self.log))
        self.tell(Drawn(who, self.numbers[who]))
        return self.numbers[who]

    @ordercast.command
    def forget(self, who: str) -> bool:
        self.names.discard(who)
        return self.numbers.pop(who, None) is not None

    @ordercast.command
    def fail(self, who: str) -> None:
        self.numbers[who] = -1
        raise ordercast.CommandFailed("no", who)

    @ordercast.command
    def spoil(self) -> None:
        self.numbers["spoiled"] = "a text"  # type: ignore[assignment]

    @ordercast.command
    def show(self) -> None:
        self.numbers["shown"] = 0
        self.tell(object())

    def state(self) -> object:
        return list(self.numbers.items()), self.names, self.first, self.log, self.deep


async def lotteries(world: World, count: int) -> list[Lottery]:
    async def opened(node: ordercast.Node) -> Lottery:
        return await node.replicate(Lottery(), "lottery", run="primary")

    service = world.service(opened)
    await world.ready()
    while len(service.there) < count:
        await asyncio.sleep(0.01)
    return [service.there[node] for node in world.ids]


@pytest.mark.parametrize("protocol", ["primary-backup", "total", "cm"])
def test_commands_need_not_be_deterministic(protocol: str) -> None:
    @simulated(nodes=3, seeds=range(1), protocol=protocol, faults=False)
    async def run(world: World) -> None:
        there = await lotteries(world, 3)
        watches = [ordercast.watch(each) for each in there]
        drawn = await asyncio.gather(
            *(each.draw(f"{at}.{i}") for at, each in enumerate(there) for i in range(5))
        )
        assert len(set(drawn)) == 15
        assert await there[1].forget("0.0")
        assert not await there[2].forget("0.0")
        with pytest.raises(ordercast.CommandFailed, match="no"):
            await there[0].fail("x")
        for each in there:
            await each.sync()
        assert there[0].state() == there[1].state() == there[2].state()
        assert there[0].numbers["x"] == -1, "what was changed before it failed stays changed"
        told = [[await anext(watch) for _ in range(15)] for watch in watches]
        assert told[0] == told[1] == told[2]
        assert all(type(event) is Drawn for event in told[0])
        assert sorted(event.number for event in told[0]) == sorted(drawn)

    run()


def test_what_cannot_travel_fails_and_changes_nothing() -> None:
    @simulated(nodes=2, seeds=range(1), protocol="primary-backup", faults=False)
    async def run(world: World) -> None:
        there = await lotteries(world, 2)
        with pytest.raises(ordercast.CommandFailed, match="cannot be told"):
            await there[1].show()
        with pytest.raises(ordercast.CommandFailed, match="cannot be sent"):
            await there[0].spoil()
        assert await there[1].draw("a")
        await there[0].sync()
        assert list(there[0].numbers) == ["a"]
        with pytest.raises(ordercast.CommandFailed, match="fit into a message"):
            await there[0].draw("much" * 2_000_000)
        assert list(there[0].numbers) == ["a"]

    run()


def test_a_request_that_says_nothing_keeps_nobody_waiting() -> None:
    """Anybody may have sent it."""

    @simulated(nodes=2, seeds=range(1), protocol="primary-backup", faults=False)
    async def run(world: World) -> None:
        there = await lotteries(world, 2)
        [replica] = world.replicas_of(2)
        for runs in ([], [Run("draw(who)", msgspec.Raw(b"\xc0"))], [Run("nothing()", listed([b"\x90"]))]):
            nothing = written(Calls(7, 1, 0, 0, 0, runs))
            replica._joined.try_send(replica._posting.groups, (nothing,), Guarantee.SAFE)
            assert await there[1].draw("a")
        await there[0].sync()
        for node in world.ids:
            [replica] = world.replicas_of(node)
            assert replica.machine._requests == {}  # type: ignore[attr-defined]

    run()


def test_who_comes_with_another_way_to_run_commands_is_refused() -> None:
    @simulated(nodes=2, seeds=range(1), protocol="total", faults=False)
    async def run(world: World) -> None:
        async def opened(node: ordercast.Node) -> Lottery:
            return await node.replicate(Lottery(), "lottery", run="primary")

        async def otherwise(node: ordercast.Node) -> None:
            await asyncio.sleep(0.5 * node.id)
            if node.id == 2:
                with pytest.raises(ordercast.ConfigProblem, match="the primary alone carries out"):
                    await node.replicate(Lottery(), "elsewhere")
                refused.append(node.id)
            else:
                await node.replicate(Lottery(), "elsewhere", run="primary")

        refused: list[int] = []
        world.run(otherwise)
        await world.ready()
        while not refused:
            await asyncio.sleep(0.01)

    run()


@pytest.mark.parametrize("wrong", [{"run": "anywhere"}, {"run": "primary", "partition": "merge"}])
def test_ways_that_there_are_not(wrong: dict[str, str]) -> None:
    @simulated(nodes=1, seeds=range(1), protocol="totem", voters=None, faults=False)
    async def run(world: World) -> None:
        async def refused(node: ordercast.Node) -> None:
            with pytest.raises(ordercast.ConfigProblem):
                await node.replicate(Lottery(), "lottery", **wrong)  # type: ignore[arg-type]
            done.append(node.id)

        done: list[int] = []
        world.run(refused)
        while not done:
            await asyncio.sleep(0.01)

    run()


@pytest.mark.campaign
@pytest.mark.parametrize("protocol", ["primary-backup", "total"])
def test_what_was_answered_stays_and_happened_once_whatever_fails(protocol: str) -> None:
    """Whenever the primary fails: before its update, while it is sent, behind it, before the answer."""

    @simulated(nodes=3, seeds=range(rounds(4, 500)), protocol=protocol)
    async def deposits(world: World) -> None:
        async def opened(node: ordercast.Node) -> Accounts:
            return await node.replicate(Accounts(), "accounts", run="primary")

        tellers(world, world.service(opened, model=DEPOSITS))

    deposits()


async def accounts_of(world: World) -> dict[int, Accounts]:
    async def opened(node: ordercast.Node) -> Accounts:
        return await node.replicate(Accounts(), "accounts", run="primary")

    service = world.service(opened)
    await world.ready()
    while len(service.there) < len(world.ids):
        await asyncio.sleep(0.01)
    return dict(service.there)


@pytest.mark.parametrize("after_us", range(0, 1_500, 100))
def test_the_primary_fails_before_during_and_after_the_update_and_before_the_answer(after_us: int) -> None:
    """004 §4.3.1: all or none, and a request that is retried runs once. A hop takes about 100 µs here."""

    @simulated(nodes=3, seeds=range(1), protocol="primary-backup", faults=False)
    async def run(world: World) -> None:
        there = await accounts_of(world)
        world.at(world.now + after_us / 1e6, world.crash, 1)
        assert await there[3].deposit("a", 5) == 5
        await there[2].sync()
        assert there[2].balance == there[3].balance == {"a": 5}

    run()


def test_a_primary_that_is_slow_is_passed_by_and_stays_a_replica() -> None:
    """004 §4.3.5: another one takes its place, and keeps it."""

    @simulated(nodes=3, seeds=range(1), protocol="primary-backup", faults=False)
    async def run(world: World) -> None:
        there = await accounts_of(world)
        await there[2].deposit("a", 1)
        machines = {node: world.replicas_of(node)[0].machine for node in world.ids}
        assert [node for node, machine in machines.items() if machine.is_primary] == [1]  # type: ignore[attr-defined]
        world.pause(1)
        begun = world.now
        assert await there[3].deposit("a", 1) == 2
        assert world.now - begun < 1.5
        world.resume(1)
        await there[1].sync()
        assert there[1].balance == {"a": 2}
        assert sum(machine.is_primary for machine in machines.values()) == 1  # type: ignore[attr-defined]
        assert not machines[1].is_primary  # type: ignore[attr-defined]

    run()
