"""Streams between nodes that share no network: gateways carry them, from one of their networks to the next.

A node that is on several networks serves relays at a port that its greetings tell. Who wants to connect to a
node further away connects to the gateway that leads there, says which node and port it wants, and gets an
answer; from then on the gateway hands over every frame, in both directions. Each part of the way is sealed
with the key of its own network, if that has one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from ordercast.core.identity import MAX_NODE_ID, NodeId
from ordercast.core.wire import UNREADABLE
from ordercast.transport.interface import Transport
from ordercast.transport.streams import Channel, Damaged, Serve, Streams

LOG = logging.getLogger("ordercast")

MOST_HOPS = 32
"""Gateways that a stream passes through, at most: where they disagree on the way it might go in a circle."""
OPEN_S = 5.0
"""How long a gateway tries to connect to what is next on the way."""


class Onward(msgspec.Struct, array_like=True, frozen=True):
    """What a gateway is asked for: a connection to a port of a node."""

    node: Annotated[int, Meta(ge=1, le=MAX_NODE_ID)]
    port: Annotated[int, Meta(ge=1, lt=65_536)]
    hops: Annotated[int, Meta(ge=1, le=MOST_HOPS)]
    """How many more gateways may be passed, with this one."""


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Onward)


class RelayedStreams:
    """The connections of a node to all nodes of its group, whichever network they are on."""

    def __init__(
        self, streams: Streams, transport: Transport, toward: Callable[[NodeId], NodeId | None]
    ) -> None:
        """`streams` reach the nodes on the networks of this one; `toward` tells which of them is the first
        on the way to a node: a gateway, or that node itself."""
        self._streams = streams
        self._transport = transport
        self._toward = toward

    async def relay(self) -> None:
        """From now on, carry streams between the networks of this node."""
        self._transport.relays_at(await self._streams.serve(self._carry))

    async def serve(self, handle: Serve) -> int:
        """Serve connections from now on; the port, which others have to be told beside the node."""
        return await self._streams.serve(handle)

    async def open(self, node: NodeId, port: int) -> Channel:
        """Connect to what a node serves. Raises `OSError` or `EOFError` if nothing is served there."""
        return await self._open(Onward(node, port, MOST_HOPS))

    async def _open(self, onward: Onward) -> Channel:
        via = self._toward(onward.node)
        if via is None or via == onward.node:
            return await self._streams.open(onward.node, onward.port)
        relay = self._transport.relay_of(via)
        if not relay:
            raise ConnectionRefusedError(f"node {onward.node} is behind node {via}, which carries no streams")
        channel = await self._streams.open(via, relay)
        try:
            await channel.send(_encode(onward))
            refusal = await channel.receive()
        except BaseException:
            channel.close()
            raise
        if refusal:
            channel.close()
            raise ConnectionRefusedError(f"node {via}: {refusal.decode(errors='replace')}")
        return channel

    async def _carry(self, channel: Channel) -> None:
        """Serve one connection to this gateway: connect to what is wanted, and hand over what comes."""
        try:
            wanted = _decoder.decode(await channel.receive())
        except UNREADABLE as error:
            raise Damaged("what is to be connected to cannot be read") from error
        try:
            if wanted.hops == 1:
                raise ConnectionRefusedError("it is too far away")
            async with asyncio.timeout(OPEN_S):
                onward = await self._open(msgspec.structs.replace(wanted, hops=wanted.hops - 1))
        except (OSError, EOFError) as error:
            await channel.send((str(error) or type(error).__name__).encode())
            return
        try:
            await channel.send(b"")
            await _join(channel, onward)
        finally:
            onward.close()

    def rekeyed(self) -> None:
        """The keys of the group have changed: what was opened with one that it has no more, ends."""
        self._streams.rekeyed()

    async def close(self) -> None:
        """Serve nothing more, and end all connections, whoever opened them."""
        await self._streams.close()


async def _join(one: Channel, other: Channel) -> None:
    """Hand over frames in both directions, until one end has closed."""
    ways = [asyncio.create_task(_hand_over(*way)) for way in ((one, other), (other, one))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
    for way in ways:
        if not way.cancelled():
            way.result()


async def _hand_over(source: Channel, target: Channel) -> None:
    """Until the source is closed."""
    try:
        while True:
            await target.send(await source.receive())
    except EOFError:
        return
