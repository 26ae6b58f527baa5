"""The most that members of a group keep: a load as usual, looked at whenever anybody sends a packet.

`most_messages` and `most_places` are the most messages, and the most places that were given out, that any
member kept at once (002 §4.2, "Flow control and buffer space").
"""

from __future__ import annotations

from typing import Any

from ordercast.lab.grid import Method, Outcome, Run
from ordercast.lab.under_load import Bench, check_size, cost
from ordercast.sim.fuzz import without_garbage_collection
from ordercast.trace.writer import TraceWriter


class _HoldingBench(Bench):
    def __init__(self, run: Run, trace: TraceWriter | None) -> None:
        super().__init__(run, trace)
        self.most_messages = self.most_places = 0

    def load(self, begin_us: int) -> None:
        """As usual; from now on it is looked at."""
        super().load(begin_us)
        self.world.watch_sent(self._look)

    def _look(self, node: int, kind: str | None) -> None:
        for host in self.world.hosts.values():
            machine: Any = host.machine
            order = None if machine is None else machine.orderer.order
            if order is not None:
                self.most_messages = max(self.most_messages, len(order.BUF))
                self.most_places = max(self.most_places, len(order.places))


def conduct(run: Run, trace: TraceWriter | None = None) -> Outcome:
    """Carry out a run of a protocol of the sequencer family."""
    check_size(run)
    with without_garbage_collection():
        bench = _HoldingBench(run, trace)
        outcome = bench.outcome()
    outcome.figures["most_messages"] = float(bench.most_messages)
    outcome.figures["most_places"] = float(bench.most_places)
    return outcome


METHOD = Method(conduct, cost)
