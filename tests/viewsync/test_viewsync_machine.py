"""A member in its view: packets of the view go to the orderer, everything else may end the view (004 §4)."""

from __future__ import annotations

from collections.abc import Sequence

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
    item,
    items,
    member,
    one,
    receivers,
    round_,
    sent,
    span,
    started,
    summary,
)

from effects import drops, shifts, timers
from ordercast.core.contract import Drop, Effect, Packet
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.viewsync.contract import Settled, Unsettled
from ordercast.viewsync.header import FIRST_ORDER_KIND, NO_VIEW
from ordercast.viewsync.leaving import LEAVE_TIMEOUTS
from ordercast.viewsync.membership import STUCK
from ordercast.viewsync.packets import (
    NO_ROUND,
    Abort,
    Accepted,
    Answer,
    Collect,
    Decide,
    Decision,
    Estimate,
    Excluded,
    Fetch,
    Heartbeat,
    Item,
    Join,
    Knock,
    Propose,
    Refuse,
    Summary,
    encode_decision,
)
from ordercast.viewsync.reformation import Reformation
from ordercast.viewsync.stalls import STALLED
from ordercast.viewsync.states import State
from ordercast.viewsync.storage import recall

BEAT = Heartbeat(OURS, 0, False)


def beats(node: Node, *others: NodeId) -> None:
    """These are heard."""
    for other in others:
        node.hears(other, BEAT)


def decides(
    node: Node, made: Decision, sender: NodeId = 1, about: ConfigurationId | None = None
) -> list[Effect]:
    """Somebody tells what was decided."""
    turn = node.machine.life.view.turn if node.machine.life.view is not None else 0
    return node.hears(sender, Decide(turn, encode_decision(made)), view_id=about)


# --- packets of the view -----------------------------------------------------------------------------------


def test_packets_of_the_view_go_to_the_orderer() -> None:
    node = member(2)
    assert node.hears_ordered(3) == []
    assert node.orderer.packets == [(FIRST_ORDER_KIND, 3)]


@pytest.mark.parametrize(
    ("sender", "view_id", "incarnation"),
    [(3, SECOND, 0), (3, NO_VIEW, 0), (3, FIRST, 1), (9, FIRST, 0)],
    ids=["another view", "no view", "another life", "a stranger"],
)
def test_all_others_are_dropped(sender: NodeId, view_id: ConfigurationId, incarnation: int) -> None:
    """004 §3.2.3: messages are tagged by the token list version, to discard those of excluded processes."""
    node = member(2)
    assert node.hears_ordered(sender, view_id, incarnation) == [Drop("other view")]
    assert node.orderer.packets == []


def test_in_no_view_all_are() -> None:
    assert started(2).hears_ordered(3) == [Drop("other view")]


def test_while_the_view_changes_the_orderer_sees_nothing() -> None:
    node = member(2)
    node.is_told_gone(1)
    assert node.hears_ordered(3) == [Drop("view is changing")]
    assert node.timeout("order pass") == []
    assert node.orderer.packets == []
    assert node.orderer.timers == []


def test_timers_of_the_orderer_are_the_orderers() -> None:
    node = member(2)
    node.timeout("order pass")
    assert node.orderer.timers == ["order pass"]


def test_a_timer_that_nobody_set_means_nothing() -> None:
    assert member(2).timeout("whatever") == []


def test_ones_own_packets_of_an_earlier_life_are_not_listened_to() -> None:
    node = member(2, incarnation=1)
    assert drops(node.hears(2, BEAT)) == ["mine, of an earlier life"]


# --- heartbeats and suspicions (§4.1) ----------------------------------------------------------------------


def test_a_member_shows_that_it_lives() -> None:
    node = member(2)
    effects = node.timeout("heartbeat")
    assert one(effects, Heartbeat) == BEAT
    assert timers(effects)["heartbeat"] == node.config.heartbeat_us


def test_also_while_the_view_changes() -> None:
    node = member(2)
    node.is_told_gone(1)
    assert one(node.timeout("heartbeat"), Heartbeat) == BEAT


def test_in_no_view_there_is_nothing_to_show() -> None:
    assert started(2).timeout("heartbeat") == []


