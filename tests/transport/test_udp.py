"""The transport by UDP: what it tells of itself, and how it waits for others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine

import pytest

from ordercast.errors import NodeClosed
from ordercast.keys import Keyring, generate
from ordercast.transport import udp
from ordercast.transport.address import Place
from ordercast.transport.interface import Drops, Setup
from ordercast.transport.known_lives import KnownLives
from ordercast.transport.peers import Peer
from ordercast.transport.seal import OVERHEAD
from ordercast.transport.udp import UdpSettings, UdpTransport, udp_capacity


def run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    async def guarded() -> None:
        async with asyncio.timeout(20):
            await test()

    asyncio.run(guarded())


async def opened(*greets: str, keyring: Keyring | None = None) -> UdpTransport:
    setup = Setup(1, 0, "toy", keyring, Drops(), lambda: time.monotonic_ns() // 1000, KnownLives())
    place = Place("127.0.0.1", 0, exact=True)
    return await UdpTransport.open(setup, UdpSettings(place, 1452, 1_000_000, greets, False, "the same"))


def test_the_status_lists_peers_in_order_and_what_the_sockets_can() -> None:
    async def main() -> None:
        transport = await opened()
        late, early = Peer(9, ("10.0.0.9", 1), ("10.0.0.9", 2)), Peer(2, ("::1", 1, 0, 0), ("::1", 2, 0, 0))
        early.linked = True
        transport.links.peers = {9: late, 2: early}
        told = transport.status()
        transport.close()
        listed = [(peer["node"], peer["address"], peer["linked"]) for peer in told["peers"]]
        assert listed == [(2, "[::1]:1", True), (9, "10.0.0.9:1", False)]
        assert told["address"] == transport.address
        assert told["buffers"] == {"asked": 1_000_000, "granted": transport.capacity.buffer}
        assert set(told["offload"]) == {"send", "receive"}
        assert (told["datagram_bytes"], told["sealed"]) == (1452, False)

    run(main)


def test_what_the_kernel_does_not_send_is_counted() -> None:
    async def main() -> None:
        transport = await opened()
        transport.sockets.data.unsent, transport.sockets.token.unsent = 3, 4
        assert transport.lost()["kernel refused to send"] == 7
        transport.close()

    run(main)


def test_a_node_that_nobody_answers_begins_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp, "ANSWER_S", 0.01)

    async def main() -> None:
        transport = await opened("127.0.0.1:9")
        await transport.find_peers()
        assert transport.reachable == []
        transport.close()

    run(main)


def test_without_a_key_there_is_none_to_change() -> None:
    async def main() -> None:
        transport = await opened()
        with pytest.raises(NodeClosed, match="without a key"):
            transport.rekey(Keyring((generate(),)))
        transport.close()

    run(main)


def test_packets_fill_whole_datagrams_and_fit_the_buffer() -> None:
    wide, narrow = udp_capacity(1452, 8 * 1024 * 1024), udp_capacity(1452, 100_000)
    assert wide.packet <= wide.largest
    assert 12 * narrow.packet <= 100_000
    assert narrow.packet < wide.packet
    assert (wide.packet - narrow.packet) % (wide.datagram + OVERHEAD) == 0
