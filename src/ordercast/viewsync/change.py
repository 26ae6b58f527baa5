"""A change of view by consensus (004 Figs 29, 30 and 32), and the light one of i-views (Fig. 34).

Who begins a change, or hears of one, freezes its orderer and tells all what it holds (`Summary`). A
coordinator waits until everybody has told it that and answered it, or is suspected; it fetches what it lacks
of all that, and proposes the next view and everything that is to be delivered in this one. A light change
exchanges no messages: only the token list is agreed on, and the place behind which the order goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from ordercast.core.contract import Effect
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.consensus import Ballot, Outside, Participant, Vote, Voter, after
from ordercast.viewsync.contract import Settled, Unsettled, View
from ordercast.viewsync.exchange import MOST_FETCHED, Exchange
from ordercast.viewsync.header import NO_VIEW
from ordercast.viewsync.numbers import ViewNumbers
from ordercast.viewsync.packets import (
    Decision,
    Fetch,
    Group,
    Item,
    Member,
    Range,
    Round,
    Summary,
    decode_decision,
    encode_decision,
)
from ordercast.viewsync.ranges import union, without

LONGEST_ROUND = 8
"""Rounds grow longer up to so many times the first one's time."""


class Joiner(NamedTuple):
    """A node that asks to be let in."""

    incarnation: int
    last: int
    """The highest number of a view that any life of it installed."""
    heard_us: int
    founds: bool = False
    """Whether it would take part in founding a group."""


class Surroundings(Outside, Protocol):
    """What a change needs of the machine around it."""

    incarnation: int
    group: Group
    numbers: ViewNumbers

    @property
    def goes(self) -> bool:
        """Whether this member leaves with this change: it wants to, and all it accepted is delivered."""

    def suspects(self, now_us: int, awaited: Collection[NodeId]) -> list[NodeId]:
        """Whom to suspect; those who are awaited after the aggressive timeout."""

    def joiners(self, now_us: int) -> Mapping[NodeId, Joiner]:
        """The nodes that ask to be let in."""

    def gone_members(self) -> Sequence[NodeId]:
        """The members whose processes are believed to have ended."""

    def believe_ended(self, node: NodeId) -> None:
        """Believe so of a member, until it is heard again."""

    def note(self, because: str, effects: list[Effect]) -> None:
        """Something worth telling happened in the change."""


