"""Applications that read too little, or answer what they read: no group stands still, none for another."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest
from group_nodes import payloads, read, ring, run, until

from ordercast import Delivery, Evicted, Group, Message, Node, NodeClosed, SendTimeout
from ordercast.groups import reader as reader_module
from ordercast.groups import upkeep
from ordercast.groups.reader import READING

SMALL: dict[str, Any] = {"send_buffer": 4096, "receive_buffer": 65_536}
"""Buffers that are soon full."""
WAITING = {**SMALL, "evict_after": math.inf}
"""And nobody is given up: what must not hang would hang."""
REQUEST, REPLY = b"?" * 1000, b"!" * 1000
MANY = 300
"""Requests: several times what a reader may leave unread."""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers are looked at ten times a second."""
    monkeypatch.setattr(upkeep, "INTERVAL_S", 0.1)


async def slow_at(nodes: list[Node], group: str, holder: Node) -> None:
    """Wait until all know that a reader at `holder` does not keep up with the group."""
    await until(lambda: all(node.status()["slow_groups"].get(group) == [holder.id] for node in nodes))


async def fill(nodes: list[Node], reader: Node) -> tuple[Group, asyncio.Task[None]]:
    """Have the first node send more to group ``g`` than `reader` has room for; its group, and the sending."""
    its = await reader.join("g")
    group = await nodes[0].join("g", receive=False)
    sending = asyncio.create_task(group.send_many([REQUEST] * MANY))
    await slow_at(nodes, "g", reader)
    return its, sending


async def answer(group: Group, safe: bool, most: int) -> int:
    """What an application does: answer requests as they are read. How many there were."""
    answered = 0
    async for event in group:
        if isinstance(event, Message) and event.payload == REQUEST:
            await group.send(REPLY, safe=safe)
            answered += 1
            if answered == most:
                break
    return answered


# --- answering what is read -------------------------------------------------------------------------


@pytest.mark.untraced
@pytest.mark.parametrize("sealed", [False, True], ids=["open", "sealed"])
@pytest.mark.parametrize("protocol", ["totem", "total"])
def test_who_answers_what_it_reads_never_waits_for_itself(protocol: str, sealed: bool) -> None:
    given: dict[str, Any] = {"key": bytes(range(32))} if sealed else {}

    async def main() -> None:
        async with ring(3, protocol=protocol, **WAITING, **given) as nodes:
            one, two, three = nodes
            for safe in (False, True):
                group, other = f"g {safe}", f"other {safe}"
                asking, its = await one.join(group, receive=False), await two.join(group)
                replies = await three.join(group)
                sending = asyncio.create_task(asking.send_many([REQUEST] * MANY, safe=safe))
                reading = asyncio.create_task(read(replies, 2 * MANY))
                await slow_at(nodes, group, two)
                heard = await three.join(other)
                await (await one.join(other, receive=False)).send(b"goes on", safe=safe)
                assert await payloads(heard, 1) == [b"goes on"], "another group does not wait"
                assert await answer(its, safe, MANY) == MANY
                await sending
                assert [message.payload for message in await reading].count(REPLY) == MANY

    run(main)


@pytest.mark.parametrize("protocol", ["totem", "total"])
@pytest.mark.parametrize("safe", [False, True], ids=["agreed", "safe"])
def test_two_that_answer_each_other_do_not_wait_for_each_other(protocol: str, safe: bool) -> None:
    async def main() -> None:
        async with ring(2, protocol=protocol, **WAITING) as nodes:
            inboxes = [await node.join("g") for node in nodes]
            asking = [await node.join("g", receive=False) for node in nodes]
            sending = [asyncio.create_task(group.send_many([REQUEST] * MANY)) for group in asking]
            await until(lambda: all(len(node.status()["slow_groups"].get("g", [])) == 2 for node in nodes))
            answered = await asyncio.gather(*(answer(group, safe, 2 * MANY) for group in inboxes))
            assert answered == [2 * MANY, 2 * MANY]
            await asyncio.gather(*sending)

    run(main)