def test_who_is_silent_for_the_conservative_timeout_is_suspected() -> None:
    node = member(2)
    node.now_us = node.config.conservative_us
    beats(node, 1)
    assert shifts(node.timeout("heartbeat")) == []
    assert shifts(node.timeout("heartbeat", after_us=1)) == [("changing", "member suspected")]


def test_who_is_waited_for_is_suspected_after_the_aggressive_one() -> None:
    node = member(2)
    node.now_us = node.config.aggressive_us + 1
    assert shifts(node.timeout("heartbeat")) == []
    node.orderer.waiting_for = 3
    assert shifts(node.timeout("heartbeat")) == [("changing", "member waited for suspected")]


def test_an_order_that_does_not_get_on_although_all_live_leads_to_another_view() -> None:
    """Somebody may have told of a place that nobody knows: all wait for it, and all are heard."""
    node = member(2)
    step_us = node.config.aggressive_us // 2
    steps = max(2 * node.config.aggressive_us, 16 * node.config.retry_us) // step_us
    node.orderer.waiting_for = 3
    for node.orderer.progress in (1, 2, 3):
        for _ in range(steps):
            beats(node, 1, 3)
            assert shifts(node.timeout("heartbeat", after_us=step_us)) == []
    told = []
    for _ in range(3):
        beats(node, 1, 3)
        told += shifts(node.timeout("heartbeat", after_us=step_us))
    assert told[:1] == [("changing", "order stalled")]


def test_a_message_that_all_others_pass_by_for_long_is_settled_by_a_change() -> None:
    """Else the order would go on without it until the window is full."""
    node = member(2)
    node.orderer.waiting_for = 3
    told = []
    step_us = node.config.aggressive_us // 2
    for node.orderer.progress in range(3 * 20):
        node.orderer.owed = (7, node.orderer.progress)
        beats(node, 1, 3)
        told += shifts(node.timeout("heartbeat", after_us=step_us))
        if node.orderer.progress * step_us < STALLED * node.config.retry_us:
            assert told == [], "it may only be unlucky"
    assert told[:1] == [("changing", "order stalled")]
    node = member(2)
    node.orderer.waiting_for = 3
    for node.orderer.progress in range(3 * 20):
        node.orderer.owed = (None, node.orderer.progress)
        beats(node, 1, 3)
        assert shifts(node.timeout("heartbeat", after_us=step_us)) == []


def test_the_protocols_own_traffic_is_a_sign_of_life() -> None:
    node = member(2)
    node.orderer.waiting_for = 3
    node.now_us = node.config.aggressive_us
    node.hears_ordered(3)
    assert shifts(node.timeout("heartbeat", after_us=node.config.aggressive_us)) == []


def test_an_earlier_life_is_no_sign_of_the_member() -> None:
    node = Node(2)
    node.starts()
    node.hears(1, Decide(0, encode_decision(decision(lives={3: 2}))), view_id=NO_VIEW)
    node.now_us = node.config.conservative_us + 1
    beats(node, 1)
    node.hears(3, Join(OURS, 0, bound=False), incarnation=1, view_id=NO_VIEW)
    assert shifts(node.timeout("heartbeat")) == [("changing", "member suspected")]


def test_a_member_believed_gone_is_not_waited_for() -> None:
    node = member(2)
    effects = node.is_told_gone(3)
    assert shifts(effects) == [("changing", "member gone")]
    assert one(effects, Summary)


def test_the_end_of_anybody_else_is_no_reason() -> None:
    node = member(2)
    assert node.is_told_gone(9) == []
    assert node.is_told_gone(2) == []
    node.is_told_gone(1)
    assert node.is_told_gone(3) == [], "the view changes already"


def test_a_hint_that_was_wrong_is_forgotten_when_the_member_is_heard() -> None:
    node = started(2)
    assert node.is_told_gone(3) == []
    node = member(2)
    node.is_told_gone(3)
    beats(node, 3)
    assert node.machine.life.suspects(node.now_us, (3,)) == []


# --- a change of view --------------------------------------------------------------------------------------


