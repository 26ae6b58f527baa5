"""Who is to be on the next ring (000 §6): the sets of a Gather, and consensus on them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from totem_parts import examples

from ordercast.totem.membership import Gathering, Heard
from ordercast.totem.packets import Join

ME = 1


def gathering(
    proc_set: set[int] = frozenset({1, 2, 3}),  # type: ignore[assignment]
    fail_set: set[int] = frozenset(),  # type: ignore[assignment]
    limit: int = 10,
) -> Gathering:
    made = Gathering(ME, limit)
    made.consider(proc_set)
    made.fail(fail_set)
    return made


def join(sender: int, proc_set: set[int], fail_set: set[int] | None = None) -> Join:
    return Join(sender, 8, tuple(sorted(proc_set)), tuple(sorted(fail_set or ())))


def sets(made: Gathering) -> tuple[set[int], set[int]]:
    return made.proc_set, made.fail_set


# --- Join message received (Fig. 4) -------------------------------------------------------------


def test_a_node_begins_with_itself_and_agrees_with_itself() -> None:
    """000 §6.2.2: a processor that starts first forms a singleton ring."""
    made = Gathering(ME, 10)
    assert (made.proposal, made.agreed) == ((ME,), True)


def test_consensus_is_a_join_with_my_sets_from_every_member_of_the_proposal() -> None:
    """000 §6.2.2: ... from every processor in the difference of those sets."""
    made = gathering({1, 2, 3, 4}, fail_set={4})
    made.begin_round()
    assert not made.agreed
    assert made.hear(join(2, {1, 2, 3, 4}, {4})) is Heard.AGREES
    assert not made.agreed
    assert made.hear(join(3, {1, 2, 3, 4}, {4})) is Heard.AGREES
    assert made.agreed
    assert made.proposal == (1, 2, 3)


def test_a_join_that_knows_less_changes_nothing() -> None:
    """000 Fig. 4: subset of my_proc_set and subset of my_fail_set: return."""
    made = gathering({1, 2, 3}, fail_set={3})
    assert made.hear(join(2, {1, 2})) is Heard.KNOWN
    assert sets(made) == ({1, 2, 3}, {3})
    assert not made.agreed


def test_a_join_of_a_node_regarded_as_failed_is_ignored() -> None:
    """000 Fig. 4: else if q in my_fail_set then return."""
    made = gathering(fail_set={3})
    assert made.hear(join(3, {1, 2, 3, 4, 5})) is Heard.IGNORED
    assert sets(made) == ({1, 2, 3}, {3})


def test_a_join_with_news_is_merged() -> None:
    """000 Fig. 4: merge message.proc_set into my_proc_set ... and message.fail_set into my_fail_set."""
    made = gathering({1, 2})
    assert made.hear(join(2, {2, 3, 4}, {4})) is Heard.NEWS
    assert sets(made) == ({1, 2, 3, 4}, {4})


def test_who_regards_me_as_failed_is_failed_to_me() -> None:
    """000 Fig. 4: if my_id in message.fail_set then add message.sender_id to my_fail_set."""
    made = gathering({1, 2, 3, 4})
    assert made.hear(join(2, {1, 2, 3, 4}, {1, 4})) is Heard.NEWS
    assert sets(made) == ({1, 2, 3, 4}, {2})


def test_a_join_that_would_make_the_ring_too_large_is_ignored() -> None:
    """Everything is bounded: strangers beyond max_members are not let in."""
    made = gathering({1, 2, 3}, limit=4)
    assert made.hear(join(2, {1, 2, 4, 5})) is Heard.IGNORED
    assert sets(made) == ({1, 2, 3}, set())
    assert made.hear(join(2, {1, 2, 4})) is Heard.NEWS
    assert made.proposal == (1, 2, 3, 4)


def test_a_new_round_forgets_who_agreed() -> None:
    """000 Fig. 7, Shift_to_Gather: consensus[r] := false for all r, consensus[my_id] := true."""
    made = gathering({1, 2})
    made.hear(join(2, {1, 2}))
    assert made.agreed
    made.begin_round()
    assert not made.agreed
    made.fail({2})
    assert made.agreed


# --- timeouts and failures ----------------------------------------------------------------------


def test_who_has_not_agreed_when_the_consensus_timeout_expires_is_regarded_as_failed() -> None:
    """000 Fig. 4: for all r such that consensus[r] ≠ true do add r to my_fail_set."""
    made = gathering({1, 2, 3, 4})
    made.hear(join(3, {1, 2, 3, 4}))
    made.fail_silent()
    assert made.proposal == (1, 3)
    assert made.fail_set == {2, 4}


def test_a_node_never_regards_itself_or_a_stranger_as_failed() -> None:
    """000 §6.1: the fail_set is a subset of the proc_set."""
    made = gathering({1, 2})
    made.fail({1, 2, 7})
    assert made.fail_set == {2}


def test_strangers_are_considered_up_to_the_limit_lowest_first() -> None:
    made = gathering({1, 2}, limit=4)
    made.consider({9, 2, 5, 7})
    assert made.proposal == (1, 2, 5, 7)


def test_after_repeated_failures_of_a_membership_its_next_hop_is_given_up() -> None:
    """000 §6.2.2: an additional failure is forced to prevent the repetition of a proposed membership."""
    made = gathering({1, 2, 3})
    made.fail_repeated((1, 2, 3), attempts=3)
    made.fail_repeated((1, 2, 3), attempts=3)
    assert made.fail_set == set()
    made.fail_repeated((1, 2, 3), attempts=3)
    assert made.proposal == (1, 3)


def test_failures_are_counted_for_each_membership() -> None:
    made = gathering({1, 2, 3, 4})
    made.fail_repeated((1, 2, 3), attempts=2)
    made.fail_repeated((1, 2, 4), attempts=2)
    assert made.fail_set == set()


def test_the_last_member_of_a_ring_gives_up_the_first() -> None:
    made = Gathering(3, 10)
    made.consider({1, 2})
    made.fail_repeated((1, 2, 3), attempts=1)
    assert made.proposal == (2, 3)


def test_a_ring_of_one_has_nobody_to_give_up() -> None:
    """000 §6.2.2: in the base case, the membership consists of a single processor identifier."""
    made = gathering({1})
    made.fail_repeated((1,), attempts=1)
    assert made.proposal == (1,)


def test_an_installed_ring_is_where_the_sets_start_again() -> None:
    """000 Fig. 7, Shift_to_Operational: my_proc_set := my_memb, my_fail_set := empty set."""
    made = gathering({1, 2, 3}, fail_set={3})
    made.fail_repeated((1, 2), attempts=2)
    made.settle((1, 2))
    assert sets(made) == ({1, 2}, set())
    made.fail_repeated((1, 2), attempts=2)
    assert made.fail_set == set(), "failed attempts before the ring count no more"


# --- properties ---------------------------------------------------------------------------------

ids = st.integers(1, 6)


@st.composite
def any_join(draw: st.DrawFn) -> Join:
    sender = draw(st.integers(2, 6))
    proc_set = draw(st.sets(ids)) | {sender}
    return join(sender, proc_set, draw(st.sets(st.sampled_from(sorted(proc_set)))) - {sender})


@examples(120)
@given(st.lists(any_join(), max_size=20), st.integers(1, 6))
def test_the_sets_only_grow_within_bounds_and_news_is_what_makes_them_grow(
    joins: list[Join], limit: int
) -> None:
    """000 §6.2.2: it terminates because proc_set and fail_set increase monotonically."""
    made = Gathering(ME, limit)
    for heard in joins:
        before = set(made.proc_set), set(made.fail_set)
        answer = made.hear(heard)
        assert made.proc_set >= before[0]
        assert made.fail_set >= before[1]
        assert (sets(made) != before) == (answer is Heard.NEWS)
        assert made.fail_set <= made.proc_set
        assert ME in made.proposal
        assert len(made.proc_set) <= limit


@examples(60)
@given(data=st.data(), size=st.integers(1, 6))
def test_nodes_that_hear_each_other_reach_consensus_on_the_same_membership(
    data: st.DataObject, size: int
) -> None:
    """000 §4.1, Consensus: all that install a configuration agree on its membership.

    Whatever each has heard of before, and in whatever order the Joins arrive.
    """
    group = {node: Gathering(node, 10) for node in range(1, size + 1)}
    for made in group.values():
        made.consider(data.draw(st.sets(st.integers(1, size))))
    joins = [(sender, receiver) for sender in group for receiver in group if sender != receiver]
    for _ in range(size + 2):
        for sender, receiver in data.draw(st.permutations(joins)):
            told = join(sender, group[sender].proc_set, group[sender].fail_set)
            if group[receiver].hear(told) is Heard.NEWS:
                group[receiver].begin_round()
                group[receiver].hear(told)
    assert all(made.agreed for made in group.values())
    assert {made.proposal for made in group.values()} == {tuple(range(1, size + 1))}


@pytest.mark.parametrize("silent", [2, 3])
def test_the_others_agree_without_a_silent_node(silent: int) -> None:
    """000 §6.2.2: whoever has not sent such a Join is added to my_fail_set, and the others try again."""
    group = {node: Gathering(node, 10) for node in (1, 2, 3, 4) if node != silent}
    for made in group.values():
        made.consider({1, 2, 3, 4})
        for sender in group:
            if sender != made.proposal[0]:
                made.hear(join(sender, {1, 2, 3, 4}))
    for made in group.values():
        made.fail({silent})
        made.begin_round()
    for receiver, made in group.items():
        for sender, other in group.items():
            if sender != receiver:
                assert made.hear(join(sender, other.proc_set, other.fail_set)) is Heard.AGREES
        assert made.agreed
        assert silent not in made.proposal
