"""A life begins in no view: it looks for a group, is let in, or founds one with others who hear of none."""

from __future__ import annotations

import pytest
from viewsync_node import (
    FIRST,
    OLDER,
    OURS,
    SECOND,
    YOUNGER,
    Node,
    decision,
    halts,
    installs,
    member,
    one,
    receivers,
    round_,
    sent,
    started,
    stored_before_sent,
    summary,
)

from effects import drops, shifts, timers
from ordercast.core.contract import Accept, Drop, Persist
from ordercast.core.identity import ConfigurationId
from ordercast.viewsync.contract import NOTHING
from ordercast.viewsync.header import NO_VIEW
from ordercast.viewsync.packets import (
    NO_GROUP,
    NO_ROUND,
    Accepted,
    Collect,
    Decide,
    Estimate,
    Fetch,
    Group,
    Heartbeat,
    Join,
    Propose,
    Summary,
    decode_decision,
    encode_decision,
)
from ordercast.viewsync.states import State
from ordercast.viewsync.storage import recall

BEAT = Heartbeat(OURS, 0, False)


# --- looking for a group -----------------------------------------------------------------------------------


def test_a_life_begins_by_asking_to_be_let_in() -> None:
    node = Node(2)
    effects = node.starts(incarnation=3)
    assert shifts(effects) == [("joining", "started")]
    assert one(effects, Join) == Join(NO_GROUP, 0, bound=False, founds=True)
    assert set(timers(effects)) == {"join"}
    assert node.orderer.incarnation == 3


def test_it_asks_again_and_again() -> None:
    node = started(2)
    effects = node.timeout("join", after_us=node.config.join_us)
    assert one(effects, Join)
    assert set(timers(effects)) == {"join"}


