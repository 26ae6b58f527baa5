"""What the members hold when a view ends (004 §4.3.2): told by name, fetched by who lacks it."""

from __future__ import annotations

from viewsync_node import items, span, stream, summary

from ordercast.viewsync.exchange import MOST_ANSWERED, MOST_FETCHED, Exchange
from ordercast.viewsync.ranges import names


def test_what_is_missing_is_what_is_named_and_not_here() -> None:
    here = Exchange(items(n1=(1, 2)))
    assert here.missing([span(1, 1, 3), span(2)]) == [(stream(1), 3), (stream(2), 1)]
    assert here.missing([span(1, 1, 2)]) == []


def test_it_is_asked_of_those_who_told_that_they_have_it() -> None:
    here = Exchange({})
    here.told(2, summary(span(1, 1, 2)))
    here.told(3, summary(span(1, 2, 2)))
    wanted = here.missing([span(1, 1, 3)])
    assert here.requests(wanted, (2, 3)) == [(2, (span(1, 1, 2),)), (3, (span(1, 3),))]


def test_nobody_is_asked_for_what_it_does_not_have() -> None:
    here = Exchange({})
    here.told(2, summary(span(1)))
    assert here.requests([(stream(1), 2)], (2, 3)) == []


def test_of_who_has_all_anything_is_asked() -> None:
    here = Exchange({})
    assert here.requests([(stream(1), 2)], (2, 3), has_all=3) == [(3, (span(1, 2),))]


def test_nothing_is_asked_for_twice_while_answers_are_on_their_way() -> None:
    here = Exchange({})
    wanted = [(stream(1), 1), (stream(1), 2)]
    assert here.requests(wanted, (3,), has_all=3)
    assert here.requests(wanted, (3,), has_all=3) == []
    assert not here.took(stream(1), 1, b"one")
    assert here.requests(wanted, (3,), has_all=3) == []
    assert here.took(stream(1), 2, b"two")


def test_what_was_asked_for_and_did_not_come_may_be_asked_for_again() -> None:
    here = Exchange({})
    wanted = [(stream(1), 1)]
    assert here.requests(wanted, (3,), has_all=3)
    here.forget_requests()
    assert here.requests(wanted, (3,), has_all=3) == [(3, (span(1),))]


def test_only_so_much_is_asked_for_at_a_time() -> None:
    here = Exchange({})
    wanted = here.missing([span(1, 1, MOST_FETCHED + 5)])
    ((_, asked),) = here.requests(wanted, (3,), has_all=3)
    assert len(list(names(asked))) == MOST_FETCHED


def test_a_request_is_answered_with_what_is_here() -> None:
    here = Exchange(items(n1=(1, 2), n2=(4,)))
    assert here.answer([span(1, 2, 5), span(2, 4), span(3)]) == [
        (stream(1), 2, b"n1/2"),
        (stream(2), 4, b"n2/4"),
    ]


def test_an_answer_is_bounded_in_items_and_in_bytes() -> None:
    many = Exchange({stream(1): dict.fromkeys(range(1, 2 * MOST_FETCHED), b"x")})
    assert len(many.answer([span(1, 1, 2 * MOST_FETCHED)])) == MOST_FETCHED
    large = Exchange({stream(1): dict.fromkeys(range(1, 10), bytes(MOST_ANSWERED // 2 + 1))})
    assert len(large.answer([span(1, 1, 9)])) == 2


def test_what_was_here_first_stays() -> None:
    here = Exchange(items(n1=(1,)))
    here.took(stream(1), 1, b"something else")
    assert here.select([span(1)]) == items(n1=(1,))


def test_what_was_settled_is_selected_by_name() -> None:
    here = Exchange(items(n1=(1, 2, 3)))
    here.told(2, summary(span(2, 7)))
    here.requests([(stream(2), 7)], (2,))
    here.took(stream(2), 7, b"n2/7")
    here.took(stream(2), 8, b"nobody asked for this")
    assert here.missing([span(2, 8)]) == [(stream(2), 8)]
    assert here.select([span(1, 2), span(2, 7)]) == items(n1=(2,), n2=(7,))


def test_a_full_summary_is_not_replaced_by_a_light_one() -> None:
    here = Exchange({})
    full, light = summary(span(1)), summary(full=False, upto=3)
    here.told(2, light)
    assert here.summaries[2] == light
    here.told(2, full)
    here.told(2, light)
    assert here.summaries[2] == full
    assert here.requests([(stream(1), 1)], (2,)) == [(2, (span(1),))]
