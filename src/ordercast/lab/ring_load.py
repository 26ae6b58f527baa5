"""A ring under load whose flow control is looked at: how evenly each member sends, and what disturbs it.

Beside what any load measures: `rate_variation`, how much what one member broadcasts differs from one
interval of `INTERVAL_US` to the next, and `share_variation`, how much what members broadcast within one
interval differs between them; both are deviation over mean.

A run may say in its labels: ``rule``, by which members share the window (`BACKLOG`, or `TIMED`, which stands
in for FDDI's); ``foreign``, packets a second on the network that are none of the ring's.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

from ordercast.core.identity import NodeId
from ordercast.lab.grid import Method, Outcome, Run
from ordercast.lab.metrics import variation
from ordercast.lab.under_load import Bench, check_size, cost
from ordercast.sim.fuzz import without_garbage_collection
from ordercast.sim.running_networks import exponential
from ordercast.timed_token import share_by_timed_token
from ordercast.trace.columns import EVENT, NODE, TIME_US
from ordercast.trace.schema import Row
from ordercast.trace.writer import TraceWriter

BACKLOG, TIMED = "by backlog", "timed token"
INTERVAL_US = 5_000
FOREIGN_BYTES, FOREIGN_BURST = 1_400, 16
"""Size of a packet that is none of the ring's, and how many come at once: some 22 KB, as of a file's."""


class _RingBench(Bench):
    def __init__(self, run: Run, trace: TraceWriter | None) -> None:
        super().__init__(run, trace)
        self._broadcast: Counter[tuple[NodeId, int]] = Counter()
        """Messages that a member broadcast in an interval."""

    def form(self) -> None:
        """As usual; then the rule by which the window is shared takes effect, and others begin to send."""
        super().form()
        if self._run.labels.get("rule") == TIMED:
            for host in self.world.hosts.values():
                share_by_timed_token(host.machine)
        if foreign := float(self._run.labels.get("foreign", 0.0)):
            self._disturb(FOREIGN_BURST * 1_000_000 / foreign)

    def _disturb(self, gap_us: float) -> None:
        """Bursts of packets that no machine can read, at exponential distances, from now on."""
        world, draw = self.world, random.Random(f"{self._run.seed}/foreign").random
        (network,) = world.networks.values()
        number = 0

        def send() -> None:
            nonlocal number
            number += 1
            # All but one host hear it, each time another one: as many as hear a packet of the ring.
            source = world.nodes[number % len(world.nodes)]
            for _ in range(FOREIGN_BURST):
                network.multicast(world.now, source, bytes(FOREIGN_BYTES))
            world.at(world.now + max(1, int(exponential(draw()) * gap_us)), send)

        world.at(world.now, send)

    def see(self, rows: Iterable[Row]) -> None:
        """Count what members broadcast for the first time."""
        for row in rows:
            if row[EVENT] == "originate" and self._window.holds(row[TIME_US]):
                self._broadcast[row[NODE], row[TIME_US] // INTERVAL_US] += 1

    def evenness(self) -> dict[str, float]:
        """How evenly members sent, in the intervals that are whole."""
        intervals = {interval for _, interval in self._broadcast}
        whole = range(min(intervals, default=0) + 1, max(intervals, default=0))
        sent = {node: [self._broadcast[node, each] for each in whole] for node in self.world.nodes}
        if not whole:
            return {}
        at_once = [variation(counts) for counts in zip(*sent.values(), strict=True)]
        return {
            "rate_variation": sum(variation(counts) for counts in sent.values()) / len(sent),
            "share_variation": sum(at_once) / len(at_once),
        }


def conduct(run: Run, trace: TraceWriter | None = None) -> Outcome:
    """Carry out a run."""
    check_size(run)
    with without_garbage_collection():
        bench = _RingBench(run, trace)
        outcome = bench.outcome()
    outcome.figures = {"drops/overflow": 0.0, **outcome.figures, **bench.evenness()}
    return outcome


METHOD = Method(conduct, cost)
