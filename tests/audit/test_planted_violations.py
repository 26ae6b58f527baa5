"""For every property, histories that break it: the auditor names it, and says who and what."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from story import Story, delivered, parted, three

from ordercast.audit.properties import EXTENDED_VIRTUAL_SYNCHRONY, audit

PLANTED: list[tuple[str, Callable[[], Story]]] = []


def breaks(code: str) -> Callable[[Callable[[], Story]], Callable[[], Story]]:
    def register(tell: Callable[[], Story]) -> Callable[[], Story]:
        PLANTED.append((code, tell))
        return tell

    return register


# --- configurations ----------------------------------------------------------------------------


@breaks("config-unique")
def one_identifier_two_memberships() -> Story:
    story = Story()
    story.alone(1, 2)
    story.join(8, 1, [1, 2])
    story.edit(story.find("install", 2), config_seq=8, config_rep=1)
    return story


@breaks("config-unique")
def one_identifier_two_kinds() -> Story:
    story = Story()
    story.alone(1)
    story.transitional(7, 1, [1])
    story.regular(7, 1, [1])
    return story


@breaks("config-unique")
def a_node_that_forgot_its_ring_number() -> Story:
    story = Story()
    story.alone(1)
    story.crash(1)
    story.restart(1)
    story.alone(1)
    return story


@breaks("config-member")
def a_configuration_without_oneself() -> Story:
    story = Story()
    story.alone(1)
    story.transitional(7, 1, [1])
    story.regular(8, 2, [2], at=[1])
    return story


@breaks("config-chain")
def regular_after_regular() -> Story:
    story = Story()
    story.alone(1)
    story.regular(8, 1, [1])
    return story


@breaks("config-chain")
def transitional_after_transitional() -> Story:
    story = Story()
    story.alone(1)
    story.transitional(7, 1, [1])
    story.transitional(11, 1, [1])
    return story


@breaks("config-chain")
def transitional_with_strangers() -> Story:
    story = Story()
    story.alone(1)
    story.transitional(7, 1, [1, 2], at=[1])
    story.regular(8, 1, [1, 2], at=[1])
    return story


@breaks("config-chain")
def regular_that_leaves_companions_behind() -> Story:
    story, _ = three()
    story.transitional(11, 1, [1, 2], at=[1])
    story.regular(12, 1, [1], at=[1])
    return story


@breaks("config-chain")
def a_life_that_begins_in_transition() -> Story:
    story = Story()
    story.transitional(7, 1, [1])
    return story


@breaks("config-consistent")
def two_ways_from_one_to_the_next() -> Story:
    story, _ = three()
    story.transitional(11, 1, [1], at=[1])
    story.transitional(11, 2, [2], at=[2])
    story.regular(12, 1, [1, 2])
    return story


# --- single messages ---------------------------------------------------------------------------


@breaks("deliver-once")
def the_same_again() -> Story:
    story, (a, *_) = delivered()
    story.deliver(2, a)
    return story


@breaks("deliver-once")
def the_same_again_in_transition() -> Story:
    story, messages = delivered()
    story.transitional(11, 1, [1, 2])
    story.deliver(1, messages[-1])
    return story


@breaks("deliver-once")
def the_same_again_in_another_life() -> Story:
    story, (a, *_) = delivered()
    story.crash(3)
    story.restart(3)
    story.alone(3, seq=12)
    story.deliver(3, a)
    return story


@breaks("deliver-originated")
def out_of_nothing() -> Story:
    story, (_, b, *_) = delivered()
    story.drop("originate", b.origin, b)
    return story


@breaks("deliver-originated")
def in_the_name_of_another() -> Story:
    story, (a, *_) = delivered()
    story.edit(story.find("originate", a.origin, a), node=3, step=1000)
    return story


@breaks("deliver-originated")
def in_the_name_of_an_earlier_life() -> Story:
    story = Story()
    story.alone(1)
    story.crash(1)
    story.restart(1)
    story.alone(1, seq=8)
    a = story.originate(1, 1)
    story.edit(story.find("originate", 1, a), origin_incarnation=0)
    return story


@breaks("deliver-originated")
def of_another_configuration_than_it_says() -> Story:
    story, (a, *_) = delivered()
    story.edit(story.find("deliver", 2, a), origin_config_seq=4, origin_config_rep=2)
    return story


@breaks("deliver-originated")
def of_another_guarantee_than_asked_for() -> Story:
    story, (a, *_) = delivered()
    story.edit(story.find("deliver", 2, a), guarantee="safe")
    return story


@breaks("deliver-originated")
def originated_twice() -> Story:
    story, (a, *_) = delivered()
    story.edit(story.find("deliver", a.origin, a), event="originate")
    return story


@breaks("deliver-originated")
def originated_in_a_transitional_configuration() -> Story:
    story, _ = delivered()
    story.transitional(11, 1, [1, 2, 3])
    story.originate(1, 9)
    return story


@breaks("deliver-place")
def one_configuration_too_late() -> Story:
    story, messages = three()
    story.deliver([1, 2, 3], *messages[:-1])
    parted(story)
    story.deliver(3, messages[-1])
    return story


@breaks("deliver-place")
def two_transitions_too_late() -> Story:
    story, messages = three()
    parted(story)
    story.transitional(15, 3, [3])
    story.deliver(3, *messages)
    return story


@breaks("deliver-place")
def by_a_node_that_was_not_there() -> Story:
    story, messages = delivered()
    story.alone(4)
    story.deliver(4, *messages)
    return story


@breaks("deliver-place")
def moved_by_name_alone() -> Story:
    story, messages = delivered()
    parted(story)
    place = story.find("deliver", 2, messages[3])
    story.edit(place, config_seq=12, config_rep=1)
    return story


@breaks("deliver-place")
def after_death() -> Story:
    story, messages = three()
    story.crash(2)
    story.deliver(2, messages[0])
    return story


@breaks("seq-unique")
def two_messages_one_position() -> Story:
    story, (a, b, *_) = three()
    story.edit(story.find("originate", b.origin, b), seq=a.seq, slot=a.slot)
    return story


@breaks("seq-unique")
def one_message_two_positions() -> Story:
    story, (_, b, *_) = delivered()
    story.edit(story.find("deliver", 2, b), slot=7)
    return story


@breaks("seq-unique")
def originated_at_two_positions() -> Story:
    story, (a, *_) = three()
    story.originate(1, 7)
    story.edit(len(story.rows) - 1, origin=a.origin, number=a.number, node=a.origin, step=1000)
    return story


# --- order -------------------------------------------------------------------------------------


@breaks("total-order")
def two_swapped_at_one_node() -> Story:
    story, messages = delivered()
    story.swap(2, messages[2], messages[3])
    return story


@breaks("total-order")
def swapped_between_configurations() -> Story:
    story, messages = delivered()
    parted(story)
    later = story.originate(1, 1)
    story.deliver([1, 2], later)
    story.swap(2, messages[0], later)
    return story


def a_ring_of_three_orders() -> Story:
    """Each of three nodes delivers two of three messages; no two nodes deliver the same two."""
    story = Story()
    story.alone(1, 2, 3)
    story.join(8, 1, [1, 2, 3])
    a, b, c = (story.originate(node, node) for node in (1, 2, 3))
    story.deliver(1, a, b)
    story.deliver(2, b, c)
    story.deliver(3, c, a)
    return story


PLANTED.append(("global-order", a_ring_of_three_orders))


@breaks("global-order")
def configurations_in_different_orders() -> Story:
    story = Story()
    story.alone(1, 2)
    for node, (first, second) in ((1, (8, 12)), (2, (12, 8))):
        for seq in (first, second):
            story.transitional(seq - 1 + node * 100, node, [node])
            story.regular(seq, 1, [1, 2], at=[node])
    return story


@breaks("global-order")
def a_message_before_its_configuration_elsewhere() -> Story:
    """One node has m before the change that, at another, comes before m."""
    story, messages = three()
    story.transitional(11, 1, [1, 2], at=[1])
    story.deliver(1, *messages)
    story.deliver(2, *messages)
    story.transitional(11, 1, [1, 2], at=[2])
    return story


# --- agreement ---------------------------------------------------------------------------------


@breaks("gap-free")
def one_dropped_in_the_regular_configuration() -> Story:
    story, messages = delivered()
    story.drop("deliver", 2, messages[2])
    return story


@breaks("gap-free")
def over_a_message_that_nobody_received() -> Story:
    story, messages = three()
    story.deliver([1, 3], *messages[:2], *messages[3:])
    return story


@breaks("gap-free")
def one_of_the_companions_passed_over() -> Story:
    story, messages = three()
    story.transitional(11, 1, [1, 2], at=[1])
    story.deliver(1, *(message for message in messages if message is not messages[1]))
    return story


@breaks("gap-free")
def the_last_of_a_companion_left_out() -> Story:
    story, messages = three()
    own = [message for message in messages if message.origin != 3]
    story.transitional(11, 1, [1, 2])
    story.deliver([1, 2], *own[:-1])
    story.regular(12, 1, [1, 2])
    return story


@breaks("gap-free")
def an_effect_without_its_cause_in_transition() -> Story:
    """Node 3 is outside and its first message may be passed over; but then not what answers it."""
    story = Story()
    story.alone(1, 2, 3)
    story.join(8, 1, [1, 2, 3])
    a = story.originate(3, 1)
    story.deliver(2, a)
    b = story.originate(2, 2)
    story.transitional(11, 1, [1, 2], at=[1])
    story.deliver(1, b)
    return story


@breaks("gap-free")
def the_second_of_an_outsider_without_its_first() -> Story:
    story = Story()
    story.alone(1, 2, 3)
    story.join(8, 1, [1, 2, 3])
    story.originate(3, 1)
    b = story.originate(3, 2)
    story.transitional(11, 1, [1, 2], at=[1])
    story.deliver(1, b)
    return story


@breaks("gap-free")
def backwards_in_transition() -> Story:
    story, messages = three()
    story.transitional(11, 1, [1, 2], at=[1])
    story.deliver(1, messages[1], messages[0])
    return story


@breaks("causal")
def an_answer_before_the_question() -> Story:
    story = Story()
    story.alone(1, 2, 3)
    story.join(8, 1, [1, 2, 3])
    a = story.originate(1, 1)
    story.deliver([1, 2], a)
    b = story.originate(2, 2)
    story.deliver(3, b, a)
    return story


@breaks("causal")
def an_answer_without_the_question() -> Story:
    story = Story()
    story.alone(1, 2, 3)
    story.join(8, 1, [1, 2, 3])
    a = story.originate(1, 1)
    story.deliver([1, 2], a)
    b = story.originate(2, 2)
    story.transitional(11, 3, [3])
    story.deliver(3, b)
    return story


@breaks("causal")
def ones_own_in_the_wrong_order() -> Story:
    story = Story()
    story.alone(1, 2)
    story.join(8, 1, [1, 2])
    second_by_position = story.originate(1, 2)
    first_by_position = story.originate(1, 1)
    story.deliver([1, 2], first_by_position, second_by_position)
    return story


@breaks("causal")
def a_position_below_what_was_delivered() -> Story:
    """The positions themselves go against causality: everyone follows them, and everyone is wrong."""
    story = Story()
    story.alone(1, 2)
    story.join(8, 1, [1, 2])
    question = story.originate(1, 5)
    story.deliver(2, question)
    answer = story.originate(2, 4)
    story.deliver(1, answer, question)
    return story


@breaks("self-delivery")
def ones_own_left_behind() -> Story:
    story, messages = three()
    story.deliver([1, 2, 3], *messages[:-1])
    parted(story)
    return story


@breaks("virtual-synchrony")
def together_with_less_in_the_regular_one() -> Story:
    story, messages = three()
    story.deliver([1, 3], *messages)
    story.deliver(2, *messages[:-1])
    parted(story)
    return story


@breaks("virtual-synchrony")
def together_with_less_in_the_transitional_one() -> Story:
    story, messages = three()
    story.transitional(11, 1, [1, 2])
    story.deliver(1, *messages)
    story.deliver(2, *messages[:-1])
    story.regular(12, 1, [1, 2])
    return story


@breaks("virtual-synchrony")
def together_with_the_change_at_another_place() -> Story:
    story, messages = three()
    story.deliver(1, *messages)
    story.deliver(2, *messages[:3])
    story.transitional(11, 1, [1, 2])
    story.deliver(2, *messages[3:])
    story.regular(12, 1, [1, 2])
    return story


@breaks("safe")
def safe_for_one_alone() -> Story:
    story, messages = three(safe=True)
    story.deliver([1, 2], *messages)
    story.transitional(11, 3, [3])
    story.deliver(3, *(message for message in messages if message.origin == 3))
    story.regular(12, 3, [3])
    return story


@breaks("safe")
def safe_in_a_transitional_one_and_not_for_all_of_it() -> Story:
    story, messages = three(safe=True)
    story.transitional(11, 1, [1, 2], at=[1])
    story.deliver(1, *messages)
    story.transitional(15, 2, [2])
    story.deliver(2, *(message for message in messages if message.origin == 2))
    story.regular(16, 2, [2])
    return story


@breaks("safe")
def safe_in_a_configuration_not_all_installed() -> Story:
    story = Story()
    story.alone(1, 2)
    story.transitional(7, 1, [1])
    story.regular(8, 1, [1, 2], at=[1])
    story.deliver(1, story.originate(1, 1, safe=True))
    return story


def changed() -> Story:
    """Nodes 1 and 2 went on together: 8.1 ended at place 3, and the transitional 11.1 at place 5."""
    story, messages = three()
    story.deliver([1, 2], *messages[:4])
    story.transitional(11, 1, [1, 2])
    story.deliver([1, 2], *messages[4:])
    story.regular(12, 1, [1, 2])
    return story


def changed_wrongly(config_seq: int, **fields: int) -> Story:
    """The same, but both say something else of the change to that configuration."""
    story = changed()
    for node in (1, 2):
        story.edit(story.install(node, config_seq), **fields)
    return story


def test_a_change_names_what_it_ends_and_where() -> None:
    story = changed()
    assert story.rows[story.install(2, 11)][20:23] == (8, 1, 3)
    assert story.rows[story.install(2, 12)][20:23] == (11, 1, 5)
    assert audit(story.rows).clean


@breaks("config-ends")
def ends_a_configuration_it_was_not_in() -> Story:
    story = changed()
    story.edit(story.install(1, 11), ended_config_rep=2)
    return story


@breaks("config-ends")
def ends_the_regular_one_twice() -> Story:
    return changed_wrongly(12, ended_config_seq=8)


@breaks("config-ends")
def ends_before_its_last_message() -> Story:
    return changed_wrongly(11, ended_place=2)


@breaks("config-ends")
def ends_behind_its_last_message() -> Story:
    return changed_wrongly(12, ended_place=6)


@breaks("config-ends")
def ends_beyond_what_follows() -> Story:
    return changed_wrongly(11, ended_place=4)


@breaks("config-ends")
def ends_at_two_places() -> Story:
    """One of those that change together fails right behind the change: it made the same one all the same."""
    story, messages = three()
    story.deliver(1, *messages[:4])
    story.deliver(2, *messages[:5])
    story.transitional(11, 1, [1, 2])
    story.crash(2)
    story.deliver(1, *messages[4:])
    story.regular(12, 1, [1, 2], at=[1])
    return story


@breaks("config-ends")
def ends_something_at_the_beginning_of_a_life() -> Story:
    story = changed()
    story.crash(1)
    story.restart(1)
    story.alone(1, seq=16)
    story.edit(story.install(1, 16), ended_config_seq=12, ended_config_rep=1, ended_place=0)
    return story


@breaks("config-ends")
def ends_in_silence() -> Story:
    story = changed()
    story.edit(story.install(2, 11), ended_config_seq=None, ended_config_rep=None, ended_place=None)
    return story


# --- timestamps --------------------------------------------------------------------------------


def born() -> Story:
    """Two messages with one timestamp, of rings 1 and 2, and a later one in the next configuration."""
    story = Story()
    story.alone(1, 2)
    story.join(8, 1, [1, 2])
    story.deliver([1, 2], story.originate(1, 1), story.originate(2, 2))
    story.transitional(11, 1, [1, 2])
    story.regular(12, 1, [1, 2])
    story.deliver([1, 2], story.originate(1, 1))
    story.give_births(m1_1=(5, 1), m2_1=(5, 2), m1_2=(9, 1))
    return story


def test_messages_in_the_order_of_timestamps_and_rings_are_right() -> None:
    assert audit(born().rows).clean


@breaks("born-ordered")
def a_lower_timestamp_behind_a_higher_one() -> Story:
    story = born()
    story.give_births(m1_1=(6, 1))
    return story


@breaks("born-ordered")
def one_timestamp_and_the_rings_the_other_way_round() -> Story:
    story = born()
    story.give_births(m1_1=(5, 3))
    return story


@breaks("born-ordered")
def a_lower_timestamp_in_the_next_configuration() -> Story:
    story = born()
    story.give_births(m1_2=(4, 1))
    return story


@breaks("born-ordered")
def forwarded_with_another_timestamp() -> Story:
    """One node alone says something else of a message, in order by itself."""
    story = born()
    story.edit(len(story.rows) - 1, timestamp=10)
    return story


@breaks("born-ordered")
def forwarded_as_of_another_ring() -> Story:
    story = born()
    story.edit(len(story.rows) - 1, ring=2)
    return story


@breaks("born-ordered")
def forwarded_without_a_timestamp() -> Story:
    story = born()
    story.edit(len(story.rows) - 1, timestamp=None, ring=None)
    return story


def summed() -> Story:
    """Everyone has delivered all messages, with the checksums of what they carry."""
    story, _ = delivered()
    for place, row in enumerate(story.rows):
        if row[4] in ("originate", "deliver"):
            story.edit(place, checksum=1000 * (row[9] or 0) + (row[11] or 0))
    return story


def test_contents_may_be_the_same_or_not_known() -> None:
    story = summed()
    assert audit(story.rows).clean
    story.edit(len(story.rows) - 1, checksum=None)
    story.edit(len(story.rows) - 7, checksum=None)
    assert audit(story.rows).clean


@breaks("same-contents")
def other_contents_at_one_node() -> Story:
    story = summed()
    story.edit(len(story.rows) - 3, checksum=7)
    return story


@breaks("same-contents")
def other_contents_than_were_originated() -> Story:
    story = summed()
    story.edit(story.find("originate", 2), checksum=7)
    return story


@breaks("same-contents")
def other_contents_than_another_node_has_where_the_originator_does_not_say() -> Story:
    story = summed()
    for place, row in enumerate(story.rows):
        if row[4] == "originate":
            story.edit(place, checksum=None)
    story.edit(len(story.rows) - 1, checksum=7)
    return story


def test_timestamps_may_begin_anew_with_a_life() -> None:
    story = born()
    story.crash(1, 2)
    story.restart(1)
    story.alone(1, seq=16)
    story.deliver(1, story.originate(1, 1))
    story.edit(len(story.rows) - 1, timestamp=1, ring=1)
    story.edit(len(story.rows) - 2, timestamp=1, ring=1)
    assert audit(story.rows).clean


# --- members without rows ------------------------------------------------------------------------


def without(story: Story, node: int) -> Story:
    """The same, and nobody has that node's files."""
    story.rows = [row for row in story.rows if row[0] != node]
    return story