def test_who_hears_of_a_change_freezes_and_tells_what_it_holds() -> None:
    node = member(2)
    node.orderer.tells = Unsettled(1, 4, items(n2=(2, 3)))
    effects = node.hears(1, summary())
    assert shifts(effects) == [("changing", "others change")]
    assert one(effects, Summary) == summary(span(2, 2, 2), floor=1, upto=4)
    assert timers(effects)["change"] == node.config.change_us
    assert node.orderer.frozen


def test_a_packet_of_the_consensus_begins_it_as_well() -> None:
    node = member(2)
    effects = node.hears(1, Collect(0, round_(1, 1)))
    assert shifts(effects) == [("changing", "others change")]
    assert one(effects, Estimate)
    assert node.machine.stats["rounds"] == 1


def test_what_was_decided_is_delivered_in_the_old_view_and_the_next_one_installed() -> None:
    node = member(2)
    node.orderer.tells = Unsettled(0, 4, items(n2=(1,)))
    node.hears(1, summary(span(2), span(3)))
    effects = decides(node, decision((1, 2), SECOND, upto=6, ranges=[span(2), span(3)]))
    assert receivers(effects, Fetch) == [1]
    assert installs(effects) == []
    effects = node.hears(1, item(3, 1))
    assert shifts(effects) == [("member", "view agreed")]
    assert installs(effects) == [SECOND]
    assert timers(effects)["change"] is None
    view, settled = node.orderer.installed[-1]
    assert view.members == (1, 2)
    assert settled == Settled(6, items(n2=(1,), n3=(1,)))
    assert node.machine.stats["fetched"] == 1


def test_a_member_leads_a_change_to_its_end() -> None:
    node = member(1)
    node.is_told_gone(3)
    effects = node.hears(2, Estimate(0, round_(1, 1), NO_ROUND, b""), summary())
    assert one(effects, Propose).round == round_(1, 1)
    assert recall(1, node.disk).voter.accepted == round_(1, 1)
    effects = node.hears(2, Accepted(0, round_(1, 1)))
    assert one(effects, Decide)
    assert installs(effects) == [SECOND]


def test_a_member_alone_in_a_view_changes_it_alone() -> None:
    node = started(1)
    node.timeout("join", after_us=node.config.found_us)
    effects = node.hears(5, Join(node.machine.life.group, 0, bound=False), view_id=NO_VIEW)
    assert shifts(effects) == [("changing", "somebody joins"), ("member", "view agreed")]
    assert node.orderer.installed[-1][0].members == (1, 5)


def test_a_vote_is_forgotten_with_the_view_it_was_about() -> None:
    node = member(2)
    node.hears(1, Propose(0, round_(7, 1), encode_decision(decision((1, 2), SECOND))))
    assert recall(2, node.disk).voter.promised == round_(7, 1)
    decides(node, decision((1, 2), SECOND))
    stored = recall(2, node.disk)
    assert (stored.voter.promised, stored.voter.accepted) == (NO_ROUND, NO_ROUND)
    assert stored.view is not None
    assert stored.view.id == SECOND


def test_a_change_is_driven_on_by_its_timer() -> None:
    node = member(2)
    node.is_told_gone(1)
    effects = node.timeout("change", after_us=node.config.change_us)
    assert one(effects, Summary)
    assert timers(effects)["change"] == node.config.change_us


def test_when_none_is_on_its_way_the_timer_means_nothing() -> None:
    assert member(2).timeout("change") == []


def test_a_member_that_asked_to_be_let_in_ends_the_view_at_the_next_heartbeat_at_the_latest() -> None:
    node = member(1)
    node.is_told_gone(3)
    node.hears(9, Join(OURS, 0, bound=False), view_id=NO_VIEW)
    decides(node, decision((1, 2), SECOND), sender=2)
    assert node.state is State.CHANGING, "whoever asked is not in it: the next change begins at once"


def test_what_was_decided_and_is_not_to_be_had_ends_this_life() -> None:
    """Who held it is gone: there is no way to go on with the others (§4.4.3)."""
    node = member(2)
    node.now_us = 10
    node.hears(1, summary())
    decides(node, decision((1, 2, 3), SECOND, ranges=[span(3)]))
    assert halts(node.timeout("change")) == []
    assert halts(node.timeout("change", after_us=STUCK * node.config.aggressive_us)) == []
    assert halts(node.timeout("change", after_us=1)) == ["cut off"]


