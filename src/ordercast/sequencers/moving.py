"""The moving sequencer (004 §3.1.2): who holds the token gives places, and with them passes the token on.

Follow a message: `_originate` sends it to all as MSG and keeps sending it until it has a place; who holds the
token, and has everything up to the last place, puts it behind that and tells all with an ACK. This is at once
the acknowledgement to the source, the place, the acceptance of the token from the last holder, and the token
for the next one (004 §3.1.3). Who lacks a message or a place asks with a REQ. CM, Pinwheel and DTP differ in
who is next, in what tells of a member's delivery status, and in how much is on the way at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import ClassVar

from ordercast.core.contract import Effect, Multicast, SetTimer, Unicast
from ordercast.core.declared import DropReason, PacketKind, Statistic
from ordercast.core.identity import Guarantee, NodeId
from ordercast.core.wire import FORGED_SENDER, within_reach
from ordercast.sequencers.declared import MOVING_DROPS, MOVING_KINDS, MOVING_STATISTICS
from ordercast.sequencers.fields import MAX_ENTRIES
from ordercast.sequencers.order import Order
from ordercast.sequencers.packets import (
    ACK,
    COPY,
    GONE,
    MSG,
    NOBODY,
    NULL,
    REQ,
    Ack,
    AnyPacket,
    Copy,
    Gone,
    MessageKey,
    Msg,
    Req,
    encode_ack,
    encode_copy,
    encode_numbers,
    encode_req,
    passed_on,
)
from ordercast.sequencers.retry_timer import RetryTimer
from ordercast.sequencers.sending import BURST_BYTES, Sending
from ordercast.viewsync.contract import ORDER_TIMER

PASS = ORDER_TIMER + "pass"
LATE = 8
"""What is missing may only be late: it is asked for after this fraction of `retry_us`."""


class Token(StrEnum):
    """S.Token (002 §4.1): whether this member has the token."""

    HOLD = "hold"
    """This member holds the token."""
    TRST = "trst"
    """It passed the token on, and waits for a sign that it arrived."""
    EMPT = "empt"
    """This member does not hold the token."""


class MovingSequencer:
    """One member of a group in which the token moves."""

    KINDS: ClassVar[Mapping[int, PacketKind]] = MOVING_KINDS
    DROPS: ClassVar[tuple[DropReason, ...]] = MOVING_DROPS
    STATISTICS: ClassVar[tuple[Statistic, ...]] = MOVING_STATISTICS
    MESSAGE_KIND: ClassVar = MSG
    AT_LEAST: ClassVar[Guarantee] = Guarantee.K1
    NOTIFIES: ClassVar[bool] = False
    """Whether the delivery status on every message is heeded: positive notification (002 §3)."""
    NULL_TAKES_PLACE: ClassVar[bool] = True
    """Whether a null ACK gives out a place (004 §3.2.1 c); a DTP one does not (002 §4.2)."""
    window: int
    """Packets of its own that a member may have on the way without knowing their places."""
    batch: int
    """Messages to which one ACK may give places."""

    def __init__(self, sending: Sending) -> None:
        config = sending.config
        self.me = sending.me
        self.config = config
        self._sending = sending
        self._loss = sending.loss
        self._stats = sending.stats
        self.window = 1
        self.batch = min(config.batch, MAX_ENTRIES)
        self.S_TOKEN = Token.EMPT
        self.holder: NodeId = NOBODY
        """Who has, or will have, the token as far as is known here."""
        self.hop = 0
        """How often the token was passed as far as is known here."""
        self._last_ack = b""
        self._notified = 0
        """What this member has told the others that it has."""
        self._pause = (0, False)
        """During which hop this member waits for something to place, and whether in a hurry."""
        self._giver: NodeId = NOBODY
        """Who passed the token to the holder."""
        self._asked: NodeId = NOBODY
        """Who was asked by name for what is missing."""
        self._msg_retry = RetryTimer("msg", config, self._loss)
        self._ack_retry = RetryTimer("ack", config, self._loss)
        self._req_retry = RetryTimer("req", config, self._loss, LATE)

    def _next(self, order: Order) -> NodeId:
        """The member that gets the token from this one: the one behind it in the token list."""
        return order.core[(order.core.index(self.me) + 1) % len(order.core)]

    # --- views ----------------------------------------------------------------------------------

    def begin(self, order: Order, effects: list[Effect]) -> None:
        """A new view begins, and the token with it."""
        self._start_token(order, effects)

    def _start_token(self, order: Order, effects: list[Effect]) -> None:
        """The first in the token list holds the token, and everybody knows (002 §4.1, "Initially")."""
        self.hop = 0
        self.holder = order.core[0]
        self._giver = self._asked = NOBODY
        self.S_TOKEN = Token.HOLD if self.holder == self.me else Token.EMPT
        self._notified = 0
        self._pause = (-1, False)
        for retry in (self._msg_retry, self._ack_retry, self._req_retry):
            retry.forget(effects)

    def turn(self, order: Order, effects: list[Effect]) -> None:
        """An intermediate view (004 §4.4.4): the token begins anew with the first of the new list.

        Who lacks some of what was settled has to get it before it orders anything; so has the first.
        """
        self._start_token(order, effects)

    # --- packets --------------------------------------------------------------------------------

    def take(self, order: Order, sender: NodeId, packet: AnyPacket, effects: list[Effect]) -> str:
        """A packet arrived. Why it is of no use, if it is of none."""
        match packet:
            case Msg():
                return self._on_msg(order, sender, packet, effects)
            case Ack():
                return self._on_ack(order, sender, packet, effects)
            case Req():
                self._on_req(order, sender, packet, effects)
            case Copy():
                return self._on_copy(order, sender, packet)
            case Gone(floor):
                order.cut_off = order.cut_off or order.hgsn < floor
            case _:
                return "unknown kind"
        return ""

    def _on_msg(self, order: Order, sender: NodeId, msg: Msg, effects: list[Effect]) -> str:
        """002 §4.2, "Receiving MSG message"; 004 Fig. 16, lines 18–23."""
        if msg.origin not in order.R:
            return "not a member's"
        if msg.origin == self.me and msg.lsn >= order.N[self.me]:
            return FORGED_SENDER
        if self.NOTIFIES:
            order.learn(msg.origin, msg.hgsn)
        if order.receive(msg):
            return ""
        if self.S_TOKEN is Token.HOLD and sender == msg.origin and msg.key not in order.pending:
            self._answer_old_message(order, sender, msg, effects)
        return "duplicate"

    def _answer_old_message(self, order: Order, sender: NodeId, msg: Msg, effects: list[Effect]) -> None:
        """Tell the source of a message its place, of which it has not heard (004 Fig. 14)."""
        place = order.place_of.get(msg.key)
        if place is not None:
            self._copy(order, sender, [place], effects)
        elif msg.lsn <= order.floors[msg.origin]:
            effects.append(Unicast(sender, encode_numbers(self._sending.head(order, GONE), order.floor)))

    def _on_ack(self, order: Order, sender: NodeId, ack: Ack, effects: list[Effect]) -> str:
        """002 §4.2, "Receiving ACK message"; 004 Fig. 16, lines 25–49."""
        if ack.turn != order.view.turn:
            return "other turn"
        if sender not in order.core or ack.next not in order.core or not within_reach(ack.hop, self.hop):
            return "not the token's"
        news = [order.place(place, key, sender) for place, key in enumerate(ack.keys, ack.first)]
        order.learn(sender, ack.last)
        if ack.hop > self.hop:
            self._token_moved(ack.hop, ack.next, sender)
            if self.S_TOKEN is Token.HOLD:
                self._req_retry.forget(effects)  # all wait for what this member lacks: it asks anew
            return ""
        if self.S_TOKEN is Token.HOLD:  # its sender does not know that the token went on (004 Fig. 15)
            self._copy(order, sender, range(max(ack.last, order.floor) + 1, order.hgsn + 1), effects)
        return "" if any(news) else "duplicate"

    def _token_moved(self, hop: int, holder: NodeId, giver: NodeId) -> None:
        self.hop = hop
        self.holder = holder
        self._giver = giver
        self.S_TOKEN = Token.HOLD if holder == self.me else Token.EMPT

    def _on_copy(self, order: Order, sender: NodeId, copy: Copy) -> str:
        """Places that were asked for; and perhaps the sign that the token arrived.

        That is so if it went on from the next holder, or if the next holder says that it has seen it.
        """
        if copy.turn != order.view.turn:
            return "other turn"
        for place, placed in copy.places:
            if placed.by in order.R:
                order.place(place, (placed.node, placed.lsn), placed.by)
                order.learn(placed.by, place)
        if self.S_TOKEN is Token.TRST and copy.hop >= self.hop + (sender != self.holder):
            self.S_TOKEN = Token.EMPT
        return ""

    # --- ordering -------------------------------------------------------------------------------

    def go_on(self, order: Order, effects: list[Effect]) -> None:
        """Something has changed: do everything that can be done now."""
        order.advance()
        self._sending.originate(order, self, effects)
        while self.S_TOKEN is Token.HOLD and self._acknowledge(order, effects):
            self._sending.originate(order, self, effects)
        order.deliver(effects)
        order.discard(effects)
        self._msg_retry.watch(self._sending.oldest_own(order), effects)
        if self.S_TOKEN is Token.TRST:
            self._watch_token(effects)
        if order.known > order.hgsn or order.gaps:
            self._req_retry.watch(order.missing, effects)

    def _watch_token(self, effects: list[Effect]) -> None:
        """The token was passed on: repeat that until there is a sign that it arrived."""
        self._ack_retry.watch(self.hop, effects)

    def _acknowledge(self, order: Order, effects: list[Effect]) -> bool:
        """Give places to what has none, if everything before is here. Whether there was anything.

        With nothing to place the holder waits: a silence period (T in 002 §4.2); or only a moment, if there
        is something that not all are known to have, or that the others do not know this member to have.
        """
        if order.known > order.hgsn:
            return False
        chosen = order.choose(min(self.batch, order.room)) if order.pending else []
        if chosen:
            self._pass_token(order, chosen, effects)
            return True
        if len(order.core) > 1:
            busy = bool(order.pending) or order.latest > min(order.stable, order.delivered, self._notified)
            if self._pause[0] != self.hop or (busy and not self._pause[1]):
                self._pause = (self.hop, busy)
                effects.append(SetTimer(PASS, self.config.hurry_us if busy else self.config.silence_us))
        return False

    def _pass_token(self, order: Order, keys: list[MessageKey], effects: list[Effect]) -> None:
        """Send ACK: places for these, and the token to the next holder."""
        first = order.hgsn + 1
        for place, key in enumerate(keys, first):
            order.place(place, key, self.me)
        order.advance()
        order.rank()
        following = self._next(order)
        ack = Ack(order.view.turn, self.hop + 1, first, following, tuple(keys))
        self._last_ack = encode_ack(self._sending.head(order, ACK), ack)
        self._sending.multicast(order, self._last_ack, effects)
        self._token_moved(ack.hop, following, self.me)
        self._notified = ack.last
        if self.S_TOKEN is Token.EMPT:
            self.S_TOKEN = Token.TRST
            self._stats["token_passes"] += 1
        self._stats["acks"] += 1

    def may_send(self, order: Order) -> bool:
        """Whether another packet of one's own may be on the way."""
        return self._sending.unplaced(order) < self.window

    def send(self, order: Order, msg: Msg, effects: list[Effect]) -> None:
        """A new message goes out: to all."""
        self._sending.multicast(order, msg.raw, effects)
        if self.NOTIFIES:
            self._notified = order.hgsn

    def awaited(self, order: Order) -> NodeId | None:
        """The next holder, until it answers (004 Fig. 18); the holder, while there is work for it (Fig. 20).

        A holder waits for who passed it the token, or whom it asked, if it lacks something (Fig. 21).
        """
        if self.S_TOKEN is Token.TRST:
            return self.holder
        if self.S_TOKEN is Token.HOLD:
            return self._asked or self._giver or None if order.known > order.hgsn else None
        busy = order.pending or order.known > order.hgsn or order.latest > min(order.stable, order.delivered)
        return self.holder if busy else None

    @property
    def activity(self) -> int:
        """How often the token was passed: "sequencers are forced to pass the token" (004 §3.2.1 c)."""
        return self.hop

    # --- timeouts -------------------------------------------------------------------------------

    def expired(self, order: Order, name: str, effects: list[Effect]) -> None:
        """A timer ran out."""
        if name == PASS:
            self._on_silence(order, effects)
        elif name == self._msg_retry.name:
            if self._msg_retry.due(self._sending.oldest_own(order), effects):
                self._sending.tried(self.holder, self._msg_retry)
                self._repeat_messages(order, effects)
        elif name == self._ack_retry.name:
            waiting = self.hop if self.S_TOKEN is Token.TRST else None
            if self._ack_retry.due(waiting, effects):
                self._sending.tried(self.holder, self._ack_retry)
                self._stats["retransmissions"] += 1
                effects.append(Unicast(self.holder, self._last_ack))  # it may drown in what goes to all
                self._sending.multicast(order, self._last_ack, effects)
        elif name == self._req_retry.name and self._req_retry.due(order.missing, effects):
            self._ask(order, effects)

    def _on_silence(self, order: Order, effects: list[Effect]) -> None:
        """Pass the token without ordering anything, so that what is on the way becomes stable."""
        if self.S_TOKEN is Token.HOLD and order.known == order.hgsn and len(order.core) > 1:
            self._stats["null_acks"] += 1
            self._pass_token(order, [NULL] if self.NULL_TAKES_PLACE else [], effects)
            self.go_on(order, effects)

    def _repeat_messages(self, order: Order, effects: list[Effect]) -> None:
        """The same MSG is sent at every timeout until it is acknowledged (002 §4.2, "Timeout")."""
        for msg in self._sending.first_unplaced(order):
            self._sending.send_again(msg.raw, effects, attempt=self._msg_retry.attempts)

    # --- requests (002 §4.2, "Receiving REQ message"; 004 Fig. 16, lines 51–57) -----------------

    def _ask(self, order: Order, effects: list[Effect]) -> None:
        """Ask for what is missing: first, before all, who was last heard to order; it has everything.

        If that brings nothing, one member after the other is asked, beginning with who is known to have most.
        So does a member at once that begins a turn, before which nobody ordered. The paper's REQ names nobody
        and is answered by who holds the token, or by who just passed it to the sender of the REQ. The latter
        is the same here; the former is not enough: while there is work, nobody holds the token for long.
        """
        keys, places = order.wanted(min(self.config.max_requests, MAX_ENTRIES))
        if not keys and not places:
            return
        attempt = self._req_retry.attempts - 1
        self._sending.tried(self._asked, self._req_retry)
        publicly = attempt == 0 and not (self.S_TOKEN is Token.HOLD and self.hop == 0)
        if publicly:
            self._asked = self.holder if self._giver in (NOBODY, self.me) else self._giver
        else:
            others = sorted((node for node in order.R if node != self.me), key=lambda node: -order.R[node])
            self._asked = others[attempt % len(others)]
        req = Req(order.hgsn, self._asked, tuple(keys), tuple(places))
        data = encode_req(self._sending.head(order, REQ), req)
        self._stats["requests"] += 1
        self._loss.noticed()
        effects.append(Multicast(data) if publicly else Unicast(self._asked, data))

    def _on_req(self, order: Order, sender: NodeId, req: Req, effects: list[Effect]) -> None:
        """Who is named answers; and for a message that has no place, its origin: nobody else may have it."""
        if self.NOTIFIES:
            order.learn(sender, req.hgsn)
        if req.asked == self.me:
            self._answer(order, sender, req.keys, req.places, effects)
        else:
            own = [key for key in req.keys if key in order.pending and key[0] == self.me]
            if own:
                self._answer(order, sender, own, [], effects)

    def _answer(
        self,
        order: Order,
        to: NodeId,
        keys: Iterable[MessageKey],
        places: Iterable[int],
        effects: list[Effect],
    ) -> None:
        """Send what is here of what was asked for, and say if it is gone."""
        room = BURST_BYTES
        gone = False
        self._loss.noticed()
        for key in keys:
            msg = order.BUF.get(key)
            if msg is not None and room > 0:
                room -= len(msg.raw)
                self._sending.send_again(passed_on(self._sending.head(order, MSG), msg), effects, to)
            gone = gone or key[1] <= order.floors.get(key[0], 0)
        found = [place for place in places if place in order.places]
        if found:
            self._copy(order, to, found, effects)
        if gone or any(place <= order.floor for place in places):
            effects.append(Unicast(to, encode_numbers(self._sending.head(order, GONE), order.floor)))

    def _copy(self, order: Order, to: NodeId, places: Iterable[int], effects: list[Effect]) -> None:
        """Tell what is in these places, and how far the token has come."""
        rows = [(place, order.places[place]) for place in places if place in order.places]
        copy = Copy(order.view.turn, self.hop, tuple(rows[: self.config.max_requests]))
        self._stats["copies"] += 1
        effects.append(Unicast(to, encode_copy(self._sending.head(order, COPY), copy)))
