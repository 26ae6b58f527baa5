"""004 §4.1: an active detector with aggressive timeouts, and a passive one with conservative ones."""

from __future__ import annotations

from typing import Any

import msgspec
from viewsync_node import CONFIG, Notes

from ordercast.viewsync.detector import LATELY, MOST_SPARE, Detector, TrafficDetector

SOON, LATE = CONFIG.aggressive_us, CONFIG.conservative_us


def watching(*nodes: int) -> Detector:
    detector = Detector(CONFIG)
    detector.watch(0, nodes)
    return detector


def test_nobody_is_suspected_who_has_just_been_heard() -> None:
    detector = watching(1, 2)
    assert detector.active(SOON, (1, 2)) == []
    assert detector.passive(LATE) == []


def test_the_active_detector_is_aggressive_and_monitors_only_a_specific_process() -> None:
    detector = watching(1, 2)
    assert detector.active(SOON + 1, (2,)) == [2]
    assert detector.active(SOON + 1, ()) == []
    assert detector.passive(SOON + 1) == []


def test_the_passive_detector_is_conservative_and_suspects_no_matter_whom() -> None:
    detector = watching(1, 2)
    detector.heard(10, 2)
    assert detector.passive(LATE + 1) == [1]
    assert detector.passive(LATE + 11) == [1, 2]


def test_who_is_heard_again_is_not_suspected_any_more() -> None:
    detector = watching(1)
    assert detector.passive(LATE + 1) == [1]
    detector.heard(LATE + 1, 1)
    assert detector.passive(LATE + 1) == []
    assert detector.silent_us(LATE + 5, 1) == 4


def test_who_is_believed_gone_is_suspected_at_once_and_until_it_is_heard() -> None:
    detector = watching(1, 2)
    detector.gone(2)
    assert detector.active(0, (1, 2)) == [2]
    assert detector.passive(0) == [2]
    detector.heard(1, 2)
    assert detector.passive(1) == []


def test_a_new_view_begins_without_suspicions() -> None:
    detector = watching(1, 2)
    detector.gone(2)
    detector.watch(LATE + 1, (2, 3))
    assert detector.passive(LATE + 1) == []
    assert detector.passive(2 * LATE + 2) == [2, 3]


def test_strangers_are_none_of_its_business() -> None:
    detector = watching(1)
    detector.heard(5, 9)
    detector.gone(9)
    assert detector.active(LATE + 1, (9,)) == []
    assert detector.passive(LATE + 1) == [1]
    assert detector.silent_us(LATE, 9) == 0


# --- attempts without an answer, and a token that does not move ------------------------------------


def watching_traffic(**settings: Any) -> tuple[TrafficDetector, Notes]:
    orderer = Notes()
    config = msgspec.structs.replace(CONFIG, **{"detector": "attempts", "attempts": 3, **settings})
    watch = TrafficDetector(config, orderer)
    watch.begin(0)
    return watch, orderer


def test_who_leaves_so_many_attempts_unanswered_is_given_up() -> None:
    """002 §2: "A failure occurs when LTM fails to communicate with another LTM after A attempts"."""
    watch, orderer = watching_traffic()
    orderer.unanswered[2] = 2
    assert not watch.given_up(2)
    orderer.unanswered[2] = 3
    assert watch.given_up(2)
    assert not watch.given_up(3)


def test_an_answer_makes_up_for_all_attempts_before() -> None:
    watch, orderer = watching_traffic()
    orderer.unanswered = {2: 3, 3: 1}
    watch.answered(5, 2)
    assert not watch.given_up(2)
    assert orderer.unanswered == {3: 1}


def test_a_new_view_begins_without_attempts() -> None:
    watch, orderer = watching_traffic()
    orderer.unanswered[2] = 3
    watch.begin(5)
    assert not watch.given_up(2)


def test_a_member_that_needed_several_attempts_gets_more_where_they_adapt() -> None:
    """004 §3.3.1: a dynamic analysis of the network sets how often a process tries."""
    for detector, spare in (("attempts", 0), ("adaptive", 2 * 2)):
        watch, orderer = watching_traffic(detector=detector)
        orderer.unanswered[2] = 2
        watch.answered(5, 2)
        orderer.unanswered[2] = orderer.unanswered[3] = 3 + spare - 1
        assert not watch.given_up(2)
        orderer.unanswered[2] = 3 + spare
        assert watch.given_up(2)
        assert watch.given_up(3) == (spare > 0), "3 has never needed any"


def test_what_was_needed_long_ago_is_forgotten() -> None:
    watch, orderer = watching_traffic(detector="adaptive")
    lately_us = LATELY * LATE
    orderer.unanswered[2] = 2
    watch.answered(1, 2)
    orderer.unanswered[2] = 1
    watch.answered(lately_us + 1, 2)
    orderer.unanswered[2] = 6
    assert not watch.given_up(2), "it was of the time before, at most"
    orderer.unanswered[2] = 1
    watch.answered(2 * lately_us + 2, 2)
    orderer.unanswered[2] = 5
    assert watch.given_up(2), "once was enough for twice as long as is remembered"


def test_nobody_gets_attempts_without_end() -> None:
    watch, orderer = watching_traffic(detector="adaptive")
    orderer.unanswered[2] = 1_000
    watch.answered(5, 2)
    orderer.unanswered[2] = 3 + MOST_SPARE * 3
    assert watch.given_up(2)


def test_a_token_that_is_not_passed_is_an_activity_failure() -> None:
    """004 §3.2.1 c: the absence of a token passing for a time too long, whoever has failed."""
    watch, orderer = watching_traffic()
    limit_us = CONFIG.conservative_us + CONFIG.silence_us
    orderer.activity = 1
    assert not watch.stands_still(10)
    assert not watch.stands_still(10 + limit_us)
    orderer.activity = 2
    assert not watch.stands_still(11 + limit_us)
    assert watch.stands_still(12 + 2 * limit_us)


def test_where_nobody_else_passes_a_token_none_is_missed() -> None:
    watch, orderer = watching_traffic()
    assert not watch.stands_still(10 * LATE)
    assert not watch.watched
    orderer.activity = 1
    assert watch.watched


def test_with_heartbeats_nobody_watches_the_token() -> None:
    watch, orderer = watching_traffic(detector="heartbeats")
    orderer.activity = 1
    assert not watch.stands_still(0)
    assert not watch.stands_still(10 * LATE)
    assert not watch.watched
