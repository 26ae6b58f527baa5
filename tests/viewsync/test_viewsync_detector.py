"""004 §4.1: an active detector with aggressive timeouts, and a passive one with conservative ones."""

from __future__ import annotations

from viewsync_node import CONFIG

from ordercast.viewsync.detector import Detector

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
