"""What survives a node's lives: its view, and its vote on the next one; never its messages."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from viewsync_node import FIRST, OURS, decision, round_, view

from ordercast.viewsync.consensus import Voter
from ordercast.viewsync.packets import NO_GROUP, NO_ROUND, Group, encode_decision
from ordercast.viewsync.storage import Outcome, Stored, decision_of, recall, store, view_of


def voter_of(stored: Stored) -> tuple[object, ...]:
    return (stored.voter.promised, stored.voter.accepted, stored.voter.value)


def test_a_fresh_disk_holds_nothing() -> None:
    stored = recall(1, None)
    assert stored[:3] == (0, NO_GROUP, None)
    assert voter_of(stored) == (NO_ROUND, NO_ROUND, b"")


def test_view_and_vote_are_recalled_as_they_were_stored() -> None:
    voter = Voter(round_(7, 3), round_(5, 2), encode_decision(decision((1, 3))))
    before = Stored(4, OURS, view(lives={2: 6}), voter)
    after = recall(1, store(before))
    assert after[:3] == before[:3]
    assert voter_of(after) == voter_of(before)


def test_how_the_view_was_decided_is_recalled_for_those_who_missed_it() -> None:
    outcomes = (
        Outcome(FIRST, 2, encode_decision(decision())),
        Outcome(FIRST, 3, encode_decision(decision(turn=4, full=False))),
    )
    before = Stored(4, OURS, view(), Voter(round_(1, 1)), False, NO_GROUP, outcomes)
    after = recall(1, store(before))
    assert after.outcomes == outcomes
    assert voter_of(after) == voter_of(before)


def test_who_is_in_no_view_keeps_the_number_of_its_last_one() -> None:
    before = Stored(9, OURS, None, Voter(round_(2, 1)), False, Group(7, 2))
    after = recall(1, store(before))
    assert after._replace(voter=before.voter) == before
    assert after.voter.promised == round_(2, 1)


def test_two_lives_do_not_share_a_vote() -> None:
    assert recall(1, None).voter is not recall(1, None).voter


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"OC",
        b"??" + store(Stored())[2:],
        store(Stored())[:-1],
        store(Stored(1, OURS, view()))[:-3],
        store(Stored(voter=Voter(round_(1, 1), round_(1, 1), b"no decision"))),
    ],
)
def test_a_disk_that_holds_something_else_is_refused_with_what_to_do(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^node 3: the stored state is not one .*; restore the file, or re"):
        recall(3, data)


@settings(deadline=None)
@given(st.binary(max_size=120))
def test_no_disk_raises_anything_else(data: bytes) -> None:
    try:
        recall(3, data)
    except ValueError as error:
        assert "stored state" in str(error)  # noqa: PT017 - it may as well be readable


def test_the_token_list_begins_with_who_holds_the_token_first() -> None:
    assert view_of(decision((1, 2, 3, 4), core=(1, 3, 4), site=3)).core == (3, 4, 1)
    assert view_of(decision((1, 2, 3, 4), core=(1, 3, 4), site=2)).core == (1, 3, 4)


def test_a_view_is_stored_as_a_decision_with_nothing_to_settle() -> None:
    was = view((1, 2, 3), core=(2, 3), turn=4, lives={1: 2})
    made = decision_of(OURS, was)
    assert view_of(made) == was
    assert (made.view, made.upto, made.ranges) == (FIRST, 0, ())


def test_a_view_without_a_token_list_has_nobody_to_begin() -> None:
    assert decision_of(OURS, view((1, 2), core=())).site == 0


@pytest.mark.parametrize("free", [True, False])
def test_whether_a_node_may_found_a_group_survives_its_lives(free: bool) -> None:
    """Who was in a group founds no other, or a cut-off minority of it could become two groups."""
    assert recall(1, store(Stored(7, free=free))).free is free
