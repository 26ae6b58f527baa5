"""A change of view by consensus (004 Figs 29, 30 and 32), and the light one of i-views (Fig. 34)."""

from __future__ import annotations

import pytest
from viewsync_node import (
    CONFIG,
    FIRST,
    OURS,
    SECOND,
    Part,
    decision,
    item,
    items,
    one,
    proposal,
    receivers,
    round_,
    sent,
    span,
    summary,
    view,
)

from ordercast.core.identity import ConfigurationId
from ordercast.viewsync.change import LONGEST_ROUND, Joiner
from ordercast.viewsync.consensus import Voter
from ordercast.viewsync.contract import Settled
from ordercast.viewsync.header import NO_VIEW
from ordercast.viewsync.packets import (
    Accepted,
    Collect,
    Decide,
    Estimate,
    Fetch,
    Item,
    Member,
    Propose,
    Summary,
    decode_decision,
    encode_decision,
)

MINE = round_(1, 1)
"""The round that node 1 coordinates first."""


def coordinator(**more: object) -> Part:
    """Node 1, which coordinates the first round of a change, and in whose round the others take part."""
    part = Part(1, **more)  # type: ignore[arg-type]
    part.begins()
    return part


# --- step 1: send unstable_k to all ------------------------------------------------------------------------


def test_who_begins_tells_all_what_it_holds() -> None:
    part = Part(2, holds=items(n2=(3, 4)), floor=5, upto=7)
    effects = part.begins()
    assert one(effects, Summary) == summary(span(2, 3, 2), floor=5, upto=7)
    assert receivers(effects, Summary) == [None]


def test_what_was_fetched_is_told_of_too() -> None:
    """Who had it first may crash: then the others have to know whom to ask."""
    part = Part(2, holds=items(n2=(3,)))
    part.begins()
    made = decision(id_=SECOND, ranges=[span(1), span(2, 3)])
    part.hears(1, Propose(0, MINE, encode_decision(made)), item(1, 1))
    assert one(part.waits(CONFIG.change_us), Summary).ranges == (span(1), span(2, 3))


def test_a_later_life_has_a_vote_and_nothing_else() -> None:
    assert one(Part(2, later_life=True).begins(), Summary) == summary(later_life=True)


def test_who_wants_to_go_says_so() -> None:
    part = Part(2)
    part.around.goes = True
    assert one(part.begins(), Summary).leaving


def test_it_is_told_again_until_the_change_is_over() -> None:
    part = Part(2, holds=items(n2=(3,)))
    part.begins()
    assert one(part.waits(CONFIG.change_us), Summary) == summary(span(2, 3))


def test_the_first_member_coordinates_first() -> None:
    assert one(Part(1).begins(), Collect).round == MINE
    assert sent(Part(2).begins(), Collect) == []


# --- step 2: wait until received unstable_i from p_i or p_i suspected --------------------------------------


def test_a_coordinator_waits_for_all_who_are_not_suspected() -> None:
    part = coordinator()
    part.answers_to(MINE, 2, 3)
    assert sent(part.is_told({2: summary()}), Propose) == []
    assert proposal(part.is_told({3: summary()})).members == (
        Member(1, 0, True),
        Member(2, 0, True),
        Member(3, 0, True),
    )


def test_who_is_suspected_is_not_waited_for_and_not_in_the_next_view() -> None:
    part = coordinator()
    part.around.suspected = {3}
    part.answers_to(MINE, 2)
    made = proposal(part.is_told({2: summary()}))
    assert [member.node for member in made.members] == [1, 2]
    assert (made.view, made.turn, made.group) == (SECOND, 0, OURS)


def test_those_who_are_waited_for_are_suspected_after_the_aggressive_timeout() -> None:
    part = coordinator()
    part.answers_to(MINE, 2)
    part.around.slow = {3}
    assert [member.node for member in proposal(part.is_told({2: summary()})).members] == [1, 2]


def test_who_lives_and_does_not_answer_is_left_out_in_the_end() -> None:
    """A member that hears nothing is heard, and never suspected; it holds up the others for a while only."""
    part = coordinator()
    part.answers_to(MINE, 2, 3)
    assert sent(part.is_told({2: summary()}), Propose) == []
    part.now_us = CONFIG.aggressive_us + 1
    made = proposal(part.is_told({2: summary()}))
    assert [member.node for member in made.members] == [1, 2]


