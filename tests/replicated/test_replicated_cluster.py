"""Replicated objects at real nodes, on a network in memory and in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from accounts import Accounts, Everything, Lease, NotEnough, Row, synced

import ordercast
from ordercast import Node
from ordercast.testing import Cluster, run

VOTERS = (1, 2, 3)
PROTOCOLS = pytest.mark.parametrize(
    ("protocol", "voters"), [("totem", VOTERS), ("total", ())], ids=["totem", "total"]
)


async def accounts_of(cluster: Cluster, name: str = "accounts") -> list[Accounts]:
    return [await node.replicate(Accounts(), name, timeout=30) for node in cluster.nodes]


@PROTOCOLS
def test_commands_are_carried_out_once_at_every_replica(protocol: str, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        async with Cluster(3, seed=1, protocol=protocol, voters=voters) as cluster:
            objects = await accounts_of(cluster)
            results = await asyncio.gather(*(each.deposit("a", 1) for each in objects for _ in range(40)))
            assert sorted(results) == list(range(1, 121))
            assert await objects[1].transfer("a", "b", 20)
            await synced(*objects)
            assert [each.balance for each in objects] == [{"a": 100, "b": 20}] * 3

    run(main())


@PROTOCOLS
def test_a_minority_is_refused_and_gives_up_its_state(protocol: str, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        async with Cluster(3, seed=2, protocol=protocol, voters=voters) as cluster:
            one, two, three = await accounts_of(cluster)
            await one.deposit("a", 1)
            cluster.network.partition({1})
            cut_off = asyncio.ensure_future(one.deposit("a", 10))
            await cluster.together(2, 3)
            assert await two.deposit("a", 100) == 101
            with pytest.raises(ordercast.Unanswered, match="may have been carried out"):
                await cut_off
            with pytest.raises(ordercast.NoMajority):
                await one.deposit("a", 1000)
            with pytest.raises(ordercast.NoMajority):
                await one.sync()
            assert one.balance == {"a": 1}, "nothing that only a minority has is carried out"
            cluster.network.heal()
            await cluster.together()
            after = await three.deposit("a", 1)
            assert after in (102, 112), "what was not answered counts once, or not at all"
            await synced(one, two)
            assert one.balance == two.balance == {"a": after}
            assert one.gone == two.gone == 1

    run(main())


@PROTOCOLS
def test_who_comes_later_or_anew_gets_the_state(protocol: str, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        async with Cluster(3, seed=3, protocol=protocol, voters=voters) as cluster:
            one = await cluster.nodes[0].replicate(Everything(), "all", timeout=30)
            for number in range(1000):
                await one.add(Row([f"w{number % 7}", "x"]), number)
            two = await cluster.nodes[1].replicate(Everything(), "all", timeout=30)
            three = await cluster.nodes[2].replicate(Everything(), "all", timeout=30)
            await three.add(Row(["last"]), 1000)
            for node, other in ((cluster.nodes[1], one), (cluster.nodes[0], three)):
                node_id = node.id
                await node.stop()
                another = cluster.node(node_id)
                cluster.nodes[node_id - 1] = another
                await another.start()
                again = await another.replicate(Everything(), "all", timeout=60)
                await other.add(Row([f"from {node_id}"]), node_id)
                await again.sync()
                assert vars(again).keys() >= {"rows", "last", "names", "by_name", "count", "word"}
                assert again.rows == other.rows
                assert again.rows is not other.rows
                assert (again.last, again.last.maxlen) == (other.last, 3)
                assert (again.names, again.by_name, again.count, again.word) == (
                    other.names,
                    other.by_name,
                    other.count,
                    f"from {node_id}",
                )
                assert list(again.by_name) == list(other.by_name), "in the same order"
            assert two.count == 1001

    run(main())


def test_no_two_replicas_share_an_object() -> None:
    async def main() -> None:
        async with Cluster(1, protocol="total") as cluster:
            all_of_it = await cluster.nodes[0].replicate(Everything(), "all")
            row = Row(["a"])
            asked = all_of_it.add(row, 1)
            row.words.append("b")
            answer = await asked
            answer.words.append("c")
            assert all_of_it.rows == [Row(["a"])]
            events = ordercast.watch(await cluster.nodes[0].replicate(Accounts(), "other"))
            assert events is not None

    run(main())


def test_exceptions_of_commands_reach_the_caller() -> None:
    async def main() -> None:
        async with Cluster(2, protocol="total") as cluster:
            one, two = await accounts_of(cluster)
            with pytest.raises(NotEnough) as raised:
                await two.transfer("a", "b", 7)
            assert raised.value.args == ("a", 7)
            with pytest.raises(TypeError, match="types that are annotated"):
                await one.deposit("a", "much")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="missing a required argument"):
                await one.deposit("a")  # type: ignore[call-arg]

    run(main())


def test_those_who_watch_are_told() -> None:
    async def main() -> None:
        async with Cluster(2, protocol="total") as cluster:
            one, two = await accounts_of(cluster)
            heard: list[Any] = []
            with ordercast.watch(two) as events:
                await one.deposit("a", 1)
                await one.deposit("b", 2)
                async for event in events:
                    heard.append(event)
                    if len(heard) == 2:
                        break
            assert heard == [("a", 1), ("b", 2)]

    run(main())


@PROTOCOLS
def test_leases_end_at_one_place_of_the_order(protocol: str, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        async with Cluster(3, seed=4, protocol=protocol, voters=voters) as cluster:
            objects = [await node.replicate(Lease(), "lease", timeout=30) for node in cluster.nodes]
            loop = asyncio.get_running_loop()
            first = await objects[0].take(5_000_000)
            begun = loop.time()
            assert first > 0
            assert await objects[1].take(1) == 0
            with ordercast.watch(objects[2]) as events:
                async for event in events:
                    assert event == "over"
                    break
            assert 4.9 < loop.time() - begun < 5.5
            second = await objects[1].take(1_000_000)
            assert second > first
            await synced(*objects)
            assert [each.history for each in objects] == [[first, second]] * 3
            assert {each.held_by for each in objects} == {objects[0].held_by}

    run(main())


def test_where_every_partition_goes_on_a_primary_one_has_to_be_asked_for() -> None:
    async def main() -> None:
        async with Cluster(1) as cluster:
            with pytest.raises(ordercast.ConfigProblem, match="voters"):
                await cluster.nodes[0].replicate(Accounts(), "accounts")

    run(main())


def test_what_cannot_be_replicated_is_refused() -> None:
    async def main() -> None:
        async with Cluster(1, protocol="total") as cluster:
            node: Node = cluster.nodes[0]
            accounts = await node.replicate(Accounts(), "accounts")
            with pytest.raises(ordercast.ConfigProblem, match="at this node already"):
                await node.replicate(Accounts(), "accounts")
            with pytest.raises(ordercast.ConfigProblem, match="replicated already"):
                await node.replicate(accounts, "other")
            with pytest.raises(ordercast.ConfigProblem, match="derive its class"):
                await node.replicate(object(), "other")  # type: ignore[type-var]
            other = Accounts()
            other.more = 1  # type: ignore[attr-defined]
            with pytest.raises(ordercast.ConfigProblem, match=r"Accounts\.more is no field"):
                await node.replicate(other, "other")
            await node.stop()
            with pytest.raises(ordercast.NodeClosed):
                await accounts.deposit("a", 1)

    run(main())
    with pytest.raises(ordercast.NotReplicated):
        Accounts().deposit("a", 1)
