"""Tests of the store that somebody wrote on `Group` alone, as the guide says to write them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from strangers_store import Store

import ordercast
from hunts import rounds
from ordercast.testing import Call, Client, Model, World, simulated

KEYS = "abcdefghijklmnopqrstuvwxyz"


def _step(entry: tuple[int, int | None], call: Call) -> tuple[object, tuple[int, int | None]]:
    revision, value = entry
    if call.name == "put":
        return revision + 1, (revision + 1, call.args[1])
    return value, entry


STORE = Model("store", (0, None), _step, part=lambda call: call.args[0], reads={"get"})


async def use(world: World, *, aliasing: bool) -> None:
    async def open_store(node: ordercast.Node) -> Store:
        return await Store.open(node, aliasing=aliasing)

    store = world.service(open_store, model=STORE)

    async def customer(client: Client) -> None:
        for number in range(25):
            key = client.random.choice(KEYS)
            with suppress(ordercast.Unanswered):
                if client.random.random() < 0.7:
                    await client.call(store, "put", key, number)
                else:
                    await client.call(store, "get", key)
            await asyncio.sleep(client.random.random() * 0.2)

    await asyncio.gather(*(world.client(customer) for _ in range(3)))
    await world.calm()
    await asyncio.sleep(1)  # what is on its way arrives
    for node in world.ids:
        assert store.at(node).entries == store.at(1).entries, f"node {node} has other entries than node 1"


@simulated(nodes=3, seeds=range(rounds(10, 2000)), protocol="total")
async def test_the_store(world: World) -> None:
    await use(world, aliasing=False)


@simulated(nodes=3, seeds=range(20), protocol="total")
async def test_the_store_with_its_mistake(world: World) -> None:
    await use(world, aliasing=True)
