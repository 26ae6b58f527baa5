"""For every property of view synchrony, histories that break it, and what else they break."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from view_story import ViewStory, broken, delivered, group, judge

from ordercast.audit.properties import VIEW_SYNCHRONY
from ordercast.trace.schema import TraceError


class Planted(NamedTuple):
    """A history that breaks something."""

    code: str
    tell: Callable[[], ViewStory]
    codes: set[str]
    """All that it breaks."""
    lasting: tuple[int, ...]
    """Who should have come to rest at its end; nobody: nothing is expected then."""


PLANTED: list[Planted] = []


def breaks(
    code: str, *also: str, lasting: tuple[int, ...] = ()
) -> Callable[[Callable[[], ViewStory]], Callable[[], ViewStory]]:
    def register(tell: Callable[[], ViewStory]) -> Callable[[], ViewStory]:
        PLANTED.append(Planted(code, tell, {code, *also}, lasting))
        return tell

    return register


# --- agreement -------------------------------------------------------------------------------------


@breaks("uniform-agreement")
def what_one_that_failed_had_delivered() -> ViewStory:
    story, messages = group()
    story.deliver([1, 2], *messages)
    story.deliver(3, *messages, story.send(3))
    story.crash(3)
    story.view(2, [1, 2])
    return story


@breaks("uniform-agreement")
def what_one_that_was_killed_without_a_word_had_delivered() -> ViewStory:
    story, messages = group()
    story.deliver([1, 2], *messages)
    story.deliver(3, *messages, story.send(3))
    story.restart(3)
    story.view(2, [1, 2, 3])
    return story


@breaks("uniform-agreement", "view-synchrony")
def what_one_that_went_on_had_delivered() -> ViewStory:
    story, messages = group()
    story.deliver([1, 2], *messages)
    story.deliver(3, *messages[:4], messages[5])
    story.view(2, [1, 2, 3])
    return story


@breaks("uniform-agreement")
def a_safe_message_that_only_one_of_three_survived() -> ViewStory:
    story, _ = group(messages=0)
    story.deliver(3, story.send(3, "safe"))
    story.crash(2, 3)
    story.view(2, [1])
    return story


@breaks("uniform-agreement")
def what_an_excluded_one_had_delivered() -> ViewStory:
    story, messages = group()
    story.deliver([1, 2], *messages[:-1])
    story.deliver(3, *messages)
    story.view(2, [1, 2])
    story.halt(3)
    return story


@breaks("uniform-agreement", lasting=(1, 2, 3))
def not_delivered_by_the_end() -> ViewStory:
    story, messages = delivered()
    story.drop("deliver", 2, messages[0])
    return story


# --- integrity -------------------------------------------------------------------------------------


def summed() -> ViewStory:
    """Everyone has delivered all, with the checksums of what messages carry."""
    story, _ = delivered()
    for place, row in enumerate(story.rows):
        if row[4] in ("originate", "deliver"):
            story.edit(place, checksum=1000 * (row[9] or 0) + (row[11] or 0))
    return story


@breaks("same-contents")
def other_contents_at_one_node() -> ViewStory:
    story = summed()
    story.edit(len(story.rows) - 1, checksum=7)
    return story


@breaks("same-contents")
def other_contents_than_were_broadcast() -> ViewStory:
    story = summed()
    story.edit(story.find("originate", 2), checksum=7)
    return story


@breaks("same-contents")
def other_contents_than_another_has_where_the_sender_does_not_say() -> ViewStory:
    story = summed()
    for place, row in enumerate(story.rows):
        if row[4] == "originate":
            story.edit(place, checksum=None)
    story.edit(story.find("deliver", 1), checksum=7)
    return story


@breaks("uniform-integrity")
def the_same_again() -> ViewStory:
    story, (a, *_) = delivered()
    story.deliver(2, a)
    return story


@breaks("uniform-integrity", "sending-view")
def the_same_again_in_the_next_view() -> ViewStory:
    story, (a, *_) = delivered()
    story.view(2, [1, 2, 3])
    story.deliver(2, a)
    return story


@breaks("uniform-integrity", "sending-view")
def the_same_again_in_another_life() -> ViewStory:
    story, (a, *_) = delivered()
    story.crash(3)
    story.restart(3)
    story.view(2, [1, 2, 3])
    story.deliver(3, a)
    return story


@breaks("uniform-integrity")
def out_of_nothing() -> ViewStory:
    story, (_, b, *_) = delivered()
    story.drop("originate", b.origin, b)
    return story


@breaks("uniform-integrity")
def in_the_name_of_another() -> ViewStory:
    story, (a, *_) = delivered()
    story.edit(story.find("originate", a.origin, a), node=3, step=1000)
    return story


@breaks("uniform-integrity")
def in_the_name_of_an_earlier_life() -> ViewStory:
    story, _ = delivered()
    story.crash(3)
    story.restart(3)
    story.view(2, [1, 2, 3])
    a = story.send(3)
    story.edit(story.find("originate", 3, a), origin_incarnation=0, number=99)
    return story


@breaks("uniform-integrity")
def of_another_size_at_one_node() -> ViewStory:
    story, (a, *_) = delivered()
    story.edit(story.find("deliver", 2, a), size=99)
    return story


@breaks("uniform-integrity")
def of_another_size_than_broadcast() -> ViewStory:
    story, (a, *_) = delivered()
    story.edit(story.find("originate", a.origin, a), size=99)
    return story


@breaks("uniform-integrity")
def of_another_level_than_asked_for() -> ViewStory:
    story, (a, *_) = delivered()
    story.edit(story.find("deliver", 2, a), guarantee="safe")
    return story


@breaks("uniform-integrity")
def for_another_group_than_it_was_sent_to() -> ViewStory:
    story, (a, *_) = delivered()
    story.edit(story.find("deliver", 2, a), group="others")
    return story


# --- order -----------------------------------------------------------------------------------------


@breaks("uniform-order")
def two_swapped_at_one_node() -> ViewStory:
    story, messages = delivered()
    story.swap(2, messages[2], messages[3])
    return story


@breaks("uniform-order")
def two_swapped_at_a_node_that_failed() -> ViewStory:
    story, messages = delivered()
    story.swap(3, messages[2], messages[3])
    story.crash(3)
    story.view(2, [1, 2])
    return story


@breaks("uniform-order", "sending-view", "view-synchrony", "uniform-agreement")
def swapped_between_views() -> ViewStory:
    story, messages = delivered()
    story.view(2, [1, 2, 3])
    later = story.send(1)
    story.deliver([1, 2, 3], later)
    story.swap(2, messages[0], later)
    return story


@breaks("uniform-order")
def one_place_for_two_messages() -> ViewStory:
    story, _ = group(messages=0)
    story.deliver(1, story.send(1, seq=1))
    story.deliver(2, story.send(2, seq=1))
    return story


@breaks("uniform-order")
def two_places_for_one_message() -> ViewStory:
    story, (*_, last) = delivered()
    story.edit(story.find("deliver", 2, last), seq=7)
    return story


@breaks("uniform-order")
def backwards_where_nobody_else_delivers() -> ViewStory:
    story, messages = group()
    story.deliver(1, messages[1], messages[0])
    return story


@breaks("uniform-order")
def an_order_of_one_that_is_cut_off_and_lives() -> ViewStory:
    """Nobody failed: even the lowest level of resilience does not excuse it."""
    story, _ = group(messages=0)
    a, b = story.send(1, "k=1", seq=1), story.send(2, "k=1", seq=2)
    story.deliver(1, a, b)
    story.deliver(2, b._replace(seq=1), a._replace(seq=2))
    return story


# --- view synchrony ----------------------------------------------------------------------------------


@breaks("view-synchrony", "config-ends")
def together_with_less_of_what_need_not_survive() -> ViewStory:
    """The message is not owed, since its sender failed: but then neither or both deliver it."""
    story, _ = group(messages=0)
    a = story.send(3, "k=1")
    story.deliver([2, 3], a)
    story.crash(3)
    story.view(2, [1, 2])
    return story


@breaks("view-synchrony", "uniform-agreement", "config-ends")
def together_with_less() -> ViewStory:
    story, messages = group()
    story.deliver([1, 3], *messages)
    story.deliver(2, *messages[:-1])
    story.crash(3)
    story.view(2, [1, 2])
    return story


@breaks("view-synchrony", "uniform-agreement", "config-ends")
def together_with_one_each() -> ViewStory:
    story, messages = group()
    story.deliver(1, *messages[:4], messages[5])
    story.deliver(2, *messages[:5])
    story.deliver(3, *messages)
    story.view(2, [1, 2, 3])
    return story


# --- what a change says that it ends -----------------------------------------------------------------


def changed() -> ViewStory:
    """A view that ended behind the sixth message, and another that did with nothing in it."""
    story, _ = delivered()
    story.view(2, [1, 2, 3])
    story.view(3, [1, 2, 3])
    return story


@breaks("config-ends")
def ends_another_view() -> ViewStory:
    story = changed()
    story.edit(story.install(2, 2), ended_config_seq=7)
    return story


@breaks("config-ends")
def ends_too_early_for_one() -> ViewStory:
    story = changed()
    story.edit(story.install(2, 2), ended_place=5)
    return story


@breaks("config-ends")
def ends_beyond_the_last_message_for_all() -> ViewStory:
    story = changed()
    for node in (1, 2, 3):
        story.edit(story.install(node, 3), ended_place=1)
    return story


@breaks("config-ends")
def ends_something_in_a_first_view() -> ViewStory:
    story = changed()
    story.edit(story.install(3, 1), ended_config_seq=0, ended_config_rep=3, ended_place=0)
    return story


@breaks("config-ends")
def says_nothing_once() -> ViewStory:
    story = changed()
    story.edit(story.install(1, 3), ended_config_seq=None, ended_config_rep=None, ended_place=None)
    return story


# --- the view it was sent in ---------------------------------------------------------------------------


@breaks("sending-view", "uniform-agreement", "view-synchrony", "config-ends")
def one_view_too_late() -> ViewStory:
    story, messages = group()
    story.deliver([1, 2, 3], *messages[:-1])
    story.deliver([2, 3], messages[-1])
    story.view(2, [1, 2, 3])
    story.deliver(1, messages[-1])
    return story


@breaks("sending-view")
def one_view_too_late_everywhere() -> ViewStory:
    """All agree, but the message was broadcast in the view before, by one that failed there."""
    story, _ = delivered()
    late = story.send(3)
    story.crash(3)
    story.view(2, [1, 2])
    story.deliver([1, 2], late)
    return story


@breaks("sending-view")
def by_a_node_that_was_not_there() -> ViewStory:
    story, messages = delivered()
    story.view(1, [4])
    story.deliver(4, messages[0])
    return story


@breaks("sending-view")
def said_to_be_of_this_view() -> ViewStory:
    """The deliveries tell of the view they happen in; the broadcast was in the one before."""
    story, _ = delivered()
    late = story.send(3, seq=1)
    story.crash(3)
    story.view(2, [1, 2])
    story.deliver([1, 2], late._replace(config_seq=2, config_rep=1))
    return story


@breaks("sending-view")
def said_to_be_of_another_view() -> ViewStory:
    story, (a, *_) = delivered()
    story.edit(story.find("deliver", 2, a), origin_config_seq=9)
    return story


@breaks("sending-view")
def moved_by_name_alone() -> ViewStory:
    story, messages = delivered()
    story.view(2, [1, 2, 3])
    story.edit(story.find("deliver", 2, messages[3]), config_seq=2)
    return story


@breaks("sending-view")
def delivered_after_death() -> ViewStory:
    story, messages = group()
    story.crash(2)
    story.deliver(2, messages[0])
    return story


@breaks("sending-view")
def broadcast_twice() -> ViewStory:
    story, (a, *_) = delivered()
    story.send(a.origin)
    story.edit(len(story.rows) - 1, number=a.number)
    return story


@breaks("sending-view")
def broadcast_again_in_the_next_view() -> ViewStory:
    story, (a, *_) = delivered()
    story.view(2, [1, 2, 3])
    story.send(a.origin)
    story.edit(len(story.rows) - 1, number=a.number)
    return story


@breaks("sending-view")
def broadcast_before_there_is_a_view() -> ViewStory:
    story, _ = delivered()
    a = story.send(1)
    story.deliver([1, 2, 3], a)
    place = story.find("originate", 1, a)
    story.edit(place, step=-1, config_seq=None, config_rep=None, config_kind=None)
    return story


@breaks("sending-view")
def broadcast_as_a_message_of_the_last_view() -> ViewStory:
    story, _ = delivered()
    story.view(2, [1, 2, 3])
    story.send(1)
    story.edit(len(story.rows) - 1, origin_config_seq=1)
    return story


# --- views -------------------------------------------------------------------------------------------


@breaks("view-agreement")
def one_identifier_two_memberships() -> ViewStory:
    story, _ = delivered()
    story.edit(story.find("install", 2), members=(1, 2))
    return story


@breaks("view-agreement")
def a_view_without_oneself() -> ViewStory:
    story, _ = delivered()
    story.view(2, [1, 2], at=[1, 2, 3])
    return story


@breaks("view-agreement")
def no_view_but_a_transition() -> ViewStory:
    story, _ = delivered()
    story.transitional(2, 1, [1, 2, 3])
    return story


@breaks("view-agreement")
def numbers_that_shrink() -> ViewStory:
    story = ViewStory()
    story.view(2, [1, 2])
    story.view(1, [1, 2])
    return story


@breaks("view-agreement")
def a_number_used_again_by_another_life() -> ViewStory:
    story, _ = delivered()
    story.crash(1, 2, 3)
    story.restart(1, 2, 3)
    story.view(1, [1, 2, 3])
    return story


@breaks("view-agreement")
def an_older_number_in_another_life() -> ViewStory:
    story = ViewStory()
    story.view(1, [1, 2])
    story.view(3, [1, 2])
    story.crash(1, 2)
    story.restart(1, 2)
    story.view(2, [2, 1])
    return story


@breaks("view-agreement")
def two_successors() -> ViewStory:
    story, _ = delivered(4)
    story.view(2, [1, 2])
    story.view(2, [3, 4])
    return story


@breaks("view-agreement")
def two_successors_of_the_same_nodes() -> ViewStory:
    story, _ = delivered()
    story.view(2, [1, 2, 3], at=[1, 2])
    story.view(3, [1, 2, 3], at=[3])
    return story


@breaks("view-agreement")
def one_skips_a_view() -> ViewStory:
    story, _ = delivered()
    story.view(2, [1, 2, 3], at=[1, 2])
    story.view(3, [1, 2, 3])
    return story


@breaks("view-agreement")
def excluded_and_back_in_the_same_life() -> ViewStory:
    story, _ = delivered()
    story.view(2, [1, 2])
    story.view(3, [1, 2, 3])
    return story


@breaks("view-agreement")
def excluded_and_on_its_own() -> ViewStory:
    story, _ = delivered()
    story.view(2, [1, 2])
    story.view(2, [3])
    return story


@breaks("view-agreement")
def installed_after_the_end() -> ViewStory:
    story, _ = delivered()
    story.halt(3)
    story.view(2, [1, 2, 3])
    return story


@breaks("view-agreement", "live-membership", lasting=(1, 2, 3, 4))
def two_groups_that_never_meet() -> ViewStory:
    story = ViewStory()
    story.view(1, [1, 2])
    story.view(1, [3, 4])
    story.view(2, [1, 2])
    return story


# --- validity ------------------------------------------------------------------------------------------


@breaks("validity")
def ones_own_left_behind() -> ViewStory:
    story, _ = delivered()
    story.send(2)
    story.view(2, [1, 2, 3])
    return story


@breaks("validity", "uniform-agreement")
def ones_own_delivered_by_another_alone() -> ViewStory:
    story, _ = delivered()
    story.deliver(3, story.send(2))
    story.crash(3)
    story.view(2, [1, 2])
    return story


@breaks("validity", lasting=(1, 2, 3))
def ones_own_not_delivered_by_the_end() -> ViewStory:
    story, _ = delivered()
    story.send(2)
    return story


@breaks("validity", lasting=(1, 2, 3))
def taken_and_never_sent() -> ViewStory:
    story, _ = delivered()
    story.submit(2)
    return story


@breaks("live-membership", lasting=(1, 2, 3))
def one_that_did_not_come_along() -> ViewStory:
    story, _ = delivered()
    story.view(2, [1, 2, 3], at=[1, 2])
    return story


# --- members without rows ------------------------------------------------------------------------------


def without(story: ViewStory, node: int) -> ViewStory:
    """The same, and nobody has that node's files."""
    story.rows = [row for row in story.rows if row[0] != node]
    return story