def test_who_tells_and_never_answers_is_deaf_and_left_out_with_all_it_tells_of() -> None:
    part = coordinator()
    part.answers_to(MINE, 2)
    assert sent(part.is_told({2: summary(), 3: summary(span(3))}), Propose) == []
    assert one(part.waits(CONFIG.change_us), Collect), "its answer may have been lost"
    made = proposal(part.waits(CONFIG.aggressive_us))
    assert [member.node for member in made.members] == [1, 2]
    assert made.ranges == ()


def test_without_a_majority_of_the_view_nothing_is_proposed() -> None:
    part = coordinator(of=view((1, 2, 3, 4, 5)))
    part.around.suspected = {3, 4, 5}
    part.answers_to(MINE, 2, 3)
    assert sent(part.is_told({2: summary()}), Propose) == []


def test_who_joins_anew_is_not_waited_for_as_the_life_it_was() -> None:
    part = coordinator()
    part.around.asking = {3: Joiner(1, 1, 0)}
    part.answers_to(MINE, 2)
    made = proposal(part.is_told({2: summary()}))
    assert made.members == (Member(1, 0, True), Member(2, 0, True), Member(3, 1, True))


# --- step 3: View_k and Msg_k ------------------------------------------------------------------------------


def test_the_messages_are_the_union_of_what_all_hold() -> None:
    part = coordinator(holds=items(n1=(1, 2), n2=(1,)), upto=3)
    part.answers_to(MINE, 2, 3)
    part.is_told({2: summary(span(1, 1, 1), span(2, 1, 1), upto=2)})
    made = proposal(part.is_told({3: summary(upto=5)}))
    assert made.ranges == (span(1, 1, 2), span(2))
    assert made.upto == 5, "the highest place that one of them had reached"


def test_a_coordinator_proposes_only_what_it_holds() -> None:
    part = coordinator()
    part.answers_to(MINE, 2, 3)
    effects = part.is_told({2: summary(span(2, 1, 2)), 3: summary(span(2, 2, 1))})
    assert sent(effects, Propose) == []
    assert receivers(effects, Fetch) == [2]
    assert sent(part.hears(2, item(2, 1)), Propose) == []
    assert proposal(part.hears(2, item(2, 2))).ranges == (span(2, 1, 2),)


def test_what_does_not_come_is_asked_for_again() -> None:
    part = coordinator()
    part.answers_to(MINE, 2, 3)
    part.is_told({2: summary(span(2)), 3: summary()})
    assert one(part.waits(CONFIG.change_us), Fetch).ranges == (span(2),)


def test_who_joins_is_in_the_next_view() -> None:
    part = coordinator()
    part.around.asking = {4: Joiner(2, 0, 0), 9: Joiner(0, 0, 0)}
    part.answers_to(MINE, 2, 3)
    made = proposal(part.is_told({2: summary(), 3: summary()}))
    assert made.members[3:] == (Member(4, 2, True), Member(9, 0, True))


def test_who_leaves_is_not_but_its_messages_are() -> None:
    part = coordinator()
    part.answers_to(MINE, 2, 3)
    part.is_told({2: summary(), 3: summary(span(3), leaving=True)})
    made = proposal(part.hears(3, item(3, 1)))
    assert [member.node for member in made.members] == [1, 2]
    assert made.ranges == (span(3),)


def test_if_all_leave_nobody_is_left() -> None:
    part = Part(1)
    part.around.goes = True
    part.begins()
    part.answers_to(MINE, 2, 3)
    made = proposal(part.is_told({2: summary(leaving=True), 3: summary(leaving=True)}))
    assert (made.members, made.view) == ((), NO_VIEW)


def test_a_later_life_that_votes_joins_by_that() -> None:
    part = coordinator()
    part.answers_to(MINE, 2, 3)
    made = proposal(part.is_told({2: summary(), 3: summary(later_life=True)}, lives={3: 4}))
    assert made.members == (Member(1, 0, True), Member(2, 0, True), Member(3, 4, True))


def test_of_two_later_lives_the_last_one_joins() -> None:
    for asks, votes in ((5, 4), (4, 5), (4, 4)):
        part = coordinator()
        part.around.asking = {3: Joiner(asks, 7, 0)}
        part.answers_to(MINE, 2, 3)
        made = proposal(part.is_told({3: summary(later_life=True), 2: summary()}, lives={3: votes}))
        assert made.members[2] == Member(3, max(asks, votes), True)