@breaks("members-traced")
def one_whose_messages_others_delivered() -> Story:
    return without(delivered()[0], 3)


@breaks("members-traced")
def one_that_owes_a_safe_message() -> Story:
    story, messages = three(safe=True)
    story.deliver([1, 2, 3], *(message for message in messages if message.origin != 3))
    return without(story, 3)


def test_of_a_member_without_rows_nothing_else_is_told() -> None:
    for story in (one_whose_messages_others_delivered(), one_that_owes_a_safe_message()):
        report = audit(story.rows)
        assert [code for code, count in report.properties.items() if count] == ["members-traced"]
        [violation] = report.violations
        assert violation.nodes == (3,)
        assert (
            "node 3 is a member of regular configuration 8.1 {1, 2, 3} and has no row" in violation.sentence
        )


def test_a_member_of_which_nothing_is_told_may_have_no_row() -> None:
    story, messages = three()
    story.deliver([1, 2], *(message for message in messages if message.origin != 3))
    assert audit(without(story, 3).rows).properties["members-traced"] == 0


# --- the audit of them all ---------------------------------------------------------------------


def named(tell: Callable[[], Story]) -> str:
    return tell.__name__ if callable(tell) else str(tell)


@pytest.mark.parametrize(("code", "tell"), PLANTED, ids=named)
def test_the_broken_property_is_named(code: str, tell: Callable[[], Story]) -> None:
    report = audit(tell().rows)
    assert report.properties[code] > 0, report.properties
    assert not report.clean


