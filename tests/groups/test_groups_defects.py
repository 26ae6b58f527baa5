"""A machine that raises on a packet, on a live node: its life ends, the packet is kept, the node goes on."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from group_nodes import make_node, run, together, until

from free_ports import free_address
from ordercast import Excluded, Message, Node, Rejoined
from ordercast.audit.files import audit_trace
from ordercast.core.contract import Effect, Event, Packet
from ordercast.groups import defects, next_life
from ordercast.groups.assembly import machine_of
from ordercast.transport.interface import Capacity

pytestmark = pytest.mark.usefixtures("journals")
POISON = b"a packet that no machine was made for"


def sickened(config: Any, node: int, capacity: Capacity) -> Any:
    """The real machine; at node 2 the first packet with the poison raises, half-way."""
    machine = machine_of(config, node, capacity)
    handle = machine.handle
    taken: list[Event] = []

    def sick(now_us: int, event: Event) -> Sequence[Effect]:
        effects = handle(now_us, event)
        if node == 2 and isinstance(event, Packet) and POISON in event.data and not taken:
            taken.append(event)
            raise ZeroDivisionError("a defect")
        return effects

    machine.handle = sick  # type: ignore[method-assign]
    return machine


@pytest.mark.parametrize("protocol", ["totem", "cm"])
def test_a_machine_that_raises_on_a_packet_comes_back_as_another_life(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ordercast")
    lives: Counter[int] = Counter()

    def build(config: Any, node: int, capacity: Capacity) -> Any:
        lives[node] += 1
        well = protocol != "totem" and lives[node] > 1
        return (machine_of if well else sickened)(config, node, capacity)

    monkeypatch.setattr("ordercast.groups.assembly.machine_of", build)
    monkeypatch.setattr(next_life, "REVIVE_S", 0.01)

    async def main() -> None:
        nodes: list[Node] = []
        settings = {} if protocol == "totem" else {"founders": 3}
        for id in (1, 2, 3):
            seeds = [node.config.listen or "" for node in nodes]
            given: dict[str, Any] = {"data": tmp_path / str(id), "trace": tmp_path / "trace"}
            node = make_node(
                id=id, listen=free_address(), seeds=seeds, protocol=protocol, settings=settings, **given
            )
            nodes.append(node)
        await asyncio.gather(*(node.start() for node in nodes))
        try:
            await together(nodes)
            one, two, _ = nodes
            before = two.incarnation
            groups = [await node.join("g") for node in nodes]
            await groups[0].send(POISON)
            await until(lambda: two.incarnation > before and two.status()["settled"])
            await together(nodes)
            assert (one.incarnation, two.status()["drops"]["machine failed"]) == (one.incarnation, 1)
            await groups[1].send(b"after")
            for group in groups:
                async for event in group:
                    rejoined = isinstance(event, Rejoined)
                    assert group is groups[1] or not rejoined, "nobody else noticed more than a crash"
                    if isinstance(event, Message) and event.payload == b"after":
                        break
        finally:
            await asyncio.gather(*(node.stop() for node in nodes))

    run(main)
    (kept,) = (tmp_path / "2" / defects.DIRECTORY).iterdir()
    told = msgspec.json.decode(kept.read_bytes())
    assert (told["node"], told["event"], told["protocol"]) == (2, "Packet", protocol)
    assert POISON in bytes.fromhex(told["data"])
    assert kept.stat().st_mode & 0o077 == 0
    (said,) = (record for record in caplog.records if record.levelno == logging.CRITICAL)
    assert "ZeroDivisionError" in said.getMessage()
    assert str(kept) in said.getMessage()
    assert said.exc_info is not None
    report = audit_trace(tmp_path / "trace")
    assert report.events
    assert report.clean, [violation.sentence for violation in report.violations]


def test_what_was_not_delivered_is_told_to_its_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with make_node() as node:
            group = await node.join("g")
            driver = node._running.driver

            def broken(now_us: int, event: Event) -> Sequence[Effect]:
                raise ZeroDivisionError("a defect")

            driver._handle = broken
            receipt = await group.send(b"lost", receipt=True)
            with pytest.raises(Excluded, match="this node failed, and came back"):
                await receipt
            assert (await (await group.send(b"kept", receipt=True))).payload == b"kept"

    run(main)


def test_no_more_defects_are_kept_than_there_is_room_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_node(data=tmp_path) as node:
            member = node._running
            told = []
            for number in range(defects.MOST_KEPT + 1):
                life = defects.Failed(member.id, number, "totem", "crashed")
                told.append(defects.keep_defect(tmp_path, life, Packet(bytes(2000), 7), ValueError("x")))
            assert "kept in" in told[-2]
            assert f"holds {defects.MOST_KEPT} already" in told[-1]
            assert "2000 bytes from node 7 (0000" in told[-1]
            assert len(told[-1]) < 500

    run(main)
    assert len(list((tmp_path / defects.DIRECTORY).iterdir())) == defects.MOST_KEPT
