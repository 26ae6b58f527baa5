"""Primary-backup on view-synchronous communication (004 §4.3): the first of the view places, all acknowledge.

Follow a message: its sender sends it to the primary (PB_REQUEST), again and again until it has a place; the
primary gives it the next place and multicasts it (PB_UPDATE); each backup acknowledges to the primary
(PB_ACK), and when *all* have, the primary delivers it, which is its reply, and says so to the others
(PB_ANSWERED, or with the next update). Who finds a gap asks for it (PB_RESEND).

It is TOTAL's fixed sequencer with three differences. Delivery waits for all in the list of the view, at any
level of resilience: at least a majority of the members, so nothing that was answered is lost with a minority.
The list may change within a view (§4.3.5): a suspected primary moves to its end (`viewsync.rotation`),
and acknowledgements of who is suspected are not waited for, while it stays a member. So every packet that
speaks of places says in which turn of the list, and what one member lacks it may get from any other.

The paper's primary takes the next request when it has answered the last. Here updates are pipelined, which
makes no difference: places are given out one after the other, a view ends with a beginning of them without a
gap (`settling`), and an update is answered only when all before it are with all, too.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from ordercast.core.contract import Effect, SetTimer, Unicast
from ordercast.core.identity import Guarantee, NodeId
from ordercast.core.wire import FORGED_SENDER
from ordercast.sequencers.declared import PRIMARY_BACKUP_DROPS, PRIMARY_BACKUP_KINDS, STATISTICS
from ordercast.sequencers.fields import MAX_ENTRIES
from ordercast.sequencers.optional_rules import Decode
from ordercast.sequencers.order import Order
from ordercast.sequencers.packets import (
    NOBODY,
    PB_ACK,
    PB_ANSWERED,
    PB_GONE,
    PB_REQUEST,
    PB_RESEND,
    PB_UPDATE,
    Acked,
    Answered,
    AnyPacket,
    Gone,
    Msg,
    Request,
    Resend,
    Update,
    encode_numbers,
    encode_reached,
    encode_resend,
    encode_update,
    peek_update,
)
from ordercast.sequencers.sending import Sending
from ordercast.sequencers.total import ACK_TIMER, IDLE, Total


class PrimaryBackup(Total):
    """A member of a group that runs primary-backup."""

    NAME: ClassVar = "primary-backup"
    SUMMARY: ClassVar = (
        "The primary, the first of the view, places and multicasts; all backups acknowledge each update."
    )
    KINDS: ClassVar = PRIMARY_BACKUP_KINDS
    DROPS: ClassVar = PRIMARY_BACKUP_DROPS
    STATISTICS: ClassVar = STATISTICS
    MESSAGE_KIND: ClassVar = PB_REQUEST
    AT_LEAST: ClassVar[Guarantee] = Guarantee.SAFE
    hop: ClassVar[int] = 0
    """There is no token to be passed."""

    def __init__(self, sending: Sending) -> None:
        super().__init__(sending)
        self._asked: NodeId = NOBODY
        """Who was asked last for what is missing here."""

    # --- views ----------------------------------------------------------------------------------

    def begin(self, order: Order, effects: list[Effect]) -> None:
        """A new view begins; the first of its list is the primary."""
        self._elect(order, effects)
        self._asked = NOBODY
        if self.sequencing and len(order.R) > 1:
            effects.append(SetTimer(IDLE, self.config.silence_us))

    def turn(self, order: Order, effects: list[Effect]) -> None:
        """An intermediate view (004 §4.3.5): perhaps with another primary.

        What has no place goes to it at once. If it lacks something itself, all wait for that, so it asks.
        """
        self.begin(order, effects)
        if not self.sequencing:
            self._repeat_requests(order, effects)
            return
        mine = (place for place, placed in order.places.items() if placed.node == self.me)
        self._own = deque(sorted(mine))
        self._ask(order, effects)

    # --- packets --------------------------------------------------------------------------------

    def read(self, order: Order, kind: int, data: bytes, decode: Decode) -> AnyPacket:
        """A member's own message comes back to it: it need not be taken apart again."""
        if kind == PB_UPDATE:
            turn, place, stable, origin, lsn = peek_update(data)
            if origin == self.me and (msg := order.BUF.get((origin, lsn))) is not None:
                return Update(turn, place, stable, msg)
        return decode(data)

    def take(self, order: Order, sender: NodeId, packet: AnyPacket, effects: list[Effect]) -> str:
        """A packet arrived. Why it is of no use, if it is of none."""
        self._heard += sender == self.holder
        match packet:
            case Update() | Acked() | Answered() if packet.turn != order.view.turn:
                return "other turn"
            case Update(_, place, stable, msg):
                return self._on_update(order, sender, place, stable, msg)
            case Acked(_, place):
                if not self.sequencing:
                    return "other primary"
                order.learn(sender, place)
            case Answered(_, place, stable):
                return self._on_answered(order, sender, place, stable, effects)
            case Request(msg):
                return self._on_request(order, sender, msg, effects)
            case Resend(places):
                return self._on_resend(order, sender, places, effects)
            case Gone(floor):
                order.cut_off = order.cut_off or order.hgsn < floor
            case _:
                return "unknown kind"
        return ""

    def _on_update(self, order: Order, sender: NodeId, place: int, stable: int, msg: Msg) -> str:
        """From the primary; or from whoever was asked for it, perhaps a primary that lacks what is before it.

        How far its origin had come when it sent the message is no matter: that may have been in another turn.
        """
        if msg.origin not in order.R:
            return "not a member's"
        if msg.origin == self.me and msg.lsn >= order.N[self.me]:
            return FORGED_SENDER
        order.receive(msg)
        fresh = order.place(place, msg.key, sender)
        if sender == self.holder and stable:
            order.learn(sender, place)  # what is sent again says of nothing that it is stable
        self._all_have(order, stable)
        return "" if fresh else "duplicate"

    def _on_request(self, order: Order, sender: NodeId, msg: Msg, effects: list[Effect]) -> str:
        """It gets the next place, but only once: who repeats it has not heard of that."""
        if not self.sequencing:
            return "other primary"
        if sender != msg.origin:
            return "not its sender's"
        if order.receive(msg):
            return ""
        if msg.key not in order.pending:
            self._tell(order, effects, sender)
        return "duplicate"

    def _on_answered(
        self, order: Order, sender: NodeId, place: int, stable: int, effects: list[Effect]
    ) -> str:
        """The primary has come so far. If it knows less of this one, an acknowledgement was lost."""
        if sender != self.holder:
            return "other primary"
        order.learn(sender, place)
        self._all_have(order, stable)
        if stable < self._acknowledged:
            self._tell(order, effects)
        return ""

    def _all_have(self, order: Order, stable: int) -> None:
        """All in the list have everything up to a place; who is off it may not."""
        if stable > order.stable:
            for member in order.core:
                order.learn(member, stable)

    def _on_resend(self, order: Order, sender: NodeId, seqs: tuple[int, ...], effects: list[Effect]) -> str:
        """Any member answers: the primary may be new, and lack what it has to place others behind."""
        self._resend(order, sender, seqs, effects)
        if any(place <= order.floor for place in seqs):
            effects.append(Unicast(sender, encode_numbers(self._sending.head(order, PB_GONE), order.floor)))
        return ""

    # --- ordering -------------------------------------------------------------------------------

    def _sequence(self, order: Order, effects: list[Effect]) -> bool:
        """A primary that lacks something of an earlier turn places nothing before it has that."""
        return order.known == order.hgsn and super()._sequence(order, effects)

    def _bcast(self, order: Order, stable: int, seq: int, msg: Msg) -> bytes:
        if self.sequencing:
            self._acknowledged = max(self._acknowledged, stable)
        return encode_update(self._sending.head(order, PB_UPDATE), order.view.turn, seq, stable, msg)

    def _watch(self, order: Order, effects: list[Effect]) -> None:
        if order.known > order.hgsn:
            self._resend_retry.watch(order.hgsn, effects)
        if not self.sequencing:
            self._request_retry.watch(self._sending.oldest_own(order), effects)
        elif order.unstable:
            self._status_retry.watch(order.stable, effects)

    def awaited(self, order: Order) -> NodeId | None:
        """The primary, while something is owed; the primary itself waits for the backup that has least.

        Requests that a backup holds of others are no matter: they will be sent to the primary again.
        """
        lacks = order.known > order.hgsn
        unstable = order.latest > min(order.stable, order.delivered)
        if not self.sequencing:
            return self.holder if lacks or unstable or self._sending.unplaced(order) else None
        if lacks:
            return self._asked or None
        if not unstable and not order.choose(1):
            return None
        slowest = min(order.core, key=order.R.__getitem__)
        return slowest if slowest != self.me else None

    # --- acknowledging --------------------------------------------------------------------------

    def _untold(self, order: Order) -> int:
        """A backup tells what it has, the primary what all have."""
        return (order.stable if self.sequencing else order.hgsn) - self._acknowledged

    def _acknowledge(self, order: Order, effects: list[Effect]) -> None:
        """At once while little is on the way, since somebody waits for it; else every few packets."""
        if self._untold(order) >= self._ack_every or order.unstable <= self._ack_every:
            self._tell(order, effects)
        elif not self._ack_running:
            self._ack_running = True
            effects.append(SetTimer(ACK_TIMER, self.config.hurry_us))

    def _tell(self, order: Order, effects: list[Effect], to: NodeId = NOBODY) -> None:
        """Acknowledge to the primary; or, as the primary, tell all, or one, what all have."""
        self._stats["acks"] += 1
        turn, head = order.view.turn, self._sending.head
        if not self.sequencing:
            self._acknowledged = order.hgsn
            effects.append(Unicast(self.holder, encode_reached(head(order, PB_ACK), Acked(turn, order.hgsn))))
            return
        data = encode_reached(head(order, PB_ANSWERED), Answered(turn, order.hgsn, order.stable))
        if to:
            effects.append(Unicast(to, data))
        else:
            self._acknowledged = order.stable
            self._sending.multicast(order, data, effects)

    # --- what is missing ------------------------------------------------------------------------

    def _ask(self, order: Order, effects: list[Effect]) -> None:
        """Ask for the first that are missing: the primary; then, one after the other, who has most."""
        _, places = order.wanted(min(self.config.max_requests, MAX_ENTRIES))
        others = sorted((node != self.holder, -has, node) for node, has in order.R.items() if node != self.me)
        if places and others:
            self._stats["requests"] += 1
            self._loss.noticed()
            self._sending.tried(self._asked, self._resend_retry)
            self._asked = others[max(0, self._resend_retry.attempts - 1) % len(others)][2]
            data = encode_resend(self._sending.head(order, PB_RESEND), places)
            effects.append(Unicast(self._asked, data))
