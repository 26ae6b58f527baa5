"""Objects that every partition goes on with by itself, and that are merged when partitions meet again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Self

import pytest
from accounts import Accounts, synced

import ordercast
from hunts import rounds
from ordercast import CallId
from ordercast.testing import Client, Cluster, World, run, simulated


class Notes(ordercast.Replicated):
    """Texts that somebody added, each with where and when it was carried out."""

    texts: dict[str, list[CallId]]
    positions: dict[str, int]
    left_count: int
    repeated: int
    merges: int

    def __init__(self) -> None:
        self.texts = {}
        self.positions = {}
        self.left_count = 0
        self.repeated = 0
        self.merges = 0

    @ordercast.command
    def add(self, text: str) -> int:
        """Add a text; the position at which it is."""
        self.repeated += self.call_id in self.texts.get(text, ())
        self.texts.setdefault(text, []).append(self.call_id)
        self.positions[text] = self.position
        return self.position

    def left(self, process: ordercast.Process) -> None:
        self.left_count += 1

    def merge(self, others: Sequence[Self]) -> None:
        for other in others:
            for text, ids in other.texts.items():
                mine = self.texts.setdefault(text, [])
                mine += [each for each in ids if each not in mine]
                self.positions.setdefault(text, other.positions[text])
            self.left_count += other.left_count
            self.repeated += other.repeated
            self.merges += other.merges
        self.merges += 1


async def notes_of(cluster: Cluster) -> list[Notes]:
    return [await node.replicate(Notes(), "notes", partition="merge", timeout=30) for node in cluster.nodes]


def test_partitions_go_on_and_are_merged() -> None:
    async def main() -> None:
        async with Cluster(3, seed=1) as cluster:
            one, two, three = objects = await notes_of(cluster)
            before = await one.add("before")
            cluster.network.partition({1, 2}, {3})
            await cluster.together(1, 2)
            await cluster.together(3)
            here, there = await one.add("here"), await three.add("there")
            await two.add("here, too")
            await one.sync()
            assert min(here, there) > before
            assert set(one.texts) == {"before", "here", "here, too"}
            assert set(three.texts) == {"before", "there"}
            cluster.network.heal()
            await cluster.together()
            after = await three.add("after")
            assert after > max(here, there), "fencing tokens rise"
            await synced(*objects)
            assert set(one.texts) == {"before", "here", "here, too", "there", "after"}
            assert one.texts == two.texts == three.texts
            assert all(len(ids) == 1 for ids in one.texts.values())
            assert [each.merges for each in objects] == [1, 1, 1]
            assert [each.left_count for each in objects] == [3, 3, 3], "3 left 1 and 2, and these left 3"

    run(main())


async def open_notes(node: ordercast.Node) -> Notes:
    return await node.replicate(Notes(), "notes", partition="merge")


class Kept:
    """Who has what was answered, so that it is lost if all of these have crashed, and not otherwise."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kept: dict[str, set[ordercast.Process]] = {}

    def answered(self, node: int, text: str) -> None:
        """A node's replica has answered."""
        (replica,) = self._world.replicas_of(node)
        self._kept[text] = set(replica.machine.agreement.holders)

    def check(self, texts: dict[str, list[CallId]]) -> None:
        """Nothing is lost that a replica has had all the time."""
        there = {replica._me for id in self._world.ids for replica in self._world.replicas_of(id)}
        lost = [text for text, kept in self._kept.items() if text not in texts and kept & there]
        assert not lost, f"{lost} were answered and are lost"

    def __len__(self) -> int:
        return len(self._kept)


async def _added(notes: Notes, text: str, answered: Callable[[str], None]) -> None:
    await notes.add(text)
    answered(text)


async def add_while_the_world_fails(world: World) -> None:
    """Clients add texts at all nodes; afterwards all replicas have all of them, once each."""
    kept = Kept(world)
    notes = world.service(open_notes)

    async def writer(client: Client) -> None:
        pause_s = client.random.choice((0.6, 0.6, 0.02))
        for number in range(14 if pause_s > 0.1 else 200):
            node = client.random.choice(world.ids)
            target, process = notes.there.get(node), world.process(node)
            text = f"{client.name}/{number}"
            if target is not None and process is not None:
                with suppress(ordercast.OrdercastError, asyncio.TimeoutError):
                    async with asyncio.timeout(2):
                        await process.ask(partial(_added, target, text, partial(kept.answered, node)))
            await asyncio.sleep(client.random.random() * pause_s)

    for _ in range(3):
        world.client(writer)
    await asyncio.wait([*world.clients.values()])
    await world.calm()
    while len({replica.machine.applied for id in world.ids for replica in world.replicas_of(id)}) > 1:
        await asyncio.sleep(0.01)
    for each in notes.there.values():
        kept.check(each.texts)
        assert not each.repeated, "a history has a command once"


