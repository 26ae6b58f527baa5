"""A group in the middle of its load, measured: the latency that its users see once it runs.

Other than in `ordercast.lab.under_load`, the load has lasted for a while when the measurement begins, so that
a group that cannot carry it shows that: fewer messages are delivered than are submitted, or refused.
"""

from __future__ import annotations

from ordercast.lab.grid import GridError, Method, Outcome, Run
from ordercast.lab.under_load import Bench, check_size
from ordercast.lab.under_load import cost as cost_under_load
from ordercast.sim.fuzz import without_garbage_collection
from ordercast.trace.writer import TraceWriter

FORMING_US = 5_000_000
"""How long the nodes may take to form one group,"""
LOOK_US = 50_000
"""and how often it is looked whether they have."""
SETTLE_US = 200_000
"""From then on until the load begins."""


def lead_us(run: Run) -> int:
    """How long the load lasts before the measurement begins: half as long as that."""
    return int((run.seconds or 0.0) * 500_000)


class SteadyBench(Bench):
    """The world of one run, whose group is given the time to form that nodes with a node's timeouts need."""

    def form(self) -> None:
        """Until all are in one configuration."""
        while not self.formed and self.world.now < FORMING_US:
            self.until(self.world.now + LOOK_US)
        self.until(self.world.now + SETTLE_US)


def conduct(run: Run, trace: TraceWriter | None = None) -> Outcome:
    """Carry out a run."""
    check_size(run)
    with without_garbage_collection():
        bench = SteadyBench(run, trace, lead_us=lead_us(run))
        outcome = bench.outcome()
    measured_share = run.seconds / (run.seconds + lead_us(run) / 1e6) if run.seconds else 1.0
    outcome.figures["refused"] = bench.world.applications.refused["queue full"] * measured_share
    return outcome


def check(run: Run) -> None:
    """Raise GridError if it cannot be run."""
    run.check()
    if run.seconds is None:
        raise GridError(f"{run.summary}: a steady load lasts for some seconds")


def cost(run: Run) -> float:
    """Seconds of one processor, from what was seen of such runs."""
    return 1.5 * cost_under_load(run)


METHOD = Method(conduct, cost, check)
