"""A protocol for real nodes whose machines end their lives when a message tells them to.

The node with the smallest identifier numbers messages. ``halt 2`` makes node 2 halt, as if it had been
excluded, once it has delivered that; ``unsent`` makes its sender halt, before it sends it. A new life goes on
with the first message that it hears.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pytest

from ordercast.core.contract import (
    Accept,
    Deliver,
    Effect,
    Event,
    Halt,
    Install,
    Multicast,
    Originate,
    Packet,
    SetTimer,
    Shift,
    Start,
    Stop,
    Submit,
    Timer,
    Unicast,
)
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind, NodeId
from ordercast.core.protocol import LAN, About, Protocol
from ordercast.protocols import PROTOCOLS

HEAD = struct.Struct("<BIQQQ")
WORDS = tuple(Guarantee)
AGAIN_US = 20_000


class FrailSettings(msgspec.Struct, forbid_unknown_fields=True):
    """What it can be told."""

    nodes: tuple[int, ...] = (1, 2)
    """Who there is."""
    packet_size: int = 1_400
    """It does not care."""


class Frail:
    role = "member"

    def __init__(self, node: NodeId, nodes: Sequence[NodeId]) -> None:
        self.node, self.nodes = node, tuple(nodes)
        self.view = ConfigurationId(1, min(nodes))
        self.incarnation = self.number = self.seq = 0
        self.pending: dict[int, bytes] = {}
        """Own messages that are not ordered yet, by number: sent again until they are."""
        self.ordered: dict[tuple[int, int, int], bytes] = {}
        self.room = 1 << 20
        self.stats: Mapping[str, float] = {}
        self.waits: Mapping[NodeId, int] = {}
        self.laggard: NodeId | None = None
        self.final: tuple[ConfigurationId, int] | None = None

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        match event:
            case Start(incarnation):
                self.incarnation = incarnation
                self.view = ConfigurationId(1 + incarnation, min(self.nodes))
                installed = Install(Configuration(self.view, Kind.REGULAR, (self.node,)))
                return [installed, Shift("member", "started"), SetTimer("again", AGAIN_US)]
            case Timer():
                again = [Unicast(min(self.nodes), packet) for packet in self.pending.values()]
                return [*again, SetTimer("again", AGAIN_US)]
            case Submit(payloads, guarantee):
                return list(self._submit(payloads, guarantee))
            case Packet(data):
                return list(self._heard(data))
            case Stop():
                return [Halt("left")]
        return []

    def _submit(self, payloads: Sequence[bytes], guarantee: Guarantee) -> Iterator[Effect]:
        yield Accept(self.number + 1)
        for payload in payloads:
            self.number += 1
            batch = (self.view, 0, 0, self.node, self.incarnation, self.number, guarantee, (payload,))
            yield Originate(Batch(*batch))
            word = WORDS.index(guarantee)
            if self.node == min(self.nodes):
                yield from self._order(word, self.node, self.incarnation, self.number, payload)
            elif payload.endswith(b"unsent"):
                yield Halt("excluded")
            else:
                packet = HEAD.pack(word, self.node, self.incarnation, self.number, 0) + payload
                self.pending[self.number] = packet
                yield Unicast(min(self.nodes), packet)

    def _order(self, word: int, origin: int, life: int, number: int, payload: bytes) -> Iterator[Effect]:
        message = (origin, life, number)
        if message in self.ordered:
            yield Multicast(self.ordered[message])  # it was not heard
            return
        self.seq += 1
        self.ordered[message] = HEAD.pack(word, origin, life, number, self.seq) + payload
        yield Multicast(self.ordered[message])
        yield from self._deliver(word, origin, life, number, payload)

    def _heard(self, data: bytes) -> Iterator[Effect]:
        word, origin, life, number, seq = HEAD.unpack_from(data)
        if not seq:
            yield from self._order(word, origin, life, number, data[HEAD.size :])
        elif seq > self.seq or (origin == self.node and number in self.pending):
            self.seq = seq
            if (origin, life) == (self.node, self.incarnation):
                self.pending.pop(number, None)
            yield from self._deliver(word, origin, life, number, data[HEAD.size :])

    def _deliver(self, word: int, origin: int, life: int, number: int, payload: bytes) -> Iterator[Effect]:
        batch = (self.view, self.seq, 0, origin, life, number, WORDS[word], (payload,))
        yield Deliver(Batch(*batch))
        if payload.endswith(b"halt %d" % self.node):
            yield Halt("excluded")


FRAIL = Protocol(
    name="frail",
    summary="For tests.",
    about=About("the first node", "2", "at once", "at once", "nobody", "never"),
    build=lambda config, node: Frail(node, config.nodes),
    settings=FrailSettings,
    profiles={LAN: {}},
    states=("member",),
    settled="member",
    kinds={},
    promises="nothing",
    revives=True,
    levels=True,
)


@pytest.fixture
def frail(monkeypatch: pytest.MonkeyPatch) -> Protocol:
    """The protocol, among those there are."""
    monkeypatch.setitem(PROTOCOLS, "frail", FRAIL)
    return FRAIL
