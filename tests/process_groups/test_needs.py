"""What a node tells the ordering machine that it needs."""

from __future__ import annotations

from ordercast.core.contract import MOST_ATTENDED, Attend
from ordercast.core.subjects import subscription
from ordercast.process_groups.needs import Needs


def told(needs: Needs) -> Attend:
    """What it tells now: something has changed."""
    attend = needs.attend()
    assert attend is not None
    return attend


def test_what_has_not_changed_is_told_once() -> None:
    needs = Needs(False)
    assert told(needs) == Attend(frozenset())
    assert needs.attend() is None
    needs.add(1, "a")
    needs.remove(1, "a")
    assert needs.attend() is None


def test_a_group_is_needed_until_the_last_process_has_left_it() -> None:
    needs = Needs(False)
    needs.add(1, "a")
    needs.add(2, "a")
    assert told(needs) == Attend(frozenset("a"))
    needs.remove(1, "a")
    assert needs.attend() is None
    needs.end(2)
    assert told(needs) == Attend(frozenset())


def test_who_joins_again_before_it_is_told_that_it_has_left_needs_the_group_until_it_has_left_again() -> None:
    needs = Needs(False)
    needs.add(1, "a")
    needs.add(1, "a")
    assert told(needs) == Attend(frozenset("a"))
    needs.remove(1, "a")
    assert needs.attend() is None, "the second leave is not told yet"
    needs.remove(1, "a")
    assert told(needs) == Attend(frozenset())


def test_a_pattern_needs_everything_and_a_queue_has_all_nodes_need_it() -> None:
    needs = Needs(False)
    needs.add(1, subscription("a.*"))
    assert told(needs) == Attend(None)
    needs.add(1, subscription("a.*", "q"))
    assert told(needs) == Attend(None, shared=True)
    needs.end(1)
    assert told(needs) == Attend(frozenset())


def test_more_groups_than_are_named_are_all() -> None:
    needs = Needs(False)
    for group in range(MOST_ATTENDED + 1):
        needs.add(1, str(group))
    assert told(needs) == Attend(None)
    needs.remove(1, "0")
    assert told(needs) == Attend(frozenset(map(str, range(1, MOST_ATTENDED + 1))))


def test_a_leave_that_nobody_asked_for_changes_nothing() -> None:
    needs = Needs(False)
    needs.add(1, "a")
    needs.remove(2, "a")
    needs.remove(1, "b")
    needs.end(3)
    assert told(needs) == Attend(frozenset("a"))


def test_a_node_with_a_log_needs_everything() -> None:
    needs = Needs(True)
    assert told(needs) == Attend(None)
    needs.add(1, "a")
    assert needs.attend() is None
