"""Lamport clocks: what is given is above all that was given or heard of."""

from __future__ import annotations

from ordercast.core.lamport import LamportClock


def test_a_clock_goes_on_from_the_highest_that_it_heard_of() -> None:
    clock = LamportClock()
    assert clock.tick() == 1
    clock.follow(7)
    clock.follow(3)
    assert (clock.now, clock.tick()) == (7, 8)