def test_readers_of_two_groups_that_send_to_each_others() -> None:
    async def main() -> None:
        async with ring(2, **WAITING) as nodes:
            names = ("there", "back")
            there, back = [await nodes[0].join(name) for name in names]
            senders = [await nodes[1].join(name, receive=False) for name in names]
            sending = [asyncio.create_task(group.send_many([REQUEST] * MANY)) for group in senders]
            for name in names:
                await slow_at(nodes, name, nodes[0])

            async def pass_on(source: Group, target: Group) -> None:
                passed = 0
                async for event in source:
                    if isinstance(event, Message) and event.payload == REQUEST:
                        await target.send(REPLY)
                        passed += 1
                        if passed == MANY:
                            return

            await asyncio.gather(pass_on(there, back), pass_on(back, there), *sending)

    run(main)


async def by_batches(group: Group) -> AsyncIterator[bytes]:
    async for entry in group.batches():
        if isinstance(entry, Delivery):
            for payload in entry.payloads:
                yield payload


async def one_by_one_in_tasks(group: Group) -> AsyncIterator[bytes]:
    events = aiter(group)
    while True:
        event = await asyncio.wait_for(anext(events), 5)
        if isinstance(event, Message):
            yield event.payload


@pytest.mark.parametrize("way", [by_batches, one_by_one_in_tasks])
@pytest.mark.parametrize("sent", ["one", "many", "in a task"])
def test_however_it_reads_and_sends(way: Any, sent: str) -> None:
    async def main() -> None:
        async with ring(2, **WAITING) as nodes:
            its, sending = await fill(nodes, nodes[1])
            answered = 0
            async for payload in way(its):
                if payload == REQUEST:
                    match sent:
                        case "one":
                            await its.send(REPLY)
                        case "many":
                            await its.send_many([REPLY])
                        case "in a task":
                            await asyncio.wait_for(its.send(REPLY), 10)
                    answered += 1
                    if answered == MANY:
                        break
            await sending

    run(main)


