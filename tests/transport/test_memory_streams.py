"""Streams between nodes: in memory they obey the network; over TCP they are the same to whoever uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ordercast.core.identity import NodeId
from ordercast.runtime.tcp_streams import TcpStreams
from ordercast.testing import run
from ordercast.transport.memory import MemoryNetwork
from ordercast.transport.memory_streams import MemoryStreams
from ordercast.transport.streams import BUFFER, MOST, Channel, Streams

DELAY_US = (100, 100)


async def echo(channel: Channel) -> None:
    """Say everything again, in capitals, until the other end has said all."""
    while True:
        await channel.send((await channel.receive()).upper())


def no_key() -> None:
    """The group has none."""


def network_of(count: int, loss: float = 0.0) -> tuple[MemoryNetwork, list[MemoryStreams]]:
    network = MemoryNetwork(range(1, count + 1), seed=4, loss=loss, delay_us=DELAY_US)
    return network, [MemoryStreams(node, [network]) for node in network.nodes]


def now() -> float:
    return asyncio.get_running_loop().time()


Body = Callable[[Streams, Streams], Awaitable[None]]


async def in_memory(body: Body) -> None:
    _, (one, two) = network_of(2)
    await body(one, two)


async def over_tcp(body: Body) -> None:
    hosts: dict[NodeId, str] = {1: "127.0.0.1", 2: "127.0.0.1"}
    one, two = TcpStreams(["127.0.0.1"], hosts.get, no_key), TcpStreams(["127.0.0.1"], hosts.get, no_key)
    try:
        await body(one, two)
    finally:
        await asyncio.gather(one.close(), two.close())


def everywhere(body: Body) -> None:
    """In memory, and over TCP."""
    run(in_memory(body))
    asyncio.run(over_tcp(body))


def test_what_is_written_at_one_end_is_read_at_the_other() -> None:
    async def body(one: Streams, two: Streams) -> None:
        channel = await one.open(2, await two.serve(echo))
        await channel.send(b"over ")
        await channel.send(b"there")
        assert [await channel.receive(), await channel.receive()] == [b"OVER ", b"THERE"]
        channel.close()

    everywhere(body)


def test_who_is_served_reads_the_end_when_the_other_end_closes() -> None:
    async def body(one: Streams, two: Streams) -> None:
        ended = asyncio.get_running_loop().create_future()

        async def serve(channel: Channel) -> None:
            first = await channel.receive()
            with pytest.raises(EOFError):
                await channel.receive()
            ended.set_result(first)

        channel = await one.open(2, await two.serve(serve))
        await channel.send(b"all of it")
        channel.close()
        assert await ended == b"all of it"

    everywhere(body)


def test_a_connection_is_closed_when_it_was_served() -> None:
    async def body(one: Streams, two: Streams) -> None:
        async def serve(channel: Channel) -> None:
            await channel.send(b"x" * 3 * BUFFER)

        channel = await one.open(2, await two.serve(serve))
        assert len(await channel.receive()) == 3 * BUFFER
        with pytest.raises(EOFError):
            await channel.receive()

    everywhere(body)


def test_who_writes_faster_than_the_other_end_reads_has_to_wait() -> None:
    async def body(one: Streams, two: Streams) -> None:
        go_on = asyncio.Event()
        got = asyncio.get_running_loop().create_future()

        async def serve(channel: Channel) -> None:
            first = await channel.receive()
            await go_on.wait()
            got.set_result(first + b"".join([await channel.receive() for _ in range(400)]))

        channel = await one.open(2, await two.serve(serve))

        async def write() -> None:
            await channel.send(b"first")
            for _ in range(400):
                await channel.send(bytes(BUFFER))

        writing = asyncio.create_task(write())
        for _ in range(1000):
            await asyncio.sleep(0)
        assert not writing.done()
        go_on.set()
        await writing
        assert await got == b"first" + bytes(400 * BUFFER)

    everywhere(body)


def test_nothing_is_served_where_nobody_serves() -> None:
    async def body(one: Streams, two: Streams) -> None:
        port = await two.serve(echo)
        await two.close()
        with pytest.raises(ConnectionRefusedError):
            await one.open(2, port)

    everywhere(body)


def test_a_node_of_which_nothing_is_known_cannot_be_reached() -> None:
    async def body(one: Streams, two: Streams) -> None:
        with pytest.raises(ConnectionRefusedError):
            await one.open(9, 1)

    everywhere(body)


def test_one_too_many_is_not_served() -> None:
    async def body(one: Streams, two: Streams) -> None:
        port = await two.serve(echo)
        kept = []
        for _ in range(MOST):
            channel = await one.open(2, port)
            kept.append(channel)
            await channel.send(b"x")
            assert await channel.receive() == b"X"

        async def another() -> None:
            channel = await one.open(2, port)
            await channel.receive()

        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await another()

    everywhere(body)


def test_bytes_wait_for_the_end_of_a_partition() -> None:
    async def main() -> None:
        network, (one, two) = network_of(2)
        channel = await one.open(2, await two.serve(echo))
        await channel.send(b"first")
        assert await channel.receive() == b"FIRST"
        network.partition({1}, {2})
        await channel.send(b"a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await channel.receive()
        network.heal()
        await channel.send(b"b")
        assert [await channel.receive(), await channel.receive()] == [b"A", b"B"]
        assert now() == pytest.approx(30, abs=0.01)

    run(main())


def test_nobody_connects_through_a_partition() -> None:
    async def main() -> None:
        network, (one, two) = network_of(2)
        port = await two.serve(echo)
        network.partition({1}, {2})
        asyncio.get_running_loop().call_later(5, network.heal)
        channel = await one.open(2, port)
        assert now() == pytest.approx(5, abs=0.01)
        await channel.send(b"a")
        assert await channel.receive() == b"A"

    run(main())


def test_bytes_wait_for_a_process_that_is_stopped() -> None:
    async def main() -> None:
        network, (one, two) = network_of(2)
        channel = await one.open(2, await two.serve(echo))
        network.pause(2)
        asyncio.get_running_loop().call_later(4, network.resume, 2)
        await channel.send(b"a")
        assert await channel.receive() == b"A"
        assert now() == pytest.approx(4, abs=0.01)

    run(main())


def test_the_other_end_of_a_crashed_process_gets_what_was_sent_and_then_an_error() -> None:
    async def main() -> None:
        network, (one, two) = network_of(2)
        channel = await one.open(2, await two.serve(echo))
        await channel.send(b"a")
        assert await channel.receive() == b"A"
        network.crash(2)
        with pytest.raises(ConnectionResetError):
            await channel.receive()
        with pytest.raises(ConnectionRefusedError):
            await one.open(2, 1)

    run(main())


def test_a_crash_behind_a_partition_is_not_heard_of() -> None:
    async def main() -> None:
        network, (one, two) = network_of(2)
        channel = await one.open(2, await two.serve(echo))
        network.partition({1}, {2})
        network.crash(2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await channel.receive()
        network.heal()
        with pytest.raises(ConnectionResetError):
            await channel.receive()

    run(main())


def test_what_is_lost_comes_later() -> None:
    async def main() -> None:
        _, (one, two) = network_of(2, loss=0.2)
        channel = await one.open(2, await two.serve(echo))
        said = b"".join(b"%d," % number for number in range(1000))
        parts = [said[at : at + 7] for at in range(0, len(said), 7)]
        for part in parts:
            await channel.send(part)
        assert [await channel.receive() for _ in parts] == parts
        assert now() > 0.2

    run(main())


def test_a_slow_node_takes_longer() -> None:
    async def main() -> None:
        network, (one, two) = network_of(2)
        channel = await one.open(2, await two.serve(echo))
        began = now()
        network.slow(2, 50_000)
        await channel.send(b"a")
        assert await channel.receive() == b"A"
        assert now() - began == pytest.approx(2 * 0.0501, abs=0.001)

    run(main())
