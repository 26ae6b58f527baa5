"""A node below the primary ring: it follows the order, and may be a secondary source (004 §3.3.2).

It has one node above it at a time, which feeds it, and goes over to the next one when that falls silent, or
says that it no longer has what comes next. It takes no part in the token, and has no vote: whether it lives
concerns nobody but those whom it feeds itself. What it is told is final.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ordercast.core.contract import (
    LEFT,
    CancelTimer,
    Deliver,
    Drop,
    Effect,
    Event,
    Gone,
    Halt,
    Install,
    Originate,
    Packet,
    SetTimer,
    Shift,
    Start,
    Stop,
    Submit,
    Timer,
    Unicast,
)
from ordercast.core.declared import zeros
from ordercast.core.fronted import whole
from ordercast.core.identity import Configuration, ConfigurationId, Ended, Kind, NodeId
from ordercast.core.wire import FORGED_SENDER, Malformed
from ordercast.levels.config import Levels, LevelsConfig
from ordercast.levels.feed import Beginning, Entry, Feed, Ordered, Piece, Position, read_entry
from ordercast.levels.feeding import BEAT_TIMER, Feeding
from ordercast.levels.packets import (
    LEVEL_STATISTICS,
    Attach,
    Beat,
    Insert,
    LevelPacket,
    Lost,
    Pieces,
    Status,
    Welcome,
    decode,
    encode,
)
from ordercast.levels.primary import LEAST_FED_BYTES, is_between_levels
from ordercast.levels.source import Source
from ordercast.sequencers.declared import MOVING_STATISTICS
from ordercast.viewsync.declared import STATISTICS as GROUP_STATISTICS
from ordercast.viewsync.header import NO_VIEW, Header, read_header
from ordercast.viewsync.states import State

ATTACH_TIMER, TURN_TIMER, LATE_TIMER, INSERT_TIMER = "feed attach", "feed turn", "feed late", "feed insert"
MOST_HELD = 256
"""Pieces that came before those in front of them, and are held until these have come."""
INSERTED = 4
"""Times `retry_us` after which messages that are not in the order yet are sent again: it takes a while."""
LARGEST_ENTRY = 64 * 1024 * 1024
"""Bytes of one entry of the order: more than any packet of messages, or message in parts, can be."""
STATISTICS = (*GROUP_STATISTICS, *MOVING_STATISTICS, *LEVEL_STATISTICS)


class FollowerMachine:
    """One node that is no primary."""

    def __init__(self, me: NodeId, config: LevelsConfig) -> None:
        self.me = me
        self.incarnation = -1
        self.state = State.JOINING
        self.halted = False
        self._config = config
        self._levels = Levels(config)
        self._parents = self._levels.parents(me)
        self._stats = zeros(STATISTICS)
        self._feed = Feed(max(LEAST_FED_BYTES, config.keep_bytes))
        self._feeding = Feeding(me, config, self._feed, self._stats)
        self._source = Source(me, config, self._levels.may_send(me))
        self._leaving = False
        self._view: ConfigurationId = NO_VIEW
        self._at = 0
        """The last piece of the view that is here, with all before it."""
        self._partial: list[bytes] = []
        """Pieces of the next entry, the first ones."""
        self._held: dict[int, Piece] = {}
        """Pieces of the view further on."""
        self._last_seq = 0
        self._choice = 0
        """Which of the parents feeds this node, or is asked to."""
        self._attached = False
        """Whether that parent feeds this node."""
        self._refused: set[NodeId] = set()
        """Parents that do not have what this node lacks."""
        self._search_us = 0
        """When this node began to look for another parent."""
        self._heard_us = 0
        self._asked_us = 0
        """When this node last said that it lacks something."""
        self._beyond = 0
        """The last piece of the view that it has heard of."""

    # --- the contract ---------------------------------------------------------------------------

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Take one event; the effects that follow from it, to be carried out in this order."""
        effects: list[Effect] = []
        if self.halted:
            assert type(event) is Packet, f"node {self.me} has halted; make a new machine and start it"
            return (Drop("halted"),)
        match event:
            case Packet(data, sender):
                self._on_packet(now_us, data, sender, effects)
            case Timer(name):
                self._on_timer(now_us, name, effects)
            case Submit(payloads, guarantee):
                if self._leaving or self.incarnation < 0:
                    raise RuntimeError(
                        f"node {self.me} takes no messages: it is not started, or it is leaving"
                    )
                effects.append(self._source.accept(whole(payloads), guarantee))
            case Start(incarnation):
                if self.incarnation >= 0:
                    raise RuntimeError(f"node {self.me} was started before; make a new machine")
                self.incarnation = self._source.incarnation = self._feeding.incarnation = incarnation
                self._search_us = now_us
                effects.append(Shift(State.JOINING, "started"))
                self._ask(now_us, effects)
            case Stop():
                self._leaving = True
            case Gone(node):
                if node == self._parent:
                    self._next_parent(now_us, effects)
            case _:
                pass  # nobody waits for this node, and it has no timeouts that distance could stretch
        self._go_on(effects)
        return effects

    @property
    def room(self) -> int:
        """Size of the largest message that may be submitted now; 0 at a node that only receives."""
        return 0 if self.halted or self._leaving or self.incarnation < 0 else self._source.room

    @property
    def stats(self) -> Mapping[str, float]:
        """Running figures, by name."""
        return self._stats

    @property
    def role(self) -> str:
        """What this node is: `source` or `receiver`."""
        return "source" if self._source.allowed else "receiver"

    @property
    def waits(self) -> Mapping[NodeId, int]:
        """Empty: a follower orders nothing, so that it knows of nobody who is waited for."""
        return {}

    @property
    def laggard(self) -> NodeId | None:
        """The node above, while it does not answer."""
        return None if self._attached else self._parent

    @property
    def final(self) -> tuple[ConfigurationId, int] | None:
        """Everything that was delivered here is final."""
        return None if self._view == NO_VIEW else (self._view, self._last_seq)

    # --- the node above -------------------------------------------------------------------------

    @property
    def _parent(self) -> NodeId:
        return self._parents[self._choice]

    def _send(self, packet: LevelPacket, effects: list[Effect]) -> None:
        data = encode(packet, self._view, self.me, self.incarnation)
        effects.append(Unicast(self._parent, data))

    def _ask(self, now_us: int, effects: list[Effect]) -> None:
        """Ask to be fed, until there is an answer."""
        self._heard_us = now_us
        self._send(Attach(self._at), effects)
        effects.append(SetTimer(ATTACH_TIMER, self._config.join_us))

    def _next_parent(self, now_us: int, effects: list[Effect]) -> None:
        """Go over to another one that may have what comes next here; without any, another life begins.

        It is a primary only if all that feed this node's ring refused, or do not answer for long.
        """
        if self._attached:
            self._attached = False
            self._search_us = now_us
        searched_us = now_us - self._search_us
        if len(self._refused) == len(self._parents) or (
            self._refused and searched_us > 2 * self._config.conservative_us
        ):
            self._end("cut off", effects)
            return
        feeders = self._levels.feeders(self.me)
        patient = searched_us < self._config.conservative_us and not self._refused.issuperset(feeders)
        choices = len(feeders) if patient else len(self._parents)
        self._choice = (self._choice + 1) % choices
        while self._parent in self._refused:
            self._choice = (self._choice + 1) % choices
        self._stats["parents"] += 1
        effects += (CancelTimer(LATE_TIMER), CancelTimer(TURN_TIMER))
        self._ask(now_us, effects)

    def _heard(self, now_us: int, period_us: int, effects: list[Effect]) -> None:
        """The node above lives, and will be heard again in time."""
        self._heard_us = now_us
        self._refused.clear()
        if not self._attached:
            self._attached = True
            effects.append(CancelTimer(ATTACH_TIMER))
        error_us = 2 * period_us * self._config.clock_error_ppm // 1_000_000
        late_us = period_us + error_us + self._config.lateness_us
        effects.append(SetTimer(LATE_TIMER, max(late_us, self._config.aggressive_us)))

    def _on_timer(self, now_us: int, name: str, effects: list[Effect]) -> None:
        if name == BEAT_TIMER:
            self._feeding.timer(now_us, effects)
        elif name == ATTACH_TIMER:
            if not self._attached:
                self._next_parent(now_us, effects)
        elif name == LATE_TIMER:
            self._next_parent(now_us, effects)
        elif name == TURN_TIMER:
            self._tell(now_us, effects)
        elif name == INSERT_TIMER:
            self._source.again()
            if not self._source.idle:
                effects.append(SetTimer(INSERT_TIMER, INSERTED * self._config.retry_us))

    def _tell(self, now_us: int, effects: list[Effect]) -> None:
        """Tell how far this node has come."""
        self._asked_us = now_us
        self._send(Status(self._at, self._beyond > self._at), effects)

    # --- packets --------------------------------------------------------------------------------

    def _on_packet(self, now_us: int, data: bytes, sender: NodeId, effects: list[Effect]) -> None:
        if not is_between_levels(data):
            effects.append(Drop("of the primary ring"))
            return
        try:
            head = read_header(data)
            packet = decode(data)
        except Malformed as bad:
            effects.append(Drop(str(bad)))
            return
        if head.sender != sender:
            effects.append(Drop(FORGED_SENDER))
            return
        match packet:
            case Attach() | Status() | Insert():
                self._from_below(now_us, head, packet, effects)
            case _ if sender != self._parent:
                effects.append(Drop("not above"))
            case Welcome():
                self._on_welcome(now_us, head, packet, effects)
            case Pieces():
                self._on_pieces(now_us, head.view, packet, effects)
            case Beat():
                self._on_beat(now_us, head.view, packet, effects)
            case Lost():
                self._on_lost(now_us, effects)

    def _from_below(
        self, now_us: int, head: Header, packet: Attach | Status | Insert, effects: list[Effect]
    ) -> None:
        sender = head.sender
        if self._levels.is_primary(sender) or not self._levels.is_above(self.me, sender):
            effects.append(Drop("not below"))
            return
        match packet:
            case Attach(at):
                position = None if head.view == NO_VIEW else Position(head.view, at)
                self._feeding.attach(now_us, sender, head.incarnation, position, effects)
            case Status():
                if not self._feeding.status(now_us, sender, head.view, packet, effects):
                    effects.append(Drop("not below"))
            case Insert(origin):
                if origin != sender and not self._levels.is_above(sender, origin):
                    effects.append(Drop("not below"))
                elif self._attached:
                    effects.append(
                        Unicast(self._parent, encode(packet, head.view, self.me, self.incarnation))
                    )

    def _on_welcome(self, now_us: int, head: Header, packet: Welcome, effects: list[Effect]) -> None:
        if self._view != NO_VIEW or head.view == NO_VIEW:
            effects.append(Drop("duplicate"))
            return
        self._install(head.view, packet.members, effects)
        self._at = self._beyond = packet.at
        self._feed.begin(head.view, packet.members, packet.at + 1)
        self.state = State.MEMBER
        effects.append(Shift(State.MEMBER, "let in"))
        self._heard(now_us, self._config.heartbeat_us, effects)

    def _install(self, view: ConfigurationId, members: tuple[NodeId, ...], effects: list[Effect]) -> None:
        ended = None if self._view == NO_VIEW else Ended(self._view, self._last_seq)
        effects.append(Install(Configuration(view, Kind.REGULAR, members), ended))
        self._view, self._last_seq, self._at, self._beyond = view, 0, 0, 0
        self._held.clear()
        self._partial.clear()
        self._stats["views"] += 1
        self._source.begin_view()

    def _on_beat(self, now_us: int, view: ConfigurationId, beat: Beat, effects: list[Effect]) -> None:
        period_us = max(self._config.heartbeat_us, (beat.turns + 1) * self._config.hurry_us)
        self._heard(now_us, period_us, effects)
        if view == self._view:
            self._beyond = max(self._beyond, beat.at)
        elif view.seq > self._view.seq:
            self._beyond = max(self._beyond, self._at + 1)
        effects.append(SetTimer(TURN_TIMER, 1 + min(beat.place, beat.turns) * self._config.hurry_us))

    def _on_lost(self, now_us: int, effects: list[Effect]) -> None:
        """The node above no longer has what comes next here, and will not have it again."""
        self._refused.add(self._parent)
        self._next_parent(now_us, effects)

    def _end(self, reason: str, effects: list[Effect]) -> None:
        self.halted = True
        effects.append(Halt(reason))

    # --- the order ------------------------------------------------------------------------------

    def _on_pieces(self, now_us: int, view: ConfigurationId, packet: Pieces, effects: list[Effect]) -> None:
        if self._view == NO_VIEW or view.seq < self._view.seq:
            effects.append(Drop("other view"))
            return
        if view != self._view and (packet.first or not self._begin(view, packet.pieces[0], effects)):
            self._lack(now_us, self._at + 1, effects)
            return
        for number, piece in enumerate(packet.pieces, packet.first):
            if number > self._at and number <= self._at + MOST_HELD:
                self._held[number] = piece
        while not self.halted and self._at + 1 in self._held:
            self._take(self._held.pop(self._at + 1), effects)
        last = packet.first + len(packet.pieces) - 1
        if last > self._at:
            self._lack(now_us, last, effects)

    def _lack(self, now_us: int, upto: int, effects: list[Effect]) -> None:
        """Something is missing here before that: say so, but not over and over."""
        self._beyond = max(self._beyond, upto)
        if now_us - self._asked_us >= self._config.retry_us:
            self._tell(now_us, effects)

    def _begin(self, view: ConfigurationId, piece: Piece, effects: list[Effect]) -> bool:
        """Go on to the next view, if everything of this one is here. Whether that is so."""
        try:
            entry = read_entry(piece[1])
        except Malformed as bad:
            effects.append(Drop(str(bad)))
            return False
        if self._partial or entry != Beginning(getattr(entry, "members", ()), self._view, self._at):
            return False
        assert isinstance(entry, Beginning), "it is equal to one"
        self._install(view, entry.members, effects)
        self._feed.begin(view, entry.members, 0)
        self._feed.add(piece)
        return True

    def _take(self, piece: Piece, effects: list[Effect]) -> None:
        """The next piece of the view's order."""
        more, data = piece
        self._partial.append(data)
        self._at += 1
        self._feed.add(piece)
        if more and sum(map(len, self._partial)) < LARGEST_ENTRY:
            return
        try:
            entry: Entry | None = read_entry(b"".join(self._partial))
        except Malformed:
            entry = None
        self._partial.clear()
        if not isinstance(entry, Ordered):  # who feeds this node does not tell the truth
            self._end("contradiction", effects)
            return
        batch = entry.batch(self._view)
        self._last_seq = batch.seq
        effects.append(Deliver(batch))
        self._source.delivered(batch)

    # --- what follows ---------------------------------------------------------------------------

    def _go_on(self, effects: list[Effect]) -> None:
        """Send what is next, up and down, and leave if all is done."""
        if self.halted:
            return
        if self._attached and self._view != NO_VIEW:
            sent = False
            for insert, originated in self._source.due(self._view):
                sent = True
                if originated is not None:
                    effects.append(Originate(originated))
                self._send(insert, effects)
            if sent:
                effects.append(SetTimer(INSERT_TIMER, INSERTED * self._config.retry_us))
            self._feeding.push(effects)
        if self._leaving and self._source.idle:
            self._send(Status(self._at, False, leaving=True), effects)
            self._end(LEFT, effects)