def test_no_two_nodes_ask_in_step() -> None:
    """001 asks for randomization: what fails because all do it at once would fail again."""
    node = Node(2)
    waits = {timers(node.starts(seed=7))["join"]}
    waits |= {timers(node.timeout("join"))["join"] for _ in range(20)}
    longest = node.config.join_us * 5 // 4
    assert len(waits) > 15
    assert all(wait is not None and longest * 3 // 5 <= wait <= longest for wait in waits)


def test_who_is_not_to_found_a_group_says_so_and_waits() -> None:
    node = Node(2, founders=0)
    assert not one(node.starts(), Join).founds
    assert installs(node.timeout("join", after_us=100 * node.config.found_us)) == []
    assert drops(node.hears(1, Collect(0, round_(1, 1)))) == ["no group is being founded here"]


def test_messages_may_be_submitted_and_wait() -> None:
    node = started(2)
    assert node.submits(b"a", b"b") == [Accept(1)]
    assert node.orderer.submitted == [b"a", b"b"]


def test_while_a_group_is_heard_none_is_founded() -> None:
    node = started(2)
    node.now_us = node.config.found_us - 1
    node.hears(1, BEAT, view_id=FIRST)
    assert installs(node.timeout("join", after_us=node.config.found_us - 1)) == []
    assert installs(node.timeout("join", after_us=1)) != []


# --- founding ----------------------------------------------------------------------------------------------


def test_who_hears_of_no_group_founds_one_in_the_end() -> None:
    node = started(2)
    assert node.timeout("join", after_us=node.config.found_us - 1)
    assert node.state is State.JOINING
    effects = node.timeout("join", after_us=1)
    assert shifts(effects) == [("member", "group founded")]
    assert installs(effects) == [ConfigurationId(1, 2)]
    assert node.machine.life.group == Group(node.config.found_us, 2)


def test_one_that_needs_others_waits_for_them() -> None:
    node = started(1, founders=2)
    assert sent(node.timeout("join", after_us=node.config.found_us), Collect) == []
    node.hears(3, Join(NO_GROUP, 0, bound=False, founds=True))
    effects = node.timeout("join", after_us=node.config.join_us)
    assert one(effects, Collect).round == round_(1, 1)
    assert stored_before_sent(effects, Collect)


def founded(node: Node) -> Node:
    """Nodes 1 and 3 found a group; this is node 1."""
    node.now_us = node.config.found_us
    node.hears(3, Join(NO_GROUP, 0, bound=False, founds=True))
    node.timeout("join")
    node.hears(3, Estimate(0, round_(1, 1), NO_ROUND, b""))
    return node


def test_two_agree_on_a_first_view() -> None:
    node = founded(started(1, founders=2))
    effects = node.hears(3, Accepted(0, round_(1, 1)), view_id=NO_VIEW)
    assert shifts(effects) == [("member", "group founded")]
    (view, settled) = node.orderer.installed[0]
    assert view.members == (1, 3)
    assert settled == NOTHING
    made = one(effects, Decide)
    other = started(3, founders=2)
    assert shifts(other.hears(1, made, view_id=NO_VIEW)) == [("member", "let in")]


def test_no_group_is_founded_while_a_later_life_of_another_groups_member_is_heard() -> None:
    """It may be that a majority of that group is on its way back: then that group goes on."""
    node = started(1)
    node.now_us = node.config.found_us - 1
    node.hears(3, Join(OURS, 4, bound=True))
    assert installs(node.timeout("join", after_us=node.config.found_us - 1)) == []
    node.now_us += 1
    assert installs(node.timeout("join", after_us=5 * node.config.join_us)) != []


def test_who_takes_part_in_a_founding_stores_its_vote() -> None:
    node = started(3, founders=2)
    effects = node.hears(1, Collect(0, round_(1, 1)))
    assert stored_before_sent(effects, Estimate)
    made = encode_decision(decision((1, 3)))
    effects = node.hears(1, Propose(0, round_(1, 1), made))
    assert stored_before_sent(effects, Accepted)
    assert recall(3, node.disk).voter.value == made


def test_a_first_view_that_one_is_not_in_is_not_ones_own() -> None:
    """It was proposed before and had to be proposed again; its members will be heard."""
    node = started(1, founders=2)
    node.now_us = node.config.found_us
    node.hears(3, Join(NO_GROUP, 0, bound=False, founds=True), Collect(0, round_(1, 3)))
    node.timeout("join")
    made = encode_decision(decision((2, 3), ConfigurationId(1, 2)))
    node.hears(3, Estimate(0, round_(2, 1), round_(1, 2), made))
    effects = node.hears(3, Accepted(0, round_(2, 1)))
    assert one(effects, Decide).value == made
    assert node.state is State.JOINING
    assert one(node.timeout("join", after_us=node.config.join_us), Join)
    assert drops(node.hears(3, Collect(0, round_(9, 3)))) == ["no group is being founded here"]


def test_a_member_founds_nothing() -> None:
    assert drops(member().hears(5, Collect(0, round_(1, 5)), view_id=NO_VIEW)) == [
        "no group is being founded here"
    ]


# --- being let in ------------------------------------------------------------------------------------------


def test_who_is_in_the_next_view_is_let_in() -> None:
    node = started(4)
    made = encode_decision(decision((1, 2, 4), ConfigurationId(8, 1), upto=5))
    effects = node.hears(1, Decide(0, made), view_id=ConfigurationId(7, 1))
    assert shifts(effects) == [("member", "let in")]
    assert timers(effects)["join"] is None
    (view, settled) = node.orderer.installed[0]
    assert (view.id, settled) == (ConfigurationId(8, 1), NOTHING)
    stored = recall(4, node.disk)
    assert (stored.last, stored.group, stored.view) == (8, OURS, view)


def test_view_and_vote_are_stored_before_the_view_is_shown() -> None:
    node = started(4)
    made = encode_decision(decision((1, 4)))
    effects = node.hears(1, Decide(0, made), view_id=NO_VIEW)
    kinds = [type(effect).__name__ for effect in effects]
    assert kinds.index("Persist") < kinds.index("Install")


def test_another_life_of_this_node_is_not_this_one() -> None:
    node = Node(4)
    node.starts(incarnation=2)
    for life in (1, 3):
        made = encode_decision(decision((1, 4), lives={4: life}))
        node.hears(1, Decide(0, made), view_id=NO_VIEW)
        assert node.orderer.installed == []


def test_a_view_is_entered_once_over_all_lives() -> None:
    again = member(2).dies_and_comes_back()
    made = encode_decision(decision(lives={2: 1}))
    assert installs(again.hears(1, Decide(0, made), view_id=NO_VIEW)) == []


def test_a_member_lets_in_who_asks_for_its_group() -> None:
    node = member(1)
    effects = node.hears(9, Join(OURS, 0, bound=False), view_id=NO_VIEW)
    assert shifts(effects) == [("changing", "somebody joins")]
    assert node.orderer.frozen
    assert one(effects, Summary)


def test_whichever_group_it_was_in_before_or_in_none() -> None:
    for group, bound in ((NO_GROUP, False), (YOUNGER, False), (OLDER, False), (YOUNGER, True)):
        effects = member(1).hears(9, Join(group, 0, bound=bound), view_id=NO_VIEW)
        assert shifts(effects) == [("changing", "somebody joins")]


def test_but_nobody_whose_vote_an_older_group_may_need() -> None:
    effects = member(1).hears(9, Join(OLDER, 0, bound=True), view_id=NO_VIEW)
    assert effects == [Drop("has a vote in an older group")]
    node = member(9, (1, 9)).dies_and_comes_back()
    made = encode_decision(decision((1, 9), SECOND, lives={9: 1}, group=YOUNGER))
    assert node.machine.life.past is not None
    assert installs(node.hears(1, Decide(0, made), view_id=FIRST)) == [], "nor does it go there"


def test_a_vote_that_no_quorum_can_come_of_is_given_up() -> None:
    """Who is in another group votes in this one no more; if too many are, there is nothing to wait for."""
    node = member(9, (1, 5, 9)).dies_and_comes_back()
    made = encode_decision(decision((1, 5, 9), SECOND, lives={9: 1}, group=YOUNGER))
    beat = Heartbeat(YOUNGER, 0, False)
    node.hears(1, beat, view_id=FIRST)
    assert one(node.timeout("join"), Join).bound
    assert installs(node.hears(1, Decide(0, made), view_id=NO_VIEW)) == [], "two of three are a quorum"
    node.hears(5, beat, view_id=FIRST)
    assert not one(node.timeout("join"), Join).bound
    assert installs(node.hears(1, Decide(0, made), view_id=NO_VIEW)) == [SECOND]


def test_but_only_while_the_others_are_heard_there() -> None:
    node = member(9, (1, 5, 9)).dies_and_comes_back()
    for other in (1, 5):
        node.hears(other, Heartbeat(YOUNGER, 0, False), view_id=FIRST)
    node.now_us += node.config.conservative_us + 1
    assert one(node.timeout("join"), Join).bound


def test_the_number_of_a_view_is_above_what_its_members_had_in_other_groups() -> None:
    node = started(1)
    node.timeout("join", after_us=node.config.found_us)
    node.hears(5, Join(Group(10**9, 5), 7, bound=True), view_id=NO_VIEW)
    assert node.orderer.installed[-1][0].id == ConfigurationId(8, 1)


def test_who_asks_while_a_change_is_on_its_way_is_let_in_with_it() -> None:
    node = member(1)
    node.is_told_gone(3)
    effects = node.hears(9, Join(OURS, 0, bound=False), view_id=NO_VIEW)
    assert shifts(effects) == []
    assert 9 in node.machine.life.joiners(node.now_us)


def test_a_member_that_asks_missed_that_it_is_one() -> None:
    node = member(1, (1, 2, 3))
    effects = node.hears(3, Join(OURS, 0, bound=False), view_id=NO_VIEW)
    made = one(effects, Decide)
    assert receivers(effects, Decide) == [3]
    assert decode_decision(made.value).view == FIRST


def test_a_later_life_of_a_member_joins_and_is_told_in_which_view_it_has_a_vote() -> None:
    node = member(1, (1, 2, 3))
    effects = node.hears(3, Join(OURS, 0, bound=False), view_id=NO_VIEW, incarnation=1)
    assert receivers(effects, Decide) == [3]
    assert shifts(effects) == [("changing", "somebody joins")]


def test_an_earlier_life_does_not_join() -> None:
    node = Node(1)
    node.starts()
    node.hears(2, Decide(0, encode_decision(decision(lives={3: 5}))), view_id=NO_VIEW)
    assert drops(node.hears(3, Join(OURS, 0, bound=False), view_id=NO_VIEW, incarnation=4)) == [
        "earlier life"
    ]


def test_not_more_are_remembered_than_may_be_members() -> None:
    node = member(1, (1, 2), max_members=2)
    node.is_told_gone(2)
    for other in (7, 8):
        node.hears(other, Join(OURS, 0, bound=False), view_id=NO_VIEW)
    assert drops(node.hears(9, Join(OURS, 0, bound=False), view_id=NO_VIEW)) == ["too many want to join"]
    assert drops(node.hears(7, Join(OURS, 0, bound=False), view_id=NO_VIEW)) == []


def test_nor_by_who_looks_for_a_group_itself() -> None:
    node = started(1, max_members=2)
    for other in (7, 8, 7):
        assert drops(node.hears(other, Join(NO_GROUP, 0, bound=False))) == []
    assert drops(node.hears(9, Join(NO_GROUP, 0, bound=False))) == ["too many want to join"]
    node.now_us += 6 * node.config.join_us
    assert drops(node.hears(9, Join(NO_GROUP, 0, bound=False))) == [], "the others gave up"


def test_who_has_not_asked_for_long_is_forgotten() -> None:
    node = member(1)
    node.is_told_gone(3)
    node.hears(9, Join(OURS, 0, bound=False), view_id=NO_VIEW)
    node.now_us += 6 * node.config.join_us
    assert node.machine.life.joiners(node.now_us) == {}


def test_the_join_timer_of_a_member_means_nothing() -> None:
    assert member().timeout("join") == []


# --- a later life of a member ------------------------------------------------------------------------------


def test_a_later_life_says_that_it_has_a_vote() -> None:
    again = member(2).dies_and_comes_back()
    effects = again.timeout("join", after_us=again.config.join_us)
    assert one(effects, Join) == Join(OURS, 1, bound=True)
    assert again.machine.life.view is None


def test_it_never_founds_a_group_but_goes_on_with_the_one_it_was_in() -> None:
    again = member(2).dies_and_comes_back()
    effects = again.timeout("join", after_us=again.config.found_us)
    assert one(effects, Summary) == summary(later_life=True)
    assert again.state is State.JOINING


def test_it_keeps_its_vote_and_never_its_messages() -> None:
    node = member(2)
    made = encode_decision(decision((1, 2), ConfigurationId(2, 1)))
    node.hears(1, summary(), Propose(0, round_(1, 1), made))
    again = node.dies_and_comes_back()
    effects = again.hears(3, Collect(0, round_(2, 3)), view_id=FIRST)
    answer = one(effects, Estimate)
    assert (answer.accepted, answer.value) == (round_(1, 1), made)
    assert one(effects, Summary) == summary(later_life=True)


def test_it_takes_part_in_no_round_that_an_earlier_life_had_left_behind() -> None:
    node = member(2)
    node.hears(3, summary(), Collect(0, round_(5, 3)))
    again = node.dies_and_comes_back()
    assert "old round" in drops(again.hears(1, Collect(0, round_(4, 1)), view_id=FIRST))


def test_with_a_majority_of_later_lives_the_group_goes_on() -> None:
    """A group that crashed as a whole goes on when a majority of its nodes is back."""
    again = member(1).dies_and_comes_back()
    assert sent(again.timeout("join", after_us=again.config.found_us), Collect) == [], "nobody is heard"
    again.hears(2, Join(OURS, 1, bound=True), view_id=NO_VIEW, incarnation=1)
    effects = again.timeout("change", after_us=again.config.change_us)
    assert sent(effects, Collect)[0].round == round_(1, 1)
    again.hears(2, summary(later_life=True), Estimate(0, round_(1, 1), NO_ROUND, b""), incarnation=1)
    again.now_us += again.config.aggressive_us + 1
    effects = again.timeout("change")
    made = decode_decision(sent(effects, Propose)[0].value)
    assert [(m.node, m.incarnation) for m in made.members] == [(1, 1), (2, 1)]
    effects = again.hears(2, Accepted(0, round_(1, 1)), incarnation=1)
    assert shifts(effects) == [("member", "let in")]
    assert installs(effects) == [ConfigurationId(2, 1)]


def test_it_is_let_in_by_those_who_went_on_without_it() -> None:
    again = member(2).dies_and_comes_back()
    made = encode_decision(decision((1, 2, 3), ConfigurationId(2, 1), lives={2: 1}))
    assert installs(again.hears(1, Decide(0, made), view_id=FIRST)) == [ConfigurationId(2, 1)]


def test_a_group_that_went_on_is_not_voted_on_any_more() -> None:
    again = member(2).dies_and_comes_back()
    again.timeout("join", after_us=again.config.found_us)
    again.hears(1, BEAT, view_id=ConfigurationId(2, 1))
    assert again.timeout("change") == [], "nothing is being changed"
    assert one(again.timeout("join"), Join).bound


def test_what_it_was_in_itself_is_no_group_to_ask() -> None:
    again = member(2).dies_and_comes_back()
    again.hears(1, BEAT, view_id=FIRST)
    assert sent(again.timeout("join", after_us=again.config.found_us), Summary) != []


def test_if_it_is_not_in_the_next_view_it_has_no_vote_any_more() -> None:
    again = member(2).dies_and_comes_back()
    made = encode_decision(decision((1, 3), ConfigurationId(2, 1)))
    again.hears(1, Decide(0, made), view_id=FIRST)
    assert one(again.timeout("join"), Join) == Join(OURS, 2, bound=False)
    stored = recall(2, again.disk)
    assert (stored.last, stored.view) == (2, None)


def test_it_inherits_the_vote_in_a_view_that_an_earlier_life_was_to_be_in() -> None:
    """The life that was let in died before it knew: no life of this node can have voted in that view."""
    again = member(2).dies_and_comes_back()
    made = encode_decision(decision((1, 2, 3), ConfigurationId(4, 1)))
    effects = again.hears(1, Decide(0, made), view_id=ConfigurationId(3, 1))
    assert any(isinstance(effect, Persist) for effect in effects)
    effects = again.hears(3, Collect(0, round_(1, 3)), view_id=ConfigurationId(4, 1))
    assert one(effects, Estimate).accepted == NO_ROUND
    assert one(again.timeout("join"), Join) == Join(OURS, 4, bound=True)


@pytest.mark.parametrize(
    ("group", "seq", "inherits"), [(OLDER, 4, True), (OLDER, 1, False), (YOUNGER, 4, False)]
)
def test_it_gives_its_vote_up_for_one_in_an_older_group_that_it_never_knew_of(
    group: Group, seq: int, inherits: bool
) -> None:
    """That group let an earlier life in, which never heard of it, and needs the vote to let others in.

    A view whose number is not later than all that it has seen may be one that an earlier life has voted in.
    """
    again = member(2).dies_and_comes_back()
    made = encode_decision(decision((1, 2), ConfigurationId(seq, 1), group=group))
    again.hears(1, Decide(0, made), view_id=ConfigurationId(0, 0))
    asks = one(again.timeout("join"), Join)
    assert (asks.group, asks.last) == ((group, seq) if inherits else (OURS, 1))
    if inherits:
        effects = again.hears(1, Collect(0, round_(1, 1)), view_id=ConfigurationId(seq, 1))
        assert one(effects, Estimate).accepted == NO_ROUND


def test_in_a_younger_group_it_votes_only_once_its_own_is_deserted() -> None:
    again = member(1, (1, 2)).dies_and_comes_back()
    made = encode_decision(decision((1, 2), ConfigurationId(4, 1), group=YOUNGER))
    again.hears(2, Decide(0, made), view_id=NO_VIEW, incarnation=1)
    assert one(again.timeout("join"), Join).group == OURS
    again.hears(2, Join(YOUNGER, 4, bound=True), view_id=NO_VIEW, incarnation=1)
    again.hears(2, Decide(0, made), view_id=NO_VIEW, incarnation=1)
    assert one(again.timeout("join"), Join) == Join(YOUNGER, 4, bound=True)


def test_it_inherits_the_vote_also_at_the_end_of_a_change_it_votes_in() -> None:
    again = member(2).dies_and_comes_back()
    again.hears(3, Collect(0, round_(1, 3)), view_id=FIRST)
    made = encode_decision(decision((2, 3), ConfigurationId(2, 2)))
    again.hears(3, Propose(0, round_(1, 3), made), view_id=FIRST)
    again.hears(3, Decide(0, made), view_id=FIRST)
    past = again.machine.life.past
    assert past is not None
    assert past.id == ConfigurationId(2, 2)


def test_it_inherits_the_vote_in_a_view_that_it_decides_on_itself() -> None:
    """An earlier life had adopted it, so it had to be proposed again; that life is meant by it."""
    node = member(1)
    made = encode_decision(decision((1, 2), ConfigurationId(2, 1)))
    node.hears(2, summary(), Propose(0, round_(1, 2), made))
    again = node.dies_and_comes_back()
    again.hears(2, summary(), view_id=FIRST)
    again.now_us += again.config.aggressive_us
    again.hears(2, summary(), view_id=FIRST)
    mine = sent(again.timeout("change", after_us=again.config.round_us), Collect)[0].round
    again.hears(2, Estimate(0, mine, round_(1, 2), made), view_id=FIRST)
    effects = again.hears(2, Accepted(0, mine), view_id=FIRST)
    assert one(effects, Decide).value == made
    past = again.machine.life.past
    assert past is not None
    assert (past.id, past.incarnations) == (ConfigurationId(2, 1), (0, 0))


def test_a_view_that_only_later_lives_remember_is_handed_down() -> None:
    """Who has a vote in it and does not know is told by another that is in no view."""
    again = member(2, id_=ConfigurationId(5, 1)).dies_and_comes_back()
    effects = again.hears(3, Join(OURS, 4, bound=False), view_id=NO_VIEW, incarnation=1)
    assert receivers(effects, Decide) == [3]
    assert decode_decision(one(effects, Decide).value).view == ConfigurationId(5, 1)
    assert sent(again.hears(3, Join(OURS, 5, bound=True), view_id=NO_VIEW, incarnation=1), Decide) == []
    assert sent(again.hears(9, Join(OURS, 4, bound=False), view_id=NO_VIEW), Decide) == []


def test_a_member_that_missed_a_decision_is_told_by_a_later_life_of_one_that_knew() -> None:
    """It holds what was settled; if all others have crashed, nobody else can tell it that it was decided."""
    one_of_two, two = member(1, (1, 2)), member(2, (1, 2))
    value = encode_decision(decision((1, 2), SECOND, upto=3))
    one_of_two.hears(2, summary(), Decide(0, value))
    two.hears(1, summary())
    later = one_of_two.dies_and_comes_back()
    told = later.hears(2, summary(), view_id=FIRST)
    assert receivers(told, Decide) == [2]
    assert one(told, Decide) == Decide(0, value)
    assert installs(two.hears(1, one(told, Decide), view_id=FIRST, incarnation=1)) == [SECOND]


def test_a_token_list_that_only_a_later_life_remembers_is_handed_down() -> None:
    knows, behind = member(1, (1, 2), i_views=True), member(2, (1, 2), i_views=True)
    value = encode_decision(decision((1, 2), FIRST, core=(1,), turn=1, full=False))
    knows.hears(2, summary(full=False), Decide(0, value))
    assert knows.machine.life.view is not None
    assert knows.machine.life.view.turn == 1
    later = knows.dies_and_comes_back()
    told = later.hears(2, summary(full=False), view_id=FIRST)
    assert one(told, Decide) == Decide(0, value)
    behind.hears(1, one(told, Decide), view_id=FIRST, incarnation=1)
    assert behind.machine.life.view is not None
    assert behind.machine.life.view.turn == 1


def test_a_vote_rests_where_others_have_seen_what_it_was_for() -> None:
    """Else it would ask for ever, and keep the others from founding a group when theirs is over."""
    again = member(2, id_=ConfigurationId(5, 1)).dies_and_comes_back()
    again.hears(3, Join(OURS, 5, bound=False), view_id=NO_VIEW, incarnation=1)
    again.hears(3, Join(Group(5, 4), 6, bound=False), view_id=NO_VIEW, incarnation=1)
    assert one(again.timeout("join"), Join).bound, "of the same view, or of another group"
    again.hears(3, Join(OURS, 6, bound=False), view_id=NO_VIEW, incarnation=1)
    assert one(again.timeout("join"), Join) == Join(OURS, 5, bound=False)
    assert again.machine.joining.founding is None, "the group may go on elsewhere"


def test_a_vote_is_not_given_up_because_somebody_says_that_it_is_moot() -> None:
    """A wrong Join at a moment in which no member is in the view would end the group for good."""
    again = member(2, id_=ConfigurationId(5, 1)).dies_and_comes_back()
    again.hears(3, Join(OURS, 2**31 + 5, bound=False), view_id=NO_VIEW, incarnation=1)
    config = again.machine.config
    told = again.timeout("join", max(config.conservative_us, config.found_us))
    assert one(told, Join) == Join(OURS, 5, bound=True)
    assert one(told, Summary).later_life, "it votes on what follows the view"


def test_who_hears_that_its_group_is_over_is_free_to_found_another() -> None:
    again = member(2, id_=ConfigurationId(5, 1)).dies_and_comes_back()
    again.hears(3, Join(OURS, 5, bound=False, ended=Group(5, 4)), view_id=NO_VIEW, incarnation=1)
    assert again.machine.joining.founding is None, "another group's end is nothing to us"
    again.hears(3, Join(OURS, 5, bound=False, ended=OURS), view_id=NO_VIEW, incarnation=1)
    assert again.machine.joining.founding is not None
    assert one(again.timeout("join"), Join) == Join(OURS, 5, bound=False, ended=OURS, founds=True)


def test_a_node_that_was_never_there_inherits_nothing() -> None:
    node = Node(4)
    node.starts(incarnation=1)
    made = encode_decision(decision((1, 2)))
    assert drops(node.hears(1, Decide(0, made), view_id=NO_VIEW)) == ["other view"]
    assert node.machine.life.past is None


def test_a_later_turn_than_it_knew_of_is_voted_on_afresh() -> None:
    """It voted on no later turn than the one it stored."""
    node = member(2, i_views=True)
    node.hears(1, summary(full=False), Collect(0, round_(3, 1)))
    again = node.dies_and_comes_back()
    effects = again.hears(1, Collect(2, round_(1, 1)), view_id=FIRST)
    assert one(effects, Estimate) == Estimate(2, round_(1, 1), NO_ROUND, b"")


def test_what_a_later_life_is_asked_for_it_does_not_have() -> None:
    again = member(2).dies_and_comes_back()
    again.hears(1, summary(), view_id=FIRST)
    assert sent(again.hears(1, Fetch(0, ()), view_id=FIRST), Decide) == []


@pytest.mark.parametrize("incarnation", [0, 1])
def test_a_summary_of_a_life_that_is_over_is_dropped(incarnation: int) -> None:
    """A member's own life tells what it holds; a later one that it has nothing. Anything else is too old."""
    node = Node(1)
    node.starts()
    node.hears(2, Decide(0, encode_decision(decision(lives={3: 1}))), view_id=NO_VIEW)
    later_life = incarnation == 1
    effects = node.hears(3, summary(later_life=later_life), incarnation=incarnation)
    assert drops(effects) == ["earlier life"]
    assert halts(effects) == []


def test_a_life_that_never_was_leaves_its_vote_to_the_one_that_is_there() -> None:
    """Somebody told the others of a later life of this node than there is."""
    node = Node(2)
    node.starts()
    told = decision(lives={2: 7})
    node.hears(1, Decide(0, encode_decision(told)), view_id=NO_VIEW)
    assert node.machine.life.view is None
    assert node.machine.life.past is not None
    assert node.machine.life.past.id == told.view


def test_who_was_left_out_of_a_view_tells_those_who_are_in_it() -> None:
    """It may be the only one that is left who knows: they crashed before they had heard."""
    out = member(2).dies_and_comes_back()
    made = encode_decision(decision((1, 3), SECOND))
    out.hears(1, Decide(0, made), view_id=FIRST)
    for node in (out, out.dies_and_comes_back()):
        effects = node.hears(3, Join(OURS, FIRST.seq, bound=True), view_id=NO_VIEW, incarnation=1)
        assert one(effects, Decide).value == made
        assert sent(node.hears(3, Join(OURS, SECOND.seq, bound=True), view_id=NO_VIEW), Decide) == []
        assert sent(node.hears(4, Join(OURS, FIRST.seq, bound=True), view_id=NO_VIEW), Decide) == []
    other = member(3).dies_and_comes_back()
    other.hears(2, Join(OURS, SECOND.seq, bound=False), view_id=NO_VIEW, incarnation=1)
    assert not one(other.timeout("join"), Join).bound, "what it had a vote in is known to be over"
    other.hears(2, Decide(0, made), view_id=FIRST, incarnation=1)
    asks = one(other.timeout("join", after_us=other.config.conservative_us), Join)
    assert asks == Join(OURS, SECOND.seq, bound=True)
