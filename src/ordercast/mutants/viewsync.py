"""Mistakes one could make in the memberships of the sequencer family."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ordercast.core.contract import CancelTimer, Effect, Persist, SetTimer
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.core.randomness import RandomStream
from ordercast.mutants.mutant import Mutant, register
from ordercast.viewsync import change, joining
from ordercast.viewsync.change import ViewChange
from ordercast.viewsync.consensus import Participant, Voter
from ordercast.viewsync.contract import Settled, View
from ordercast.viewsync.detector import TrafficDetector
from ordercast.viewsync.exchange import Exchange
from ordercast.viewsync.header import Header
from ordercast.viewsync.joining import Joining
from ordercast.viewsync.life import CHANGE_TIMER, JOIN_TIMER, Life
from ordercast.viewsync.machine import GroupMachine
from ordercast.viewsync.meeting import OlderGroups
from ordercast.viewsync.membership import Membership
from ordercast.viewsync.numbers import ViewNumbers
from ordercast.viewsync.packets import (
    NO_ROUND,
    Collect,
    Member,
    Propose,
    Range,
    Summary,
    decode_decision,
)
from ordercast.viewsync.reformation import Reformation
from ordercast.viewsync.states import State
from ordercast.viewsync.storage import Stored

VIEWSYNC_MUTANTS: list[Mutant] = []

_mutant = register(VIEWSYNC_MUTANTS)

# --- consensus -------------------------------------------------------------------------------------


@_mutant("cm", "consensus", Participant, "__init__", "a quorum has one participant too few")
def _quorum_one_too_small(right: Any) -> Any:
    def begin(
        self: Participant, outside: Any, subject: Any, turn: int, voter: Voter, quorum: int, *more: int
    ) -> None:
        right(self, outside, subject, turn, voter, max(1, quorum - 1), *more)

    return begin


# --- two groups meet -------------------------------------------------------------------------------


@_mutant("cm", "founding", OlderGroups, "on_answer", "who meets an older group joins it in the same life")
def _joined_in_the_same_life(right: Any) -> Any:
    def on_answer(self: OlderGroups, head: Header, packet: Any, effects: list[Effect]) -> None:
        before = len(effects)
        right(self, head, packet, effects)
        life = self._life
        if life.halted:
            life.orderer.unsettled()
            life.halted, life.state, life.view, life.lives, life.change = False, State.JOINING, None, {}, None
            effects[before:] = [CancelTimer(CHANGE_TIMER), SetTimer(JOIN_TIMER, 1)]

    return on_answer


# --- view change -----------------------------------------------------------------------------------


@_mutant("total", "view change", change, "union", "what one member has told of is forgotten")
def _one_summary_forgotten(right: Any) -> Any:
    def union(several: Iterable[Iterable[Range]]) -> tuple[Range, ...]:
        told: tuple[Range, ...] = right(list(several)[1:])
        return told

    return union


@_mutant(
    "cm", "view change", ViewChange, "settled", "the next view begins without what was settled of the last"
)
def _installed_unsettled(right: Any) -> Any:
    return lambda self, decision, effects: Settled(decision.upto, {})


@_mutant("dtp", "view change", Membership, "_end_change", "a member that finds itself excluded goes on alone")
def _excluded_and_alive(right: Any) -> Any:
    def end_change(self: Any, now_us: int, effects: list[Effect]) -> None:
        life: Life = self._life
        change, view = life.change, life.view
        if change is not None and change.decision is not None and view is not None:
            decision = decode_decision(change.decision)
            if decision.full and decision.group == life.group and not life.is_in(decision):
                alone = (Member(life.me, life.incarnation, True),)
                next_id = ConfigurationId(view.id.seq + 1, life.me)
                mine = decision._replace(view=next_id, members=alone, site=life.me)
                life.install(now_us, mine, Settled(0, {}), "view agreed", effects)
                return
        right(self, now_us, effects)

    return end_change


@_mutant(
    "total", "view change", GroupMachine, "_on_ordered", "packets of another view are taken for this one's"
)
def _packets_of_another_view(right: Any) -> Any:
    def on_ordered(self: GroupMachine, now_us: int, head: Header, data: bytes, effects: list[Effect]) -> None:
        known = self.life.lives.get(head.sender)
        if self.life.view is not None and known is not None:
            head = head._replace(view=self.life.view.id, incarnation=known)
        right(self, now_us, head, data, effects)

    return on_ordered


@_mutant("cm", "view change", ViewChange, "_summary", "a later life passes for the one it votes for")
def _later_life_in_disguise(right: Any) -> Any:
    def summary(self: ViewChange) -> Summary:
        told: Summary = right(self)
        return told._replace(later_life=False)

    return summary


@_mutant("dtp", "view change", Exchange, "answer", "who lacks a message is sent the next one in its place")
def _fetched_another(right: Any) -> Any:
    def answer(self: Exchange, ranges: Iterable[Range]) -> Any:
        shifted = [Range(stream, first + 1, length) for stream, first, length in ranges]
        return [(stream, number - 1, data) for stream, number, data in right(self, shifted)]

    return answer


# --- persistence and founding ----------------------------------------------------------------------


@_mutant(
    "pinwheel",
    "persistence",
    joining,
    "recall",
    "a later life does not know of the view it has a vote in",
)
def _view_not_recalled(right: Any) -> Any:
    def recall(me: NodeId, data: bytes | None) -> Stored:
        return Stored(right(me, data).last, voter=Voter())

    return recall


@_mutant("dtp", "persistence", Life, "_outcomes", "how a view was decided on is not stored")
def _decision_not_stored(right: Any) -> Any:
    return lambda self, view: ()


@_mutant("cm", "persistence", Life, "_settle_in", "a view is not stored before it is installed")
def _view_not_stored(right: Any) -> Any:
    def settle_in(self: Life, now_us: int, settled: Settled, because: str, effects: list[Effect]) -> None:
        before = len(effects)
        right(self, now_us, settled, because, effects)
        effects[before:] = [effect for effect in effects[before:] if not isinstance(effect, Persist)]

    return settle_in


@_mutant("total", "founding", Joining, "_look", "who was in a group founds another one")
def _founded_by_a_member_of_another(right: Any) -> Any:
    def look(self: Joining, now_us: int, effects: list[Effect]) -> None:
        life = self._life
        life.free, life.past, life.voter = True, None, Voter()
        right(self, now_us, effects)

    return look


class _Undrawn(RandomStream):
    """Draws the same for everybody."""

    def bits(self, count: int) -> int:
        return 0


@_mutant("total", "founding", ViewNumbers, "__init__", "views are counted, all groups alike")
def _view_numbers_not_drawn(right: Any) -> Any:
    return lambda self, stream: right(self, _Undrawn(0))


# --- Reformation -----------------------------------------------------------------------------------


@_mutant(
    "rbp",
    "reformation",
    Reformation,
    "on_invitation",
    "the Sequence test is dropped: an older list is joined",
)
def _sequence_test_dropped(right: Any) -> Any:
    def on_invitation(
        self: Reformation, now_us: int, sender: NodeId, packet: Collect | Propose, effects: list[Effect]
    ) -> None:
        consensus = self.consensus
        if isinstance(packet, Collect) and packet.round < max(consensus.round, consensus.voter.promised):
            consensus.round = consensus.voter.promised = NO_ROUND
        right(self, now_us, sender, packet, effects)

    return on_invitation


@_mutant("rbp", "reformation", Reformation, "begin", "the Majority test is dropped: any list will do")
def _majority_test_dropped(right: Any) -> Any:
    def begin(self: Reformation, now_us: int, detected: bool, effects: list[Effect]) -> None:
        self.consensus.quorum = 1
        right(self, now_us, detected, effects)

    return begin


@_mutant("rbp", "reformation", Reformation, "_give_up", "an aborted Reformation is not begun again")
def _aborted_for_good(right: Any) -> Any:
    def give_up(self: Reformation, now_us: int, effects: list[Effect]) -> None:
        right(self, now_us, effects)
        self._restart_us = now_us + 3_600_000_000

    return give_up


# --- i-views ---------------------------------------------------------------------------------------


@_mutant("irbp", "i-views", Membership, "_remind", "who missed a token list is not told of it")
def _missed_list_not_told(right: Any) -> Any:
    def remind(self: Any, head: Header, turn: int, effects: list[Effect]) -> None:
        life: Life = self._life
        turns, life.turns = life.turns, {}
        right(self, head, turn, effects)
        life.turns = turns

    return remind


# --- detectors -------------------------------------------------------------------------------------


@_mutant("irbp", "detectors", Membership, "_silent", "where the token is watched, who is off its way is not")
def _externals_not_watched(right: Any) -> Any:
    def silent(self: Any, now_us: int, view: View) -> list[NodeId]:
        life: Life = self._life
        found: list[NodeId] = right(self, now_us, view)
        return life.detector.ended if life.traffic.watched else found

    return silent


@_mutant("dtp", "detectors", TrafficDetector, "answered", "attempts count although they were answered since")
def _answers_not_counted(right: Any) -> Any:
    return lambda self, now_us, node: None
