"""How an orderer sends: messages are packed, numbered and originated, and sent again if need be."""

from __future__ import annotations

from typing import Protocol

from ordercast.core.contract import Effect, Multicast, Originate
from ordercast.core.identity import Batch, NodeId
from ordercast.core.packing import SendQueue
from ordercast.core.wire import MAX_PACKET
from ordercast.sequencers.loss import Loss
from ordercast.sequencers.order import Order
from ordercast.sequencers.packets import CONTINUED, CONTINUES, NOBODY, Msg, encode_msg
from ordercast.sequencers.retry_timer import RetryTimer
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.header import header
from ordercast.viewsync.parts import send_in_parts

BURST_BYTES = 256 * 1024
"""Most that is sent at a time to who asked for something, so that it is not lost again for being too much."""


AGAIN, AGAIN_BYTES = 4, 64 * 1024
"""Most packets, and most bytes, of its own that a member sends again at a time; one in any case."""


class Sends(Protocol):
    """Whether and where new messages go: what `Sending.originate` asks of the protocol's rules."""

    def may_send(self, order: Order) -> bool:
        """Whether flow control allows another packet of one's own."""

    def send(self, order: Order, msg: Msg, effects: list[Effect]) -> None:
        """A new message goes out."""


class Sending:
    """What one member sends, over all views of a life."""

    def __init__(self, me: NodeId, config: GroupConfig, message_kind: int, stats: dict[str, float]) -> None:
        """Messages are first sent in packets of `message_kind`; what happens is counted in `stats`."""
        self.me = me
        self.config = config
        self.stats = stats
        self.closed = False
        """Nothing new is originated."""
        self.incarnation = -1
        self.queue = SendQueue(config.send_queue)
        self.loss = Loss(config)
        self.unanswered: dict[NodeId, int] = {}
        """How many attempts to reach each member had no answer since it was heard (`Orderer.unanswered`)."""
        self._attempts: dict[NodeId, dict[str, int]] = {}
        """The same of each thing by itself that is sent again, by the name of its timer."""
        self._message_kind = message_kind
        self._heads: dict[int, bytes] = {}

    def begin_view(self) -> None:
        """Another view begins: what was sent in part is sent anew from its start."""
        self.queue.rewind()
        self._heads.clear()

    def unplaced(self, order: Order) -> int:
        """How many packets this member has sent whose places it does not know."""
        return order.N[self.me] - 1 - order.sequenced[self.me]

    def oldest_own(self, order: Order) -> int | None:
        """The lsn of the first of them, if there is one."""
        lsn = order.sequenced[self.me] + 1
        return lsn if lsn < order.N[self.me] else None

    def first_unplaced(self, order: Order) -> list[Msg]:
        """The first few of them: enough to go on with, not enough to be lost again for being too much."""
        found: list[Msg] = []
        room = AGAIN_BYTES
        for lsn in range(order.sequenced[self.me] + 1, order.N[self.me]):
            msg = order.BUF[self.me, lsn]
            room -= len(msg.raw)
            if found and (room < 0 or len(found) == AGAIN):
                break
            if msg.key not in order.place_of:
                found.append(msg)
        return found

    def originate(self, order: Order, rules: Sends, effects: list[Effect]) -> None:
        """Send what waits, as far as flow control allows."""
        queue = self.queue
        while queue.waiting and not self.closed and rules.may_send(order):
            packed = queue.next_packet(self.loss.space)
            assert packed is not None
            self.loss.sent()
            number, guarantee, chunks, ends, continues, continued = packed
            flags = CONTINUES * continues | CONTINUED * continued
            key = (self.me, order.N[self.me])
            head = self.head(order, self._message_kind)
            msg = encode_msg(head, key, number, order.hgsn, guarantee, flags, chunks)
            order.receive(msg)
            if ends:
                batch = Batch(order.view.id, 0, 0, self.me, self.incarnation, number, guarantee, ends)
                effects.append(Originate(batch))
            self.stats["packets"] += 1
            rules.send(order, msg, effects)

    def head(self, order: Order, kind: int) -> bytes:
        """What a packet of that kind begins with in this view."""
        found = self._heads.get(kind)
        if found is None:
            found = self._heads[kind] = header(kind, order.view.id, self.me, self.incarnation)
        return found

    def tried(self, node: NodeId, retry: RetryTimer) -> None:
        """Record that something is about to be sent to `node` again, if the last time had no answer, either.

        So an attempt counts once it has had its time. What is sent beside it counts by itself: who "tries to
        send a message for a certain number of times" (004 §3.2.1; A in 002 §2) learns nothing from two
        messages at the same time that one would not tell.
        """
        if retry.attempts > 1:
            self.left_unanswered(node, retry.name)

    def left_unanswered(self, node: NodeId, what: str) -> None:
        """Record that one more attempt to reach `node` had no answer."""
        if node in (NOBODY, self.me):
            return
        if node not in self.unanswered:
            self._attempts[node] = {}
        attempts = self._attempts[node]
        attempts[what] = attempts.get(what, 0) + 1
        self.unanswered[node] = max(attempts.values())

    def multicast(self, order: Order, data: bytes, effects: list[Effect]) -> None:
        """Send to all members; a member that is alone has nobody to send to."""
        if len(order.R) > 1:
            effects.append(Multicast(data))

    def send_again(
        self, data: bytes, effects: list[Effect], to: NodeId | None = None, attempt: int = 0
    ) -> None:
        """Send a packet of messages once more, to one member or to all.

        In parts of a datagram each, if it was asked for or packets are being lost. One of its own that only
        has no place yet may not be lost at all: the first ``attempt`` is cheap, and sends it whole.
        """
        self.stats["retransmissions"] += 1
        whole = attempt == 1 and not self.loss.recent
        send_in_parts(data, MAX_PACKET if whole else self.config.datagram_size, effects, to)
