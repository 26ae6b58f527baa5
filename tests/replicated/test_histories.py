"""Which histories have parted, of those that replicas tell of."""

from __future__ import annotations

from ordercast.process_groups.views import Process
from ordercast.replicated.durable.heads import START, Head
from ordercast.replicated.histories import Tip, epoch_of, merged, tips
from ordercast.replicated.notes import MOST_PASSED, Report, RoundId

ROUND = RoundId(9, 1, 1)


def told(*heads: tuple[Head | None, list[int]]) -> dict[Process, Report]:
    """Replicas 1, 2, ... tell of these heads, and of the epochs that they have passed through."""
    return {
        Process(node, 1, 1): Report(ROUND, head, [], 0, passed=passed)
        for node, (head, passed) in enumerate(heads, 1)
    }


def heads_of(found: list[Tip]) -> list[Head]:
    return [tip.head for tip in found]


def test_within_an_epoch_the_furthest_has_all() -> None:
    near, far, other = Head(5, 3, 1), Head(5, 4, 2), Head(5, 4, 3)
    assert heads_of(tips(told((near, [0, 5]), (far, [0, 5]), (other, [0, 5])))) == [far]


def test_what_another_history_has_passed_through_is_a_part_of_it() -> None:
    old, new = Head(70, 9, 1), Head(8, 4, 2)
    assert heads_of(tips(told((old, [0, 70]), (new, [0, 70, 8])))) == [new]


def test_histories_that_parted_are_all_told_in_one_order() -> None:
    here, there = Head(7, 9, 1), Head(6, 20, 2)
    for some in ((here, [0, 5, 7]), (there, [0, 5, 6])), ((there, [0, 5, 6]), (here, [0, 5, 7])):
        assert heads_of(tips(told(*some))) == [there, here]


def test_who_has_just_begun_has_no_history() -> None:
    begun, old = Head(START.epoch, 2, 1), Head(4, 3, 1)
    long = [*range(10, 10 + MOST_PASSED - 1), 4]
    assert heads_of(tips(told((begun, [0]), (old, long), (None, [])))) == [old]
    assert heads_of(tips(told((begun, [0]), (Head(0, 0, 5), [0])))) == [begun]
    assert tips(told((None, []))) == []


def test_what_is_merged_has_its_parts_in_it() -> None:
    parts = [Tip(Head(6, 20, 2), [0, 5, 6]), Tip(Head(7, 9, 1), [0, 5, 7])]
    both = merged(parts, 30)
    assert both.head.epoch == 30
    assert both.head.position > 20
    for part in parts:
        assert tips(told((part.head, list(part.passed)), (both.head, list(both.passed)))) == [both]
    third = Tip(Head(8, 2, 2), [0, 5, 8])
    again = merged([both, third], 31)
    assert set(again.passed) == {0, 5, 6, 7, 8, 30, 31}
    assert again.passed[-1] == 31


def test_the_latest_epochs_of_each_part_are_told() -> None:
    one = Tip(Head(300, 1, 1), list(range(301)))
    two = Tip(Head(900, 1, 1), list(range(600, 901)))
    found = merged([one, two], 1).passed
    assert len(found) == MOST_PASSED
    assert {300, 900, 1, 200, 800} <= set(found)


def test_no_two_rounds_begin_the_same_epoch() -> None:
    rounds = [RoundId(seq, rep, number) for seq in range(9) for rep in range(9) for number in range(9)]
    assert len({epoch_of(each) for each in rounds}) == len(rounds)
    assert all(0 < epoch_of(each) < 2**62 for each in rounds)
