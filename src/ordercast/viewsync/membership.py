"""How a view changes, and what a member does meanwhile (004 §4.3, §4.4).

A view lasts until somebody is suspected, joins or leaves; then its members agree on the next one (`change`).
Who is not in it halts (program-controlled crash, §4.3.4) and may come back as another life.
"""

from __future__ import annotations

from ordercast.core.contract import (
    Drop,
    Effect,
    SetTimer,
)
from ordercast.core.identity import NodeId
from ordercast.core.wire import within_reach
from ordercast.viewsync.change import ViewChange
from ordercast.viewsync.consensus import Voter
from ordercast.viewsync.contract import View
from ordercast.viewsync.exchange import Exchange
from ordercast.viewsync.founding import Founding
from ordercast.viewsync.header import NO_VIEW, Header
from ordercast.viewsync.joining import Joining
from ordercast.viewsync.packets import (
    NO_ROUND,
    Abort,
    Accepted,
    Answer,
    Collect,
    Decide,
    Decision,
    Estimate,
    Excluded,
    Fetch,
    Group,
    Heartbeat,
    Item,
    Knock,
    Propose,
    Refuse,
    Round,
    Summary,
    decode_decision,
)
from ordercast.viewsync.standing import CHANGE_TIMER, HEARTBEAT_TIMER, Last
from ordercast.viewsync.states import State

REMEMBERED_TURNS = 256
"""Token lists of a view for which is remembered what followed them."""
STALLED = 16
"""Times of a retry without which the order counts as stalled: longer than the longest pause between two."""
PASSED_BY = 3
"""The same of a single message that others pass by, in times of that: it may only be unlucky."""
STUCK = 2
"""Conservative timeouts after which a life ends that lacks what was decided on, or may have been."""


