"""How a real group of the sequencer family begins: nobody has to say a number, and none is begun twice."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

import pytest
from group_nodes import make_node, payloads, ring, run, together

from free_ports import free_address
from ordercast import Node
from ordercast.errors import ConfigProblem
from ordercast.groups.founders import is_own, who_begins, with_founders
from ordercast.groups.member import Member
from ordercast.protocols import PROTOCOLS
from ordercast.runtime.config import NodeConfig
from ordercast.viewsync.header import header
from ordercast.viewsync.packets import Answer, Group, Heartbeat, encode

FAMILY = [name for name, protocol in PROTOCOLS.items() if protocol.primary_partition]
OWN = ("10.0.0.1", 4801)


def founders(config: NodeConfig, *hosts: str, own: tuple[str, int] = OWN) -> object:
    """What follows for a node at `own` that is told of these, each a node's only address."""
    listed = {f"{host}:4801": [(host, 4801)] for host in hosts}
    return with_founders(config, PROTOCOLS["total"], listed, own).protocol_settings.get("founders")


# --- what a node concludes from what it is told -------------------------------------------------------


def test_a_node_that_is_told_of_nobody_is_the_first() -> None:
    assert founders(NodeConfig(protocol="total")) == 1


def test_one_that_is_told_of_others_joins_them() -> None:
    config = NodeConfig(protocol="total", seeds=("10.0.0.2:4801",))
    assert founders(config, "10.0.0.2") == 0