def test_an_answer_to_everything_by_everybody_ends_with_an_error(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message makes three: no memory is enough. Who falls behind is dropped; nobody waits for ever."""
    monkeypatch.setattr(reader_module, "IN_FLIGHT", 0)

    async def main() -> None:
        async with ring(3, **SMALL) as nodes:

            async def echo(group: Group) -> None:
                async for event in group:
                    if isinstance(event, Message):
                        await group.send(event.payload)

            storm = [asyncio.create_task(echo(await node.join("storm"))) for node in nodes]
            await (await nodes[0].join("storm", receive=False)).send(bytes(500))
            ended = await asyncio.gather(*storm, return_exceptions=True)
            assert {type(error) for error in ended} == {Evicted}
            most = max(node.status()["unread_bytes"] for node in nodes)
            assert most < 3 * 2**20, "what waits is bounded"
            quiet = [await node.join("quiet") for node in nodes]
            await quiet[0].send(b"after the storm")
            assert [await payloads(group, 1) for group in quiet] == [[b"after the storm"]] * 3

    run(main)


def test_work_that_is_handed_on_to_others_who_send(quick: None) -> None:
    """The task that reads is not the one that sends: it is given up before it is dropped, and goes on."""

    async def main() -> None:
        async with ring(2, evict_after=3.0, **SMALL) as nodes:
            inboxes = [await node.join("g") for node in nodes]
            asking = [await node.join("g", receive=False) for node in nodes]
            sending = [asyncio.create_task(group.send_many([REQUEST] * MANY)) for group in asking]
            await until(lambda: all(len(node.status()["slow_groups"].get("g", [])) == 2 for node in nodes))

            async def reads(group: Group, work: asyncio.Queue[bytes]) -> None:
                for message in await read(group, 1):
                    await work.put(message.payload)
                async for event in group:
                    if isinstance(event, Message) and event.payload == REQUEST:
                        await work.put(event.payload)

            async def works(group: Group, work: asyncio.Queue[bytes]) -> None:
                for _ in range(2 * MANY):
                    await work.get()
                    await group.send(REPLY)

            queues: list[asyncio.Queue[bytes]] = [asyncio.Queue(5), asyncio.Queue(5)]
            workers = [asyncio.create_task(works(*pair)) for pair in zip(inboxes, queues, strict=True)]
            readers = [asyncio.create_task(reads(*pair)) for pair in zip(inboxes, queues, strict=True)]
            await asyncio.gather(*workers, *sending)
            for reader in readers:
                reader.cancel()
            assert [type(e) for e in await asyncio.gather(*readers, return_exceptions=True)] == [
                asyncio.CancelledError
            ] * 2

    run(main)


async def collect(group: Group, found: list[object]) -> None:
    async for event in group:
        found.append(event)


async def dropped(group: Group) -> None:
    """Wait until its reader is."""
    await until(lambda: group._inbox.ended)


# --- not reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["totem", "total"])
def test_a_group_that_is_joined_and_never_read_stops_nobody_for_long(protocol: str, quick: None) -> None:
    async def main() -> None:
        async with ring(2, protocol=protocol, evict_after=0.5, **SMALL) as nodes:
            one, two = nodes
            never, twice = await one.join("g"), await two.join("g")
            reading = asyncio.create_task(read(twice, 2 * MANY))
            sender = await two.join("g", receive=False)
            for _ in range(2):
                await sender.send_many([REQUEST] * MANY)
            assert len(await reading) == 2 * MANY
            await dropped(never)
            had: list[object] = []
            with pytest.raises(Evicted, match="evict_after") as told:
                await collect(never, had)
            assert sum(isinstance(event, Message) for event in had) == told.value.messages > 1
            assert told.value.bytes > SMALL["receive_buffer"]
            with pytest.raises(Evicted, match="Join the group again"):
                await anext(aiter(never))
            await never.send(b"it can still send")
            again = await one.join("g")
            await sender.send(b"and join again")
            assert (await payloads(again, 1))[-1] in (b"it can still send", b"and join again")
            assert len(one.members) == 2, "its node is still a member"
            await never.leave()

    run(main)


def test_of_two_readers_of_a_group_the_one_that_stands_still_is_dropped(quick: None) -> None:
    async def main() -> None:
        async with ring(1, evict_after=0.5, **SMALL) as (node,):
            stands, reads = await node.join("g"), await node.join("g")
            sender = await node.join("g", receive=False)
            reading = asyncio.create_task(read(reads, MANY))
            await sender.send_many([REQUEST] * MANY)
            assert len(await reading) == MANY
            await dropped(stands)
            with pytest.raises(Evicted):
                await collect(stands, [])

    run(main)


def test_a_reader_that_is_cancelled_and_taken_up_again_is_not_dropped(quick: None) -> None:
    async def main() -> None:
        async with ring(2, evict_after=1.0, **SMALL) as nodes:
            its, sending = await fill(nodes, nodes[1])
            found: list[object] = []
            while len(found) < MANY + 1:
                reading = asyncio.create_task(collect(its, found))
                await asyncio.sleep(0.001)
                reading.cancel()
            await sending

    run(main)


def test_leaving_with_unread_messages_lets_others_go_on() -> None:
    async def main() -> None:
        async with ring(2, **SMALL) as nodes:
            its, sending = await fill(nodes, nodes[1])
            await its.leave()
            await sending
            assert nodes[1].status()["unread_by_group"] == {}

    run(main)


def test_a_member_that_is_slow_and_goes_slows_nobody() -> None:
    async def main() -> None:
        async with ring(3, **SMALL) as nodes:
            its, sending = await fill(nodes, nodes[2])
            await nodes[2].stop()
            await sending
            assert nodes[0].status()["slow_groups"] == {}
            with pytest.raises(NodeClosed):
                await its.send(b"x")

    run(main)


def test_who_comes_later_hears_of_slow_groups() -> None:
    async def main() -> None:
        async with ring(2, **SMALL) as nodes:
            its, sending = await fill(nodes, nodes[1])
            late = Node(listen="127.0.0.1:0", seeds=[nodes[0].address], **SMALL)
            async with late:
                await slow_at([*nodes, late], "g", nodes[1])
                with pytest.raises(SendTimeout, match="does not read the group g") as error:
                    await (await late.join("g", receive=False)).send(b"x", timeout=0.1)
                assert error.value.holder == nodes[1].id
                await its.leave()
                await sending

    run(main)


def test_stopping_ends_sends_that_wait_for_a_slow_reader() -> None:
    async def main() -> None:
        async with ring(2, **SMALL) as nodes:
            its, sending = await fill(nodes, nodes[1])
            await asyncio.sleep(0)
            await nodes[0].stop()
            with pytest.raises(NodeClosed):
                await sending
            await its.leave()

    run(main)


def test_a_task_remembers_only_groups_that_it_has_not_left() -> None:
    async def main() -> None:
        async with ring(1) as (node,):
            for _ in range(5):
                group = await node.join("g")
                await anext(aiter(group))
                await group.leave()
            assert len(READING.get()) == 1

    run(main)
