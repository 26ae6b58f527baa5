"""How a view changes, and what a member does meanwhile (004 §4.3, §4.4).

A view lasts until somebody is suspected, joins or leaves; then its members agree on the next one (`change`).
Who is not in it halts (program-controlled crash, §4.3.4) and may come back as another life.
"""

from __future__ import annotations

from collections.abc import Collection

from ordercast.core.contract import (
    LEFT,
    Drop,
    Effect,
    SetTimer,
)
from ordercast.core.identity import NodeId
from ordercast.core.wire import within_reach
from ordercast.viewsync.change import Joiner, ViewChange
from ordercast.viewsync.consensus import Vote, Voter
from ordercast.viewsync.contract import View
from ordercast.viewsync.exchange import Exchange
from ordercast.viewsync.founding import Founding
from ordercast.viewsync.header import NO_VIEW, Header
from ordercast.viewsync.joining import Joining
from ordercast.viewsync.leaving import Leaving
from ordercast.viewsync.life import CHANGE_TIMER, HEARTBEAT_TIMER, Last, Life
from ordercast.viewsync.meeting import OlderGroups
from ordercast.viewsync.packets import (
    NO_ROUND,
    Collect,
    Decide,
    Decision,
    Estimate,
    Excluded,
    Fetch,
    Heartbeat,
    Item,
    Join,
    Propose,
    Round,
    Summary,
    decode_decision,
)
from ordercast.viewsync.stalls import Stalls
from ordercast.viewsync.states import State

REMEMBERED_TURNS = 256
"""Token lists of a view for which is remembered what followed them."""
STUCK = 2
"""Aggressive timeouts after which a life ends that lacks what was decided on, or may have been."""


