"""Makes a failing case smaller: fewer faults, fewer nodes, a shorter run, and it still fails.

Every candidate is run. One that breaks the same property takes the place of what it was made from;
only if no candidate does is any failure good enough. Runs and time are bounded, so the answer is small,
not smallest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from ordercast.sim.fuzz import Case, Cuts, Result, cut, is_ending, plan, run
from ordercast.sim.protocol import LabProtocol

MOST_RUNS = 300
MOST_S = 60.0
GRAIN_US = 1_000
"""Times are rounded to this: they are read by people."""


class Shrunk(NamedTuple):
    """A smaller case that fails."""

    cuts: Cuts
    property: str
    case: Case
    runs: int
    """How many candidates were run."""


def shrink(
    protocol: LabProtocol,
    seed: int,
    nodes: tuple[int, int],
    wanted: str,
    *,
    most_runs: int = MOST_RUNS,
    most_s: float = MOST_S,
    step: Callable[[int], None] = lambda runs: None,
    near: int | None = None,
) -> Shrunk:
    """Cuts with which the case of `seed` still breaks the property `wanted`.

    `step` is told the number of runs so far, for a progress bar. `near` is as for `plan`.
    """
    drawn = plan(protocol, seed, nodes, near=near)
    budget = _Budget(most_runs, time.monotonic() + most_s, step)
    raised = _raised(run(protocol, drawn)[0])

    def as_wanted(result: Result) -> bool:
        return broke(result, wanted) and _raised(result) == raised

    found = _Search(protocol, drawn, budget, as_wanted).smallest()
    if found == _all(drawn):
        found = _Search(protocol, drawn, budget, lambda result: result.failed is not None).smallest()
    cuts = _plain(drawn, found)
    case = cut(drawn, cuts)
    again, _ = run(protocol, case)
    named = wanted if broke(again, wanted) else again.failed or wanted
    return Shrunk(cuts, named, case, budget.runs)


def broke(result: Result, wanted: str) -> bool:
    """Whether a run broke that property."""
    return wanted in result.violations or (wanted == "live-membership" and not result.converged)


def _raised(result: Result) -> str | None:
    """What sort of exception ended a run: one of another sort is another failure."""
    if "exception" not in result.violations:
        return None
    return result.sentences[0].partition(":")[0]


def _all(case: Case) -> Cuts:
    """Cuts that leave everything, said in full."""
    drawn = tuple(i for i, fault in enumerate(case.faults) if not is_ending(case, fault))
    return Cuts(members=case.nodes, faults=drawn, duration_us=case.duration_us)


def _plain(case: Case, cuts: Cuts) -> Cuts:
    """The cuts without the fields that cut nothing."""
    whole = _all(case)
    return Cuts(
        members=None if cuts.members == whole.members else cuts.members,
        faults=None if cuts.faults == whole.faults else cuts.faults,
        duration_us=None if cuts.duration_us == whole.duration_us else cuts.duration_us,
    )


class _Budget:
    """How much may be tried, over all searches for one case."""

    def __init__(self, most_runs: int, until: float, step: Callable[[int], None]) -> None:
        self.runs = 0
        self._most_runs, self._until, self._step = most_runs, until, step

    @property
    def spent(self) -> bool:
        return self.runs >= self._most_runs or time.monotonic() > self._until

    def spend(self) -> None:
        self.runs += 1
        self._step(self.runs)


class _Search:
    """The smallest cuts so far, made smaller in one respect after another until nothing helps."""

    def __init__(
        self, protocol: LabProtocol, drawn: Case, budget: _Budget, fails: Callable[[Result], bool]
    ) -> None:
        self._protocol, self._drawn, self._budget, self._fails = protocol, drawn, budget, fails
        self._known: set[Cuts] = set()
        self._best = _all(drawn)

    def smallest(self) -> Cuts:
        """Faults first: they are most of a case. Then nodes and time, and the faults again."""
        before = None
        while before != self._best and not self._budget.spent:
            before = self._best
            self._fewer_faults()
            self._fewer_members()
            self._shorter()
        return self._best

    def _accept(self, **change: object) -> bool:
        """Take a candidate if it fails as well. One that was tried before, or is past the budget, is not."""
        candidate: Cuts = msgspec.structs.replace(self._best, **change)
        if candidate in self._known or self._budget.spent:
            return False
        self._known.add(candidate)
        self._budget.spend()
        result, _ = run(self._protocol, cut(self._drawn, candidate))
        if not self._fails(result):
            return False
        self._best = candidate
        return True

    def _fewer_faults(self) -> None:
        """Delta debugging: all of them, then halves, quarters and so on down to single ones.

        A piece that can go is gone at once, and the sweep goes on with the next: that takes fewer runs
        than ddmin's fresh start, and single faults are tried again in the next round anyhow.
        """
        size = len(self._best.faults or ())
        while size:
            stop = len(self._best.faults or ())
            while stop > 0:  # from the end: later faults matter less to what has happened before them
                faults = self._best.faults or ()
                start = max(0, stop - size)
                self._accept(faults=(*faults[:start], *faults[stop:]))
                stop = start
            size //= 2

    def _fewer_members(self) -> None:
        for node in reversed(self._drawn.nodes):
            rest = tuple(member for member in self._best.members or () if member != node)
            if rest and rest != self._best.members:
                self._accept(members=rest)

    def _shorter(self) -> None:
        """Down to an eighth at a step, as long as that works."""
        for eighths in (1, 2, 4, 6, 7):
            duration_us = (self._best.duration_us or 0) * eighths // 8 // GRAIN_US * GRAIN_US
            if duration_us and self._accept(duration_us=duration_us):
                return
