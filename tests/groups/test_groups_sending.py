"""Sending: what fits, who waits, in which order, what mistakes are told; receipts; slow readers."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from group_nodes import make_node, payloads, read, ring, run, until

from absence import turns
from free_ports import free_address
from ordercast import (
    ConfigProblem,
    ConfigurationChange,
    Delivery,
    Group,
    Joined,
    Message,
    MessageTooLarge,
    Node,
    NodeClosed,
    OrdercastError,
    Receipt,
    SendTimeout,
)
from ordercast.core.addresses import address

SMALL: dict[str, Any] = {"send_buffer": 4096, "receive_buffer": 65_536}
"""Buffers that are soon full."""


# --- what can be sent ---------------------------------------------------------------------------


def test_empty_messages_and_empty_lists() -> None:
    async def main() -> None:
        async with ring(2) as (one, two):
            mine, its = await one.join("g"), await two.join("g")
            await mine.send_many([])
            await mine.send_many(())
            await mine.send(b"")
            await mine.send_many([b"", b"x", b""])
            assert await payloads(its, 4) == [b"", b"", b"x", b""]
            assert await payloads(mine, 4) == [b"", b"", b"x", b""]

    run(main)


@pytest.mark.parametrize("sealed", [False, True], ids=["open", "sealed"])
def test_a_message_of_sixteen_megabytes(sealed: bool) -> None:
    given: dict[str, Any] = {"key": bytes(range(32))} if sealed else {}

    async def main() -> None:
        async with ring(2, **given) as (one, two):
            its = await two.join("g")
            largest = one._running.gate.largest - len(address(0, ["g"]))
            large = bytes(range(256)) * 65_536
            mine = await one.join("g", receive=False)
            await mine.send(large[:largest])
            await mine.send(b"behind it")
            first, second = await payloads(its, 2)
            assert first == large[:largest]
            assert second == b"behind it"
            assert largest > 15 * 2**20

    run(main)


def test_a_message_that_is_too_large() -> None:
    async def main() -> None:
        async with make_node() as node:
            group = await node.join("g")
            largest = node._running.gate.largest - len(address(0, ["g"]))
            for too_large in (bytes(largest + 1), bytes(64 * 2**20)):
                with pytest.raises(MessageTooLarge, match=f"at most {largest:,} fit"):
                    await group.send(too_large)
                with pytest.raises(MessageTooLarge, match="split it"):
                    await group.send_many([b"small", too_large])
            await group.send(b"fits")
            assert await payloads(group, 1) == [b"fits"], "of what was refused nothing was sent"

    run(main)


def test_many_sizes_arrive_whole() -> None:
    async def main() -> None:
        async with ring(2) as (one, two):
            its = await two.join("g")
            sent = [
                bytes([size % 251]) * size for size in (0, 1, 1400, 1452, 1500, 34_000, 70_000, 300_000, 5)
            ]
            await (await one.join("g", receive=False)).send_many(sent)
            assert await payloads(its, len(sent)) == sent

    run(main)


def test_groups_share_packets_and_one_order() -> None:
    async def main() -> None:
        async with ring(2) as (one, two):
            names = ["a", "b", "a longer name", "ä"]
            sending = [await one.join(name, receive=False) for name in names]
            reading = [await two.join(name) for name in names[:3]]
            for number in range(50):
                for group in sending:
                    await group.send(b"%d" % number)
            found = [await read(group, 50) for group in reading]
            for name, messages in zip(names, found, strict=False):
                assert [m.payload for m in messages] == [b"%d" % number for number in range(50)]
                assert {m.group for m in messages} == {name}
            places = [(m.seq, m.slot) for messages in found for m in messages]
            assert len(set(places)) == 150, "each has its own place in the one order"
            assert len({seq for seq, _ in places}) < 150, "they did share packets"
            numbers = sorted(m.id.number for messages in found for m in messages)
            first = numbers[0]
            assert numbers == [first + n for n in range(200) if n % 4 != 3]

    run(main)


def test_a_group_joined_twice_is_read_twice() -> None:
    async def main() -> None:
        async with make_node() as node:
            first = await node.join("g")
            second = await node.join("g")
            await first.send(b"1")
            assert await payloads(first, 1) == [b"1"]
            await first.leave()
            await second.send(b"2")
            assert await payloads(second, 2) == [b"1", b"2"]

    run(main)


def test_a_group_is_joined_for_as_long_as_it_is_read() -> None:
    """Also when nothing but the loop that reads it holds it."""

    async def main() -> None:
        async with make_node() as node:
            sender = await node.join("g", receive=False)
            found: list[bytes] = []
            async for event in await node.join("g"):
                gc.collect()
                if isinstance(event, Message):
                    found.append(event.payload)
                if len(found) == 3:
                    break
                if isinstance(event, Message | Joined):
                    await sender.send(b"%d" % len(found))
            assert found == [b"0", b"1", b"2"]
            async for entry in (await node.join("g")).batches():
                await asyncio.sleep(0)
                if isinstance(entry, Delivery):
                    break
                await sender.send(b"x")
            else:
                raise AssertionError("it ended")
            gc.collect()
            await until(lambda: not node._running.readers._readers)

    run(main)


def test_who_joins_later_reads_from_then_on() -> None:
    async def main() -> None:
        async with make_node() as node:
            first = await node.join("g")
            await first.send(b"before")
            await payloads(first, 1)
            second = await node.join("g")
            await first.send(b"after")
            assert await payloads(second, 1) == [b"after"]

    run(main)


# --- misuse -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "x" * 256, "ä" * 128, "\udc80", "a\x1fb", "\x1eq\x1ea.>"])
def test_names_that_are_none(name: str) -> None:
    async def main() -> None:
        async with make_node() as node:
            with pytest.raises(ConfigProblem, match=r"1 to 255 bytes|to a subscription"):
                await node.join(name)

    run(main)


def test_what_is_no_message_and_no_name() -> None:
    async def main() -> None:
        async with make_node() as node:
            with pytest.raises(TypeError, match=r'join\("orders"\)'):
                await node.join(b"bytes")  # type: ignore[arg-type]
            group: Any = await node.join("g")
            with pytest.raises(TypeError, match=r"text\.encode\(\)"):
                await group.send("text")
            with pytest.raises(TypeError, match="not int"):
                await group.send(5)
            with pytest.raises(TypeError, match="for one message there is send"):
                await group.send_many(b"text")
            with pytest.raises(TypeError, match="not generator"):
                await group.send_many(b"x" for _ in range(3))
            with pytest.raises(TypeError, match="a message is bytes"):
                await group.send_many(["text"])
            with pytest.raises(TypeError, match="a message is bytes"):
                await group.send_many([5])
            await group.send(bytearray(b"like bytes"))
            await group.send(memoryview(b"like bytes"))
            assert await payloads(group, 2) == [b"like bytes"] * 2

    run(main)


def test_a_node_that_was_not_started_or_has_stopped() -> None:
    async def main() -> None:
        node = make_node()
        await node.stop()
        with pytest.raises(NodeClosed, match=r"not started: use `async with"):
            await node.join("g")
        for look in ("id", "members", "address", "incarnation", "configuration"):
            with pytest.raises(NodeClosed, match="not started"):
                getattr(node, look)
        await node.start()
        with pytest.raises(NodeClosed, match="started before"):
            await node.start()
        group = await node.join("g")
        await node.stop()
        await node.stop()
        await node.closed()
        with pytest.raises(NodeClosed, match="has left: make a new Node"):
            await group.send(b"x")
        with pytest.raises(NodeClosed, match="has left"):
            await group.send_many([b"x"])
        with pytest.raises(NodeClosed, match="has left"):
            await node.join("g")
        with pytest.raises(NodeClosed, match="has left"):
            await node.wait_for(1)
        assert node.status()["node"] == node.id
        await group.leave()

    run(main)


def test_fields_that_are_none() -> None:
    with pytest.raises(ConfigProblem, match="did you mean"):
        Node(seed=["127.0.0.1:4801"])  # type: ignore[call-arg]
    with pytest.raises(ConfigProblem, match="write host and port"):
        Node(seeds=["127.0.0.1"])
    with pytest.raises(ConfigProblem):
        Node(seeds="127.0.0.1:4801")


def test_two_tasks_cannot_read_one_group() -> None:
    async def main() -> None:
        async with make_node() as node:
            group = await node.join("g")
            await anext(aiter(group))
            reading = asyncio.create_task(read(group, 1))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="join it once more"):
                await anext(aiter(group))
            await group.send(b"x")
            assert [m.payload for m in await reading] == [b"x"]

    run(main)


def test_who_only_sends_does_not_read() -> None:
    async def main() -> None:
        async with make_node() as node:
            group = await node.join("g", receive=False)
            await group.send(b"x")
            with pytest.raises(RuntimeError, match="receive=False"):
                await anext(aiter(group))
            await group.leave()

    run(main)


# --- receipts -----------------------------------------------------------------------------------


def test_receipts_tell_where_a_message_came_to_be() -> None:
    async def main() -> None:
        async with ring(2) as (one, two):
            mine, other, its = await one.join("g"), await one.join("h"), await two.join("g")
            receipts: list[Receipt] = []
            for number in range(20):
                group = other if number % 4 == 3 else mine
                receipts.append(await group.send(b"%d" % number, safe=number % 2 == 0, receipt=True))
                await mine.send_many([b"between"] * 3)
            delivered = [await receipt for receipt in receipts]
            assert [m.payload for m in delivered] == [b"%d" % number for number in range(20)]
            assert all(receipt.done for receipt in receipts)
            order = [m for m in await read(its, 75) if m.payload != b"between"]
            assert [m for m in delivered if m.group == "g"] == order
            assert await receipts[0] == delivered[0], "they can be awaited again"

    run(main)


def test_receipts_resolve_in_order() -> None:
    async def main() -> None:
        async with make_node() as node:
            group = await node.join("g")
            resolved: list[int] = []

            async def note(number: int, receipt: Receipt) -> None:
                await receipt
                resolved.append(number)

            tasks = []
            for number in range(30):
                receipt = await group.send(b"x", safe=number % 3 == 0, receipt=True)
                tasks.append(asyncio.create_task(note(number, receipt)))
            await asyncio.gather(*tasks)
            assert resolved == list(range(30))

    run(main)


def test_a_receipt_nobody_waits_for_any_more() -> None:
    async def main() -> None:
        async with ring(2, **SMALL) as (one, two):
            two._running.driver.brake(True)  # as when its disk does not keep up
            receipts, error = await fill(await one.join("g", receive=False))
            assert f"node {two.id} does not keep up; send less" in str(error)
            assert not receipts[-1].done
            for receipt in receipts[-2:]:
                waiting = asyncio.create_task(wait(receipt))
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            two._running.driver.brake(False)
            messages = [await receipt for receipt in receipts]
            first = messages[0].id.number
            assert [message.id.number for message in messages] == list(range(first, first + len(receipts)))

    run(main)


async def wait(receipt: Receipt) -> Message:
    return await receipt


def test_receipts_of_a_node_that_ends() -> None:
    async def main() -> None:
        async with ring(2, **SMALL) as (one, two):
            two._running.driver.brake(True)
            sender = await one.join("g", receive=False)
            receipts, _ = await fill(sender)
            one._running.driver.end(None)
            with pytest.raises(NodeClosed, match="before this was delivered: send it again"):
                await receipts[-1]

    run(main)


async def fill(group: Group) -> tuple[list[Receipt], SendTimeout]:
    """Send until nothing more is taken, because somebody does not keep up; and what is said then."""
    receipts: list[Receipt] = []
    while True:
        try:
            receipts.append(await group.send(bytes(1000), timeout=0.5, receipt=True))
        except SendTimeout as error:
            if error.holder is not None:  # else this machine itself stood still for so long
                return receipts, error


# --- waiting ------------------------------------------------------------------------------------


def test_a_reader_that_stops_is_waited_for_and_named() -> None:
    async def main() -> None:
        async with ring(3, **SMALL) as (one, two, three):
            its = await two.join("g")
            group = await one.join("g", receive=False)
            _, error = await fill(group)
            assert f"node {two.id} does not keep up" in str(error)
            assert error.holder == two.id
            assert isinstance(error, TimeoutError)
            bound = 2**20 * 4
            assert two.status()["unread_bytes"] < bound
            assert one.status()["held_up_by"] == two.id
            own = await two.join("g", receive=False)
            _, error = await fill(own)
            assert "this node itself does not read" in str(error)
            assert error.holder == two.id
            waiting = asyncio.create_task(group.send(b"last"))
            async for entry in its:
                if isinstance(entry, Message) and entry.payload == b"last":
                    break
            await waiting
            assert len(three.members) == 3, "nobody was put out"

    run(main)


def test_a_group_that_is_left_or_dropped_holds_nobody_up() -> None:
    async def main() -> None:
        async with ring(2, **SMALL) as (one, two):
            sender = await one.join("g", receive=False)
            its = await two.join("g")
            await fill(sender)
            await its.leave()
            await sender.send(bytes(1000))
            its = await two.join("g")
            await fill(sender)
            del its
            await sender.send(bytes(1000))

    run(main)


def test_several_waiting_senders_are_served_in_order() -> None:
    async def main() -> None:
        async with ring(2, **SMALL) as (one, two):
            its = await two.join("g")
            sender = await one.join("g", receive=False)
            await fill(sender)
            tasks = []
            for number in range(50):
                tasks.append(asyncio.create_task(sender.send(b"%d" % number)))
                await asyncio.sleep(0)
            tasks[10].cancel()
            tasks[49].cancel()
            expected = [b"%d" % number for number in range(50) if number not in (10, 49)]
            found: list[bytes] = []
            async for event in its:
                if isinstance(event, Message) and len(event.payload) < 1000:
                    found.append(event.payload)
                    if len(found) == len(expected):
                        break
            assert found == expected
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(each) for each in done].count(asyncio.CancelledError) == 2

    run(main)


def test_a_busy_sender_does_not_starve_another() -> None:
    async def main() -> None:
        async with ring(2, send_buffer=65_536) as (one, _):
            group = await one.join("g", receive=False)
            sent = [0, 0, 0]
            turns = 0

            async def busy(number: int) -> None:
                while True:
                    await group.send(bytes(300))
                    sent[number] += 1

            tasks = [asyncio.create_task(busy(number)) for number in range(3)]
            while min(sent) < 1000:
                turns += 1
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert min(sent) * 4 > max(sent)
            assert turns * 2 < sum(sent), "turns are long enough to be worth their while"

    run(main)


def test_waiting_senders_are_told_when_the_node_stops() -> None:
    async def main() -> None:
        async with ring(2, **SMALL) as (one, two):
            its = await two.join("g")
            sender = await one.join("g", receive=False)
            await fill(sender)
            tasks = [asyncio.create_task(sender.send(b"x")) for _ in range(3)]
            many = asyncio.create_task(sender.send_many([bytes(1000)] * 100))
            await turns()
            stopping = asyncio.create_task(one.stop())
            for task in [*tasks, many]:
                with pytest.raises(NodeClosed, match="leaving: it takes no more"):
                    await task
            await its.leave()
            await stopping

    run(main)


# --- giving up ----------------------------------------------------------------------------------


def test_reading_can_be_given_up_and_taken_up() -> None:
    async def main() -> None:
        async with make_node() as node:
            group = await node.join("g")
            events = aiter(group)
            assert isinstance(await anext(events), ConfigurationChange)
            assert isinstance(await anext(events), Joined)
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await anext(events)
            await group.send_many([b"1", b"2", b"3"])
            async for event in group:
                assert isinstance(event, Message)
                assert event.payload == b"1"
                break
            async for event in group:
                assert isinstance(event, Message)
                assert event.payload == b"2"
                break
            batches = group.batches()
            batch = await anext(batches)
            assert list(batch.payloads) == [b"3"]  # type: ignore[union-attr]

    run(main)


def test_leaving_ends_the_reading() -> None:
    async def main() -> None:
        async with make_node() as node:
            group = await node.join("g")
            seen: list[object] = []

            async def reader() -> None:
                async for event in group:
                    seen.append(event)

            reading = asyncio.create_task(reader())
            await until(lambda: len(seen) == 2)
            await group.leave()
            await group.leave()
            await reading
            await group.send(b"x")
            await (await node.join("g")).send(b"y")
            assert len(seen) == 2

    run(main)


def test_stopping_ends_the_reading_behind_what_was_delivered() -> None:
    async def main() -> None:
        async with ring(2) as (one, two):
            its = await two.join("g")
            mine = await one.join("g", receive=False)
            await mine.send_many([b"%d" % number for number in range(100)])
            await one.stop()
            await until(lambda: two.members == (two.id,))
            await two.stop()
            found = [event.payload async for event in its if isinstance(event, Message)]
            assert found == [b"%d" % number for number in range(100)], "who leaves sends first what it took"

    run(main)


def test_stop_can_be_cancelled_and_called_twice() -> None:
    async def main() -> None:
        async with ring(2) as (one, two):
            first = asyncio.create_task(one.stop())
            await asyncio.sleep(0)
            second = asyncio.create_task(one.stop())
            first.cancel()
            await asyncio.gather(first, second, return_exceptions=True)
            await one.stop()
            await until(lambda: two.members == (two.id,))
            with pytest.raises(OrdercastError):
                await one.join("g")

    run(main)


def test_what_is_wrong_with_a_message_to_several_groups_is_said() -> None:
    async def main() -> None:
        async with make_node() as node:
            words: Any = "no bytes"
            with pytest.raises(TypeError, match="a message is bytes, not str"):
                await node.send(["a", "b"], words)
            with pytest.raises(ConfigProblem, match="totem has no levels of resilience"):
                await node.send(["a", "b"], b"x", resilience=2)
            one: Any = "a"
            with pytest.raises(TypeError, match="the groups of a message are a list"):
                await node.send(one, b"x")
            with pytest.raises(ConfigProblem, match="name each once"):
                await node.send(["a", "a"], b"x")

    run(main)


def test_figures_are_served_at_an_address_of_their_own() -> None:
    async def main() -> None:
        address = free_address()
        async with make_node(metrics=address):
            host, port = address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
            assert b"\nordercast_members 1.0\n" in answer

    run(main)
