"""Nodes find each other and deliver the same messages in the same order, however they are set up."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from group_nodes import ANYWHERE, make_node, payloads, read, ring, run, together, until

from absence import turns
from free_ports import free_address, free_port
from ordercast import (
    AddressProblem,
    Configuration,
    ConfigurationChange,
    Delivery,
    DuplicateNode,
    Ended,
    KeyProblem,
    Kind,
    Message,
    Node,
    NodeClosed,
    StorageProblem,
)
from ordercast.audit.files import audit_trace
from ordercast.keys import generate, written

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


async def check_order(nodes: list[Node], messages: int = 60) -> None:
    """Everybody sends; everybody delivers the same, in the same order."""
    groups = [await node.join("orders") for node in nodes]
    for number in range(messages):
        for node, group in zip(nodes, groups, strict=True):
            await group.send(b"%d of %d" % (number, node.id), safe=number % 3 == 0)
    orders = [await read(group, messages * len(nodes)) for group in groups]
    for order in orders:
        assert order == orders[0]
    for node in nodes:
        own = [message.payload for message in orders[0] if message.sender == node.id]
        assert own == [b"%d of %d" % (number, node.id) for number in range(messages)]
    assert [(m.configuration, m.seq, m.slot) for m in orders[0]] == sorted(
        (m.configuration, m.seq, m.slot) for m in orders[0]
    )


# --- ways to be set up --------------------------------------------------------------------------


@LOOPS
@pytest.mark.parametrize("sealed", [False, True], ids=["open", "sealed"])
def test_three_nodes_deliver_the_same_order(loop: str, sealed: bool) -> None:
    given: dict[str, Any] = {"key": generate()} if sealed else {}

    async def main() -> None:
        async with ring(3, **given) as nodes:
            await check_order(nodes)
            assert all(node.status()["sealed"] is sealed for node in nodes)

    run(main, loop)


def test_one_node_alone() -> None:
    async def main() -> None:
        async with make_node() as node:
            assert node.members == (node.id,)
            await check_order([node])

    run(main)


def test_over_six() -> None:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no ::1")

    async def main() -> None:
        async with ring(3, listen="[::1]:0") as nodes:
            assert all(node.address.startswith("[::1]:") for node in nodes)
            await check_order(nodes)

    run(main)


def test_chacha() -> None:
    async def main() -> None:
        async with ring(2, key=generate(), cipher="chacha20-poly1305") as nodes:
            await check_order(nodes)

    run(main)


def test_by_multicast() -> None:
    async def main() -> None:
        port = free_port()
        given = {"multicast": f"239.66.7.8:{port}", "interface": "lo", "insecure": True, "key": generate()}
        async with ring(3, **given) as nodes:
            await check_order(nodes)

    run(main)


def test_a_small_mtu_and_a_large_one() -> None:
    async def main() -> None:
        for mtu in (576, 65_535):
            async with ring(2, mtu=mtu) as nodes:
                await check_order(nodes, 20)

    run(main)


def test_a_list_of_all_peers_lets_nobody_else_in() -> None:
    async def main() -> None:
        addresses = [free_address() for _ in range(3)]
        nodes = [make_node(listen=address, peers=addresses) for address in addresses]
        try:
            await asyncio.gather(*(node.start() for node in nodes))
            await together(nodes)
            async with make_node(seeds=[addresses[0]]) as stranger:
                await check_order(nodes)
                assert stranger.members == (stranger.id,)
            reasons = nodes[0].status()["drops"]
            assert any("list of peers" in reason for reason in reasons)
        finally:
            await asyncio.gather(*(node.stop() for node in nodes))

    run(main)


def test_the_own_address_may_be_among_the_seeds() -> None:
    async def main() -> None:
        addresses = [free_address() for _ in range(3)]
        nodes = [make_node(listen=address, seeds=addresses) for address in addresses]
        try:
            await asyncio.gather(*(node.start() for node in nodes))
            await together(nodes)
            await check_order(nodes)
        finally:
            await asyncio.gather(*(node.stop() for node in nodes))

    run(main)


def test_a_seed_that_is_down_first_and_comes_up_later() -> None:
    async def main() -> None:
        seed = free_address()
        async with make_node(seeds=[seed]) as early:
            assert early.members == (early.id,)
            async with make_node(listen=seed) as late:
                await together([early, late])
                await check_order([early, late])

    run(main)


def test_without_seeds_a_name_for_a_seed_and_none() -> None:
    async def main() -> None:
        async with make_node(seeds=None) as one:
            port = one.address.rpartition(":")[2]
            async with make_node(seeds=[f"localhost:{port}"]) as two:
                await together([one, two])

    run(main)


def test_default_ports_move_up_when_they_are_taken() -> None:
    async def main() -> None:
        async with Node() as one, Node() as two:
            assert one.address != two.address

    run(main)


def test_members_come_and_go() -> None:
    async def main() -> None:
        async with make_node() as first:
            group = await first.join("news")
            async with make_node(seeds=[first.address]) as second:
                await together([first, second])
                await (await second.join("news")).send(b"hello")
                assert await payloads(group, 1) == [b"hello"]
            await until(lambda: first.members == (first.id,))
            await group.send(b"alone")
            seen: list[object] = []
            async for event in group:
                if isinstance(event, Message | Configuration):
                    seen.append(event.kind if isinstance(event, Configuration) else event.payload)
                if seen[-1:] == [b"alone"]:
                    break
            assert seen[-2:] == [Kind.REGULAR, b"alone"]

    run(main)


def test_another_life_of_a_node_with_a_directory(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_node(data=tmp_path / "one") as node:
            first = (node.id, node.incarnation)
        async with make_node(data=str(tmp_path / "one")) as node:
            assert (node.id, node.incarnation) == (first[0], first[1] + 1)
            await check_order([node], 5)

    run(main)


@pytest.mark.parametrize("protocol", ["totem", "dtp"])
def test_each_change_says_what_it_ends_and_where(protocol: str, tmp_path: Path) -> None:
    """000 §4.1, §6.1: a chain of changes, each from the configuration before, behind its last message."""
    trace = tmp_path / "trace"
    found: list[Message | ConfigurationChange] = []

    async def main() -> None:
        given: dict[str, Any] = {"protocol": protocol, "trace": trace}
        if protocol != "totem":
            given["settings"] = {"founders": 1}
        async with make_node(**given) as first:
            group = await first.join("g")
            for payload in (b"1", b"2"):
                await group.send(payload, safe=True, receipt=True)
            async with make_node(seeds=[first.address], **given) as second:
                await together([first, second])
                await group.send(b"3")
                async for event in group:
                    if isinstance(event, Message | ConfigurationChange):
                        found.append(event)
                    if isinstance(event, Message) and event.payload == b"3":
                        return

    run(main)
    begin, *rest = found
    assert isinstance(begin, ConfigurationChange), "where it is comes first"
    here, last = begin.id, 0
    for event in rest:
        if isinstance(event, Message):
            last = event.seq
        else:
            assert event.ended == Ended(here, last)
            here, last = event.id, last if event.kind is Kind.TRANSITIONAL else 0
    assert sum(isinstance(event, ConfigurationChange) for event in found) >= 2
    report = audit_trace(trace)
    assert report.properties["config-ends"] == 0
    assert report.clean, report.violations


def test_a_trace_is_written(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_node(trace=tmp_path / "trace") as node:
            await check_order([node], 5)
        assert list((tmp_path / "trace").iterdir())

    run(main)


# --- wrong ways ---------------------------------------------------------------------------------


def test_a_second_node_with_an_identifier_is_refused() -> None:
    async def main() -> None:
        async with make_node(id=7) as first:
            with pytest.raises(DuplicateNode, match="7 is in use"):
                await make_node(id=7, seeds=[first.address]).start()
            assert first.members == (7,)
            await check_order([first], 3)

    run(main)


def test_another_key_makes_no_link() -> None:
    async def main() -> None:
        async with make_node(key=generate()) as one:
            async with make_node(key=written(generate()), seeds=[one.address]) as two:
                assert two.members == (two.id,)
                with pytest.raises(TimeoutError, match=r"has the members .* links to nobody: .*keys"):
                    await two.wait_for(2, timeout=0.2)
            assert sum(one.status()["drops"].values()) > 0

    run(main)


def test_an_address_in_use() -> None:
    async def main() -> None:
        async with make_node() as one:
            with pytest.raises(AddressProblem, match=r"in use.*`listen`"):
                await make_node(listen=one.address).start()

    run(main)


@pytest.mark.parametrize(
    "given", [{"seeds": ["nobody.invalid:4801"], "listen": "0.0.0.0:0"}, {"listen": "nobody.invalid:4801"}]
)
def test_names_that_cannot_be_resolved(given: dict[str, Any]) -> None:
    async def main() -> None:
        with pytest.raises(AddressProblem, match=r"nobody\.invalid.* cannot be resolved"):
            await Node(insecure=True, **given).start()

    run(main)


def test_a_key_file_that_is_not_there(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(KeyProblem, match="nokey"):
            await make_node(key=tmp_path / "nokey").start()

    run(main)


def test_a_key_as_text_may_have_space_around_it() -> None:
    key = written(generate())

    async def main() -> None:
        async with make_node(key=key) as one, make_node(key=f"\n {key} \n", seeds=[one.address]) as two:
            await together([one, two])

    run(main)


def test_an_empty_key_is_no_key() -> None:
    with pytest.raises(KeyProblem, match="empty"):
        make_node(key="")


def test_a_directory_that_is_in_use(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_node(data=tmp_path) as one:
            with pytest.raises(StorageProblem, match="in use by process"):
                await make_node(data=tmp_path, seeds=[one.address]).start()

    run(main)


@pytest.mark.parametrize("what", ["taken", "full"])
def test_a_start_that_failed_gives_everything_back(tmp_path: Path, what: str) -> None:
    async def main() -> None:
        async with make_node() as other:
            listen = other.address if what == "taken" else ANYWHERE
            (tmp_path / "file").write_text("no directory")
            trace = tmp_path / "file" / "trace" if what == "full" else None
            failed = make_node(data=tmp_path / "data", listen=listen, trace=trace)
            with pytest.raises((AddressProblem, StorageProblem)):
                await failed.start()
            await failed.stop()
            with pytest.raises((AddressProblem, StorageProblem, NodeClosed)):
                await failed.join("orders")
        async with make_node(data=tmp_path / "data", listen=other.address):
            pass

    run(main)


async def start_in_the_end(data: Path, listen: str) -> Node:
    """No cancellation ends a thread that opens files: what it holds is given back when it is done."""
    while True:
        node = make_node(data=data, listen=listen)
        try:
            await node.start()
        except StorageProblem:
            await asyncio.sleep(0.005)
        else:
            return node


def test_a_start_that_was_cancelled_gives_everything_back(tmp_path: Path) -> None:
    async def main() -> None:
        listen = free_address()
        for further in (1, 10, 100):
            node = make_node(data=tmp_path, listen=listen, seeds=[free_address()])
            task = asyncio.create_task(node.start())
            await turns(further)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await (await start_in_the_end(tmp_path, listen)).stop()

    run(main)


# --- looking ------------------------------------------------------------------------------------


def test_status_is_json_and_tells_who_is_there() -> None:
    async def main() -> None:
        async with ring(2) as (one, two):
            await check_order([one, two], 10)
            status = json.loads(json.dumps(one.status()))
            assert status["node"] == one.id
            assert status["state"] == "operational"
            assert status["configuration"]["members"] == sorted([one.id, two.id])
            assert status["configuration"]["kind"] == "regular"
            assert [peer["node"] for peer in status["peers"]] == [two.id]
            assert status["peers"][0]["address"] == two.address
            assert status["delivered"] >= 20
            assert status["sent"] >= 10, "the notes of process groups among them"
            assert status["buffers"]["granted"] > 0
            assert status["queued_bytes"] == 0
            assert status["unread_bytes"] >= 0
            assert set(status["waits_us"]) <= {str(one.id), str(two.id)}

    run(main)


def test_waiting_for_members() -> None:
    async def main() -> None:
        async with ring(2) as (one, two):
            assert len((await one.wait_for(2)).members) == 2
            assert two.id in (await one.wait_for([two.id])).members
            waiting = asyncio.create_task(one.wait_for(3))
            forever = asyncio.create_task(one.wait_for([999_999]))
            async with make_node(seeds=[two.address]) as three:
                assert three.id in (await waiting).members
            forever.cancel()
            with pytest.raises(asyncio.CancelledError):
                await forever
            ending = asyncio.create_task(one.wait_for(9))
            await asyncio.sleep(0)
            await one.stop()
            with pytest.raises(NodeClosed):
                await ending

    run(main)


def test_batches_are_the_same_messages() -> None:
    async def main() -> None:
        async with ring(2) as (one, two):
            by_one, by_batch = await two.join("g"), await two.join("g")
            await (await one.join("g", receive=False)).send_many([b"%d" % n for n in range(1000)])
            single = await read(by_one, 1000)
            batched: list[Message] = []
            async for entry in by_batch.batches():
                if isinstance(entry, Delivery):
                    batched += entry.messages()
                if len(batched) == 1000:
                    break
            assert batched == single
            first = single[0].id.number
            assert [m.id.number for m in single] == list(range(first, first + 1000))

    run(main)
