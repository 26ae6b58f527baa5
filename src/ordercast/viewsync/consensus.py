"""Consensus (Chandra and Toueg): rotating coordinator, a majority, each phase sent again until answered.

A round has four phases: the participants' estimates go to the coordinator (1), it proposes the one that was
adopted last (2), they adopt it and say so (3), and with a quorum of these it is decided (4). A coordinator
that is slow or suspected is followed by the next one; what a quorum adopted every later round proposes.

What a participant promised and adopted is stored before it answers, so that its later lives can vote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from ordercast.core.contract import Drop, Effect
from ordercast.core.identity import NodeId
from ordercast.viewsync.packets import (
    NO_ROUND,
    Abort,
    Accepted,
    Collect,
    Decide,
    Estimate,
    HasEnded,
    MembershipPacket,
    Propose,
    Refuse,
    Round,
)

Vote: TypeAlias = Collect | Estimate | Propose | Accepted | Refuse | Abort | HasEnded

FAR_BEHIND = 64
"""Rounds by which a coordinator is behind a participant's promise before it is told. It counts on by one a
round, so it is never that far behind unless somebody told the participant of a round that there never was."""


class Voter:
    """A participant's memory: survives its lives."""

    __slots__ = ("accepted", "promised", "value")

    def __init__(self, promised: Round = NO_ROUND, accepted: Round = NO_ROUND, value: bytes = b"") -> None:
        self.promised = promised
        """The round before which this participant takes part in none."""
        self.accepted = accepted
        """The round whose proposal it adopted last (the timestamp of its estimate)."""
        self.value = value
        """What was proposed in the round `accepted`."""

    def promise(self, round_: Round) -> bool:
        """Take part in a round; False if in a later one already."""
        if round_ < self.promised:
            return False
        self.promised = round_
        return True

    def adopt(self, round_: Round, value: bytes) -> bool:
        """Adopt a round's proposal; False if in a later round already."""
        if not self.promise(round_):
            return False
        self.accepted, self.value = round_, value
        return True


class Ballot:
    """One round, as its coordinator sees it."""

    __slots__ = ("_accepted", "_estimates", "_quorum", "_voters", "round", "value")

    def __init__(self, round_: Round, quorum: int, voters: int = 0) -> None:
        """A round of so many voters; 0 if nobody knows how many there are."""
        self.round = round_
        self._voters = voters
        self._quorum = quorum
        self._estimates: dict[NodeId, tuple[Round, bytes]] = {}
        self._accepted: set[NodeId] = set()
        self.value: bytes | None = None
        """What is proposed, once that is known."""

    def estimate(self, node: NodeId, accepted: Round, value: bytes) -> None:
        """A participant's estimate (phase 1)."""
        self._estimates[node] = (accepted, value)

    @property
    def answered(self) -> Sequence[NodeId]:
        """Who takes part in the round."""
        return sorted(self._estimates)

    @property
    def collected(self) -> bool:
        """Whether a quorum takes part."""
        return len(self._estimates) >= self._quorum

    @property
    def complete(self) -> bool:
        """Whether everybody takes part."""
        return len(self._estimates) == self._voters

    @property
    def locked(self) -> bytes | None:
        """The proposal that may have been decided before and has to be made again, if there is one.

        That is the latest, which repeats any earlier one that was decided. Nothing was decided if too few can
        have adopted a proposal, those who have not been heard included. Which one they adopted does not
        matter: who led a round in between may have repeated it for nobody but itself.
        """
        accepted, value = max(self._estimates.values(), default=(NO_ROUND, b""))
        if accepted == NO_ROUND:
            return None
        adopted = sum(estimate[0] != NO_ROUND for estimate in self._estimates.values())
        unheard = max(0, self._voters - len(self._estimates)) if self._voters else self._quorum
        return value if adopted + unheard >= self._quorum else None

    def accept(self, node: NodeId) -> None:
        """A participant adopted the proposal (phase 3)."""
        self._accepted.add(node)

    def decided(self, needed: Sequence[NodeId] = ()) -> bool:
        """Whether a quorum adopted the proposal, and those who are needed besides (phase 4)."""
        return len(self._accepted) >= self._quorum and self._accepted.issuperset(needed)