@pytest.mark.campaign
@pytest.mark.parametrize("nodes", [3, 5])
def test_nothing_answered_is_lost_and_replicas_are_equal_whatever_fails(nodes: int) -> None:
    @simulated(nodes=nodes, seeds=range(rounds(20, 1000)), voters=())
    async def adding(world: World) -> None:
        await add_while_the_world_fails(world)

    adding()


def test_what_cannot_be_merged_is_refused() -> None:
    async def main() -> None:
        async with Cluster(1) as cluster:
            (node,) = cluster.nodes
            with pytest.raises(ordercast.ConfigProblem, match="Accounts says nothing of how histories are"):
                await node.replicate(Accounts(), "accounts", partition="merge")
            with pytest.raises(ordercast.ConfigProblem, match="such objects are in memory alone"):
                await node.replicate(Notes(), "notes", partition="merge", durable="here")
            with pytest.raises(ordercast.ConfigProblem, match="such objects are in memory alone"):
                await node.replicate(Notes(), "notes", partition="merge", level="majority-disk")
            with pytest.raises(ordercast.ConfigProblem, match="choose one of primary, merge"):
                await node.replicate(Notes(), "notes", partition="both")  # type: ignore[arg-type]
            for other in (ordercast.Queue(int), ordercast.Barrier(2)):
                with pytest.raises(ordercast.ConfigProblem, match="says nothing of how histories are merged"):
                    await node.replicate(other, "other", partition="merge")
        async with Cluster(1, protocol="total") as cluster:
            with pytest.raises(ordercast.ConfigProblem, match="here one partition alone goes on"):
                await cluster.nodes[0].replicate(Notes(), "notes", partition="merge")

    run(main())


class Clumsy(Notes):
    """Its method fails."""

    def merge(self, others: Sequence[Self]) -> None:
        raise ZeroDivisionError


def test_an_object_that_cannot_be_merged_ends_at_every_node(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Cluster(2, seed=1) as cluster:
            objects = [await each.replicate(Clumsy(), "notes", partition="merge") for each in cluster.nodes]
            cluster.network.partition({1}, {2})
            await asyncio.gather(cluster.together(1), cluster.together(2))
            await asyncio.gather(*(each.add(f"{at}") for at, each in enumerate(objects)))
            cluster.network.heal()
            await cluster.together()
            await asyncio.sleep(5)
            for each in objects:
                with pytest.raises(ordercast.NotReplicated, match=r"Clumsy.merge raised ZeroDivisionError"):
                    await each.sync()
            again = [await each.replicate(Notes(), "notes", partition="merge") for each in cluster.nodes]
            await again[0].add("anew")
            await again[1].sync()
            assert set(again[1].texts) == {"anew"}

    run(main())
    assert "could not be merged" in caplog.text


@pytest.mark.parametrize("seed", range(3))
def test_commands_that_are_under_way_when_partitions_meet_are_carried_out_once(seed: int) -> None:
    async def main() -> None:
        async with Cluster(3, seed=seed) as cluster:
            objects = await notes_of(cluster)
            answered: list[str] = []

            async def add(target: Notes, text: str) -> None:
                await target.add(text)
                answered.append(text)

            async with asyncio.TaskGroup() as tasks:
                for number in range(6000):
                    if number % 2000 == 0:
                        cluster.network.partition({1, 2}, {3})
                    elif number % 2000 == 1000:
                        cluster.network.heal()
                    at = number % 3
                    tasks.create_task(add(objects[at], f"{at}/{number}"))
                    await asyncio.sleep(0.0007)
                cluster.network.heal()
            await cluster.together()
            await synced(*objects)
            assert objects[0].merges >= 1
            for each in objects:
                assert each.texts.keys() == set(answered)
                assert not each.repeated
                assert all(len(ids) == len(set(ids)) for ids in each.texts.values())

    run(main())
