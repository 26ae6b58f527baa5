"""Histories that view synchrony and uniform total order allow, told and at random; and spoiled at random."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from story import COLUMN
from view_story import RandomRun, ViewStory, broken, delivered, group, judge

from ordercast.audit.history import Stay
from ordercast.audit.properties import TOKEN_LIST_VIEW_SYNCHRONY, VIEW_SYNCHRONY, Expectation, audit
from ordercast.audit.views import Views
from ordercast.trace.schema import Row
from ordercast.trace.trimmed import common_part


def plain_run() -> ViewStory:
    """Three nodes order a few messages; one has not come to the last yet."""
    story, messages = group()
    story.deliver([1, 3], *messages)
    story.deliver(2, *messages[:-1])
    return story


def nothing_at_all() -> ViewStory:
    return ViewStory()


def a_member_crashes() -> ViewStory:
    """004 Fig. 31: who goes on settles the view first; the one that crashed had less, and owes nothing."""
    story, messages = group()
    story.deliver([1, 2], *messages)
    story.deliver(3, *messages[:2])
    story.crash(3)
    story.view(2, [1, 2])
    story.deliver([1, 2], story.send(2))
    return story


def an_excluded_member_delivers_the_rest_and_halts() -> ViewStory:
    """004 Fig. 29, line 6: who is not in the next view still delivers what was decided, and stops."""
    story, messages = group()
    story.deliver([1, 2], *messages)
    story.view(2, [1, 2])
    story.deliver([1, 2], story.send(1))
    story.deliver(3, *messages)
    story.halt(3)
    story.restart(3)
    story.view(3, [1, 2, 3])
    story.deliver([1, 2, 3], story.send(3))
    return story


def excluded_and_not_aware_of_it() -> ViewStory:
    """Cut off, a member delivers on its own word; it has not heard of the next view when the trace ends."""
    story, messages = group(guarantee="k=1")
    lost = story.send(3, "k=1")
    story.deliver([1, 2, 3], *messages)
    story.deliver(3, lost)
    story.view(2, [1, 2])
    return story


def excluded_and_ordering_on_its_own() -> ViewStory:
    """The same, and the place of what it delivers is given to another message where the group goes on."""
    story, messages = group(guarantee="k=1")
    story.deliver([1, 2, 3], *messages)
    story.deliver(3, story.send(3, "k=1", seq=7))
    story.deliver([1, 2], story.send(1, "k=1", seq=7))
    story.view(2, [1, 2])
    return story


def placed_otherwise_by_one_that_failed() -> ViewStory:
    """One that failed had given places to two messages, and survivors settled them the other way round."""
    story, _ = group(messages=0)
    a, b = story.send(1, "k=1", seq=1), story.send(2, "k=1", seq=2)
    story.deliver(3, a, b)
    story.crash(3)
    story.deliver([1, 2], b._replace(seq=1), a._replace(seq=2))
    story.view(2, [1, 2])
    return story


def a_broadcast_that_nobody_heard() -> ViewStory:
    """Its sender crashed: a message that no survivor has is delivered by nobody."""
    story, messages = group()
    story.send(3)
    story.deliver([1, 2], *messages)
    story.crash(3)
    story.view(2, [1, 2])
    return story


def two_groups_merge() -> ViewStory:
    """003, "Future Improvements": "if two groups merge, the result should be similar to a new view"."""
    story = ViewStory()
    story.view(1, [1, 2])
    story.view(1, [3, 4])
    story.deliver([1, 2], story.send(1))
    story.deliver([3, 4], story.send(4))
    story.view(2, [1, 2, 3, 4])
    story.deliver([1, 2, 3, 4], story.send(3, "safe"))
    return story


def a_member_that_never_came() -> ViewStory:
    """It was decided that node 3 is in; it crashed before it installed the view."""
    story = ViewStory()
    story.view(1, [1, 2, 3])
    story.crash(3)
    story.view(2, [1, 2, 3], at=[1, 2])
    story.deliver([1, 2], story.send(1))
    story.view(3, [1, 2])
    return story


def everyone_falls_and_comes_back() -> ViewStory:
    """All lives end; the next view follows none of theirs."""
    story, _ = delivered()
    story.crash(1, 2, 3)
    story.restart(1, 2, 3)
    story.view(2, [1, 2, 3])
    story.deliver([1, 2, 3], *(story.send(node, "safe") for node in (1, 2, 3)))
    return story


def killed_without_a_word() -> ViewStory:
    """A process that is killed writes no crash row: its next life tells that this one ended."""
    story, messages = group()
    story.deliver([1, 2], *messages)
    story.restart(3)
    story.view(2, [1, 2, 3])
    return story


def fragments_and_packed_messages() -> ViewStory:
    story, _ = group(messages=0)
    a, b, c = story.send(1, seq=4), story.send(2, seq=6), story.send(2, seq=6, slot=1)
    story.deliver([1, 2, 3], a, b, c)
    return story


RIGHT = [
    plain_run,
    nothing_at_all,
    a_member_crashes,
    an_excluded_member_delivers_the_rest_and_halts,
    excluded_and_not_aware_of_it,
    excluded_and_ordering_on_its_own,
    placed_otherwise_by_one_that_failed,
    a_broadcast_that_nobody_heard,
    two_groups_merge,
    a_member_that_never_came,
    everyone_falls_and_comes_back,
    killed_without_a_word,
    fragments_and_packed_messages,
]


@pytest.mark.parametrize("tell", RIGHT, ids=lambda tell: tell.__name__)
def test_a_right_history_of_views_is_accepted(tell: Callable[[], ViewStory]) -> None:
    rows = tell().rows
    report = audit(rows, None, VIEW_SYNCHRONY)
    assert report.violations == ()
    assert report.properties == dict.fromkeys(VIEW_SYNCHRONY, 0)
    assert report.events == len(rows)
    assert report.promises == ("view-synchrony",)
    Random(1).shuffle(rows)
    assert audit(rows, None, VIEW_SYNCHRONY).clean, "the order of rows does not matter"


def test_the_table_of_properties_is_the_one_of_the_design() -> None:
    assert list(VIEW_SYNCHRONY) == [
        "uniform-agreement",
        "uniform-integrity",
        "same-contents",
        "uniform-order",
        "view-synchrony",
        "sending-view",
        "view-agreement",
        "config-ends",
        "members-traced",
        "validity",
        "live-membership",
    ]
    assert VIEW_SYNCHRONY.name == "view-synchrony"


# --- excuses, on both sides ----------------------------------------------------------------------


def lost_with(level: str, size: int, fall: int) -> ViewStory:
    """The last of the group delivers a message, and so many of the last crash; nobody else has it."""
    story, _ = group(size, messages=0)
    story.deliver(size, story.send(size, level))
    story.crash(*range(size, size - fall, -1))
    story.view(2, range(1, size - fall + 1))
    return story


@pytest.mark.parametrize(
    ("level", "size", "tolerated"),
    [
        ("k=1", 3, 0),
        ("k=2", 4, 1),
        ("k=3", 5, 2),
        ("agreed", 3, 1),
        ("agreed", 4, 2),
        ("agreed", 5, 2),
        ("safe", 3, 2),
        ("safe", 5, 4),
        ("k=7", 3, 2),  # more than there are: all of them
        ("agreed", 2, 1),  # a majority of two is both
    ],
)
def test_a_level_of_k_tolerates_one_failure_less(level: str, size: int, tolerated: int) -> None:
    """004 §3.2.2: "if we want to tolerate k-1 failures", at least k processes have received it."""
    for fall in range(1, size):
        expected = {"uniform-agreement"} if fall <= tolerated else set()
        assert broken(lost_with(level, size, fall)) == expected, fall


@pytest.mark.parametrize(
    ("level", "size", "tolerated"),
    [
        ("k=1", 3, 0),
        ("k=3", 7, 2),
        ("agreed", 5, 2),
        ("safe", 3, 1),
        ("safe", 5, 2),
        ("k=7", 5, 2),
        ("safe", 2, 1),
    ],
)
def test_with_token_lists_no_level_tolerates_that_a_majority_fails(
    level: str, size: int, tolerated: int
) -> None:
    """004 §4.4.3: nothing is promised of who was taken off the token list, which holds a majority."""
    for fall in range(1, size):
        found = audit(lost_with(level, size, fall).rows, None, TOKEN_LIST_VIEW_SYNCHRONY).properties
        expected = {"uniform-agreement"} if fall <= tolerated else set()
        assert {code for code, count in found.items() if count} == expected, fall


def test_a_member_that_fell_before_it_came_is_one_that_failed() -> None:
    story = ViewStory()
    story.view(1, [1, 2, 3, 4])
    story.view(2, [1, 2, 3, 4], at=[1, 2, 3])
    story.deliver(3, story.send(3, "k=2"))
    story.crash(3)
    story.view(3, [1, 2])
    assert broken(story) == {"uniform-agreement"}, "one of four failed, and k=2 tolerates that"
    story.crash(4)
    assert broken(story) == set()


def test_who_is_left_out_counts_as_failed_though_it_lives() -> None:
    assert broken(excluded_and_not_aware_of_it()) == set()
    story, messages = group(guarantee="k=1")
    story.deliver([1, 2, 3], *messages)
    story.deliver(3, story.send(3, "k=1"))
    story.view(2, [1, 2, 3], at=[1, 2])
    assert broken(story) == {"uniform-agreement"}, "here it is in the next view"


def test_an_order_of_its_own_is_excused_for_a_life_that_failed_only() -> None:
    assert broken(placed_otherwise_by_one_that_failed()) == set()
    story, _ = group(messages=0)
    a, b = story.send(1, "k=1", seq=1), story.send(2, "k=1", seq=2)
    story.deliver(3, a, b)
    story.deliver([1, 2], b._replace(seq=1), a._replace(seq=2))
    assert broken(story) == {"uniform-order"}


def test_an_order_of_its_own_is_excused_for_levels_that_did_not_hold_only() -> None:
    for level, expected in (("k=1", set()), ("k=2", {"uniform-order"}), ("safe", {"uniform-order"})):
        story, _ = group(messages=0)
        a, b = story.send(1, level, seq=1), story.send(2, level, seq=2)
        story.deliver(3, a, b)
        story.crash(3)
        story.deliver([1, 2], b._replace(seq=1), a._replace(seq=2))
        story.view(2, [1, 2])
        assert broken(story) == expected, level


# --- what is due at the end ------------------------------------------------------------------------


def test_at_the_end_more_is_due_if_all_should_be_done() -> None:
    story, messages = group()
    story.deliver([1, 2], *messages)
    story.deliver(3, *messages[:-2])
    assert broken(story) == set()
    assert broken(story, 1, 2, 3) == {"uniform-agreement", "validity"}
    story.deliver(3, *messages[-2:])
    assert broken(story, 1, 2, 3) == set()


def test_an_expectation_without_nodes_asks_for_nothing() -> None:
    story, messages = group()
    story.submit(1)
    story.deliver([1, 2], *messages)
    assert audit(story.rows, Expectation(()), VIEW_SYNCHRONY).clean
    assert judge(story).unchecked == ("live-membership",)
    assert audit(story.rows, Expectation(()), VIEW_SYNCHRONY).unchecked == ()


def test_who_crashed_owes_nothing_at_the_end() -> None:
    story, messages = group()
    story.deliver([1, 2], *messages)
    story.submit(3)
    story.crash(3)
    story.view(2, [1, 2])
    assert broken(story, 1, 2) == set()


def broken_by(rows: list[Row]) -> set[str]:
    return {code for code, count in audit(rows, None, VIEW_SYNCHRONY).properties.items() if count}


# --- trimmed ---------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 6))
def test_a_run_cut_anywhere_is_as_clean_as_the_whole(seed: int, nodes: int) -> None:
    """`ordercast.trace.trimmed`: what all nodes still have is a trace like any other."""
    by_node: dict[int, list[Row]] = {}
    for row in RandomRun(Random(seed), nodes, 5).story.rows:
        by_node.setdefault(row[0], []).append(row)
    chance = Random(seed + 1)
    cut = [its[chance.choice((0, chance.randrange(len(its)))) :] for its in by_node.values()]
    part = common_part(row for its in cut for row in its)
    assert audit(part, None, VIEW_SYNCHRONY, whole=False).violations == ()


def test_a_violation_in_what_is_left_is_found() -> None:
    story, _ = delivered()
    last = story.send(1)
    story.deliver([1, 3], last)
    story.view(2, [1, 2, 3])
    first = story.rows[story.find("deliver", 3, last)]
    cut = [row for row in story.rows if row[0] != 3 or row[2] >= first[2]]
    found = audit(common_part(cut), None, VIEW_SYNCHRONY, whole=False).properties
    broken_there = {code for code, count in found.items() if count}
    assert broken_there == {"uniform-agreement", "view-synchrony", "config-ends"}


# --- at random -------------------------------------------------------------------------------------

SEEDS = st.integers(0, 2**32)


@settings(max_examples=200, deadline=None)
@given(SEEDS, st.integers(1, 7))
def test_whatever_the_definition_of_views_allows_is_accepted(seed: int, nodes: int) -> None:
    assert judge(RandomRun(Random(seed), nodes, 6).story).violations == ()


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.integers(1, 5))
def test_a_run_that_came_to_rest_is_accepted(seed: int, nodes: int) -> None:
    run = RandomRun(Random(seed), nodes, 4)
    run.finish()
    [view, *others] = run.views
    assume(not others and sorted(view.has) == view.members)
    assert judge(run.story, *view.members).violations == ()


def gone_on(seed: int, deliveries: int, together: int = 1) -> tuple[list[Row], Stay]:
    """A right run, and a stay in it with so many deliveries that so many lives left for the same view."""
    rows = RandomRun(Random(seed), 5, 6).story.rows
    ways = [way for departures in Views(rows).departures.values() for way in departures]
    stays = [
        stay for way in ways if len(way) >= together for stay in way if len(stay.deliveries) >= deliveries
    ]
    assume(stays)
    return rows, Random(seed + 1).choice(stays)


def with_message_of(row: Row, other: Row) -> Row:
    return (*row[:9], *other[9:])


def changed(row: Row, **columns: object) -> Row:
    fields: list[object] = list(row)
    for name, value in columns.items():
        fields[COLUMN[name]] = value
    return tuple(fields)  # type: ignore[return-value]


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_no_swap_in_a_view_goes_unseen(seed: int) -> None:
    rows, stay = gone_on(seed, deliveries=2)
    place = Random(seed).randrange(len(stay.deliveries) - 1)
    one, other = stay.deliveries[place : place + 2]
    swapped = {one: with_message_of(one, other), other: with_message_of(other, one)}
    assert "uniform-order" in broken_by([swapped.get(row, row) for row in rows])


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_no_drop_in_a_view_goes_unseen(seed: int) -> None:
    rows, stay = gone_on(seed, deliveries=1, together=2)
    rows.remove(Random(seed).choice(stay.deliveries))
    assert "view-synchrony" in broken_by(rows)


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_no_duplicate_in_a_view_goes_unseen(seed: int) -> None:
    rows, stay = gone_on(seed, deliveries=2)
    one, other = Random(seed).sample(stay.deliveries, 2)
    assert "uniform-integrity" in broken_by(
        [with_message_of(row, one) if row == other else row for row in rows]
    )


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_no_move_into_the_next_view_goes_unseen(seed: int) -> None:
    rows, stay = gone_on(seed, deliveries=1)
    assert stay.next is not None
    last = stay.deliveries[-1]
    install = next(
        row for row in rows if row[:2] == last[:2] and row[4] == "install" and row[5:7] == stay.next.id
    )
    rows[rows.index(install)] = changed(install, step=last[2])
    moved = changed(last, step=install[2], config_seq=stay.next.id.seq, config_rep=stay.next.id.rep)
    rows[rows.index(last)] = moved
    assert "sending-view" in broken_by(rows)


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_no_change_of_a_message_goes_unseen(seed: int) -> None:
    rows, stay = gone_on(seed, deliveries=1)
    row = Random(seed).choice(stay.deliveries)
    for columns, code in (
        ({"size": 99}, "uniform-integrity"),
        ({"number": 10**6}, "uniform-integrity"),
        ({"guarantee": "k=6"}, "uniform-integrity"),
        ({"origin_config_seq": 10**6}, "sending-view"),
    ):
        assert code in broken_by([changed(each, **columns) if each == row else each for each in rows])


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_no_change_of_a_view_goes_unseen(seed: int) -> None:
    rows, stay = gone_on(seed, deliveries=0, together=2)
    assert stay.next is not None
    place = next(
        place
        for place, row in enumerate(rows)
        if row[:2] == (stay.node, stay.incarnation) and row[4] == "install" and row[5:7] == stay.next.id
    )
    members = rows[place][8]
    assert members is not None
    for columns in ({"members": (*members, 99)}, {"config_seq": 10**6}, {"config_rep": 99}):
        edited = [*rows[:place], changed(rows[place], **columns), *rows[place + 1 :]]
        assert "view-agreement" in broken_by(edited)
