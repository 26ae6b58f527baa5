"""Reformation (004 §3.2.3, Figs 22 to 24): a new token list in three phases, led by who noticed a failure.

Phase I: the originator invites all to a new list with a version number; each votes "Yes" unless it belongs to
another list or to a later one (Sequence test). Phase II: when all have answered or are suspected, and they
are a majority (Majority test) of whom one has everything that any of them regards as stable (Resiliency
test), it announces the new list and what is settled; each recovers what it lacks and votes "Yes". Phase III:
with the votes of *all* on the list, the token goes to the new token site. Any "No", or silence, aborts; the
originator waits and begins again with a later version.

The paper leaves open what becomes of a list that some have committed to when its originator dies. Here votes
are remembered as in `consensus`: a list that may have been committed to is the one that the next originator
has to announce. Several originators then end up with one sequence of lists, and what 004 §4.4.1 misses in RBP
holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.core.contract import Drop, Effect
from ordercast.core.identity import NodeId
from ordercast.viewsync.change import ViewChange
from ordercast.viewsync.consensus import Ballot, Vote
from ordercast.viewsync.packets import (
    NO_ROUND,
    Abort,
    Collect,
    Propose,
    Refuse,
    Round,
    decode_decision,
)


class ResilientChange(ViewChange):
    """A change that passes the Resiliency test, and gives the token to who knows most."""

    def _agreed(self, present: Sequence[NodeId]) -> bool:
        """Phase II: all have answered the invitation or are suspected; is the Resiliency test passed?"""
        summaries = self.exchange.summaries
        known = [summaries[node] for node in present if not summaries[node].later_life]
        return max((told.upto for told in known), default=0) >= max((told.floor for told in known), default=0)

    def _site(self, able: Sequence[NodeId]) -> NodeId:
        """The new token site is who knows most of the old list."""
        summaries = self.exchange.summaries
        return max(able, key=lambda node: (summaries[node].upto, -node), default=0)


class Reformation(ResilientChange):
    """One Reformation: as originator, as a slave, or one after the other."""

    _joined: Round
    """The list this member belongs to (its version), if it does."""
    _restart_us = 0
    """When to become an originator, if nobody else has been one until then."""

    def begin(self, now_us: int, detected: bool, effects: list[Effect]) -> None:
        """Begin as the originator if this member noticed the failure; the others wait to be invited."""
        self._joined = NO_ROUND
        self.summarize(effects)
        if detected:
            self._originate(now_us, effects)
        else:
            self._wait(now_us)

    def _originate(self, now_us: int, effects: list[Effect]) -> None:
        """Phase I: invite all."""
        self.consensus.coordinate(now_us, effects)
        self._joined = self.consensus.round

    def _wait(self, now_us: int) -> None:
        """Belong to no list; begin one later. No two members wait equally long.

        With each version another one waits least: the one that always did may be one that never gets through.
        """
        self._joined = NO_ROUND
        members = self.view.members
        place = 1 + (members.index(self._me) - self.consensus.round.attempt) % len(members)
        self._restart_us = now_us + self._config.aggressive_us + place * self._config.round_us

    def on_vote(self, now_us: int, sender: NodeId, packet: Vote, effects: list[Effect]) -> None:
        """A packet of the Reformation."""
        match packet:
            case Collect() | Propose():
                self.on_invitation(now_us, sender, packet, effects)
            case Refuse():
                self.on_refuse(now_us, sender, packet, effects)
            case Abort():
                self.on_abort(now_us, sender, packet, effects)
            case _:
                super().on_vote(now_us, sender, packet, effects)

    # --- slaves ---------------------------------------------------------------------------------

    def on_invitation(
        self, now_us: int, sender: NodeId, packet: Collect | Propose, effects: list[Effect]
    ) -> None:
        """Phase I, "Reformation Invitation", or phase II, "New TL"."""
        if self._joined not in (NO_ROUND, packet.round):
            self._refuse(sender, packet.round, effects)
            return
        super().on_vote(now_us, sender, packet, effects)
        if self.consensus.round == packet.round:
            self._joined = packet.round

    def _refuse(self, to: NodeId, round_: Round, effects: list[Effect]) -> None:
        self._around.note("several originators", effects)
        self._around.tell(Refuse(self.turn, round_, self._joined), effects, to=to)

    def on_abort(self, now_us: int, sender: NodeId, packet: Abort, effects: list[Effect]) -> None:
        """ "Abort": leave the list."""
        if packet.round == self._joined and sender == packet.round.coordinator:
            self.consensus.proposal = None
            self._wait(now_us)
        else:
            effects.append(Drop("old round"))

    # --- the originator -------------------------------------------------------------------------

    def on_refuse(self, now_us: int, sender: NodeId, packet: Refuse, effects: list[Effect]) -> None:
        """A vote "No": give up, and begin again with a later version."""
        ballot = self.consensus.ballot
        if ballot is None or packet.round != ballot.round or self.decision is not None:
            effects.append(Drop("old round"))
            return
        self._give_up(now_us, effects)
        self.consensus.round = max(self.consensus.round, Round(packet.joined.attempt, self._me))

    def _give_up(self, now_us: int, effects: list[Effect]) -> None:
        """ "Reformation Abort"."""
        self._around.tell(Abort(self.turn, self.consensus.round), effects)
        self.consensus.ballot = self.consensus.proposal = None
        self._wait(now_us)
        self._restart_us -= self._config.aggressive_us  # nobody else need be waited for to notice

    def needed(self, value: bytes, ballot: Ballot) -> Sequence[NodeId]:
        """Phase III: all who are on the new list and were invited have to vote "Yes".

        Not so for a list that was announced before: it stands, and who had what belongs to it may be gone.
        """
        if ballot.locked is not None:
            return ()
        listed = {member.node for member in decode_decision(value).members}
        return [node for node in ballot.answered if node in listed]

    # --- timeouts -------------------------------------------------------------------------------

    def _rotate(self, now_us: int, effects: list[Effect]) -> None:
        """TIMEOUT: leave the list, or give the Reformation up; after a while, originate one."""
        if self._joined == NO_ROUND:
            suspected = self._around.suspects(now_us, self.view.members)
            if now_us >= self._restart_us and self._hears_enough(suspected):
                self._originate(now_us, effects)
            return
        originator = self._joined.coordinator
        lost = originator != self._me and originator in self._around.suspects(now_us, (originator,))
        if lost or now_us >= self._deadline_us:
            if self.consensus.ballot is not None:
                self._give_up(now_us, effects)
            else:
                self.consensus.proposal = None
                self._wait(now_us)