@pytest.mark.parametrize(("code", "tell"), PLANTED, ids=named)
def test_the_sentence_says_who_and_what(code: str, tell: Callable[[], Story]) -> None:
    for violation in audit(tell().rows).violations:
        assert violation.nodes
        for node in violation.nodes:
            assert f"{node}" in violation.sentence
        assert violation.messages or violation.property.startswith(("config-", "global-", "members-"))
        for message in violation.messages[:3]:
            assert f"message {message.number} of node {message.origin}" in violation.sentence
        assert violation.sentence.endswith(".")


def test_every_property_has_a_history_that_breaks_it() -> None:
    planted = {code for code, _ in PLANTED}
    assert planted | {"live-membership", "live-delivery"} == set(EXTENDED_VIRTUAL_SYNCHRONY)


def test_a_cycle_that_no_two_nodes_show() -> None:
    """000 §4.2, footnote 4: a definition based on pairwise delivery of messages does not suffice."""
    report = audit(a_ring_of_three_orders().rows)
    assert report.properties["global-order"] == 1
    assert report.properties["total-order"] == 0
    [violation] = [found for found in report.violations if found.property == "global-order"]
    assert set(violation.nodes) == {1, 2, 3}
    assert len(violation.messages) == 3


def test_a_message_of_a_failed_node_may_stay_undelivered() -> None:
    """The same history breaks self-delivery, and does not if the node crashes in time."""
    story, messages = three()
    story.deliver([1, 2, 3], *messages[:-1])
    story.transitional(11, 3, [3])
    assert audit(story.rows).properties["self-delivery"] == 0
    story.crash(3)
    assert audit(story.rows).properties["self-delivery"] == 0


