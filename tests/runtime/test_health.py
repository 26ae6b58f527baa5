"""How late this node is: the largest recent delay, fading; and stops, which are no measure of it."""

from __future__ import annotations

from ordercast.runtime.health import HALF_LIFE_US, STOPPED_US, USUAL_US, Lag


class Clock:
    def __init__(self) -> None:
        self.us = 5_000_000

    def __call__(self) -> int:
        return self.us


def test_nothing_is_stretched_at_first() -> None:
    assert Lag(Clock()).us == 0


def test_the_usual_delay_counts_for_nothing() -> None:
    lag = Lag(Clock())
    lag.note(USUAL_US)
    lag.note(0)
    lag.note(-50)
    assert lag.us == 0


def test_the_largest_delay_fades_with_time() -> None:
    clock = Clock()
    lag = Lag(clock)
    lag.note(40_000)
    assert lag.us == 40_000
    clock.us += HALF_LIFE_US
    assert lag.us == 20_000
    lag.note(10_000)
    assert lag.us == 20_000, "a lesser delay does not hide a greater one"
    clock.us += HALF_LIFE_US
    assert lag.us == 10_000
    clock.us += 2 * HALF_LIFE_US
    assert lag.us == 0, "and ends where it is usual"
    clock.us -= 0
    assert lag.us == 0


def test_a_greater_delay_takes_over_at_once() -> None:
    clock = Clock()
    lag = Lag(clock)
    lag.note(10_000)
    clock.us += HALF_LIFE_US // 2
    lag.note(90_000)
    assert lag.us == 90_000


def test_many_small_delays_do_not_add_up() -> None:
    clock = Clock()
    lag = Lag(clock)
    for _ in range(1000):
        lag.note(8_000)
        clock.us += 1_000
    assert 7_000 < lag.us <= 8_000


def test_a_process_that_was_stopped_is_no_slow_one() -> None:
    lag = Lag(Clock())
    lag.note(STOPPED_US + 1)
    lag.note(3600 * 1_000_000)
    assert lag.us == 0
    assert lag.stops == 2
