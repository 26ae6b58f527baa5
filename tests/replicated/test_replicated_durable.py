"""Replicated objects on disk: nothing that was answered is lost, and damage is noticed and repaired."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from accounts import Accounts, synced

import ordercast
from ordercast.memory_directory import MemoryDirectory
from ordercast.replicated.history import Recent
from ordercast.replicated.snapshot import Restored
from ordercast.testing import Cluster, run
from ordercast.transport.virtual_time import VirtualTimeLoop

VOTERS = (1, 2, 3)
DIRECTORY = "objects"
PROTOCOLS = pytest.mark.parametrize("protocol", ["totem", "total"])


class Group:
    """Three nodes with an object on disk each."""

    def __init__(self, protocol: str, seed: int) -> None:
        self.cluster = Cluster(3, seed=seed, protocol=protocol, voters=VOTERS)
        self.objects: dict[int, Accounts] = {}

    async def start(self, *ids: int) -> None:
        """Start nodes, and replicate the object there."""
        for id in ids:
            if id in self.objects:
                self.cluster.nodes[id - 1] = self.cluster.node(id)
        nodes = [self.cluster.nodes[id - 1] for id in ids]
        await asyncio.gather(*(node.start() for node in nodes))
        found = await asyncio.gather(
            *(node.replicate(Accounts(), "a/b", durable=DIRECTORY, timeout=60) for node in nodes)
        )
        self.objects.update(zip(ids, found, strict=True))

    async def kill(self, *ids: int, chance: random.Random | None = None) -> None:
        """End nodes at once; with a `chance` their disks lose what was not synced."""
        network = self.cluster.network
        network.partition(*({id} for id in ids))
        for id in ids:
            if chance is not None:
                copy = self.directory(id).copy_as_after_a_crash(chance)
                self.cluster._directories[id, Path(DIRECTORY) / "a%2Fb"] = copy
        await asyncio.gather(*(self.cluster.nodes[id - 1].stop() for id in ids))
        network.heal()

    def directory(self, id: int) -> MemoryDirectory:
        return self.cluster._directories[id, Path(DIRECTORY) / "a%2Fb"]


@PROTOCOLS
def test_all_nodes_are_killed_at_once_and_nothing_answered_is_lost(protocol: str) -> None:
    async def main() -> None:
        chance = random.Random(3)
        group = Group(protocol, 3)
        await group.start(*VOTERS)
        answered = 0
        for _ in range(8):
            deposits = [
                asyncio.ensure_future(group.objects[id].deposit("a", 1)) for id in VOTERS for _ in range(20)
            ]
            await asyncio.sleep(chance.uniform(0, 0.01))
            answered = max((each.result() for each in deposits if each.done()), default=answered)
            await group.kill(*VOTERS, chance=chance)
            await asyncio.gather(*deposits, return_exceptions=True)
            await group.start(*VOTERS)
            await synced(*group.objects.values())
            balances = {each.balance.get("a", 0) for each in group.objects.values()}
            assert len(balances) == 1
            assert balances.pop() >= answered
        await group.cluster.stop()

    run(main())


@PROTOCOLS
@pytest.mark.parametrize("gone", VOTERS)
def test_a_majority_goes_on_with_its_disks(protocol: str, gone: int) -> None:
    async def main() -> None:
        group = Group(protocol, gone)
        await group.start(*VOTERS)
        assert await group.objects[2].deposit("a", 5) == 5
        await group.kill(*VOTERS)
        others = [id for id in VOTERS if id != gone]
        await group.start(*others)
        assert await group.objects[others[0]].deposit("a", 5) == 10
        await group.start(gone)
        await synced(group.objects[gone])
        assert group.objects[gone].balance == {"a": 10}
        await group.cluster.stop()

    run(main())


@PROTOCOLS
def test_a_damaged_disk_is_repaired_from_the_others(protocol: str) -> None:
    async def main() -> None:
        group = Group(protocol, 5)
        await group.start(*VOTERS)
        await group.objects[1].deposit("a", 5)
        await group.kill(*VOTERS)
        for name in group.directory(3).names():
            if name.endswith(".wal"):
                group.directory(3).content(name)[30] ^= 4
        await group.start(*VOTERS)
        await synced(group.objects[3])
        assert group.objects[3].balance == {"a": 5}
        await group.objects[3].deposit("a", 1)
        await group.kill(*VOTERS)
        await group.start(2, 3)
        await synced(group.objects[3])
        assert group.objects[3].balance == {"a": 6}, "it is on the repaired disk, too"
        await group.cluster.stop()

    run(main())


def test_who_has_lost_its_disk_does_not_count(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        group = Group("totem", 6)
        await group.start(*VOTERS)
        await group.objects[1].deposit("a", 5)
        await group.kill(*VOTERS)
        group.cluster._directories.clear()
        with pytest.raises(TimeoutError, match="could not be replicated"):
            await asyncio.wait_for(group.start(1, 2), 90)
        await group.cluster.stop()

    run(main())


def test_what_cannot_be_on_disk_is_refused() -> None:
    async def main() -> None:
        async with Cluster(1, protocol="total") as cluster:
            with pytest.raises(ordercast.ConfigProblem, match="give all nodes voters"):
                await cluster.nodes[0].replicate(Accounts(), "a", durable=DIRECTORY)
        async with Cluster(1, protocol="total", voters=(1,)) as cluster:
            with pytest.raises(ordercast.ConfigProblem, match="give `durable`"):
                await cluster.nodes[0].replicate(Accounts(), "a", level="disk")
            with pytest.raises(ordercast.ConfigProblem, match="choose one of memory, disk"):
                await cluster.nodes[0].replicate(Accounts(), "a", level="tape")  # type: ignore[arg-type]

    run(main())


def test_who_sends_waits_for_a_slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordercast.replicated.disk.MOST_WAITING", 20_000)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        cluster = Cluster(3, seed=7, protocol="total", voters=VOTERS)
        await cluster.start()
        found = await asyncio.gather(
            *(
                node.replicate(Accounts(), "a", durable=DIRECTORY, level="memory", timeout=60)
                for node in cluster.nodes
            )
        )
        loop.thread_s = lambda: 0.5
        most = 0

        async def deposit() -> None:
            for _ in range(100):
                await found[0].deposit("x" * 100, 1)

        sending = asyncio.gather(*(deposit() for _ in range(40)))
        while not sending.done():
            await asyncio.sleep(0.01)
            for node in cluster.nodes:
                assert node._member is not None
                for disk in node._member.replicas._disks.values():
                    most = max(most, disk._files.waiting_bytes)
        assert await found[0].deposit("x" * 100, 1) == 4001
        assert 20_000 < most < 100_000, "one round of commands is under way when it is said"
        loop.thread_s = lambda: 0.0
        await cluster.stop()

    run(main())


class Wrong(ordercast.Replicated):
    """Its state is not of the type that it says."""

    number: int

    def __init__(self) -> None:
        self.number = 0

    @ordercast.command
    def spoil(self) -> None:
        """From here on nothing can encode it."""
        self.number = object()  # type: ignore[assignment]


def test_a_state_that_cannot_be_encoded_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Cluster(1, protocol="total", voters=(1,)) as cluster:
            wrong = Wrong()
            wrong.number = object()  # type: ignore[assignment]
            with pytest.raises(ordercast.ConfigProblem, match=r"Wrong\.number begins with"):
                await cluster.nodes[0].replicate(wrong, "wrong", durable=DIRECTORY, timeout=60)

    run(main())


@PROTOCOLS
@pytest.mark.parametrize("enough", [True, False])
def test_who_was_away_gets_only_what_it_lacks_if_that_is_known(
    protocol: str, enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a restart with its disk, and by a partition; a whole state only where that is too long ago."""
    whole: list[str] = []

    async def main() -> None:
        group = Group(protocol, 8)
        await group.start(*VOTERS)
        for number in range(20):
            await group.objects[1].deposit(f"a{number}", 1)
        monkeypatch.setattr(Restored, "__init__", seen)
        for step in range(2):
            if step:
                await group.kill(3)
                await group.cluster.together(1, 2)
            else:
                group.cluster.network.partition({3})
                await group.cluster.together(1, 2)
            for number in range(20):
                await group.objects[1].deposit(f"b{step}{number}", 1)
            if step:
                await group.start(3)
            else:
                group.cluster.network.heal()
                await group.cluster.together()
            await group.objects[2].deposit("last", 1)
            await synced(*group.objects.values())
            assert group.objects[3].balance == group.objects[1].balance
            assert len(group.objects[3].balance) == 41 + 20 * step
        await group.kill(*VOTERS)
        await group.start(2, 3)
        await synced(group.objects[3])
        assert len(group.objects[3].balance) == 61, "what it got is on its disk, too"
        await group.cluster.stop()

    original = Restored.__init__

    def seen(self: Restored, target: ordercast.Replicated) -> None:
        whole.append("")
        original(self, target)

    if not enough:
        monkeypatch.setattr(Recent.__init__, "__defaults__", (1000,))
    run(main())
    from_disks = 3
    assert (len(whole) > from_disks) is not enough
