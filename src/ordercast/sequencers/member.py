"""What all orderers have in common: messages are accepted, packed, originated; views end and begin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import ClassVar

from ordercast.core.contract import Accept, Drop, Effect, Halt, Install, Multicast, Originate
from ordercast.core.declared import DropReason, PacketKind, Statistic, zeros
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Ended, Guarantee, Kind, NodeId
from ordercast.core.packing import SendQueue
from ordercast.core.wire import MAX_PACKET, Malformed
from ordercast.sequencers.declared import DROPS, STATISTICS
from ordercast.sequencers.loss import Loss
from ordercast.sequencers.order import Order
from ordercast.sequencers.packets import (
    CONTINUED,
    CONTINUES,
    NOBODY,
    AnyPacket,
    Msg,
    decode,
    encode_msg,
)
from ordercast.sequencers.settling import settle, unsettled
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.contract import Settled, Unsettled, View
from ordercast.viewsync.header import header
from ordercast.viewsync.parts import send_in_parts

BURST_BYTES = 256 * 1024
"""Most that is sent at a time to who asked for something, so that it is not lost again for being too much."""


AGAIN, AGAIN_BYTES = 4, 64 * 1024
"""Most packets, and most bytes, of its own that a member sends again at a time; one in any case."""


class Member(ABC):
    """One member's part of an orderer; what is particular to a protocol is in the methods without a body."""

    NAME: ClassVar[str]
    SUMMARY: ClassVar[str]
    KINDS: ClassVar[Mapping[int, PacketKind]]
    DROPS: ClassVar[tuple[DropReason, ...]] = DROPS
    STATISTICS: ClassVar[tuple[Statistic, ...]] = STATISTICS
    MESSAGE_KIND: ClassVar[int]
    """The kind of packet in which a member first sends its messages."""
    AT_LEAST_MAJORITY: ClassVar[bool] = False
    """Whether levels of resilience below a majority are raised to it."""

    def __init__(
        self, me: NodeId, config: GroupConfig, decode: Callable[[bytes], AnyPacket] = decode
    ) -> None:
        """An orderer that is in no view.

        A driver that hands the same bytes to several machines (a simulator) may give them a `decode` that
        remembers.
        """
        self.me = me
        self.config = config
        self.closed = False
        self.incarnation = -1
        self.order: Order | None = None
        self._decode = decode
        self._queue = SendQueue(config.send_queue)
        self._loss = Loss(config)
        self._told: Unsettled | None = None
        self._cut_off = False
        self._heads: dict[int, bytes] = {}
        self._stats = zeros(self.STATISTICS)

    # --- the contract ---------------------------------------------------------------------------

    def begin(self, incarnation: int) -> None:
        """The node begins a life."""
        self.incarnation = incarnation

    def submit(
        self, now_us: int, payloads: Sequence[bytes], guarantee: Guarantee, effects: list[Effect]
    ) -> None:
        """Take messages, in order."""
        largest = max(map(len, payloads), default=0)
        if largest > self.config.max_message_size:
            raise ValueError(
                f"a message of {largest} bytes is larger than max_message_size "
                f"({self.config.max_message_size}); split it, or raise the limit at every node"
            )
        if guarantee is Guarantee.AGREED and self.config.resilience:
            guarantee = Guarantee.of(self.config.resilience)
        effects.append(Accept(self._queue.accept(payloads, guarantee)))
        self.proceed(now_us, effects)

    def packet(self, now_us: int, kind: int, sender: NodeId, data: bytes, effects: list[Effect]) -> None:
        """A packet of this view, from a member of it."""
        order = self.order
        if order is None or self._told is not None:
            effects.append(Drop("no order now"))
            return
        try:
            packet = self._read(order, kind, data)
        except Malformed as bad:
            effects.append(Drop(str(bad)))
            return
        unused = self._take(order, sender, packet, effects)
        if unused:
            effects.append(Drop(unused))
        self._go_on(order, effects)

    def timer(self, now_us: int, name: str, effects: list[Effect]) -> None:
        """A timer ran out."""
        if self.order is not None and self._told is None:
            self._expired(self.order, name, effects)

    def proceed(self, now_us: int, effects: list[Effect]) -> None:
        """Originate what waits, if that is allowed."""
        if self.order is not None and self._told is None:
            self._go_on(self.order, effects)

    def unsettled(self) -> Unsettled:
        """Freeze, and tell what is not settled."""
        if self._told is None:
            self._told = Unsettled(0, 0, {}) if self.order is None else unsettled(self.order)
        return self._told

    def install(self, now_us: int, view: View, settled: Settled, effects: list[Effect]) -> None:
        """Settle the old view and go on in the new one."""
        old = self.order
        if old is not None and old.view.id == view.id:
            assert view.turn <= old.view.turn, f"{self.NAME} has no token list: run it without i-views"
            return
        if old is not None and not settle(old, settled, effects):
            self._cut_off = True
            effects.append(Halt("cut off"))
        self._queue.rewind()
        self._heads.clear()
        ended = None if old is None else Ended(old.view.id, old.last_message)
        self.order = Order(view, self.me, self.config, self.AT_LEAST_MAJORITY)
        effects.append(Install(Configuration(view.id, Kind.REGULAR, view.members), ended))
        self._begin(self.order, effects)
        self._told = None
        self.proceed(now_us, effects)

    @property
    def room(self) -> int:
        """Bytes of payload that may be submitted now."""
        return 0 if self.incarnation < 0 else min(self._queue.room, self.config.max_message_size)

    @property
    def idle(self) -> bool:
        """Whether everything accepted was delivered here, and is known to be with all."""
        order = self.order
        if self._queue.waiting:
            return False
        return order is None or (
            not self._unplaced(order) and order.last_own <= min(order.delivered, order.stable)
        )

    holder: NodeId
    """Who gives places now, as far as is known here."""

    @property
    def next_holder(self) -> NodeId:
        """The member behind this one in the token list."""
        core = self.order.core if self.order is not None else ()
        return core[(core.index(self.holder) + 1) % len(core)] if self.holder in core else NOBODY

    @property
    def waiting_for(self) -> NodeId | None:
        """The members that this one waits for."""
        return None if self.order is None or self._told is not None else self._awaited(self.order)

    @property
    def progress(self) -> Hashable:
        """How far the order is here, and as far as is known at others; and who orders."""
        order = self.order
        if order is None:
            return None
        view = order.view
        return view.id, view.turn, order.hgsn, order.delivered, order.stable, self.holder, order.N[self.me]

    @property
    def owed(self) -> tuple[int | None, ...]:
        """Places of own packets, packets of known places, and that all have what was placed."""
        order = self.order
        if order is None:
            return ()
        settled = min(order.stable, order.delivered)
        return (
            order.sequenced[self.me] if self._unplaced(order) else None,
            order.hgsn if order.known > order.hgsn else None,
            settled if order.latest > settled else None,
        )

    @property
    def final(self) -> tuple[ConfigurationId, int] | None:
        """The view, and up to where everything was delivered here and is with all in the token list."""
        order = self.order
        if order is None:
            return None
        majority = Guarantee.AGREED.needed(len(order.R))  # the token list may be shorter than the view
        with_majority = sorted(order.R.values(), reverse=True)[majority - 1]
        return order.view.id, min(order.stable, order.delivered, with_majority)

    @property
    def cut_off(self) -> bool:
        """Whether what is missing here is gone everywhere."""
        return self._cut_off

    @property
    def stats(self) -> Mapping[str, float]:
        """Running figures, by name."""
        if self.order is not None:
            self._stats["stable_lag"] = self.order.hgsn - self.order.stable
        return self._stats

    # --- what is particular to a protocol -------------------------------------------------------

    @abstractmethod
    def _begin(self, order: Order, effects: list[Effect]) -> None:
        """A new view begins."""

    def _read(self, order: Order, kind: int, data: bytes) -> AnyPacket:
        """What is in a packet, or `Malformed`."""
        return self._decode(data)

    @abstractmethod
    def _take(self, order: Order, sender: NodeId, packet: AnyPacket, effects: list[Effect]) -> str:
        """A packet arrived. Why it is of no use, if it is of none."""

    @abstractmethod
    def _expired(self, order: Order, name: str, effects: list[Effect]) -> None:
        """A timer ran out."""

    @abstractmethod
    def _go_on(self, order: Order, effects: list[Effect]) -> None:
        """Something has changed: do everything that can be done now."""

    @abstractmethod
    def _may_send(self, order: Order) -> bool:
        """Whether flow control allows another packet of one's own."""

    @abstractmethod
    def _send(self, order: Order, msg: Msg, effects: list[Effect]) -> None:
        """A new message goes out."""

    @abstractmethod
    def _awaited(self, order: Order) -> NodeId | None:
        """The members that this one waits for."""

    # --- sending --------------------------------------------------------------------------------

    def _unplaced(self, order: Order) -> int:
        """How many packets this member has sent whose places it does not know."""
        return order.N[self.me] - 1 - order.sequenced[self.me]

    def _oldest_own(self, order: Order) -> int | None:
        """The lsn of the first of them, if there is one."""
        lsn = order.sequenced[self.me] + 1
        return lsn if lsn < order.N[self.me] else None

    def _first_unplaced(self, order: Order) -> list[Msg]:
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

    def _originate(self, order: Order, effects: list[Effect]) -> None:
        """Send what waits, as far as flow control allows."""
        queue = self._queue
        while queue.waiting and not self.closed and self._may_send(order):
            packed = queue.next_packet(self._loss.space)
            assert packed is not None
            self._loss.sent()
            number, guarantee, chunks, ends, continues, continued = packed
            flags = CONTINUES * continues | CONTINUED * continued
            key = (self.me, order.N[self.me])
            head = self._head(order, self.MESSAGE_KIND)
            msg = encode_msg(head, key, number, order.hgsn, guarantee, flags, chunks)
            order.receive(msg)
            if ends:
                batch = Batch(order.view.id, 0, 0, self.me, self.incarnation, number, guarantee, ends)
                effects.append(Originate(batch))
            self._stats["packets"] += 1
            self._send(order, msg, effects)

    def _head(self, order: Order, kind: int) -> bytes:
        """What a packet of that kind begins with in this view."""
        found = self._heads.get(kind)
        if found is None:
            found = self._heads[kind] = header(kind, order.view.id, self.me, self.incarnation)
        return found

    def _multicast(self, order: Order, data: bytes, effects: list[Effect]) -> None:
        """Send to all members; a member that is alone has nobody to send to."""
        if len(order.R) > 1:
            effects.append(Multicast(data))

    def _send_again(
        self, data: bytes, effects: list[Effect], to: NodeId | None = None, attempt: int = 0
    ) -> None:
        """Send a packet of messages once more, to one member or to all.

        In parts of a datagram each, if it was asked for or packets are being lost. One of its own that only
        has no place yet may not be lost at all: the first ``attempt`` is cheap, and sends it whole.
        """
        self._stats["retransmissions"] += 1
        whole = attempt == 1 and not self._loss.recent
        send_in_parts(data, MAX_PACKET if whole else self.config.datagram_size, effects, to)
