"""Intermediate views (004 §4.3.5, §4.4.3 to §4.4.5): who is slow leaves the token list, not the view."""

from __future__ import annotations

from viewsync_node import (
    FIRST,
    OURS,
    SECOND,
    Node,
    decision,
    halts,
    installs,
    member,
    one,
    receivers,
    round_,
    sent,
    summary,
)

from effects import drops, shifts
from ordercast.core.contract import Effect
from ordercast.core.identity import NodeId
from ordercast.viewsync.contract import Settled, Unsettled
from ordercast.viewsync.membership import REMEMBERED_TURNS
from ordercast.viewsync.packets import (
    NO_ROUND,
    Accepted,
    Collect,
    Decide,
    Decision,
    Estimate,
    Heartbeat,
    Propose,
    Summary,
    decode_decision,
    encode_decision,
)
from ordercast.viewsync.states import State
from ordercast.viewsync.storage import recall

ALL = (1, 2, 3, 4, 5)


def slow(me: NodeId = 1) -> Node:
    """A member of five that waits for node 5, which is slow."""
    node = member(me, ALL, i_views=True)
    node.orderer.waiting_for = 5
    node.now_us = node.config.aggressive_us + 1
    for other in ALL[:4]:
        if other != me:
            node.hears(other, Heartbeat(OURS, 0, False))
    return node


def light(*core: NodeId, turn: int = 1, upto: int = 0, members: tuple[NodeId, ...] = ALL) -> Decision:
    return decision(members, FIRST, core=core, turn=turn, full=False, upto=upto)


def turned(node: Node, made: Decision) -> list[Effect]:
    """A token list is decided on."""
    return node.hears(2, Decide(made.turn - 1, encode_decision(made)))


# --- the light change --------------------------------------------------------------------------------------


def test_a_suspicion_of_the_aggressive_detector_begins_a_light_change() -> None:
    effects = slow().timeout("heartbeat")
    assert shifts(effects) == [("changing", "member waited for suspected")]
    assert not one(effects, Summary).full


def test_without_i_views_it_begins_a_full_one() -> None:
    node = member(1, ALL)
    node.orderer.waiting_for = 5
    effects = node.timeout("heartbeat", after_us=node.config.aggressive_us + 1)
    assert one(effects, Summary).full


def test_suspicions_of_the_conservative_one_begin_a_regular_change() -> None:
    """§4.4.5: a regular view is installed when the detector with conservative timeouts suspects a process."""
    node = member(1, ALL, i_views=True)
    effects = node.timeout("heartbeat", after_us=node.config.conservative_us + 1)
    assert one(effects, Summary).full


def test_a_majority_has_to_stay_in_the_token_list() -> None:
    node = slow()
    node.now_us += 2 * node.config.heartbeat_us
    turned(node, light(1, 2, 3))
    node.now_us += node.config.aggressive_us
    node.hears(2, Heartbeat(OURS, 1, False))
    node.orderer.waiting_for = 3
    effects = node.timeout("heartbeat")
    assert one(effects, Summary).full, "without 3, only two of five would be left"


def test_the_application_is_told_nothing_and_the_order_goes_on() -> None:
    node = slow()
    node.orderer.tells = Unsettled(0, 8, {})
    node.timeout("heartbeat")
    effects = turned(node, light(1, 2, 3, 4, upto=9))
    assert shifts(effects) == [("member", "token list agreed")]
    assert installs(effects) == []
    view, settled = node.orderer.installed[-1]
    assert (view.id, view.turn, view.core) == (FIRST, 1, (1, 2, 3, 4))
    assert settled == Settled(9, {})
    assert node.machine.stats["i_views"] == 1


def test_a_token_list_is_agreed_on_among_all_members() -> None:
    node = slow()
    node.timeout("heartbeat")
    for other in (2, 3, 4):
        node.hears(other, summary(full=False), Estimate(0, round_(1, 1), NO_ROUND, b""))
    effects = node.hears(2, Accepted(0, round_(1, 1))) + node.hears(3, Accepted(0, round_(1, 1)))
    made = decode_decision(one(effects, Decide).value)
    assert [member.node for member in made.members if member.core] == [1, 2, 3, 4]
    assert node.state is State.MEMBER


def test_view_and_turn_are_stored() -> None:
    node = slow()
    turned(node, light(1, 2, 3, 4))
    stored = recall(1, node.disk)
    assert stored.view is not None
    assert (stored.view.turn, stored.view.core) == (1, (1, 2, 3, 4))
    assert stored.voter.promised == NO_ROUND


def test_a_light_change_that_others_began_is_joined_as_one() -> None:
    node = member(1, ALL, i_views=True)
    assert not one(node.hears(2, summary(full=False)), Summary).full


def test_and_becomes_a_full_one_with_the_first_who_asks() -> None:
    node = member(1, ALL, i_views=True)
    effects = node.hears(2, summary(full=True))
    assert [told.full for told in sent(effects, Summary)] == [False, True]


# --- externals ---------------------------------------------------------------------------------------------


