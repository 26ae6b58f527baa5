"""The fuzzer: from a seed a group, a network, settings, a load and faults; then the auditor's word.

Safety is judged over the whole run. Then the faults stop, the network's own losses included, and within
a bound the nodes that are up have to be in one configuration and deliver everything that is sent in it; of
several networks, those that gateways which are up still join. Where
only a primary partition goes on, that is asked for if a majority of the last view's nodes is up.

A `Case` is all of a run, as data: the seed alone gives it, and cuts (`Cuts`) make it smaller.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from ordercast.audit.explain import Report
from ordercast.audit.history import Expectation
from ordercast.audit.properties import audit
from ordercast.core.identity import Kind, NodeId
from ordercast.sim.clock import Runaway
from ordercast.sim.coverage import coverage
from ordercast.sim.faults import At, Begin, Burst, Clock, Crash, Drift, Fault, When, schedule
from ordercast.sim.founders import draw_meeting, majority_failed, may_go_on
from ordercast.sim.lives import draw_drifts
from ordercast.sim.nearby import shifted
from ordercast.sim.network import Lan
from ordercast.sim.process_groups import GroupLoad, SimulatedProcesses, draw_group_load
from ordercast.sim.protocol import LabProtocol
from ordercast.sim.swarm import draw, ending
from ordercast.sim.topology import attached, components
from ordercast.sim.watchdog import NeverReturned, watched
from ordercast.sim.workload import Arrivals, Workload, drive
from ordercast.sim.world import World
from ordercast.trace.columns import (
    CONFIG_KIND,
    EVENT,
    NODE,
)

SLICE_US = 100_000
"""How often a calm run is asked whether it has converged."""
STEP_US = 5_000
MOST_EVENTS = 400_000
"""No case of up to `FEW` nodes needs nearly as many events; one that has them is not going to end."""
FEW = 7
"""With more nodes there may be more events, as the square of them: all answer what all receive."""
BOUND_US = 10_000_000
"""How long after the last fault a group may take to be one configuration."""
AFTERMATH_US = 300_000
"""How long messages are sent in that configuration, and then how long the last ones have to arrive."""

LOCK_STEP = 0.15
"""Share of the seeds in whose networks every packet takes exactly as long as any other, and none is lost:
there nodes that do the same at the same time go on doing so, unless they have a reason not to."""

DRIZZLE = 0.05
"""Loss that a group has to stand without falling apart over and over; some seeds let it rain for a while."""
DRIZZLE_US = 800_000
MOST_INSTALLED = 11
"""Regular configurations that a node may install in that time: some by chance, not one after another."""
INSTALLED_AT_REST = 1
"""Regular configurations that a node may install in the last `AFTERMATH_US`: nothing is sent or lost then."""


class Cuts(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a drawn case; None is all of it."""

    members: tuple[NodeId, ...] | None = None
    """Nodes that take part."""
    faults: tuple[int, ...] | None = None
    """Indexes, in the drawn list, of the faults that happen."""
    duration_us: int | None = None
    """How long faults may happen."""

    @property
    def options(self) -> str:
        """The cuts as options of ``ordercast sim replay``."""
        words = []
        if self.members is not None:
            words.append(f"--members {','.join(map(str, self.members))}")
        if self.faults is not None:
            words.append(f"--faults {','.join(map(str, self.faults)) or 'none'}")
        if self.duration_us is not None:
            words.append(f"--faults-until {self.duration_us}us")
        return " ".join(words)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One fuzzed run, before it is run."""

    seed: int
    nodes: tuple[NodeId, ...]
    network: Lan
    settings: dict[str, Any]
    workload: Workload
    faults: tuple[Fault, ...]
    duration_us: int
    process_groups: GroupLoad | None = None
    """What processes do, where there are process groups."""


class Result(msgspec.Struct, kw_only=True):
    """What came of a run."""

    seed: int
    violations: dict[str, int]
    """How often each property was broken; `exception`, `endless` and `corrupt` among them."""
    sentences: list[str]
    """The first violations, in words."""
    converged: bool
    events: int
    """Events handled by machines."""
    receptions: int
    rows: int
    coverage: dict[str, int]
    """How often what a fuzzer wants to happen did happen."""

    @property
    def failed(self) -> str | None:
        """The property to name, if anything is wrong."""
        for code in sorted(self.violations):
            if self.violations[code]:
                return code
        return None if self.converged else "live-membership"


def plan(
    protocol: LabProtocol,
    seed: int,
    nodes: tuple[int, int],
    cuts: Cuts | None = None,
    *,
    near: int | None = None,
) -> Case:
    """The case of a seed, without what `cuts` leave out.

    `near` is another seed: then the case is that one's, with its faults shifted a little and other chance.
    """
    case = _drawn(protocol, seed if near is None else near, nodes)
    if near is not None:
        faults = shifted(random.Random(f"{seed}/near {near}"), case.faults, case.duration_us)
        case = msgspec.structs.replace(case, seed=seed, faults=tuple(faults))
    return cut(case, cuts) if cuts is not None else case


def _drawn(protocol: LabProtocol, seed: int, nodes: tuple[int, int]) -> Case:
    """Each part is drawn from a stream of its own."""
    count = random.Random(f"{seed}/nodes").randint(*nodes)
    members = tuple(range(1, count + 1))
    lock_step = random.Random(f"{seed}/lock-step").random() < LOCK_STEP
    network = _draw_network(random.Random(f"{seed}/network"), lock_step)
    duration_us = random.Random(f"{seed}/duration").choice((300_000, 600_000, 1_000_000))
    product = protocol.product
    settings: dict[str, Any] = protocol.draw_settings(random.Random(f"{seed}/settings"), count, network)
    drawn = draw(
        seed,
        members,
        duration_us,
        states=product.states,
        amnesia=product.survives_amnesia,
        networks=attached(settings, members),
    )
    if "founders" in settings:
        meeting = random.Random(f"{seed}/fault/meeting")
        drawn = [*draw_meeting(meeting, settings["founders"], members, duration_us), *drawn]
    if protocol.drifting_clocks:
        drawn = [*draw_drifts(random.Random(f"{seed}/fault/drift"), members), *drawn]
    return Case(
        seed=seed,
        nodes=members,
        network=network,
        settings=settings,
        workload=_draw_workload(seed, product.levels, lock_step, count if "visits" in settings else 0),
        faults=tuple(drawn),
        duration_us=duration_us,
        process_groups=_draw_processes(protocol, seed),
    )


def _draw_processes(protocol: LabProtocol, seed: int) -> GroupLoad | None:
    return draw_group_load(random.Random(f"{seed}/process groups")) if protocol.process_groups else None


def cut(case: Case, cuts: Cuts) -> Case:
    """The case without what the cuts leave out."""
    members = cuts.members if cuts.members is not None else case.nodes
    until_us = case.duration_us if cuts.duration_us is None else cuts.duration_us
    if until_us > case.duration_us:
        raise ValueError(f"faults of this seed end at {case.duration_us}us; they can only end earlier")
    kept = range(len(case.faults)) if cuts.faults is None else cuts.faults
    begun = [
        without
        for index in kept
        if 0 <= index < len(case.faults)
        and not is_ending(case, case.faults[index])
        and (without := restrict(case.faults[index], members)) is not None
        and (without := shorten(without, until_us)) is not None
    ]
    dead = [fault.do.node for fault in case.faults if is_ending(case, fault) and isinstance(fault.do, Crash)]
    load, shares = case.workload, case.workload.shares
    if shares is not None:
        left = tuple(share for node, share in zip(case.nodes, shares, strict=True) if node in members)
        load = msgspec.structs.replace(load, shares=left)
    return msgspec.structs.replace(
        case,
        nodes=members,
        workload=load,
        faults=(*begun, *ending(begun, members, until_us, dead)),
        duration_us=until_us,
    )


def shorten(fault: Fault, until_us: int) -> Fault | None:
    """A fault as it happens if all faults end at `until_us`; None if it does not."""
    if isinstance(fault, When):
        before_us = until_us if fault.before_us is None else min(fault.before_us, until_us)
        return msgspec.structs.replace(fault, before_us=before_us)
    if fault.at_us >= until_us:
        return None
    if isinstance(fault.do, Burst):
        lasts_us = min(fault.do.duration_us, until_us - fault.at_us)
        return At(fault.at_us, msgspec.structs.replace(fault.do, duration_us=lasts_us))
    return fault


def is_ending(case: Case, fault: Fault) -> bool:
    """Whether a fault is one of those that end all others."""
    return isinstance(fault, At) and fault.at_us >= case.duration_us


def restrict(fault: Fault, members: tuple[NodeId, ...]) -> Fault | None:
    """A fault as it concerns some nodes only; None if it does not."""
    action = fault.do
    for field in ("node", "source", "to"):
        if getattr(action, field, members[0]) not in (0, *members):
            return None
    watched = getattr(fault, "node", None)
    if watched is not None and watched not in members:
        return None
    if hasattr(action, "groups"):
        groups = tuple(g for group in action.groups if (g := tuple(n for n in group if n in members)))
        return msgspec.structs.replace(fault, do=msgspec.structs.replace(action, groups=groups))
    return fault


def _draw_network(stream: random.Random, lock_step: bool) -> Lan:
    base_us = stream.choice((100, 300, 1_000))
    if lock_step:
        return Lan(base_us=base_us, tail_us=0)
    trouble = stream.choice((0.0, 0.0, 0.01, 0.05, 0.15))
    return Lan(
        base_us=base_us,
        tail_us=base_us * stream.choice((0, 1, 3)) // 2,
        loss=trouble,
        duplicate=stream.choice((0.0, 0.0, 0.05)),
        reorder=stream.choice((0.0, 0.0, 0.05, 0.3)),
        reorder_us=base_us * stream.choice((2, 10, 50)),
    )


def _draw_workload(seed: int, levels: bool, lock_step: bool, unlike: int) -> Workload:
    """A load; with `unlike` nodes, one in which some of these send more than others."""
    stream = random.Random(f"{seed}/workload")
    arrivals: tuple[Arrivals, ...] = ("poisson", "poisson", "deterministic")
    arrival = stream.choice(arrivals)
    rate = stream.choice((30, 100, 400))
    return Workload(
        arrivals="deterministic" if lock_step else arrival,
        rate=float(min(rate, 100) if lock_step else rate),
        size=stream.choice((0, 10, 100)),
        size_to=stream.choice((100, 400, 3_000)),
        safe=stream.choice((0.0, 0.3, 0.5, 1.0)),
        start_us=stream.choice((0, 100_000)),
        levels=random.Random(f"{seed}/levels").choice((0.0, 0.0, 0.3, 1.0)) if levels else 0.0,
        shares=_draw_shares(random.Random(f"{seed}/shares"), unlike) if unlike else None,
    )


def _draw_shares(stream: random.Random, nodes: int) -> tuple[float, ...]:
    return tuple(stream.choice((1.0, 1.0, 4.0, 16.0, 100.0)) for _ in range(nodes))


def run(protocol: LabProtocol, case: Case, *, packets: bool = False) -> tuple[Result, World]:
    """Carry out a case and judge it."""
    world = protocol.world(
        case.settings, case.nodes, case.network, case.seed, packets=packets, history=100_000
    )
    if case.process_groups is not None:
        SimulatedProcesses(world, case.process_groups)
    with without_garbage_collection():
        try:
            with watched(lambda: world.handled):
                end = _drive(world, case, protocol.product.primary_partition)
        except Exception as error:  # noqa: BLE001 - whatever a machine raises is a finding, named as such
            endless = isinstance(error, NeverReturned)
            found = str(error) if endless else f"{type(error).__name__}: {error}"
            code = "endless" if endless else "exception"
            seen = coverage(world, protocol.hits)
            return _result(world, case, Report(), True, {code: 1}, [found], seen), world
        report = audit(world.rows, end.expectation, protocol.checks, one_clock=True)
    seen = coverage(world, protocol.hits)
    if not end.majority:
        seen[NO_MAJORITY] += 1
    fallen = world.fallen if protocol.checks else []
    counts = {"corrupt": len(world.applications.corrupt), "numbers-rise": len(fallen)}
    extra = {code: count for code, count in counts.items() if count}
    sentences = [str(corruption) for corruption in world.applications.corrupt[:3]]
    sentences += [f"numbers-rise: {sentence}." for sentence in fallen[:3]]
    return _result(world, case, report, end.converged, extra, sentences, seen), world


class _End(NamedTuple):
    """How a run ended."""

    converged: bool
    expectation: Expectation | None = None
    """What liveness asks for; None if it is not asked for."""
    majority: bool = True
    """False: too few of the last view were left for anything to be asked for."""


def _drive(world: World, case: Case, primary: bool) -> _End:
    """Faults, then calm until all is one configuration, then messages in it."""
    drive(world, case.workload)
    at_once = _first_lives(world, case.faults)
    schedule(world, case.faults)
    world.start(*at_once)
    _advance(world, case.duration_us)
    world.networks.recover()
    while not _one_configuration(world):
        if primary and not may_go_on(world, case.settings):
            _advance(world, world.now + AFTERMATH_US)
            return _End(converged=True, majority=False)
        if world.now - case.duration_us > BOUND_US:
            return _End(converged=False)
        _advance(world, world.now + SLICE_US)
    if random.Random(f"{case.seed}/drizzle").random() < 0.2 and not _steady_in_drizzle(world, primary):
        return _End(converged=False)
    _advance(world, world.now + AFTERMATH_US)
    if primary and majority_failed(world):  # as who was let in by a Join that it sent before it failed
        return _End(converged=True, majority=False)
    world.applications.close()
    left, rows, since_us = _unfinished(world), len(world.rows), world.now
    while left and world.now - since_us <= BOUND_US:  # a slow ring may take long, but it has to get on
        _advance(world, world.now + SLICE_US)
        now_left = _unfinished(world)
        if now_left < left or any(row[EVENT] == "deliver" for row in world.rows[rows:]):
            since_us = world.now
        left, rows = now_left, len(world.rows)
    settled = len(world.rows)
    _advance(world, world.now + AFTERMATH_US)
    if _most_installed(world, settled) > INSTALLED_AT_REST:
        return _End(converged=False)
    up = [node for node in world.nodes if world.up(node)]
    connected = map(frozenset, components(world.networks.attached, up))
    return _End(converged=True, expectation=Expectation(components=tuple(connected)))


def _first_lives(world: World, faults: Iterable[Fault]) -> list[NodeId]:
    """The nodes that start at once, not by a `Begin` later on; and clocks that are wrong from the start."""
    later: set[NodeId] = set()
    for fault in faults:
        if isinstance(fault, At) and isinstance(fault.do, Begin):
            later.add(fault.do.node)
        elif isinstance(fault, At) and isinstance(fault.do, Clock) and fault.at_us == 0:
            world.set_clock(fault.do.node, fault.do.ahead_us)
        elif isinstance(fault, At) and isinstance(fault.do, Drift) and fault.at_us == 0:
            world.hosts[fault.do.node].drift_ppm = fault.do.ppm
    return [node for node in world.nodes if node not in later]


def _steady_in_drizzle(world: World, primary: bool) -> bool:
    """Whether the group keeps together while a packet is lost now and then, and messages are sent.

    In a primary partition a node that was suspected comes back by way of another view: it has time to.
    """
    begun = len(world.rows)
    for links in world.networks.links():
        links.begin_burst(DRIZZLE)
    _advance(world, world.now + DRIZZLE_US)
    for links in world.networks.links():
        links.end_burst(DRIZZLE)
    installed, calm_us = _most_installed(world, begun), world.now
    while primary and not _one_configuration(world) and world.now - calm_us <= BOUND_US:
        _advance(world, world.now + SLICE_US)
    return installed <= MOST_INSTALLED


def _most_installed(world: World, begun: int) -> int:
    """The most regular configurations that one node has installed since the trace had `begun` rows."""
    installed = Counter(
        row[NODE] for row in world.rows[begun:] if row[EVENT] == "install" and row[CONFIG_KIND] == "regular"
    )
    return max(installed.values(), default=0)


def _advance(world: World, until_us: int) -> None:
    """Let time pass, in steps short enough to notice when packets multiply."""
    while world.now < until_us:
        world.run_until(min(until_us, world.now + STEP_US))
        most = most_events(len(world.nodes))
        if world.handled > most:
            raise Runaway(f"over {most:,} events by {world.now} µs: packets multiply")


def most_events(nodes: int) -> int:
    """How many events a case of so many nodes may have."""
    return MOST_EVENTS * max(FEW, nodes) ** 2 // FEW**2


def _unfinished(world: World) -> int:
    """Messages that nodes that are up have accepted and not delivered to themselves yet.

    And, over several networks, those that a node has delivered and others have not: a gateway may be slow.
    """
    above = world.applications.above
    waiting = 0 if above is None else above.waiting
    waiting += _on_the_way(world) if len(world.networks) > 1 else 0
    return waiting + sum(host.ahead for host in world.hosts.values() if host.up)


def _on_the_way(world: World) -> int:
    """Deliveries that nodes lack, each of those that another node has made in the same configuration."""
    delivered = dict.fromkeys(world.nodes, 0)
    for row in world.rows:
        if row[EVENT] == "install":
            delivered[row[NODE]] = 0
        elif row[EVENT] == "deliver":
            delivered[row[NODE]] += 1
    up = [node for node in world.nodes if world.up(node)]
    return sum(
        len(part) * max(delivered[node] for node in part) - sum(delivered[node] for node in part)
        for part in components(world.networks.attached, up)
    )


def _one_configuration(world: World) -> bool:
    """Whether the nodes that are up are in one regular configuration of exactly those nodes.

    Where nobody joins some of the networks any more, the nodes of each part of them have one.
    """
    up = [node for node in world.nodes if world.living(node)]
    return all(are_together(world, part) for part in components(world.networks.attached, up))


def are_together(world: World, nodes: tuple[NodeId, ...]) -> bool:
    """Whether these are in one regular configuration of those of them that do not only follow."""
    first, *others = {world.hosts[node].configuration for node in nodes}
    if others or first is None or first.kind is not Kind.REGULAR:
        return False
    return first.members == tuple(node for node in nodes if not world.hosts[node].follows)


def _result(
    world: World,
    case: Case,
    report: Report,
    converged: bool,
    extra: dict[str, int],
    sentences: list[str],
    seen: Counter[str],
) -> Result:
    broken = {code: count for code, count in report.properties.items() if count}
    return Result(
        seed=case.seed,
        violations=broken | extra,
        sentences=sentences + [f"{found.property}: {found.sentence}" for found in report.violations[:10]],
        converged=converged,
        events=world.handled,
        receptions=world.receptions,
        rows=len(world.rows),
        coverage=dict(seen),
    )


NO_MAJORITY = "no majority of the last view left: liveness not judged"


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """A run makes millions of tuples and no cycles to speak of: looking for them costs a third of it."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
