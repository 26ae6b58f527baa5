"""What it costs when a member cannot be heard for a while, and is not dead.

The member `run.labels["victim"]` is cut off from the others for ``away_ms``, under load, and then is not.
Who suspects it too soon is wrong. Counted are the lives that end by themselves: members that have to begin
anew, as ones that know nothing (004 §4.3.4, program-controlled crash); and the longest time for which a
member that was never cut off delivered nothing.
"""

from __future__ import annotations

import msgspec

from ordercast.catalogue import lab_protocol as protocol_called
from ordercast.lab.change_meter import LongestSilence
from ordercast.lab.grid import GridError, Method, Outcome, Run
from ordercast.lab.steady_load import FORMING_US
from ordercast.lab.under_load import in_one_configuration
from ordercast.sim.faults import At, Heal, Partition, schedule
from ordercast.sim.fuzz import without_garbage_collection
from ordercast.sim.workload import drive
from ordercast.trace.columns import EVENT, NODE, TIME_US
from ordercast.trace.writer import TraceWriter

SLICE_US = 20_000
LEAD_US = 300_000
"""How long the load lasts before."""
AFTER_US = 1_500_000
"""How long it is watched what comes of it, once the member can be heard again."""


def conduct(run: Run, trace: TraceWriter | None = None) -> Outcome:
    """Carry out a run."""
    victim, away_us = int(run.labels["victim"]), 1_000 * int(run.labels["away_ms"])
    nodes = tuple(range(1, run.nodes + 1))
    with without_garbage_collection():
        world = protocol_called(run.protocol).world(run.settings, nodes, run.network_config, run.seed)
        world.at(0, world.start)
        while not in_one_configuration(world):
            if world.now >= FORMING_US:
                raise GridError(f"{run.summary}: the group had not formed after {world.now // 1000} ms")
            world.run_until(world.now + SLICE_US)
        drive(world, msgspec.structs.replace(run.workload, start_us=world.now))
        cut_us = world.now + LEAD_US + 7_770 * run.seed
        others = tuple(node for node in nodes if node != victim)
        schedule(world, (At(cut_us, Partition((others, (victim,)))), At(cut_us + away_us, Heal())))
        silence, halts = LongestSilence(others, cut_us), 0
        while world.now < cut_us + away_us + AFTER_US:
            world.run_until(world.now + SLICE_US)
            for row in world.rows:
                if row[EVENT] == "deliver":
                    silence.delivered(row[NODE], row[TIME_US])
                elif row[EVENT] == "halt" and row[TIME_US] >= cut_us:
                    halts += 1
            if trace is not None:
                trace.write(world.rows)
            world.rows.clear()
        silence.ended(world.now)
    together = in_one_configuration(world)
    return Outcome(
        figures={"killed": float(halts), "silence_us": float(silence.us), "together": float(together)},
        notes=[] if together else ["not all are in one configuration in the end"],
    )


def check(run: Run) -> None:
    """Raise GridError if it cannot be run."""
    run.check()
    if not 1 <= int(run.labels.get("victim", 0)) <= run.nodes or int(run.labels.get("away_ms", 0)) < 1:
        raise GridError(f"{run.summary}: say in its labels which node is the victim, and away_ms, how long")


def cost(run: Run) -> float:
    """Seconds of one processor, from what was seen of such runs."""
    return 2.5 * run.rate * run.nodes * 45e-6 + 0.3


METHOD = Method(conduct, cost, check)
