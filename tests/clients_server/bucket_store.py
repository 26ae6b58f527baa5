"""The buckets of a node of a test, without a server: clients are `AskingClient`s."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self

import pytest
from bucket_clients import AskingClient, Refused

import ordercast
from ordercast.clients.buckets.requests import Requests
from ordercast.testing import Cluster, run

SERVING = "serving"
"""The group of the nodes that hold buckets."""


class Store:
    """Buckets at a node, and a client of them."""

    def __init__(self, requests: Requests, serving: ordercast.Group) -> None:
        self.requests = requests
        self.serving = serving
        self.client = AskingClient(requests)

    @classmethod
    async def open(cls, node: ordercast.Node) -> Self:
        """Hold buckets at a node from now on."""
        member = node._running
        serving = await node.join(SERVING)
        requests = Requests(member.replicas, member.processes.members, SERVING, None)
        requests.start()
        return cls(requests, serving)


def at_one_node(case: Callable[[AskingClient], Awaitable[None]], **bucket: Any) -> None:
    """A case at a bucket `b` of a node that is alone; nothing may be raised outside of it."""

    async def main() -> None:
        raised: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
        async with Cluster(1, seed=1, protocol="total") as cluster:
            store = await Store.open(cluster.nodes[0])
            await store.client.create("b", **bucket)
            await case(store.client)
            store.requests.close()
        assert not raised

    run(main())


async def refusal(asked: Awaitable[object]) -> int:
    """The number of the error that a request is refused with."""
    with pytest.raises(Refused) as raised:
        await asked
    return raised.value.number
