"""Detectors of RBP and RMP at a member (004 §3.2.1, §3.3.1): attempts, and a token that does not move."""

from __future__ import annotations

import pytest
from viewsync_node import OURS, Node, member, one

from effects import shifts
from ordercast.core.identity import NodeId
from ordercast.viewsync.packets import Heartbeat, Summary

ALL = (1, 2, 3, 4, 5)


def patient(me: NodeId = 1, *, i_views: bool = False, detector: str = "attempts") -> Node:
    """A member of five that waits for node 5; nobody has been heard for long."""
    node = member(me, ALL, i_views=i_views, detector=detector, attempts=3)
    node.orderer.waiting_for = 5
    node.orderer.activity = 1
    node.timeout("heartbeat")
    node.orderer.activity = 2
    node.now_us = node.config.conservative_us + node.config.silence_us + 1
    assert shifts(node.timeout("heartbeat")) == []
    return node


@pytest.mark.parametrize("detector", ["attempts", "adaptive"])
def test_silence_alone_makes_nobody_suspect(detector: str) -> None:
    node = patient(detector=detector)
    node.orderer.unanswered[5] = 2
    assert shifts(node.timeout("heartbeat")) == []


def test_who_is_waited_for_is_suspected_after_so_many_attempts() -> None:
    node = patient()
    node.orderer.unanswered[4] = 3
    assert shifts(node.timeout("heartbeat")) == [], "nobody waits for 4"
    node.orderer.unanswered[5] = 3
    effects = node.timeout("heartbeat")
    assert shifts(effects) == [("changing", "member waited for suspected")]
    assert one(effects, Summary).full


def test_where_there_are_i_views_the_change_is_a_light_one() -> None:
    node = patient(i_views=True)
    node.orderer.unanswered[5] = 3
    assert not one(node.timeout("heartbeat"), Summary).full


def test_heartbeats_are_no_answer_and_packets_of_the_order_are() -> None:
    node = patient()
    node.orderer.unanswered[5] = 3
    node.hears(5, Heartbeat(OURS, 0, False))
    assert node.orderer.unanswered == {5: 3}
    node.hears_ordered(5)
    assert node.orderer.unanswered == {}
    assert shifts(node.timeout("heartbeat")) == []


def test_with_heartbeats_attempts_are_not_counted_as_failures() -> None:
    node = member(1, ALL)
    node.orderer.waiting_for = 5
    node.orderer.unanswered[5] = 1_000
    assert shifts(node.timeout("heartbeat")) == []


def test_a_token_that_stands_still_leads_to_a_regular_change() -> None:
    node = patient()
    node.now_us += node.config.conservative_us + node.config.silence_us + 1
    effects = node.timeout("heartbeat")
    assert shifts(effects) == [("changing", "no activity")]
    assert one(effects, Summary).full


def test_where_no_token_is_passed_heartbeats_are_watched() -> None:
    """The sequencer of TOTAL hears of no other one."""
    node = member(1, detector="attempts")
    effects = node.timeout("heartbeat", after_us=node.config.conservative_us + 1)
    assert shifts(effects) == [("changing", "member suspected")]


def test_who_is_off_the_tokens_way_is_watched_by_heartbeats() -> None:
    node = patient(i_views=True)
    view = node.machine.life.view
    assert view is not None
    node.machine.life.view = view._replace(core=(1, 2, 3, 4))
    assert shifts(node.timeout("heartbeat")) == [("changing", "member suspected")]


def test_a_new_view_begins_without_attempts() -> None:
    node = patient()
    node.orderer.unanswered[5] = 3
    again = member(1, ALL, detector="attempts")
    assert again.orderer.unanswered == {}
    node.machine.life.entered = True
    node.timeout("heartbeat")
    assert shifts(node.timeout("heartbeat")) == []
