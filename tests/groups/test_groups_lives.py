"""Protocols other than Totem, by name, and nodes that come back after having been excluded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from frail_protocol import frail
from group_nodes import make_node, payloads, read, run, until

from absence import turns
from ordercast import (
    ConfigProblem,
    Configuration,
    Excluded,
    Group,
    Message,
    Node,
    OtherProtocol,
    Rejoined,
)
from ordercast.groups import next_life as next_life_module
from ordercast.groups.next_life import NextLife
from ordercast.trace.reader import read_runs
from ordercast.transport import udp

__all__ = ["frail"]

pytestmark = pytest.mark.usefixtures("frail")


@asynccontextmanager
async def frail_nodes(directory: Path | None = None, **given: Any) -> AsyncIterator[list[Node]]:
    """Two nodes that are linked."""
    async with AsyncExitStack() as stack:
        nodes: list[Node] = []
        for number in (1, 2):
            seeds = [nodes[0].address] if nodes else []
            data = None if directory is None else directory / str(number)
            node = make_node(id=number, seeds=seeds, protocol="frail", data=data, **given)
            nodes.append(await stack.enter_async_context(node))
        await until(lambda: all(node.status()["peers"] for node in nodes))
        yield nodes


async def entries(group: Group, until_payload: bytes) -> list[bytes | Configuration]:
    """What a group delivers up to a message."""
    found: list[bytes | Configuration] = []
    async for event in group:
        if isinstance(event, Message | Configuration):
            found.append(event.payload if isinstance(event, Message) else event)
            if found[-1] == until_payload:
                return found
    raise AssertionError("it ended")


async def send_until_heard(group: Group, reader: Group) -> None:
    await (await group.send(b"after", receipt=True))
    await entries(reader, b"after")


# --- choosing -----------------------------------------------------------------------------------


def test_a_node_runs_the_protocol_it_is_told_to() -> None:
    async def main() -> None:
        async with frail_nodes() as (one, two):
            groups = [await node.join("g") for node in (one, two)]
            await groups[1].send(b"x")
            assert [await payloads(group, 1) for group in groups] == [[b"x"], [b"x"]]
            status = two.status()
            assert (status["protocol"], status["role"], status["settled"]) == ("frail", "member", True)

    run(main)


def test_an_unknown_protocol_and_its_unknown_settings_are_refused_in_words() -> None:
    async def main() -> None:
        with pytest.raises(ConfigProblem, match=r"no protocol 'paxos'; there are totem.*frail"):
            await make_node(protocol="paxos").start()
        with pytest.raises(ConfigProblem, match=r"frail: there is no setting speed"):
            await make_node(protocol="frail", settings={"speed": 3}).start()

    run(main)


def test_a_group_lets_nobody_in_who_runs_another_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp, "REFUSED_S", 0.7)

    async def main() -> None:
        async with make_node() as one, make_node(seeds=[one.address]) as two:
            with pytest.raises(OtherProtocol, match="the group runs protocol totem, and this node frail"):
                await make_node(id=1, data=None, seeds=[one.address], protocol="frail").start()
            await one.wait_for([one.id, two.id])

    run(main)


# --- levels -------------------------------------------------------------------------------------


def test_a_message_is_sent_at_a_level_of_resilience() -> None:
    async def main() -> None:
        async with frail_nodes(settings={"nodes": [1, 2]}) as (one, two):
            group, other = await one.join("g"), await two.join("g")
            levels: list[object] = []
            member = one._member
            assert member is not None
            monitored = member.gate.submit

            def submit(some: Any, size: int, guarantee: Any) -> int:
                levels.append(str(guarantee))
                return monitored(some, size, guarantee)

            member.gate.submit = submit  # type: ignore[method-assign,assignment]
            await group.send(b"x", resilience=2)
            await group.send_many([b"y", b"z"], resilience=7)
            assert await payloads(other, 3) == [b"x", b"y", b"z"]
            assert levels == ["k=2", "k=7"]

    run(main)


@pytest.mark.parametrize("many", [False, True])
def test_levels_that_there_are_not_are_refused(many: bool) -> None:
    async def send(group: Group, **how: Any) -> None:
        if many:
            await group.send_many([b"x"], **how)
        else:
            await group.send(b"x", **how)

    async def main() -> None:
        async with make_node() as node:
            with pytest.raises(ConfigProblem, match="totem has no levels of resilience: ask for safe"):
                await send(await node.join("g"), resilience=2)
        async with make_node(id=1, protocol="frail") as node:
            group = await node.join("g")
            with pytest.raises(ValueError, match="no level of resilience 8: choose 1 to 7"):
                await send(group, resilience=8)
            with pytest.raises(ValueError, match="safe and resilience=2 are both given"):
                await send(group, resilience=2, safe=True)

    run(main)


# --- another life -------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False], ids=["data", "memory"])
def test_a_node_that_is_excluded_comes_back_as_another_life(
    kept: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ordercast")

    async def main() -> None:
        async with frail_nodes(tmp_path if kept else None) as (one, two):
            first, second = await one.join("g"), await two.join("g")
            before = two.incarnation
            await first.send(b"halt 2")
            await until(lambda: two.incarnation > before and two.status()["settled"])
            await send_until_heard(second, first)
            seen = await entries(second, b"after")
            assert seen[1] == b"halt 2"
            old, new = seen[0], seen[2]
            assert isinstance(old, Configuration)
            assert not isinstance(old, Rejoined)
            assert isinstance(new, Rejoined)
            assert new.id.seq == 1 + two.incarnation
            assert two.configuration == new
            assert one.incarnation == one.status()["incarnation"]
            assert not one.status()["drops"].get("greeting: id in use")

    run(main)
    told = [record.getMessage() for record in caplog.records]
    assert "the group went on without this node (excluded): it comes back as another life" in told
    assert any("node 2 begins life" in line for line in told)


def test_what_the_old_life_sent_and_did_not_deliver_has_no_receipt() -> None:
    async def main() -> None:
        async with frail_nodes() as (one, two):
            reader, group = await one.join("g"), await two.join("g")
            before = two.incarnation
            sent = await group.send(b"sent", receipt=True)
            assert (await sent).payload == b"sent"
            lost = await group.send(b"unsent", receipt=True)
            with pytest.raises(
                Excluded, match=r"\(excluded\) before this was delivered here; others may have"
            ):
                await lost
            again = await group.send(b"again", receipt=True)
            message = await again
            assert message.id.incarnation == two.incarnation > before
            assert message.id.number == 2, "numbers begin anew; the first has the state of its processes"
            assert [m.payload for m in await read(reader, 2)] == [b"sent", b"again"]

    run(main)


def test_who_sends_between_two_lives_waits_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with frail_nodes() as (one, two):
            member = two._member
            assert member is not None
            gate = asyncio.Event()
            monkeypatch.setattr(NextLife, "_revive", _behind(gate, NextLife._revive))
            reader, group = await one.join("g"), await two.join("g")
            await group.send(b"unsent")
            await until(lambda: not member.driver.live)
            assert two.status()["state"] == "halted"
            assert two.status()["because"] == "excluded"
            sending = asyncio.create_task(group.send(b"patient", receipt=True))
            waiting = asyncio.create_task(two.wait_for(1))
            joining = asyncio.create_task(two.join("g"))
            await turns()
            assert not sending.done()
            assert not joining.done()
            assert not waiting.done(), "the last configuration is one of a life that is over"
            gate.set()
            assert isinstance(await waiting, Rejoined)
            late = await joining
            await (await sending)
            assert await payloads(reader, 1) == [b"patient"]
            first = (await entries(late, b"patient"))[0]
            assert isinstance(first, Rejoined)

    run(main)


def _behind(gate: asyncio.Event, revive: Any) -> Any:
    async def waiting(next_life: NextLife) -> None:
        await gate.wait()
        await revive(next_life)

    return waiting


def test_a_node_can_be_stopped_between_two_lives(tmp_path: Path) -> None:
    async def main() -> None:
        async with frail_nodes(tmp_path) as (_, two):
            group = await two.join("g")
            lost = await group.send(b"unsent", receipt=True)
            with pytest.raises(Excluded):
                await lost
            await two.stop()
            await two.closed()
        assert b'"running":false' in (tmp_path / "2" / "node.json").read_bytes()

    run(main)


def test_a_slow_group_is_told_of_in_the_new_life_too() -> None:
    async def main() -> None:
        async with frail_nodes(receive_buffer=65_536) as (one, two):
            reader = await two.join("g")
            sender = await one.join("g", receive=False)
            await (await one.join("other", receive=False)).send(b"x")
            await sender.send_many([bytes(30_000)] * 3)
            await until(lambda: one.status()["slow_groups"] == {"g": [two.id]})
            before = two.incarnation
            await (await one.join("other", receive=False)).send(b"halt 2")
            await until(lambda: two.incarnation > before and two.status()["settled"])
            await until(lambda: one.status()["slow_groups"] == two.status()["slow_groups"] == {"g": [two.id]})
            assert len(await payloads(reader, 3)) == 3
            await until(lambda: one.status()["slow_groups"] == two.status()["slow_groups"] == {})

    run(main)


def test_lives_that_are_short_follow_each_other_more_and_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_life_module, "REVIVE_S", 0.001)
    monkeypatch.setattr(next_life_module, "MOST_REVIVE_S", 0.003)

    async def main() -> None:
        async with frail_nodes() as (_, two):
            lives = two._running._next_life
            lives._revive_s = 0.001
            waits = []
            group = await two.join("g", receive=False)
            for _ in range(3):
                lost = await group.send(b"unsent", receipt=True)
                with pytest.raises(Excluded):
                    await lost
                waits.append(lives._revive_s)
                await until(lambda: two.status()["settled"])
            assert waits == [0.002, 0.003, 0.003]
            lives._born -= next_life_module.LASTING_S
            await group.send(b"unsent")
            await until(lambda: lives._revive_s == 0.001)

    run(main)


def test_a_protocol_that_does_not_revive_ends_with_its_machine(
    frail: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ordercast.protocols import PROTOCOLS

    monkeypatch.setitem(PROTOCOLS, "frail", frail._replace(revives=False))

    async def main() -> None:
        async with frail_nodes() as (_, two):
            group = await two.join("g")
            await group.send(b"unsent")
            await two.closed()

    run(main)


@pytest.mark.usefixtures("journals")
def test_the_trace_of_a_node_has_all_its_lives(tmp_path: Path) -> None:
    async def main() -> None:
        async with frail_nodes(tmp_path, trace=tmp_path / "trace") as (one, two):
            first, second = await one.join("g"), await two.join("g")
            await first.send(b"halt 2")
            before = two.incarnation
            await until(lambda: two.incarnation > before and two.status()["settled"])
            await send_until_heard(second, first)

    run(main)
    ((_, rows),) = read_runs(tmp_path / "trace")
    lives = sorted({row[1] for row in rows if row[0] == 2})
    assert lives == [lives[0], lives[0] + 1]
    mine = sorted((row for row in rows if row[0] == 2), key=lambda row: row[2])
    told = [row[4] for row in mine]
    again = [row[4] for row in mine if row[1] == lives[1]]
    assert told.index("halt") < told.index("restart", 1) == len(told) - len(again)
    assert again.index("group_join") < again.index("group_view") < again.index("group_deliver")
    assert told[-1] == "halt"
    assert "crash" not in told
