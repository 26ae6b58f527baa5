"""Histories that extended virtual synchrony allows, and that the auditor must not speak against."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from story import Story, random_story

from ordercast.audit import order
from ordercast.audit.history import History
from ordercast.audit.properties import EXTENDED_VIRTUAL_SYNCHRONY, audit


def plain_run() -> Story:
    """Three nodes come together and order a few messages."""
    story = Story()
    story.alone(1, 2, 3)
    story.join(8, 1, [1, 2, 3])
    a, b, c = story.originate(1, 1), story.originate(1, 1, 1), story.originate(2, 2, safe=True)
    story.deliver([1, 2, 3], a, b, c)
    d = story.originate(3, 3)
    story.deliver([3, 2], d)  # node 1 has not come to it yet
    return story


def nothing_at_all() -> Story:
    return Story()


def partition_into_two() -> Story:
    """000 §7.3: each side delivers the rest in its own transitional configuration."""
    story = Story()
    story.alone(1, 2, 3)
    story.join(8, 1, [1, 2, 3])
    a, b, c, d = (story.originate(node, seq) for seq, node in enumerate([1, 2, 3, 1], start=1))
    story.deliver([1, 2, 3], a)
    story.deliver(1, b)
    story.deliver(2, b)
    # Nodes 1 and 2 never received c; node 3 never received d, nor b in time.
    story.transitional(11, 1, [1, 2])
    story.deliver([1, 2], d)
    story.regular(12, 1, [1, 2])
    story.transitional(11, 3, [3])
    story.deliver(3, b, c)
    story.regular(12, 3, [3])
    e = story.originate(1, 1)
    story.deliver([1, 2], e)
    # And together again.
    for node in (1, 2):
        story.transitional(15, 1, [1, 2], at=[node])
    story.transitional(15, 3, [3])
    story.regular(16, 1, [1, 2, 3])
    story.deliver([1, 2, 3], story.originate(2, 1))
    return story


def regular_here_transitional_there() -> Story:
    """000 §4.2: a safe message may be delivered in C by one and in its transitional one by another."""
    story = Story()
    story.alone(1, 2, 3)
    story.join(8, 1, [1, 2, 3])
    a = story.originate(1, 1, safe=True)
    story.deliver(1, a)
    story.transitional(11, 1, [1])
    story.regular(12, 1, [1])
    story.transitional(11, 2, [2, 3])
    story.deliver([2, 3], a)
    story.regular(12, 2, [2, 3])
    return story


def failed_recovery() -> Story:
    """000 §7, "Failure of Recovery": messages of a node outside T are delivered in T, as safe."""
    story = Story()
    story.alone(1, 2, 3, 4)
    story.join(8, 1, [1, 2, 3, 4])
    a, b, c = story.originate(4, 1), story.originate(3, 2, safe=True), story.originate(1, 3)
    # 1, 2 and 3 exchanged what they had (not a, which only 4 has); then 3 was cut off as well.
    story.transitional(15, 1, [1, 2])
    story.deliver([1, 2], b, c)
    story.regular(16, 1, [1, 2])
    story.transitional(11, 3, [3])
    story.deliver(3, b, c)
    story.regular(12, 3, [3])
    story.transitional(11, 4, [4])
    story.deliver(4, a)
    story.regular(12, 4, [4])
    return story


def crash_in_mid_transition() -> Story:
    """A node stops after the transitional configuration, with part of the deliveries done."""
    story = Story()
    story.alone(1, 2, 3)
    story.join(8, 1, [1, 2, 3])
    a, b, c = (story.originate(node, seq, safe=True) for seq, node in enumerate([1, 2, 2], start=1))
    story.transitional(11, 1, [1, 2], at=[1])
    story.deliver(1, a, b, c)
    story.regular(12, 1, [1, 2], at=[1])
    story.transitional(11, 1, [1, 2], at=[2])
    story.deliver(2, a)
    story.crash(2)
    story.crash(3)
    return story


def crash_before_others_hear() -> Story:
    """What a node originated and nobody heard is passed over, by those who go on without it."""
    story = Story()
    story.alone(1, 2, 3)
    story.join(8, 1, [1, 2, 3])
    a, lost, b = story.originate(1, 1), story.originate(3, 2), story.originate(2, 3)
    story.deliver([1, 2, 3], a)
    story.deliver(3, lost)
    story.halt(3)
    story.transitional(11, 1, [1, 2])
    story.deliver([1, 2], b)
    story.regular(12, 1, [1, 2])
    return story


def restart() -> Story:
    """A node comes back, alone at first, with a new life and numbers from the beginning."""
    story = Story()
    story.alone(1, 2)
    story.join(8, 1, [1, 2])
    a, b = story.originate(1, 1), story.originate(2, 2)
    story.deliver([1, 2], a)
    story.crash(2)
    story.transitional(11, 1, [1])
    story.deliver(1, b)
    story.regular(12, 1, [1])
    story.restart(2)
    story.alone(2, seq=12)
    story.transitional(15, 1, [1])
    story.transitional(15, 2, [2])
    story.regular(16, 1, [1, 2])
    c = story.originate(2, 1)
    assert c[:3] == (2, 1, 1)
    story.deliver([1, 2], c)
    return story


def killed_without_a_word() -> Story:
    """A process that is killed writes no crash row: its next life tells that this one ended."""
    story = Story()
    story.alone(1)
    story.originate(1, 1)
    story.restart(1)
    story.alone(1, seq=8)
    return story


def holes_of_fragments() -> Story:
    """Positions 1 to 3 and 5 carried fragments: a message has the position of its last one."""
    story = Story()
    story.alone(1, 2)
    story.join(8, 1, [1, 2])
    a, b, c = story.originate(1, 4), story.originate(2, 6), story.originate(2, 6, 1)
    story.deliver([1, 2], a, b, c)
    return story


RIGHT = [
    plain_run,
    nothing_at_all,
    partition_into_two,
    regular_here_transitional_there,
    failed_recovery,
    crash_in_mid_transition,
    crash_before_others_hear,
    restart,
    killed_without_a_word,
    holes_of_fragments,
]


@pytest.mark.parametrize("tell", RIGHT, ids=lambda tell: tell.__name__)
def test_a_right_history_is_accepted(tell: Callable[[], Story]) -> None:
    rows = tell().rows
    report = audit(rows)
    assert report.violations == ()
    assert report.clean
    assert report.events == len(rows)
    assert report.properties == dict.fromkeys(EXTENDED_VIRTUAL_SYNCHRONY, 0)


@pytest.mark.parametrize("tell", RIGHT, ids=lambda tell: tell.__name__)
def test_the_order_of_rows_does_not_matter(tell: Callable[[], Story]) -> None:
    rows = tell().rows
    Random(1).shuffle(rows)
    assert audit(rows).clean


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_whatever_the_definition_allows_is_accepted(seed: int, nodes: int) -> None:
    report = audit(random_story(Random(seed), nodes).rows)
    assert report.violations == ()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_the_quick_way_and_the_long_way_agree(seed: int) -> None:
    """A right history takes the quick way past the search for a cycle; the search finds none either."""
    history = History(random_story(Random(seed)).rows)
    assert order._follows_the_numbers(history)
    assert order._cycle(history) == []
