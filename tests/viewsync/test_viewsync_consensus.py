"""Consensus (Chandra and Toueg, 004 §4.3.2): what a quorum has adopted every later round proposes again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from viewsync_node import Around, one, receivers, round_, sent, stored_before_sent

from effects import drops
from ordercast.core.contract import Effect
from ordercast.core.identity import NodeId
from ordercast.viewsync.consensus import Ballot, Participant, Vote, Voter, after
from ordercast.viewsync.packets import (
    NO_ROUND,
    Abort,
    Accepted,
    Collect,
    Decide,
    Estimate,
    Propose,
    Refuse,
    Round,
)


class Plain:
    """A consensus on bytes, among three, from the side of one of them; and what it is about."""

    def __init__(self, me: NodeId, voter: Voter | None = None, quorum: int = 2) -> None:
        self.mine: bytes | None = b"mine"
        self.holds = True
        self.part = Participant(Around(me), self, 0, voter or Voter(), quorum)

    @property
    def voter(self) -> Voter:
        return self.part.voter

    @property
    def decision(self) -> bytes | None:
        return self.part.decision

    # --- what it is about

    def initial(self, now_us: int, ballot: Ballot, effects: list[Effect]) -> bytes | None:
        return self.mine

    def recover(self, now_us: int, value: bytes, ballot: Ballot, effects: list[Effect]) -> bytes | None:
        return value

    def may_adopt(self, value: bytes, source: NodeId, effects: list[Effect]) -> bool:
        return self.holds

    def needed(self, value: bytes, ballot: Ballot) -> Sequence[NodeId]:
        return ()

    def joined_round(self, now_us: int, round_: Round) -> None:
        pass

    # --- what happens

    def begins(self) -> list[Effect]:
        effects: list[Effect] = []
        self.part.coordinate(0, effects)
        return effects

    def hears(self, sender: NodeId, *packets: Vote) -> list[Effect]:
        effects: list[Effect] = []
        for packet in packets:
            self.part.on_vote(0, sender, packet, effects)
        return effects

    def again(self) -> list[Effect]:
        effects: list[Effect] = []
        self.part.send_again(0, effects)
        return effects


def estimate(round_: Round, accepted: Round = NO_ROUND, value: bytes = b"") -> Estimate:
    return Estimate(0, round_, accepted, value)


# --- a voter -----------------------------------------------------------------------------------------------


def test_a_voter_takes_part_in_no_earlier_round_than_it_promised() -> None:
    voter = Voter()
    assert voter.promise(round_(2, 1))
    assert voter.promise(round_(2, 1)), "the same round is asked for again if an answer is lost"
    assert not voter.promise(round_(1, 3))
    assert voter.promised == round_(2, 1)


def test_a_voter_adopts_nothing_of_an_earlier_round() -> None:
    voter = Voter(promised=round_(3, 2))
    assert not voter.adopt(round_(3, 1), b"early")
    assert voter.adopt(round_(3, 2), b"right")
    assert (voter.accepted, voter.value) == (round_(3, 2), b"right")


def test_rounds_are_ordered_by_attempt_and_then_by_coordinator() -> None:
    assert round_(1, 3) < round_(2, 1) < round_(2, 2)


# --- a ballot ----------------------------------------------------------------------------------------------


def test_the_estimate_that_was_adopted_last_is_the_one_to_propose() -> None:
    ballot = Ballot(round_(5, 1), 3)
    ballot.estimate(1, NO_ROUND, b"")
    assert ballot.locked is None
    ballot.estimate(2, round_(2, 1), b"older")
    ballot.estimate(3, round_(4, 3), b"newer")
    assert ballot.collected
    assert ballot.locked == b"newer"
    assert ballot.answered == [1, 2, 3]


def test_who_repeats_a_proposal_for_itself_alone_does_not_hide_that_it_was_decided() -> None:
    """Nodes 2, 4, 5 and 6 decided; 1 learnt from 5 and 6 what they adopted, and proposed it to nobody."""
    ballot = Ballot(round_(9, 3), 4, 6)
    ballot.estimate(3, NO_ROUND, b"")
    ballot.estimate(1, round_(8, 1), b"decided")
    ballot.estimate(5, round_(2, 2), b"decided")
    assert not ballot.collected
    ballot.estimate(6, round_(2, 2), b"decided")
    assert ballot.collected
    assert ballot.locked == b"decided"


def test_what_too_few_can_have_adopted_binds_nobody() -> None:
    ballot = Ballot(round_(9, 3), 4, 6)
    for node in (2, 3, 4, 5):
        ballot.estimate(node, NO_ROUND, b"")
    ballot.estimate(1, round_(8, 1), b"adopted by two at most")
    assert ballot.locked is None


def test_a_ballot_is_decided_by_a_quorum_and_by_all_who_are_needed() -> None:
    ballot = Ballot(round_(1, 1), 2)
    ballot.accept(1)
    ballot.accept(1)
    assert not ballot.decided()
    ballot.accept(2)
    assert ballot.decided()
    assert not ballot.decided(needed=(1, 3))
    ballot.accept(3)
    assert ballot.decided(needed=(1, 3))


@settings(deadline=None)
@given(st.data())
def test_two_quorums_never_decide_differently(data: st.DataObject) -> None:
    """A quorum adopted a value in some round; every later round with any quorum is bound to it."""
    nodes = (1, 2, 3, 4, 5)
    voters = {node: Voter() for node in nodes}
    decided: set[bytes] = set()
    quorums = st.sets(st.sampled_from(nodes), min_size=3, max_size=5)
    for attempt in range(1, data.draw(st.integers(2, 6)) + 1):
        ballot = Ballot(round_(attempt, 1), 3, data.draw(st.sampled_from((0, len(nodes)))))
        for node in sorted(data.draw(quorums)):
            assert voters[node].promise(ballot.round)
            ballot.estimate(node, voters[node].accepted, voters[node].value)
        value = ballot.locked or b"%d" % attempt
        for node in sorted(data.draw(st.sets(st.sampled_from(nodes)))):
            if voters[node].adopt(ballot.round, value):
                ballot.accept(node)
        if ballot.decided():
            decided.add(value)
    assert len(decided) <= 1


# --- coordinating ------------------------------------------------------------------------------------------


def test_a_coordinator_asks_all_for_their_estimates() -> None:
    node = Plain(1)
    effects = node.begins()
    assert one(effects, Collect).round == round_(1, 1)
    assert receivers(effects, Collect) == [None]
    assert sent(effects, Propose) == []


def test_a_promise_is_stored_before_the_coordinator_asks() -> None:
    assert stored_before_sent(Plain(1).begins(), Collect)


def test_its_round_is_later_than_any_it_knows_of() -> None:
    assert one(Plain(1, Voter(promised=round_(4, 3))).begins(), Collect).round == round_(5, 1)
    node = Plain(1)
    node.hears(3, Collect(0, round_(7, 3)))
    assert one(node.begins(), Collect).round == round_(8, 1)


def test_with_a_quorum_of_estimates_it_proposes_what_it_has() -> None:
    node = Plain(1)
    node.begins()
    effects = node.hears(2, estimate(round_(1, 1)))
    assert one(effects, Propose) == Propose(0, round_(1, 1), b"mine")
    assert node.voter.value == b"mine"


def test_what_a_quorum_may_have_adopted_is_proposed_again() -> None:
    node = Plain(1)
    node.begins()
    effects = node.hears(2, estimate(round_(1, 1), Round(1, 0), b"theirs"))
    assert one(effects, Propose).value == b"theirs"


def test_its_own_earlier_vote_counts_like_any_other() -> None:
    node = Plain(1, Voter(round_(3, 3), round_(3, 3), b"before"))
    node.begins()
    assert one(node.hears(2, estimate(round_(4, 1))), Propose).value == b"before"


def test_it_proposes_once() -> None:
    node = Plain(1, quorum=2)
    node.begins()
    node.hears(2, estimate(round_(1, 1)))
    assert sent(node.hears(3, estimate(round_(1, 1), round_(1, 0), b"late")), Propose) == []


def test_it_waits_while_it_cannot_say_what_to_propose() -> None:
    node = Plain(1)
    node.mine = None
    node.begins()
    assert sent(node.hears(2, estimate(round_(1, 1))), Propose) == []
    assert sent(node.again(), Propose) == []
    node.mine = b"now"
    assert one(node.again(), Propose).value == b"now"


def test_with_a_quorum_that_adopted_it_is_decided_and_told_to_all() -> None:
    node = Plain(1)
    node.begins()
    effects = node.hears(2, estimate(round_(1, 1)))
    assert node.decision is None
    effects = node.hears(2, Accepted(0, round_(1, 1)))
    assert one(effects, Decide).value == b"mine"
    assert node.decision == b"mine"
    assert sent(node.hears(3, Accepted(0, round_(1, 1))), Decide) == []


def test_it_does_not_count_itself_before_it_holds_what_it_proposes() -> None:
    """A locked proposal may name what only others have."""
    node = Plain(1)
    node.holds = False
    node.begins()
    node.hears(2, estimate(round_(1, 1)))
    node.hears(2, Accepted(0, round_(1, 1)))
    assert node.decision is None
    assert one(node.hears(3, Accepted(0, round_(1, 1))), Decide)


def test_alone_it_decides_at_once() -> None:
    node = Plain(1, quorum=1)
    effects = node.begins()
    assert one(effects, Decide).value == b"mine"


@pytest.mark.parametrize(
    "packet", [estimate(round_(1, 1)), estimate(round_(2, 1)), Accepted(0, round_(1, 1))], ids=str
)
def test_who_does_not_coordinate_that_round_has_no_use_for_answers(packet: Vote) -> None:
    assert drops(Plain(1).hears(2, packet)) == ["old round"]
    node = Plain(1, Voter(promised=round_(2, 1)))
    node.begins()
    assert drops(node.hears(2, packet)) == ["old round"]


def test_what_has_not_been_proposed_cannot_have_been_adopted() -> None:
    node = Plain(1)
    node.begins()
    assert drops(node.hears(2, Accepted(0, round_(1, 1)))) == ["old round"]


# --- taking part -------------------------------------------------------------------------------------------


def test_a_participant_answers_with_what_it_adopted_last() -> None:
    node = Plain(2, Voter(round_(1, 3), round_(1, 3), b"before"))
    effects = node.hears(1, Collect(0, round_(2, 1)))
    assert one(effects, Estimate) == Estimate(0, round_(2, 1), round_(1, 3), b"before")
    assert receivers(effects, Estimate) == [1]


def test_a_promise_is_stored_before_it_is_given() -> None:
    assert stored_before_sent(Plain(2).hears(1, Collect(0, round_(1, 1))), Estimate)


def test_asked_again_it_answers_again_and_stores_nothing_new() -> None:
    node = Plain(2)
    node.hears(1, Collect(0, round_(1, 1)))
    effects = node.hears(1, Collect(0, round_(1, 1)))
    assert one(effects, Estimate)
    assert not stored_before_sent(effects, Estimate)


def test_a_vote_is_stored_before_it_is_sent() -> None:
    node = Plain(2)
    node.hears(1, Collect(0, round_(1, 1)))
    effects = node.hears(1, Propose(0, round_(1, 1), b"theirs"))
    assert stored_before_sent(effects, Accepted)
    assert receivers(effects, Accepted) == [1]
    assert node.voter.accepted == round_(1, 1)


def test_an_old_round_is_refused() -> None:
    node = Plain(2)
    node.hears(3, Collect(0, round_(5, 3)))
    for packet in (Collect(0, round_(4, 1)), Propose(0, round_(4, 1), b"old")):
        effects = node.hears(1, packet)
        assert drops(effects) == ["old round"]
        assert len(effects) == 1
    assert node.voter.value == b""


def test_a_round_is_its_coordinators_alone() -> None:
    node = Plain(2)
    assert drops(node.hears(3, Collect(0, round_(1, 1)))) == ["old round"]
    assert drops(node.hears(3, Propose(0, round_(1, 1), b"false"))) == ["old round"]


def test_a_round_kept_in_mind_without_a_promise_binds_too() -> None:
    """Who began to coordinate a later round takes part in no earlier one, whatever is on its disk."""
    node = Plain(2)
    node.begins()
    node.voter.promised = NO_ROUND
    assert drops(node.hears(1, Collect(0, round_(1, 1)))) == ["old round"]
    assert drops(node.hears(1, Propose(0, round_(1, 1), b"old"))) == ["old round"]


def test_a_proposal_is_adopted_also_by_who_missed_the_invitation() -> None:
    node = Plain(2)
    assert one(node.hears(1, Propose(0, round_(3, 1), b"theirs")), Accepted).round == round_(3, 1)
    assert node.voter.promised == round_(3, 1)


def test_a_later_round_ends_the_one_a_coordinator_had_begun() -> None:
    node = Plain(1)
    node.begins()
    node.hears(2, Collect(0, round_(2, 2)))
    assert drops(node.hears(3, estimate(round_(1, 1)))) == ["old round"]
    assert node.again() == []


def test_who_adopted_says_so_again_if_it_is_asked_again() -> None:
    node = Plain(2)
    node.hears(1, Propose(0, round_(1, 1), b"theirs"))
    effects = node.hears(1, Propose(0, round_(1, 1), b"theirs"))
    assert one(effects, Accepted)
    assert not stored_before_sent(effects, Accepted)


def test_a_proposal_is_adopted_only_when_all_that_it_names_is_here() -> None:
    node = Plain(2)
    node.holds = False
    assert sent(node.hears(1, Propose(0, round_(1, 1), b"theirs")), Accepted) == []
    assert node.voter.accepted == NO_ROUND
    node.holds = True
    effects: list[Effect] = []
    node.part.adopt(0, effects)
    assert one(effects, Accepted)
    node.part.adopt(0, effects)
    assert len(sent(effects, Accepted)) == 1, "once"


def test_a_proposal_that_was_waited_for_too_long_is_not_adopted() -> None:
    node = Plain(2)
    node.holds = False
    node.hears(1, Propose(0, round_(1, 1), b"theirs"))
    node.voter.promise(round_(2, 3))
    node.holds = True
    effects: list[Effect] = []
    node.part.adopt(0, effects)
    assert effects == []
    assert node.voter.accepted == NO_ROUND


def test_nobody_refuses_or_aborts_in_a_consensus() -> None:
    node = Plain(1)
    assert drops(node.hears(2, Refuse(0, round_(1, 1), round_(2, 2)))) == ["no Reformation"]
    assert drops(node.hears(2, Abort(0, round_(1, 2)))) == ["no Reformation"]


# --- again, and the next coordinator -----------------------------------------------------------------------


def test_what_too_few_have_answered_is_sent_again() -> None:
    node = Plain(1)
    node.begins()
    assert one(node.again(), Collect).round == round_(1, 1)
    node.hears(2, estimate(round_(1, 1)))
    assert one(node.again(), Propose).value == b"mine"
    node.hears(2, Accepted(0, round_(1, 1)))
    assert node.again() == []


def test_who_coordinates_nothing_has_nothing_to_send_again() -> None:
    assert Plain(1).again() == []


@pytest.mark.parametrize(
    ("node", "suspected", "following"),
    [
        (1, (), 2),
        (3, (), 1),
        (1, (2,), 3),
        (0, (), 1),
        (0, (1,), 2),
        (2, (1, 3), 2),
        (2, (1, 2, 3), 3),
    ],
)
def test_coordinators_rotate_past_those_who_are_suspected(
    node: NodeId, suspected: Sequence[NodeId], following: NodeId
) -> None:
    assert after((1, 2, 3), node, suspected) == following
