"""Who follows a replicated object by what its replicas tell has their state, whoever of them dies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from accounts import Accounts, Everything, Row, synced, tellers

import ordercast
from hunts import rounds
from ordercast import Node
from ordercast.replicated import telling
from ordercast.replicated.fingerprint import fingerprint, may_have_sets
from ordercast.replicated.follower import Follower
from ordercast.testing import Cluster, World, run, simulated

VOTERS = (1, 2, 3)
HISTORY = "accounts.history"


async def accounts_of(cluster: Cluster) -> list[Accounts]:
    return [
        await node.replicate(Accounts(), "accounts", timeout=30, history=HISTORY) for node in cluster.nodes
    ]


class Following:
    """A follower at a node, which is kept as bytes between two messages."""

    def __init__(self, node: Node) -> None:
        self.fingerprints: list[str] = []
        self.payloads: list[bytes] = []
        self.saved: bytes | None = None
        self.follower = Follower(Accounts())
        self._task = asyncio.create_task(self._follow(node))

    async def _follow(self, node: Node) -> None:
        async for event in await node.join(HISTORY):
            if isinstance(event, ordercast.Message):
                self.payloads.append(event.payload)
                self.follower = Follower(Accounts(), self.saved)
                self.fingerprints += self.follower.deliver(event.payload)
                self.saved = self.follower.saved()

    async def reached(self, accounts: Accounts) -> None:
        """Wait until it is where a replica is."""
        while self.follower.target.position < accounts.position:
            assert not self._task.done(), self._task.exception()
            await asyncio.sleep(0.05)

    def end(self) -> None:
        self._task.cancel()


@pytest.mark.parametrize(("protocol", "voters"), [("totem", VOTERS), ("total", ())], ids=["totem", "total"])
def test_it_has_the_state_of_the_replicas_though_these_die(protocol: str, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        cluster = Cluster(3, seed=5, protocol=protocol, voters=voters)
        await cluster.start()
        early = Following(cluster.nodes[2])
        one, two, three = await accounts_of(cluster)
        while early.follower.head is None:
            await asyncio.sleep(0.05)
        for number in range(30):
            await one.deposit("a", number)
        taken = await two.fingerprint()
        await one.sync()
        await cluster.nodes[0].stop()
        late = Following(cluster.nodes[1])
        for number in range(30):
            await two.deposit("b", number)
        assert await three.transfer("a", "b", 5)
        last = await two.fingerprint()
        await synced(two, three)
        await early.reached(three)
        assert early.fingerprints == [taken, last]
        assert (one.agrees(taken), one.agrees(last), two.agrees(last)) == (True, None, True)
        assert three.agrees(last.encode()) is True
        assert three.agrees(last[:-1] + "x") is False
        assert early.follower.target.balance == three.balance == {"a": 430, "b": 440}
        assert early.follower.target.gone == three.gone == 1
        assert late.follower.head is None, "the state was told before it came"
        early.end()
        late.end()
        await cluster.stop()

    run(main())


def test_the_state_is_told_again_for_who_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "LEAST_BYTES", 1000)

    async def main() -> None:
        async with Cluster(2, seed=6, protocol="total") as cluster:
            one, two = await accounts_of(cluster)
            for number in range(50):
                await one.deposit(f"{number}", number)
            late = Following(cluster.nodes[1])
            for number in range(200):
                await two.deposit(f"{number}", number)
            await late.reached(two)
            assert late.follower.target.balance == two.balance
            late.end()

    run(main())


def test_it_waits_for_a_state_where_it_misses_something_and_says_nothing_of_what_is_no_history() -> None:
    async def main() -> list[bytes]:
        async with Cluster(1, protocol="total") as cluster:
            (one,) = await accounts_of(cluster)
            following = Following(cluster.nodes[0])
            for number in range(20):
                await one.deposit("a", number)
                await asyncio.sleep(0.2)
            following.end()
            return following.payloads

    payloads = run(main())
    assert len(payloads) > 10
    whole, holed = Follower(Accounts()), Follower(Accounts())
    for at, payload in enumerate(payloads):
        whole.deliver(payload)
        if at not in (8, 9):
            holed.deliver(payload)
        assert holed.deliver(b"\x00nonsense") == holed.deliver(b"") == []
    assert whole.target.balance == {"a": 190}
    assert holed.waits, "nothing behind the hole was carried out"
    assert not whole.waits
    other = Follower(Accounts())
    for payload in payloads[:-1]:
        other.deliver(payload)
    changed = payloads[-1].replace(b"deposit(name,amount)", b"transfer(name,amoun)")
    assert changed != payloads[-1]
    other.deliver(changed)
    assert other.waits, "another history than its checksum says"


def test_fingerprints_do_not_depend_on_the_order_of_sets_and_tell_states_apart() -> None:
    one, other = {0, 8}, {8, 0}
    assert list(one) != list(other), "or the test is none"
    assert may_have_sets(dict[str, tuple[int, frozenset[str]] | None])
    assert may_have_sets(Any)
    assert not may_have_sets(dict[str, list[Row]])
    taken = fingerprint(7, 5, [("a", one, True), ("b", {1: 2, 3: 4}, False)])
    assert taken.startswith("7/")
    assert fingerprint(7, 5, [("a", other, True), ("b", {1: 2, 3: 4}, False)]) == taken
    others = [
        fingerprint(7, 6, [("a", one, True), ("b", {1: 2, 3: 4}, False)]),
        fingerprint(7, 5, [("a", {0}, True), ("b", {1: 2, 3: 4}, False)]),
        fingerprint(7, 5, [("a", one, True), ("b", {3: 4, 1: 2}, False)]),
        fingerprint(7, 5, [("a", one, True)]),
    ]
    assert len({taken, *others}) == 5


def test_an_object_of_each_kind_of_field_has_a_fingerprint() -> None:
    async def main() -> None:
        async with Cluster(2, protocol="total") as cluster:
            one, two = [await node.replicate(Everything(), "all") for node in cluster.nodes]
            await one.add(Row(["a", "b"]), 1)
            before = await one.fingerprint()
            await two.add(Row(["c"]), 2)
            after = await two.fingerprint()
            await synced(one, two)
            assert one.agrees(before) is two.agrees(before) is one.agrees(after) is True
            assert before.partition("/")[2] != after.partition("/")[2]

    run(main())


def test_histories_that_are_merged_are_not_told() -> None:
    async def main() -> None:
        async with Cluster(1) as cluster:
            with pytest.raises(ordercast.ConfigProblem, match="every partition would tell another one"):
                await cluster.nodes[0].replicate(
                    ordercast.Counter(), "counter", partition="merge", history=HISTORY
                )

    run(main())


@pytest.mark.campaign
@pytest.mark.parametrize("protocol", ["totem", "total"])
def test_followers_have_the_state_whatever_fails(protocol: str) -> None:
    compared = list[int]()

    @simulated(nodes=3, seeds=range(rounds(4, 1000)), protocol=protocol)
    async def followed(world: World) -> None:
        async def open_accounts(node: Node) -> Accounts:
            return await node.replicate(Accounts(), "accounts", history=HISTORY)

        accounts = world.service(open_accounts)
        followers: dict[int, Follower[Accounts]] = {}

        async def follow(node: Node) -> None:
            followers[node.id] = follower = Follower(Accounts())
            async for event in await node.join(HISTORY):
                if isinstance(event, ordercast.Message):
                    follower.deliver(event.payload)
                    at = follower.target.position
                    for id in world.ids:
                        for replica in world.replicas_of(id) if world.process(id) is not None else ():
                            target = replica.target
                            if replica.machine.applied == follower.head:
                                assert isinstance(target, Accounts)
                                compared.append(at)
                                assert (target.balance, target.gone, target.position) == (
                                    follower.target.balance,
                                    follower.target.gone,
                                    at,
                                )

        world.run(follow)
        tellers(world, accounts)
        await world.calm()

    followed()
    assert len(compared) > 20
