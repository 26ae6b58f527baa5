"""Groups whose nodes run different versions of a class, as while they are upgraded one after the other."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from accounts import DEPOSITS, synced

import ordercast
from hunts import rounds
from ordercast.testing import Client, Cluster, World, run, simulated

VOTERS = (1, 2, 3)
PROTOCOLS = pytest.mark.parametrize("protocol", ["totem", "total"])


class First(ordercast.Replicated):
    """The first version of a bank."""

    balance: dict[str, int]

    def __init__(self) -> None:
        self.balance = {}

    @ordercast.command
    def deposit(self, name: str, amount: int) -> int:
        """Put money in; how much there is then."""
        self.balance[name] = self.balance.get(name, 0) + amount
        return self.balance[name]

    @ordercast.command
    def rename(self, name: str, to: str) -> None:
        """Give an account another name."""
        self.balance[to] = self.balance.pop(name)


class Second(ordercast.Replicated):
    """The second one counts deposits, has limits, and renames in another way."""

    balance: dict[str, int]
    count: int
    limits: dict[str, int]

    def __init__(self) -> None:
        self.balance = {}
        self.count = 100
        self.limits = {}

    @ordercast.command
    def deposit(self, name: str, amount: int) -> int:
        """Put money in; how much there is then."""
        self.count += 1
        self.balance[name] = self.balance.get(name, 0) + amount
        return self.balance[name]

    @ordercast.command
    def limit(self, name: str, most: int) -> int:
        """Set the limit of an account."""
        self.limits[name] = most
        return self.count

    @ordercast.command
    def rename(self, name: str, to: str, why: str) -> None:
        """Give an account another name."""
        self.balance[to] = self.balance.pop(name)


class Bank:
    """A bank at the nodes of a world, each with its version of the class."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._versions: dict[int, type[First | Second]] = dict.fromkeys(world.ids, First)
        self.refused: list[ordercast.ConfigProblem] = []
        self.service = world.service(self._open, model=DEPOSITS)

    async def _open(self, node: ordercast.Node) -> First | Second:
        try:
            return await node.replicate(self._versions[node.id](), "bank")
        except ordercast.ConfigProblem as problem:
            self.refused.append(problem)
            self._versions[node.id] = Second  # an operator reads it, and upgrades the node
            raise

    async def change(self, node: int, version: type[First | Second]) -> None:
        """A node ends, and comes back with that version."""
        await self._world.ready()
        self._world.crash(node)
        self._versions[node] = version
        await asyncio.sleep(0.2)
        self._world.restart(node)
        await self._world.ready()

    def at(self, node: int) -> Any:
        """The object at a node."""
        return self.service.there[node]

    async def ask(self, node: int, method: str, *args: Any) -> Any:
        """Call a method of it."""
        process = self._world.process(node)
        assert process is not None

        async def asked() -> Any:
            return await getattr(self.at(node), method)(*args)

        return await process.ask(asked)


async def upgrade(world: World) -> None:
    """A group is upgraded under load, with one node that goes back meanwhile; nobody goes back afterwards."""
    bank = Bank(world)
    await world.ready()
    over = False

    async def teller(client: Client) -> None:
        while not over:
            with suppress(ordercast.Unanswered):
                await client.call(bank.service, "deposit", client.random.choice("ab"), 1)
            await asyncio.sleep(client.random.random() * 0.2)

    for _ in range(2):
        world.client(teller)
    one, two, three = world.ids
    for node, version in ((one, Second), (two, Second), (one, First), (three, Second)):
        await bank.change(node, version)
        mixed = next(each for each in world.ids if isinstance(bank.at(each), Second))
        with pytest.raises(ordercast.CommandUnknown, match=r"limit\(name,most\)"):
            await bank.ask(mixed, "limit", "a", 5)
        with pytest.raises(ordercast.CommandUnknown):
            await bank.ask(mixed, "rename", "a", "c", "nobody knows both")
        assert (bank.at(mixed).count, bank.at(mixed).limits) == (100, {}), "as in the beginning"
    await bank.change(one, Second)
    assert await bank.ask(one, "limit", "a", 5) >= 100
    assert not bank.refused
    await bank.change(three, First)
    assert len(bank.refused) == 1
    assert "lacks the field" in str(bank.refused[0])
    assert "upgrade this node" in str(bank.refused[0])
    over = True
    for client in [*world.clients.values()]:
        await client
    await asyncio.gather(*(bank.ask(node, "sync") for node in world.ids))
    states = [(each.balance, each.count, each.limits) for each in map(bank.at, world.ids)]
    assert states[0] == states[1] == states[2]
    assert states[0][1] > 100
    assert states[0][2] == {"a": 5}


@pytest.mark.campaign
@PROTOCOLS
def test_a_group_is_upgraded_under_load(protocol: str) -> None:
    @simulated(nodes=3, seeds=range(rounds(6, 500)), protocol=protocol, faults={"slow", "lose"})
    async def upgrading(world: World) -> None:
        await upgrade(world)

    upgrading()


@PROTOCOLS
def test_what_an_earlier_version_has_on_disk_is_read_by_a_later_one(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        cluster = Cluster(3, seed=3, protocol=protocol, voters=VOTERS)

        async def begin(version: type[First | Second]) -> list[Any]:
            cluster.nodes = [cluster.node(id) for id in VOTERS]
            await asyncio.gather(*(node.start() for node in cluster.nodes))
            opening = (
                node.replicate(version(), "bank", durable=Path("objects"), timeout=60)
                for node in cluster.nodes
            )
            return await asyncio.gather(*opening, return_exceptions=True)

        async def end() -> None:
            await cluster.stop()
            cluster.network.heal()

        one, two, three = await begin(First)
        await asyncio.gather(*(each.deposit("a", 1) for each in (one, two, three)))
        await end()
        one, two, three = later = await begin(Second)
        await synced(*later)
        assert [(each.balance, each.count) for each in later] == [({"a": 3}, 100)] * 3
        assert await two.deposit("a", 1) == 4
        assert await two.limit("a", 7) == 101
        await end()
        refused = await begin(First)
        assert [type(each) for each in refused] == [ordercast.ConfigProblem] * 3
        assert all("upgrade this node" in str(each) for each in refused)
        await end()
        later = await begin(Second)
        await synced(*later)
        assert [(each.balance, each.count, each.limits) for each in later] == [({"a": 4}, 101, {"a": 7})] * 3
        await end()

    run(main())
