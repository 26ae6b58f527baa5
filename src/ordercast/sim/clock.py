"""Virtual time: one heap of what is going to happen.

Everything in a simulation is an entry on this heap. Equal times keep the order of scheduling, so a run
is a function of its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Any

HeapEntry = tuple[int, float, Callable[[Any, Any], None] | None, Any, Any]
"""When, a number that keeps equal times in order of scheduling, what to call, and with what."""

_CHUNK = 1024
_MOST_AT_ONE_INSTANT = 1_000_000


class Runaway(Exception):
    """Machines and network keep each other busy, and a run would not come to its end."""


class Clock:
    """The time, and what is due."""

    __slots__ = ("heap", "now", "seed", "tick")

    def __init__(self, seed: int | str) -> None:
        """`seed` is that of the simulation: an error that ends it says so."""
        self.now = 0
        """Virtual time in microseconds."""
        self.seed = seed
        self.heap: list[HeapEntry] = []
        """What is due. Those who schedule often push entries themselves, numbered by `tick`."""
        self.tick = count().__next__
        """The next number for a heap entry."""

    def run_until(self, until_us: int) -> None:
        """Let everything happen that is due up to and including `until_us`."""
        if until_us < self.now:
            raise ValueError(f"it is {self.now} µs already, {until_us} µs is over")
        heap, pop = self.heap, heappop
        heappush(heap, (until_us, inf, None, None, None))
        idle_at, idle = -1, 0
        try:
            while True:
                for _ in range(_CHUNK):
                    when_us, _, act, a, b = pop(heap)
                    self.now = when_us
                    if act is None:
                        return
                    act(a, b)
                idle = idle + _CHUNK if self.now == idle_at else 0
                idle_at = self.now
                if idle > _MOST_AT_ONE_INSTANT:
                    raise Runaway(f"over {_MOST_AT_ONE_INSTANT} events at {self.now} µs")
        except Exception as error:
            error.add_note(f"in the simulation with seed {self.seed}, at {self.now} µs")
            heap[:] = [entry for entry in heap if entry[2] is not None]
            heapify(heap)
            raise

    def at(self, when_us: int, act: Callable[[], object]) -> None:
        """Call `act` at that time (now, if it is past)."""
        heappush(self.heap, (max(when_us, self.now), self.tick(), _call, act, None))


def _call(act: Callable[[], object], _: None) -> None:
    act()