def test_what_a_life_told_that_is_over_by_now_is_left_out() -> None:
    part = coordinator()
    part.answers_to(MINE, 2, 3)
    part.around.asking = {3: Joiner(1, 1, 0)}
    made = proposal(part.is_told({2: summary(), 3: summary(span(3))}))
    assert made.members[2] == Member(3, 1, True)
    assert made.ranges == ()


def test_the_number_of_the_next_view_is_higher_than_any_its_members_have_seen() -> None:
    part = coordinator()
    part.around.asking = {4: Joiner(0, 17, 0)}
    part.answers_to(MINE, 2, 3)
    assert proposal(part.is_told({2: summary(), 3: summary()})).view == ConfigurationId(18, 1)


def test_who_lacks_what_the_others_gave_up_cannot_go_on_with_them() -> None:
    """A member that reached less than all others' floor cannot be brought up to date any more."""
    part = coordinator(floor=10, upto=12)
    part.answers_to(MINE, 2, 3)
    made = proposal(part.is_told({2: summary(floor=8, upto=12), 3: summary(floor=9, upto=7)}))
    assert [member.node for member in made.members] == [1, 2]
    assert made.upto == 12


def test_a_view_is_no_larger_than_allowed() -> None:
    part = coordinator()
    part.around.asking = {node: Joiner(0, 0, 0) for node in range(4, CONFIG.max_members + 9)}
    part.answers_to(MINE, 2, 3)
    made = proposal(part.is_told({2: summary(), 3: summary()}))
    assert len(made.members) == CONFIG.max_members


def test_a_full_change_waits_for_full_summaries() -> None:
    part = coordinator()
    part.answers_to(MINE, 2, 3)
    assert sent(part.is_told({2: summary(), 3: summary(full=False)}), Propose) == []
    assert proposal(part.is_told({3: summary()}))


# --- step 4: consensus -------------------------------------------------------------------------------------


def test_an_acceptor_fetches_before_it_adopts() -> None:
    part = Part(2)
    part.begins()
    made = decision(id_=SECOND, ranges=[span(3, 1, 2)])
    effects = part.hears(1, Propose(0, MINE, encode_decision(made)))
    assert one(effects, Fetch).ranges == (span(3, 1, 2),)
    assert receivers(effects, Fetch) == [1], "who proposes holds all that it names"
    assert sent(effects, Accepted) == []
    assert sent(part.hears(1, item(3, 1)), Accepted) == []
    assert one(part.hears(1, item(3, 2)), Accepted).round == MINE


def test_who_holds_it_all_adopts_at_once() -> None:
    part = Part(2, holds=items(n3=(1, 2)))
    part.begins()
    made = decision(id_=SECOND, ranges=[span(3, 1, 2)])
    assert one(part.hears(1, Propose(0, MINE, encode_decision(made))), Accepted)


def test_what_is_fetched_and_lost_is_fetched_again() -> None:
    part = Part(2)
    part.begins()
    made = decision(id_=SECOND, ranges=[span(3)])
    part.hears(1, Propose(0, MINE, encode_decision(made)))
    assert one(part.waits(CONFIG.change_us), Fetch)


def test_who_is_asked_answers_with_what_it_has() -> None:
    part = Part(2, holds=items(n2=(1, 2)))
    part.begins()
    effects = part.hears(3, Fetch(0, (span(2, 2, 3),)))
    assert sent(effects, Item) == [item(2, 2)]
    assert receivers(effects, Item) == [3]


def test_a_coordinator_that_has_to_propose_what_others_hold_asks_them() -> None:
    """It was proposed in an earlier round, by somebody who is gone."""
    made = encode_decision(decision((1, 2), SECOND, ranges=[span(3)]))
    part = coordinator()
    part.is_told({2: summary(), 3: summary(span(3))})
    effects = part.hears(2, Estimate(0, MINE, round_(1, 0), made))
    assert receivers(effects, Fetch) == [3]
    assert sent(effects, Propose) == []
    assert one(part.hears(3, item(3, 1)), Propose).value == made
    assert one(part.hears(2, Accepted(0, MINE)), Decide).value == made


def test_what_too_few_can_have_adopted_need_not_be_proposed_again() -> None:
    """Only one of three did, and the other two say that they did not."""
    made = encode_decision(decision((1, 2), SECOND, ranges=[span(3)]))
    part = coordinator()
    part.is_told({2: summary(), 3: summary()})
    assert sent(part.hears(2, Estimate(0, MINE, round_(1, 0), made)), Propose) == []
    assert one(part.answers_to(MINE, 3), Propose).value != made


