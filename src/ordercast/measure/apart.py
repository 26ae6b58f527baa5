"""Several rings of the same nodes that nothing joins: a process for each node and ring, groups for each ring.

A group on one ring pays nothing for the others but what the machine has to share. There is one order on each
ring, and none between them.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from ordercast.measure.bench import Plan, Processes, Result, Tell, begin, finish, form, measure
from ordercast.measure.netns import Namespaces
from ordercast.measure.rings import port_of


class Apart(msgspec.Struct, kw_only=True):
    """What rings beside each other do, and what one ring of these nodes does alone."""

    rings: list[Result]
    """Under load at the same time."""
    one: Result
    """The same load on one ring, with nothing beside it."""

    @property
    def together_per_s(self) -> float:
        """Messages that all rings together order in a second."""
        return sum(result.ordered_per_s for result in self.rings)

    @property
    def good(self) -> bool:
        """Nothing was reordered or lost on any ring."""
        return all(result.good for result in (*self.rings, self.one))

    def as_dict(self) -> dict[str, Any]:
        """For programs: the names are part of the interface of `ordercast bench`."""
        return {
            "together_per_s": round(self.together_per_s, 1),
            "rings": [result.as_dict() for result in self.rings],
            "one": self.one.as_dict(),
        }


def measure_apart(plan: Plan, rings: int, tell: Tell = lambda _: None) -> Apart:
    """Measure one ring by itself, and then so many at the same time; `plan` is that of each."""
    if rings < 2 or plan.rings != 1:
        raise ValueError(f"{rings} rings apart: take at least 2, and a plan of one ring for each")
    if plan.kill_one or plan.stop_one or plan.cut_one or not plan.impairments.none:
        raise ValueError("rings apart are measured without faults: measure these on one ring")
    one = measure(plan, tell)
    with ExitStack() as stack:
        network = stack.enter_context(Namespaces(plan.nodes)) if plan.netns else None
        all_processes = []
        for number in range(1, rings + 1):
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ordercast-bench-")))
            processes = Processes(plan, work, network, port_of(number))
            stack.callback(processes.end)
            all_processes.append(processes)
        tell(f"starting {rings} rings of the same {plan.nodes} nodes, a process for each node and ring")
        formed = [form(plan, processes, tell) for processes in all_processes]
        begin(worker for workers in formed for worker in workers)
        results = [
            finish(plan, processes, workers, None, tell)
            for processes, workers in zip(all_processes, formed, strict=True)
        ]
    return Apart(rings=results, one=one)
