"""Process groups above the machines of a simulated world: processes that begin, join, send, leave and die.

Every host gets a `ProcessGroups` for each of its lives. Messages of the workload are sent by processes, to
groups; what processes are told is in the trace (`ordercast.trace.schema.GROUP_EVENTS`).
"""

from __future__ import annotations

import random
from collections import Counter

import msgspec

from ordercast.core.addresses import WITHHELD
from ordercast.core.contract import Attend, QueueFull
from ordercast.core.identity import Batch, Configuration, Guarantee, NodeId
from ordercast.core.subjects import subscription
from ordercast.process_groups.machine import ProcessGroups
from ordercast.process_groups.notes import describe
from ordercast.process_groups.rows import of_output, of_process
from ordercast.process_groups.views import Installed, Left, Output, Received
from ordercast.sim.host import Host, Offer
from ordercast.sim.payloads import payload
from ordercast.sim.running_networks import exponential
from ordercast.sim.world import World

MOST_ADDRESSED = 3
"""Groups that a message is for at most."""
SUBSCRIPTIONS = (
    *(subscription("*"), subscription(">")),
    *(subscription("G1", "q"), subscription("*", "q"), subscription(">", "r")),
)
"""Patterns and queues that processes may join beside groups."""
WITHOUT_CONTENTS = "process groups: message without contents"
_WITHHELD = bytes((WITHHELD,))


class GroupLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What processes do, beside sending the messages of the workload."""

    groups: int = 3
    """Groups that they join and send to: G1, G2, …"""
    processes: int = 3
    """Processes of a node at a time, at most. A life begins with one to so many, if it is not 0, each in up
    to two groups."""
    rate: float = 20.0
    """Begins, joins, leaves and deaths per second at each node."""
    outside: float = 0.2
    """Share of messages that no process sends, but the node itself."""
    subscribing: float = 0.0
    """Share of joins that are not of a group, but of a pattern or queue."""

    @property
    def names(self) -> tuple[str, ...]:
        """The groups."""
        return tuple(f"G{number}" for number in range(1, self.groups + 1))

    def draw_groups(self, stream: random.Random, count: int) -> list[str]:
        """Different groups for a process to join."""
        found = stream.sample(self.names, min(self.groups, count))
        if not self.subscribing:
            return found
        drawn = [
            stream.choice(SUBSCRIPTIONS) if stream.random() < self.subscribing else each for each in found
        ]
        return list(dict.fromkeys(drawn))


def draw_group_load(stream: random.Random) -> GroupLoad:
    """What processes do in a fuzzed run."""
    return GroupLoad(
        groups=stream.choice((1, 2, 3, 6, 20)),
        processes=stream.choice((1, 2, 3, 4)),
        rate=stream.choice((0.0, 5.0, 20.0, 60.0)),
        outside=stream.choice((0.0, 0.2, 0.5)),
        subscribing=stream.choice((0.0, 0.0, 0.3, 0.7)),
    )


class SimulatedProcesses:
    """The processes of all hosts of a world, and the groups that they are in."""

    def __init__(self, world: World, load: GroupLoad) -> None:
        """Put process groups above the world's machines, before any of them is started."""
        self._seen: Counter[str] = Counter()
        self._world = world
        self._load = load
        self._machines: dict[NodeId, ProcessGroups] = {}
        self._living: dict[NodeId, list[int]] = {}
        self._joined: dict[NodeId, set[tuple[int, str]]] = {}
        """Processes, by number, and groups that they have asked to be in."""
        self._addresses = {
            node: random.Random(f"{world.clock.seed}/addresses/{node}") for node in world.nodes
        }
        world.put_above(self, describe)
        for node in world.nodes:
            if load.rate:
                self._act_later(node, random.Random(f"{world.clock.seed}/processes/{node}"))

    @property
    def counts(self) -> Counter[str]:
        """What came of it, in all lives of all nodes."""
        seen = self._seen.copy()
        for machine in self._machines.values():
            seen.update(_counted(machine))
        return seen

    @property
    def waiting(self) -> int:
        """Payloads that no ordering machine has taken yet, and nodes whose configuration is not settled."""
        return sum(machine.waiting + (not machine.settled) for machine in self._machines.values())

    # --- what the world tells -------------------------------------------------------------------

    def begin(self, host: Host) -> None:
        """A life begins: with some processes, which join groups at once."""
        node = host.node
        self._machines[node] = ProcessGroups(node, host.incarnation)
        self._living[node], self._joined[node] = [], set()
        stream = random.Random(f"{self._world.clock.seed}/first processes/{node}/{host.incarnation}")
        for _ in range(stream.randint(min(1, self._load.processes), self._load.processes)):
            process = self.begin_process(node)
            for group in self._load.draw_groups(stream, stream.randint(0, 2)):
                self.join(node, process, group)

    def end(self, host: Host) -> None:
        """A life ends, and its processes with it."""
        self._seen.update(_counted(self._machines.pop(host.node)))

    def deliver(self, host: Host, batch: Batch) -> None:
        """An ordering machine delivers messages."""
        if batch.payloads[0][:1] == _WITHHELD:
            self._seen[WITHOUT_CONTENTS] += len(batch.payloads)
        self._tell(host, self._machines[host.node].routing.deliver(batch))

    def install(self, host: Host, configuration: Configuration) -> None:
        """An ordering machine installs a configuration."""
        self._tell(host, self._machines[host.node].install(configuration))
        host.has_more = True

    def attends(self, host: Host) -> Attend | None:
        """What the ordering machine of a host is to be told before it is given more."""
        return self._machines[host.node].attend()

    def offers(self, host: Host, room: int) -> list[Offer]:
        """What the ordering machine of a host is to be given next."""
        submit = self._machines[host.node].take(room)
        if submit is None:
            return []
        return [Offer(data, submit.guarantee, None, self._world.now) for data in submit.payloads]

    def has_more(self, host: Host) -> bool:
        """Whether something waits to be submitted."""
        return self._machines[host.node].has_more

    def submit(self, host: Host, size: int, guarantee: Guarantee) -> bool:
        """A message of the workload: from one of the node's processes, or none, to one group or several."""
        stream = self._addresses[host.node]
        living = self._living[host.node]
        outside = stream.random() < self._load.outside or not living
        sender = 0 if outside else stream.choice(living)
        most = min(MOST_ADDRESSED, self._load.groups)
        return self.send(
            host.node, sender, stream.sample(self._load.names, stream.randint(1, most)), size, guarantee
        )

    def _tell(self, host: Host, outputs: list[Output]) -> None:
        """Processes of a host are told something: that is, it goes into the trace."""
        for output in outputs:
            if isinstance(output, Installed):
                view = output.view
                self._seen[f"process groups: view {view.id.kind}, {view.cause}"] += 1
            elif isinstance(output, Left):
                self._joined[host.node].discard((output.process, output.group))
            elif isinstance(output, Received) and output.queue is not None:
                self._seen[f"process groups: queue {'again' if output.again else 'message'}"] += 1
            for columns in of_output(output):
                host.record.group_event(self._world.now, *columns)
        if self._machines[host.node].has_more:
            host.has_more = True

    # --- what processes do ------------------------------------------------------------------------

    def begin_process(self, node: NodeId) -> int:
        """A process of the node begins; its number."""
        process = self._machines[node].begin()
        self._living[node].append(process)
        return process

    def join(self, node: NodeId, process: int, group: str) -> None:
        """A process joins a group."""
        try:
            self._machines[node].join(process, group, {"at": str(node)})
        except QueueFull:
            self._world.applications.refused["process groups full"] += 1
            return
        self._joined[node].add((process, group))
        self._asks(node, "group_join", process, group)

    def leave(self, node: NodeId, process: int, group: str) -> None:
        """A process leaves a group."""
        self._machines[node].leave(process, group)
        self._joined[node].discard((process, group))
        self._asks(node, "group_leave", process, group)

    def end_process(self, node: NodeId, process: int) -> None:
        """A process dies."""
        self._machines[node].end(process)
        self._living[node].remove(process)
        self._joined[node] = {each for each in self._joined[node] if each[0] != process}
        self._asks(node, "process_end", process, None)

    def send(
        self,
        node: NodeId,
        process: int,
        groups: list[str],
        size: int = 100,
        guarantee: Guarantee = Guarantee.AGREED,
    ) -> bool:
        """A process, or the node itself as 0, sends a message to groups; False if there is no room for it."""
        host = self._world.hosts[node]
        body = payload(node, host.incarnation, host.made, size)
        host.made += 1
        try:
            self._machines[node].send(process, groups, body, guarantee)
        except QueueFull:
            self._world.applications.refused["process groups full"] += 1
            return False
        self._feed(host)
        return True

    def _asks(self, node: NodeId, event: str, process: int, group: str | None) -> None:
        host = self._world.hosts[node]
        host.record.group_event(self._world.now, *of_process(event, process, group))
        self._feed(host)

    def _feed(self, host: Host) -> None:
        host.has_more = True
        if host.state and host.up and not host.paused:
            self._world.applications.feed(host)

    def _act_later(self, node: NodeId, stream: random.Random) -> None:
        gap_us = exponential(stream.random()) * 1_000_000 / self._load.rate
        self._world.at(self._world.now + 1 + int(gap_us), lambda: self._act(node, stream))

    def _act(self, node: NodeId, stream: random.Random) -> None:
        """One of the node's processes begins, joins, leaves or dies."""
        if self._world.applications.closed:
            return
        self._act_later(node, stream)
        host = self._world.hosts[node]
        what, which, (where,) = stream.random(), stream.random(), self._load.draw_groups(stream, 1)
        if not host.up or host.paused:
            return
        living, joined = self._living[node], sorted(self._joined[node])
        if what < 0.15:
            if len(living) < self._load.processes:
                self.begin_process(node)
        elif what < 0.55:
            if living:
                self.join(node, living[int(which * len(living))], where)
        elif what < 0.85:
            if joined:
                self.leave(node, *joined[int(which * len(joined))])
        elif living:
            self.end_process(node, living[int(which * len(living))])


def _counted(machine: ProcessGroups) -> dict[str, int]:
    """What a machine has counted, as the fuzzer's coverage names it."""
    return {
        "process groups: configuration settled": int(machine.stats["settled"]),
        "process groups: configuration ended unsettled": int(machine.stats["given_up"]),
        "process groups: contents lost": int(machine.stats["withheld"]),
    }