def test_what_is_lost_for_good_is_left_out_of_what_is_proposed_again() -> None:
    """A majority adopted it and crashed; all are back, and nobody has what it names."""
    made = encode_decision(decision((1, 2, 3), SECOND, ranges=[span(2), span(3)]))
    part = coordinator()
    part.is_told({2: summary(span(2), later_life=False), 3: summary(later_life=True)})
    part.hears(3, Estimate(0, MINE, round_(1, 0), made))
    part.hears(2, Estimate(0, MINE, round_(1, 0), made))
    proposed = decode_decision(one(part.hears(2, item(2, 1)), Propose).value)
    assert proposed == decision((1, 2, 3), SECOND, ranges=[span(2)])


def test_what_all_who_had_it_have_lost_holds_up_no_later_life() -> None:
    made = encode_decision(decision((1, 2, 3), SECOND, ranges=[span(3)]))
    part = Part(1, later_life=True, voter=Voter(round_(1, 3), round_(1, 3), made))
    part.begins()
    part.is_told({2: summary(later_life=True), 3: summary(later_life=True)})
    effects = part.answers_to(round_(2, 1), 2)
    assert one(effects, Propose).value == made
    assert sent(effects, Fetch) == []
    assert one(part.hears(2, Accepted(0, round_(2, 1))), Decide)


def test_nor_do_those_who_had_it_and_are_gone_for_good() -> None:
    """Of those who are here only later lives are left: nobody needs it."""
    made = encode_decision(decision((1, 2, 3), SECOND, ranges=[span(3)]))
    part = Part(1, later_life=True, voter=Voter(round_(1, 3), round_(1, 3), made))
    part.begins()
    part.is_told({2: summary(later_life=True), 3: summary(span(3))})
    assert sent(part.answers_to(round_(2, 1), 2), Propose) == [], "3 may answer yet"
    part.around.suspected = {3}
    assert one(part.waits(CONFIG.change_us), Propose).value == made


def test_who_lacks_what_may_have_been_decided_knows_it() -> None:
    """What it lacks may come yet; if it does not, its life has to end, so that the others can go on."""
    made = encode_decision(decision((1, 2, 3), SECOND, ranges=[span(3)]))
    part = coordinator()
    part.is_told({2: summary(later_life=True), 3: summary(span(3))})
    assert not part.change.lacking
    assert sent(part.hears(2, Estimate(0, MINE, round_(1, 0), made)), Propose) == []
    assert part.change.lacking
    part.hears(3, item(3, 1))
    assert not part.change.lacking


def test_a_later_life_fetches_for_the_others_while_somebody_has_it() -> None:
    made = encode_decision(decision((1, 2), SECOND, ranges=[span(3)]))
    part = Part(2, later_life=True)
    part.begins()
    part.is_told({1: summary(span(3))})
    assert receivers(part.hears(1, Propose(0, MINE, made)), Fetch) == [1]


# --- rounds ------------------------------------------------------------------------------------------------


def test_a_coordinator_that_is_suspected_is_followed_by_the_next() -> None:
    part = Part(2)
    part.around.slow = {1}
    assert one(part.begins(), Collect).round == round_(1, 2)


def test_who_hears_too_few_does_not_coordinate() -> None:
    """The others would answer it in vain, and wait."""
    part = Part(1)
    part.around.suspected = {2, 3}
    assert sent(part.begins(), Collect) == []
    assert sent(part.waits(CONFIG.change_us), Collect) == []
    part.around.suspected = {3}
    assert sent(part.waits(CONFIG.change_us), Collect)[0].round == MINE


def test_a_coordinator_that_is_slow_is_followed_by_the_next() -> None:
    part = Part(2)
    part.begins()
    given_us = CONFIG.aggressive_us + CONFIG.round_us
    assert sent(part.waits(given_us - 1), Collect) == []
    assert sent(part.waits(1), Collect)[0].round == round_(1, 2)


def test_it_is_given_its_time_anew_when_its_round_is_heard_of() -> None:
    part = Part(2)
    part.begins()
    given_us = CONFIG.aggressive_us + CONFIG.round_us
    part.now_us = given_us - 1
    part.hears(1, Collect(0, MINE))
    assert sent(part.waits(1), Collect) == []


