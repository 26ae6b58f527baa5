"""The messages of a trace sent again, at the same nodes and times, by another protocol, or by the same one.

What is measured are the messages of every other block of the trace's window (`ordercast.lab.traced`): those
from which nothing was estimated; or, while a model is estimated, those of the blocks between.
"""

from __future__ import annotations

import random

from ordercast.core.identity import Guarantee, NodeId
from ordercast.lab.grid import GridError, Method, Outcome, Run
from ordercast.lab.metrics import Window
from ordercast.lab.steady_load import SteadyBench
from ordercast.lab.traced import Arrival, Stretch, arrivals
from ordercast.lab.under_load import check_size
from ordercast.lab.under_load import cost as cost_under_load
from ordercast.sim.fuzz import without_garbage_collection
from ordercast.trace.writer import TraceWriter

PATIENCE_US = 1_000
"""How long a late application waits for its node to do something, at most: the resolution of timers of an
event loop."""


BURST_US = 200
"""Messages that come within this time are the work of one turn of an event loop: they are late together."""


def stretch_of_run(run: Run) -> Stretch:
    """The window of the trace that a run repeats."""
    labels = run.labels
    return Stretch(str(labels["like"]), str(labels["of"]), int(labels["begins_us"]), int(labels["ends_us"]))


class BlockWindow(Window):
    """Every other block of a window."""

    def __init__(self, block_us: int, tested: bool) -> None:
        super().__init__()
        self._block_us, self._tested = block_us, tested

    def holds(self, time_us: int) -> bool:
        """Whether a time is within one of the blocks."""
        block = (time_us - self.begin_us) // self._block_us
        return super().holds(time_us) and block % 2 == self._tested

    @property
    def length_us(self) -> int:
        """How long the blocks are together."""
        blocks = super().length_us // self._block_us
        return (blocks + (not self._tested)) // 2 * self._block_us


class _Replay(SteadyBench):
    def __init__(self, run: Run, trace: TraceWriter | None) -> None:
        self._stretch = stretch_of_run(run)
        tested = run.labels["part"] == "tested"
        super().__init__(run, trace, window=BlockWindow(self._stretch.block_us, tested))
        self._late = float(run.labels["late"])
        self._stream = random.Random(f"{run.seed}/late").random
        self._held: dict[NodeId, list[Arrival]] = {node: [] for node in self.world.nodes}
        """Messages of applications that do not have the processor."""
        self._burst = dict.fromkeys(self.world.nodes, (-PATIENCE_US, False))
        """When the latest burst of messages began, and whether its application was late."""

    def load(self, begin_us: int) -> None:
        """The arrivals of the trace."""
        self.world.watch_sent(self._did_something)
        coming = iter(arrivals(self._stretch))

        def schedule_next() -> None:
            arrival = next(coming, None)
            if arrival is not None:
                self.world.at(begin_us + arrival.at_us, lambda: arrive(arrival))

        def arrive(arrival: Arrival) -> None:
            self._arrive(arrival)
            schedule_next()

        schedule_next()

    def _arrive(self, arrival: Arrival) -> None:
        """An application has a message; it may have to wait until its event loop turns."""
        node, held = arrival.node, self._held[arrival.node]
        begun_us, late = self._burst[node]
        if self.world.now - begun_us >= BURST_US:
            late = self._stream() < self._late
            self._burst[node] = self.world.now, late
        if not (held or late):
            self._submit(arrival)
            return
        held.append(arrival)
        if len(held) == 1:
            self.world.at(self.world.now + PATIENCE_US, lambda: self._release(node))

    def _did_something(self, node: NodeId, kind: str | None) -> None:
        """A node sends a packet: its event loop turns, and comes to the application behind that."""
        if self._held[node]:
            self.world.at(self.world.now, lambda: self._release(node))

    def _release(self, node: NodeId) -> None:
        held, self._held[node] = self._held[node], []
        for arrival in held:
            self._submit(arrival)

    def _submit(self, arrival: Arrival) -> None:
        guarantee = Guarantee.SAFE if arrival.safe else Guarantee.AGREED
        self.world.applications.submit(arrival.node, arrival.size, guarantee)


def conduct(run: Run, trace: TraceWriter | None = None) -> Outcome:
    """Carry out a run."""
    check_size(run)
    with without_garbage_collection():
        bench = _Replay(run, trace)
        outcome = bench.outcome()
    outcome.figures["refused"] = bench.world.applications.refused["queue full"] / 2
    return outcome


def check(run: Run) -> None:
    """Raise GridError if it cannot be run."""
    run.check()
    missing = {"like", "of", "begins_us", "ends_us", "late", "part"} - set(run.labels)
    if missing:
        raise GridError(f"{run.summary}: its labels do not say {', '.join(sorted(missing))}")


def cost(run: Run) -> float:
    """Seconds of one processor, from what was seen of such runs."""
    return cost_under_load(run)


METHOD = Method(conduct, cost, check)
