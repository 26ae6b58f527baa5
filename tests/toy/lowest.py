"""A toy: the member with the lowest identifier gives places, and everybody tells everybody what it has.

Follow a message: its sender sends it to all (MSG); the lowest member puts it behind the last place and tells
all (ACK); every member says a little later how far it has come (an ACK that places nothing). Who waits for
too long sends its messages again, and asks (REQ): all answer how far they have come, and the lowest member
sends what is lacking.
"""

from __future__ import annotations

from ordercast.core.contract import Effect, SetTimer, Unicast
from ordercast.core.identity import NodeId
from ordercast.sequencers.declared import DROPS, MOVING_KINDS, STATISTICS
from ordercast.sequencers.order import Order
from ordercast.sequencers.packets import (
    ACK,
    COPY,
    MSG,
    REQ,
    Ack,
    AnyPacket,
    Copy,
    MessageKey,
    Msg,
    Req,
    encode_ack,
    encode_copy,
    encode_req,
    passed_on,
)
from ordercast.sequencers.sending import Sending
from ordercast.viewsync.contract import ORDER_TIMER

TELL = ORDER_TIMER + "tell"
AGAIN = ORDER_TIMER + "again"


class Lowest:
    """One member."""

    NAME = "lowest"
    SUMMARY = "The member with the lowest identifier gives places."
    KINDS = MOVING_KINDS
    DROPS = DROPS
    STATISTICS = STATISTICS
    MESSAGE_KIND = MSG

    def __init__(self, sending: Sending) -> None:
        self.me, self.config, self._sending = sending.me, sending.config, sending
        self.holder: NodeId = 0
        self._said, self._telling = 0, False
        """What this member has told the others that it has, and whether it is about to tell more."""

    def begin(self, order: Order, effects: list[Effect]) -> None:
        """A view begins, with nothing in it."""
        self.holder = min(order.R)
        self._said, self._telling = 0, False
        effects.append(SetTimer(AGAIN, self.config.retry_us))

    def may_send(self, order: Order) -> bool:
        return self._sending.unplaced(order) < self.config.window

    def send(self, order: Order, msg: Msg, effects: list[Effect]) -> None:
        self._sending.multicast(order, msg.raw, effects)

    def take(self, order: Order, sender: NodeId, packet: AnyPacket, effects: list[Effect]) -> str:
        """A packet arrived. Why it is of no use, if it is of none."""
        match packet:
            case Msg() if packet.origin in order.R:
                return "" if order.receive(packet) else "old message"
            case Ack():
                for place, key in enumerate(packet.keys, packet.first):
                    order.place(place, key, sender)
                order.learn(sender, packet.last)
            case Copy():
                for place, placed in packet.places:
                    order.place(place, placed[:2], placed.by)
            case Req():
                order.learn(sender, packet.hgsn)
                self._answer(order, sender, packet, effects)
            case _:
                return "not of this protocol"
        return ""

    def go_on(self, order: Order, effects: list[Effect]) -> None:
        """Something has changed: do what can be done."""
        order.advance()
        self._sending.originate(order, self, effects)
        if self.holder == self.me and (keys := order.choose(min(order.room, self.config.batch))):
            self._sending.multicast(order, self._ack(order, keys), effects)
            for place, key in enumerate(keys, order.hgsn + 1):
                order.place(place, key, self.me)
            order.advance()
        if order.hgsn > self._said and not self._telling:
            self._telling = True
            effects.append(SetTimer(TELL, self.config.hurry_us * len(order.R)))  # together, one in hurry_us
        order.deliver(effects)
        order.discard(effects)

    def _ack(self, order: Order, keys: list[MessageKey]) -> bytes:
        """What this member has, and what it places behind that."""
        ack = Ack(order.view.turn, 1, order.hgsn + 1, self.holder, tuple(keys))
        return encode_ack(self._sending.head(order, ACK), ack)

    def expired(self, order: Order, name: str, effects: list[Effect]) -> None:
        """A timer ran out."""
        if name == TELL:
            self._said, self._telling = order.hgsn, False
            self._sending.multicast(order, self._ack(order, []), effects)
            return
        effects.append(SetTimer(AGAIN, self.config.retry_us))
        for lsn in range(order.sequenced[self.me] + 1, order.N[self.me]):
            if (self.me, lsn) in order.pending:
                self._sending.multicast(order, order.BUF[self.me, lsn].raw, effects)
        if order.pending or order.unstable or order.missing is not None:
            keys, places = order.wanted(self.config.max_requests)
            req = Req(order.hgsn, self.holder, tuple(keys), tuple(places))
            self._sending.multicast(order, encode_req(self._sending.head(order, REQ), req), effects)

    def _answer(self, order: Order, to: NodeId, req: Req, effects: list[Effect]) -> None:
        """Somebody waits: tell it what is here, and send what it lacks if that is for this member to do."""
        effects.append(Unicast(to, self._ack(order, [])))
        if req.asked != self.me:
            return
        for key in req.keys:
            if (msg := order.BUF.get(key)) is not None:
                effects.append(Unicast(to, passed_on(self._sending.head(order, MSG), msg)))
        if found := tuple((place, order.places[place]) for place in req.places if place in order.places):
            copy = Copy(order.view.turn, 1, found)
            effects.append(Unicast(to, encode_copy(self._sending.head(order, COPY), copy)))

    def awaited(self, order: Order) -> NodeId | None:
        """Whom to suspect soon: who gives places, if something has none; or who has least."""
        if order.pending:
            return self.holder if self.holder != self.me else None
        slowest = min(order.R, key=order.R.__getitem__)
        return slowest if order.unstable and slowest != self.me else None
