"""One run under a load, measured: how much was ordered, how quickly, and at what cost.

The group has `WARM_UP_US` of virtual time to form before the load begins; figures are of the time from
then on. The trace, the figures and the audit are fed from the same rows, piece by piece: a run of any
length can be traced and measured, but only one of up to `MOST_AUDITED` rows is kept for the audit.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.audit.explain import Report
from ordercast.audit.properties import audit
from ordercast.core.contract import Start
from ordercast.core.declared import Sort, together
from ordercast.core.identity import NodeId
from ordercast.sim.faults import Fault, schedule
from ordercast.sim.fuzz import without_garbage_collection
from ordercast.sim.network import NetworkConfig
from ordercast.sim.protocol import LabProtocol
from ordercast.sim.workload import Workload, drive
from ordercast.trace.metrics import Latency, Metrics, measure
from ordercast.trace.schema import Row

if TYPE_CHECKING:
    from ordercast.trace.writer import TraceWriter

WARM_UP_US = 1_000_000
"""Virtual time before the load begins: a ring forms within a few tenths of a second."""
MOST_AUDITED = 4_000_000
"""Rows kept for the audit: about 1.5 GB. A longer run is not audited, and says so."""
SLICES = 200
"""Pieces in which a run is carried out, between which progress is told."""


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """A group, its network and load, and the faults, for `conduct`."""

    nodes: int
    seconds: float
    """How long the load lasts; the run is longer by the warm-up."""
    network: NetworkConfig
    workload: Workload
    """Its start and stop are set by the experiment."""
    settings: dict[str, object] = {}
    seed: int = 0
    faults: tuple[Fault, ...] = ()
    """Their times count from the start of the run."""
    packets: bool = False
    audited: bool = True

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise ValueError(f"a group has at least one node, not {self.nodes}")
        if not 0 < self.seconds < math.inf:
            raise ValueError(f"a run takes some seconds, more than 0, not {self.seconds}")

    @property
    def end_us(self) -> int:
        """When the run ends, in virtual time."""
        return WARM_UP_US + int(self.seconds * 1_000_000)


class Figures(msgspec.Struct, kw_only=True):
    """What was measured while the load lasted."""

    experiment: Experiment
    metrics: Metrics
    utilization: float | None
    """Share of the time in which the shared medium was in use; None where there is none."""
    stats: dict[str, float]
    """The statistics that the protocol declares, of all nodes together, since the load began."""
    drops: dict[str, int]
    refused: dict[str, int]
    waited_us: float
    """How long a message waited, on average, before its machine had room for it."""
    handled: int
    """Events that machines handled in the whole run."""
    receptions: int
    """Packets among them."""
    corrupt: list[str]
    report: Report | None
    """The auditor's; None if it was not asked, or the run was too long."""
    simulating_s: float
    """Wall-clock time of the run, with tracing and measuring."""
    auditing_s: float

    @property
    def clean(self) -> bool | None:
        """Whether nothing is wrong; None if nobody looked."""
        if self.corrupt:
            return False
        return None if self.report is None else self.report.clean

    @property
    def rotation_us(self) -> dict[str, float] | None:
        """Mean and longest rotation of the token, if the protocol has one."""
        rotations = self.stats.get("rotations")
        if not rotations:
            return None
        return {
            "mean": self.stats["rotation_us_total"] / rotations,
            "max": self.stats.get("rotation_us_max", 0.0),
        }

    def as_dict(self) -> dict[str, Any]:
        """The figures as a dictionary for JSON."""
        metrics, seconds = self.metrics, self.experiment.seconds
        wall_s = self.simulating_s + self.auditing_s
        return {
            "nodes": self.experiment.nodes,
            "seconds": seconds,
            "seed": self.experiment.seed,
            "submitted": metrics.submitted,
            "ordered": metrics.ordered,
            "delivered": metrics.delivered,
            "ordered_per_s": metrics.ordered / seconds,
            "bytes_per_s": metrics.ordered_bytes / seconds,
            "latency_us": _latencies(metrics.from_submit),
            "latency_from_originate_us": _latencies(metrics.from_originate),
            "waited_us": self.waited_us,
            "rotation_us": self.rotation_us,
            "utilization": self.utilization,
            "configurations": {"regular": metrics.regular, "transitional": metrics.transitional},
            "rows": metrics.events,
            "events": self.handled,
            "receptions": self.receptions,
            "receptions_per_s": self.receptions / wall_s if wall_s else 0.0,
            "took_s": {"simulation": self.simulating_s, "audit": self.auditing_s},
            "audit": self._verdict(),
            "drops": dict(sorted(self.drops.items())),
            "refused": dict(sorted(self.refused.items())),
            "stats": dict(sorted(self.stats.items())),
        }

    def _verdict(self) -> dict[str, Any] | None:
        if self.report is None and not self.corrupt:
            return None
        report = self.report or Report()
        properties = {**report.properties, "corrupt": len(self.corrupt)}
        return {
            "clean": self.clean,
            "properties": properties,
            "violations": [violation.as_dict() for violation in report.violations],
            "corrupt": self.corrupt,
        }


