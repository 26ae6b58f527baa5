"""Whatever the reference finds in a whole run is found while it comes slice by slice, and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from random import Random

import msgspec
import pytest
from planting import OF_RINGS, PLANTS, broken, right_runs, swap_deliveries

from hunts import rounds
from ordercast.audit.explain import Violation
from ordercast.audit.follow.checkpoint import WindowState, state_of, window_of
from ordercast.audit.follow.window import Window
from ordercast.audit.properties import PROMISES, audit
from ordercast.catalogue import fuzzed_protocol
from ordercast.sim.fuzz import plan, run
from ordercast.trace.schema import Row, TraceError

PATIENCE_S = 3.0
BETWEEN_S = 0.5
HEALED_LATE = {"deliver-originated", "uniform-integrity", "uniform-order"}
"""Broken until a message is originated long after it was delivered, or a failure excuses a life long after it
delivered otherwise than others: the reference compares no times."""


def slices(rng: Random, rows: list[Row]) -> Iterator[list[Row] | None]:
    """The run as it is written: some nodes' rows are further than others'. None: time passes."""
    by_node: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_node[row[0]].append(row)
    for its in by_node.values():
        its.sort(key=lambda row: (row[1], row[2]))
    begin, end = min(row[3] for row in rows), max(row[3] for row in rows)
    width = (end - begin) / rng.choice((5, 20, 60))
    done = dict.fromkeys(by_node, 0)
    now: float = begin
    while now < end:
        now += width * 2 * rng.random()
        for node, its in by_node.items():
            start, limit = done[node], now + width * (2 * rng.random() - 1)
            while done[node] < len(its) and its[done[node]][3] <= limit:
                done[node] += 1
            yield its[start : done[node]]
        yield None
    for node, its in by_node.items():
        yield its[done[node] :]


def followed(
    rng: Random, promises: str, rows: list[Row], restarts: float = 0.1
) -> tuple[Window, set[str], int]:
    """The window after a run that came in slices, with restarts; what was told; and the most it held."""
    window = Window("r", {"promises": promises, "clock": "one"}, PATIENCE_S)
    told: list[Violation] = []
    now, most = 0.0, 0
    for piece in slices(rng, rows):
        if piece is not None:
            window.add(piece)
            continue
        now += BETWEEN_S
        told += window.judge(now)
        most = max(most, window.held)
        if rng.random() < restarts:
            stored = msgspec.msgpack.encode(state_of(window))
            window = window_of(msgspec.msgpack.decode(stored, type=WindowState), PATIENCE_S, None)
    told += window.judge(now + BETWEEN_S, ended=True)
    assert len({(each.property, each.culprit) for each in told}) == len(told), "each culprit is told once"
    return window, {each.property for each in told}, most


def broken_properties(promises: str, rows: list[Row]) -> set[str]:
    report = audit(rows, None, PROMISES[promises], one_clock=True)
    return {code for code, count in report.properties.items() if count}


@pytest.mark.campaign
@pytest.mark.parametrize("protocol", ["totem", "rings", "total", "rbp", "irbp", "primary-backup"])
def test_what_is_planted_is_told_and_nothing_where_nothing_is(protocol: str) -> None:
    seeds = range(3, 3 + rounds(1, 40))
    for name, promises, rows in right_runs(seeds, [protocol]):
        rng = Random(name)
        assert followed(rng, promises, rows)[1] == set(), name
        for plant in PLANTS:
            made = broken(rng, rows, plant)
            if made is None or (plant in OF_RINGS and protocol != "rings"):
                continue
            try:
                wrong = broken_properties(promises, made)
                told = followed(rng, promises, made)[1]
            except TraceError:
                continue  # a row says nothing of its message
            case = (name, plant.__name__, wrong, told)
            assert bool(told) >= bool(wrong), case
            assert wrong or told <= HEALED_LATE, case


@pytest.mark.campaign
@pytest.mark.parametrize("protocol", ["totem+groups", "rings+groups", "trmp", "pinwheel", "dtp", "cm"])
def test_right_runs_are_clean(protocol: str) -> None:
    which = fuzzed_protocol(protocol)
    for seed in range(100, 100 + rounds(4, 200)):
        _, world = run(which, plan(which, seed, (6, 7) if protocol.startswith("rings") else (3, 5)))
        assert followed(Random(seed), which.heading["promises"], world.rows)[1] == set(), seed


def test_little_is_held_however_long_a_run_is() -> None:
    [(_, promises, rows)] = right_runs([1], ["totem"])
    window, told, most = followed(Random(1), promises, rows, restarts=0)
    assert not told
    assert window.events == len(rows)
    assert most < len(rows) / 4
    assert window.held < 20


def test_a_culprit_is_told_once_with_how_often() -> None:
    [(_, promises, rows)] = right_runs([1], ["totem"])
    rng = Random(4)
    for _ in range(4):
        rows = swap_deliveries(rng, rows) or rows
    window, told, _ = followed(rng, promises, rows)
    report = audit(rows, None, PROMISES[promises], one_clock=True)
    assert told == {code for code, count in report.properties.items() if count}
    assert {code for code, count in window.counts.items() if count} == told
    assert all(each.run == "r" for each in window.told.values())