@breaks("members-traced")
def one_whose_messages_others_delivered() -> ViewStory:
    return without(delivered()[0], 3)


@breaks("members-traced")
def one_that_went_on_with_the_others() -> ViewStory:
    story, _ = delivered(guarantee="safe")
    story.view(2, [1, 2, 3])
    return without(story, 2)


@breaks("members-traced")
def one_of_which_one_message_was_delivered_before_it_was_excluded() -> ViewStory:
    story, messages = group(messages=3)
    story.deliver([1, 2], *messages)
    story.view(2, [1, 2])
    return without(story, 3)


# --- the audit of them all -------------------------------------------------------------------------------


def named(planted: Planted) -> str:
    return f"{planted.code}-{planted.tell.__name__}"


@pytest.mark.parametrize("planted", PLANTED, ids=named)
def test_the_broken_properties_are_named(planted: Planted) -> None:
    assert broken(planted.tell(), *planted.lasting) == planted.codes


@pytest.mark.parametrize("planted", [each for each in PLANTED if each.lasting], ids=named)
def test_without_an_expectation_it_is_not_judged(planted: Planted) -> None:
    assert broken(planted.tell()) == set()


@pytest.mark.parametrize("planted", PLANTED, ids=named)
def test_the_sentence_about_views_says_who_and_what(planted: Planted) -> None:
    violations = judge(planted.tell(), *planted.lasting).violations
    assert violations
    for violation in violations:
        assert violation.nodes
        for node in violation.nodes:
            assert f"{node}" in violation.sentence
        of_no_message = ("view-agreement", "config-ends", "members-traced", "live-membership")
        assert violation.messages or violation.property in of_no_message
        for message in violation.messages[:3]:
            assert f"message {message.number} of node {message.origin}" in violation.sentence
        assert violation.sentence.endswith(".")
        assert "None" not in violation.sentence


