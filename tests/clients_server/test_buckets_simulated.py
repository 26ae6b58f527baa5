"""Buckets under crashes, partitions, pauses and loss: what clients were answered is linearizable."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from bucket_clients import Refused
from bucket_store import Store

import ordercast
from hunts import rounds
from ordercast.testing import MAP, Client, World, simulated

PROTOCOLS = pytest.mark.parametrize("protocol", ["totem", "total"])


class KeyStore(Store):
    """Keys of one bucket."""

    async def put(self, key: str, value: str) -> None:
        await self._there()
        await self.client.put("b", key, value.encode())

    async def get(self, key: str) -> str | None:
        found = await self.client.get("b", key)
        return None if found is None else found[1].decode()

    async def delete(self, key: str) -> None:
        await self._there()
        await self.client.put("b", key, b"", KV_Operation="DEL")

    async def compare_and_set(self, key: str, old: str | None, new: str) -> bool:
        await self._there()
        found = await self.client.get("b", key)
        if old != (None if found is None else found[1].decode()) or found is None:
            return False
        expected = {"Nats_Expected_Last_Subject_Sequence": found[0]}
        try:
            await self.client.put("b", key, new.encode(), **expected)
        except Refused as error:
            if error.number != 10071:
                raise
            return False
        return True

    async def _there(self) -> None:
        if self.requests.held.holding("b") is None:
            await self.client.create("b")


class BucketStore(Store):
    """A bucket for each key, which is deleted with it."""

    async def put(self, key: str, value: str) -> None:
        while True:
            with suppress(Refused):
                await self.client.put(key, "k", value.encode())
                return
            await self.client.create(key)

    async def get(self, key: str) -> str | None:
        found = await self.client.get(key, "k")
        return None if found is None else found[1].decode()

    async def delete(self, key: str) -> None:
        with suppress(Refused):
            await self.client.api(f"STREAM.DELETE.KV_{key}")


@pytest.mark.untraced
@pytest.mark.campaign
@PROTOCOLS
@pytest.mark.parametrize("store", [KeyStore, BucketStore])
def test_what_clients_are_answered_is_linearizable(protocol: str, store: type[Store]) -> None:
    @simulated(nodes=3, seeds=range(rounds(15, 1000, "ORDERCAST_BUCKETS")), protocol=protocol)
    async def buckets(world: World) -> None:
        stores = world.service(store.open, model=MAP)
        values = iter(f"v{number}" for number in range(10_000))

        async def program(client: Client) -> None:
            seen: dict[str, str | None] = {}
            for _ in range(25):
                key, what = client.random.choice("xyz"), client.random.random()
                with suppress(ordercast.Unanswered):
                    if what < 0.3:
                        await client.call(stores, "put", key, next(values))
                    elif what < 0.4:
                        await client.call(stores, "delete", key)
                    elif what < 0.6 and seen.get(key) is not None and store is KeyStore:
                        await client.call(stores, "compare_and_set", key, seen[key], next(values))
                    else:
                        seen[key] = await client.call(stores, "get", key)
                await asyncio.sleep(client.random.choice((0.0, 0.05, 0.2)))
            answered = False
            while not answered:  # what fails comes to an end, and everything works again
                with suppress(ordercast.Unanswered):
                    await client.call(stores, "put", "x", next(values))
                    answered = True

        for _ in range(3):
            world.client(program)

    buckets()
