"""What all orderers have in common: messages are accepted, packed, originated; views end and begin."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol

from ordercast.core.contract import Accept, Drop, Effect, Halt, Install
from ordercast.core.declared import zeros
from ordercast.core.identity import Configuration, ConfigurationId, Ended, Guarantee, Kind, NodeId
from ordercast.core.wire import Malformed
from ordercast.sequencers.optional_rules import Decode, HasTokenList, Reads, ShowsActivity
from ordercast.sequencers.order import Order
from ordercast.sequencers.packets import NOBODY, AnyPacket, decode
from ordercast.sequencers.sending import Sending, Sends
from ordercast.sequencers.settling import settle, unsettled
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.contract import Settled, Unsettled, View
from ordercast.viewsync.protocol import Described


class Rules(Sends, Protocol):
    """What is particular to a protocol: how messages get their places, and what is sent again."""

    @property
    def holder(self) -> NodeId:
        """Who gives places now, as far as is known here."""

    def begin(self, order: Order, effects: list[Effect]) -> None:
        """A new view begins."""

    def take(self, order: Order, sender: NodeId, packet: AnyPacket, effects: list[Effect]) -> str:
        """A packet arrived. Why it is of no use, if it is of none."""

    def expired(self, order: Order, name: str, effects: list[Effect]) -> None:
        """A timer ran out."""

    def go_on(self, order: Order, effects: list[Effect]) -> None:
        """Something has changed: do everything that can be done now."""

    def awaited(self, order: Order) -> NodeId | None:
        """Who keeps this member from going on."""


class RulesClass(Described, Protocol):
    """A class of rules: what a protocol is called and has, and how its rules are made for a member."""

    @property
    def MESSAGE_KIND(self) -> int:  # noqa: N802
        """The kind of packet in which a member first sends its messages."""

    def __call__(self, sending: Sending) -> Rules:
        """The rules of one member."""


class Member:
    """One member's orderer: takes messages, packets and views, and asks the rules of its protocol."""

    def __init__(self, rules: RulesClass, me: NodeId, config: GroupConfig, decode: Decode = decode) -> None:
        """An orderer that is in no view.

        A driver that hands the same bytes to several machines (a simulator) may give them a `decode` that
        remembers.
        """
        self.me = me
        self.config = config
        self.order: Order | None = None
        self._name = rules.NAME
        self._decode = decode
        self._sending = Sending(me, config, rules.MESSAGE_KIND, zeros(rules.STATISTICS))
        self.rules = rules(self._sending)
        self._read = self.rules.read if isinstance(self.rules, Reads) else None
        self._told: Unsettled | None = None
        self._cut_off = False

    @property
    def closed(self) -> bool:
        """Whether nothing new is originated, since somebody brakes."""
        return self._sending.closed

    @closed.setter
    def closed(self, closed: bool) -> None:
        self._sending.closed = closed

    @property
    def unanswered(self) -> dict[NodeId, int]:
        """How often each member was tried again since it was last heard."""
        return self._sending.unanswered

    @property
    def incarnation(self) -> int:
        """Which life of the node this is; -1 before it begins."""
        return self._sending.incarnation

    # --- the contract ---------------------------------------------------------------------------

    def begin(self, incarnation: int) -> None:
        """The node begins a life."""
        self._sending.incarnation = incarnation

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
        effects.append(Accept(self._sending.queue.accept(payloads, guarantee)))
        self.proceed(now_us, effects)

    def packet(self, now_us: int, kind: int, sender: NodeId, data: bytes, effects: list[Effect]) -> None:
        """A packet of this view, from a member of it."""
        order = self.order
        if order is None or self._told is not None:
            effects.append(Drop("no order now"))
            return
        try:
            decode, read = self._decode, self._read
            packet = decode(data) if read is None else read(order, kind, data, decode)
        except Malformed as bad:
            effects.append(Drop(str(bad)))
            return
        unused = self.rules.take(order, sender, packet, effects)
        if unused:
            effects.append(Drop(unused))
        self.rules.go_on(order, effects)

    def timer(self, now_us: int, name: str, effects: list[Effect]) -> None:
        """A timer ran out."""
        if self.order is not None and self._told is None:
            self.rules.expired(self.order, name, effects)

    def proceed(self, now_us: int, effects: list[Effect]) -> None:
        """Originate what waits, if that is allowed."""
        if self.order is not None and self._told is None:
            self.rules.go_on(self.order, effects)

    def unsettled(self) -> Unsettled:
        """Freeze, and tell what is not settled."""
        if self._told is None:
            self._told = Unsettled(0, 0, {}) if self.order is None else unsettled(self.order)
        return self._told

    def install(self, now_us: int, view: View, settled: Settled, effects: list[Effect]) -> None:
        """Settle the old view and go on in the new one; or only change the token list."""
        old = self.order
        if old is not None and old.view.id == view.id:
            if view.turn <= old.view.turn:
                return
            rules = self.rules
            assert isinstance(rules, HasTokenList), f"{self._name} has no token list: run it without i-views"
            assert view.turn == old.view.turn + 1, f"turn {view.turn} after {old.view.turn}"
            if old.cut(settled.upto):
                old.turn_to(view)
                rules.turn(old, effects)
            else:
                old.cut_off = True
                effects.append(Halt("contradiction"))
        else:
            self._cut_off = self.cut_off
            if old is not None and not settle(old, settled, effects):
                self._cut_off = True
                effects.append(Halt("cut off"))
            self._sending.begin_view()
            ended = None if old is None else Ended(old.view.id, old.last_message)
            at_least = self.rules.AT_LEAST if isinstance(self.rules, HasTokenList) else Guarantee.K1
            self.order = Order(view, self.me, self.config, at_least)
            effects.append(Install(Configuration(view.id, Kind.REGULAR, view.members), ended))
            self.rules.begin(self.order, effects)
        self._told = None
        self.proceed(now_us, effects)

    @property
    def room(self) -> int:
        """Bytes of payload that may be submitted now."""
        return 0 if self.incarnation < 0 else min(self._sending.queue.room, self.config.max_message_size)

    @property
    def idle(self) -> bool:
        """Whether everything accepted was delivered here, and is known to be with all."""
        order = self.order
        if self._sending.queue.waiting:
            return False
        return order is None or (
            not self._sending.unplaced(order) and order.last_own <= min(order.delivered, order.stable)
        )

    @property
    def holder(self) -> NodeId:
        """Who gives places now, as far as is known here."""
        return self.rules.holder

    @property
    def next_holder(self) -> NodeId:
        """The member behind this one in the token list."""
        core = self.order.core if self.order is not None else ()
        return core[(core.index(self.holder) + 1) % len(core)] if self.holder in core else NOBODY

    @property
    def waiting_for(self) -> NodeId | None:
        """The members that this one waits for."""
        return None if self.order is None or self._told is not None else self.rules.awaited(self.order)

    @property
    def progress(self) -> Hashable:
        """How far the order is here, and as far as is known at others; and who orders.

        Where nothing is owed, all that can get on is the token: each look may find it with the same member.
        Where something is owed, a token that goes round and does nothing about it is no progress.
        """
        order = self.order
        if order is None:
            return None
        view = order.view
        at_rest = all(mark is None for mark in self.owed)
        hop = self.rules.hop if at_rest and isinstance(self.rules, HasTokenList) else None
        known = order.hgsn, order.delivered, order.stable, order.N[self.me]
        return view.id, view.turn, *known, self.holder, hop

    @property
    def activity(self) -> Hashable:
        """What changes as long as others order, if the protocol's rules say and there are others."""
        order, rules = self.order, self.rules
        if order is None or len(order.core) < 2 or not isinstance(rules, ShowsActivity):
            return None
        return rules.activity

    @property
    def owed(self) -> tuple[int | None, ...]:
        """Places of own packets, packets of known places, and that all have what was placed."""
        order = self.order
        if order is None:
            return ()
        settled = min(order.stable, order.delivered)
        return (
            order.sequenced[self.me] if self._sending.unplaced(order) else None,
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
        return self._cut_off or (self.order is not None and self.order.cut_off)

    @property
    def stats(self) -> Mapping[str, float]:
        """Running figures, by name."""
        if self.order is not None:
            self._sending.stats["stable_lag"] = self.order.hgsn - self.order.stable
        return self._sending.stats


class OrdererOf:
    """What a protocol of the family is made of: its rules, and how they become a member's orderer."""

    def __init__(self, rules: RulesClass) -> None:
        self._rules = rules
        self.NAME = rules.NAME
        self.SUMMARY = rules.SUMMARY
        self.KINDS = rules.KINDS
        self.DROPS = rules.DROPS
        self.STATISTICS = rules.STATISTICS

    def __call__(self, me: NodeId, config: GroupConfig) -> Member:
        """The orderer of one member."""
        return Member(self._rules, me, config)