def test_a_safe_message_is_not_due_at_a_node_that_crashed() -> None:
    story, messages = three(safe=True)
    story.deliver([1, 2], *messages)
    story.transitional(11, 3, [3])
    story.crash(3)
    assert audit(story.rows).clean


def test_a_trace_that_says_nothing_of_ends_is_not_judged_by_them() -> None:
    """The columns came later: a trace written without them is as right as it was."""
    story = changed()
    for place, row in enumerate(story.rows):
        if row[4] == "install":
            story.edit(place, ended_config_seq=None, ended_config_rep=None, ended_place=None)
    assert audit(story.rows).clean


def test_where_messages_are_missing_a_place_need_not_have_one() -> None:
    story = changed()
    story.rows = [row for row in story.rows if row[14] not in (3, 5)]
    assert audit(story.rows).properties["config-ends"] == 4
    assert audit(story.rows, whole=False).clean


# --- by the clock --------------------------------------------------------------------------------


def safe_before_all_have_come(late: int) -> Story:
    """Node 1 delivers a safe message; node 3 installs the configuration `late` microseconds after that."""
    story, messages = three(safe=True)
    story.deliver([1, 2, 3], *messages)
    first = story.rows[story.find("deliver", 1, messages[0])]
    story.edit(story.install(3, 8), time_us=first[3] + late)
    return story


