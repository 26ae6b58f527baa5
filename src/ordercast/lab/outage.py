"""For how long a group delivers nothing when one of its members crashes, and when it comes back.

A node crashes under load, and after `AWAY_US` its next life comes back to the group. Both times the longest
silence at a node that was there throughout is taken. The crash is that of a whole machine: where only a
process ends, the transports of the others are told by its system, and notice it sooner.
"""

from __future__ import annotations

import msgspec

from ordercast.catalogue import lab_protocol as protocol_called
from ordercast.lab.change_meter import ChangeMeter
from ordercast.lab.grid import GridError, Method, Outcome, Run
from ordercast.lab.steady_load import FORMING_US
from ordercast.lab.under_load import in_one_configuration
from ordercast.sim.fuzz import without_garbage_collection
from ordercast.sim.workload import drive
from ordercast.sim.world import World
from ordercast.trace.writer import TraceWriter

SLICE_US = 20_000
LEAD_US = 300_000
"""How long the load lasts before the crash; and 7,770 µs longer for each seed, so that no two crashes come at
the same place of a rotation."""
AWAY_US = 1_000_000
"""How long the node is away once the others go on without it."""
LONGEST_US = 20_000_000
"""What takes longer is over without having come to its end."""


class _Story:
    """One run, as it happens."""

    def __init__(self, run: Run, trace: TraceWriter | None) -> None:
        self.run, self.trace = run, trace
        protocol = protocol_called(run.protocol)
        self.everybody = tuple(range(1, run.nodes + 1))
        self.world: World = protocol.world(run.settings, self.everybody, run.network_config, run.seed)
        self.victim = int(run.labels["victim"])
        self.stayed = tuple(node for node in self.everybody if node != self.victim)

    def until(self, time_us: int, meter: ChangeMeter | None = None) -> bool:
        """Carry on until that time, or what is measured is over; whether it is."""
        world = self.world
        while world.now < time_us and not (meter is not None and meter.over):
            world.run_until(min(time_us, world.now + SLICE_US))
            if meter is not None:
                meter.take(world.rows)
            if self.trace is not None:
                self.trace.write(world.rows)
            world.rows.clear()
        return meter is not None and meter.over

    def tell(self) -> Outcome:
        """Let it happen."""
        run, world = self.run, self.world
        world.at(0, world.start)
        while not in_one_configuration(world):
            if world.now >= FORMING_US:
                raise GridError(f"{run.summary}: the group had not formed after {world.now // 1000} ms")
            self.until(world.now + SLICE_US)
        drive(world, msgspec.structs.replace(run.workload, start_us=world.now))
        self.until(world.now + LEAD_US + 7_770 * run.seed)
        figures: dict[str, float] = {}
        gone = self._measured("crash", self.stayed, figures)
        self.until(world.now + AWAY_US)
        back = self._measured("return", self.everybody, figures) if gone else False
        notes = []
        if not back:
            what = "return" if gone else "crash"
            notes.append(f"no recovery from the {what} of node {self.victim} in {LONGEST_US // 1_000_000} s")
        notes += [f"damaged on its way: {damage}" for damage in world.applications.corrupt[:3]]
        return Outcome(figures=figures, notes=notes)

    def _measured(self, what: str, expected: tuple[int, ...], figures: dict[str, float]) -> bool:
        """Let one thing happen to the victim, and measure until all go on; whether they did."""
        world = self.world
        meter = ChangeMeter(expected, self.stayed, world.now)
        if what == "crash":
            world.crash(self.victim)
        else:
            world.restart(self.victim)
        over = self.until(world.now + LONGEST_US, meter)
        found = meter.figures()
        figures[f"{what}_recovered"] = found["recovered"]
        figures[f"{what}_silence_us"] = found.get("silence_us", float(LONGEST_US))
        return over


def conduct(run: Run, trace: TraceWriter | None = None) -> Outcome:
    """Carry out a run."""
    with without_garbage_collection():
        return _Story(run, trace).tell()


def check(run: Run) -> None:
    """Raise GridError if it cannot be run."""
    run.check()
    if not 1 <= int(run.labels.get("victim", 0)) <= run.nodes:
        raise GridError(f"{run.summary}: say in its labels which node is the victim, 1 to {run.nodes}")


def cost(run: Run) -> float:
    """Seconds of one processor, from what was seen of such runs."""
    return 3.0 * run.rate * run.nodes * 45e-6 + 0.3 * run.nodes


METHOD = Method(conduct, cost, check)