class ViewChange:
    """One change at one participant: a member, or a later life of one, which has a vote and nothing else."""

    def __init__(
        self,
        now_us: int,
        outside: Surroundings,
        view: View,
        voter: Voter,
        config: GroupConfig,
        unsettled: Unsettled | None,
        full: bool,
    ) -> None:
        quorum = len(view.members) // 2 + 1
        self.consensus = Participant(outside, self, view.turn, voter, quorum, len(view.members))
        """On the next view; this change is what it is about."""
        self.turn = view.turn
        self._me = outside.me
        self._around = outside
        self.view = view
        self._config = config
        self._unsettled = unsettled
        self.full = full
        self.exchange = Exchange(unsettled.items if unsettled is not None else {})
        self._lives: dict[NodeId, int] = {}
        """The life that told each summary."""
        self._entered_us = now_us
        """When the current round began here."""
        self._coordinator: NodeId = 0
        """Who is expected to coordinate."""
        self._deadline_us = 0
        self._given_up = 0
        """Coordinators that this participant did not wait for any longer."""
        self._has_all: NodeId = 0
        """Who should hold everything that was decided; 0 where nobody is known to."""
        self._sought: Sequence[Range] = ()
        """What belongs to a proposal that may have been decided in an earlier round."""

    @property
    def later_life(self) -> bool:
        """Whether this participant is a later life of the member it votes for."""
        return self._unsettled is None

    @property
    def decision(self) -> bytes | None:
        """What was decided; None before that is known here."""
        return self.consensus.decision

    @property
    def _others(self) -> list[NodeId]:
        return [node for node in self.view.members if node != self._me]

    @property
    def lacking(self) -> bool:
        """Whether something is not here that belongs to what was decided, or may have been."""
        return self.decision is not None or bool(self.exchange.missing(self._sought, 1))

    def follows(self, now_us: int, decision: Decision, light: bool) -> bool:
        """Whether a decision that another node tells of can be about what comes after this view.

        A light one, where there are such, is the same view with the next token list. Any other is a later
        view of the same group, or the end of this one; and what it settles is of this view.
        """
        view, lives = self.view, zip(self.view.members, self.view.incarnations, strict=True)
        if not decision.full:
            same = [(member.node, member.incarnation) for member in decision.members] == list(lives)
            return light and same and (decision.view, decision.turn) == (view.id, self.turn + 1)
        if not self.is_of_view(decision.ranges):
            return False
        if not decision.members:
            return decision.group == self._around.group
        return (
            decision.group == self._around.group
            and decision.turn == 0
            and len(decision.members) <= self._config.max_members
            and view.id.seq < decision.view.seq
            and self._around.numbers.believes(now_us, decision.view.seq, view.id.seq)
        )

    def is_of_view(self, ranges: Sequence[Range]) -> bool:
        """Whether all these items can be of this view: of lives that are members of it, or of all."""
        lives = dict(zip(self.view.members, self.view.incarnations, strict=True))
        return all(not stream.node or lives.get(stream.node) == stream.incarnation for stream, _, _ in ranges)

    # --- the exchange ---------------------------------------------------------------------------

    def begin(self, now_us: int, detected: bool, effects: list[Effect]) -> None:
        """Tell all what is here, and look for a coordinator; whether the reason was noticed here or not."""
        self.summarize(effects)
        self._rotate(now_us, effects)

    def summarize(self, effects: list[Effect]) -> None:
        """Tell all what is here."""
        summary = self._summary()
        self.exchange.told(self._me, summary)
        self._lives[self._me] = self._around.incarnation
        self._around.tell(summary, effects)

    def _summary(self) -> Summary:
        if self._unsettled is None:
            return Summary(self.turn, self.full, True, False, 0, 0, ())
        floor, upto, _ = self._unsettled
        ranges = self.exchange.held if self.full else ()  # what was fetched meanwhile, too
        return Summary(self.turn, self.full, False, self._around.goes, floor, upto, ranges)

    def on_summary(
        self, now_us: int, sender: NodeId, incarnation: int, summary: Summary, effects: list[Effect]
    ) -> None:
        """What another one holds. If it asks for a full change, it becomes one."""
        self.exchange.told(sender, summary)
        self._lives[sender] = incarnation
        if summary.full and not self.full:
            self.full = True
            self.summarize(effects)
        self.consensus.propose(now_us, effects)

    def on_vote(self, now_us: int, sender: NodeId, packet: Vote, effects: list[Effect]) -> None:
        """A packet of the consensus."""
        self.consensus.on_vote(now_us, sender, packet, effects)

    def on_fetch(self, sender: NodeId, packet: Fetch, effects: list[Effect]) -> None:
        """Answer a member that lacks packets of the old view."""
        for stream, number, data in self.exchange.answer(packet.ranges):
            self._around.tell(Item(self.turn, stream, number, data), effects, to=sender)

    def on_item(self, now_us: int, packet: Item, effects: list[Effect]) -> None:
        """Take a packet of the old view that this member had asked for."""
        if self.exchange.took(packet.stream, packet.number, packet.data):
            self.consensus.propose(now_us, effects)
            self.consensus.adopt(now_us, effects)

    def _fetch(
        self, decision: Decision, sources: Sequence[NodeId], has_all: NodeId, effects: list[Effect]
    ) -> bool:
        """Ask for what is lacking; whether nothing is."""
        missing = self.exchange.missing(decision.ranges, MOST_FETCHED)
        if missing:
            for node, ranges in self.exchange.requests(missing, sources, has_all):
                self._around.tell(Fetch(self.turn, ranges), effects, to=node)
        return not missing

    # --- the value ------------------------------------------------------------------------------

    def initial(self, now_us: int, ballot: Ballot, effects: list[Effect]) -> bytes | None:
        """As coordinator: the next view or token list, once all have told what is here, or are suspected."""
        members = self.view.members
        summaries = self.exchange.summaries
        heard = summaries.keys() & ballot.answered
        joining = self._around.joiners(now_us)  # their earlier lives have nothing more to tell
        awaited = [node for node in members if node not in heard and node not in joining]
        suspected = self._around.suspects(now_us, awaited)
        if now_us - self._entered_us > self._config.aggressive_us:  # who tells and never answers is deaf
            suspected = [*suspected, *awaited]
        present = [node for node in members if node in summaries and node not in suspected]
        if any(node not in suspected for node in awaited) or len(present) < self.consensus.quorum:
            return None
        if not self._agreed(present):
            return None
        lives = [node for node in present if not summaries[node].later_life]
        if self.full:
            if not all(summaries[node].full for node in lives):
                return None
            return self._next_view(now_us, lives, effects)
        return self._next_list(lives)

    def _agreed(self, present: Sequence[NodeId]) -> bool:
        """As coordinator: whether the next view may be one of those who are here."""
        return True

    def _site(self, able: Sequence[NodeId]) -> NodeId:
        """Who of those that go on holds the token first; 0: anyone, since all have the same then (§4.4.1)."""
        return 0

    def _next_view(self, now_us: int, lives: list[NodeId], effects: list[Effect]) -> bytes | None:
        """Members and messages of the next view (Fig. 29, step 3), once all the messages are here."""
        around, summaries = self._around, self.exchange.summaries
        joiners = dict(around.joiners(now_us))
        for node, summary in summaries.items():
            if summary.later_life:
                known = joiners.get(node)
                if known is None or known.incarnation < self._lives[node]:
                    joiners[node] = Joiner(self._lives[node], self.view.id.seq, now_us)
        lives = [node for node in lives if node not in joiners]  # else that life is over
        upto = max((summaries[node].upto for node in lives), default=0)
        floor = min((summaries[node].floor for node in lives if summaries[node].upto == upto), default=0)
        able = [node for node in lives if summaries[node].upto >= floor]  # the others lack what is given up
        ranges = union(summaries[node].ranges for node in able)
        members = {node: self._lives[node] for node in able if not summaries[node].leaving}
        members |= {node: joiner.incarnation for node, joiner in joiners.items()}
        most = self._config.max_members
        chosen = tuple(Member(node, members[node], True) for node in sorted(members)[:most])
        last = max([self.view.id.seq, *(joiner.last for joiner in joiners.values())])
        rep = chosen[0].node if chosen else 0
        view = ConfigurationId(around.numbers.after(last), rep) if chosen else NO_VIEW
        site = self._site([node for node in able if node in members]) or rep
        decision = Decision(True, around.group, view, 0, chosen, site, upto, ranges)
        if not self._fetch(decision, able, 0, effects):
            return None
        return encode_decision(decision)

    def _next_list(self, lives: list[NodeId]) -> bytes | None:
        """The next token list of the same view (Fig. 34)."""
        if len(lives) < self.consensus.quorum:
            return None
        summaries = self.exchange.summaries
        upto = max(summaries[node].upto for node in lives)
        site = self._site(lives) or next(node for node in lives if summaries[node].upto == upto)
        members = tuple(
            Member(node, incarnation, node in lives)
            for node, incarnation in zip(self.view.members, self.view.incarnations, strict=True)
        )
        return encode_decision(
            Decision(False, self._around.group, self.view.id, self.turn + 1, members, site, upto, ())
        )

    def recover(self, now_us: int, value: bytes, ballot: Ballot, effects: list[Effect]) -> bytes | None:
        """A proposal of an earlier round is made again once all that it names is here.

        Those who had adopted it may have lost what it names with the lives that held it. If everybody is
        there to say so, it is proposed without; and if there are only later lives, nobody needs any of it.
        """
        decision = decode_decision(value)
        self._sought = decision.ranges
        if self._fetch(decision, self._others, 0, effects):
            return value
        told = self.exchange.summaries
        suspected = self._around.suspects(now_us, self._others)
        if all(summary.later_life for node, summary in told.items() if node not in suspected):
            return value
        if not ballot.complete or len(told) < len(self.view.members):
            return None
        lost = self.exchange.lost(decision.ranges)
        kept = without(decision.ranges, lost)
        return encode_decision(decision._replace(ranges=kept)) if not self.exchange.missing(kept, 1) else None

    def may_adopt(self, value: bytes, source: NodeId, effects: list[Effect]) -> bool:
        """Whether all that a proposal names is here; who proposes it has it, if it is not a later life.

        Later lives need none of it: what all who had it have lost holds up nobody.
        """
        told = self.exchange.summaries.get(source)
        if self.later_life and told is not None and told.later_life:
            return True
        decision = decode_decision(value)
        if source == self._me:  # it was proposed before, by somebody else
            return self._fetch(decision, self._others, 0, effects)
        return self._fetch(decision, (source,), source, effects)

    # --- rounds ---------------------------------------------------------------------------------

    def needed(self, value: bytes, ballot: Ballot) -> Sequence[NodeId]:
        """Who has to adopt a proposal besides a quorum: nobody."""
        return ()

    def joined_round(self, now_us: int, round_: Round) -> None:
        """Another round has begun: its coordinator gets its time."""
        self._entered_us = now_us
        self._await(now_us, round_.coordinator)

    def _await(self, now_us: int, coordinator: NodeId) -> None:
        """Give a coordinator its time: more than the last that was given up, so that one is enough some time.

        Rounds that others begin do not make it longer: who tells of many that there never were would make
        the next real one late.
        """
        self._coordinator = coordinator
        round_us = self._config.round_us * min(1 + self._given_up, LONGEST_ROUND)
        self._deadline_us = now_us + self._config.aggressive_us + round_us

    def _rotate(self, now_us: int, effects: list[Effect]) -> None:
        """Go on to the next coordinator, if the round's time is over or the present one is suspected."""
        suspected = self._around.suspects(now_us, self.view.members)
        current = self._coordinator
        if current and now_us < self._deadline_us and current not in suspected:
            return
        if current:
            self._given_up += 1
        following = after(self._coordinators(), current, suspected)
        if following != self._me:
            self._await(now_us, following)
        elif self._hears_enough(suspected):
            self._lead(now_us, effects)

    def _coordinators(self) -> Sequence[NodeId]:
        """The members, in the order in which they are to coordinate."""
        return self.view.members

    def _lead(self, now_us: int, effects: list[Effect]) -> None:
        """Begin a round."""
        self.consensus.coordinate(now_us, effects)

    def _hears_enough(self, suspected: Sequence[NodeId]) -> bool:
        """Whether this member may coordinate: if it hears too few, the others would answer in vain."""
        return len(self.view.members) - len(suspected) >= self.consensus.quorum

    def on_timer(self, now_us: int, effects: list[Effect]) -> None:
        """Send again what may have been lost, and see whether a coordinator has to be replaced."""
        self.exchange.forget_requests()
        if self.decision is not None:
            self._has_all = 0  # who told of it may be a later life, which holds nothing: ask those who do
            return
        self.summarize(effects)
        self._rotate(now_us, effects)
        self.consensus.send_again(now_us, effects)
        self.consensus.adopt(now_us, effects)

    # --- the end --------------------------------------------------------------------------------

    def on_decided(self, value: bytes, source: NodeId) -> None:
        """Take a decision that another member tells of; that member most likely holds what it names."""
        self.consensus.decision, self._has_all = value, source

    def settled(self, decision: Decision, effects: list[Effect]) -> Settled | None:
        """What was agreed on, once it is all here; who has nothing to settle needs none of it."""
        if self.later_life:
            return Settled(decision.upto, {})
        sources = [self._has_all, *self._others] if self._has_all else self._others
        if not self._fetch(decision, sources, self._has_all, effects):
            return None
        return Settled(decision.upto, self.exchange.select(decision.ranges))
