"""Who keeps the token waiting: entered by each member on the token, and known to all of them."""

from __future__ import annotations

import pytest
from totem_node import FIRST, Node, entry, operational, started
from totem_parts import CONFIG, ring, token

from effects import timers
from ordercast.core.contract import Effect, SetTimer
from ordercast.totem.packets import LONGEST_HOLD_US
from ordercast.totem.token_passing import TOKEN_LOSS, TokenPassing
from ordercast.totem.waits import SPAN_US, Waits


def test_each_member_enters_how_long_the_token_waited_there() -> None:
    node = operational()
    node.visited(holds=[10, 20, 30], waited_us=500)
    assert node.forwarded.holds == [10, 500, 30]


def test_the_first_to_wait_begins_the_list() -> None:
    node = operational()
    node.visited(waited_us=500)
    assert node.forwarded.holds == [0, 500, 0]


def test_on_a_quick_ring_the_token_carries_no_list() -> None:
    node = operational()
    node.visited()
    assert node.forwarded.holds == []
    node.visited(holds=[0, 7, 0])
    assert node.forwarded.holds == []


@pytest.mark.parametrize("holds", [[1], [1, 2, 3, 4]])
def test_a_list_that_does_not_fit_the_ring_says_nothing(holds: list[int]) -> None:
    node = operational()
    node.visited(holds=holds)
    assert node.forwarded.holds == []
    node.visited(holds=holds, waited_us=5)
    assert node.forwarded.holds == [0, 5, 0]
    assert node.machine.waits == {1: 0, 2: 5, 3: 0}


def test_a_wait_beyond_measure_is_entered_as_the_longest_there_is() -> None:
    node = operational()
    node.visited(waited_us=2**40)
    assert node.forwarded.holds == [0, LONGEST_HOLD_US, 0]
    node.visited(holds=[1, 1, 1], waited_us=-3)
    assert node.forwarded.holds == [1, 0, 1]


def test_that_an_idle_ring_holds_its_token_is_no_waiting() -> None:
    node = operational(me=1, hold_us=10_000, idle_rotations=1)
    for _ in range(4):
        node.visited()
        node.waits(10_000)
        node.timeout("hold")
    assert node.machine.stats["tokens_held"] > 0
    assert node.machine.waits == {1: 0, 2: 0, 3: 0}


def test_on_a_ring_that_is_being_formed_waits_are_entered_too() -> None:
    node = started(2)
    node.agrees((1, 2, 3))
    entries = [entry(member) for member in (1, 2, 3)]
    node.commits(FIRST, entries)
    node.returns(entries)
    node.visited(waited_us=9)
    assert node.forwarded.holds == [0, 9, 0]


# --- the longest of late -----------------------------------------------------------------------------


def known(node: Node) -> list[int]:
    return list(node.machine.waits.values())


def test_everyone_knows_the_longest_wait_of_each_of_late() -> None:
    node = operational()
    node.visited(holds=[10, 0, 30], waited_us=500)
    node.visited(holds=[20, 0, 5])
    assert node.machine.waits == {1: 20, 2: 500, 3: 30}


def test_a_wait_is_forgotten_after_one_or_two_seconds() -> None:
    node = operational()
    node.visited(holds=[10, 0, 30])
    node.waits(SPAN_US)
    node.visited(holds=[20, 0, 5])
    assert known(node) == [20, 0, 30]
    node.waits(SPAN_US)
    node.visited(holds=[])
    assert known(node) == [20, 0, 5]
    node.waits(SPAN_US)
    node.visited(holds=[])
    assert known(node) == [0, 0, 0]


def test_before_there_is_a_ring_nobody_waits() -> None:
    assert Node(1).machine.waits == {}
    assert started(1).machine.waits == {1: 0}


def test_on_a_new_ring_the_last_ones_waits_are_forgotten() -> None:
    waits = Waits()
    waits.begin(0, (1, 2))
    waits.learn(0, [5, 6])
    assert waits.longest == {1: 5, 2: 6}
    waits.begin(10, (2, 3))
    assert waits.longest == {2: 0, 3: 0}


# --- the Token Loss timeout --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("holds", "times"),
    [([], 1), ([0.01, 0.01, 0.02], 1), ([0.05, 0.1, 0.1], 1), ([0.2, 0.3, 0.25], 3), ([1, 2, 8], 10)],
)
def test_the_token_loss_timeout_is_four_times_what_the_token_waited_within_bounds(
    holds: list[float], times: int
) -> None:
    loss_us = CONFIG.token_loss_us
    effects: list[Effect] = []
    made = token(holds=[int(hold * loss_us) for hold in holds])
    TokenPassing(CONFIG).pass_on(0, ring(me=2), token(), 0, True, sum(made.holds), effects)
    assert SetTimer(TOKEN_LOSS, times * loss_us) in effects


def test_a_quick_ring_never_makes_another_timer() -> None:
    passing = TokenPassing(CONFIG)
    timer = [SetTimer(TOKEN_LOSS, 0), SetTimer(TOKEN_LOSS, 0)]
    for number in range(2):
        effects: list[Effect] = []
        passing.pass_on(0, ring(me=2), token(), 0, True, 180, effects)
        (timer[number],) = [e for e in effects if isinstance(e, SetTimer) and e.name == TOKEN_LOSS]
    assert timer[0] is timer[1]


def test_a_slow_member_gives_its_ring_more_time() -> None:
    node = operational(token_loss_us=100_000, token_retransmission_us=20_000)
    assert timers(node.visited())[TOKEN_LOSS] == 100_000
    assert timers(node.visited(waited_us=80_000))[TOKEN_LOSS] == 320_000
    assert timers(node.visited())[TOKEN_LOSS] == 320_000, "it may be as slow again"
    for _ in range(2):
        node.waits(SPAN_US)
        effects = node.visited()
    assert timers(effects)[TOKEN_LOSS] == 100_000