def test_a_safe_delivery_before_a_member_has_installed_is_found_where_the_clock_can_tell() -> None:
    """000 §4.2: if p delivers m in C in safe order, then every member of C *has installed* C."""
    story = safe_before_all_have_come(late=1)
    [violation] = audit(story.rows, one_clock=True).violations
    assert violation.property == "safe"
    assert violation.nodes == (1, 3)
    assert "its member node 3 installed 8.1 only at" in violation.sentence
    assert audit(story.rows).clean, "clocks of two nodes tell nothing of what was first"


def test_at_the_same_time_is_early_enough() -> None:
    assert audit(safe_before_all_have_come(late=0).rows, one_clock=True).clean


def test_who_failed_before_it_installed_is_no_excuse() -> None:
    """000 §4.2 has one for who has to deliver, and none for who has to have installed."""
    story = safe_in_a_configuration_not_all_installed()
    story.crash(2)
    assert audit(story.rows).properties["safe"] == 1


def test_members_of_a_transitional_one_had_come_to_the_regular_one_before() -> None:
    story, messages = three(safe=True)
    story.transitional(11, 1, [1, 2])
    story.deliver([1, 2], *messages)
    story.regular(12, 1, [1, 2])
    assert audit(story.rows, one_clock=True).clean
    first = story.rows[story.find("deliver", 1, messages[0])]
    story.edit(story.install(2, 8), time_us=first[3] + 1)
    [violation] = audit(story.rows, one_clock=True).violations
    assert violation.property == "safe"
    assert "its member node 2 installed 8.1 only at" in violation.sentence


def test_agreed_messages_wait_for_nobody_to_install() -> None:
    story, messages = three()
    story.deliver([1, 2, 3], *messages)
    first = story.rows[story.find("deliver", 1, messages[0])]
    story.edit(story.install(3, 8), time_us=first[3] + 1)
    assert audit(story.rows, one_clock=True).clean


def test_an_install_that_events_show_to_be_late_is_found_without_a_clock() -> None:
    """Node 1's safe delivery in 8.1 comes before what node 2 sends in 12.2, and that before node 3's install
    of 8.1: then the orders of the nodes go round in a circle, and no time is needed to tell."""
    story = Story()
    story.alone(1, 2, 3)
    for node in (1, 2):
        story.transitional(7, node, [node])
    story.regular(8, 1, [1, 2, 3], at=[1, 2])
    story.deliver([1, 2], story.originate(1, 1, safe=True))
    story.transitional(11, 2, [2])
    story.transitional(11, 3, [3])
    story.regular(12, 2, [2, 3])
    story.deliver([2, 3], story.originate(2, 1))
    story.transitional(13, 3, [3])
    story.regular(8, 1, [1, 2, 3], at=[3])
    assert audit(story.rows).properties["global-order"] == 1