def _latencies(by_guarantee: Mapping[str, Latency]) -> dict[str, dict[str, float]]:
    return {
        guarantee: {
            "mean": latency.mean_us,
            "p50": latency.p50_us,
            "p99": latency.p99_us,
            "max": latency.max_us,
            "count": latency.count,
        }
        for guarantee, latency in by_guarantee.items()
    }


def check_size(protocol: LabProtocol, experiment: Experiment) -> None:
    """Raise ValueError if the load has messages that no machine with these settings would ever take."""
    machine = protocol.make(experiment.settings)(1)
    machine.handle(0, Start(0, None, seed=0))
    largest = experiment.workload.size_to or experiment.workload.size
    if largest > machine.room:
        raise ValueError(
            f"a message of {largest} bytes is larger than the {machine.room} that {protocol.name} takes with "
            "these settings; send smaller ones, or raise its limits with --set"
        )


def conduct(
    protocol: LabProtocol,
    experiment: Experiment,
    *,
    trace: TraceWriter | None = None,
    step: Callable[[int], None] = lambda now_us: None,
) -> Figures:
    """Carry out an experiment. `step` is told the virtual time now and then."""
    check_size(protocol, experiment)
    with without_garbage_collection():
        return _Conductor(protocol, experiment, trace, step).figures()


class _Conductor:
    """Runs the world and hands its rows round."""

    def __init__(
        self,
        protocol: LabProtocol,
        experiment: Experiment,
        trace: TraceWriter | None,
        step: Callable[[int], None],
    ) -> None:
        self._protocol, self._experiment = protocol, experiment
        self._trace, self._step = trace, step
        self._kept: list[Row] | None = [] if experiment.audited else None
        self._stats: dict[tuple[NodeId, int], dict[str, float]] = {}
        self._busy_us = 0.0
        self._drops: Counter[str] = Counter()
        nodes = tuple(range(1, experiment.nodes + 1))
        self._world = protocol.world(
            experiment.settings, nodes, experiment.network, experiment.seed, packets=experiment.packets
        )

    def figures(self) -> Figures:
        world = self._world
        began = time.perf_counter()
        metrics = measure(self._rows())
        simulated = time.perf_counter()
        report = None
        if self._kept is not None:
            report = audit(self._kept, None, self._protocol.checks, one_clock=True)
        load_us = self._experiment.seconds * 1_000_000
        return Figures(
            experiment=self._experiment,
            metrics=metrics,
            utilization=(world.networks.busy_us - self._busy_us) / load_us
            if world.networks.busy_us
            else None,
            stats=self._machine_stats(),
            drops=dict(world.drops - self._drops),
            refused=dict(world.applications.refused),
            waited_us=world.applications.mean_wait_us,
            handled=world.handled,
            receptions=world.receptions,
            corrupt=[str(damage) for damage in world.applications.corrupt],
            report=report,
            simulating_s=simulated - began,
            auditing_s=time.perf_counter() - simulated,
        )

    def _rows(self) -> Iterator[Row]:
        """Let the run happen, and yield what happens."""
        world, end_us = self._world, self._experiment.end_us
        load = msgspec.structs.replace(self._experiment.workload, start_us=WARM_UP_US, stop_us=end_us)
        schedule(world, self._experiment.faults)
        drive(world, load)
        world.at(WARM_UP_US, self._load_begins)
        world.at(0, world.start)
        slice_us = max(1, end_us // SLICES)
        while world.now < end_us:
            world.run_until(min(world.now + slice_us, end_us))
            yield from self._drain()
            self._step(world.now)

    def _drain(self) -> list[Row]:
        """The rows made since the last call, to the trace and to what the audit is going to see."""
        rows = self._world.rows.copy()
        self._world.rows.clear()
        if self._trace is not None:
            self._trace.write(rows)
        if self._kept is not None:
            self._kept += rows
            if len(self._kept) > MOST_AUDITED:
                self._kept = None
        return rows

    def _load_begins(self) -> None:
        self._busy_us = self._world.networks.busy_us
        self._drops = self._world.drops.copy()
        self._stats = {(node, life): stats for node, life, stats in self._lives()}

    def _lives(self) -> Iterator[tuple[NodeId, int, dict[str, float]]]:
        for node, host in self._world.hosts.items():
            if host.machine is not None:
                yield node, host.incarnation, dict(host.machine.stats)

    def _machine_stats(self) -> dict[str, float]:
        """What the machines that live now have counted since the load began."""
        declared = self._protocol.product.statistics
        counts = {each.name for each in declared if each.sort is Sort.COUNT}
        since = []
        for node, life, stats in self._lives():
            before = self._stats.get((node, life), {})
            since.append(
                {
                    name: value - before.get(name, 0.0) if name in counts else value
                    for name, value in stats.items()
                }
            )
        return together(declared, since)
