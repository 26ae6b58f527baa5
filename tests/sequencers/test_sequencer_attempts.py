"""Attempts without an answer (002 §2, 004 §3.2.1): whom an orderer has tried, and how often."""

from __future__ import annotations

import pytest
from seat import Seat

from ordercast.sequencers.cm import Cm
from ordercast.sequencers.dtp import Dtp
from ordercast.sequencers.member import RulesClass
from ordercast.sequencers.packets import TOTAL_CUM_SEQ_ACK, encode_numbers
from ordercast.sequencers.pinwheel import Pinwheel
from ordercast.sequencers.primary_backup import PrimaryBackup
from ordercast.sequencers.total import Total


def leaves_unanswered(seat: Seat, timer: str) -> dict[int, int]:
    """What counts after a timer has run out twice: what was sent the first time has had its time then."""
    before = dict(seat.orderer.unanswered)
    seat.expire(timer)
    assert seat.orderer.unanswered == before, "what is sent now has had no time for an answer"
    seat.expire(timer)
    return seat.orderer.unanswered


@pytest.mark.parametrize("kind", [Cm, Pinwheel, Dtp])
def test_a_token_that_is_passed_again_is_an_attempt_to_reach_its_next_holder(kind: RulesClass) -> None:
    seat = Seat(kind, 1)
    seat.submit(b"m")
    following = seat.orderer.holder
    assert following != 1
    assert leaves_unanswered(seat, "order ack") == {following: 1}
    seat.expire("order ack")
    assert seat.orderer.unanswered == {following: 2}


def test_so_is_a_message_without_a_place_to_whoever_holds_the_token() -> None:
    seat = Seat(Cm, 2)
    seat.submit(b"m")
    assert leaves_unanswered(seat, "order msg") == {1: 1}


def test_and_a_request_to_who_was_asked() -> None:
    seat = Seat(Cm, 3)
    seat.ack(1, 1, (2, 1), following=2)
    assert leaves_unanswered(seat, "order req") == {1: 1}, "who gave the place has the message"


def test_what_is_sent_beside_each_other_counts_by_itself() -> None:
    """004 §3.2.1: suspected is whom a process tries to send *a* message for a certain number of times."""
    seat = Seat(Cm, 1)
    seat.submit(b"m")
    following = seat.orderer.holder
    seat.submit(b"n")
    for timer in ("order ack", "order msg"):
        seat.expire(timer)
        seat.expire(timer)
    assert seat.orderer.unanswered == {following: 1}
    seat.expire("order ack")
    assert seat.orderer.unanswered == {following: 2}
    seat.orderer.unanswered.pop(following)  # the membership has heard it
    seat.expire("order ack")
    assert seat.orderer.unanswered == {following: 1}


@pytest.mark.parametrize("kind", [Total, PrimaryBackup])
def test_requests_are_attempts_to_reach_the_sequencer(kind: RulesClass) -> None:
    seat = Seat(kind, 2)
    seat.submit(b"m")
    assert leaves_unanswered(seat, "order request") == {1: 1}


@pytest.mark.parametrize("kind", [Total, PrimaryBackup])
def test_what_all_are_told_again_is_an_attempt_to_reach_who_has_least(kind: RulesClass) -> None:
    seat = Seat(kind, 1, members=2)
    seat.submit(b"m")
    assert leaves_unanswered(seat, "order status") == {2: 1}


def test_nobody_tries_to_reach_itself() -> None:
    seat = Seat(Cm, 1, members=1)
    seat.submit(b"m")
    assert leaves_unanswered(seat, "order msg") == {}


def test_a_token_that_is_passed_on_is_activity() -> None:
    seat = Seat(Cm, 3)
    before = seat.orderer.activity
    assert before is not None
    seat.msg(2, 1)
    assert seat.orderer.activity == before, "anybody may send a message, also while the token is lost"
    seat.null(1, 1, following=2)
    assert seat.orderer.activity != before


def test_what_the_sequencer_says_is_activity_and_what_others_say_is_not() -> None:
    seat = Seat(Total, 3)
    before = seat.orderer.activity
    seat.hear(2, TOTAL_CUM_SEQ_ACK, encode_numbers(b"", 0, 0))
    assert seat.orderer.activity == before
    seat.hear(1, TOTAL_CUM_SEQ_ACK, encode_numbers(b"", 0, 0))
    assert seat.orderer.activity != before
    assert Seat(Total, 1).orderer.activity is None, "the sequencer hears of no other one"


def test_who_is_alone_hears_of_nobody() -> None:
    assert Seat(Cm, 1, members=1).orderer.activity is None
