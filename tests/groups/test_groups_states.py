"""States of replicated objects go from node to node, and in a group with a key to nobody else."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack
from typing import Any
from zlib import crc32

import pytest
from accounts import Accounts
from group_nodes import make_node, run, together

from free_ports import free_address
from ordercast import Node
from ordercast.keys import Keyring, generate
from ordercast.replicated.command import encode
from ordercast.replicated.transfer import Wish
from ordercast.runtime.tcp_streams import HANDSHAKE, PLACES, TcpStreams
from ordercast.transport.relays import RelayedStreams
from ordercast.transport.stream_seal import NONCE_SIZE

KEY = generate()


async def started(stack: AsyncExitStack, **given: Any) -> tuple[list[Node], Accounts]:
    """Three voters, and what two of them replicate: there is a name in it that nobody else is to read."""
    more = {"primary": "majority", "voters": (1, 2, 3), **given}
    address = free_address()
    nodes = [make_node(id=1, listen=address, **more)]
    nodes += [make_node(id=id, seeds=[address], **more) for id in (2, 3)]
    for node in nodes:
        stack.push_async_callback(node.stop)
    await asyncio.gather(*(node.start() for node in nodes))
    await together(nodes)
    accounts, _ = [await node.replicate(Accounts(), "accounts", timeout=30) for node in nodes[:2]]
    await accounts.deposit("secret", 1)
    return nodes, accounts


def port_of(node: Node) -> tuple[str, int]:
    """Where a node gives states to others."""
    relayed = node._running.streams
    assert isinstance(relayed, RelayedStreams)
    streams = relayed._streams
    assert isinstance(streams, TcpStreams)
    host, port = streams._listeners[0].address
    return host, port


async def heard(said: bytes, node: Node) -> bytes:
    """What somebody hears who says that."""
    reader, writer = await asyncio.open_connection(*port_of(node))
    writer.write(said)
    with contextlib.suppress(ConnectionError):
        return await reader.read()
    return b""


def plain(body: bytes) -> bytes:
    return (len(body) + 4).to_bytes(4, "big") + crc32(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("sealed", [True, False])
def test_a_state_is_given_to_who_has_the_key_and_to_nobody_else(sealed: bool) -> None:
    key = {"key": KEY} if sealed else {}

    async def main() -> None:
        async with AsyncExitStack() as stack:
            (one, two, three), accounts = await started(stack, **key)
            position = one._running.replicas._replicas["accounts"].machine.applied.position
            name = encode(Wish("accounts", position))
            wish = HANDSHAKE.greeting(bytes(NONCE_SIZE), Keyring((KEY,)) if sealed else None)
            answer = await heard(wish + plain(name), one)
            assert (b"secret" in answer) == (not sealed), "without a key whoever comes is a member"
            if sealed:
                assert len(answer) == HANDSHAKE.answer_size
                for said in (name, HANDSHAKE.greeting(bytes(NONCE_SIZE), None) + plain(name)):
                    assert b"secret" not in await heard(said + bytes(100), two)
            crowd = [
                await asyncio.open_connection(*port_of(node))
                for node in (one, two)
                for _ in range(2 * PLACES)
            ]
            late = await three.replicate(Accounts(), "accounts", timeout=30)
            await accounts.deposit("secret", 1)
            await late.sync()
            assert late.balance == {"secret": 2}
            for _, writer in crowd:
                writer.close()

    run(main)
