"""Nodes on loopback, in one event loop, for the tests of groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from ordercast import Group, Message, Node
from ordercast.transport.udp import UdpTransport

ANYWHERE = "127.0.0.1:0"
SAFETY_NET_S = 60


def make_node(**given: Any) -> Node:
    """A node at any free port of loopback."""
    return Node(**{"listen": ANYWHERE, **given})


@asynccontextmanager
async def ring(count: int, **given: Any) -> AsyncIterator[list[Node]]:
    """So many nodes in one configuration."""
    async with AsyncExitStack() as stack:
        nodes: list[Node] = []
        for _ in range(count):
            seeds = [nodes[0].address] if nodes else []
            nodes.append(await stack.enter_async_context(make_node(seeds=seeds, **given)))
        await together(nodes)
        yield nodes


def udp(node: Node) -> UdpTransport:
    """What carries the packets of a node that runs."""
    transport = node._running.transport
    assert isinstance(transport, UdpTransport)
    return transport


async def together(nodes: list[Node]) -> None:
    """Wait until they all share one configuration, and know each other's processes."""
    ids = [node.id for node in nodes]
    for node in nodes:
        await node.wait_for(ids)
    while len({node.configuration.id for node in nodes}) > 1:
        await asyncio.sleep(0.005)
    await until(lambda: all(node._running.processes.settled for node in nodes))


async def read(group: Group, count: int) -> list[Message]:
    """The next so many messages."""
    found: list[Message] = []
    async for event in group:
        if isinstance(event, Message):
            found.append(event)
            if len(found) == count:
                return found
    raise AssertionError(f"the group ended after {len(found)} of {count} messages")


async def payloads(group: Group, count: int) -> list[bytes]:
    return [message.payload for message in await read(group, count)]


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.005)


def run(test: Callable[[], Coroutine[None, None, None]], loop: str = "asyncio") -> None:
    """Run a test; it hangs no longer than it must."""

    async def guarded() -> None:
        async with asyncio.timeout(SAFETY_NET_S):
            await test()

    factory = pytest.importorskip("uvloop").new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(guarded())
