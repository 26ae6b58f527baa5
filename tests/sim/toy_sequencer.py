"""A protocol to try the simulator with: a fixed sequencer that tolerates no fault at all.

The node with the smallest identifier numbers messages; a gap is never filled, so whatever the network
loses is visible in what is delivered. Every packet restarts the timer ``quiet``; ``quiet`` counts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence

from ordercast.core.contract import (
    Accept,
    Brake,
    Deliver,
    Distance,
    Drop,
    Effect,
    Event,
    Gone,
    Halt,
    Install,
    Multicast,
    Packet,
    Persist,
    SetTimer,
    Shift,
    Start,
    Stop,
    Submit,
    Timer,
    Unicast,
)
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind, NodeId

HEADER = struct.Struct("<BBIIQQ")
ASK, ORDER = 1, 2
QUIET_US = 50_000
WORDS = tuple(Guarantee)


def kind_of(data: bytes) -> str | None:
    """What a packet is called."""
    return {ASK: "ask", ORDER: "order"}.get(data[0])


class Sequencer:
    def __init__(self, node: NodeId, nodes: Sequence[NodeId], room: int = 1 << 20) -> None:
        self.node = node
        self.nodes = tuple(nodes)
        self.leader = min(nodes)
        self.configuration = ConfigurationId(1, self.leader)
        self.incarnation = 0
        self.number = 0
        self.ordered = 0
        self.delivered = 0
        self.early: dict[int, Batch] = {}
        self.quiet = 0
        self.limit = room
        self.unordered = 0
        self.braked = False
        self.believed_gone: list[NodeId] = []
        self.round_trip_us = 0
        self.longest_wait_us = 0

    @property
    def room(self) -> int:
        return self.limit - self.unordered

    @property
    def stats(self) -> Mapping[str, float]:
        return {"delivered": self.delivered, "quiet": self.quiet}

    @property
    def waits(self) -> Mapping[NodeId, int]:
        return {}

    @property
    def role(self) -> str:
        return ""

    @property
    def laggard(self) -> NodeId | None:
        return self.node if self.braked else None

    @property
    def final(self) -> tuple[ConfigurationId, int] | None:
        return None

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        match event:
            case Packet(data, _, waited_us):
                self.longest_wait_us = max(self.longest_wait_us, waited_us)
                return self._on_packet(data)
            case Brake(on):
                self.braked = on
                return []
            case Gone(node):
                self.believed_gone.append(node)
                return []
            case Distance(round_trip_us):
                self.round_trip_us = round_trip_us
                return []
            case Timer("quiet"):
                self.quiet += 1
                return [Shift("quiet", "nothing heard"), SetTimer("quiet", QUIET_US)]
            case Submit(payloads, guarantee):
                return self._on_submit(payloads, guarantee)
            case Start(incarnation, stored, _):
                return self._on_start(incarnation, stored)
            case Stop():
                return [Shift("gone", "asked to"), Halt("asked to"), Shift("ghost", "behind the halt")]
            case _:
                raise AssertionError(event)

    def _on_start(self, incarnation: int, stored: bytes | None) -> Sequence[Effect]:
        self.incarnation = incarnation
        lives = b"" if stored is None else stored
        return [
            Shift("starting", "life begins"),
            Persist(lives + b"%d" % incarnation),
            Install(Configuration(self.configuration, Kind.REGULAR, self.nodes)),
            Shift("running", "started"),
            SetTimer("quiet", QUIET_US),
        ]

    def _on_submit(self, payloads: Sequence[bytes], guarantee: Guarantee) -> Sequence[Effect]:
        effects: list[Effect] = [Accept(self.number)]
        for payload in payloads:
            number = self.number
            self.number += 1
            if self.node == self.leader:
                effects += self._order(self.node, self.incarnation, number, guarantee, payload)
            else:
                self.unordered += len(payload)
                ask = HEADER.pack(ASK, WORDS.index(guarantee), self.node, self.incarnation, number, 0)
                effects.append(Unicast(self.leader, ask + payload))
        return effects

    def _order(
        self, origin: NodeId, incarnation: int, number: int, guarantee: Guarantee, payload: bytes
    ) -> list[Effect]:
        self.ordered += 1
        self.delivered = self.ordered
        head = HEADER.pack(ORDER, WORDS.index(guarantee), origin, incarnation, number, self.ordered)
        batch = Batch(self.configuration, self.ordered, 0, origin, incarnation, number, guarantee, (payload,))
        return [Multicast(head + payload), Deliver(batch)]

    def _on_packet(self, data: bytes) -> Sequence[Effect]:
        if len(data) < HEADER.size:
            return [Drop("short")]
        kind, word, origin, incarnation, number, seq = HEADER.unpack_from(data)
        payload = data[HEADER.size :]
        if kind == ASK:
            return self._order(origin, incarnation, number, WORDS[word], payload)
        if origin == self.node and incarnation == self.incarnation:
            self.unordered -= len(payload)
        if seq <= self.delivered or seq in self.early:
            return [Drop("redundant")]
        self.early[seq] = Batch(
            self.configuration, seq, 0, origin, incarnation, number, WORDS[word], (payload,)
        )
        effects: list[Effect] = [SetTimer("quiet", QUIET_US)]
        while (batch := self.early.pop(self.delivered + 1, None)) is not None:
            self.delivered += 1
            effects.append(Deliver(batch))
        return effects


def sequencers(nodes: Sequence[NodeId], room: int = 1 << 20) -> Callable[[NodeId], Sequencer]:
    """A factory for `World`."""
    return lambda node: Sequencer(node, nodes, room)
