"""Numbers of a node's lives (incarnations): the range that they may have, and one taken from the clock."""

from __future__ import annotations

import time

from ordercast.core.identity import MAX_INCARNATION
from ordercast.errors import StorageProblem

_CLOCK_BEGINS = 1_577_836_800
"""2020-01-01 in seconds since the epoch: counted from there, incarnations fit 32 bits until 2088."""


def checked_life(incarnation: int) -> int:
    """The number of a life that begins. Raises `StorageProblem` if no life can have it."""
    if incarnation > MAX_INCARNATION:
        raise StorageProblem(
            f"the node would begin its life {incarnation}, and lives are numbered up to {MAX_INCARNATION}: "
            "give it an empty data directory and another identifier."
        )
    return incarnation


def life_by_the_clock() -> int:
    """Seconds since 2020; the second is over when this returns, so that nobody after gets the same."""
    now = time.time()
    seconds = int(now) - _CLOCK_BEGINS
    if seconds < 1:
        raise StorageProblem(
            "the clock of this machine is before 2020, and a node that was told its identifier and finds "
            "no data of an earlier life counts its lives by it: set the clock and start the node again."
        )
    time.sleep(1 - now % 1)
    return checked_life(seconds)
