"""TRMP's claims (004 §3.3.2): levels against one ring, and a reformation server against none.

Three kinds of runs. *Stabilisation*: single messages in an idle group, and how long each takes until all
nodes have it and nobody has to keep it for others. *Failure*: a node crashes under load; the longest time for
which a node that orders delivered nothing, and how many nodes installed another view. *Reformation*: a member
of one ring crashes, and one or all of the others are told so; how long it takes until all have the next view.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ordercast.catalogue import lab_protocol as protocol_called
from ordercast.core.identity import NodeId
from ordercast.lab.change_meter import LongestSilence
from ordercast.lab.experiment import Claim, Experiment, Figure, Table
from ordercast.lab.figures import lines
from ordercast.lab.grid import Method, Outcome, Run
from ordercast.sim.faults import At, schedule
from ordercast.sim.fuzz import without_garbage_collection
from ordercast.sim.workload import Workload, drive
from ordercast.sim.world import World
from ordercast.trace.columns import EVENT, NODE, TIME_US
from ordercast.trace.writer import TraceWriter

if TYPE_CHECKING:
    from ordercast.lab.frames import Frames

STABLE, FAILURE, REFORMATION = "stabilisation", "failure", "reformation"
ONE, LEVELS = "one ring", "two levels"
BELOW, PRIMARY, MEMBER = "a node below", "a primary", "a member of the one ring"
ALONE, ALL = "one notices", "all notice"
SIZES = (12, 25, 50, 100, 200, 400)
FAILING = (12, 25, 50, 100)
RINGS = (5, 9, 15, 25)
MESSAGES, FEWER = 8, 3
"""Messages of a run whose stabilisation is measured; of one with many nodes in a ring fewer."""
FORMING_US = 30_000_000
"""How long a group may take to form."""
FAULT_US = 1_000_000
"""When a fault happens, after the group has formed."""
LASTS_US = 3_000_000
LOOK_US = 500


def shape_of(shape: str, nodes: int) -> dict[str, Any]:
    """Settings of a group of so many nodes: timeouts grow with it, alike for both shapes.

    On two levels there are as many primaries as the root of the nodes, and as many lower rings.
    """
    heartbeat_us = max(20_000, 1_000 * nodes)
    change_us = max(10_000, 250 * nodes)
    settings: dict[str, Any] = {
        "heartbeat_us": heartbeat_us,
        "aggressive_us": 4 * heartbeat_us,
        "conservative_us": 12 * heartbeat_us,
        "change_us": change_us,
        "round_us": 4 * change_us,
        "join_us": max(20_000, 500 * nodes),
        "found_us": max(100_000, 2_000 * nodes),
        "max_members": 512,
        "founders": nodes,  # all at once: what it takes to let the others in is not of interest here
    }
    if shape == ONE:
        return settings
    count = max(3, round(math.sqrt(nodes)))
    primaries = list(range(1, count + 1))
    below = range(count + 1, nodes + 1)
    rings = [[at, at % count + 1, *below[at - 1 :: count]] for at in primaries]
    founders = {str(node): count if node <= count else 0 for node in range(1, nodes + 1)}
    return {**settings, "primaries": primaries, "rings": rings, "founders": founders}


def _run(kind: str, nodes: int, seed: int, protocol: str = "trmp", **labels: Any) -> Run:
    return Run(
        protocol=protocol,
        nodes=nodes,
        seconds=1.0,
        rate=300.0,
        size=200,
        seed=seed,
        labels={"kind": kind, **labels},
        method=__name__,
    )


def grid(quick: bool) -> list[Run]:
    """Both shapes by size; who fails; and Reformations by the server and by who noticed."""
    sizes, failing, rings = (SIZES[:3], FAILING[:2], RINGS[:2]) if quick else (SIZES, FAILING, RINGS)
    runs = [_run(STABLE, nodes, 0, shape=shape) for nodes in sizes for shape in (ONE, LEVELS)]
    runs += [
        _run(FAILURE, nodes, seed, shape=shape, victim=victim)
        for nodes in failing
        for shape, victim in ((ONE, MEMBER), (LEVELS, BELOW), (LEVELS, PRIMARY))
        for seed in range(1 if quick else 2)
    ]
    runs += [
        _run(REFORMATION, nodes, seed, protocol, noticed=noticed)
        for nodes in rings
        for protocol in ("trmp", "rbp")
        for noticed in (ALONE, ALL)
        for seed in range(2 if quick else 6)
    ]
    return runs


# --- carrying a run out --------------------------------------------------------------------------


def _formed(world: World) -> bool:
    """Whether all nodes are in one view of all who order, and followers are fed."""
    first, *others = {world.hosts[node].configuration for node in world.nodes}
    if others or first is None:
        return False
    return list(first.members) == _ordering(world)


def _ordering(world: World) -> list[NodeId]:
    """The nodes that order, and do not only follow."""
    return [node for node in world.nodes if not world.hosts[node].follows]


def _settled(world: World) -> bool:
    """Whether everything is with all nodes, and everybody who would have to keep it knows."""
    for node in _ordering(world):
        machine: Any = world.hosts[node].machine
        order = getattr(machine, "ring", machine).orderer.order
        if order is None or order.pending or order.latest > min(order.stable, order.delivered):
            return False
        if not getattr(machine, "fed_settled", True):  # a primary's, of those below it
            return False
    return True


def _form(world: World) -> bool:
    world.start()
    while not _formed(world):
        if world.now > FORMING_US:
            return False
        world.run_until(world.now + 20_000)
        world.rows.clear()
    world.run_until(world.now + 500_000)
    world.rows.clear()
    return True


def _stabilisation(run: Run, world: World) -> dict[str, float]:
    """Single messages, one after the other: mean times until they are everywhere, and known to be."""
    everywhere, known = [], []
    senders = _ordering(world)
    for number in range(MESSAGES if len(senders) <= 100 else FEWER):
        world.run_until(world.now + 37_000)
        world.rows.clear()
        began = world.now
        world.applications.submit(senders[number * 7 % len(senders)], run.size)
        reached: dict[NodeId, int] = {}
        while len(reached) < len(world.nodes) or not _settled(world):
            world.run_until(world.now + LOOK_US)
            for row in world.rows:
                if row[EVENT] == "deliver":
                    reached[row[NODE]] = row[TIME_US]
            world.rows.clear()
            if world.now - began > FORMING_US:
                return {}
        everywhere.append(max(reached.values()) - began)
        known.append(world.now - began)
    return {
        "everywhere_us": sum(everywhere) / len(everywhere),
        "known_us": sum(known) / len(known),
    }


def _victim(run: Run, nodes: Sequence[NodeId], members: Sequence[NodeId]) -> NodeId:
    if run.labels.get("victim") == BELOW:
        return nodes[len(members) + (5 * run.seed) % (len(nodes) - len(members))]
    return members[(3 + 5 * run.seed) % len(members)]


def _failure(run: Run, world: World) -> dict[str, float]:
    """A crash under load: what those who order, and the others, go through."""
    configuration = world.hosts[1].configuration
    assert configuration is not None, "it has formed"
    members, begun = configuration.members, world.now
    victim = _victim(run, world.nodes, members)
    senders = tuple(node for node in members[:3] if node != victim)
    load = Workload(rate=run.rate, size=run.size, senders=senders, start_us=begun)
    drive(world, load)
    at_us = begun + FAULT_US + 7_770 * run.seed
    faults = [f"at {at_us}us crash {victim}"]
    if run.labels["kind"] == REFORMATION:
        told = [node for node in members if node != victim]
        told = told if run.labels["noticed"] == ALL else told[run.seed % len(told) :][:1]
        faults += [f"at {at_us + 1_000}us gone {victim} at {node}" for node in told]
    schedule(world, _parsed(faults, world.nodes))
    silence = LongestSilence((node for node in members if node != victim), at_us)
    installed = {}
    end_us = at_us + LASTS_US
    while world.now < end_us:
        world.run_until(world.now + 20_000)
        for row in world.rows:
            if row[EVENT] == "deliver":
                silence.delivered(row[NODE], row[TIME_US])
            elif row[EVENT] == "install" and row[TIME_US] >= at_us:
                installed[row[NODE]] = row[TIME_US]
        world.rows.clear()
        if run.labels["kind"] == REFORMATION and len(installed) == len(members) - 1:
            break
    return {
        "silence_us": float(silence.us),
        "installing": float(len(installed)),
        **({"installed_us": float(max(installed.values()) - at_us - 1_000)} if installed else {}),
    }


def _parsed(faults: Sequence[str], nodes: Sequence[NodeId]) -> list[At]:
    from ordercast.sim.scenario import parse

    head = f"nodes {' '.join(map(str, nodes))}\nuntil 1s\n"
    found = parse(head + "\n".join(faults)).faults
    return [fault for fault in found if isinstance(fault, At)]


def conduct(run: Run, trace: TraceWriter | None = None) -> Outcome:
    """Let a group form, and see what the run is about. Rows are not kept: there are too many."""
    shape = str(run.labels.get("shape", ONE))
    settings = shape_of(shape, run.nodes) if run.protocol == "trmp" else shape_of(ONE, run.nodes)
    with without_garbage_collection():
        world = protocol_called(run.protocol).world(
            {**settings, **run.settings}, range(1, run.nodes + 1), run.network_config, run.seed
        )
        if not _form(world):
            return Outcome(figures={}, notes=["the group did not form"])
        figures = (_stabilisation if run.labels["kind"] == STABLE else _failure)(run, world)
    notes = [] if figures else ["a message was not everywhere in time"]
    return Outcome(figures=figures, notes=notes)


def cost(run: Run) -> float:
    """Seconds of one processor, from what was seen of such runs."""
    one = run.labels.get("shape", ONE) == ONE
    return 0.3 + (run.nodes / 100) ** 2 * (6.0 if one else 1.5)


METHOD = Method(conduct, cost)


# --- what came of it -----------------------------------------------------------------------------


class Means:
    """Means of the figures, times in milliseconds, by kind of run and what tells its points apart."""

    def __init__(self, frames: Frames) -> None:
        self._stable = self._by(frames, STABLE, "shape", "known_us", "everywhere_us")
        self._failure = self._by(frames, FAILURE, "victim", "silence_us", "installing")
        self._changes = self._by(frames, REFORMATION, "noticed", "installed_us")

    @staticmethod
    def _by(frames: Frames, kind: str, label: str, *figures: str) -> dict[tuple[str, str, int], Any]:
        rows = frames.mean(["kind", "protocol", label, "nodes"], figures).to_dict(orient="records")
        return {(row[label], row["protocol"], int(row["nodes"])): row for row in rows if row["kind"] == kind}

    @staticmethod
    def _value(row: Any, figure: str) -> float:
        return float(row[figure]) / (1000 if figure.endswith("_us") else 1)

    def sizes(self, kind: str) -> list[int]:
        """The group sizes of a kind of runs."""
        of = {STABLE: self._stable, FAILURE: self._failure, REFORMATION: self._changes}[kind]
        return sorted({nodes for _, _, nodes in of})

    def stable(self, shape: str, nodes: int, figure: str = "known_us") -> float:
        """How long a message takes until nobody has to keep it, or until it is everywhere."""
        return self._value(self._stable[shape, "trmp", nodes], figure)

    def failure(self, victim: str, nodes: int, figure: str) -> float:
        """What a failure costs."""
        return self._value(self._failure[victim, "trmp", nodes], figure)

    def change(self, protocol: str, noticed: str, nodes: int) -> float:
        """How long a Reformation takes."""
        return self._value(self._changes[noticed, protocol, nodes], "installed_us")


def _series(values: Sequence[tuple[int, float]]) -> str:
    return ", ".join(f"{value:.1f} at {nodes}" for nodes, value in values)


def claims(frames: Frames) -> list[Claim]:
    """What 004 says of TRMP."""
    found = Means(frames)
    made: list[Claim] = []
    if sizes := found.sizes(STABLE):
        made.append(_stabilises(found, sizes))
    if sizes := found.sizes(FAILURE):
        made += [_no_world_wide(found, sizes), _less_stopped(found, sizes)]
    if sizes := found.sizes(REFORMATION):
        made += [_server(found, sizes, noticed) for noticed in (ALL, ALONE)]
    return made


def _stabilises(found: Means, sizes: Sequence[int]) -> Claim:
    told = {shape: [(n, found.stable(shape, n)) for n in sizes] for shape in (ONE, LEVELS)}
    last = sizes[-1]
    return Claim(
        says="A hierarchy of rings avoids the long stabilisation time of one ring",
        where="004 §3.3.2",
        measured="; ".join(f"{shape}: {_series(values)} nodes, in ms" for shape, values in told.items()),
        holds=found.stable(LEVELS, last) < found.stable(ONE, last) / 2 if last >= 100 else None,
        note="until all nodes have a message, and all who keep it know; judged as less than half",
    )


def _no_world_wide(found: Means, sizes: Sequence[int]) -> Claim:
    below = [(n, found.failure(BELOW, n, "installing")) for n in sizes]
    one = [(n, found.failure(MEMBER, n, "installing")) for n in sizes]
    return Claim(
        says="With a hierarchy, the failure of a remote process does not lead to a world-wide Reformation",
        where="004 §3.3.2",
        measured=f"nodes that install another view when {BELOW} fails: {_series(below)} nodes; when "
        f"{MEMBER} does: {_series(one)}",
        holds=all(value == 0 for _, value in below),
    )


def _less_stopped(found: Means, sizes: Sequence[int]) -> Claim:
    told = {victim: [(n, found.failure(victim, n, "silence_us")) for n in sizes] for victim in _VICTIMS}
    last = sizes[-1]
    share = 1 - max(3, round(math.sqrt(last))) / last
    return Claim(
        says="A hierarchy reduces the probability that the system stops because a process fails",
        where="004 §3.3.2",
        measured="longest time without a delivery at a node that orders, in ms: "
        + "; ".join(f"{victim} fails: {_series(values)} nodes" for victim, values in told.items())
        + f". Of {last} nodes {share:.0%} are below",
        holds=found.failure(BELOW, last, "silence_us") < found.failure(MEMBER, last, "silence_us") / 4
        if last >= 100
        else None,
        note="judged as less than a quarter where a node below fails; primaries fail as in one ring, but are "
        "fewer",
    )


def _server(found: Means, sizes: Sequence[int], noticed: str) -> Claim:
    told = {
        name: [(n, found.change(protocol, noticed, n)) for n in sizes]
        for name, protocol in (("by the server", "trmp"), ("distributed (RBP)", "rbp"))
    }
    return Claim(
        says=f"A reformation server makes the Reformation faster than a distributed one, where {noticed} "
        "that a member is gone",
        where="004 §3.3.2",
        measured="from then until all have the next view, in ms: "
        + "; ".join(f"{name}: {_series(values)} nodes" for name, values in told.items()),
        holds=all(found.change("trmp", noticed, n) < found.change("rbp", noticed, n) for n in sizes),
        note="the server needs no invitation; where several notice, it has no originators beside it",
    )


_VICTIMS = (MEMBER, PRIMARY, BELOW)


def figures(frames: Frames) -> list[Figure]:
    """Stabilisation against the number of nodes."""
    import pandas as pd

    found = Means(frames)
    rows = [
        {"shape": shape, "nodes": nodes, "figure": name, "value": found.stable(shape, nodes, figure)}
        for figure, name in (("everywhere_us", "until all have it"), ("known_us", "until nobody keeps it"))
        for shape in (ONE, LEVELS)
        for nodes in found.sizes(STABLE)
    ]
    if not rows:
        return []
    return [
        Figure(
            name="stabilisation",
            title="Stabilisation time of a message",
            caption="Single messages in an idle group, by the number of nodes. On two levels as many "
            "primaries as the root of the nodes, each of which feeds a ring.",
            drawing=lines(
                pd.DataFrame(rows),
                x="nodes",
                y="value",
                by="shape",
                panel="figure",
                x_label="nodes",
                y_label="time [ms]",
                log_x=True,
                log_y=True,
                order=(ONE, LEVELS),
            ),
        )
    ]


def tables(frames: Frames) -> list[Table]:
    """Failures and Reformations in numbers."""
    found = Means(frames)
    return [
        Table(
            title="What a failure costs",
            columns=("nodes", "who fails", "longest silence [ms]", "nodes that install a view"),
            rows=[
                (n, victim, *(f"{found.failure(victim, n, of):.0f}" for of in ("silence_us", "installing")))
                for n in found.sizes(FAILURE)
                for victim in _VICTIMS
            ],
        ),
        Table(
            title="Reformation, from the word that a member is gone to the last member's next view [ms]",
            columns=("members", "noticed", "by the server", "distributed (RBP)"),
            rows=[
                (n, noticed, *(f"{found.change(protocol, noticed, n):.1f}" for protocol in ("trmp", "rbp")))
                for n in found.sizes(REFORMATION)
                for noticed in (ALONE, ALL)
            ],
        ),
    ]


EXPERIMENT = Experiment(
    name="trmp",
    title="TRMP: levels, failures below, and the reformation server",
    source="Tests what 004 §3.3.2 says of TRMP",
    about=(
        "One ring of n nodes against two levels: as many primaries as the root of n, each of which feeds a "
        "lower ring with an equal share of the other nodes, the next one standing in for it. Timeouts grow "
        "with n, alike for both: a heartbeat of 1 ms a node, 20 ms at least, and 12 of these until a silent "
        "member is suspected, 4 if it is waited for. A switched network, where a hop takes 80 µs on average.",
        "Failures: 300 messages a second from three nodes that order, and a crash. Reformations: the driver "
        "tells one member, or all, 1 ms after the crash that the process is gone.",
    ),
    grid=grid,
    claims=claims,
    figures=figures,
    tables=tables,
)