class Outside(Protocol):
    """What a participant needs of the machine around it."""

    me: NodeId

    def tell(self, packet: MembershipPacket, effects: list[Effect], to: NodeId | None = None) -> None:
        """Send a packet that belongs to the change: to one, or to all."""

    def keep(self, effects: list[Effect]) -> None:
        """Store the voter durably, before whatever is sent next."""


class Subject(Protocol):
    """What a consensus is about: knows what to propose, and what it takes to adopt that."""

    def initial(self, now_us: int, ballot: Ballot, effects: list[Effect]) -> bytes | None:
        """As coordinator: what to propose if nothing was before; None while that cannot be said."""

    def recover(self, now_us: int, value: bytes, ballot: Ballot, effects: list[Effect]) -> bytes | None:
        """As coordinator: what to propose if this was before; None while what belongs to it is not here."""

    def may_adopt(self, value: bytes, source: NodeId, effects: list[Effect]) -> bool:
        """Whether all that belongs to a proposal is here; if not, ask for it."""

    def needed(self, value: bytes, ballot: Ballot) -> Sequence[NodeId]:
        """As coordinator: who has to adopt a proposal besides a quorum."""

    def joined_round(self, now_us: int, round_: Round) -> None:
        """Another round has begun."""


class Participant:
    """One consensus, from the side of one who takes part."""

    def __init__(
        self, outside: Outside, subject: Subject, turn: int, voter: Voter, quorum: int, voters: int = 0
    ) -> None:
        """`quorum` of `voters` decide; 0 voters: it is not known how many there are."""
        self._outside = outside
        self._subject = subject
        self._me = outside.me
        self.turn = turn
        self.voter = voter
        self.quorum = quorum
        self._voters = voters
        self.round = voter.promised
        """The current one, as far as is known here."""
        self.ballot: Ballot | None = None
        """As coordinator of the current round: its votes."""
        self.proposal: tuple[Round, bytes] | None = None
        """What was proposed in the current round and is not adopted here yet."""
        self.decision: bytes | None = None

    # --- coordinating ---------------------------------------------------------------------------

    def coordinate(self, now_us: int, effects: list[Effect]) -> None:
        """Begin a round of my own, later than any I know of."""
        self.open(now_us, Round(max(self.round.attempt, self.voter.promised.attempt) + 1, self._me), effects)
        self._outside.tell(Collect(self.turn, self.round), effects)
        self.propose(now_us, effects)

    def open(self, now_us: int, round_: Round, effects: list[Effect]) -> Ballot:
        """As coordinator: promise to take part in a round, and wait for the others."""
        self._enter(now_us, round_)
        ballot = self.ballot = Ballot(round_, self.quorum, self._voters)
        self.voter.promise(round_)
        self._outside.keep(effects)
        ballot.estimate(self._me, self.voter.accepted, self.voter.value)
        return ballot

    def _enter(self, now_us: int, round_: Round) -> None:
        self.round = round_
        self.ballot = self.proposal = None
        self._subject.joined_round(now_us, round_)

    def propose(self, now_us: int, effects: list[Effect]) -> None:
        """As coordinator, phase 2, once a quorum takes part and there is something to propose."""
        ballot = self.ballot
        if ballot is None or ballot.value is not None or not ballot.collected:
            return
        locked = ballot.locked
        if locked is None:
            value = self._subject.initial(now_us, ballot, effects)
        else:
            value = self._subject.recover(now_us, locked, ballot, effects)
        if value is None:
            return
        ballot.value = value
        self._outside.tell(Propose(self.turn, self.round, value), effects)
        self.proposal = (self.round, value)
        self.adopt(now_us, effects)

    def _count(self, node: NodeId, effects: list[Effect]) -> None:
        """Phase 4, once a quorum has adopted the proposal."""
        ballot = self.ballot
        assert ballot is not None, "only a coordinator counts"
        assert ballot.value is not None, "what has not been proposed cannot have been adopted"
        ballot.accept(node)
        if self.decision is None and ballot.decided(self._subject.needed(ballot.value, ballot)):
            self.decision = ballot.value
            self._outside.tell(Decide(self.turn, ballot.value), effects)

    # --- taking part ----------------------------------------------------------------------------

    def on_vote(self, now_us: int, sender: NodeId, packet: Vote, effects: list[Effect]) -> None:
        """A packet of this consensus. Nobody refuses or aborts in one: those are a Reformation's votes."""
        match packet:
            case Collect():
                self.on_collect(now_us, sender, packet, effects)
            case Estimate():
                self.on_estimate(now_us, sender, packet, effects)
            case Propose():
                self.on_propose(now_us, sender, packet, effects)
            case Accepted():
                self.on_accepted(now_us, sender, packet, effects)
            case Refuse() | Abort() | HasEnded():
                effects.append(Drop("no Reformation"))

    def on_collect(self, now_us: int, sender: NodeId, packet: Collect, effects: list[Effect]) -> None:
        """Phase 1: a coordinator asks for estimates."""
        round_ = packet.round
        if round_.coordinator != sender or round_ < self.voter.promised or round_ < self.round:
            effects.append(Drop("old round"))
            known = max(self.voter.promised, self.round)
            if known.attempt > round_.attempt + FAR_BEHIND:
                self._outside.tell(Estimate(self.turn, known, NO_ROUND, b""), effects, to=sender)
            return
        if round_ > self.round:
            self._enter(now_us, round_)
        if round_ > self.voter.promised:
            self.voter.promise(round_)
            self._outside.keep(effects)
        self._outside.tell(
            Estimate(self.turn, round_, self.voter.accepted, self.voter.value), effects, to=sender
        )

    def on_estimate(self, now_us: int, sender: NodeId, packet: Estimate, effects: list[Effect]) -> None:
        """Phase 1, at the coordinator; one of a round far ahead says that this one is in vain."""
        if self.ballot is None or packet.round != self.ballot.round:
            effects.append(Drop("old round"))
            if packet.round.attempt > self.round.attempt + FAR_BEHIND:
                self._enter(now_us, packet.round)
            return
        self.ballot.estimate(sender, packet.accepted, packet.value)
        self.propose(now_us, effects)

    def on_propose(self, now_us: int, sender: NodeId, packet: Propose, effects: list[Effect]) -> None:
        """Phase 3: a proposal, which is adopted as soon as all that it names is here."""
        round_ = packet.round
        if round_.coordinator != sender or round_ < self.voter.promised or round_ < self.round:
            effects.append(Drop("old round"))
            return
        if round_ > self.round:
            self._enter(now_us, round_)
        if self.voter.accepted == round_:  # it did not hear so
            self._outside.tell(Accepted(self.turn, round_), effects, to=sender)
            return
        self.proposal = (round_, packet.value)
        self.adopt(now_us, effects)

    def adopt(self, now_us: int, effects: list[Effect]) -> None:
        """Phase 3, once all that belongs to the proposal is here."""
        if self.proposal is None:
            return
        round_, value = self.proposal
        if not self._subject.may_adopt(value, round_.coordinator, effects):
            return
        self.proposal = None
        if not self.voter.adopt(round_, value):
            return
        self._outside.keep(effects)
        if round_.coordinator == self._me:
            self._count(self._me, effects)
        else:
            self._outside.tell(Accepted(self.turn, round_), effects, to=round_.coordinator)

    def on_accepted(self, now_us: int, sender: NodeId, packet: Accepted, effects: list[Effect]) -> None:
        """Phase 3, at the coordinator."""
        ballot = self.ballot
        if ballot is None or packet.round != ballot.round or ballot.value is None:
            effects.append(Drop("old round"))
            return
        self._count(sender, effects)

    # --- again ----------------------------------------------------------------------------------

    def send_again(self, now_us: int, effects: list[Effect]) -> None:
        """What a coordinator sent and too few have answered."""
        ballot = self.ballot
        if ballot is None or self.decision is not None:
            return
        if ballot.value is None:
            self._outside.tell(Collect(self.turn, self.round), effects)
            self.propose(now_us, effects)
        else:
            self._outside.tell(Propose(self.turn, self.round, ballot.value), effects)


def after(members: Sequence[NodeId], node: NodeId, suspected: Sequence[NodeId]) -> NodeId:
    """The next coordinator: the first behind ``node``, in a circle, that is not suspected."""
    at = members.index(node) + 1 if node in members else 0
    circle = [*members[at:], *members[:at]]
    return next((member for member in circle if member not in suspected), circle[0])
