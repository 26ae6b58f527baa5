"""Replicated objects keep what they promise, whatever the seed decides; and the judge can say that they do
not."""

from __future__ import annotations

import pytest

from hunts import rounds
from ordercast.objects_fuzz import judge
from ordercast.objects_fuzz.journal import Journal, Line, Noted, Read, Row
from ordercast.objects_fuzz.journal_use import Watched, check_answers, check_events
from ordercast.objects_fuzz.plan import LOAD_S, plan
from ordercast.replicated.watching import Missed
from ordercast.testing import Call

PROTOCOLS = ("totem", "total", "cm", "primary-backup", "rings")
FEW, MANY = 2, 700


@pytest.mark.campaign
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_wrong_with_any_seed(protocol: str) -> None:
    for seed in range(1_000, 1_000 + rounds(FEW, MANY)):
        error = judge(protocol, seed)
        if error is not None:
            error.add_note(f"{protocol}, seed {seed}: ordercast.objects_fuzz.judge({protocol!r}, {seed})")
            raise error


@pytest.mark.parametrize(
    ("protocol", "seed"),
    [
        # who followed what it had missed never told what it had carried out before that was certain
        ("totem", 1008),
        # ordered time stood still while clocks that were far apart caught up with it
        ("totem", 1022),
        ("cm", 1022),
        # two primaries made each other's updates void for good: void ones counted as entries
        ("primary-backup", 15),
        ("primary-backup", 20),
        # an object that began outside the primary partition tried to send all the time
        ("rings", 9_300_027),
    ],
)
def test_seeds_that_failed(protocol: str, seed: int) -> None:
    assert judge(protocol, seed) is None


def test_seeds_decide_on_all_there_is() -> None:
    plans = [plan("totem", seed) for seed in range(300)]
    assert {each.beside for each in plans} == {"queue", "lock", "map", ""}
    for of in (
        [each.durable for each in plans],
        [each.deep for each in plans],
        [bool(each.releases) for each in plans],
        [each.refuses for each in plans],
        [bool(each.blackouts) for each in plans],
        [blackout.damages for each in plans for blackout in each.blackouts],
        [fault.without_disk for each in plans for fault in each.faults],
    ):
        assert set(of) == {False, True}
    for protocol in PROTOCOLS:
        assert {plan(protocol, seed).run for seed in range(60)} == {"everywhere", "primary"}
    assert all(fault.at_s <= LOAD_S for each in plans for fault in each.faults)


def test_of_what_is_on_disk_a_majority_stays() -> None:
    for seed in range(300):
        drawn = plan("totem", seed)
        if drawn.durable:
            lost = {fault.node for fault in drawn.faults if fault.without_disk}
            assert lost <= {drawn.unlucky}
        for blackout in drawn.blackouts:
            assert 2 * len(blackout.first) > drawn.nodes
            assert drawn.level is None, "what is on one disk alone does not outlive all nodes"


# --- the judge ------------------------------------------------------------------------------------

LINES = [Line("a", "x", 5, 1, 1), Line("b", "x", 7, 2, 1)]


def _note(index: int, line: Line, began: float, ended: float | None, by: int) -> Call:
    result = None if ended is None else Noted(index, line)
    return Call(client=1, name="note", args=(line.what, "x", by), began=began, ended=ended, result=result)


def _read(length: int, began: float) -> Call:
    last = LINES[length - 1] if length else None
    values = {"x": last.value} if last else {}
    result = Read(length, last, values)
    return Call(client=1, name="read", began=began, ended=began + 0.1, result=result)


RIGHT = [_note(0, LINES[0], 1, 2, 5), _note(1, LINES[1], 3, 4, 2)]


def test_right_answers_are_right() -> None:
    check_answers(LINES, [*RIGHT, _read(0, 0.5), _read(1, 2.5), _read(2, 5)])
    check_answers(LINES, [RIGHT[0], _note(1, LINES[1], 3, None, 2)])


@pytest.mark.parametrize(
    ("lines", "calls", "why"),
    [
        (LINES[:1], RIGHT, "was answered, and there is None"),
        ([*LINES, LINES[0]], RIGHT, "carried out twice"),
        (LINES, [RIGHT[0]], "nobody asked for"),
        (LINES, [*RIGHT, _read(1, 5)], "does not know of"),
        (LINES, [_note(0, LINES[0], 5, 6, 5), _note(1, LINES[1], 1, 2, 2)], "does not know of"),
        (LINES, [RIGHT[0], _note(1, LINES[1], 3, 4, 1)], "should have 6"),
    ],
)
def test_wrong_answers_are_noticed(lines: list[Line], calls: list[Call], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        check_answers(lines, calls)


def test_who_watches_is_told_all_or_that_something_was_missed() -> None:
    check_events(Watched(1, Journal(), [(0, LINES[0]), (1, LINES[1])]), LINES, until_the_end=True)
    check_events(Watched(1, Journal(), [(0, LINES[0]), Missed()]), LINES, until_the_end=True)
    for events, why in (
        ([(0, LINES[0])], "was not told"),
        ([(0, LINES[0]), (0, LINES[0])], "told behind"),
        ([(0, LINES[1])], "was told, and there is"),
        ([Row(0, ["b"]), (0, LINES[0]), (1, LINES[1])], "was told before"),
    ):
        with pytest.raises(AssertionError, match=why):
            check_events(Watched(1, Journal(), events), LINES, until_the_end=True)
