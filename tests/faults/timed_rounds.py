"""Rounds of a campaign that somebody watches, and that may have to end before all are done."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator


def timed_rounds(rounds: int, seconds: float = float("inf"), *, told_each: int = 20) -> Iterator[int]:
    """The numbers of rounds, from 0, until all are done or so many seconds have passed.

    After every `told_each` rounds it says to stderr how many there were."""
    begun = time.monotonic()
    for number in range(rounds):
        passed = time.monotonic() - begun
        if number and number % told_each == 0:
            print(f"{number} rounds, {passed:.0f} s", file=sys.stderr, flush=True)
        if passed > seconds:
            return
        yield number
