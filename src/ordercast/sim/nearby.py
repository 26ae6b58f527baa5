"""Faults like those of another case: most at the same time, some a little earlier or later.

What a case made happen that hardly any other does is likely to happen again, in other ways, if its faults
come somewhat differently and everything else is left to other chance.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import msgspec

from ordercast.sim.draws import draw_gap
from ordercast.sim.faults import At, Begin, Burst, Clock, Drift, Fault, When

SHIFTED = 0.5
"""Share of the faults that come at another time."""
ANOTHER = 0.2
"""Share of those that wait for a change of state which wait for another one of these changes."""
_STAY = (Begin, Clock, Drift)
"""What is drawn for the founding of a group, and for clocks, belongs together as it is."""


def shifted(stream: random.Random, faults: Iterable[Fault], duration_us: int) -> list[Fault]:
    """The faults, those before `duration_us` shifted a little and still before it."""
    moved = [_shifted(stream, fault, duration_us) for fault in faults]
    return sorted(moved, key=lambda fault: fault.at_us if isinstance(fault, At) else -1)


def _shifted(stream: random.Random, fault: Fault, duration_us: int) -> Fault:
    if isinstance(fault.do, _STAY) or stream.random() >= SHIFTED:
        return fault
    by_us = draw_gap(stream) * stream.choice((-1, 1))
    if isinstance(fault, When):
        nth = stream.choice((1, 2, 3, 5, 8)) if stream.random() < ANOTHER else fault.nth
        return msgspec.structs.replace(fault, nth=nth, delay_us=max(0, fault.delay_us + by_us // 10))
    if fault.at_us >= duration_us:
        return fault
    at_us = min(max(0, fault.at_us + by_us), duration_us - 1)
    if isinstance(fault.do, Burst):
        lasts_us = min(fault.do.duration_us, duration_us - at_us)
        return At(at_us, msgspec.structs.replace(fault.do, duration_us=lasts_us))
    return At(at_us, fault.do)
