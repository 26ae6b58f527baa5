"""Key, headers and time of sending: from whoever sends to all who receive, and into every log."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from group_nodes import payloads, read, ring, run

from ordercast import Client, Delivery, Message, Node
from ordercast.groups.send_arguments import with_head
from ordercast.log import Replica
from ordercast.log.compare import compare


async def deliveries(group: object, count: int) -> list[Delivery]:
    found: list[Delivery] = []
    async for event in group.batches():  # type: ignore[attr-defined]
        if isinstance(event, Delivery):
            found.append(event)
            if sum(len(each.payloads) for each in found) >= count:
                break
    return found


def test_key_and_headers_come_with_their_message() -> None:
    async def main() -> None:
        async with ring(2) as (one, two):
            mine, its, other = await one.join("g"), await two.join("g"), await two.join("h")
            await mine.send(b"plain")
            await mine.send(b"keyed", key="order 4711", headers={"Trace": "ä1"})
            receipt = await mine.send(b"headed", headers={"a": "b"}, safe=True, receipt=True)
            await one.send(["g", "h"], b"both", key="k")
            found = await read(its, 4)
            assert [(each.payload, each.key, dict(each.headers)) for each in found] == [
                (b"plain", None, {}),
                (b"keyed", "order 4711", {"Key": "order 4711", "Trace": "ä1"}),
                (b"headed", None, {"a": "b"}),
                (b"both", "k", {"Key": "k"}),
            ]
            assert await receipt == found[2]
            assert [each.key for each in await read(other, 1)] == ["k"]
            assert await read(mine, 4) == found
            await mine.send(b"last", key="l")
            (last,) = await deliveries(its, 1)
            assert [message.key for message in last.messages()] == ["l"]
            assert Delivery.of(list(last.messages())) == last
            with pytest.raises(TypeError, match=r"text\.encode"):
                await mine.send("text", key="k")  # type: ignore[call-overload]

    run(main)


def test_when_it_was_sent_is_the_same_at_all_who_get_it() -> None:
    async def main() -> None:
        async with ring(3) as nodes:
            groups = [await node.join("g") for node in nodes]
            before = time.time()
            for number in range(60):
                sender = groups[number % 3]
                await sender.send(b"one")
                await sender.send_many([b"many"] * 9)
            after = time.time()
            heard: list[list[Message]] = [await read(group, 600) for group in groups]
            assert heard[0] == heard[1] == heard[2]
            times = [message.sent_us / 1e6 for message in heard[0]]
            assert before - 0.05 < min(times) <= max(times) < after + 0.05
            for node in nodes:
                own = [message.sent_us for message in heard[0] if message.sender == node.id]
                assert own == sorted(own)

    run(main)


def test_clients_and_members_say_and_read_the_same() -> None:
    async def main() -> None:
        async with ring(2, clients="127.0.0.1:0") as (one, two):
            mine = await one.join("g")
            assert two.client_address is not None
            async with Client(two.client_address) as client:
                its = await client.join("g")
                await client.send("g", b"from the client", key="k", headers={"a": "b"})
                (message,) = await read(mine, 1)
                assert (message.key, message.headers["a"]) == ("k", "b")
                await mine.send(b"from the member", key="l")
                heard = []
                async for told in its:
                    heard.append((told.payload, told.key))
                    if len(heard) == 2:
                        break
                assert heard == [(b"from the client", "k"), (b"from the member", "l")]

    run(main)


def test_all_logs_have_the_same_times_and_heads(tmp_path: Path) -> None:
    async def main() -> None:
        logs = [tmp_path / "one", tmp_path / "two"]
        async with (
            Node(listen="127.0.0.1:0", data=tmp_path / "d1", log=logs[0]) as one,
            Node(listen="127.0.0.1:0", seeds=[one.address], data=tmp_path / "d2", log=logs[1]) as two,
        ):
            await one.wait_for([one.id, two.id])
            await two.wait_for([one.id, two.id])
            mine, its = await one.join("g"), await two.join("g")
            for number in range(50):
                await mine.send(b"x" * number, key=str(number) if number % 3 == 0 else None)
                await its.send_many([b"y"] * 20)
            await payloads(mine, 1050)
            heard = await read(its, 1050)
        with Replica(str(logs[0])) as left, Replica(str(logs[1])) as right:
            assert compare(left, right).equal
            head = right.bounds().head
            assert head is not None
            rows = [row for batch in right.read(None, head, "g", heads=True) for row in batch.to_pylist()]
        told = [(row["payload"], row["sent_us"], row["head"]) for row in rows if row["kind"] == "message"]
        assert told == [(message.payload, message.sent_us, message.head) for message in heard][: len(told)]
        assert len(told) > 500

    run(main)


def test_a_message_with_nothing_beside_it_stays_as_it_is() -> None:
    assert with_head(b"plain", None, None) == (b"plain", False)
    assert with_head(b"plain", None, {}) == (b"plain", False)
    assert with_head(b"keyed", "k", None)[1]
