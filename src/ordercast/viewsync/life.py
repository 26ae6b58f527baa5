"""One life of a node: its view, its vote, what it has stored, whom it hears; and how it enters a view.

`joining` is handed it for what a life does in no view, `membership` for what it does in one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ordercast.core.contract import (
    CancelTimer,
    Effect,
    Halt,
    Persist,
    Shift,
)
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.core.randomness import RandomStream
from ordercast.viewsync.change import Joiner, ViewChange
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.consensus import Voter
from ordercast.viewsync.contract import Orderer, Settled, Unsettled, View
from ordercast.viewsync.detector import Detector, TrafficDetector
from ordercast.viewsync.exchange import Exchange
from ordercast.viewsync.header import NO_VIEW, header
from ordercast.viewsync.numbers import ViewNumbers
from ordercast.viewsync.packets import (
    NO_GROUP,
    Decision,
    MembershipPacket,
    encode,
)
from ordercast.viewsync.parts import send_in_parts
from ordercast.viewsync.states import NEXT, State
from ordercast.viewsync.storage import KEPT_OUTCOMES, Outcome, Stored, store, view_of

HEARTBEAT_TIMER, JOIN_TIMER, CHANGE_TIMER = "heartbeat", "join", "change"
REMEMBERED = 5
"""Joins without which a node that asked to be let in does not count any more."""


class Last:
    """The change before the view that this node is or votes in: kept for those who missed how it ended."""

    __slots__ = ("exchange", "turn", "value", "view")

    def __init__(self, view: ConfigurationId, turn: int, value: bytes, exchange: Exchange) -> None:
        self.view = view
        self.turn = turn
        self.value = value
        self.exchange = exchange


class Brakes:
    """Remembers who falls behind, so that nothing new is sent: this node's application, or other members."""

    def __init__(self) -> None:
        self.mine = False
        self.others: set[NodeId] = set()

    @property
    def on(self) -> bool:
        """Whether this node or a member falls behind."""
        return self.mine or bool(self.others)


class Joiners:
    """Remembers which nodes asked to be let in, and when."""

    def __init__(self, config: GroupConfig) -> None:
        self._most = config.max_members
        self._remembered_us = REMEMBERED * config.join_us
        self._all: dict[NodeId, Joiner] = {}

    def since(self, now_us: int) -> list[tuple[NodeId, Joiner]]:
        """The nodes that asked lately, in ascending order, each with what it asked."""
        since_us = now_us - self._remembered_us
        return [(node, joiner) for node, joiner in sorted(self._all.items()) if joiner.heard_us >= since_us]

    def add(self, node: NodeId, joiner: Joiner) -> None:
        """Record that `node` asked to be let in."""
        self._all[node] = joiner

    def make_room(self, node: NodeId, still_asking: Mapping[NodeId, Joiner]) -> bool:
        """Whether there is room to remember `node`, after those that gave up asking were forgotten."""
        if len(self._all) >= self._most and node not in self._all:
            self._all = dict(still_asking)
        return len(self._all) < self._most or node in self._all

    def forget(self, members: Collection[NodeId]) -> None:
        """Forget nodes that were let in."""
        self._all = {node: joiner for node, joiner in self._all.items() if node not in members}


