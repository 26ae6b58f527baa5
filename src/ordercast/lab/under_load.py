"""A group under load, measured: the usual way to carry out a run.

The group has a second of virtual time to form, as in ``ordercast sim run``; then the load begins. Where
`Run.messages` says how many messages are measured, the load goes on until each of them is stable at every
node, so that the last ones live in the same traffic as the first. Where `Run.seconds` says for how long, the
load ends then, and the run when everything is settled or `DRAIN_US` have passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ordercast.catalogue import lab_protocol as protocol_called
from ordercast.core.contract import Start
from ordercast.core.declared import Sort, together
from ordercast.lab.grid import GridError, Method, Outcome, Run
from ordercast.lab.metrics import Audience, Meter, Traffic, Window
from ordercast.sim.faults import schedule
from ordercast.sim.fuzz import without_garbage_collection
from ordercast.sim.network import Ethernet
from ordercast.sim.workload import drive
from ordercast.sim.world import World
from ordercast.trace.schema import Row
from ordercast.trace.writer import TraceWriter

WARM_UP_US = 1_000_000
"""Virtual time before the load begins."""
DRAIN_US = 2_000_000
"""How long what was measured may take to settle once the load has ended."""
SLICE_US = 100_000
"""Virtual time between two looks at the rows."""
OVERRUN_FACTOR = 5
"""A run that takes so many times as long as its load should take is ended, and says so."""


def conduct(run: Run, trace: TraceWriter | None = None) -> Outcome:
    """Carry out a run."""
    check_size(run)
    with without_garbage_collection():
        return Bench(run, trace).outcome()


def in_one_configuration(world: World) -> bool:
    """Whether all nodes of a world have installed the same configuration last."""
    installed = {host.configuration for host in world.hosts.values()}
    return len(installed) == 1 and None not in installed


def check_size(run: Run) -> None:
    """Raise GridError if the protocol does not take such large messages."""
    machine = protocol_called(run.protocol).make(run.settings)(1)
    machine.handle(0, Start(0, None, seed=0))
    largest = run.size_to or run.size
    if largest > machine.room:
        raise GridError(
            f"{run.summary}: a message of {largest} bytes is larger than the {machine.room} that "
            f"{run.protocol} takes with these settings; send smaller ones, or raise its limits"
        )


class Bench:
    """The world of one run, and what measures it."""

    def __init__(
        self,
        run: Run,
        trace: TraceWriter | None,
        *,
        lead_us: int = 0,
        audience: Audience | None = None,
        window: Window | None = None,
    ) -> None:
        """The load begins `lead_us` before the measurement, where that is one of seconds. The `window` says
        which messages are measured, if not all of it.

        `audience` says which nodes need a message, by the groups that it is addressed to; None: all do.
        """
        self._run, self._trace = run, trace
        protocol = protocol_called(run.protocol)
        members = tuple(range(1, run.nodes + 1))
        self.world = protocol.world(run.settings, members, run.network_config, run.seed)
        self._lead_us = lead_us
        self._window = window or Window(skip=run.skip, messages=run.messages)
        self._meter = Meter(run.nodes, self._window, run.bucket_us, audience)
        self._traffic = Traffic(protocol.product.kinds.values())
        self._statistics = protocol.product.statistics
        self._marks: list[dict[str, float]] = []
        """Running figures at the beginning and the end of the measurement."""
        self._stage = 0

    def outcome(self) -> Outcome:
        """Carry the run out, and tell what came of it."""
        run, world = self._run, self.world
        schedule(world, run.parsed_faults)
        world.at(0, world.start)
        self.form()
        self._require_group()
        begin_us, window = world.now, self._window
        window.begin_us = begin_us + self._lead_us
        if run.seconds is not None:
            window.end_us = window.begin_us + int(run.seconds * 1_000_000)
        self.load(begin_us)
        world.watch_sent(self._sent)
        self._carry_on()
        if len(self._marks) == 1:  # nobody has sent anything since the measurement ended
            self._marks.append(self._mark())
        figures = self._meter.figures()
        messages = figures["measured"] if run.messages is not None else float(self._meter.ordered)
        figures |= self._traffic.figures(run.nodes, messages)
        figures |= self._running(figures["window_us"])
        return Outcome(figures=figures, histograms=_plain(self._meter.histograms), notes=self._notes(figures))

    def load(self, begin_us: int) -> None:
        """Have the applications follow the load from then on."""
        load = msgspec.structs.replace(self._run.workload, start_us=begin_us, stop_us=self._window.end_us)
        drive(self.world, load)

    def form(self) -> None:
        """Let the group form before the load begins."""
        self.until(WARM_UP_US)

    @property
    def formed(self) -> bool:
        """Whether all nodes are in one configuration."""
        return in_one_configuration(self.world)

    def _require_group(self) -> None:
        """A load on a group that has not formed would measure the forming."""
        if not self.formed and not self._run.faults:
            raise GridError(
                f"{self._run.summary}: the group had not formed after {self.world.now // 1000} ms; "
                "its timeouts do not fit so many nodes, or so slow a network"
            )

    def _carry_on(self) -> None:
        """Until everything measured is settled, or it takes far too long."""
        run, world, meter = self._run, self.world, self._meter
        expected_us = (run.seconds or (run.skip + (run.messages or 0)) / run.rate) * 1_000_000
        latest_us = world.now + int(OVERRUN_FACTOR * expected_us) + 60_000_000
        if run.seconds is not None:
            assert self._window.end_us is not None
            self.until(self._window.end_us)
            latest_us = world.now + DRAIN_US
        while not meter.complete and world.now < latest_us:
            self.until(world.now + SLICE_US)

    def see(self, rows: Iterable[Row]) -> None:
        """What happened next, for a bench that measures more."""

    def until(self, time_us: int) -> None:
        """Carry on until that time, and measure what happens."""
        world = self.world
        while world.now < time_us:
            world.run_until(min(time_us, world.now + SLICE_US))
            self._meter.take(world.rows)
            self.see(world.rows)
            if self._trace is not None:
                self._trace.write(world.rows)
            world.rows.clear()

    def _sent(self, node: int, kind: str | None) -> None:
        """A packet is sent: counted while the measurement lasts, which the world knows to the message."""
        run, world = self._run, self.world
        if run.messages is not None:
            accepted = world.applications.accepted
            stage = (accepted > run.skip) + (accepted > run.skip + run.messages)
        else:
            assert self._window.end_us is not None
            stage = (world.now >= self._window.begin_us) + (world.now >= self._window.end_us)
        if stage != self._stage:
            self._stage = stage
            self._marks.append(self._mark())
        if stage == 1:
            self._traffic.sent[node, kind or "?"] += 1

    def _mark(self) -> dict[str, float]:
        world = self.world
        machines = [host.machine.stats for host in world.hosts.values() if host.machine is not None]
        marked = {"busy_us": world.networks.busy_us}
        marked |= {f"stats/{name}": value for name, value in together(self._statistics, machines).items()}
        marked |= {f"drops/{reason}": float(count) for reason, count in world.drops.items()}
        return marked

    def _running(self, window_us: float) -> dict[str, float]:
        """What the world and the machines counted during the measurement alone."""
        if len(self._marks) < 2 or not window_us:
            return {}
        first, last = self._marks[:2]
        levels = {f"stats/{each.name}" for each in self._statistics if each.sort is not Sort.COUNT}
        found = {
            name: last[name] - (0.0 if name in levels else first.get(name, 0.0)) for name in sorted(last)
        }
        found["utilization"] = found.pop("busy_us") / window_us
        if rotations := found.get("stats/rotations"):
            found["rotation_us"] = found["stats/rotation_us_total"] / rotations
        return found

    def _notes(self, figures: dict[str, float]) -> list[str]:
        world = self.world
        notes = [f"damaged on its way: {damage}" for damage in world.applications.corrupt[:3]]
        if figures["unsettled"]:
            notes.append(
                f"{figures['unsettled']:,.0f} of {figures['measured']:,.0f} measured messages were not "
                "stable at every node when the run ended; times are of the others"
            )
        refused = {reason: count for reason, count in world.applications.refused.items() if count}
        if refused:
            notes.append(f"messages that no machine had room for: {refused}")
        return notes


def _plain(histograms: Mapping[str, Mapping[int, int]]) -> dict[str, dict[int, int]]:
    return {name: dict(sorted(counts.items())) for name, counts in sorted(histograms.items())}


def cost(run: Run) -> float:
    """Seconds of one processor, from what was seen of such runs: packets heard, and tokens passed."""
    if run.arrivals == "saturating":
        messages = (run.seconds or 1.0) * 5_000
    else:
        messages = run.skip + (run.messages or run.rate * (run.seconds or 0.0))
    heard_us = 40.0 if run.protocol == "totem" else 45.0
    total_us = messages * run.nodes * heard_us
    if run.protocol == "totem":
        seconds = run.seconds or messages / run.rate
        total_us += seconds * 1_000_000 / _hop_us(run) * 20.0
    return total_us / 1_000_000


def _hop_us(run: Run) -> float:
    """How long a token is on its way from one node to the next."""
    network = run.network_config
    own_us = network.unicast_us + network.send_us
    if isinstance(network, Ethernet):
        return own_us + network.propagation_us + 120 * 8 * 1_000_000 / network.bits_per_s
    return own_us + getattr(network, "base_us", 50) + getattr(network, "tail_us", 30)


METHOD = Method(conduct, cost)
