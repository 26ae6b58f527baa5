"""How a life comes into a view: by joining, by founding a group, or with the vote of an earlier life.

A life begins in no view. It joins the group it hears of, or founds one with others who hear of none.

Later lives of a view's members keep their vote (`Stored`): a group that crashed as a whole, or lost its
majority at once, goes on when a majority of its nodes is back, with what those hold that never crashed.
"""

from __future__ import annotations

from ordercast.core.contract import (
    CancelTimer,
    Drop,
    Effect,
    SetTimer,
)
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.core.randomness import RandomStream
from ordercast.viewsync.change import Joiner
from ordercast.viewsync.consensus import Voter
from ordercast.viewsync.contract import NOTHING, View
from ordercast.viewsync.exchange import Exchange
from ordercast.viewsync.founding import Founding
from ordercast.viewsync.header import NO_VIEW, Header
from ordercast.viewsync.life import CHANGE_TIMER, JOIN_TIMER, Last, Life
from ordercast.viewsync.packets import (
    NO_GROUP,
    NO_ROUND,
    Decide,
    Decision,
    Group,
    Heartbeat,
    Join,
    decode_decision,
)
from ordercast.viewsync.states import State
from ordercast.viewsync.storage import recall, view_of


class Joining:
    """What a life does that is in no view."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self.founding: Founding | None = None
        """This node's part in founding a group, if it may found one."""
        self._group_us = 0
        """When a group was last heard of that this life waits for to be let in."""
        self._bound_us = 0
        """When one was last heard that has a vote in an older group."""
        self._moot_us = 0
        """When it was last said that the group went on without the vote that this node has."""

    def begin(
        self, now_us: int, incarnation: int, stored: bytes | None, seed: int, effects: list[Effect]
    ) -> None:
        """The life begins: look for a group."""
        life = self._life
        life.begin(incarnation, RandomStream(seed), recall(life.me, stored))
        life.shift("started", effects)
        self._look(now_us, effects)

    def _look(self, now_us: int, effects: list[Effect]) -> None:
        """Look for a group."""
        life = self._life
        self._group_us = self._bound_us = now_us
        self._moot_us = now_us - life.config.conservative_us
        self.founding = None
        if life.past is None:
            if life.free and life.config.founders:
                self.founding = Founding(life, life.voter, life.config, life.last_number)
        else:
            life.detector.watch(now_us, (node for node in life.past.members if node != life.me))
        self.on_join_timer(now_us, effects)

    def on_join_timer(self, now_us: int, effects: list[Effect]) -> None:
        """Ask to be let in; with nobody to ask, begin a group or go on with one that all have lost."""
        life = self._life
        if life.state is not State.JOINING:
            return
        effects.append(SetTimer(JOIN_TIMER, life.random.spread(life.config.join_us)))
        bound, founds = self.is_bound(now_us), self.founding is not None
        life.send(Join(life.group, life.last_number, bound, life.ended, founds), NO_VIEW, effects)
        if now_us - self._group_us < life.config.found_us:
            return
        if life.past is not None and life.change is None:
            self.vote_for_past(now_us, life.past, True, effects)
        elif self.founding is not None and now_us - self._bound_us >= life.config.found_us:
            self.founding.lead(now_us, life.joiners(now_us), effects)
            self.end_founding(now_us, effects)

    def is_bound(self, now_us: int) -> bool:
        """Whether an earlier life's vote may be needed: then no younger group is joined."""
        life = self._life
        moot = now_us - self._moot_us < life.config.conservative_us
        return life.past is not None and not moot and not life.deserted(now_us)

    def vote_for_past(self, now_us: int, past: View, detected: bool, effects: list[Effect]) -> None:
        """Vote on what follows the view of an earlier life."""
        life = self._life
        change = life.open_change(now_us, past, None, full=True)
        effects.append(SetTimer(CHANGE_TIMER, life.config.change_us))
        change.begin(now_us, detected, effects)

    def on_join(self, now_us: int, head: Header, join: Join, effects: list[Effect]) -> None:
        """Another one is in no view either."""
        life = self._life
        if join.bound:
            self._bound_us = now_us
        if life.asking.make_room(head.sender, life.joiners(now_us)):
            life.asking.add(head.sender, Joiner(head.incarnation, join.last, now_us, join.founds))
        else:
            effects.append(Drop("too many want to join"))
        self.hand_down(head.sender, ConfigurationId(join.last, 0), 0, effects)
        self._rest_vote(now_us, join, effects)

    def on_group_heard(self, now_us: int, head: Header, beat: Heartbeat) -> None:
        """There is a group to wait for, unless what is heard is what this node was in, or may not join."""
        life = self._life
        if head.view.seq <= life.last_number and beat.group == life.group:
            return
        if life.group < beat.group and self.is_bound(now_us):
            return
        self._group_us = now_us
        if life.past is not None and beat.group == life.group and life.change is not None:
            life.change = None  # they went on without my vote

    def let_in(
        self, now_us: int, decision: Decision, before: ConfigurationId, packet: Decide, effects: list[Effect]
    ) -> None:
        """Install a view that others decided on, and that this life is in."""
        life = self._life
        self.founding = None
        life.last = Last(before, packet.turn, packet.value, Exchange({}))
        life.install(now_us, decision, NOTHING, "let in", effects)

    def end_founding(self, now_us: int, effects: list[Effect]) -> None:
        """If a first view is decided on, be in it; or in a later one of that group, unless that is over."""
        life = self._life
        value = self.founding.consensus.decision if self.founding is not None else None
        if value is None:
            return
        decision = decode_decision(value)
        self.founding = None
        last = Last(NO_VIEW, 0, value, Exchange({}))
        if life.is_in(decision):
            life.last = last
            life.install(now_us, decision, NOTHING, "group founded", effects)
        elif self.inherits(decision):
            self.inherit(now_us, decision, last, effects)
        elif decision.group == life.ended:
            life.voter = Voter()
            life.keep(effects)
            self._look(now_us, effects)
        else:
            life.group, life.free = decision.group, False
            life.keep(effects)

    def end_past_vote(self, now_us: int, decision: Decision, last: Last, effects: list[Effect]) -> None:
        """A view was decided on with the vote of an earlier life; this life may be in it."""
        life = self._life
        life.change = None
        effects.append(CancelTimer(CHANGE_TIMER))
        if life.is_in(decision):
            life.last = last
            life.install(now_us, decision, NOTHING, "let in", effects)
            return
        if self.inherits(decision):
            self.inherit(now_us, decision, last, effects)
            return
        life.past, life.last = None, last
        life.turns.clear()
        life.last_number = max(life.last_number, decision.view.seq)
        life.free = not decision.members and decision.group == life.group  # all had left: the group is over
        if life.free:
            life.ended = life.group
        life.voter = Voter()
        life.keep(effects)
        self._look(now_us, effects)

    def inherits(self, decision: Decision) -> bool:
        """Whether another life is meant by a view that is later than the one this life has a vote in.

        An earlier one; or a later one, which there never was: somebody told the others of it. Nobody else is
        there to vote for this node, and what it votes is stored. The view may be one of another group that
        this node may be let in by: its vote in its own one is given up for that.
        """
        life = self._life
        known = (life.last_number, life.past.turn if life.past is not None else 0)
        return (decision.view.seq, decision.turn) > known and any(
            member.node == life.me and member.incarnation != life.incarnation for member in decision.members
        )

    def inherit(self, now_us: int, decision: Decision, last: Last, effects: list[Effect]) -> None:
        """Vote from now on in that view: no life of this node can have voted in it before."""
        life = self._life
        life.past, life.last = view_of(decision), last
        life.turns.clear()
        life.last_number = life.past.id.seq
        life.free = False
        life.group, life.voter, life.change, self.founding = decision.group, Voter(), None, None
        life.detector.watch(now_us, (node for node in life.past.members if node != life.me))
        life.keep(effects)

    def hand_down(self, node: NodeId, view: ConfigurationId, turn: int, effects: list[Effect]) -> None:
        """Tell another one how the view that it is in, or has a vote in, ended, if an earlier life knew that.

        A member that missed it lacks nothing else, often: it holds what is settled, or others do. A later
        life of one learns in which view it has a vote now, or that it is a member of that view even. Nobody
        in that view may know of it: those who decided on it may all have left, or be later lives themselves.
        """
        life = self._life
        last = life.last
        if last is None:
            return
        known = life.past or view_of(decode_decision(last.value))
        if node not in known.members:
            return
        if view == known.id and turn in life.turns:
            life.send(Decide(turn, life.turns[turn]), known.id, effects, to=node)
        elif view.seq < known.id.seq:
            life.send(Decide(last.turn, last.value), last.view, effects, to=node)

    def _rest_vote(self, now_us: int, join: Join, effects: list[Effect]) -> None:
        """There may be nothing left to vote on: what an earlier life had a vote in is known elsewhere.

        Whoever is in a later view, and counts on a vote of this node there, hands that view down. Until then
        the vote rests, for as long as somebody says so, and is kept: nobody can check what a Join says, and a
        group all of whose members had given up their votes because of a wrong one would be over for good. If
        the group is over, this node is free to found another.
        """
        life = self._life
        past = life.past
        if join.ended != NO_GROUP and join.ended != life.ended and join.ended == self._bound_to():
            life.past, life.change, life.voter = None, None, Voter()
            life.free, life.ended = True, join.ended
            effects.append(CancelTimer(CHANGE_TIMER))
            life.keep(effects)
            self._look(now_us, effects)
        elif past is not None and join.group == life.group and join.last > past.id.seq:
            life.change = None
            self._group_us = self._moot_us = now_us
            effects.append(CancelTimer(CHANGE_TIMER))

    def _bound_to(self) -> Group:
        """The group that this node was in, or voted to found."""
        life = self._life
        if not life.free:
            return life.group
        return NO_GROUP if life.voter.accepted == NO_ROUND else decode_decision(life.voter.value).group