def external() -> Node:
    """Node 5, which is not in the token list of its view."""
    node = member(5, ALL, i_views=True)
    node.hears(1, Decide(0, encode_decision(light(1, 2, 3, 4))))
    assert node.machine.role == "external"
    return node


def test_an_external_still_receives_and_sends() -> None:
    node = external()
    assert node.hears_ordered(1) == []
    assert node.orderer.packets
    node.submits(b"hello")
    assert node.orderer.submitted == [b"hello"]


def test_an_external_that_is_heard_again_is_taken_back() -> None:
    node = slow()
    turned(node, light(1, 2, 3, 4))
    node.orderer.waiting_for = None
    assert shifts(node.timeout("heartbeat")) == []
    node.hears(5, Heartbeat(OURS, 1, False))
    effects = node.timeout("heartbeat")
    assert shifts(effects) == [("changing", "external returned")]
    assert not one(effects, Summary).full


def test_an_external_does_not_take_itself_back() -> None:
    node = external()
    for other in ALL[:4]:
        node.hears(other, Heartbeat(OURS, 1, False))
    assert shifts(node.timeout("heartbeat")) == []


def test_an_external_suspects_nobody_for_keeping_it_waiting() -> None:
    """It was cut off, and has heard only one of them since: that is no reason to change the view."""
    node = external()
    node.orderer.waiting_for = 4
    node.now_us = node.config.aggressive_us + 1
    node.hears(1, Heartbeat(OURS, 1, False))
    assert shifts(node.timeout("heartbeat")) == []
    node.now_us = node.config.conservative_us + 1
    assert shifts(node.timeout("heartbeat")) == [("changing", "member suspected")]


def test_who_missed_token_lists_is_told_them_one_after_the_other() -> None:
    node = slow()
    first, second = light(1, 2, 3, 4), light(1, 2, 3, turn=2)
    turned(node, first)
    turned(node, second)
    effects = node.hears(5, Heartbeat(OURS, 0, False))
    assert one(effects, Decide) == Decide(0, encode_decision(first))
    assert receivers(effects, Decide) == [5]
    assert one(node.hears(5, Heartbeat(OURS, 1, False)), Decide) == Decide(1, encode_decision(second))


def test_who_is_behind_by_a_turn_asks_to_be_told() -> None:
    node = member(5, ALL, i_views=True)
    effects = node.hears(1, Heartbeat(OURS, 1, False))
    assert one(effects, Heartbeat).turn == 0
    assert receivers(effects, Heartbeat) == [1]


def test_only_so_many_token_lists_are_remembered() -> None:
    node = member(1, ALL, i_views=True)
    for turn in range(1, REMEMBERED_TURNS + 3):
        turned(node, light(1, 2, 3, 4, turn=turn))
    assert len(node.machine.life.turns) == REMEMBERED_TURNS


def test_what_a_view_needed_is_forgotten_with_it() -> None:
    node = slow()
    turned(node, light(1, 2, 3, 4))
    node.hears(2, summary(turn=1))
    node.hears(2, Decide(1, encode_decision(decision((1, 2, 3, 4), SECOND))))
    assert node.machine.life.turns == {}


def test_who_missed_the_last_turn_of_a_view_is_not_in_the_next() -> None:
    """Who is in the next view was asked in the last turn of this one."""
    node = member(5, ALL, i_views=True)
    made = encode_decision(decision((1, 2, 3, 4), SECOND))
    assert halts(node.hears(1, Decide(2, made))) == ["excluded"]


def test_a_token_list_of_a_turn_that_is_yet_to_come_is_not_for_now() -> None:
    node = member(5, ALL, i_views=True)
    assert drops(node.hears(1, Decide(1, encode_decision(light(1, 2, turn=2))))) == ["other view"]


def test_an_external_that_cannot_get_what_it_lacks_leaves_of_its_own_accord() -> None:
    """§4.4.5: a process that knows that it should commit suicide can be fair and execute leave before."""
    node = external()
    node.orderer.tells = Unsettled(2, 3, {})
    node.orderer.cut_off = True
    effects = node.timeout("heartbeat")
    assert halts(effects) == ["cut off"]
    told = one(effects, Summary)
    assert (told.leaving, told.full) == (True, True)


def test_its_leave_begins_a_full_change() -> None:
    node = member(1, ALL, i_views=True)
    effects = node.hears(5, summary(leaving=True))
    assert shifts(effects) == [("changing", "others change")]
    assert one(effects[-3:], Summary).full


# --- later lives and turns ---------------------------------------------------------------------------------


def test_a_later_life_votes_on_a_token_list() -> None:
    again = member(5, ALL, i_views=True).dies_and_comes_back()
    effects = again.hears(1, Collect(0, round_(1, 1)), view_id=FIRST)
    assert one(effects, Estimate)
    value = encode_decision(light(1, 2, 3, 4))
    assert one(again.hears(1, Propose(0, round_(1, 1), value), view_id=FIRST), Accepted)
    again.hears(1, Decide(0, value), view_id=FIRST)
    past = again.machine.life.past
    assert past is not None
    assert past.turn == 1, "its vote in the next turn is the same node's"
