"""How nodes start, and what each new life finds, drawn from a seed: starts, clocks and disks.

Processes of a group hardly ever start at the same instant: one is stalled for a while right after its start,
another comes late, and sometimes one runs alone long before the rest. A new life may find another time than
the one before left off at, no disk, or a disk that was restored from an old copy.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from ordercast.core.identity import NodeId
from ordercast.sim.faults import At, Begin, Clock, Drift, Fault, Pause, Restart, Resume
from ordercast.sim.host import MOST_WRITES_AGO

STALL_US = (50_000, 350_000)
"""How long a process is stalled at its start, at least and at most."""
LATEST_US = 400_000
"""How late a node begins, at most."""
AHEAD_US = (0, 1, 1_000, 20_000, 500_000, 3_000_000, 7_200_000_000)
"""How far clocks are ahead: from one life to the next by a little or by hours, forward or back."""

DRIFTS_PPM = (-100_000, -10_000, -200, 200, 10_000, 100_000)
"""By how much clocks run faster: quartz errs by up to 200 ppm, virtual machines now and then by far more."""


def draw_starts(stream: random.Random, nodes: Sequence[NodeId], duration_us: int) -> list[Fault]:
    """How the nodes start: in half of the seeds together; else stalled, late, or one long before the rest."""
    way = stream.choice(("together",) * 4 + ("stalled", "late", "lone", "spread"))
    latest_us = min(LATEST_US, duration_us // 2)
    if way == "stalled":
        stalled = [node for node in nodes if stream.random() < 0.7]
        return [fault for node in stalled for fault in _stall(stream, node, 0)]
    if way == "late":
        late = [node for node in nodes if stream.random() < 0.5]
        return [fault for node in late for fault in _begin(stream, node, 1 + stream.randrange(latest_us))]
    if way == "lone":
        older = stream.choice(nodes)
        at_us = 1 + stream.randrange(latest_us)
        apart_us = stream.choice((1, 300, 5_000, 50_000))
        return [
            fault
            for node in nodes
            if node != older
            for fault in _begin(stream, node, at_us + stream.randrange(apart_us))
        ]
    if way == "spread":
        return [At(1 + stream.randrange(5_000), Begin(node)) for node in nodes]
    return []


def _begin(stream: random.Random, node: NodeId, at_us: int) -> Iterator[Fault]:
    yield At(at_us, Begin(node))
    if stream.random() < 0.3:
        yield from _stall(stream, node, at_us)


def _stall(stream: random.Random, node: NodeId, at_us: int) -> Iterator[Fault]:
    yield At(at_us, Pause(node))
    yield At(at_us + stream.randint(*STALL_US), Resume(node))


def draw_clocks(stream: random.Random, faults: Sequence[Fault], nodes: Sequence[NodeId]) -> list[Fault]:
    """These faults, and wrong clocks: in half of the seeds some are wrong from the start, or from a restart
    on."""
    share = stream.choice((0.0, 0.0, 0.3, 1.0))
    if not share:
        return list(faults)
    told: list[Fault] = [
        At(0, Clock(node, stream.choice(AHEAD_US))) for node in nodes if stream.random() < share
    ]
    for fault in faults:
        if isinstance(fault, At) and isinstance(fault.do, Restart) and stream.random() < share:
            told.append(At(fault.at_us, Clock(fault.do.node, stream.choice(AHEAD_US))))
        told.append(fault)
    return told


def draw_drifts(stream: random.Random, nodes: Sequence[NodeId]) -> list[Fault]:
    """In half of the seeds clocks run faster or slower than they should, by what `DRIFTS_PPM` has."""
    share = stream.choice((0.0, 0.0, 0.5, 1.0))
    return [At(0, Drift(node, stream.choice(DRIFTS_PPM))) for node in nodes if stream.random() < share]


def draw_disks(stream: random.Random, faults: Sequence[Fault]) -> list[Fault]:
    """These faults, where some restarts find no disk, or one that holds an old state."""
    share = stream.choice((0.0, 0.3, 1.0))
    old = stream.choice((0.0, 0.3, 1.0))
    drawn: list[Fault] = []
    for fault in faults:
        if isinstance(fault, At) and isinstance(fault.do, Restart) and stream.random() < share:
            node = fault.do.node
            stale = Restart(node, writes_ago=1 + stream.randrange(MOST_WRITES_AGO))
            lost = Restart(node, keep_disk=False)
            drawn.append(At(fault.at_us, stale if stream.random() < old else lost))
        else:
            drawn.append(fault)
    return drawn
