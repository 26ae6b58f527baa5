"""Real nodes that serve NATS clients: what only several nodes, and restarts, show."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from free_ports import free_address
from ordercast import Node
from ordercast.cli.status import _clients
from ordercast.runtime.metrics import families

LONG_S = 60.0


def run(case: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(case, LONG_S))


def node(directory: Path, name: str, *seeds: str, **more: Any) -> Node:
    return Node(
        id=int(name),
        seeds=seeds,
        data=directory / f"data{name}",
        log=directory / f"log{name}",
        clients="127.0.0.1:0",
        client_stream=("logged.>",),
        **{"listen": "127.0.0.1:0", **more},
    )


async def together(*nodes: Node) -> None:
    while {len(each.configuration.members) for each in nodes} != {len(nodes)}:
        await asyncio.sleep(0.02)


async def connect(to: Node) -> Any:
    return await nats.connect(f"nats://{to.client_address}", connect_timeout=LONG_S, allow_reconnect=False)


def test_numbers_are_the_same_at_all_nodes_and_go_on_after_a_restart_of_all(tmp_path: Path) -> None:
    async def first_life() -> list[int]:
        async with node(tmp_path, "1") as one:
            async with await connect(one) as client:
                for number in range(5):
                    await client.jetstream(timeout=LONG_S).publish("logged.a", b"%d" % number)
            async with node(tmp_path, "2", one.address) as two:
                await together(one, two)
                async with await connect(one) as a, await connect(two) as b:
                    streams = [a.jetstream(timeout=LONG_S), b.jetstream(timeout=LONG_S)]
                    numbers = [(await streams[at % 2].publish("logged.b", b"x")).seq for at in range(10)]
                    assert numbers[0] >= 6, "the late-comer was told how many there were"
                    assert numbers == sorted(set(numbers))
                    last = numbers[-1]
                    for stream in streams:
                        found = await stream.get_msg("ORDERCAST", last)
                        assert (found.subject, found.data) == ("logged.b", b"x")
                return numbers

    async def second_life(numbers: list[int]) -> None:
        last = numbers[-1]
        async with node(tmp_path, "2") as two, await connect(two) as client:
            stream = client.jetstream(timeout=LONG_S)
            assert (await stream.publish("logged.c", b"y")).seq == last + 1
            assert (await stream.get_msg("ORDERCAST", last)).data == b"x", "it was read from the log"
            reader = await stream.subscribe(
                "logged.>", ordered_consumer=True, deliver_policy=DeliverPolicy.ALL
            )
            assert (await reader.next_msg(LONG_S)).metadata.sequence.stream == numbers[0]

    async def case() -> None:
        await second_life(await first_life())

    run(case())


def test_what_is_no_longer_in_memory_is_read_from_the_log(tmp_path: Path) -> None:
    """By consumers, message by message, and by who does not acknowledge: 64 KiB are in memory."""
    count = 300

    async def case() -> None:
        async with node(tmp_path, "1", client_stream_bytes=65_536) as one, await connect(one) as client:
            stream = client.jetstream(timeout=LONG_S)
            numbers: list[int] = []
            for at in range(count):
                payload = b"%d " % at + bytes(1_000)
                numbers.append((await stream.publish(f"logged.{'ab'[at % 2]}", payload)).seq)
                if at == 100:
                    begun = datetime.datetime.now(datetime.UTC)
            state = (await stream.stream_info("ORDERCAST")).state
            assert state.first_seq <= numbers[0]
            assert state.messages >= count
            ordered = await stream.subscribe("logged.>", ordered_consumer=True)
            got = [await ordered.next_msg(LONG_S) for _ in range(count)]
            assert [message.metadata.sequence.stream for message in got] == numbers
            assert [int(message.data.split()[0]) for message in got] == list(range(count))
            assert got[0].metadata.num_pending >= count - 1
            assert got[-1].metadata.num_pending == 0

            first = await stream.get_msg("ORDERCAST", numbers[0])
            assert first.data == got[0].data
            assert (await stream.get_msg("ORDERCAST", numbers[3], direct=True)).data == got[3].data
            after = await stream.get_msg("ORDERCAST", numbers[3], subject="logged.a", next=True)
            assert after.seq == numbers[4]

            config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, deliver_policy=DeliverPolicy.ALL)
            pulling = await stream.pull_subscribe("logged.b", config=config)
            given = await pulling.fetch(20, LONG_S)
            for message in given[1:]:
                await message.ack()
            await given[0].nak()
            again: list[Any] = []
            while len(again) < count // 2 - 19:
                again += await pulling.fetch(count, 1)
            assert sorted({*(each.metadata.sequence.stream for each in again)}) == sorted(
                {numbers[1], *numbers[41::2]}
            )

            since = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_TIME, opt_start_time=begun)
            reader = await stream.subscribe("logged.>", config=since, ordered_consumer=True)
            assert (await reader.next_msg(LONG_S)).metadata.sequence.stream == numbers[101]

    run(case())


async def addresses(of: Node) -> set[str]:
    """The nodes that a client that connects now is told of."""
    host, _, port = str(of.client_address).partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    told = json.loads((await reader.readline()).removeprefix(b"INFO "))
    writer.close()
    return set(told.get("connect_urls", ()))


def test_clients_learn_of_nodes_that_come_and_go(tmp_path: Path) -> None:
    async def case() -> None:
        async with node(tmp_path, "1") as one, await connect(one) as client:
            async with node(tmp_path, "2", one.address) as two:
                await together(one, two)
                while not client.discovered_servers:  # who is connected is told, too
                    await asyncio.sleep(0.02)
                assert await addresses(one) == {one.client_address, two.client_address}
            while await addresses(one) != {one.client_address}:
                await asyncio.sleep(0.02)

    run(case())


def test_members_and_clients_are_in_the_same_groups(tmp_path: Path) -> None:
    async def case() -> None:
        async with node(tmp_path, "1") as one, await connect(one) as client:
            room = await one.join("room")
            subscription = await client.subscribe("room")
            await client.flush()
            await client.publish("room", b"from a client", headers={"A": "b"})
            await client.flush()
            await room.send(b"from a member")
            got = [(await subscription.next_msg(LONG_S)).data for _ in range(2)]
            assert got == [b"from a client", b"from a member"]
            async for event in room:
                data = getattr(event, "data", None) or getattr(event, "payload", None)
                if data == b"from a member":
                    break

    run(case())


@pytest.mark.parametrize("kept", [True, False])
def test_what_clients_are_is_in_the_status(tmp_path: Path, kept: bool) -> None:
    async def case() -> None:
        settings: dict[str, Any] = {"clients": "127.0.0.1:0"} if kept else {}
        async with Node(listen="127.0.0.1:0", **settings) as one:
            told = one.status()["clients"]
            assert (told is not None) == kept
            if told is None:
                assert one.client_address is None
                return
            host, _, port = told["address"].partition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            await reader.readline()
            writer.write(b"NONSENSE\r\n")
            await reader.read()
            with contextlib.suppress(ConnectionError):
                writer.close()
                await writer.wait_closed()
            assert one.status()["clients"]["malformed"] == {"unknown operation": 1}

    run(case())


def test_clients_are_shown_and_measured(tmp_path: Path) -> None:
    async def case() -> None:
        async with Node(listen="127.0.0.1:0", clients="127.0.0.1:0") as one, await connect(one) as client:
            await client.publish("a", b"x")
            await client.flush()
            status = one.status()
            measured = {
                sample.name: sample.value for metric in families(status, ()) for sample in metric.samples
            }
            assert (measured["ordercast_clients"], measured["ordercast_client_published_total"]) == (1, 1)
            shown = _clients(status)["clients"]
            assert shown.startswith(f"1 connected at {one.client_address}, 0 subscriptions, 1 messages")

    run(case())


def test_the_largest_payload_that_clients_are_told_of_fits_with_the_longest_subjects(tmp_path: Path) -> None:
    async def case() -> None:
        async with (
            Node(listen="127.0.0.1:0", clients="127.0.0.1:0", settings={"max_message_size": 2_000}) as one,
            await connect(one) as client,
        ):
            longest = ".".join(["s" * 127] * 2)
            subscription = await client.subscribe(longest)
            headers = b"NATS/1.0\r\nA: b\r\n\r\n"
            body = bytes(client.max_payload - len(headers))
            await client.publish(longest, body, reply=longest, headers={"A": "b"})
            found = await subscription.next_msg(LONG_S)
            assert (found.data, found.headers) == (body, {"A": "b"})

    run(case())


def test_clients_of_a_node_outside_the_primary_partition_are_told_and_stay(tmp_path: Path) -> None:
    """Two of three voters are a majority; one is none, until another comes."""

    places = [free_address(), free_address()]

    def voter(name: str) -> Node:
        own, other = places if name == "1" else places[::-1]
        return node(tmp_path, name, other, listen=own, primary="majority", voters=(1, 2, 3))

    async def case() -> None:
        errors: list[Exception] = []

        async def told(error: Exception) -> None:
            errors.append(error)

        starting = asyncio.create_task((one := voter("1")).start())
        async with voter("2"):
            await starting
            client = await nats.connect(f"nats://{one.client_address}", error_cb=told)
            stream = client.jetstream(timeout=LONG_S)
            subscription = await client.subscribe("logged.a")
            assert (await stream.publish("logged.a", b"in the majority")).stream == "ORDERCAST"
        while one.status()["primary"]:
            await asyncio.sleep(0.02)
        with pytest.raises(nats.js.errors.ServiceUnavailableError, match="primary partition"):
            await stream.publish("logged.a", b"alone")
        with pytest.raises(nats.errors.NoRespondersError):
            await client.request("other", b"alone", timeout=LONG_S)
        await client.publish("logged.a", b"alone")
        await client.flush()
        assert [str(error)[:46] for error in errors] == [
            'nats: permissions violation for publish to "ot',
            'nats: permissions violation for publish to "lo',
        ]
        async with voter("2"):
            while not one.status()["primary"]:
                await asyncio.sleep(0.02)
            await stream.publish("logged.a", b"in the majority again")
            got = [(await subscription.next_msg(LONG_S)).data for _ in range(2)]
            assert got == [b"in the majority", b"in the majority again"]
        assert client.is_connected
        await client.close()
        await one.stop()

    run(case())
