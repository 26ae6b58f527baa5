"""TOTAL (003): one fixed sequencer, the first member, broadcasts everybody's messages in its order.

Follow a message: a member sends it to the sequencer (TOTAL_REQUEST), again and again until it comes back; the
sequencer gives it the next sequence id and broadcasts it (TOTAL_BCAST), its bytes as they are; who finds a
gap asks the sequencer (TOTAL_RESEND). TOTAL_CUM_SEQ_ACKs say who has what: from the members after every few
packets, or a moment after the last; from the sequencer whenever nothing moves, so that a lost suffix is
noticed and everybody knows what all have ("Future Improvements": positive acknowledgements, the last sequence
id known to all, a window of requests with back-off).

Of the headers that the paper has and does not use, TOTAL_NEW_VIEW_ACK ends the repetition of TOTAL_NEW_VIEW,
and TOTAL_SEQ_ACK is understood, but not sent: a cumulative one says as much. TOTAL_UNICAST "is not to be
processed by the TOTAL layer": it passes by the order and is counted, and no application sends one yet.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from ordercast.core.contract import CancelTimer, Effect, SetTimer, Unicast
from ordercast.core.identity import NodeId
from ordercast.core.wire import FORGED_SENDER
from ordercast.sequencers.declared import TOTAL_DROPS, TOTAL_KINDS, TOTAL_STATISTICS
from ordercast.sequencers.fields import MAX_ENTRIES
from ordercast.sequencers.optional_rules import Decode
from ordercast.sequencers.order import Order
from ordercast.sequencers.packets import (
    NOBODY,
    TOTAL_BCAST,
    TOTAL_CUM_SEQ_ACK,
    TOTAL_NEW_VIEW,
    TOTAL_NEW_VIEW_ACK,
    TOTAL_REQUEST,
    TOTAL_RESEND,
    AnyPacket,
    Bcast,
    CumSeqAck,
    Msg,
    NewView,
    NewViewAck,
    Request,
    Resend,
    SeqAck,
    TotalUnicast,
    encode_bcast,
    encode_numbers,
    encode_resend,
    peek_bcast,
)
from ordercast.sequencers.retry_timer import RetryTimer
from ordercast.sequencers.sending import BURST_BYTES, Sending
from ordercast.viewsync.contract import ORDER_TIMER

FIRST = 1
"""The sequence id of a view's first broadcast. It could be any (003, "View Changes"); everybody knows it, so
nothing has to wait for TOTAL_NEW_VIEW."""
ACK_TIMER = ORDER_TIMER + "cum-seq-ack"
IDLE = ORDER_TIMER + "idle"
LATE = 8
"""What is missing may only be late: it is asked for after this fraction of `retry_us`."""


class Total:
    """A member of a group that runs TOTAL."""

    NAME: ClassVar = "total"
    SUMMARY: ClassVar = "One fixed sequencer, the first member, broadcasts everybody's messages in its order."
    KINDS: ClassVar = TOTAL_KINDS
    DROPS: ClassVar = TOTAL_DROPS
    STATISTICS: ClassVar = TOTAL_STATISTICS
    MESSAGE_KIND: ClassVar = TOTAL_REQUEST

    def __init__(self, sending: Sending) -> None:
        config = sending.config
        self.me = sending.me
        self.config = config
        self._sending = sending
        self._loss = sending.loss
        self._stats = sending.stats
        self.holder: NodeId = NOBODY
        self.sequencing = False
        """Whether this member is the sequencer."""
        self._acknowledged = 0
        """What this member has told the others that it has."""
        self._heard = 0
        """Packets that came from the sequencer in this view."""
        self._ack_every = 1
        self._ack_running = False
        self._own: deque[int] = deque()
        """Places of the sequencer's own packets that not all are known to have."""
        self._unaware: set[NodeId] = set()
        """Members that are not known to be in the sequencer's view yet."""
        self._request_retry = RetryTimer("request", config, self._loss)
        self._resend_retry = RetryTimer("resend", config, self._loss, LATE)
        self._view_retry = RetryTimer("new-view", config, self._loss)
        self._status_retry = RetryTimer("status", config, self._loss)

    # --- views ----------------------------------------------------------------------------------

    def begin(self, order: Order, effects: list[Effect]) -> None:
        """A new view begins, and its sequencer says so."""
        self._elect(order, effects)
        if self._unaware:
            self._announce_view(order, effects)
            self._view_retry.watch(FIRST, effects)
            effects.append(SetTimer(IDLE, self.config.silence_us))

    def _elect(self, order: Order, effects: list[Effect]) -> None:
        """The first listed member is the sequencer: all members have chosen alike (003, "Sequencer")."""
        self.holder = order.core[0]
        self.sequencing = self.holder == self.me
        self._acknowledged = 0
        self._own.clear()
        self._ack_every = max(self.config.window // 2, len(order.R))
        self._ack_running = False
        self._unaware = set(order.R) - {self.me} if self.sequencing else set()
        for retry in (
            self._request_retry,
            self._resend_retry,
            self._view_retry,
            self._status_retry,
        ):
            retry.forget(effects)
        effects.append(CancelTimer(IDLE))

    def _announce_view(self, order: Order, effects: list[Effect]) -> None:
        data = encode_numbers(self._sending.head(order, TOTAL_NEW_VIEW), FIRST)
        self._sending.multicast(order, data, effects)

    # --- packets --------------------------------------------------------------------------------

    def read(self, order: Order, kind: int, data: bytes, decode: Decode) -> AnyPacket:
        """A member's own message comes back to it: it need not be taken apart again."""
        if kind == TOTAL_BCAST:
            seq, stable, origin, lsn = peek_bcast(data)
            if origin == self.me and (msg := order.BUF.get((origin, lsn))) is not None:
                return Bcast(seq, stable, msg)
        return decode(data)

    def take(self, order: Order, sender: NodeId, packet: AnyPacket, effects: list[Effect]) -> str:
        """A packet arrived. Why it is of no use, if it is of none."""
        self._unaware.discard(sender)
        self._heard += sender == self.holder
        match packet:
            case Bcast(seq, stable, msg):
                return self._on_bcast(order, sender, seq, stable, msg)
            case Request(msg):
                return self._on_request(order, sender, msg, effects)
            case CumSeqAck(seq, stable):
                self._on_cum_seq_ack(order, sender, seq, stable, effects)
            case Resend(seqs):
                return self._on_resend(order, sender, seqs, effects)
            case NewView(first):
                if first != FIRST or sender != self.holder:
                    return "other sequencer"
                effects.append(Unicast(sender, self._sending.head(order, TOTAL_NEW_VIEW_ACK)))
            case SeqAck(seq):
                if seq == order.R[sender] + 1:
                    order.learn(sender, seq)
            case TotalUnicast():
                self._stats["unicasts"] += 1
            case NewViewAck():
                pass
            case _:
                return "unknown kind"
        return ""

    def _on_bcast(self, order: Order, sender: NodeId, seq: int, stable: int, msg: Msg) -> str:
        """003, "Members": kept until it is the next one."""
        if sender != self.holder or msg.origin not in order.R:
            return "other sequencer" if sender != self.holder else "not a member's"
        if msg.origin == self.me and msg.lsn >= order.N[self.me]:
            return FORGED_SENDER
        order.receive(msg)
        fresh = order.place(seq, msg.key, sender)
        order.learn(sender, seq)
        order.learn(msg.origin, msg.hgsn)
        self._all_have(order, stable)
        return "" if fresh else "duplicate"

    def _on_request(self, order: Order, sender: NodeId, msg: Msg, effects: list[Effect]) -> str:
        """003, "Sequencer": it gets the next sequence id, but only once."""
        if not self.sequencing or sender != msg.origin:
            return "other sequencer" if not self.sequencing else "not its sender's"
        order.learn(sender, msg.hgsn)
        if order.receive(msg):
            return ""
        if msg.key not in order.pending:  # it was broadcast, and has not come back to its sender
            self._tell(order, effects, sender)
        return "duplicate"

    def _on_cum_seq_ack(
        self, order: Order, sender: NodeId, seq: int, stable: int, effects: list[Effect]
    ) -> None:
        """A member has everything up to here. The sequencer's says also what was broadcast last.

        If the sequencer does not know that this member has what it has, this member's acknowledgement was
        lost.
        """
        order.learn(sender, seq)
        self._all_have(order, stable)
        if sender == self.holder and stable < self._acknowledged:
            self._tell(order, effects)

    def _all_have(self, order: Order, stable: int) -> None:
        if stable > order.stable:
            for member in order.R:
                order.learn(member, stable)

    def _on_resend(self, order: Order, sender: NodeId, seqs: tuple[int, ...], effects: list[Effect]) -> str:
        """003, "Retransmission"."""
        if not self.sequencing:
            return "other sequencer"
        self._resend(order, sender, seqs, effects)
        return ""

    def _resend(self, order: Order, to: NodeId, seqs: tuple[int, ...], effects: list[Effect]) -> None:
        """What is here of that. Its bytes are the same each time, so that parts of them add up."""
        self._loss.noticed()
        room = BURST_BYTES
        for seq in seqs:
            placed = order.places.get(seq)
            if placed is not None and room > 0:
                data = self._bcast(order, 0, seq, order.BUF[placed.node, placed.lsn])
                room -= len(data)
                self._sending.send_again(data, effects, to)

    # --- ordering -------------------------------------------------------------------------------

    def go_on(self, order: Order, effects: list[Effect]) -> None:
        """Something has changed: do everything that can be done now."""
        order.advance()
        order.rank()
        self._sending.originate(order, self, effects)
        while self.sequencing and self._sequence(order, effects):
            order.rank()
            self._sending.originate(order, self, effects)
        order.deliver(effects)
        order.discard(effects)
        if self._untold(order) > 0:
            self._acknowledge(order, effects)
        self._watch(order, effects)

    def _watch(self, order: Order, effects: list[Effect]) -> None:
        """See to it that what is waited for is asked for again."""
        if not self.sequencing:
            self._request_retry.watch(self._sending.oldest_own(order), effects)
            if order.known > order.hgsn:
                self._resend_retry.watch(order.hgsn, effects)
        elif order.unstable:
            self._status_retry.watch(order.stable, effects)

    def _sequence(self, order: Order, effects: list[Effect]) -> bool:
        """Broadcast what was asked for, each with the next sequence id. Whether there was anything."""
        chosen = order.choose(order.room) if order.pending else []
        for key in chosen:
            order.place(order.hgsn + 1, key, self.me)
            order.advance()
            if key[0] == self.me:
                self._own.append(order.hgsn)
            data = self._bcast(order, order.stable, order.hgsn, order.BUF[key])
            self._sending.multicast(order, data, effects)
        return bool(chosen)

    def _bcast(self, order: Order, stable: int, seq: int, msg: Msg) -> bytes:
        return encode_bcast(self._sending.head(order, TOTAL_BCAST), seq, stable, msg)

    def may_send(self, order: Order) -> bool:
        """The sequencer has its sequence ids at once; it waits for the others to have its packets."""
        if self.sequencing:
            own = self._own
            while own and own[0] <= order.stable:
                own.popleft()
            return self._sending.unplaced(order) + len(own) < max(self.config.window, 2 * self._ack_every)
        return self._sending.unplaced(order) < self.config.window

    def send(self, order: Order, msg: Msg, effects: list[Effect]) -> None:
        """A new message goes to the sequencer, which needs not send itself any."""
        if not self.sequencing:
            effects.append(Unicast(self.holder, msg.raw))

    def awaited(self, order: Order) -> NodeId | None:
        """The sequencer, while something is owed; the sequencer itself waits for who has least."""
        busy = order.pending or order.known > order.hgsn or order.latest > min(order.stable, order.delivered)
        if not busy:
            return None
        if not self.sequencing:
            return self.holder
        slowest = min(order.core, key=order.R.__getitem__)
        return slowest if slowest != self.me else None

    @property
    def activity(self) -> int | None:
        """What was heard from the sequencer: it tells all how far it is when it has nothing to broadcast."""
        return None if self.sequencing else self._heard

    # --- acknowledging --------------------------------------------------------------------------

    def _untold(self, order: Order) -> int:
        """How many places there are of which this member has to tell the others that it has them."""
        return order.hgsn - self._acknowledged

    def _acknowledge(self, order: Order, effects: list[Effect]) -> None:
        """Tell all members what is here: every few packets, or after a short time."""
        if self.sequencing:
            self._acknowledged = order.hgsn  # its broadcasts have said so
        elif self._untold(order) >= self._ack_every:
            self._tell(order, effects)
        elif not self._ack_running:
            self._ack_running = True
            effects.append(SetTimer(ACK_TIMER, self.config.hurry_us))

    def _tell(self, order: Order, effects: list[Effect], to: NodeId = NOBODY) -> None:
        """Send TOTAL_CUM_SEQ_ACK to all, or to one."""
        self._acknowledged = order.hgsn
        self._stats["acks"] += 1
        data = encode_numbers(self._sending.head(order, TOTAL_CUM_SEQ_ACK), order.hgsn, order.stable)
        if to:
            effects.append(Unicast(to, data))
        else:
            self._sending.multicast(order, data, effects)

    # --- timeouts -------------------------------------------------------------------------------

    def expired(self, order: Order, name: str, effects: list[Effect]) -> None:
        """A timer ran out."""
        if name == ACK_TIMER:
            self._ack_running = False
            if self._untold(order) > 0:
                self._tell(order, effects)
        elif name == IDLE:
            self._tell(order, effects)
            effects.append(SetTimer(IDLE, self.config.silence_us))
        elif name == self._status_retry.name:
            if self._status_retry.due(order.stable if order.unstable else None, effects):
                self._sending.tried(min(order.core, key=order.R.__getitem__), self._status_retry)
                self._tell(order, effects)
        elif name == self._request_retry.name:
            if self._request_retry.due(self._sending.oldest_own(order), effects):
                self._sending.tried(self.holder, self._request_retry)
                self._repeat_requests(order, effects)
        elif name == self._resend_retry.name:
            missing = order.hgsn if order.known > order.hgsn else None
            if self._resend_retry.due(missing, effects):
                self._ask(order, effects)
        elif name == self._view_retry.name and self._view_retry.due(
            FIRST if self._unaware else None, effects
        ):
            self._announce_view(order, effects)

    def _repeat_requests(self, order: Order, effects: list[Effect]) -> None:
        for msg in self._sending.first_unplaced(order):
            self._sending.send_again(msg.raw, effects, self.holder, self._request_retry.attempts)

    def _ask(self, order: Order, effects: list[Effect]) -> None:
        """Ask for the first that are missing; what came in the meantime out of order is not asked for."""
        _, seqs = order.wanted(min(self.config.max_requests, MAX_ENTRIES))
        if seqs:
            self._stats["requests"] += 1
            self._loss.noticed()
            self._sending.tried(self.holder, self._resend_retry)
            effects.append(Unicast(self.holder, encode_resend(self._sending.head(order, TOTAL_RESEND), seqs)))
