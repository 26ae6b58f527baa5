"""Reformation (004 §3.2.3, Figs 22 to 24): originators, slaves, three phases, three tests for a list."""

from __future__ import annotations

from viewsync_node import (
    CONFIG,
    FIRST,
    SECOND,
    Part,
    decision,
    item,
    one,
    proposal,
    receivers,
    round_,
    sent,
    span,
    stored_before_sent,
    summary,
    view,
)

from effects import drops
from ordercast.core.contract import Effect
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.viewsync.consensus import Voter
from ordercast.viewsync.contract import Items
from ordercast.viewsync.packets import (
    Abort,
    Accepted,
    Collect,
    Decide,
    Estimate,
    Fetch,
    Propose,
    Refuse,
    Round,
    Summary,
    encode_decision,
)
from ordercast.viewsync.reformation import Reformation

MINE = round_(1, 1)


def reforming(
    me: NodeId = 1,
    *,
    detected: bool = True,
    holds: Items | None = None,
    floor: int = 0,
    upto: int = 0,
    members: tuple[NodeId, ...] = (1, 2, 3),
    later_life: bool = False,
    voter: Voter | None = None,
) -> Part:
    """A member whose Reformation has begun, because it noticed a failure or because others did."""
    part = Part(
        me,
        of=view(members),
        holds=holds,
        floor=floor,
        upto=upto,
        later_life=later_life,
        voter=voter,
        procedure=Reformation,
    )
    part.begins(detected)
    return part


def joined(part: Part) -> Round:
    assert isinstance(part.change, Reformation)
    return part.change._joined


def new_list(*members: NodeId, ranges: tuple[object, ...] = ()) -> bytes:
    return encode_decision(decision(members, ConfigurationId(2, members[0]), ranges=ranges))  # type: ignore[arg-type]


# --- Phase I -----------------------------------------------------------------------------------------------


def test_who_detects_a_failure_is_the_originator_and_invites_all() -> None:
    part = Part(2, procedure=Reformation)
    effects = part.begins(detected=True)
    assert one(effects, Collect).round == round_(1, 2)
    assert receivers(effects, Collect) == [None]
    assert one(effects, Summary)


def test_who_did_not_detect_it_waits_to_be_invited() -> None:
    part = Part(1, procedure=Reformation)
    assert sent(part.begins(detected=False), Collect) == []


def test_a_slave_that_belongs_to_no_list_votes_yes() -> None:
    part = reforming(2, detected=False)
    effects = part.hears(1, Collect(0, MINE))
    assert one(effects, Estimate).round == MINE
    assert stored_before_sent(effects, Estimate)
    assert joined(part) == MINE


def test_invited_again_it_votes_again() -> None:
    part = reforming(2, detected=False)
    part.hears(1, Collect(0, MINE))
    assert one(part.hears(1, Collect(0, MINE)), Estimate).round == MINE


def test_a_slave_that_belongs_to_another_list_votes_no() -> None:
    part = reforming(2, detected=False)
    part.hears(1, Collect(0, MINE))
    effects = part.hears(3, Collect(0, round_(5, 3)))
    assert one(effects, Refuse) == Refuse(0, round_(5, 3), MINE)
    assert receivers(effects, Refuse) == [3]
    assert joined(part) == MINE
    assert part.around.noted == ["several originators"]


def test_an_originator_belongs_to_its_own_list() -> None:
    part = reforming(1)
    assert one(part.hears(3, Collect(0, round_(5, 3))), Refuse).joined == MINE


def test_sequence_test_a_site_joins_only_a_list_with_a_greater_version() -> None:
    part = reforming(2, detected=False, voter=Voter(promised=round_(4, 3)))
    assert drops(part.hears(1, Collect(0, round_(4, 1)))) == ["old round"]
    assert joined(part) != round_(4, 1)
    assert one(part.hears(1, Collect(0, round_(5, 1))), Estimate)


# --- Phase II ----------------------------------------------------------------------------------------------


def test_the_list_is_announced_when_all_have_answered() -> None:
    part = reforming(1)
    part.is_told({2: summary(), 3: summary()})
    assert sent(part.answers_to(MINE, 2), Propose) == []
    made = proposal(part.answers_to(MINE, 3))
    assert [member.node for member in made.members] == [1, 2, 3]
    assert made.view == SECOND