class Membership:
    """What a life does about the view that it is in, or has a vote in."""

    def __init__(self, life: Life, joining: Joining) -> None:
        self._life = life
        self._joining = joining
        self.older = OlderGroups(life)
        """Older groups that were heard of."""
        self._stalls = Stalls(life.config)
        self._lacking_us = 0
        """Since when something is lacking here that was decided on."""
        self._leaving = Leaving(life)

    def look_after(self, now_us: int, effects: list[Effect]) -> None:
        """Whenever a view was entered, begin to show that this member lives, and look after the others."""
        life = self._life
        while life.entered:
            life.entered = False
            self._lacking_us = 0
            self._stalls.forget()
            life.traffic.begin(now_us)
            self.on_heartbeat_timer(now_us, effects)

    def start(self, now_us: int, full: bool, because: str, effects: list[Effect]) -> None:
        """Freeze, and begin to agree on the next view."""
        life = self._life
        assert life.view is not None, "a member is in a view"
        life.shift(because, effects)
        unsettled = life.orderer.unsettled()
        change = life.open_change(now_us, life.view, unsettled, full)
        effects.append(SetTimer(CHANGE_TIMER, life.config.change_us))
        change.begin(now_us, because != "others change", effects)
        self._end_change(now_us, effects)

    def _changing(
        self, now_us: int, head: Header, turn: int, effects: list[Effect], let_in: Collection[NodeId] = ()
    ) -> ViewChange | None:
        """The change that a packet belongs to, begun because of it if need be; else it is answered.

        Only members of the view that ends take part; who was `let_in` into the next one may tell of it.
        """
        life = self._life
        view = life.known_view
        if view is None or (head.sender not in view.members and head.sender not in let_in):
            self._remind(head, turn, effects)
            return None
        if head.view == view.id and turn > view.turn and life.view is None:
            life.past = view = view._replace(turn=turn)  # it voted on no later turn than it stored
            life.voter = Voter()
            life.change = None
        if head.view != view.id or turn != view.turn:
            self._remind(head, turn, effects)
            return None
        if life.change is None:
            if life.view is None:
                self._joining.vote_for_past(now_us, view, False, effects)
            else:
                self.start(now_us, not life.i_views, "others change", effects)
        return life.change

    def on_summary(self, now_us: int, head: Header, summary: Summary, effects: list[Effect]) -> None:
        """What another one holds at the end of a view."""
        change = self._changing(now_us, head, summary.turn, effects)
        if change is None:
            return
        known = change.view.incarnations[change.view.members.index(head.sender)]
        if summary.later_life == (head.incarnation == known):
            effects.append(Drop("earlier life"))
            return
        if not change.is_of_view(summary.ranges):
            effects.append(Drop("items of another view"))
            return
        change.on_summary(now_us, head.sender, head.incarnation, summary, effects)
        self._end_change(now_us, effects)

    def on_vote(
        self,
        now_us: int,
        head: Header,
        packet: Vote,
        effects: list[Effect],
    ) -> None:
        """A packet of the consensus: on the next view, or on a first one."""
        life = self._life
        decision: Decision | None = None
        if isinstance(packet, Propose) or (isinstance(packet, Estimate) and packet.accepted != NO_ROUND):
            decision = decode_decision(packet.value)  # or it is malformed
        attempts = [value.attempt for value in packet if isinstance(value, Round)]
        if not all(within_reach(attempt, life.voter.promised.attempt) for attempt in attempts):
            effects.append(Drop("round out of reach"))
            return
        part: ViewChange | Founding
        if head.view == NO_VIEW:
            founding = self._joining.founding
            if founding is None or not founding.know(head.sender, head.incarnation):
                effects.append(Drop("no group is being founded here"))
                return
            part, follows = founding, decision is None or founding.founds(now_us, decision)
        else:
            change = self._changing(now_us, head, packet.turn, effects)
            if change is None:
                return
            part, follows = change, decision is None or change.follows(now_us, decision, life.i_views)
        if not follows:
            effects.append(Drop("does not follow this view"))
            return
        if isinstance(packet, Collect):
            life.stats["rounds"] += 1
        part.on_vote(now_us, head.sender, packet, effects)
        if part is self._joining.founding:
            self._joining.end_founding(now_us, effects)
        else:
            self._end_change(now_us, effects)

    def on_fetch(self, now_us: int, head: Header, packet: Fetch, effects: list[Effect]) -> None:
        """Answer a member that lacks packets of a view that ends, or of the one before."""
        life = self._life
        last, change = life.last, life.change
        if last is not None and (head.view, packet.turn) == (last.view, last.turn):
            for stream, number, data in last.exchange.answer(packet.ranges):
                life.send(Item(packet.turn, stream, number, data), head.view, effects, to=head.sender)
        elif change is not None and (head.view, packet.turn) == (change.view.id, change.turn):
            change.on_fetch(head.sender, packet, effects)
        else:
            effects.append(Drop("other view"))

    def on_item(self, now_us: int, head: Header, packet: Item, effects: list[Effect]) -> None:
        """Something that was lacking here."""
        life = self._life
        change = life.change
        if change is None or (head.view, packet.turn) != (change.view.id, change.turn):
            effects.append(Drop("other view"))
            return
        life.stats["fetched"] += 1
        change.on_item(now_us, packet, effects)
        self._end_change(now_us, effects)

    def on_change_timer(self, now_us: int, effects: list[Effect]) -> None:
        """Send again what belongs to the change; end a life that lacks what was decided on for too long."""
        life = self._life
        change = life.change
        if change is None:
            return
        effects.append(SetTimer(CHANGE_TIMER, life.config.change_us))
        change.on_timer(now_us, effects)
        self._end_change(now_us, effects)
        if self._leaving.begun():
            if not life.halted:
                self._leaving.tell(change, effects)
            return
        if change is not life.change or change.later_life or not (change.lacking or life.deserted(now_us)):
            self._lacking_us = 0
            return
        self._lacking_us = self._lacking_us or now_us
        if now_us - self._lacking_us > STUCK * life.config.aggressive_us:
            life.halt("cut off", effects)

    def on_join(self, now_us: int, head: Header, join: Join, effects: list[Effect]) -> None:
        """A node that is in no view asks to be let in."""
        life = self._life
        node, incarnation = head.sender, head.incarnation
        if not life.numbers.believes(now_us, join.last, life.last_number):
            effects.append(Drop("number out of reach"))
            return
        self._see_where_it_votes(now_us, node, join)
        if life.state is State.JOINING:
            self._joining.on_join(now_us, head, join, effects)
            return
        if life.view is None or (join.bound and join.group < life.group):
            effects.append(Drop("has a vote in an older group"))
            return
        known = life.lives.get(node)
        if known == incarnation:
            self._remind(head, 0, effects)
            return
        if known is not None and known > incarnation:
            # It lingered, or the life in the view never was: then whoever is there has its vote.
            effects.append(Drop("earlier life"))
            self._tell_last(node, effects)
            return
        if not life.asking.make_room(node, life.joiners(now_us)):
            effects.append(Drop("too many want to join"))
            return
        life.asking.add(node, Joiner(incarnation, join.last, now_us))
        if known is not None:
            self._tell_last(node, effects)
        if life.state is State.MEMBER:
            self.start(now_us, True, "somebody joins", effects)

    def _see_where_it_votes(self, now_us: int, node: NodeId, join: Join) -> None:
        """Who was in a view of a later number, or is bound to an older group, has no vote to give in ours.

        It may be a member of our view all the same: it was let in, never heard of it, and went elsewhere.
        """
        life = self._life
        view = life.known_view
        bound_to_older = join.bound and join.group < life.group
        if view is not None and (join.last > view.id.seq or bound_to_older):
            life.detector.elsewhere(now_us, node)

    def _tell_last(self, node: NodeId, effects: list[Effect]) -> None:
        """Tell another life of a member how the view came about: it has a vote, and may not know in which."""
        last = self._life.last
        if last is not None:
            self._life.send(Decide(last.turn, last.value), last.view, effects, to=node)

    def on_decide(self, now_us: int, head: Header, packet: Decide, effects: list[Effect]) -> None:
        """Take a decision on what follows a view, which another node tells of."""
        life = self._life
        decision = decode_decision(packet.value)
        view = life.view
        if decision.full and decision.turn:
            effects.append(Drop("a view that does not begin with its first token list"))
            return
        if not decision.full and not life.i_views:
            effects.append(Drop("a token list that there never is"))
            return
        bound = view is not None or (life.group < decision.group and self._joining.is_bound(now_us))
        if bound and decision.group != life.group:
            effects.append(Drop("of another group"))
            return
        if view is None and not life.numbers.believes(now_us, decision.view.seq, life.last_number):
            effects.append(Drop("number out of reach"))
            return
        if view is None and life.is_in(decision):
            self._joining.let_in(now_us, decision, head.view, packet, effects)
            return
        if view is not None and head.view == view.id and packet.turn > view.turn and decision.full:
            life.halt("excluded", effects)  # who is in the next view was asked in the last turn of this one
            return
        if view is not None and view.id.seq < head.view.seq and life.is_in(decision):
            # The group went on without this life, and let it in again because of a Join that came late.
            life.halt("excluded", effects)
            return
        if view is None and self._joining.inherits(decision):
            last = Last(head.view, packet.turn, packet.value, Exchange({}))
            self._joining.inherit(now_us, decision, last, effects)
            return
        current = view or life.past
        if current is None or (head.view, packet.turn) != (current.id, current.turn):
            effects.append(Drop("other view"))  # and no answer: it is one itself
            return
        if self._leaving.begun():
            self._leaving.aware(head.sender)
            self._end_change(now_us, effects)
            return
        # Those who agreed on the next view may all be gone, but for one that has not heard of it: whoever
        # was let in knows.
        let_in = [member.node for member in decision.members]
        change = self._changing(now_us, head, packet.turn, effects, let_in)
        if change is None:
            return
        if not change.follows(now_us, decision, life.i_views):
            effects.append(Drop("does not follow this view"))
            return
        change.on_decided(packet.value, head.sender)
        self._end_change(now_us, effects)
        if self._leaving.begun():
            self._leaving.aware(head.sender)
            self._end_change(now_us, effects)

    def _end_change(self, now_us: int, effects: list[Effect]) -> None:
        """If it is decided and all that was settled is here, go on in the next view; or not at all."""
        life = self._life
        change = life.change
        if change is None or change.decision is None or life.halted:
            return
        decision = decode_decision(change.decision)
        stays = life.view is None or not decision.full or life.is_in(decision)
        if not stays:  # and needs nothing any more
            if life.leaving:
                self._leaving.end(now_us, change, decision, effects)
            else:
                life.halt("excluded", effects)
            return
        settled = change.settled(decision, effects)
        if settled is None:
            return
        last = Last(change.view.id, change.turn, change.decision, change.exchange)
        if life.view is None:
            self._joining.end_past_vote(now_us, decision, last, effects)
        elif not decision.full:
            life.turns[change.turn] = change.decision
            life.turns.pop(change.turn - REMEMBERED_TURNS, None)
            life.install_list(now_us, decision, settled, effects)
        else:
            life.last = last
            life.install(now_us, decision, settled, "view agreed", effects)

    def on_heartbeat_timer(self, now_us: int, effects: list[Effect]) -> None:
        """Show that this member lives, and see whether the view has to change."""
        life = self._life
        if life.view is None or life.halted:
            return
        effects.append(SetTimer(HEARTBEAT_TIMER, life.config.heartbeat_us))
        life.tell(Heartbeat(life.group, life.view.turn, life.brakes.mine), effects)
        if life.state is State.MEMBER:
            self._look_round(now_us, life.view, effects)

    def _look_round(self, now_us: int, view: View, effects: list[Effect]) -> None:
        """See whether the view has to change."""
        life = self._life
        waited_for = life.orderer.waiting_for
        # An external may have been cut off from all for longer than the aggressive timeout, and the others
        # look after each other: it would change the view of a group that lacks nothing.
        awaited = () if waited_for is None or life.me not in view.core else (waited_for,)
        if life.orderer.cut_off:
            self._quit(effects)
        elif silent := self._silent(now_us, view):
            because = "token lost" if life.orderer.holder in silent else "member suspected"
            self.start(now_us, True, because, effects)
        elif life.traffic.stands_still(now_us):
            self.start(now_us, True, "no activity", effects)
        elif self._suspected(now_us, awaited):
            self.start(now_us, not self._can_do_without(view), "member waited for suspected", effects)
        elif self._stalls.noticed(now_us, waited_for, life.orderer):
            self.start(now_us, True, "order stalled", effects)
        elif life.joiners(now_us):
            self.start(now_us, True, "somebody joins", effects)
        elif life.i_views and self._returned(now_us, view):
            self.start(now_us, False, "external returned", effects)
        else:
            self.leave_if_done(now_us, effects)

    def _silent(self, now_us: int, view: View) -> list[NodeId]:
        """Whom the passive detector suspects for being silent; where it watches the token, who is off its
        way, or believed to have ended."""
        detector = self._life.detector
        silent = detector.passive(now_us)
        if self._life.traffic.watched:
            return [node for node in silent if node not in view.core or node in detector.ended]
        return silent

    def _suspected(self, now_us: int, awaited: Collection[NodeId]) -> bool:
        """Whether the active detector suspects a member that is waited for."""
        life = self._life
        if life.config.detector == "heartbeats":
            return bool(life.detector.active(now_us, awaited))
        return any(life.traffic.given_up(node) for node in awaited)

    def _can_do_without(self, view: View) -> bool:
        """Whether a light change may take a member out of the token list: a majority has to stay in it."""
        return self._life.i_views and 2 * (len(view.core) - 1) > len(view.members)

    def _returned(self, now_us: int, view: View) -> bool:
        """Whether an external was heard of late."""
        life = self._life
        recent_us = 2 * life.config.heartbeat_us
        return any(
            node not in view.core and life.detector.silent_us(now_us, node) < recent_us
            for node in view.members
            if node != life.me
        )

    def _quit(self, effects: list[Effect]) -> None:
        """What this member lacks is gone for good: leave of its own accord (004 §4.4.5)."""
        life = self._life
        life.leaving = True
        assert life.view is not None, "an external is a member of a view"
        life.shift("external gave up", effects)
        floor, upto, _ = life.orderer.unsettled()
        life.tell(Summary(life.view.turn, True, False, True, floor, upto, ()), effects)
        life.halt("cut off", effects)

    def leave_if_done(self, now_us: int, effects: list[Effect]) -> None:
        """End this life, once everything that was accepted is delivered and everyone has it."""
        life = self._life
        if not life.leaving or life.halted or not life.orderer.idle or life.state is not State.MEMBER:
            return
        if life.lives.keys() == {life.me}:
            life.halt(LEFT, effects)
        else:
            self.start(now_us, True, "leaving", effects)

    def on_heartbeat(self, now_us: int, head: Header, beat: Heartbeat, effects: list[Effect]) -> None:
        """A member lives: of this view, of an earlier or later one, or of another group."""
        life = self._life
        if beat.group != life.group:
            life.detector.elsewhere(now_us, head.sender)
        if life.state is State.JOINING:
            self._joining.on_group_heard(now_us, head, beat)
            return
        if beat.group != life.group:
            if beat.group < life.group:
                self.older.ask(now_us, head.sender, beat.group, effects)
            return
        assert life.view is not None, "who is not joining is in a view"
        if self._leaving.begun() and head.view.seq > life.view.id.seq:
            self._leaving.aware(head.sender)
            self._end_change(now_us, effects)
            return
        if (head.view.seq, beat.turn) < (life.view.id.seq, life.view.turn):
            self._remind(head, beat.turn, effects)
        elif (head.view.seq, beat.turn) > (life.view.id.seq, life.view.turn):
            mine = Heartbeat(life.group, life.view.turn, life.brakes.mine)
            life.tell(mine, effects, to=head.sender)  # it will tell what I missed
        elif life.lives.get(head.sender) == head.incarnation:
            life.arrived(head.sender)
            if beat.braking != (head.sender in life.brakes.others):
                life.brakes.others ^= {head.sender}
                self.heed_brakes(now_us, effects)

    def _remind(self, head: Header, turn: int, effects: list[Effect]) -> None:
        """Tell who is behind what it missed, or that it is not a member any more."""
        life = self._life
        last, view = life.last, life.view
        if view is None or head.view.seq > view.id.seq:
            effects.append(Drop("other view"))
            if view is None and head.view != NO_VIEW:
                self._joining.hand_down(head.sender, head.view, turn, effects)
        elif head.view == view.id and turn in life.turns:
            life.send(Decide(turn, life.turns[turn]), view.id, effects, to=head.sender)
        elif last is not None and (last.view == head.view or life.lives.get(head.sender) == head.incarnation):
            life.send(Decide(last.turn, last.value), last.view, effects, to=head.sender)
        elif life.lives.get(head.sender) != head.incarnation and head.view != NO_VIEW:
            told = Excluded(life.group, head.sender, head.incarnation)
            life.send(told, view.id, effects, to=head.sender)
        else:
            effects.append(Drop("other view"))

    def on_excluded(self, head: Header, packet: Excluded, effects: list[Effect]) -> None:
        """The group goes on without this life (004 §4.3.4)."""
        life = self._life
        mine = packet == (life.group, life.me, life.incarnation)
        if mine and life.view is not None and head.view.seq > life.view.id.seq:
            life.halt("excluded", effects)
        else:
            effects.append(Drop("not for me"))

    def heed_brakes(self, now_us: int, effects: list[Effect]) -> None:
        """Close the orderer while this node or a member falls behind, and open it afterwards."""
        life = self._life
        life.orderer.closed = life.brakes.on
        if life.state is State.MEMBER:
            life.orderer.proceed(now_us, effects)