@pytest.mark.parametrize(("count", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_of_a_list_that_it_is_on_more_than_half_have_to_agree(count: int, needed: int) -> None:
    hosts = [f"10.0.0.{number}" for number in range(1, count + 1)]
    config = NodeConfig(protocol="total", seeds=tuple(f"{host}:4801" for host in hosts))
    assert founders(config, *hosts) == needed


def test_of_all_peers_more_than_half_have_to_agree_whether_or_not_the_own_address_is_listed() -> None:
    peers = ("10.0.0.1:4801", "10.0.0.2:4801", "10.0.0.3:4801")
    assert founders(NodeConfig(protocol="total", peers=peers), "10.0.0.1", "10.0.0.2", "10.0.0.3") == 2
    assert founders(NodeConfig(protocol="total", peers=peers[1:]), "10.0.0.2", "10.0.0.3") == 2


def test_what_the_user_says_counts_and_other_protocols_know_no_such_thing() -> None:
    told = NodeConfig(protocol="total", protocol_settings={"founders": 4})
    assert founders(told) == 4
    plain = NodeConfig(protocol="totem")
    assert with_founders(plain, PROTOCOLS["totem"], {}, OWN) is plain


@pytest.mark.parametrize(
    ("founders", "seeds", "sentence"),
    [
        (2, ("10.0.0.1:4801", "10.0.0.2:4801", "10.0.0.3:4801"), "2 nodes have to be up to begin a group"),
        (1, (), "others of its last group have to be up"),
        (0, (), "others of its last group have to be up"),
        (0, ("10.0.0.2:4801",), "it waits to be let in by the group of 10.0.0.2:4801"),
    ],
)
def test_a_node_that_is_in_no_group_says_what_it_waits_for(
    founders: int, seeds: tuple[str, ...], sentence: str
) -> None:
    config = NodeConfig(protocol="total", seeds=seeds, protocol_settings={"founders": founders})
    assert who_begins(config).startswith(sentence)


def test_a_name_for_several_nodes_leaves_it_open_so_the_user_is_asked() -> None:
    config = NodeConfig(protocol="total", seeds=("nodes.example:4801",))
    listed = {"nodes.example:4801": [OWN, ("10.0.0.2", 4801)]}
    with pytest.raises(ConfigProblem, match=r"stands for 2 addresses.*set founders in \[total\]"):
        with_founders(config, PROTOCOLS["total"], listed, OWN)


def test_the_own_address_is_known_also_behind_all_interfaces() -> None:
    assert is_own(("127.0.0.1", 4801), ("127.0.0.1", 4801))
    assert is_own(("0.0.0.0", 4801), ("127.0.0.1", 4801))
    assert not is_own(("0.0.0.0", 4801), ("127.0.0.1", 4802))
    assert not is_own(("0.0.0.0", 4801), ("192.0.2.1", 4801)), "an address of nobody (RFC 5737)"
    assert not is_own(("127.0.0.1", 4801), ("127.0.0.2", 4801))


# --- live -------------------------------------------------------------------------------------------


async def check_order(nodes: list[Node]) -> None:
    groups = [await node.join("news") for node in nodes]
    await asyncio.gather(*(group.send(b"%d" % at) for at, group in enumerate(groups)))
    read = await asyncio.gather(*(payloads(group, len(nodes)) for group in groups))
    assert all(each == read[0] for each in read)


@pytest.mark.parametrize("protocol", FAMILY)
def test_the_first_begins_alone_and_the_others_join_it(protocol: str) -> None:
    async def main() -> None:
        async with ring(3, protocol=protocol) as nodes:
            await check_order(nodes)

    run(main)


def test_nodes_with_one_list_begin_together(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        addresses = [free_address() for _ in range(3)]
        nodes = [make_node(listen=address, seeds=addresses, protocol="total") for address in addresses]
        async with AsyncExitStack() as stack:
            first = asyncio.create_task(stack.enter_async_context(nodes[0]))
            while "nodes have to be up to begin a group" not in caplog.text:
                assert not first.done(), "one of three begins nothing"
                await asyncio.sleep(0.01)
            await asyncio.gather(first, *map(stack.enter_async_context, nodes[1:]))
            await together(nodes)
            await check_order(nodes)

    monkeypatch.setattr("ordercast.groups.member.JOIN_LOG_INTERVAL_S", 0.7)
    with caplog.at_level(logging.WARNING, "ordercast"):
        run(main)


def test_who_is_told_of_a_group_that_is_not_there_waits_and_says_for_whom(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        seed = free_address()
        async with AsyncExitStack() as stack:
            early = make_node(seeds=[seed], protocol="cm")
            waits = asyncio.create_task(stack.enter_async_context(early))
            while "it waits to be let in by the group of" not in caplog.text:
                assert not waits.done()
                await asyncio.sleep(0.01)
            late = await stack.enter_async_context(make_node(listen=seed, protocol="cm"))
            await waits
            await together([early, late])

    monkeypatch.setattr("ordercast.groups.member.JOIN_LOG_INTERVAL_S", 0.7)
    with caplog.at_level(logging.WARNING, "ordercast"):
        run(main)


# --- forged word of an older group --------------------------------------------------------------------


def member_of(node: Node) -> Member:
    return node._member  # type: ignore[return-value]


@pytest.mark.untraced
@pytest.mark.parametrize("protocol", FAMILY)
def test_forged_heartbeats_of_an_older_group_end_no_group(protocol: str) -> None:
    """They come from a member's own address; who is said to have sent them does not answer for them."""

    async def main() -> None:
        async with ring(3, protocol=protocol) as nodes:
            lives = [member_of(node).incarnation for node in nodes]
            before = nodes[0].configuration
            older = Group(1, 1)
            for turn in range(60):
                driver = member_of(nodes[turn % 3]).driver
                for sender in (*(node.id for node in nodes), 99):
                    for packet in (Heartbeat(older, 0, False), Answer(older, turn)):
                        kind, body = encode(packet)
                        front = header(kind, before.id._replace(seq=before.id.seq + 5), sender, 0)
                        driver._out[0].append(front + body)
                driver._flush()
                await asyncio.sleep(0.005)
            await together(nodes)
            await check_order(nodes)
            assert [member_of(node).incarnation for node in nodes] == lives
            assert nodes[0].configuration == before

    run(main)
