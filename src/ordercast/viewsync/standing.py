"""Where a node stands: its life, its view, what it has stored and whom it hears; and how it enters a view."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping

from ordercast.core.contract import (
    CancelTimer,
    Effect,
    Halt,
    Persist,
    Shift,
)
from ordercast.core.declared import zeros
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.core.randomness import RandomStream
from ordercast.viewsync.change import Joiner, ViewChange
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.consensus import Voter
from ordercast.viewsync.contract import Orderer, Settled, View
from ordercast.viewsync.declared import STATISTICS
from ordercast.viewsync.detector import Detector
from ordercast.viewsync.exchange import Exchange
from ordercast.viewsync.founding import Founding
from ordercast.viewsync.header import NO_VIEW, Header, header
from ordercast.viewsync.numbers import ViewNumbers
from ordercast.viewsync.packets import (
    NO_GROUP,
    Decision,
    Knock,
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


class Standing:
    """One node's place in the group."""

    def __init__(
        self, me: NodeId, config: GroupConfig, orderer: Orderer, procedure: type[ViewChange], i_views: bool
    ) -> None:
        self.me = me
        self.config = config
        self.orderer = orderer
        self._procedure = procedure
        self._i_views = i_views
        self.incarnation = -1
        self.state = State.JOINING
        self.halted = False
        self.leaving = False
        self.group = NO_GROUP
        self.view: View | None = None
        self._lives: dict[NodeId, int] = {}
        """The members of the view, and which life of each is meant."""
        self._past: View | None = None
        """While in no view: that of an earlier life, in which this node has a vote."""
        self._voter = Voter()
        self._last_number = 0
        self._free = True
        """Whether this node may found a group: it never was in one, or that one is over."""
        self._ended = NO_GROUP
        """The last group that is known to be over."""
        self._last: Last | None = None
        self._turns: dict[int, bytes] = {}
        """What was decided on at the end of each turn of the view."""
        self._change: ViewChange | None = None
        self._lacking_us = 0
        """Since when something is lacking here that was decided on."""
        self._progress: Hashable = None
        self._progress_us = 0
        """How far the order was, and since when, while somebody has been waited for."""
        self._owed: list[tuple[int | None, int]] = []
        """What the orderer waits for, one by one, and since when each has not got on."""
        self._founding: Founding | None = None
        self._random = RandomStream(0)
        self.numbers = ViewNumbers(self._random)
        self._knock: tuple[NodeId, Knock, int] | None = None
        """Who was asked whether an older group is there, how, and when."""
        self._detector = Detector(config)
        self._joiners: dict[NodeId, Joiner] = {}
        self._ghosts_us = self._group_us = self._began_us = 0
        self._moot_us = 0
        """When it was last said that the group went on without the vote that this node has."""
        self._braking = False
        self._brakes: set[NodeId] = set()
        self._awaited: set[NodeId] = set()
        """Members that have not been heard in the view yet."""
        self._stats = zeros(STATISTICS)

    def tell(self, packet: MembershipPacket, effects: list[Effect], to: NodeId | None = None) -> None:
        """Send a packet about the view that is, or was, ours."""
        view = self.view or self._past
        self._send(packet, view.id if view is not None else NO_VIEW, effects, to)

    def _send(
        self, packet: MembershipPacket, view: ConfigurationId, effects: list[Effect], to: NodeId | None = None
    ) -> None:
        kind, body = encode(packet)
        data = header(kind, view, self.me, self.incarnation) + body
        send_in_parts(data, self.config.datagram_size, effects, to)

    def keep(self, effects: list[Effect]) -> None:
        """Store view and vote."""
        view = self.view or self._past
        stored = Stored(
            self._last_number, self.group, view, self._voter, self._free, self._ended, self._outcomes(view)
        )
        effects.append(Persist(store(stored)))

    def _outcomes(self, view: View | None) -> tuple[Outcome, ...]:
        """How this node came to that view and its token list, or how it came to be in none."""
        if self._last is None:
            return ()
        last = Outcome(self._last.view, self._last.turn, self._last.value)
        if view is None:
            return (last,)
        turns = list(self._turns.items())[-(KEPT_OUTCOMES - 1) :]
        return (last, *(Outcome(view.id, turn, value) for turn, value in turns))

    @property
    def goes(self) -> bool:
        """Whether this member leaves with the next change: it wants to, and all it accepted is delivered."""
        return self.leaving and self.orderer.idle

    def suspects(self, now_us: int, awaited: Collection[NodeId]) -> list[NodeId]:
        """Whom to suspect; those who are awaited after the aggressive timeout."""
        active = self._detector.active(now_us, awaited)
        return active + [node for node in self._detector.passive(now_us) if node not in active]

    def _deserted(self, now_us: int) -> bool:
        """Whether too few are left to agree on what follows this view: the others were heard elsewhere.

        Who is in another group has given up its vote in this one, or never knew that it had one. Who was in
        a later view of this group votes in that one; if nobody else knows it, there never was such a view.
        """
        view = self.view or self._past
        if view is None:
            return False
        away = self._detector.away(now_us)
        return 2 * sum(node not in away for node in view.members) <= len(view.members)

    def joiners(self, now_us: int) -> Mapping[NodeId, Joiner]:
        """Who asked lately to be let in."""
        since_us = now_us - REMEMBERED * self.config.join_us
        view = self.view or self._past
        members = dict(zip(view.members, view.incarnations, strict=True)) if view is not None else {}
        return {
            node: joiner
            for node, joiner in sorted(self._joiners.items())
            if joiner.heard_us >= since_us and joiner.incarnation > members.get(node, -1)
        }

    def _shift(self, because: str, effects: list[Effect]) -> None:
        following = NEXT[self.state].get(because)
        assert following is not None, f"node {self.me} cannot leave {self.state} because of {because!r}"
        self.state = following
        effects.append(Shift(following, because))

    def note(self, because: str, effects: list[Effect]) -> None:
        """Something worth telling happened in a change."""
        if self.state is State.CHANGING:
            self._shift(because, effects)

    def _halt(self, reason: str, effects: list[Effect]) -> None:
        self.halted = True
        effects.append(Halt(reason))

    def _is_in(self, decision: Decision) -> bool:
        """Whether this life is meant by a view that is later than all it has seen."""
        me = (self.me, self.incarnation)
        return decision.view.seq > self._last_number and any(member[:2] == me for member in decision.members)

    def _install(
        self, now_us: int, decision: Decision, settled: Settled, because: str, effects: list[Effect]
    ) -> None:
        view = view_of(decision)
        self.group = decision.group
        self.view, self._past = view, None
        self._lives = dict(zip(view.members, view.incarnations, strict=True))
        self._last_number = view.id.seq
        self._free = False
        self._founding = None
        self._brakes &= set(view.members)
        self._joiners = {node: joiner for node, joiner in self._joiners.items() if node not in self._lives}
        self._awaited = {node for node in view.members if node != self.me}
        self._detector.watch(now_us, sorted(self._awaited))
        self._turns.clear()
        self._stats["views"] += 1
        self._settle_in(now_us, settled, because, effects)

    def _install_list(self, now_us: int, decision: Decision, settled: Settled, effects: list[Effect]) -> None:
        """The same view with another token list (004 §4.3.5)."""
        self.view = view_of(decision)
        self._stats["i_views"] += 1
        self._settle_in(now_us, settled, "token list agreed", effects)

    def _settle_in(self, now_us: int, settled: Settled, because: str, effects: list[Effect]) -> None:
        assert self.view is not None, "there is a view to settle in"
        self._change = None
        self._lacking_us = 0
        self._owed = []
        self._voter = Voter()
        self.keep(effects)
        self._shift(because, effects)
        effects += (CancelTimer(CHANGE_TIMER), CancelTimer(JOIN_TIMER))
        self.orderer.closed = bool(self._brakes) or self._braking
        self.orderer.install(now_us, self.view, settled, effects)
        self._on_heartbeat_timer(now_us, effects)

    # --- what the parts of a membership need of each other --------------------------------------

    def _start(self, now_us: int, full: bool, because: str, effects: list[Effect]) -> None:
        """Freeze, and begin to agree on the next view."""
        raise NotImplementedError

    def _remind(self, head: Header, turn: int, effects: list[Effect]) -> None:
        """Tell who is behind what it missed, or that it is not a member any more."""
        raise NotImplementedError

    def _on_heartbeat_timer(self, now_us: int, effects: list[Effect]) -> None:
        """Show that this member lives, and look after the others."""
        raise NotImplementedError