def test_so_does_what_may_have_been_decided() -> None:
    """Later lives could go on without it, but not while somebody needs it that nobody has any more."""
    node = member(1)
    node.now_us = 10
    node.hears(2, summary(), Collect(0, round_(1, 2)))
    node.now_us += node.config.aggressive_us + node.config.round_us
    node.hears(2, summary(later_life=True), incarnation=1)
    node.is_told_gone(3)
    node.timeout("change", after_us=node.config.round_us)
    mine = node.machine.life.change.consensus.round if node.machine.life.change is not None else round_(0, 0)
    assert mine.coordinator == 1
    made = encode_decision(decision((1, 2, 3), SECOND, ranges=[span(3)]))
    node.hears(2, Estimate(0, mine, round_(1, 2), made), incarnation=1)
    assert halts(node.timeout("change")) == []
    assert halts(node.timeout("change", after_us=STUCK * node.config.aggressive_us + 1)) == ["cut off"]


@pytest.mark.parametrize(
    ("join", "reasons"),
    [
        (Join(OURS, FIRST.seq + 7, bound=True), ["cut off"]),
        (Join(OURS, FIRST.seq, bound=True), []),
        (Join(YOUNGER, FIRST.seq + 7, bound=True), ["cut off"]),
        (Join(YOUNGER, FIRST.seq - 1, bound=True), []),
        (Join(OLDER, FIRST.seq - 1, bound=True), ["cut off"]),
        (Join(OLDER, FIRST.seq - 1, bound=False), []),
    ],
    ids=["a later view", "this view", "later elsewhere", "earlier elsewhere", "bound to older", "not bound"],
)
def test_so_do_votes_that_a_majority_has_in_a_later_view_only(join: Join, reasons: list[str]) -> None:
    """They were told of a view that never was, and vote in that: nothing can be decided in this one."""
    node = member(2)
    node.is_told_gone(1)
    ended = []
    step_us = node.config.conservative_us // 4
    for _ in range(4 * STUCK + 2):
        for other in (1, 3):
            node.hears(other, join, view_id=NO_VIEW, incarnation=1)
        if not node.machine.halted:
            ended += halts(node.timeout("change", after_us=step_us))
    assert ended == reasons