class Membership(Joining):
    """A member of the group."""

    def _start(self, now_us: int, full: bool, because: str, effects: list[Effect]) -> None:
        """Freeze, and begin to agree on the next view."""
        assert self.view is not None, "a member is in a view"
        self._shift(because, effects)
        unsettled = self.orderer.unsettled()
        self._change = self._procedure(now_us, self, self.view, self._voter, self.config, unsettled, full)
        effects.append(SetTimer(CHANGE_TIMER, self.config.change_us))
        self._change.begin(now_us, because != "others change", effects)
        self._end_change(now_us, effects)

    def _changing(self, now_us: int, head: Header, turn: int, effects: list[Effect]) -> ViewChange | None:
        """The change that a packet belongs to, begun because of it if need be; else it is answered."""
        view = self.view or self._past
        if view is None or head.sender not in view.members:
            self._remind(head, turn, effects)
            return None
        if head.view == view.id and turn > view.turn and self.view is None:
            self._past = view = view._replace(turn=turn)  # it voted on no later turn than it stored
            self._voter = Voter()
            self._change = None
        if head.view != view.id or turn != view.turn:
            self._remind(head, turn, effects)
            return None
        if self._change is None:
            if self.view is None:
                self._haunt(now_us, view, False, effects)
            else:
                self._start(now_us, not self._i_views, "others change", effects)
        return self._change

    def _on_summary(self, now_us: int, head: Header, summary: Summary, effects: list[Effect]) -> None:
        change = self._changing(now_us, head, summary.turn, effects)
        if change is None:
            return
        known = change.view.incarnations[change.view.members.index(head.sender)]
        if summary.ghost == (head.incarnation == known):
            effects.append(Drop("earlier life"))
            return
        if not change.is_of_view(summary.ranges):
            effects.append(Drop("items of another view"))
            return
        change.on_summary(now_us, head.sender, head.incarnation, summary, effects)
        self._end_change(now_us, effects)

    def _on_vote(
        self,
        now_us: int,
        head: Header,
        packet: Collect | Estimate | Propose | Accepted | Refuse | Abort,
        effects: list[Effect],
    ) -> None:
        """A packet of the consensus: on the next view, or on a first one."""
        decision: Decision | None = None
        if isinstance(packet, Propose) or (isinstance(packet, Estimate) and packet.accepted != NO_ROUND):
            decision = decode_decision(packet.value)  # or it is malformed
        attempts = [value.attempt for value in packet if isinstance(value, Round)]
        if not all(within_reach(attempt, self._voter.promised.attempt) for attempt in attempts):
            effects.append(Drop("round out of reach"))
            return
        part: ViewChange | Founding
        if head.view == NO_VIEW:
            founding = self._founding
            if founding is None or not founding.know(head.sender, head.incarnation):
                effects.append(Drop("no group is being founded here"))
                return
            part, follows = founding, decision is None or founding.founds(now_us, decision)
        else:
            change = self._changing(now_us, head, packet.turn, effects)
            if change is None:
                return
            part, follows = change, decision is None or change.follows(now_us, decision, self._i_views)
        if not follows:
            effects.append(Drop("does not follow this view"))
            return
        match packet:
            case Collect():
                self._stats["rounds"] += 1
                part.on_collect(now_us, head.sender, packet, effects)
            case Estimate():
                part.on_estimate(now_us, head.sender, packet, effects)
            case Propose():
                part.on_propose(now_us, head.sender, packet, effects)
            case Accepted():
                part.on_accepted(now_us, head.sender, packet, effects)
            case Refuse():
                part.on_refuse(now_us, head.sender, packet, effects)
            case Abort():
                part.on_abort(now_us, head.sender, packet, effects)
        if part is self._founding:
            self._end_founding(now_us, effects)
        else:
            self._end_change(now_us, effects)

    def _on_fetch(self, now_us: int, head: Header, packet: Fetch, effects: list[Effect]) -> None:
        last, change = self._last, self._change
        if last is not None and (head.view, packet.turn) == (last.view, last.turn):
            for stream, number, data in last.exchange.answer(packet.ranges):
                self._send(Item(packet.turn, stream, number, data), head.view, effects, to=head.sender)
        elif change is not None and (head.view, packet.turn) == (change.view.id, change.turn):
            change.on_fetch(head.sender, packet, effects)
        else:
            effects.append(Drop("other view"))

    def _on_item(self, now_us: int, head: Header, packet: Item, effects: list[Effect]) -> None:
        change = self._change
        if change is None or (head.view, packet.turn) != (change.view.id, change.turn):
            effects.append(Drop("other view"))
            return
        self._stats["fetched"] += 1
        change.on_item(now_us, packet, effects)
        self._end_change(now_us, effects)

    def _on_change_timer(self, now_us: int, effects: list[Effect]) -> None:
        change = self._change
        if change is None:
            return
        effects.append(SetTimer(CHANGE_TIMER, self.config.change_us))
        change.on_timer(now_us, effects)
        self._end_change(now_us, effects)
        if change is not self._change or change.ghost or not (change.lacking or self._deserted(now_us)):
            self._lacking_us = 0
            return
        self._lacking_us = self._lacking_us or now_us
        if now_us - self._lacking_us > STUCK * self.config.conservative_us:
            self._halt("cut off", effects)

    def _on_decide(self, now_us: int, head: Header, packet: Decide, effects: list[Effect]) -> None:
        decision = decode_decision(packet.value)
        view = self.view
        if decision.full and decision.turn:
            effects.append(Drop("a view that does not begin with its first token list"))
            return
        bound = view is not None or (self.group < decision.group and self._is_bound(now_us))
        if bound and decision.group != self.group:
            effects.append(Drop("of another group"))
            return
        if view is None and not self.numbers.believes(now_us, decision.view.seq, self._last_number):
            effects.append(Drop("number out of reach"))
            return
        if view is None and self._is_in(decision):
            self._let_in(now_us, decision, head.view, packet, effects)
            return
        if view is not None and head.view == view.id and packet.turn > view.turn and decision.full:
            self._halt("excluded", effects)  # who is in the next view was asked in the last turn of this one
            return
        if view is None and self._inherits(decision):
            last = Last(head.view, packet.turn, packet.value, Exchange({}))
            self._inherit(now_us, decision, last, effects)
            return
        current = view or self._past
        if current is None or (head.view, packet.turn) != (current.id, current.turn):
            effects.append(Drop("other view"))  # and no answer: it is one itself
            return
        change = self._changing(now_us, head, packet.turn, effects)
        if change is None:
            return
        if not change.follows(now_us, decision, self._i_views):
            effects.append(Drop("does not follow this view"))
            return
        change.on_decided(packet.value, head.sender)
        self._end_change(now_us, effects)

    def _end_change(self, now_us: int, effects: list[Effect]) -> None:
        """If it is decided and all that was settled is here, go on in the next view; or not at all."""
        change = self._change
        if change is None or change.decision is None or self.halted:
            return
        decision = decode_decision(change.decision)
        stays = self.view is None or not decision.full or self._is_in(decision)
        if not stays:
            self._halt("left" if self.leaving else "excluded", effects)  # and needs nothing any more
            return
        settled = change.settled(decision, effects)
        if settled is None:
            return
        last = Last(change.view.id, change.turn, change.decision, change.exchange)
        if self.view is None:
            self._end_haunting(now_us, decision, last, effects)
        elif not decision.full:
            self._turns[change.turn] = change.decision
            self._turns.pop(change.turn - REMEMBERED_TURNS, None)
            self._install_list(now_us, decision, settled, effects)
        else:
            self._last = last
            self._install(now_us, decision, settled, "view agreed", effects)

    def _on_heartbeat_timer(self, now_us: int, effects: list[Effect]) -> None:
        if self.view is None or self.halted:
            return
        effects.append(SetTimer(HEARTBEAT_TIMER, self.config.heartbeat_us))
        self.tell(Heartbeat(self.group, self.view.turn, self._braking), effects)
        if self.state is State.MEMBER:
            self._look_round(now_us, self.view, effects)

    def _look_round(self, now_us: int, view: View, effects: list[Effect]) -> None:
        """See whether the view has to change."""
        waited_for = self.orderer.waiting_for
        # An external may have been cut off from all for longer than the aggressive timeout, and the others
        # look after each other: it would change the view of a group that lacks nothing.
        awaited = () if waited_for is None or self.me not in view.core else (waited_for,)
        if self.orderer.cut_off:
            self._quit(effects)
        elif silent := self._detector.passive(now_us):
            because = "token lost" if self.orderer.holder in silent else "member suspected"
            self._start(now_us, True, because, effects)
        elif self._detector.active(now_us, awaited):
            self._start(now_us, not self._can_do_without(view), "member waited for suspected", effects)
        elif self._stalled(now_us, waited_for):
            self._start(now_us, True, "order stalled", effects)
        elif self.joiners(now_us):
            self._start(now_us, True, "somebody joins", effects)
        elif self._i_views and self._returned(now_us, view):
            self._start(now_us, False, "external returned", effects)
        else:
            self._leave_if_done(now_us, effects)

    def _stalled(self, now_us: int, waited_for: NodeId | None) -> bool:
        """Whether the order has not got on for long, although who is waited for lives.

        Somebody was told something that is not so, as of a place that nobody knows: no member can do anything
        about it in this view. The next one begins with what they all hold.
        """
        progress = None if waited_for is None else self.orderer.progress
        if progress is None or progress != self._progress:
            self._progress, self._progress_us = progress, now_us
        patience_us = max(self.config.conservative_us, STALLED * self.config.retry_us)
        if progress is not None and now_us - self._progress_us > patience_us:
            return True
        # A single message may be stuck while others pass it by, until the window is full.
        owed = () if waited_for is None else self.orderer.owed
        before = self._owed if len(self._owed) == len(owed) else [(None, now_us)] * len(owed)
        self._owed = [
            (mark, since_us if mark == known else now_us)
            for mark, (known, since_us) in zip(owed, before, strict=True)
        ]
        return any(mark is not None and now_us - us > PASSED_BY * patience_us for mark, us in self._owed)

    def _can_do_without(self, view: View) -> bool:
        """Whether a light change may take a member out of the token list: a majority has to stay in it."""
        return self._i_views and 2 * (len(view.core) - 1) > len(view.members)

    def _returned(self, now_us: int, view: View) -> bool:
        """Whether an external was heard of late."""
        recent_us = 2 * self.config.heartbeat_us
        return any(
            node not in view.core and self._detector.silent_us(now_us, node) < recent_us
            for node in view.members
            if node != self.me
        )

    def _quit(self, effects: list[Effect]) -> None:
        """What this member lacks is gone for good: leave of its own accord (004 §4.4.5)."""
        self.leaving = True
        assert self.view is not None, "an external is a member of a view"
        self._shift("external gave up", effects)
        floor, upto, _ = self.orderer.unsettled()
        self.tell(Summary(self.view.turn, True, False, True, floor, upto, ()), effects)
        self._halt("cut off", effects)

    def _leave_if_done(self, now_us: int, effects: list[Effect]) -> None:
        """Go, once everything that was accepted is delivered and everyone has it."""
        if not self.leaving or self.halted or not self.orderer.idle or self.state is not State.MEMBER:
            return
        if self._lives.keys() == {self.me}:
            self._halt("left", effects)
        else:
            self._start(now_us, True, "leaving", effects)

    def _on_heartbeat(self, now_us: int, head: Header, beat: Heartbeat, effects: list[Effect]) -> None:
        if beat.group != self.group:
            self._detector.elsewhere(now_us, head.sender)
        if self.state is State.JOINING:
            self._on_group_heard(now_us, head, beat)
            return
        if beat.group != self.group:
            if beat.group < self.group:
                self._ask_older(now_us, head.sender, beat.group, effects)
            return
        assert self.view is not None, "who is not joining is in a view"
        if (head.view.seq, beat.turn) < (self.view.id.seq, self.view.turn):
            self._remind(head, beat.turn, effects)
        elif (head.view.seq, beat.turn) > (self.view.id.seq, self.view.turn):
            mine = Heartbeat(self.group, self.view.turn, self._braking)
            self.tell(mine, effects, to=head.sender)  # it will tell what I missed
        elif self._lives.get(head.sender) == head.incarnation:
            self._arrived(head.sender)
            if beat.braking != (head.sender in self._brakes):
                self._brakes ^= {head.sender}
                self._heed_brakes(now_us, effects)

    # --- two groups meet (003, "Future Improvements": MERGE) ------------------------------------

    def _ask_older(self, now_us: int, node: NodeId, group: Group, effects: list[Effect]) -> None:
        """Ask who seems to be in an older group whether it is: a heartbeat may be forged, or of long ago."""
        if self._knock is None or now_us - self._knock[2] >= self.config.heartbeat_us:
            self._knock = (node, Knock(group, self._random.bits(64)), now_us)
            self._send(Knock(self.group, self._knock[1].nonce), NO_VIEW, effects, to=node)

    def _on_knock(self, head: Header, packet: Knock, effects: list[Effect]) -> None:
        if self.state is State.MEMBER and self.group < packet.group:
            self._send(Answer(self.group, packet.nonce), NO_VIEW, effects, to=head.sender)
        else:
            effects.append(Drop("not in an older group"))

    def _on_answer(self, head: Header, packet: Answer, effects: list[Effect]) -> None:
        """There is an older group, and it hears us: end this life; the next one is let in there.

        Nothing is given up before that. If the older group is gone by then, the next life has its vote in
        this one as after any crash, and goes on here.
        """
        asked = self._knock
        if asked is None or (head.sender, Knock(*packet)) != asked[:2] or self.view is None:
            effects.append(Drop("nobody asked"))
        elif packet.group < self.group:
            self._halt("older group met", effects)

    def _arrived(self, node: NodeId) -> None:
        """A member is in the view. When all are, nobody needs what was settled before it any more."""
        if self._awaited:
            self._awaited.discard(node)
            if not self._awaited and self._last is not None:
                self._last.exchange = Exchange({})

    def _on_group_heard(self, now_us: int, head: Header, beat: Heartbeat) -> None:
        """There is a group to wait for, unless what is heard is what this node was in, or may not join."""
        if head.view.seq <= self._last_number and beat.group == self.group:
            return
        if self.group < beat.group and self._is_bound(now_us):
            return
        self._group_us = now_us
        if self._past is not None and beat.group == self.group and self._change is not None:
            self._change = None  # they went on without my vote

    def _remind(self, head: Header, turn: int, effects: list[Effect]) -> None:
        """Tell who is behind what it missed, or that it is not a member any more."""
        last, view = self._last, self.view
        if view is None or head.view.seq > view.id.seq:
            effects.append(Drop("other view"))
            if view is None and head.view != NO_VIEW:
                self._hand_down(head.sender, head.view, turn, effects)
        elif head.view == view.id and turn in self._turns:
            self._send(Decide(turn, self._turns[turn]), view.id, effects, to=head.sender)
        elif last is not None and (
            last.view == head.view or self._lives.get(head.sender) == head.incarnation
        ):
            self._send(Decide(last.turn, last.value), last.view, effects, to=head.sender)
        elif self._lives.get(head.sender) != head.incarnation and head.view != NO_VIEW:
            told = Excluded(self.group, head.sender, head.incarnation)
            self._send(told, view.id, effects, to=head.sender)
        else:
            effects.append(Drop("other view"))

    def _on_excluded(self, head: Header, packet: Excluded, effects: list[Effect]) -> None:
        mine = packet == (self.group, self.me, self.incarnation)
        if mine and self.view is not None and head.view.seq > self.view.id.seq:
            self._halt("excluded", effects)
        else:
            effects.append(Drop("not for me"))

    def _heed_brakes(self, now_us: int, effects: list[Effect]) -> None:
        self.orderer.closed = bool(self._brakes) or self._braking
        if self.state is State.MEMBER:
            self.orderer.proceed(now_us, effects)