def test_every_property_of_views_has_several_histories_that_break_it() -> None:
    planted = [each.code for each in PLANTED]
    for code in VIEW_SYNCHRONY:
        assert planted.count(code) >= (1 if code == "live-membership" else 3), code


def test_an_excluded_node_that_goes_on_is_told_to_have_been_excluded() -> None:
    [violation] = judge(excluded_and_back_in_the_same_life()).violations
    assert "node 3, which is not in it and should have halted" in violation.sentence
    assert violation.nodes == (1, 3)


def test_one_node_that_lacks_much_is_one_violation() -> None:
    story, messages = group(messages=30)
    story.deliver([1, 2], *messages)
    story.crash(2)
    story.view(2, [1, 3])
    [violation] = [found for found in judge(story).violations if found.property == "uniform-agreement"]
    assert violation.nodes == (3, 1)
    assert len(violation.messages) == 20
    assert "and 27 more" in violation.sentence


def test_rows_that_lack_something_are_refused() -> None:
    for event, column in (("deliver", "seq"), ("deliver", "number"), ("originate", "guarantee")):
        story, (a, *_) = delivered()
        story.edit(story.find(event, a.origin, a), **{column: None})
        with pytest.raises(TraceError, match=f"without a value for its {column}"):
            judge(story)


def test_a_level_that_is_none_is_refused() -> None:
    story, _ = group(messages=0)
    a = story.send(3, "most")
    story.deliver(3, a)
    story.crash(3)
    story.view(2, [1, 2])
    with pytest.raises(TraceError, match=r"'most' is no guarantee: they are agreed, safe, k=1"):
        judge(story)