class Life:
    """One life of a node, and its place in the group."""

    def __init__(
        self, me: NodeId, config: GroupConfig, orderer: Orderer, procedure: type[ViewChange], i_views: bool
    ) -> None:
        self.me = me
        self.config = config
        self.orderer = orderer
        self.procedure = procedure
        self.i_views = i_views
        self.incarnation = -1
        self.state = State.JOINING
        self.halted = False
        self.leaving = False
        self.group = NO_GROUP
        self.view: View | None = None
        self.lives: dict[NodeId, int] = {}
        """The members of the view, and which life of each is meant."""
        self.past: View | None = None
        """While in no view: that of an earlier life, in which this node has a vote."""
        self.voter = Voter()
        self.last_number = 0
        """The highest number of a view that any life of this node installed."""
        self.free = True
        """Whether this node may found a group: it never was in one, or that one is over."""
        self.ended = NO_GROUP
        """The last group that is known to be over."""
        self.last: Last | None = None
        self.turns: dict[int, bytes] = {}
        """What was decided on at the end of each turn of the view."""
        self.change: ViewChange | None = None
        """The change of view that is going on."""
        self.entered = False
        """A view, or a token list, was installed; who looks after the view takes note, and clears this."""
        self.awaited: set[NodeId] = set()
        """Members that have not been heard in the view yet."""
        self.random = RandomStream(0)
        self.numbers = ViewNumbers(self.random)
        self.detector = Detector(config)
        self.traffic = TrafficDetector(config, orderer)
        self.asking = Joiners(config)
        self.brakes = Brakes()
        self.stats = {"views": 0.0, "i_views": 0.0, "rounds": 0.0, "fetched": 0.0}

    def begin(self, incarnation: int, stream: RandomStream, stored: Stored) -> None:
        """The life begins, with what earlier ones stored."""
        self.incarnation = incarnation
        self.random = stream
        self.numbers = ViewNumbers(stream)
        self.orderer.begin(incarnation)
        self.last_number, self.group, self.past, self.voter, self.free, self.ended, outcomes = stored
        for view, turn, value in outcomes:
            if self.last is None:
                self.last = Last(view, turn, value, Exchange({}))
            else:
                self.turns[turn] = value

    @property
    def known_view(self) -> View | None:
        """The view that this life is in, or has a vote in."""
        return self.view or self.past

    def open_change(self, now_us: int, view: View, unsettled: Unsettled | None, full: bool) -> ViewChange:
        """Begin to agree on what follows a view; without anything `unsettled`, for an earlier life."""
        self.change = self.procedure(now_us, self, view, self.voter, self.config, unsettled, full)
        return self.change

    def tell(self, packet: MembershipPacket, effects: list[Effect], to: NodeId | None = None) -> None:
        """Send a packet about the view that is, or was, ours."""
        view = self.known_view
        self.send(packet, view.id if view is not None else NO_VIEW, effects, to)

    def send(
        self, packet: MembershipPacket, view: ConfigurationId, effects: list[Effect], to: NodeId | None = None
    ) -> None:
        """Send a packet about a view, to one node or to all."""
        kind, body = encode(packet)
        data = header(kind, view, self.me, self.incarnation) + body
        send_in_parts(data, self.config.datagram_size, effects, to)

    def keep(self, effects: list[Effect]) -> None:
        """Store view and vote."""
        view = self.known_view
        stored = Stored(
            self.last_number, self.group, view, self.voter, self.free, self.ended, self._outcomes(view)
        )
        effects.append(Persist(store(stored)))

    def _outcomes(self, view: View | None) -> tuple[Outcome, ...]:
        """How this node came to that view and its token list, or how it came to be in none."""
        if self.last is None:
            return ()
        last = Outcome(self.last.view, self.last.turn, self.last.value)
        if view is None:
            return (last,)
        turns = list(self.turns.items())[-(KEPT_OUTCOMES - 1) :]
        return (last, *(Outcome(view.id, turn, value) for turn, value in turns))

    @property
    def goes(self) -> bool:
        """Whether this member leaves with the next change: it wants to, and all it accepted is delivered."""
        return self.leaving and self.orderer.idle

    def suspects(self, now_us: int, awaited: Collection[NodeId]) -> list[NodeId]:
        """Whom to suspect; those who are awaited after the aggressive timeout."""
        active = self.detector.active(now_us, awaited)
        return active + [node for node in self.detector.passive(now_us) if node not in active]

    def gone_members(self) -> list[NodeId]:
        """The members whose processes are believed to have ended."""
        return self.detector.ended

    def believe_ended(self, node: NodeId) -> None:
        """Believe so of a member, until it is heard again."""
        self.detector.gone(node)

    def deserted(self, now_us: int) -> bool:
        """Whether too few are left to agree on what follows this view: the others were heard elsewhere.

        Who is in another group has given up its vote in this one, or never knew that it had one. Who was in
        a later view of this group votes in that one; if nobody else knows it, there never was such a view.
        """
        view = self.known_view
        if view is None:
            return False
        away = self.detector.away(now_us)
        return 2 * sum(node not in away for node in view.members) <= len(view.members)

    def joiners(self, now_us: int) -> Mapping[NodeId, Joiner]:
        """The nodes that asked lately to be let in and are no members, each with what it asked."""
        view = self.known_view
        members = dict(zip(view.members, view.incarnations, strict=True)) if view is not None else {}
        return {
            node: joiner
            for node, joiner in self.asking.since(now_us)
            if joiner.incarnation > members.get(node, -1)
        }

    def shift(self, because: str, effects: list[Effect]) -> None:
        """Enter the state that this reason leads to."""
        following = NEXT[self.state].get(because)
        assert following is not None, f"node {self.me} cannot leave {self.state} because of {because!r}"
        self.state = following
        effects.append(Shift(following, because))

    def note(self, because: str, effects: list[Effect]) -> None:
        """Record the reason for a step within a change of view."""
        if self.state is State.CHANGING:
            self.shift(because, effects)

    def halt(self, reason: str, effects: list[Effect]) -> None:
        """End this life, for this reason."""
        self.halted = True
        effects.append(Halt(reason))

    def is_in(self, decision: Decision) -> bool:
        """Whether this life is meant by a view that is later than all it has seen."""
        me = (self.me, self.incarnation)
        return decision.view.seq > self.last_number and any(member[:2] == me for member in decision.members)

    def install(
        self, now_us: int, decision: Decision, settled: Settled, because: str, effects: list[Effect]
    ) -> None:
        """Install the view that was decided on; `settled` is what is left to be delivered of the last one."""
        view = view_of(decision)
        self.group = decision.group
        self.view, self.past = view, None
        self.lives = dict(zip(view.members, view.incarnations, strict=True))
        self.last_number = view.id.seq
        self.free = False
        self.brakes.others &= set(view.members)
        self.asking.forget(self.lives)
        self.awaited = {node for node in view.members if node != self.me}
        self.detector.watch(now_us, sorted(self.awaited))
        self.turns.clear()
        self.stats["views"] += 1
        self._settle_in(now_us, settled, because, effects)

    def install_list(self, now_us: int, decision: Decision, settled: Settled, effects: list[Effect]) -> None:
        """Install the same view with another token list (004 §4.3.5)."""
        self.view = view_of(decision)
        self.stats["i_views"] += 1
        self._settle_in(now_us, settled, "token list agreed", effects)

    def _settle_in(self, now_us: int, settled: Settled, because: str, effects: list[Effect]) -> None:
        assert self.view is not None, "there is a view to settle in"
        self.change = None
        self.voter = Voter()
        self.keep(effects)
        self.shift(because, effects)
        effects += (CancelTimer(CHANGE_TIMER), CancelTimer(JOIN_TIMER))
        self.orderer.closed = self.brakes.on
        self.orderer.install(now_us, self.view, settled, effects)
        self.entered = True

    def arrived(self, node: NodeId) -> None:
        """Record that a member has installed the view. When all have, what was settled is forgotten."""
        if self.awaited:
            self.awaited.discard(node)
            if not self.awaited and self.last is not None:
                self.last.exchange = Exchange({})
