"""One orderer by itself: what it is told, and what it answers."""

from __future__ import annotations

from typing import NamedTuple

from ordercast.core.contract import Deliver, Drop, Effect, Multicast, SetTimer, Stable, Unicast
from ordercast.core.identity import Batch, ConfigurationId, Guarantee, NodeId
from ordercast.sequencers import packets
from ordercast.sequencers.member import Member, RulesClass
from ordercast.sequencers.packets import (
    NULL,
    Ack,
    AnyPacket,
    Copy,
    MessageKey,
    Placed,
    Req,
    decode,
    encode_ack,
    encode_copy,
    encode_msg,
    encode_numbers,
    encode_req,
)
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.contract import NOTHING, Settled, View
from ordercast.viewsync.header import header, read_header

ALL = 0
"""Stands for a multicast among the targets."""
ID = ConfigurationId(1, 1)


def view_of(members: int, core: tuple[NodeId, ...] = (), turn: int = 0) -> View:
    everyone = tuple(range(1, members + 1))
    return View(ID, everyone, (0,) * members, core or everyone, turn)


class Sent(NamedTuple):
    """A packet that an orderer sent."""

    to: NodeId
    packet: AnyPacket


class Seat:
    """A member whose fellows are played by the test."""

    def __init__(
        self, kind: RulesClass, me: NodeId = 1, members: int = 3, config: GroupConfig | None = None
    ) -> None:
        self.orderer = Member(kind, me, config or GroupConfig())
        self.orderer.begin(0)
        self.effects: list[Effect] = []
        """Of the last event."""
        self.install(view_of(members))

    def install(self, view: View, settled: Settled = NOTHING) -> list[Sent]:
        self.effects = []
        self.orderer.install(0, view, settled, self.effects)
        return self.sent()

    def submit(self, *payloads: bytes, guarantee: Guarantee = Guarantee.AGREED) -> list[Sent]:
        self.effects = []
        self.orderer.submit(0, payloads, guarantee, self.effects)
        return self.sent()

    def hear(self, sender: NodeId, kind: int, body: bytes) -> list[Sent]:
        self.effects = []
        data = header(kind, self.view.id, sender, 0) + body
        self.orderer.packet(0, kind, sender, data, self.effects)
        return self.sent()

    def expire(self, name: str) -> list[Sent]:
        self.effects = []
        self.orderer.timer(0, name, self.effects)
        return self.sent()

    def msg(
        self,
        origin: NodeId,
        lsn: int,
        hgsn: int = 0,
        *,
        payload: bytes = b"m",
        guarantee: Guarantee = Guarantee.AGREED,
        sender: NodeId | None = None,
    ) -> list[Sent]:
        body = encode_msg(b"", (origin, lsn), lsn, hgsn, guarantee, 0, [payload]).raw
        return self.hear(sender or origin, packets.MSG, body)

    def ack(
        self,
        sender: NodeId,
        first: int,
        *keys: MessageKey,
        hop: int | None = None,
        following: NodeId,
        turn: int = 0,
    ) -> list[Sent]:
        """Without a hop, it is as with one place for each ACK."""
        return self.hear(
            sender, packets.ACK, encode_ack(b"", Ack(turn, hop or first, first, following, keys))
        )

    def null(self, sender: NodeId, place: int, *, following: NodeId, turn: int = 0) -> list[Sent]:
        return self.ack(sender, place, NULL, following=following, turn=turn)

    def req(
        self,
        sender: NodeId,
        keys: tuple[MessageKey, ...] = (),
        places: tuple[int, ...] = (),
        *,
        hgsn: int = 0,
        asked: NodeId,
    ) -> list[Sent]:
        return self.hear(sender, packets.REQ, encode_req(b"", Req(hgsn, asked, keys, places)))

    def copy(self, sender: NodeId, *rows: tuple[int, Placed], hop: int = 0, turn: int = 0) -> list[Sent]:
        return self.hear(sender, packets.COPY, encode_copy(b"", Copy(turn, hop, rows)))

    def gone(self, sender: NodeId, floor: int) -> list[Sent]:
        return self.hear(sender, packets.GONE, encode_numbers(b"", floor))

    # --- what came of it ------------------------------------------------------------------------

    @property
    def view(self) -> View:
        assert self.orderer.order is not None
        return self.orderer.order.view

    def sent(self) -> list[Sent]:
        found = []
        for effect in self.effects:
            if isinstance(effect, Multicast):
                assert read_header(effect.data).sender == self.orderer.me
                found.append(Sent(ALL, decode(effect.data)))
            elif isinstance(effect, Unicast):
                assert read_header(effect.data).sender == self.orderer.me
                found.append(Sent(effect.to, decode(effect.data)))
        return found

    @property
    def delivered(self) -> list[Batch]:
        return [effect.batch for effect in self.effects if isinstance(effect, Deliver)]

    @property
    def stable(self) -> list[int]:
        return [
            batch.seq for effect in self.effects if isinstance(effect, Stable) for batch in effect.batches
        ]

    @property
    def drops(self) -> list[str]:
        return [effect.reason for effect in self.effects if isinstance(effect, Drop)]

    @property
    def timers(self) -> dict[str, int]:
        return {effect.name: effect.delay_us for effect in self.effects if isinstance(effect, SetTimer)}


def acks_to_deliver(kind: RulesClass, guarantee: Guarantee) -> int:
    """How many ACKs the last of five members hears before it delivers a message that it has."""
    seat = Seat(kind, 5, members=5)
    seat.msg(2, 1, guarantee=guarantee)
    seat.ack(1, 1, (2, 1), following=2)
    count = 1
    while not seat.delivered:
        count += 1
        assert count < 5
        seat.null(count, count, following=count + 1)
    return count
