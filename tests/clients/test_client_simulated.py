"""`ordercast.Client` in virtual time, while nodes crash, are paused and cut off, and packets are lost.

What was acknowledged is in the order, once and at the place that was told, and who reads the log gets all of
it, without a gap and without a repetition, whichever nodes it was connected to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

import ordercast
from hunts import rounds
from ordercast.testing import Client, World, simulated

SUBJECTS = ("a.>",)
PUBLISHERS = READERS = 3
END = b"end"


class Told:
    """What publishers were told, and what readers got."""

    def __init__(self) -> None:
        self.places: dict[bytes, int] = {}
        """Of acknowledged messages, by payload."""
        self.when: dict[bytes, float] = {}
        """When they were acknowledged."""
        self.joined: list[float] = []
        """When each reader had joined."""
        self.got: list[list[tuple[int, bytes]]] = []
        """Places and payloads, of each reader."""

    def acknowledged(self, payload: bytes, place: int, now: float) -> None:
        assert self.places.setdefault(payload, place) == place, f"{payload!r} is in the log twice"
        self.when.setdefault(payload, now)

    def check(self) -> None:
        for joined, got in zip(self.joined, self.got, strict=True):
            places, payloads = [place for place, _ in got], [payload for _, payload in got]
            assert places == sorted(set(places))
            assert len(payloads) == len(set(payloads))
            there = {payload: place for place, payload in got}
            for payload, place in self.places.items():
                if self.when[payload] > joined:
                    assert payload in there, f"{payload!r} at place {place} was acknowledged and not read"
                if payload in there:
                    assert there[payload] == place
        since, until = max(got[0] for got in self.got), min(got[-1] for got in self.got)
        first, *others = ([one for one in got if since <= one <= until] for got in self.got)
        assert all(other == first for other in others), "readers got different messages"


def connect(world: World, client: Client, session: str | None = None) -> ordercast.Client:
    """A client somewhere in the network, more or less patient."""
    chance = client.random
    beside = chance.choice([None, None, *world.ids])
    return world.connect(beside=beside, ping_interval=chance.choice([0.2, 1.0, 10.0]), session=session)


async def publish_and_read(world: World) -> None:
    told = Told()
    read = 0

    async def publisher(client: Client) -> None:
        """Publishes numbered messages, and some of them again in another life of the program."""
        session = client.name.replace(" ", "-")
        number, size = 1, client.random.choice([1, 4_000])
        while number <= 16:
            lasts = number + client.random.choice([3, 7, 15])
            async with connect(world, client, session) as connection:
                numbers = range(max(1, number - client.random.randint(0, 5)), min(16, lasts) + 1)
                for at_once in _parts(list(numbers), client.random.choice([1, 4])):
                    payloads = [f"{session}/{each}".encode().ljust(size) for each in at_once]
                    sending = (
                        connection.send("a.x", payload, safe=True, number=each)
                        for each, payload in zip(at_once, payloads, strict=True)
                    )
                    for payload, found in zip(payloads, await asyncio.gather(*sending), strict=True):
                        told.acknowledged(payload, found.seq, world.now)
                    await asyncio.sleep(client.random.random() * 0.3)
            number = lasts + 1

    async def reader(client: Client) -> None:
        nonlocal read
        got: list[tuple[int, bytes]] = []
        async with connect(world, client) as connection:
            messages = await connection.join("a.>", start=1)
            told.joined.append(world.now)
            told.got.append(got)
            async for message in messages:
                assert message.seq is not None
                got.append((message.seq, message.payload))
                if message.payload == END:
                    break
                if client.random.random() < 0.1:
                    await asyncio.sleep(client.random.random() * 0.1)
        read += 1

    for _ in range(READERS):
        world.client(reader)
    await asyncio.gather(*(world.client(publisher) for _ in range(PUBLISHERS)))
    async with world.connect() as connection:
        while read < READERS:  # who joins late reads another one
            await connection.send("a.end", END, safe=True)
            await asyncio.sleep(1.0)
    told.check()


async def plain_and_requests(world: World) -> None:
    """Messages without a log: they may be missed over a fail-over, and are in one order all the same."""
    got: list[list[bytes]] = []
    sent = 0
    over = asyncio.Event()

    async def publisher(client: Client) -> None:
        nonlocal sent
        async with connect(world, client) as connection:
            for number in range(30):
                with suppress(ordercast.NotAcknowledged, ordercast.NotConnected):
                    await connection.send(f"news.{number % 3}", f"{client.name}/{number}".encode())
                    sent += 1
                    if client.random.random() < 0.3:
                        await connection.flush()
                await asyncio.sleep(client.random.random() * 0.1)

    async def reader(client: Client) -> None:
        mine: list[bytes] = []
        got.append(mine)
        async with connect(world, client) as connection:
            messages = await connection.join(client.random.choice(["news.*", "news.>"]), log=False)
            while not over.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        mine.append((await anext(messages)).payload)

    async def worker(client: Client) -> None:
        async with connect(world, client) as connection:
            messages = await connection.join("work", queue="workers")
            while not over.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        question = await anext(messages)
                        await connection.respond(question, b"done " + question.payload)

    async def asker(client: Client) -> None:
        async with connect(world, client) as connection:
            for number in range(8):
                question = f"{client.name}/{number}".encode()
                while True:  # it may be asked twice
                    try:
                        answer = await connection.request("work", question, timeout=2.0)
                    except (ordercast.NoResponders, ordercast.RequestTimeout, ordercast.NotConnected):
                        await asyncio.sleep(0.1)
                        continue
                    assert answer.payload == b"done " + question
                    break

    for program in (reader, reader, reader, worker, worker):
        world.client(program)
    asking = [world.client(asker) for _ in range(2)]
    await asyncio.gather(*asking, *(world.client(publisher) for _ in range(3)))
    await world.calm()
    await asyncio.sleep(1.0)
    over.set()
    for mine in got:
        assert len(mine) == len(set(mine)), "a message came twice"
        for other in got:
            common = set(mine) & set(other)
            assert [each for each in mine if each in common] == [each for each in other if each in common]
    assert any(got), f"nothing of {sent} messages came"


def _parts(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    return [numbers[at : at + size] for at in range(0, len(numbers), size)]


@pytest.mark.untraced
@pytest.mark.campaign
@pytest.mark.parametrize("protocol", ["totem", "total"])
def test_nothing_acknowledged_is_lost_or_repeated(protocol: str) -> None:
    seeds = range(rounds(15, 2000, "ORDERCAST_CLIENTS"))
    simulated(nodes=3, seeds=seeds, protocol=protocol, client_stream=SUBJECTS)(publish_and_read)()


@pytest.mark.untraced
@pytest.mark.campaign
@pytest.mark.parametrize("protocol", ["totem", "total"])
def test_messages_without_a_log_have_one_order_and_requests_are_answered(protocol: str) -> None:
    seeds = range(rounds(8, 2000, "ORDERCAST_CLIENTS"))
    simulated(nodes=3, seeds=seeds, protocol=protocol, clients=True)(plain_and_requests)()


@simulated(nodes=3, seeds=range(3), faults=False, clients=True)
async def test_a_client_leaves_a_node_that_stands_still(world: World) -> None:
    async with world.connect(ping_interval=0.5) as client:
        first = _node(client)
        world.pause(first)
        got = await client.join("news")
        assert _node(client) != first
        await client.send("news", b"1")
        assert (await anext(got)).payload == b"1"


@simulated(nodes=3, seeds=range(3), faults=False, client_stream=SUBJECTS)
async def test_a_client_leaves_a_machine_that_is_off(world: World) -> None:
    """Nobody tells it: it is the question whether the node is there that is not answered."""
    async with world.connect(ping_interval=1.0) as client:
        first = _node(client)
        world.crash(first, silently=True)
        begun = world.now
        sent = await client.send("a.x", b"1", safe=True)
        assert world.now - begun > 1.0
        assert _node(client) != first
        world.restart(first)
        await world.ready()
        assert (await anext(await client.join("a.x", start=1))).seq == sent.seq


@simulated(nodes=3, seeds=range(3), faults=False, clients=True)
async def test_a_client_beside_a_node_is_cut_off_with_it(world: World) -> None:
    async with world.connect(beside=2, ping_interval=0.5) as client, world.connect(beside=1) as other:
        got = await other.join("news")
        world.partition({2}, {1, 3})
        await world.nodes[1].wait_for({2})
        while client.address != "127.0.0.2:4222":
            await asyncio.sleep(0.1)
        await client.send("news", b"from a minority")
        with pytest.raises(ordercast.NotAcknowledged, match="not in the primary partition"):
            await client.flush()
        world.heal()
        await world.ready()
        await client.send("news", b"from all")
        assert (await anext(got)).payload == b"from all"


@simulated(nodes=3, seeds=range(3), faults=False, client_stream=SUBJECTS)
async def test_a_reader_whose_node_missed_messages_gets_them_at_another_one(world: World) -> None:
    async with world.connect(beside=3, ping_interval=60.0) as reader, world.connect(beside=1) as sender:
        while _node(reader) != 3:
            reader._link.move_on()
            await asyncio.sleep(0.1)
        messages = await reader.join("a.>")
        world.partition({3}, {1, 2})
        await world.nodes[0].wait_for({1, 2})
        numbers = [(await sender.send("a.x", b"%d" % each, safe=True)).seq for each in range(5)]
        world.heal()
        await world.ready()
        numbers.append((await sender.send("a.x", b"5", safe=True)).seq)
        got = [await anext(messages) for _ in numbers]
        assert [message.payload for message in got] == [b"%d" % each for each in range(6)]
        assert [message.seq for message in got] == numbers


def _node(client: ordercast.Client) -> int:
    """The node that a client is connected to."""
    assert client.address is not None
    return int(client.address.split(":")[0].rpartition(".")[2])