def test_or_those_who_have_not_are_suspected() -> None:
    part = reforming(1)
    part.around.suspected = {3}
    part.is_told({2: summary()})
    assert [member.node for member in proposal(part.answers_to(MINE, 2)).members] == [1, 2]


def test_majority_test_the_list_must_have_a_majority_of_the_processes() -> None:
    part = reforming(1, members=(1, 2, 3, 4))
    part.around.suspected = {3, 4}
    part.is_told({2: summary()})
    assert sent(part.answers_to(MINE, 2), Propose) == []


def test_resiliency_test_one_site_must_have_all_committed_messages() -> None:
    part = reforming(1, floor=3, upto=3)
    part.is_told({2: summary(floor=5, upto=4), 3: summary(floor=3, upto=4)})
    assert sent(part.answers_to(MINE, 2, 3), Propose) == []
    assert proposal(part.is_told({3: summary(floor=3, upto=5)}))


def test_the_new_token_site_is_who_knows_most_of_the_old_list() -> None:
    part = reforming(1, upto=3)
    part.is_told({2: summary(upto=4), 3: summary(upto=4)})
    assert proposal(part.answers_to(MINE, 2, 3)).site == 2


def test_later_lives_know_nothing_and_are_not_asked() -> None:
    part = reforming(1, later_life=True)
    part.is_told({2: summary(later_life=True), 3: summary(later_life=True)})
    made = proposal(part.answers_to(MINE, 2, 3))
    assert [member.incarnation for member in made.members] == [1, 1, 1]
    assert made.site == 1


def test_a_slave_recovers_all_missing_messages_and_then_votes_yes() -> None:
    part = reforming(2, detected=False)
    part.hears(1, Collect(0, MINE))
    effects = part.hears(1, Propose(0, MINE, new_list(1, 2, 3, ranges=(span(3),))))
    assert one(effects, Fetch).ranges == (span(3),)
    assert sent(effects, Accepted) == []
    effects = part.hears(1, item(3, 1))
    assert one(effects, Accepted).round == MINE
    assert stored_before_sent(effects, Accepted)


def test_a_slave_that_missed_the_invitation_joins_with_the_new_list() -> None:
    part = reforming(2, detected=False)
    assert one(part.hears(1, Propose(0, MINE, new_list(1, 2))), Accepted)
    assert joined(part) == MINE


def test_a_new_list_of_another_originator_is_refused() -> None:
    part = reforming(2, detected=False)
    part.hears(1, Collect(0, MINE))
    effects = part.hears(3, Propose(0, round_(2, 3), new_list(2, 3)))
    assert one(effects, Refuse) == Refuse(0, round_(2, 3), MINE)
    assert sent(effects, Accepted) == []


def test_an_older_list_that_is_announced_late_is_not_joined() -> None:
    part = reforming(2, detected=False, voter=Voter(promised=round_(4, 3)))
    assert drops(part.hears(1, Propose(0, MINE, new_list(1, 2)))) == ["old round"]
    assert joined(part) != MINE


# --- Phase III ---------------------------------------------------------------------------------------------


def announced() -> Part:
    part = reforming(1)
    part.is_told({2: summary(), 3: summary()})
    part.answers_to(MINE, 2, 3)
    return part


def test_the_token_is_passed_when_all_on_the_list_have_voted_yes() -> None:
    part = announced()
    assert sent(part.hears(2, Accepted(0, MINE)), Decide) == [], "a majority is not all"
    assert one(part.hears(3, Accepted(0, MINE)), Decide)


def test_a_list_that_may_have_been_committed_to_is_announced_again() -> None:
    """The paper leaves open what becomes of it when its originator dies."""
    before = new_list(2, 3)
    part = reforming(1)
    part.is_told({2: summary(), 3: summary()})
    effects = part.hears(2, Estimate(0, MINE, round_(1, 0), before))
    assert one(effects, Propose).value == before


def test_a_list_that_was_announced_before_stands_with_a_majority() -> None:
    """Who had what belongs to it may be gone, and with it the vote of who lacks it."""
    before = new_list(1, 2, 3)
    part = reforming(1)
    part.is_told({2: summary(), 3: summary()})
    part.hears(2, Estimate(0, MINE, round_(1, 0), before))
    assert one(part.hears(2, Accepted(0, MINE)), Decide).value == before


# --- abort, wait and restart -------------------------------------------------------------------------------


