"""A primary: a member of the ring that orders, with the nodes below it.

The ring is a group machine of its own (`ordercast.viewsync.machine`). What is broadcast in it are bundles
(`inserting`); what it delivers is taken out of them, delivered, and handed down once it is final (`feed`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from ordercast.core.contract import (
    Accept,
    Deliver,
    Drop,
    Effect,
    Event,
    Halt,
    Install,
    Originate,
    Packet,
    Stable,
    Start,
    Stop,
    Submit,
    Timer,
)
from ordercast.core.declared import zeros
from ordercast.core.fronted import whole
from ordercast.core.identity import Batch, ConfigurationId, Ended, NodeId
from ordercast.core.wire import KIND_BYTE, Malformed
from ordercast.levels.config import Levels, LevelsConfig
from ordercast.levels.feed import Beginning, Entry, Feed, Position, ordered, pieces_of
from ordercast.levels.feeding import BEAT_TIMER, Feeding
from ordercast.levels.inserting import Inserting, Unbundling, bundles_in
from ordercast.levels.packets import FIRST_LEVEL_KIND, LEVEL_STATISTICS, Attach, Insert, Status, decode
from ordercast.viewsync.contract import View
from ordercast.viewsync.header import NO_VIEW, Header, read_header
from ordercast.viewsync.machine import GroupMachine
from ordercast.viewsync.states import State

LEAST_FED_BYTES = 64 * 1024
"""What is kept for nodes below at least, whatever `keep_bytes` says."""


def is_between_levels(data: bytes) -> bool:
    """Whether a packet is of those that levels exchange, by its kind."""
    return data[KIND_BYTE.start : KIND_BYTE.stop] >= bytes((FIRST_LEVEL_KIND,))


def _ends_the_life(effect: Effect) -> bool:
    return isinstance(effect, Halt)


class PrimaryMachine:
    """One primary (004 §3.3.2): a member of the ring that orders, which feeds the nodes below it."""

    def __init__(self, me: NodeId, config: LevelsConfig, ring: GroupMachine) -> None:
        """A primary that has not been started; `ring` is its part in the primary ring."""
        self.me = me
        self.ring = ring
        self._config = config
        self._levels = Levels(config)
        self._counts = zeros(LEVEL_STATISTICS)
        self._feed = Feed(max(LEAST_FED_BYTES, config.keep_bytes))
        self._feeding = Feeding(me, config, self._feed, self._counts)
        self._inserting = Inserting(me, config.send_queue)
        self._unbundling = Unbundling()
        self._leaving = False
        self._now_us = 0
        self._view: ConfigurationId = NO_VIEW
        self._last_seq = 0
        """The place of the last message that was delivered in the view."""
        self._waiting: deque[tuple[int, Entry]] = deque()
        """Entries that are not final yet, each with its place."""
        self._unstable: dict[tuple[int, int], list[Batch]] = {}
        """By place of a packet in the view: what was delivered of it, until all are known to have it."""

    # --- the contract ---------------------------------------------------------------------------

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Take one event; the effects that follow from it, to be carried out in this order."""
        self._now_us = now_us
        effects: list[Effect] = []
        match event:
            case Packet(data):
                if is_between_levels(data):
                    return self._on_level_packet(data, event.sender)
                if not self._levels.is_primary(event.sender):
                    return (Drop("not trusted to be primary"),)
                self._run(event, effects)
            case Timer(name) if name == BEAT_TIMER:
                self._feeding.timer(now_us, effects)
            case Submit(payloads, guarantee):
                self._on_submit(Submit(whole(payloads), guarantee), effects)
            case Stop():
                self._leaving = True
            case Start(incarnation):
                self._inserting.incarnation = self._feeding.incarnation = incarnation
                self._run(event, effects)
            case _:
                self._run(event, effects)
        self._go_on(effects)
        return effects

    @property
    def state(self) -> State:
        """Where this node stands with its ring."""
        return self.ring.state

    @property
    def halted(self) -> bool:
        """Whether this life is over."""
        return self.ring.halted

    @property
    def voting_view(self) -> View | None:
        """The view whose members decide on the next one, if this node is one of them."""
        return self.ring.voting_view

    @property
    def room(self) -> int:
        """Size of the largest message that may be submitted now."""
        if self._leaving or self.ring.room <= 0:
            return 0
        return max(0, min(self._inserting.room, self._config.max_message_size - 1_024))

    @property
    def stats(self) -> Mapping[str, float]:
        """Running figures, by name."""
        return {**self.ring.stats, **self._counts}

    @property
    def waits(self) -> Mapping[NodeId, int]:
        """Not known in this family."""
        return self.ring.waits

    @property
    def role(self) -> str:
        """What this member is for the others right now."""
        return self.ring.role

    @property
    def laggard(self) -> NodeId | None:
        """The node that brakes; or else one that is waited for."""
        return self.ring.laggard

    @property
    def final(self) -> tuple[ConfigurationId, int] | None:
        """Up to where what was delivered here cannot change any more."""
        return self.ring.final

    @property
    def fed_settled(self) -> bool:
        """Whether all below have told that they have everything that was delivered here."""
        return not self._waiting and self._feeding.settled

    # --- the ring -------------------------------------------------------------------------------

    def _run(self, event: Event, effects: list[Effect]) -> None:
        """Give the ring an event, and take what it delivers out of its bundles."""
        for effect in self.ring.handle(self._now_us, event):
            match effect:
                case Deliver(batch):
                    self._on_delivered(batch, effects)
                case Originate(batch):
                    self._on_originated(batch, effects)
                case Stable(batches):
                    self._on_stable(batches, effects)
                case Install():
                    self._on_installed(effect, effects)
                case Accept():
                    pass  # of bundles
                case _:
                    effects.append(effect)

    def _on_delivered(self, batch: Batch, effects: list[Effect]) -> None:
        if (batch.origin, batch.incarnation) == (self.me, self._inserting.incarnation):
            self._inserting.in_flight -= len(batch.payloads)
        delivered: list[Batch] = []
        for place, bundle in bundles_in(batch):
            trusted = bundle is not None and self._levels.may_send(bundle.origin)
            found = self._unbundling.messages(batch, bundle, place) if bundle and trusted else None
            if found is not None:
                delivered.append(found)
                effects.append(Deliver(found))
                self._waiting.append((batch.seq, ordered(found)))
            elif not trusted:
                effects.append(Drop("bad payload"))
        if delivered:
            self._last_seq = batch.seq
        self._unstable[batch.seq, batch.slot] = delivered

    def _on_originated(self, batch: Batch, effects: list[Effect]) -> None:
        for place, bundle in bundles_in(batch):
            if bundle is not None and bundle.view is None:
                found = self._unbundling.messages(batch, bundle, place)
                assert found is not None, "it is this node's own"
                effects.append(Originate(found))

    def _on_stable(self, batches: Sequence[Batch], effects: list[Effect]) -> None:
        known = [each for batch in batches for each in self._unstable.pop((batch.seq, batch.slot), ())]
        if known:
            effects.append(Stable(known))

    def _on_installed(self, install: Install, effects: list[Effect]) -> None:
        """The last view is over, and all that was delivered in it is final."""
        configuration, ended = install
        self._hand_down()
        before = self._feed.end if ended is not None else None
        if ended is not None:
            ended = Ended(ended.configuration, self._last_seq)
        effects.append(Install(configuration, ended))
        self._view, self._last_seq = configuration.id, 0
        self._unstable.clear()
        self._unbundling.begin_view()
        self._inserting.begin_view()
        view, upto = before or Position(NO_VIEW, 0)
        self._feed.begin(configuration.id, configuration.members, 0)
        for piece in pieces_of(Beginning(configuration.members, (view.seq, view.rep), upto)):
            self._feed.add(piece)

    # --- what follows ---------------------------------------------------------------------------

    def _go_on(self, effects: list[Effect]) -> None:
        """Broadcast what is next, hand down what is final, and leave if all is done."""
        while not self.ring.halted and self.ring.room > 0 and (turn := self._inserting.take()) is not None:
            self._run(Submit([turn[0]], turn[1]), effects)
        final = self.ring.final
        if final is not None and final[0] == self._view:
            self._hand_down(final[1])
        if self._view != NO_VIEW:
            self._feeding.push(effects)
        if self._leaving and not self._inserting.own.messages and not self.ring.life.leaving:
            self._run(Stop(), effects)
        effects.sort(key=_ends_the_life)  # nothing is carried out behind that

    def _hand_down(self, upto: int | None = None) -> None:
        """Put into the feed what is final: up to a place, or all of the view."""
        while self._waiting and (upto is None or self._waiting[0][0] <= upto):
            for piece in pieces_of(self._waiting.popleft()[1]):
                self._feed.add(piece)

    def _on_submit(self, submit: Submit, effects: list[Effect]) -> None:
        if self._leaving or self._inserting.incarnation < 0:
            raise RuntimeError(f"node {self.me} takes no messages: it is not started, or it is leaving")
        largest, most = max(map(len, submit.payloads), default=0), self._config.max_message_size - 1_024
        if largest > most:
            raise ValueError(
                f"a message of {largest} bytes is larger than the {most} that primaries take "
                "(max_message_size, without 1024 for what is around it); split it, or raise the limit"
            )
        effects.append(Accept(self._inserting.accept(submit.payloads, submit.guarantee)))

    # --- packets of those below -----------------------------------------------------------------

    def _on_level_packet(self, data: bytes, sender: NodeId) -> Sequence[Effect]:
        if self.ring.halted:
            return (Drop("halted"),)
        try:
            head = read_header(data)
            if head.sender != sender:
                return (Drop("forged sender"),)
            packet = decode(data)
        except Malformed as bad:
            return (Drop(str(bad)),)
        effects: list[Effect] = []
        if self._levels.is_primary(sender):
            return (Drop("not below"),)
        match packet:
            case Attach(at):
                position = None if head.view == NO_VIEW else Position(head.view, at)
                self._feeding.attach(self._now_us, sender, head.incarnation, position, effects)
            case Status():
                if not self._feeding.status(self._now_us, sender, head.view, packet, effects):
                    effects.append(Drop("not below"))
            case Insert():
                self._on_insert(head, packet, effects)
            case _:
                effects.append(Drop("not above"))
        return effects

    def _on_insert(self, head: Header, packet: Insert, effects: list[Effect]) -> None:
        origin = packet.origin
        if origin != head.sender and not self._levels.is_above(head.sender, origin):
            effects.append(Drop("not below"))
        elif self._levels.is_primary(origin) or not self._levels.may_send(origin):
            effects.append(Drop("not trusted to send"))
        elif head.view != self._view or self._leaving:
            effects.append(Drop("other view"))
        else:
            expected = self._unbundling.expected((origin, packet.incarnation))
            self._counts["inserted"] += self._inserting.insert(packet, self._view, expected)
            self._go_on(effects)
