"""What is promised to nodes that follow the order of views that they are no members of (004 §3.3.2)."""

from __future__ import annotations

from view_story import ViewStory

from ordercast.audit.properties import FOLLOWED_VIEW_SYNCHRONY, audit
from ordercast.core.identity import Guarantee


def broken(story: ViewStory) -> set[str]:
    """The properties that a run breaks, followers' among them."""
    report = audit(story.rows, None, FOLLOWED_VIEW_SYNCHRONY)
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
