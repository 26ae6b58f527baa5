"""A statistic, a reason for drops and a kind of packet, added to the toy protocol in one place: here."""

from __future__ import annotations

import asyncio
import urllib.request
from types import MappingProxyType
from typing import Any

import pytest
from lowest import TELL, Lowest

from ordercast.catalogue import LAB_PROTOCOLS, sequenced_in_lab
from ordercast.core.contract import Effect
from ordercast.core.declared import DropReason, PacketKind, Purpose, Statistic
from ordercast.core.identity import NodeId
from ordercast.groups.api import Node
from ordercast.lab.grid import Run
from ordercast.lab.under_load import conduct
from ordercast.protocols import PROTOCOLS
from ordercast.sequencers.member import OrdererOf
from ordercast.sequencers.optional_rules import Decode
from ordercast.sequencers.order import Order
from ordercast.sequencers.packets import AnyPacket, Gone
from ordercast.viewsync.header import FIRST_ORDER_KIND
from ordercast.viewsync.protocol import sequenced

NUDGE = FIRST_ORDER_KIND + 9


class Nudging(Lowest):
    """The toy, whose members nudge the others whenever they tell how far they have come."""

    NAME = "nudging"
    SUMMARY = "The toy, with a packet more."
    KINDS = MappingProxyType({**Lowest.KINDS, NUDGE: PacketKind("nudge", Purpose.ORDER, "Nothing at all.")})
    DROPS = (*Lowest.DROPS, DropReason("nudged", "Somebody nudged this node.", everyday=True))
    STATISTICS = (*Lowest.STATISTICS, Statistic("nudges", "How often this node nudged the others."))

    def expired(self, order: Order, name: str, effects: list[Effect]) -> None:
        super().expired(order, name, effects)
        if name == TELL:
            self._sending.stats["nudges"] += 1
            self._sending.multicast(order, self._sending.head(order, NUDGE), effects)

    def read(self, order: Order, kind: int, data: bytes, decode: Decode) -> AnyPacket:
        return Gone(0) if kind == NUDGE else decode(data)

    def take(self, order: Order, sender: NodeId, packet: AnyPacket, effects: list[Effect]) -> str:
        return "nudged" if isinstance(packet, Gone) else super().take(order, sender, packet, effects)


@pytest.fixture
def nudging(monkeypatch: pytest.MonkeyPatch) -> str:
    """The protocol, among those there are."""
    protocol = sequenced(OrdererOf(Nudging))
    monkeypatch.setitem(PROTOCOLS, protocol.name, protocol)
    monkeypatch.setitem(LAB_PROTOCOLS, protocol.name, sequenced_in_lab(protocol, hits=()))
    return protocol.name


def has_both_ways(status: dict[str, Any]) -> bool:
    """Whether a node got a nudge and has sent one: what it made while it was alone went to nobody."""
    return bool(status["drops"].get("nudged") and status["packets_sent"].get("nudge"))


def test_they_are_in_the_status_and_in_prometheus(nudging: str) -> None:
    async def seen() -> tuple[dict[str, Any], str]:
        async with (
            Node(protocol=nudging, listen="127.0.0.1:0", id=1, metrics="127.0.0.1:0") as one,
            Node(protocol=nudging, listen="127.0.0.1:0", id=2, seeds=[one.address]) as two,
        ):
            await one.wait_for(2, 30)
            group = await two.join("g")
            async with asyncio.timeout(30):
                while not has_both_ways(one.status()):
                    await group.send(b"hello")
                    await asyncio.sleep(0.01)
            member: Any = one._member
            url = f"http://{member.services._metrics.address}/metrics"
            text = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
            return one.status(), text

    status, text = asyncio.run(seen())
    assert status["statistics"]["nudges"] > 0
    assert status["packets_sent"]["nudge"] > 0
    assert "# HELP ordercast_nudges_total How often this node nudged the others." in text
    assert "\nordercast_nudges_total " in text
    assert '\nordercast_packets_sent_total{kind="nudge"} ' in text
    assert '\nordercast_drops_total{reason="nudged"} ' in text


def test_they_are_in_the_metrics_of_the_laboratory(nudging: str) -> None:
    run = Run(protocol=nudging, nodes=3, rate=200.0, messages=100)
    figures = conduct(run).figures
    assert figures["sent/nudge"] > 0
    assert figures["stats/nudges"] > 0
    assert figures["drops/nudged"] > 0
    ack = conduct(Run(protocol=nudging, nodes=3, rate=200.0, messages=100)).figures["sent/ack"]
    assert figures["overhead"] >= figures["sent/nudge"] + ack, "a nudge is for the order: overhead"
