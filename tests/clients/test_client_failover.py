"""Clients whose node is killed again and again: they go on at another one, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

import pytest
from nats_servers import LOGGED, LONG_S, Server, nodes

from hunts import rounds
from ordercast import Client
from ordercast.client import Message, Subscription

KILLS = rounds(2, 50, "ORDERCAST_KILLS")
GROUP = f"{LOGGED}failover"
SENDERS = 4


class Sent:
    """What was acknowledged, and when the last time was."""

    def __init__(self) -> None:
        self.places: dict[int, bytes] = {}
        self.at = 0.0
        self.over = False

    async def send(self, client: Client, which: int) -> None:
        """Numbered messages one after the other, until it is over."""
        for number in count():
            if self.over:
                return
            payload = b"%d %d" % (which, number)
            found = await client.send(GROUP, payload, safe=True)
            assert found.seq not in self.places, "no two messages have one place"
            self.places[found.seq] = payload
            self.at = asyncio.get_running_loop().time()


async def read(joined: Subscription, found: list[Message]) -> None:
    """All that comes."""
    async for message in joined:
        found.append(message)


async def hunt(servers: list[Server]) -> list[float]:
    """Kills the node that the clients talk to; for each, seconds until the next acknowledgement."""
    loop = asyncio.get_running_loop()
    gaps: list[float] = []
    sent, found = Sent(), list[Message]()
    addresses = [server.address for server in servers]
    async with Client(addresses) as sender, Client(addresses) as receiver:
        reading = asyncio.create_task(read(await receiver.join(GROUP), found))
        sending = [asyncio.create_task(sent.send(sender, which)) for which in range(SENDERS)]
        for kill in range(KILLS):
            await more(sent, 50)
            address = (sender, receiver)[kill % 2].address
            victim = next(server for server in servers if server.address == address)
            victim.kill()
            killed = loop.time()
            await more(sent, 1)
            gaps.append(sent.at - killed)
            await asyncio.to_thread(victim.start)
            await whole(servers)
        await more(sent, 50)
        sent.over = True
        await asyncio.gather(*sending)
        while len(found) < len(sent.places) and not reading.done():
            await asyncio.sleep(0.005)
        await receiver.flush()
        reading.cancel()
        await asyncio.wait([reading])
        if not reading.cancelled() and (failed := reading.exception()):
            raise failed
    check(sent, found)
    return gaps


def check(sent: Sent, found: list[Message]) -> None:
    """What was read is what was acknowledged, in its order and once."""
    assert [(message.seq, message.payload) for message in found] == sorted(sent.places.items())
    for which in range(SENDERS):
        mine = [m.payload for m in found if m.payload.startswith(b"%d " % which)]
        assert mine == [b"%d %d" % (which, number) for number in range(len(mine))]


async def more(sent: Sent, number: int) -> None:
    """Wait until so many more were acknowledged."""
    enough = len(sent.places) + number
    while len(sent.places) < enough:
        await asyncio.sleep(0.005)


async def whole(servers: list[Server]) -> None:
    """Wait until every node tells of all the others: they are one group again."""
    for server in servers:
        while len((await asyncio.to_thread(server.info) or {}).get("connect_urls", ())) < len(servers):
            await asyncio.sleep(0.02)


@pytest.mark.campaign
def test_clients_go_on_at_another_node_and_nothing_is_lost_or_comes_twice(tmp_path: Path) -> None:
    servers = nodes(tmp_path, 3)
    try:
        for server in servers:
            server.start()

        async def case() -> list[float]:
            await whole(servers)
            return await hunt(servers)

        gaps = asyncio.run(asyncio.wait_for(case(), LONG_S * (1 + KILLS / 2)))
    finally:
        for server in servers:
            server.kill()
    print(f"longest gap {max(gaps):.3f} s, median {sorted(gaps)[len(gaps) // 2]:.3f} s, of {len(gaps)}")