def test_each_round_has_longer_than_the_one_before_up_to_a_bound() -> None:
    part = Part(2, of=view((1, 2)))
    part.begins()
    given = []
    for _ in range(2 * LONGEST_ROUND):
        was = part.change._deadline_us
        part.waits(was - part.now_us)
        given.append(part.change._deadline_us - part.now_us)
    assert given[:3] == [CONFIG.aggressive_us + count * CONFIG.round_us for count in (2, 3, 4)]
    assert given[-1] == CONFIG.aggressive_us + LONGEST_ROUND * CONFIG.round_us


def test_rounds_of_others_do_not_make_it_longer() -> None:
    """Somebody may tell of many that there never were."""
    part = Part(2)
    part.begins()
    for attempt in range(2, 20):
        part.hears(1, Collect(0, round_(attempt, 1)))
    assert part.change._deadline_us == part.now_us + CONFIG.aggressive_us + CONFIG.round_us


def test_what_was_proposed_is_sent_again() -> None:
    part = coordinator()
    part.answers_to(MINE, 2, 3)
    part.is_told({2: summary(), 3: summary()})
    assert one(part.waits(CONFIG.change_us), Propose).round == MINE


def test_once_it_is_decided_nothing_more_is_asked() -> None:
    part = Part(2)
    part.begins()
    part.change.on_decided(b"decided", 1)
    assert part.waits(CONFIG.change_us) == []


# --- steps 5 and 6: the decision, and what is settled ------------------------------------------------------


def test_what_was_decided_is_settled_once_it_is_all_here() -> None:
    part = Part(2, holds=items(n2=(1,)))
    part.begins()
    made = decision(id_=SECOND, upto=9, ranges=[span(2), span(3)])
    part.change.on_decided(encode_decision(made), 1)
    effects = []  # type: ignore[var-annotated]
    assert part.change.settled(made, effects) is None
    assert receivers(effects, Fetch) == [1], "who told of the decision holds what it names"
    part.hears(1, item(3, 1))
    assert part.change.settled(made, []) == Settled(9, items(n2=(1,), n3=(1,)))


def test_a_coordinator_that_decided_without_holding_it_asks_whoever_told() -> None:
    part = coordinator()
    part.is_told({2: summary(), 3: summary(span(3))})
    made = decision(id_=SECOND, ranges=[span(3)])
    effects = []  # type: ignore[var-annotated]
    assert part.change.settled(made, effects) is None
    assert receivers(effects, Fetch) == [3]


def test_a_later_life_has_nothing_to_settle() -> None:
    part = Part(2, later_life=True)
    part.begins()
    assert part.change.settled(decision(id_=SECOND, upto=9, ranges=[span(3)]), []) == Settled(9, {})


# --- the light change of i-views (Fig. 34) -----------------------------------------------------------------


def test_a_light_change_exchanges_no_messages() -> None:
    part = Part(2, holds=items(n2=(1, 2)), upto=6, full=False)
    assert one(part.begins(), Summary) == summary(full=False, upto=6)


def test_its_list_is_of_all_who_sent_ack_and_the_members_stay() -> None:
    part = coordinator(full=False, upto=4, of=view(turn=2))
    part.around.suspected = {3}
    part.answers_to(MINE, 2)
    made = proposal(part.is_told({2: summary(turn=2, full=False, upto=6)}))
    assert made.members == (Member(1, 0, True), Member(2, 0, True), Member(3, 0, False))
    assert (made.full, made.view, made.turn) == (False, FIRST, 3)
    assert (made.upto, made.ranges) == (6, ())
    assert made.site == 2, "who has everything begins"


def test_a_light_change_needs_a_majority_in_the_token_list() -> None:
    """Later lives have a vote, but cannot hold the token."""
    part = coordinator(full=False)
    part.answers_to(MINE, 2, 3)
    told = {2: summary(full=False, later_life=True), 3: summary(full=False, later_life=True)}
    assert sent(part.is_told(told), Propose) == []


def test_a_light_change_becomes_a_full_one_if_anybody_asks_for_it() -> None:
    part = coordinator(full=False, holds=items(n1=(1,)))
    part.answers_to(MINE, 2, 3)
    effects = part.is_told({2: summary(span(2))})
    assert one(effects, Summary) == summary(span(1))
    assert part.change.full
    effects = part.is_told({3: summary()})
    assert one(effects, Fetch).ranges == (span(2),)


@pytest.mark.parametrize("full", [True, False])
def test_a_summary_that_changes_nothing_makes_nothing_new(full: bool) -> None:
    part = Part(2, full=full)
    part.begins()
    assert sent(part.is_told({3: summary(full=full)}), Summary) == []
