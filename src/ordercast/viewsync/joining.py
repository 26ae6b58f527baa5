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
from ordercast.viewsync.numbers import ViewNumbers
from ordercast.viewsync.packets import (
    NO_GROUP,
    NO_ROUND,
    Decide,
    Decision,
    Group,
    Join,
    decode_decision,
)
from ordercast.viewsync.standing import CHANGE_TIMER, JOIN_TIMER, Last, Standing
from ordercast.viewsync.states import State
from ordercast.viewsync.storage import recall, view_of


class Joining(Standing):
    """A node that is in no view, or was."""

    def _begin(
        self, now_us: int, incarnation: int, stored: bytes | None, seed: int, effects: list[Effect]
    ) -> None:
        self.incarnation = incarnation
        self._draw(RandomStream(seed))
        self.orderer.begin(incarnation)
        known = recall(self.me, stored)
        self._last_number, self.group, self._past, self._voter, self._free, self._ended, outcomes = known
        for view, turn, value in outcomes:
            if self._last is None:
                self._last = Last(view, turn, value, Exchange({}))
            else:
                self._turns[turn] = value
        self._shift("started", effects)
        self._look(now_us, effects)

    def _draw(self, stream: RandomStream) -> None:
        """Take the stream of this life's seed."""
        self._random = stream
        self.numbers = ViewNumbers(stream)

    def _look(self, now_us: int, effects: list[Effect]) -> None:
        """Look for a group."""
        self._began_us = self._group_us = self._ghosts_us = now_us
        self._moot_us = now_us - self.config.conservative_us
        self._founding = None
        if self._past is None:
            if self._free and self.config.founders:
                self._founding = Founding(self, self._voter, self.config, self._last_number)
        else:
            self._detector.watch(now_us, (node for node in self._past.members if node != self.me))
        self._on_join_timer(now_us, effects)

    def _on_join_timer(self, now_us: int, effects: list[Effect]) -> None:
        """Ask to be let in; with nobody to ask, begin a group or go on with one that all have lost."""
        if self.state is not State.JOINING:
            return
        effects.append(SetTimer(JOIN_TIMER, self._random.spread(self.config.join_us)))
        ghost, founds = self._is_bound(now_us), self._founding is not None
        self._send(Join(self.group, self._last_number, ghost, self._ended, founds), NO_VIEW, effects)
        if now_us - self._group_us < self.config.found_us:
            return
        if self._past is not None and self._change is None:
            self._haunt(now_us, self._past, True, effects)
        elif self._founding is not None and now_us - self._ghosts_us >= self.config.found_us:
            self._founding.lead(now_us, self.joiners(now_us), effects)
            self._end_founding(now_us, effects)

    def _is_bound(self, now_us: int) -> bool:
        """Whether an earlier life's vote may be needed: then no younger group is joined."""
        moot = now_us - self._moot_us < self.config.conservative_us
        return self._past is not None and not moot and not self._deserted(now_us)

    def _haunt(self, now_us: int, past: View, detected: bool, effects: list[Effect]) -> None:
        """Vote on what follows the view of an earlier life."""
        self._change = self._procedure(now_us, self, past, self._voter, self.config, None, full=True)
        effects.append(SetTimer(CHANGE_TIMER, self.config.change_us))
        self._change.begin(now_us, detected, effects)

    def _on_join(self, now_us: int, head: Header, join: Join, effects: list[Effect]) -> None:
        node, life = head.sender, head.incarnation
        if not self.numbers.believes(now_us, join.last, self._last_number):
            effects.append(Drop("number out of reach"))
            return
        self._see_where_it_votes(now_us, node, join)
        if self.state is State.JOINING:
            if join.ghost:
                self._ghosts_us = now_us
            if self._has_room_for(now_us, node, effects):
                self._joiners[node] = Joiner(life, join.last, now_us, join.founds)
            self._hand_down(node, ConfigurationId(join.last, 0), 0, effects)
            self._lay_down(now_us, join, effects)
            return
        if self.view is None or (join.ghost and join.group < self.group):
            effects.append(Drop("has a vote in an older group"))
            return
        known = self._lives.get(node)
        if known == life:
            self._remind(head, 0, effects)
            return
        if known is not None and known > life:
            # It lingered, or the life in the view never was: then whoever is there has its vote.
            effects.append(Drop("earlier life"))
            self._tell_last(node, effects)
            return
        if not self._has_room_for(now_us, node, effects):
            return
        self._joiners[node] = Joiner(life, join.last, now_us)
        if known is not None:
            self._tell_last(node, effects)
        if self.state is State.MEMBER:
            self._start(now_us, True, "somebody joins", effects)

    def _see_where_it_votes(self, now_us: int, node: NodeId, join: Join) -> None:
        """Who was in a view of a later number, or is bound to an older group, has no vote to give in ours.

        It may be a member of our view all the same: it was let in, never heard of it, and went elsewhere.
        """
        view = self.view or self._past
        bound_to_older = join.ghost and join.group < self.group
        if view is not None and (join.last > view.id.seq or bound_to_older):
            self._detector.elsewhere(now_us, node)

    def _tell_last(self, node: NodeId, effects: list[Effect]) -> None:
        """Tell another life of a member how the view came about: it has a vote, and may not know in which."""
        if self._last is not None:
            self._send(Decide(self._last.turn, self._last.value), self._last.view, effects, to=node)

    def _has_room_for(self, now_us: int, node: NodeId, effects: list[Effect]) -> bool:
        """Whether one more that wants to join can be kept in mind; those who gave up asking are forgotten."""
        most = self.config.max_members
        if len(self._joiners) >= most and node not in self._joiners:
            self._joiners = dict(self.joiners(now_us))
            if len(self._joiners) >= most:
                effects.append(Drop("too many want to join"))
                return False
        return True

    def _let_in(
        self, now_us: int, decision: Decision, before: ConfigurationId, packet: Decide, effects: list[Effect]
    ) -> None:
        self._last = Last(before, packet.turn, packet.value, Exchange({}))
        self._install(now_us, decision, NOTHING, "let in", effects)

    def _end_founding(self, now_us: int, effects: list[Effect]) -> None:
        """If a first view is decided on, be in it; or in a later one of that group, unless that is over."""
        value = self._founding.decision if self._founding is not None else None
        if value is None:
            return
        decision = decode_decision(value)
        self._founding = None
        last = Last(NO_VIEW, 0, value, Exchange({}))
        if self._is_in(decision):
            self._last = last
            self._install(now_us, decision, NOTHING, "group founded", effects)
        elif self._inherits(decision):
            self._inherit(now_us, decision, last, effects)
        elif decision.group == self._ended:
            self._voter = Voter()
            self.keep(effects)
            self._look(now_us, effects)
        else:
            self.group, self._free = decision.group, False
            self.keep(effects)

    def _end_haunting(self, now_us: int, decision: Decision, last: Last, effects: list[Effect]) -> None:
        """A view was decided on with the vote of an earlier life; this life may be in it."""
        self._change = None
        effects.append(CancelTimer(CHANGE_TIMER))
        if self._is_in(decision):
            self._last = last
            self._install(now_us, decision, NOTHING, "let in", effects)
            return
        if self._inherits(decision):
            self._inherit(now_us, decision, last, effects)
            return
        self._past, self._last = None, last
        self._turns.clear()
        self._last_number = max(self._last_number, decision.view.seq)
        self._free = not decision.members and decision.group == self.group  # all had left: the group is over
        if self._free:
            self._ended = self.group
        self._voter = Voter()
        self.keep(effects)
        self._look(now_us, effects)

    def _inherits(self, decision: Decision) -> bool:
        """Whether another life is meant by a view that is later than the one this life has a vote in.

        An earlier one; or a later one, which there never was: somebody told the others of it. Nobody else is
        there to vote for this node, and what it votes is stored. The view may be one of another group that
        this node may be let in by: its vote in its own one is given up for that.
        """
        known = (self._last_number, self._past.turn if self._past is not None else 0)
        return (decision.view.seq, decision.turn) > known and any(
            member.node == self.me and member.incarnation != self.incarnation for member in decision.members
        )

    def _inherit(self, now_us: int, decision: Decision, last: Last, effects: list[Effect]) -> None:
        """Vote from now on in that view: no life of this node can have voted in it before."""
        self._past, self._last = view_of(decision), last
        self._turns.clear()
        self._last_number = self._past.id.seq
        self._free = False
        self.group, self._voter, self._change, self._founding = decision.group, Voter(), None, None
        self._detector.watch(now_us, (node for node in self._past.members if node != self.me))
        self.keep(effects)

    def _hand_down(self, node: NodeId, view: ConfigurationId, turn: int, effects: list[Effect]) -> None:
        """Tell another one how the view that it is in, or has a vote in, ended, if an earlier life knew that.

        A member that missed it lacks nothing else, often: it holds what is settled, or others do. A later
        life of one learns in which view it has a vote now, or that it is a member of that view even. Nobody
        in that view may know of it: those who decided on it may all have left, or be later lives themselves.
        """
        last = self._last
        if last is None:
            return
        known = self._past or view_of(decode_decision(last.value))
        if node not in known.members:
            return
        if view == known.id and turn in self._turns:
            self._send(Decide(turn, self._turns[turn]), known.id, effects, to=node)
        elif view.seq < known.id.seq:
            self._send(Decide(last.turn, last.value), last.view, effects, to=node)

    def _lay_down(self, now_us: int, join: Join, effects: list[Effect]) -> None:
        """There may be nothing left to vote on: what an earlier life had a vote in is known elsewhere.

        Whoever is in a later view, and counts on a vote of this node there, hands that view down. Until then
        the vote rests, for as long as somebody says so, and is kept: nobody can check what a Join says, and a
        group all of whose members had given up their votes because of a wrong one would be over for good. If
        the group is over, this node is free to found another.
        """
        past = self._past
        if join.ended != NO_GROUP and join.ended != self._ended and join.ended == self._bound_to():
            self._past, self._change, self._voter = None, None, Voter()
            self._free, self._ended = True, join.ended
            effects.append(CancelTimer(CHANGE_TIMER))
            self.keep(effects)
            self._look(now_us, effects)
        elif past is not None and join.group == self.group and join.last > past.id.seq:
            self._change = None
            self._group_us = self._moot_us = now_us
            effects.append(CancelTimer(CHANGE_TIMER))

    def _bound_to(self) -> Group:
        """The group that this node was in, or voted to found."""
        if not self._free:
            return self.group
        return NO_GROUP if self._voter.accepted == NO_ROUND else decode_decision(self._voter.value).group
