"""A group of machines in virtual time: the driver of every simulation.

The world gives machines their events and carries out their effects, in list order, as the runtime does
with real sockets and clocks. It knows no protocol. The same seed gives the same rows on any machine:
time is integer microseconds, everything that happens is one entry on one heap, equal times keep the
order of scheduling, and each random purpose has its own stream.

Rules a machine can rely on, beside those of `ordercast.core.contract`:

- of the packets that wait at a node multicasts come first, unicasts when no multicast waits (000 §5.2);
- a timer that runs out while its node is paused or busy waits for the packets that came before it
  (pause guard), so a node that was stopped reads what it missed before it suspects others;
- a crash loses all but the disk, whatever waits to be submitted included; packets already sent travel on;
- with `revive_us`, a machine that halts although nobody told it to go begins a new life that much later, as
  under a supervisor; a crash, or being told to go, in between keeps it down;
- a fault that does not apply (crash of a node that is down, resume of one that runs) does nothing.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heappush
from typing import Any, NamedTuple

from ordercast.core.contract import (
    LEFT,
    Accept,
    Brake,
    CancelTimer,
    Deliver,
    Distance,
    Drop,
    Event,
    Gone,
    Halt,
    Install,
    Machine,
    Multicast,
    Originate,
    Packet,
    Persist,
    SetTimer,
    Shift,
    Stable,
    Start,
    Stop,
    Timer,
    Unicast,
)
from ordercast.core.identity import Configuration, Kind, NodeId
from ordercast.sim.applications import MOST_AHEAD, Above, Applications
from ordercast.sim.clock import Clock
from ordercast.sim.host import Host
from ordercast.sim.links import Wiring
from ordercast.sim.network import NetworkConfig
from ordercast.sim.networks import Networks
from ordercast.sim.processors import Processors
from ordercast.sim.running_networks import Network
from ordercast.trace.recorder import Describe, Recorder, no_kind
from ordercast.trace.schema import Row

MachineFactory = Callable[[NodeId], Machine]
"""Makes the machine for one life of a node."""


class _LifeOver(Exception):
    """The machine halted: nothing behind it in the list is carried out."""


class Change(NamedTuple):
    """A machine entered a state (`Shift`)."""

    time_us: int
    node: NodeId
    state: str
    because: str


class World:
    """Machines, their hosts and the network between them, or several networks joined by gateways."""

    def __init__(
        self,
        make: MachineFactory,
        nodes: Sequence[NodeId],
        network: NetworkConfig,
        seed: int | str,
        *,
        packets: bool = False,
        kind_of: Callable[[bytes], str | None] = no_kind,
        history: int = 10_000,
        application_queue: int = 1_024,
        revive_us: int | None = None,
        networks: Mapping[NodeId, Sequence[int]] | None = None,
    ) -> None:
        """Set up `nodes` on `network`; none is started yet.

        `networks` has the numbers of the networks that each node is attached to, all of the kind that
        `network` says and each with a chance of its own. None: all nodes are attached to one, number 0.

        `packets` traces packets too, with their kind from `kind_of`. `history` bounds how many changes of
        state are remembered, `application_queue` how many messages a node's application keeps waiting.
        After `revive_us` a machine that halted by itself begins another life; None: it stays down.
        """
        self.clock = Clock(seed)
        self.rows: list[Row] = []
        """The trace, in the order in which things happened. Whoever takes rows out may clear it."""
        self.nodes = tuple(sorted(nodes))
        self.hosts = {
            node: Host(node, Recorder(node, self.rows, packets, kind_of), network.input_bytes)
            for node in self.nodes
        }
        self.fallen: list[str] = []
        """Configurations that are not numbered above those that the node installed before on its disk."""
        self.changes: deque[Change] = deque(maxlen=history)
        self.visits: Counter[str] = Counter()
        """How often a state was entered, over all nodes."""
        self.crashes: Counter[str] = Counter()
        """How often a node crashed, by the state it was in."""
        self.roles_lost: Counter[str] = Counter()
        """The same by the role that its machine had (`Machine.role`)."""
        self.halt_reasons: Counter[str] = Counter()
        """How often machines ended their own lives, by what they said."""
        self.latest: Configuration | None = None
        """The regular configuration with the highest identifier that anybody installed."""
        self.drops: Counter[str] = Counter()
        """Packets that were not used, by reason: the network's, the hosts' and the machines'."""
        self.receptions = 0
        """Packets that machines have handled."""
        self.timeouts = 0
        """Timers that ran out."""
        self.starts = self.halts = self.sent_packets = 0
        self._make, self._revive_us = make, revive_us
        self._watchers: list[Callable[[NodeId, str], None]] = []
        self._watchers_sent: list[Callable[[NodeId, str | None], None]] = []
        self.kind_of = kind_of
        self._costs = network
        plain = not (packets or network.takes_time)
        self.applications = Applications(self.clock, self.hosts, application_queue, self._carry_out)
        self._feed = self.applications.feed
        self._processors = Processors(
            self.clock,
            network,
            plain,
            receive=self._receive,
            expire=self._expire,
            feed=self._feed,
            lose=self._lose,
        )
        self.networks = Networks(
            network,
            Wiring(self.clock, self.hosts, self._hear, self._hear_all, self._hear_unicast, self._lose),
            networks,
        )
        self._carry: dict[type, Callable[[Host, Any], None]] = {
            Multicast: self._multicast if plain else self._send,
            Unicast: self._unicast if plain else self._send,
            SetTimer: self._processors.set_timer,
            CancelTimer: self._processors.cancel_timer,
            Persist: self._persist,
            Accept: self.applications.accept,
            Originate: self._originate,
            Deliver: self._deliver,
            Stable: self._stable,
            Install: self._install,
            Shift: self._shift,
            Drop: self._drop,
            Halt: self._halt,
        }

    def watch(self, watcher: Callable[[NodeId, str], None]) -> None:
        """Call `watcher(node, state)` whenever a machine says that it enters a state."""
        self._watchers.append(watcher)

    def watch_sent(self, watcher: Callable[[NodeId, str | None], None]) -> None:
        """Call `watcher(node, kind)` whenever a machine sends a packet, before it is on its way."""
        self._watchers_sent.append(watcher)
        self._carry[Multicast] = self._carry[Unicast] = self._send

    def put_above(self, layer: Above, describe: Describe) -> None:
        """Put a layer between machines and applications, before any node is started.

        `describe` reads off payloads whom they are for.
        """
        self.applications.above = layer
        self._carry[Deliver] = self._deliver_above
        self._carry[Install] = self._install_above
        for host in self.hosts.values():
            host.record.describe_with(describe)

    # --- time ----------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """Virtual time in microseconds."""
        return self.clock.now

    def run_until(self, until_us: int) -> None:
        """Let everything happen that is due up to and including `until_us`."""
        self.clock.run_until(until_us)

    def at(self, when_us: int, act: Callable[[], object]) -> None:
        """Call `act` at that time (now, if it is past)."""
        self.clock.at(when_us, act)

    # --- looking -------------------------------------------------------------------------------

    @property
    def handled(self) -> int:
        """Events that machines have handled."""
        return self.receptions + self.timeouts + self.applications.submissions + self.starts

    @property
    def utilization(self) -> float:
        """Share of the time so far in which the shared medium was in use; 0 where there is none."""
        return self.networks.busy_us / self.clock.now if self.clock.now else 0.0

    @property
    def network(self) -> Network:
        """The network, where there is one only."""
        (only,) = self.networks.values()
        return only

    def up(self, node: NodeId) -> bool:
        """Whether the node lives (it may be paused)."""
        return self.hosts[node].up

    def living(self, node: NodeId) -> bool:
        """Whether the node lives, or is about to again without anybody's doing."""
        return self.hosts[node].up or self.hosts[node].reviving

    # --- lives ---------------------------------------------------------------------------------

    def start(self, *nodes: NodeId) -> None:
        """Begin the first life of these nodes, or of all, in order."""
        for node in nodes or self.nodes:
            self._begin(self.hosts[node])

    def begin(self, node: NodeId) -> None:
        """Begin the first life of a node that has not had one."""
        if self.hosts[node].incarnation < 0:
            self._begin(self.hosts[node])

    def set_clock(self, node: NodeId, ahead_us: int) -> None:
        """From its next life on a node's clock is ahead of the simulation's by so much."""
        self.hosts[node].next_clock_us = ahead_us

    def restart(self, node: NodeId, keep_disk: bool = True, writes_ago: int = 0) -> None:
        """Begin the next life of a node that is down. One that is up is only spared the crash that awaits it.

        Its disk holds what was persisted last, or `writes_ago` before that; unless it is lost.
        """
        host = self.hosts[node]
        if host.up:
            host.effects_left = None
            self._processors.refresh(host)
            return
        host.find_disk(keep_disk, writes_ago)
        self._begin(host)

    def crash(self, node: NodeId, after_effects: int | None = None) -> None:
        """End a life: at once, or in the middle of the next event that has more effects than this.

        Of that event the first `after_effects` are carried out: what is behind a `Persist` must not
        have happened before it, and this is how a test finds out.
        """
        host = self.hosts[node]
        if not host.up:
            host.reviving = host.reviving and after_effects is not None
        elif after_effects is None:
            self._die(host)
        else:
            host.effects_left = after_effects
            host.direct = False

    def leave(self, node: NodeId) -> None:
        """Ask a node that runs to go (`Stop`): it finishes and halts by itself."""
        host = self.hosts[node]
        host.reviving = False
        if host.up and not host.paused:
            host.leaving = True
            self._step(host, Stop())

    def brake(self, node: NodeId, on: bool) -> None:
        """The log disk of a node that runs does not keep up, or has caught up (`Brake`)."""
        host = self.hosts[node]
        if host.up and not host.paused:
            self._step(host, Brake(on))

    def tell_gone(self, to: NodeId, node: NodeId) -> None:
        """Tell a node that runs that another is believed to be gone (`Gone`), whether or not it is."""
        host = self.hosts[to]
        if host.up and not host.paused:
            self._step(host, Gone(node))

    def tell_distance(self, node: NodeId, round_trip_us: int) -> None:
        """Tell a node that runs how far its peers are (`Distance`), whether or not it is so."""
        host = self.hosts[node]
        if host.up and not host.paused:
            self._step(host, Distance(round_trip_us))

    def pause(self, node: NodeId) -> None:
        """Stop a process: arrivals wait in its buffers, its timers run out unheard."""
        host = self.hosts[node]
        if host.up:
            host.paused = True
            host.direct = False

    def resume(self, node: NodeId) -> None:
        """Let a paused process go on: first what waits in its buffers, then its overdue timers."""
        self._processors.resume(self.hosts[node])

    def limit_input(self, node: NodeId, input_bytes: int) -> None:
        """From now on the node's input buffers hold so many bytes, other than the network's hosts have."""
        self.hosts[node].input_bytes = input_bytes

    def slow(self, node: NodeId, cost_us: int) -> None:
        """From now on each packet takes the node so much longer; 0 ends it. Outlives a crash."""
        host = self.hosts[node]
        host.slow_us = cost_us
        self._processors.refresh(host)

    def _begin(self, host: Host) -> None:
        if host.up:
            raise ValueError(f"node {host.node} runs already")
        host.incarnation += 1
        host.clock_us = host.next_clock_us
        if host.incarnation:
            host.record.restart(self.clock.now, host.incarnation)
        seed = random.Random(f"{self.clock.seed}/node/{host.node}/{host.incarnation}").getrandbits(64)
        host.run(self._make(host.node), self.clock.now)
        host.up = True
        host.leaving = host.left = host.reviving = False
        self.starts += 1
        if self.applications.above is not None:
            self.applications.above.begin(host)
        self._processors.refresh(host)
        self._step(host, Start(host.incarnation, host.disk, seed))

    def _revive(self, host: Host, epoch: int) -> None:
        if host.reviving and epoch == host.epoch:
            self._begin(host)

    def _die(self, host: Host) -> None:
        self.crashes[host.state] += 1
        if host.machine is not None and host.machine.role:
            self.roles_lost[host.machine.role] += 1
        host.record.crash(self.clock.now)
        self._bury(host)

    def _bury(self, host: Host) -> None:
        self.applications.end_life(host)
        host.end_life()

    # --- events --------------------------------------------------------------------------------

    def _hear(self, host: Host, packet: Packet) -> None:
        if not host.direct:
            self._processors.line_up(host, packet, False)
            return
        self.receptions += 1
        carry = self._carry
        try:
            for effect in host.handle(self.clock.now + host.clock_us, packet):
                carry[type(effect)](host, effect)
        except _LifeOver:
            return
        if host.has_more and (host.ahead < MOST_AHEAD or host.waiting):
            self._feed(host)

    def _hear_all(self, hosts: Sequence[Host], packet: Packet) -> None:
        hear = self._hear
        for host in hosts:
            hear(host, packet)

    def _hear_unicast(self, host: Host, packet: Packet) -> None:
        if host.direct:
            self._hear(host, packet)
        else:
            self._processors.line_up(host, packet, True)

    def _receive(self, host: Host, packet: Packet) -> None:
        """A machine gets a packet that its processor has done with."""
        self.receptions += 1
        host.in_hand = packet
        host.record.packet(self.clock.now, "packet_received", packet.data)
        self._step(host, packet)

    def _expire(self, host: Host, timer: str) -> None:
        self.timeouts += 1
        self._step(host, Timer(timer))

    def _step(self, host: Host, event: Event) -> None:
        """Give a machine an event, carry out what it answers, and submit what there is room for."""
        self._carry_out(host, event)
        if host.has_more and host.up:
            self._feed(host)

    def _carry_out(self, host: Host, event: Event) -> None:
        effects = host.handle(self.clock.now + host.clock_us, event)
        left = host.effects_left
        cut = left is not None and len(effects) > left
        carry = self._carry
        try:
            for effect in effects[:left] if cut else effects:
                carry[type(effect)](host, effect)
        except _LifeOver:
            return
        if cut:
            self._die(host)

    def _lose(self, host: Host, packet: Packet, reason: str) -> None:
        self.drops[reason] += 1
        host.record.packet(self.clock.now, "packet_dropped", packet.data)

    # --- effects -------------------------------------------------------------------------------

    def _multicast(self, host: Host, effect: Multicast) -> None:
        self.sent_packets += 1
        self.networks[effect[1]].multicast(self.clock.now, host.node, effect[0])

    def _unicast(self, host: Host, effect: Unicast) -> None:
        self.sent_packets += 1
        self.networks[effect[3]].unicast(self.clock.now, host.node, effect.to, effect.data)

    def _send(self, host: Host, effect: Multicast | Unicast) -> None:
        """Where packets are traced or watched, or sending takes time and they leave one after another."""
        host.record.packet(self.clock.now, "packet_sent", effect.data)
        for watcher in self._watchers_sent:
            watcher(host.node, self.kind_of(effect.data))
        if self._costs.delays_sending:
            host.departs_us = max(host.departs_us, self.clock.now)
            host.departs_us += self._costs.sending_us(effect, len(self.nodes))
            heappush(self.clock.heap, (host.departs_us, self.clock.tick(), self._depart, host, effect))
        else:
            self._depart(host, effect)

    def _depart(self, host: Host, effect: Multicast | Unicast) -> None:
        if type(effect) is Multicast:
            self._multicast(host, effect)
        else:
            assert type(effect) is Unicast
            self._unicast(host, effect)

    def _persist(self, host: Host, effect: Persist) -> None:
        host.disks.append(effect.data)

    def _originate(self, host: Host, effect: Originate) -> None:
        host.record.originate(self.clock.now, effect.batch)
        self._processors.work_on(host, effect.batch)

    def _deliver(self, host: Host, effect: Deliver) -> None:
        host.record.deliver(self.clock.now, effect.batch)
        self._processors.work_on(host, effect.batch)
        self.applications.deliver(host, effect.batch)

    def _deliver_above(self, host: Host, effect: Deliver) -> None:
        self._deliver(host, effect)
        assert self.applications.above is not None
        self.applications.above.deliver(host, effect.batch)

    def _install_above(self, host: Host, effect: Install) -> None:
        self._install(host, effect)
        assert self.applications.above is not None
        self.applications.above.install(host, effect.configuration)

    def _stable(self, host: Host, effect: Stable) -> None:
        host.record.stable(self.clock.now, effect.batches)

    def _install(self, host: Host, effect: Install) -> None:
        configuration = effect.configuration
        if configuration.kind is Kind.REGULAR and (self.latest is None or configuration.id > self.latest.id):
            self.latest = configuration
        self.fallen += host.install(configuration)
        host.record.install(self.clock.now, configuration, effect.ended)

    def _shift(self, host: Host, effect: Shift) -> None:
        host.state = effect.state
        self.visits[effect.state] += 1
        self.changes.append(Change(self.clock.now, host.node, effect.state, effect.because))
        for watcher in self._watchers:
            watcher(host.node, effect.state)

    def _drop(self, host: Host, effect: Drop) -> None:
        self.drops[effect.reason] += 1
        host.record.packet(self.clock.now, "packet_dropped", host.in_hand.data)

    def _halt(self, host: Host, effect: Halt) -> None:
        self.halts += 1
        self.halt_reasons[effect.reason] += 1
        host.record.halt(self.clock.now)
        self._bury(host)
        host.left = effect.reason == LEFT
        if self._revive_us is not None and not host.leaving:
            host.reviving = True
            due_us = self.clock.now + self._revive_us
            heappush(self.clock.heap, (due_us, self.clock.tick(), self._revive, host, host.epoch))
        raise _LifeOver
