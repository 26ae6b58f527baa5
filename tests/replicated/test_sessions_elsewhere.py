"""What is asked for within a session is carried out once, wherever it is repeated."""

from __future__ import annotations

import asyncio
import random

import pytest
from accounts import Accounts, NotEnough, synced

import ordercast
from ordercast.testing import Cluster, run

VOTERS = (1, 2, 3)
PROTOCOLS = pytest.mark.parametrize(
    ("protocol", "voters"), [("totem", VOTERS), ("total", ())], ids=["totem", "total"]
)


async def accounts_of(cluster: Cluster) -> list[Accounts]:
    return [await node.replicate(Accounts(), "accounts", timeout=30) for node in cluster.nodes]


@PROTOCOLS
def test_a_command_is_repeated_at_another_node(protocol: str, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        async with Cluster(3, seed=1, protocol=protocol, voters=voters) as cluster:
            one, two, _ = objects = await accounts_of(cluster)
            with ordercast.Session("order 1"):
                first = await one.deposit("a", 5)
                second = await one.deposit("a", 5)
            with ordercast.Session("order 1"):
                assert (await two.deposit("a", 5), await two.deposit("a", 5)) == (first, second) == (5, 10)
                assert await two.deposit("b", 5) == 5, "another command is carried out"
            with ordercast.Session("order 2"):
                assert await two.deposit("a", 5) == 15
                with pytest.raises(NotEnough):
                    await two.transfer("a", "b", 50)
            await one.deposit("a", 100)
            with ordercast.Session("order 2"), pytest.raises(NotEnough):
                await one.transfer("a", "b", 50)
            assert await one.deposit("a", 1) == 116, "outside of it nothing is repeated"
            await synced(*objects)
            assert [each.balance for each in objects] == [{"a": 116, "b": 5}] * 3

    run(main())


@PROTOCOLS
@pytest.mark.parametrize("seed", range(5))
def test_the_node_dies_while_a_command_is_under_way(
    protocol: str, voters: tuple[int, ...], seed: int
) -> None:
    async def main() -> None:
        chance = random.Random(seed)
        cluster = Cluster(3, seed=seed, protocol=protocol, voters=voters)
        await cluster.start()
        objects = await accounts_of(cluster)

        async def order(number: int) -> None:
            await asyncio.sleep(chance.uniform(0, 0.004))
            with ordercast.Session(f"order {number}"):
                try:
                    await objects[0].deposit(f"{number}", 1)
                    return
                except ordercast.OrdercastError:
                    pass
            while True:
                with ordercast.Session(f"order {number}"):
                    try:
                        assert await objects[chance.choice((1, 2))].deposit(f"{number}", 1) == 1
                        return
                    except ordercast.OrdercastError:
                        await asyncio.sleep(0.01)

        orders = asyncio.gather(*(order(number) for number in range(60)))
        await asyncio.sleep(chance.uniform(0, 0.004))
        cluster.network.partition({1})
        await cluster.nodes[0].stop()
        await orders
        await synced(*objects[1:])
        assert [each.balance for each in objects[1:]] == [{str(number): 1 for number in range(60)}] * 2
        await cluster.stop()

    run(main())


def test_two_callers_within_one_session_get_one_result() -> None:
    async def main() -> None:
        async with Cluster(2, protocol="total") as cluster:
            one, two = await accounts_of(cluster)

            async def deposit(accounts: Accounts) -> int:
                with ordercast.Session("order"):
                    return await accounts.deposit("a", 1)

            assert set(await asyncio.gather(deposit(one), deposit(one), deposit(two))) == {1}

    run(main())


def test_names_of_sessions_are_texts() -> None:
    for name in ("", "x" * 2000, 5):
        with pytest.raises(ordercast.ConfigProblem, match="take one for what is to be done"):
            ordercast.Session(name)  # type: ignore[arg-type]
