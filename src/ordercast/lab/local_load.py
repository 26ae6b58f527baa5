"""A load of messages to groups, each needed by a part of the nodes only (`ordercast.lab.locality`).

Every node tells its machine which group it needs (`Attend`), so that rings leave out the contents of messages
where nobody needs them. Counted are deliveries at nodes that need the message. The load begins when all nodes
are in one configuration, and `LEAD_US` before the measurement. A message with its address has `Run.size`
bytes.

A run says in its labels how local its messages are: `p1` and `p2` (`quarters`), or `near` and `far`, with the
networks of its setting for areas (`neighbours`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from ordercast.core.addresses import address_of, names_of
from ordercast.core.contract import Attend
from ordercast.core.identity import Batch, Configuration, Guarantee, NodeId
from ordercast.lab.grid import GridError, Method, Outcome, Run
from ordercast.lab.locality import Locality, address_to, group_of, neighbours, quarters
from ordercast.lab.under_load import Bench, check_size
from ordercast.lab.under_load import cost as cost_under_load
from ordercast.sim.fuzz import without_garbage_collection
from ordercast.sim.host import Host, Offer
from ordercast.sim.payloads import payload
from ordercast.sim.topology import attached
from ordercast.sim.world import World
from ordercast.trace.writer import TraceWriter

LEAD_US = 100_000
"""How long the load lasts before the measurement begins."""
FORMING_US = 3_000_000
"""How long nodes may take to form one configuration,"""
LOOK_US = 20_000
"""and how often it is looked whether they have."""
QUEUE = 1_024
"""Messages that wait at a node for room in its machine, at most."""


class LocalLoad:
    """The layer between applications and machines: addresses messages, and tells what nodes need."""

    def __init__(self, world: World, locality: Locality) -> None:
        """Put it above the world's machines, before any of them is started."""
        self._world = world
        self._locality = locality
        self._streams = {node: random.Random(f"{world.clock.seed}/areas/{node}") for node in world.nodes}
        self._told: set[NodeId] = set()
        world.put_above(self, describe)

    def begin(self, host: Host) -> None:
        """A life begins, whose machine knows nothing yet of what the node needs."""
        self._told.discard(host.node)

    def end(self, host: Host) -> None:
        """A life ends."""

    def deliver(self, host: Host, batch: Batch) -> None:
        """A machine delivers messages; nobody reads them."""

    def install(self, host: Host, configuration: Configuration) -> None:
        """A machine installs a configuration: after the first it can be told what the node needs."""
        host.has_more = True

    def attends(self, host: Host) -> Attend | None:
        """The group of the node's area, once a life."""
        if host.node in self._told:
            return None
        self._told.add(host.node)
        return Attend(frozenset({group_of(self._locality.area_of(host.node))}))

    def submit(self, host: Host, size: int, guarantee: Guarantee) -> bool:
        """The application of a node has a message of so many bytes; False if too many wait."""
        if len(host.waiting) >= QUEUE:
            self._world.applications.refused["queue full"] += 1
            return False
        front = address_to(self._locality.draw(host.node, self._streams[host.node]))
        body = payload(host.node, host.incarnation, host.made, max(0, size - len(front)))
        host.made += 1
        host.waiting.append(Offer(front + body, guarantee, None, self._world.now))
        host.has_more = True
        if not host.paused:
            self._world.applications.feed(host)
        return True

    def offers(self, host: Host, room: int) -> Sequence[Offer]:
        """Nothing beside what waits at the host."""
        return ()

    def has_more(self, host: Host) -> bool:
        """Whether something waits beside what waits at the host."""
        return False

    @property
    def waiting(self) -> int:
        """Nothing waits here: messages are handed on at once."""
        return 0

    @property
    def counts(self) -> Mapping[str, int]:
        """Nothing is counted."""
        return {}


def describe(payload: bytes) -> tuple[str | None, int]:
    """For traces: the groups that a message is addressed to, and its bytes, with the address."""
    found = address_of(payload)
    return (None if found is None else names_of(found)), len(payload)


def locality_of(run: Run) -> Locality:
    """What a run's labels say of it."""
    labels = run.labels
    if "p1" in labels:
        return quarters(run.nodes, float(labels["p1"]), float(labels["p2"]))
    networks = attached(run.settings, range(1, run.nodes + 1)) or {}
    beside: dict[int, set[int]] = {on[0]: set() for on in networks.values()} or {1: set()}
    for on in networks.values():
        for number in on:
            beside[number].update(set(on) - {number})
    order = sorted(beside)
    areas = [sorted(order.index(other) for other in beside[number]) for number in order]
    return neighbours(run.nodes, areas, float(labels["near"]), float(labels["far"]))


class _LocalBench(Bench):
    def __init__(self, run: Run, trace: TraceWriter | None) -> None:
        locality = locality_of(run)
        known: dict[str | None, frozenset[NodeId]] = {None: frozenset(range(1, run.nodes + 1))}

        def audience(groups: str | None) -> frozenset[NodeId]:
            return known[groups]

        for some in locality.destinations:
            for _, areas in some:
                known[names_of(address_to(areas))] = frozenset[NodeId]().union(
                    *(locality.members[area] for area in areas)
                )
        super().__init__(run, trace, lead_us=LEAD_US, audience=audience)
        LocalLoad(self.world, locality)

    def form(self) -> None:
        """Until all are in one configuration, and have told what they need."""
        while self.world.now < FORMING_US and not self.formed:
            self.until(self.world.now + LOOK_US)
        self.until(self.world.now + LEAD_US)


def conduct(run: Run, trace: TraceWriter | None = None) -> Outcome:
    """Carry out a run."""
    check_size(run)
    with without_garbage_collection():
        return _LocalBench(run, trace).outcome()


def check(run: Run) -> None:
    """Raise GridError if it cannot be run."""
    run.check()
    if run.seconds is None or run.arrivals == "saturating":
        raise GridError(f"{run.summary}: a local load lasts for some seconds, and its arrivals are open")
    missing = {"p1", "p2"} - set(run.labels) and {"near", "far"} - set(run.labels)
    if missing:
        raise GridError(f"{run.summary}: say in its labels how local it is: p1 and p2, or near and far")


def cost(run: Run) -> float:
    """Seconds of one processor, as for any load, and what was seen of many nodes forming a configuration."""
    forming_s = 3e-5 * run.nodes**3 if run.protocol == "totem" else 2e-4 * run.nodes**2
    return cost_under_load(run) + forming_s


METHOD = Method(conduct, cost, check)
