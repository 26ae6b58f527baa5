"""Cases near another one: the same, but for when faults come and for chance."""

from __future__ import annotations

import random

import msgspec
from careless import PROTOCOL

from ordercast.sim.faults import At, Begin, Burst, When
from ordercast.sim.fuzz import is_ending, plan, run
from ordercast.sim.nearby import shifted
from ordercast.sim.shrink import shrink

NODES = (2, 5)


def test_a_case_near_another_has_all_of_it_but_times_and_chance() -> None:
    for seed in range(30):
        like, near = plan(PROTOCOL, seed, NODES), plan(PROTOCOL, 1_000 + seed, NODES, near=seed)
        assert near == plan(PROTOCOL, 1_000 + seed, NODES, near=seed)
        plain = msgspec.structs.replace(near, seed=seed, faults=like.faults)
        assert plain == like
        assert sorted(type(fault.do).__name__ for fault in near.faults) == sorted(
            type(fault.do).__name__ for fault in like.faults
        )
    assert plan(PROTOCOL, 1_000, NODES, near=3).faults != plan(PROTOCOL, 1_001, NODES, near=3).faults


def test_faults_stay_before_the_end_of_all_faults() -> None:
    duration_us, stream = 10_000, random.Random(1)
    faults = [At(9_000, Burst(0.5, 1_000)), At(5_000, Begin(1)), At(10_000, Begin(2))] * 40
    moved = shifted(stream, faults, duration_us)
    bursts = [fault for fault in moved if isinstance(fault.do, Burst)]
    assert len({fault.at_us for fault in bursts if isinstance(fault, At)}) > 5
    for fault in bursts:
        assert isinstance(fault, At)
        assert isinstance(fault.do, Burst)
        assert 0 <= fault.at_us < duration_us
        assert fault.at_us + fault.do.duration_us <= duration_us
    assert [fault for fault in moved if isinstance(fault.do, Begin)] == [
        fault for fault in sorted(faults, key=lambda each: each.at_us) if isinstance(fault.do, Begin)
    ]


def test_a_case_near_another_is_made_smaller_as_any() -> None:
    for seed in range(200):
        case = plan(PROTOCOL, seed, NODES, near=seed + 1)
        if len(case.faults) > 12 and run(PROTOCOL, case)[0].failed == "exception":
            break
    shrunk = shrink(PROTOCOL, seed, NODES, "exception", near=seed + 1)
    again = plan(PROTOCOL, seed, NODES, shrunk.cuts, near=seed + 1)
    assert run(PROTOCOL, again)[0].failed == "exception"
    begun = [fault for fault in again.faults if not is_ending(again, fault)]
    assert len(begun) < len([fault for fault in case.faults if not is_ending(case, fault)])
    assert any(isinstance(fault, At | When) for fault in case.faults)
