"""The attempts of TRMP's schedule (004 §3.3.2): which of its requests count against the holder (002 §2)."""

from __future__ import annotations

from seat import Seat, view_of

from ordercast.core.contract import SetTimer
from ordercast.core.identity import ConfigurationId
from ordercast.sequencers.config import TrmpConfig
from ordercast.sequencers.moving import PASS
from ordercast.sequencers.trmp import LATE, Trmp

MOST = 20_000
SETTINGS = TrmpConfig(retry_us=MOST, hurry_us=1_000, lateness_us=2_000)


def attempts(seat: Seat, holder: int, lasting_us: int) -> list[int]:
    """When attempts were counted, from the first time on that the ACK was late."""
    counted, now_us = [], 0
    while now_us <= lasting_us:
        before = seat.orderer.unanswered.get(holder, 0)
        seat.expire(LATE)
        if seat.orderer.unanswered.get(holder, 0) > before:
            counted.append(now_us)
        now_us += next(e.delay_us for e in seat.effects if isinstance(e, SetTimer) and e.name == LATE)
    return counted


def test_a_late_acknowledgement_is_asked_for_sooner_than_it_counts_as_another_attempt() -> None:
    for me in (2, 3):
        seat = Seat(Trmp, me, config=SETTINGS)
        seat.expire(LATE)
        assert seat.expire(LATE), "it is asked for again"
        assert seat.orderer.unanswered == {}, "the holder has not had the time to answer"


def test_attempts_are_as_far_apart_as_those_of_the_family() -> None:
    first, second, third, *_ = attempts(Seat(Trmp, 2, config=SETTINGS), 1, 20 * MOST)
    assert first >= MOST
    assert second - first >= 2 * MOST
    assert third - second >= 4 * MOST


def test_who_is_late_in_another_turn_is_tried_anew() -> None:
    seat = Seat(Trmp, 3, config=SETTINGS)
    assert attempts(seat, 1, 2 * MOST)
    assert seat.orderer.unanswered == {1: 1}
    seat.null(1, 1, following=2)
    seat.expire(LATE)
    assert seat.orderer.unanswered == {1: 1}
    assert attempts(seat, 2, 2 * MOST)
    assert seat.orderer.unanswered == {1: 1, 2: 1}


def test_nobody_is_late_in_the_next_view() -> None:
    seat = Seat(Trmp, 1, config=SETTINGS)
    seat.submit(b"m")
    seat.expire(PASS)
    seat.expire(LATE)
    assert seat.orderer.waiting_for == 2
    seat.install(view_of(1)._replace(id=ConfigurationId(2, 1)))
    assert seat.orderer.waiting_for is None, "and who is alone waits for nobody"