def test_one_vote_in_a_later_view_is_missed_by_nobody() -> None:
    node = member(2)
    node.is_told_gone(1)
    for _ in range(4 * STUCK + 2):
        node.hears(1, Join(OURS, FIRST.seq + 7, bound=True), view_id=NO_VIEW, incarnation=1)
        assert halts(node.timeout("change", after_us=node.config.conservative_us // 4)) == []


# --- those who are behind ----------------------------------------------------------------------------------


def settled_into_second(arrived: Sequence[NodeId] = ()) -> Node:
    """Node 2 of three, which went from the first view to the second one, of 1 and 2."""
    node = member(2)
    node.orderer.tells = Unsettled(0, 1, items(n2=(1,)))
    node.hears(1, summary())
    decides(node, decision((1, 2), SECOND, ranges=[span(2)]))
    assert node.state is State.MEMBER
    beats(node, *arrived)
    return node


def test_who_missed_the_decision_is_told() -> None:
    node = settled_into_second()
    effects = node.hears(1, BEAT, view_id=FIRST)
    assert receivers(effects, Decide) == [1]
    assert one(node.hears(1, summary(), view_id=FIRST), Decide)


def test_and_can_fetch_what_was_settled_until_all_have_arrived() -> None:
    node = settled_into_second()
    asked = Fetch(0, (span(2),))
    assert sent(node.hears(1, asked, view_id=FIRST), Item) == [item(2, 1)]
    beats(node, 1)
    assert node.hears(1, asked, view_id=FIRST) == []


def test_who_is_not_a_member_any_more_is_told_by_what_was_decided() -> None:
    node = settled_into_second()
    effects = node.hears(3, BEAT, view_id=FIRST)
    assert receivers(effects, Decide) == [3]


def test_who_is_further_behind_is_told_that_it_is_excluded() -> None:
    node = member(2, id_=ConfigurationId(7, 1))
    effects = node.hears(9, BEAT, view_id=FIRST)
    assert one(effects, Excluded) == Excluded(OURS, 9, 0)
    assert receivers(effects, Excluded) == [9]


def test_a_member_far_behind_is_told_the_last_decision() -> None:
    node = member(2, id_=ConfigurationId(7, 1))
    assert receivers(node.hears(3, BEAT, view_id=FIRST), Decide) == [3]


def test_who_never_was_in_a_view_is_not_excluded_from_one() -> None:
    node = member(2)
    assert drops(node.hears(9, BEAT, view_id=NO_VIEW)) == []
    node.machine.life.last = None
    assert drops(node.hears(9, Collect(0, round_(1, 9)), view_id=FIRST)) == []
    assert drops(node.hears(3, BEAT, view_id=NO_VIEW)) == ["other view"]


def test_who_arrived_is_not_waited_for_again() -> None:
    node = settled_into_second(arrived=(1, 1))
    assert node.machine.life.awaited == set()


def test_who_is_behind_asks_to_be_told() -> None:
    """It hears of a later view than its own, and lets its sender know where it stands."""
    node = member(2)
    effects = node.hears(1, BEAT, view_id=SECOND)
    assert one(effects, Heartbeat) == BEAT
    assert receivers(effects, Heartbeat) == [1]


def test_who_is_ahead_is_not_reminded_of_anything() -> None:
    node = member(2)
    assert drops(node.hears(1, summary(), view_id=SECOND)) == ["other view"]
    assert sent(node.hears(1, summary(turn=1)), Excluded) == []


def test_packets_about_another_view_are_dropped() -> None:
    node = member(2)
    assert drops(node.hears(1, Fetch(0, ()), view_id=SECOND)) == ["other view"]
    assert drops(node.hears(1, item(3, 1))) == ["other view"]
    node.hears(1, summary())
    assert drops(node.hears(1, item(3, 1), view_id=SECOND)) == ["other view"]
    assert drops(decides(node, decision((1, 3), ConfigurationId(9, 1)), about=SECOND)) == ["other view"]


def test_what_is_asked_for_during_a_change_is_answered() -> None:
    node = member(2)
    node.orderer.tells = Unsettled(0, 1, items(n2=(1,)))
    node.hears(1, summary())
    assert sent(node.hears(3, Fetch(0, (span(2),))), Item) == [item(2, 1)]


def test_in_no_view_nobody_can_be_reminded() -> None:
    assert drops(started(2).hears(1, summary(), view_id=FIRST)) == ["other view"]


def test_who_was_let_in_may_be_the_only_one_who_knows_the_next_view() -> None:
    """All who agreed on it are gone, but for this one, which did not hear of it."""
    node = member(2, (1, 2))
    made = decision((1, 2, 3, 4), SECOND)
    assert installs(decides(node, made, sender=5)) == [], "which has nothing to do with it"
    assert installs(decides(node, made, sender=3)) == [SECOND]


def test_who_was_excluded_and_let_in_again_unasked_begins_another_life() -> None:
    """Its Join of long ago came late: the group is two views on, and this life lacks what was settled."""
    node = member(2)
    effects = decides(node, decision((1, 2), ConfigurationId(9, 1)), about=SECOND)
    assert halts(effects) == ["excluded"]
    assert installs(effects) == []


# --- excluded ----------------------------------------------------------------------------------------------


def test_who_finds_itself_excluded_halts() -> None:
    """Fig. 32, line 7: if p_k is in TL, then install TL as the next view, else suicide."""
    node = member(2)
    node.hears(1, summary())
    effects = decides(node, decision((1, 3), SECOND, ranges=[span(3)]))
    assert halts(effects) == ["excluded"]
    assert sent(effects, Fetch) == [], "it needs nothing any more"
    assert installs(effects) == []


def test_it_is_told_also_if_it_slept_through_the_change() -> None:
    assert halts(decides(member(2), decision((1, 3), SECOND))) == ["excluded"]


def test_who_is_told_so_by_a_later_view_halts() -> None:
    node = member(2)
    assert drops(node.hears(1, Excluded(OURS, 2, 0))) == ["not for me"], "of this very view"
    assert drops(node.hears(1, Excluded(OURS, 2, 1), view_id=SECOND)) == ["not for me"]
    assert drops(node.hears(1, Excluded(OURS, 3, 0), view_id=SECOND)) == ["not for me"]
    assert drops(node.hears(1, Excluded(OLDER, 2, 0), view_id=SECOND)) == ["not for me"], "of another group"
    assert halts(node.hears(1, Excluded(OURS, 2, 0), view_id=SECOND)) == ["excluded"]


def test_who_is_in_no_view_cannot_be_excluded() -> None:
    assert drops(started(2).hears(1, Excluded(OURS, 2, 0), view_id=SECOND)) == ["not for me"]


def test_a_deaf_member_is_left_out() -> None:
    """It is heard, so nobody suspects it; but it never answers."""
    node = member(1)
    node.is_told_gone(3)
    node.hears(2, summary(), Estimate(0, round_(1, 1), NO_ROUND, b""))
    beats(node, 3)
    node = member(1)
    node.hears(2, summary())
    node.hears(2, Estimate(0, round_(1, 1), NO_ROUND, b""))
    node.now_us += node.config.aggressive_us + 1
    beats(node, 2, 3)
    effects = node.timeout("change")
    effects += node.hears(2, Accepted(0, round_(1, 1)))
    assert installs(effects) == [SECOND]
    assert node.orderer.installed[-1][0].members == (1, 2)


# --- leaving -----------------------------------------------------------------------------------------------


def test_who_goes_before_it_is_in_a_view_just_goes() -> None:
    assert halts(started(2).stops()) == ["left"]


def test_who_goes_tells_the_others_and_goes_when_they_have_gone_on() -> None:
    node = member(2)
    effects = node.stops()
    assert shifts(effects) == [("changing", "leaving")]
    assert one(effects, Summary).leaving
    effects = decides(node, decision((1, 3), SECOND))
    assert not halts(effects)
    assert one(effects, Decide), "who told it may not have been heard by the others"
    assert halts(node.hears(3, BEAT, view_id=SECOND)) == ["left"], "and node 1 has told it"


def leaving_with(*going_on: NodeId) -> Node:
    """A member that has learnt that it leaves, and who goes on."""
    node = member(2)
    node.stops()
    assert not halts(decides(node, decision(going_on, SECOND)))
    return node


def test_until_they_have_it_tells_them_again() -> None:
    """With who leaves there may be no majority left that could find out what was decided."""
    node = leaving_with(1, 3)
    effects = node.timeout("change")
    assert not halts(effects)
    assert one(effects, Decide) == Decide(0, encode_decision(decision((1, 3), SECOND)))
    beats(node, 1, 3)
    assert not node.machine.halted, "they are in the old view still"


def test_who_tells_the_decision_knows_it() -> None:
    node = leaving_with(1, 3)
    assert halts(decides(node, decision((1, 3), SECOND), sender=3)) == ["left"]


def test_it_does_not_wait_for_who_falls_silent() -> None:
    node = leaving_with(1, 3)
    assert halts(node.timeout("change", after_us=node.config.aggressive_us + 1)) == ["left"]


def test_nor_for_long() -> None:
    node = leaving_with(1, 3)
    for _ in range(LEAVE_TIMEOUTS):
        assert not node.machine.halted
        beats(node, 3)
        effects = node.timeout("change", after_us=node.config.aggressive_us)
    assert halts(effects) == ["left"]


def test_if_nobody_goes_on_it_waits_for_those_who_leave_with_it() -> None:
    node = member(2)
    node.stops()
    nobody = decision((), NO_VIEW)
    assert not halts(decides(node, nobody))
    assert halts(decides(node, nobody, sender=3)) == ["left"]


def test_alone_it_goes_at_once() -> None:
    node = started(1)
    node.timeout("join", after_us=node.config.found_us)
    assert halts(node.stops()) == ["left"]


def test_it_goes_only_when_all_it_accepted_is_delivered() -> None:
    node = member(2)
    node.orderer.idle = False
    assert node.stops() == []
    assert node.machine.room == 0
    assert shifts(node.timeout("heartbeat")) == []
    node.orderer.idle = True
    assert shifts(node.timeout("heartbeat")) == [("changing", "leaving")]


def test_a_change_that_others_began_does_not_take_it_away_too_early() -> None:
    node = member(2)
    node.orderer.idle = False
    node.stops()
    assert not one(node.hears(1, summary()), Summary).leaving


def test_while_the_view_changes_it_waits() -> None:
    node = member(2)
    node.is_told_gone(3)
    assert node.stops() == []


# --- braking -----------------------------------------------------------------------------------------------


def test_who_brakes_tells_the_others_now_and_with_each_heartbeat() -> None:
    node = member(2)
    assert one(node.brakes(), Heartbeat).braking
    assert one(node.timeout("heartbeat"), Heartbeat).braking
    assert node.orderer.closed
    assert not one(node.brakes(on=False), Heartbeat).braking
    assert not node.orderer.closed


def test_while_another_brakes_nothing_new_is_sent() -> None:
    node = member(2)
    node.hears(3, BEAT._replace(braking=True))
    assert node.orderer.closed
    assert node.orderer.proceeded == 1
    assert node.machine.laggard == 3
    node.hears(3, BEAT._replace(braking=True))
    assert node.orderer.proceeded == 1, "nothing has changed"
    node.hears(3, BEAT)
    assert not node.orderer.closed
    assert node.orderer.proceeded == 2


def test_the_brake_of_a_member_that_is_lost_is_forgotten() -> None:
    node = member(2)
    node.hears(3, BEAT._replace(braking=True))
    node.is_told_gone(3)
    decides(node, decision((1, 2), SECOND))
    assert not node.orderer.closed


def test_ones_own_brake_outlasts_the_view() -> None:
    node = member(2)
    node.brakes()
    node.hears(1, summary())
    decides(node, decision((1, 2), SECOND))
    assert node.orderer.closed


def test_a_brake_while_the_view_changes_is_heeded_in_the_next() -> None:
    node = member(2)
    node.is_told_gone(3)
    node.hears(1, BEAT._replace(braking=True))
    assert node.orderer.proceeded == 0
    assert node.orderer.closed


def test_a_brake_in_no_view_is_nobodys_business_yet() -> None:
    node = started(2)
    assert node.brakes() == []
    node.hears(1, Decide(0, encode_decision(decision())), view_id=NO_VIEW)
    assert node.orderer.closed


# --- two groups --------------------------------------------------------------------------------------------


def asked_by(node: Node, sender: NodeId = 9) -> Knock:
    """The question that a heartbeat of an older group makes the node ask."""
    effects = node.hears(sender, Heartbeat(OLDER, 0, False), view_id=ConfigurationId(5, sender))
    assert receivers(effects, Knock) == [sender]
    return one(effects, Knock)


def test_a_member_that_meets_an_older_group_ends_its_life_once_that_answers() -> None:
    """003, "Future Improvements": merge of two groups. Its next life is let in there."""
    node = member(2)
    knock = asked_by(node)
    assert knock.group == OURS
    before = node.disk
    assert halts(node.hears(9, Answer(OLDER, knock.nonce), view_id=NO_VIEW)) == ["older group met"]
    assert node.disk == before, "it gives up nothing before it is let in elsewhere"


def test_what_is_said_of_an_older_group_changes_nothing_by_itself() -> None:
    """Heartbeats may be forged, or of long ago: who sent one has to answer a question that only it got."""
    node = member(2)
    before = node.disk
    knock = asked_by(node)
    assert sent(node.hears(9, Heartbeat(OLDER, 0, False), view_id=ConfigurationId(5, 9)), Knock) == []
    for sender, answer in (
        (9, Answer(OLDER, knock.nonce ^ 1)),
        (8, Answer(OLDER, knock.nonce)),
        (9, Answer(YOUNGER, knock.nonce)),
        (9, Answer(OURS, knock.nonce)),
    ):
        assert drops(node.hears(sender, answer, view_id=NO_VIEW)) == ["nobody asked"]
    assert (node.state, node.disk) == (State.MEMBER, before)
    node.now_us += node.config.heartbeat_us
    assert asked_by(node).nonce != knock.nonce


def test_a_younger_group_is_not_asked() -> None:
    assert member(2).hears(9, Heartbeat(YOUNGER, 0, False), view_id=ConfigurationId(5, 9)) == []


def test_only_a_member_of_an_older_group_that_orders_messages_answers() -> None:
    node = member(2)
    assert one(node.hears(9, Knock(YOUNGER, 7), view_id=NO_VIEW), Answer) == Answer(OURS, 7)
    for group in (OURS, OLDER):
        assert drops(node.hears(9, Knock(group, 7), view_id=NO_VIEW)) == ["not in an older group"]
    node.hears(1, summary())
    assert drops(node.hears(9, Knock(YOUNGER, 7), view_id=NO_VIEW)) == ["not in an older group"]
    assert drops(started(2).hears(9, Knock(YOUNGER, 7), view_id=NO_VIEW)) == ["not in an older group"]


def test_the_next_life_goes_on_in_its_own_group_if_the_older_one_is_gone() -> None:
    node = member(2)
    node.hears(9, Answer(OLDER, asked_by(node).nonce), view_id=NO_VIEW)
    again = node.dies_and_comes_back()
    assert one(again.timeout("join"), Join) == Join(OURS, 1, bound=True)
    again.now_us += again.config.found_us
    assert sent(again.timeout("join"), Summary), "it votes on what follows its view"


def test_the_next_life_is_let_into_the_older_group() -> None:
    node = member(2)
    node.hears(9, Answer(OLDER, asked_by(node).nonce), view_id=NO_VIEW)
    again = node.dies_and_comes_back()
    made = encode_decision(decision((2, 9), ConfigurationId(6, 2), lives={2: 1}, group=OLDER))
    assert installs(again.hears(9, Decide(0, made), view_id=ConfigurationId(5, 9))) == [ConfigurationId(6, 2)]


# --- what is told of a member ------------------------------------------------------------------------------


def test_its_figures_are_the_memberships_and_the_orderers() -> None:
    stats = member(2).machine.stats
    assert stats["views"] == 1
    assert stats["orders"] == 7
    assert member(2).machine.waits == {}


def test_its_role_is_its_place_in_the_token_list() -> None:
    node = member(2)
    assert started(2).machine.role == ""
    assert node.machine.role == "member"
    node.orderer.next_holder = 2
    assert node.machine.role == "next"
    node.orderer.holder = 2
    assert node.machine.role == "sequencer"


def test_the_laggard_is_who_brakes_or_else_who_is_waited_for() -> None:
    node = member(2)
    assert node.machine.laggard is None
    node.orderer.waiting_for = 3
    assert node.machine.laggard == 3
    node.brakes()
    assert node.machine.laggard == 2
    node.is_told_gone(1)
    assert node.machine.laggard is None


def test_nobody_refuses_or_aborts_in_a_consensus() -> None:
    node = member(2)
    assert "no Reformation" in drops(node.hears(1, Refuse(0, round_(1, 2), round_(2, 1))))
    assert "no Reformation" in drops(node.hears(1, Abort(0, round_(1, 1))))


def test_an_originator_is_refused_and_begins_again() -> None:
    """Two members noticed a failure; one of them is first with the others (004 §3.2.3)."""
    node = member(2, procedure=Reformation)
    assert one(node.is_told_gone(1), Collect).round == round_(1, 2)
    effects = node.hears(3, Collect(0, round_(1, 3)))
    assert one(effects, Refuse).joined == round_(1, 2)
    assert shifts(effects) == [("changing", "several originators")]
    assert one(node.hears(3, Refuse(0, round_(1, 2), round_(1, 3))), Abort).round == round_(1, 2)
    assert one(node.hears(3, Collect(0, round_(2, 3))), Estimate).round == round_(2, 3)
    assert drops(node.hears(3, Abort(0, round_(2, 3)))) == []


def test_packets_that_no_member_understands_are_counted() -> None:
    node = member(2)
    assert node.does(Packet(b"garbage", 1)) == [Drop("not ordercast")]