def restarted(part: Part) -> list[Effect]:
    """What the member does once it has waited."""
    assert isinstance(part.change, Reformation)
    return part.waits(part.change._restart_us - part.now_us)


def test_a_no_aborts_the_reformation() -> None:
    part = announced()
    effects = part.hears(2, Refuse(0, MINE, round_(4, 3)))
    assert one(effects, Abort).round == MINE
    assert receivers(effects, Abort) == [None]


def test_it_begins_again_with_a_later_version_than_the_one_it_lost_to() -> None:
    part = announced()
    part.hears(2, Refuse(0, MINE, round_(4, 3)))
    assert sent(part.waits(CONFIG.change_us), Collect) == []
    assert sent(restarted(part), Collect)[0].round == round_(5, 1)


def test_a_no_to_something_else_changes_nothing() -> None:
    part = announced()
    assert drops(part.hears(2, Refuse(0, round_(7, 1), round_(8, 3)))) == ["old round"]
    part.hears(2, Accepted(0, MINE))
    part.hears(3, Accepted(0, MINE))
    assert drops(part.hears(2, Refuse(0, MINE, round_(8, 3)))) == ["old round"]
    assert drops(reforming(2, detected=False).hears(1, Refuse(0, MINE, round_(8, 3)))) == ["old round"]


def test_a_slave_that_hears_abort_leaves_the_list() -> None:
    part = reforming(2, detected=False)
    part.hears(1, Propose(0, MINE, new_list(1, 2, 3, ranges=(span(3),))))
    part.hears(1, Abort(0, MINE))
    assert one(part.hears(3, Collect(0, round_(2, 3))), Estimate), "it may join another"
    assert sent(part.hears(1, item(3, 1)), Accepted) == [], "what was aborted is not voted for"


def test_an_abort_of_another_list_or_by_somebody_else_is_ignored() -> None:
    part = reforming(2, detected=False)
    part.hears(1, Collect(0, MINE))
    assert drops(part.hears(3, Abort(0, MINE))) == ["old round"]
    assert drops(part.hears(3, Abort(0, round_(1, 3)))) == ["old round"]
    assert joined(part) == MINE


def test_an_originator_that_gets_no_answer_in_time_aborts() -> None:
    part = announced()
    effects = part.waits(part.change._deadline_us)
    assert one(effects, Abort).round == MINE


def test_a_slave_leaves_a_list_whose_originator_is_silent() -> None:
    part = reforming(2, detected=False)
    part.hears(1, Collect(0, MINE))
    assert sent(part.waits(CONFIG.change_us), Collect) == []
    assert joined(part) == MINE
    part.waits(part.change._deadline_us - part.now_us)
    assert joined(part) != MINE
    assert sent(restarted(part), Collect)[0].round == round_(2, 2)


def test_a_slave_leaves_a_list_whose_originator_is_suspected() -> None:
    part = reforming(2, detected=False)
    part.hears(1, Collect(0, MINE))
    part.around.slow = {1}
    part.waits(CONFIG.change_us)
    assert joined(part) != MINE


def test_who_was_never_invited_becomes_an_originator() -> None:
    part = reforming(2, detected=False)
    assert sent(part.waits(CONFIG.change_us), Collect) == []
    assert sent(restarted(part), Collect)[0].round == round_(1, 2)


def test_but_not_if_it_hears_too_few() -> None:
    part = reforming(2, detected=False)
    part.around.suspected = {1, 3}
    assert sent(restarted(part), Collect) == []


def test_with_each_version_another_member_waits_least() -> None:
    """The one that always did may be one that cannot lead: it has to fetch what nobody gives it."""
    first = []
    for attempt in (1, 2, 3):
        waits = {}
        for me in (1, 2, 3):
            change = reforming(me, detected=False, voter=Voter(round_(attempt, 1))).change
            assert isinstance(change, Reformation)
            waits[me] = change._restart_us
        first.append(min(waits, key=waits.__getitem__))
    assert sorted(first) == [1, 2, 3]


def test_no_two_members_wait_equally_long() -> None:
    waits = set()
    for node in (1, 2, 3):
        change = reforming(node, detected=False).change
        assert isinstance(change, Reformation)
        waits.add(change._restart_us)
    assert len(waits) == 3


def test_a_reformation_is_of_the_whole_view() -> None:
    """What follows it is a view, not only another token list."""
    part = announced()
    made = proposal(part.waits(CONFIG.change_us))
    assert made.full
    assert made.view != FIRST
