"""What is promised to nodes that follow the order of views that they are no members of (004 §3.3.2)."""

from __future__ import annotations

from view_story import ViewStory

from ordercast.audit.properties import FOLLOWED_VIEW_SYNCHRONY, Expectation, audit
from ordercast.core.identity import Guarantee


def broken(story: ViewStory, *lasting: int) -> set[str]:
    """The properties that a run breaks, followers' among them; with the nodes that are up at its end."""
    expectation = Expectation((frozenset(lasting),)) if lasting else None
    report = audit(story.rows, expectation, FOLLOWED_VIEW_SYNCHRONY)
    return {code for code, count in report.properties.items() if count}


def followed(told: int, guarantee: str = "agreed") -> ViewStory:
    """Node 3 follows nodes 1 and 2. Node 1 fails: it delivered two messages, and node 2 only the first."""
    story = ViewStory()
    story.view(1, [1, 2])
    story.regular(1, 1, [1, 2], at=[3])
    messages = [story.send(1, guarantee), story.send(2, guarantee)]
    story.deliver(1, *messages)
    story.deliver(3, *messages[:told])
    story.deliver(2, messages[0])
    story.crash(1)
    return story


def test_a_follower_has_a_part_of_what_the_members_delivered() -> None:
    assert not broken(followed(told=1))


def test_a_member_that_failed_may_have_told_more_in_a_view_that_nobody_has_left() -> None:
    """All had it when it was delivered: who is left has it, too, but is no majority and cannot go on."""
    assert not broken(followed(told=2))


def test_what_a_member_that_failed_told_is_in_the_view_where_it_was_left() -> None:
    for guarantee in (Guarantee.AGREED, Guarantee.K1):
        story = followed(told=2, guarantee=guarantee.value)
        story.view(2, [2])
        assert "follower-order" in broken(story)


def test_nobody_else_may_have_told_more() -> None:
    story = followed(told=2)
    message = story.send(2)
    story.deliver(3, message)
    assert "follower-order" in broken(story)


def test_in_a_view_that_nobody_has_left_a_follower_has_no_gap_either() -> None:
    story = ViewStory()
    story.view(1, [1, 2])
    story.regular(1, 1, [1, 2], at=[3])
    first, second, third = (story.send(1) for _ in range(3))
    story.deliver(1, first, second, third)
    story.deliver(3, first, third)
    story.crash(1)
    assert "follower-order" in broken(story)


def left_alone() -> ViewStory:
    """Node 3 follows nodes 1 and 2, and has sent a message. Node 2 leaves; node 1 is in a view alone."""
    story = ViewStory()
    story.view(1, [1, 2])
    story.regular(1, 1, [1, 2], at=[3])
    message = story.send(1)
    story.deliver([1, 2], message)
    story.submit(3)
    story.halt(2)
    story.view(2, [1])
    return story


def test_a_follower_is_in_the_last_view_with_all_of_it_and_what_it_sent() -> None:
    assert "live-followers" in broken(left_alone(), 1, 3)


def test_nothing_is_expected_of_followers_when_all_who_order_have_left() -> None:
    story = left_alone()
    story.halt(1)
    assert not broken(story, 3)


def test_nor_where_those_who_order_are_in_another_component() -> None:
    story = left_alone()
    report = audit(story.rows, Expectation((frozenset({1}), frozenset({3}))), FOLLOWED_VIEW_SYNCHRONY)
    assert not report.properties["live-followers"]
