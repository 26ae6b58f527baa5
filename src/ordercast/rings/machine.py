"""The Totem multiple-ring protocol (001): several rings, joined by gateways, in one total order.

Follow a message. `Submit` bundles what an application sends (`sending`); on the node's first ring the bundle
gets a place in that ring's order, and a timestamp (`totem.circulation`). Every member of the ring receives it
(`_take`), gateways forward it to their other rings (`forwarding`), and so on along a spanning tree. A node
delivers it when nothing with a lower timestamp can come from any ring (`order`): rings that nobody sends on
are spoken for by Guarantee Vectors (`vectors`).

Follow a failure. A ring's machine installs another ring (`_on_ring`), or a gateway reports that a ring that
it is on has changed: the node gives up its configuration (`_give_up`) and reports its rings to all. When all
nodes of a topology have reported, they share what is left of the configurations before and install the new
one (`agreement`, `change`, `_enter`). See docs/decisions/rings.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ordercast.core.contract import (
    ID_IN_USE,
    Accept,
    Attend,
    Brake,
    CancelTimer,
    Deliver,
    Distance,
    Drop,
    Effect,
    Event,
    Gone,
    Halt,
    Install,
    Multicast,
    Originate,
    Packet,
    Persist,
    SetTimer,
    Shift,
    Stable,
    Start,
    Stop,
    Submit,
    Timer,
    Unicast,
)
from ordercast.core.declared import together, zeros
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind, NodeId
from ordercast.core.lamport import LamportClock
from ordercast.core.randomness import RandomStream
from ordercast.rings.agreement import AGREE, NO_DIGEST, Agreement
from ordercast.rings.attached import AttachedRing, Traffic
from ordercast.rings.bundles import SLOT_BITS, Bundle, is_interest, is_safe, read_bundle
from ordercast.rings.config import RingsConfig
from ordercast.rings.declared import STATISTICS
from ordercast.rings.forwarding import Forwarding
from ordercast.rings.interests import interest_of
from ordercast.rings.messages import (
    Done,
    Enter,
    Entry,
    Forwarded,
    Pause,
    Place,
    Recovered,
    Report,
    Ring,
    Several,
    Vector,
    read,
    write_note,
)
from ordercast.rings.messages import State as StateNote
from ordercast.rings.order import SOURCE_BITS, Order
from ordercast.rings.pausing import Pausing
from ordercast.rings.sending import Sending, is_bundle
from ordercast.rings.states import State
from ordercast.rings.storage import recall, store
from ordercast.rings.topology import Edge, Topology
from ordercast.rings.vectors import due, written
from ordercast.totem.packets import Data, decode_data

CONTROL = (Report, StateNote, Done, Recovered)
"""What agrees on the next configuration."""


class RingsMachine:
    """A node on one ring of several, or a gateway between rings."""

    def __init__(
        self, me: NodeId, config: RingsConfig, decode_data: Callable[[bytes], Data] = decode_data
    ) -> None:
        """A node that has not been started; `decode_data` is as for `TotemMachine`."""
        self.me = me
        self.config = config
        self.incarnation = -1
        self.leaving = False
        self.halted = False
        self._clock = LamportClock()
        self._networks = {
            network: AttachedRing(network, me, config, self._clock, decode_data)
            for network in config.networks
        }
        self.rings = tuple(self._networks.values())
        self._now_us = 0
        self._out: list[Effect] = []
        self._agreement = Agreement(me, self.rings, config.forming_us, self._out)
        self._sending = Sending(config)
        self._pausing = Pausing(config.forwarding)
        self._counts = zeros(STATISTICS)
        self._forwarding = Forwarding(me, self._counts)
        self.paths: Sequence[Edge] = ()
        """Which gateway forwards between which rings of the configuration that was installed last."""

    # --- the contract ---------------------------------------------------------------------------

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Take one event; the effects that follow from it, to be carried out in this order."""
        self._now_us = now_us
        if self.halted:
            assert type(event) is Packet, f"node {self.me} has halted; make a new machine and start it"
            return (Drop("halted"),)
        match event:
            case Packet():
                ring = self._networks.get(event.network)
                if ring is None:
                    return (Drop("network unknown"),)
                self._run(ring, event)
            case Timer(name):
                self._on_timer(name)
            case Submit(payloads, guarantee):
                self._on_submit(payloads, guarantee)
            case Start():
                self._on_start(event)
            case Stop():
                self.leaving = True
            case Brake(on):
                self._pausing.braking = on
            case Attend():
                self._sending.attend(interest_of(event))
            case Gone(network=network) if network in self._networks:
                self._run(self._networks[network], event)
            case Gone() | Distance():
                for ring in self.rings:
                    self._run(ring, event)
            case _:
                raise TypeError(f"not an event: {event!r}")
        self._look_after()
        if self._agreement.id_in_use and not self.halted:
            self.halted = True
            self._out.append(Halt(ID_IN_USE))
        out = self._out[:]
        self._out.clear()
        return out

    @property
    def state(self) -> State:
        """Where this node stands."""
        return self._agreement.state

    @property
    def order(self) -> Order:
        """The order of the configuration that is installed."""
        return self._agreement.order

    @property
    def room(self) -> int:
        """Size of the largest message that may be submitted now."""
        return 0 if self.halted or self.leaving or self.incarnation < 0 else self._sending.room

    @property
    def stats(self) -> Mapping[str, float]:
        """Running figures, by name: those of all rings together, and of what joins them."""
        none = zeros(STATISTICS)
        rings = [{**none, **ring.machine.stats} for ring in self.rings]
        return together(STATISTICS, [self._counts, *rings])

    @property
    def role(self) -> str:
        """A node on several rings joins them."""
        return "gateway" if len(self.rings) > 1 else ""

    @property
    def waits(self) -> Mapping[NodeId, int]:
        """By node, the longest time for which a token lately waited there to be handled."""
        longest: dict[NodeId, int] = {}
        for ring in self.rings:
            for node, wait_us in ring.machine.waits.items():
                longest[node] = max(wait_us, longest.get(node, 0))
        return longest

    @property
    def laggard(self) -> NodeId | None:
        """A node that keeps others from sending: it asked for a pause, or lags behind on one of the rings."""
        lagging = (ring.machine.laggard for ring in self.rings)
        return min(self._pausing.by, default=None) or next((node for node in lagging if node), None)

    @property
    def paused_by(self) -> frozenset[NodeId]:
        """Who wants nobody to send anything new."""
        return self._pausing.by

    @property
    def final(self) -> tuple[ConfigurationId, int] | None:
        """What all members of the component have: they deliver it, whatever happens."""
        stable = self.order.stable
        return (self.order.id, (stable + 1 << SOURCE_BITS) - 1) if stable else None

    # --- start, stop, time ----------------------------------------------------------------------

    def _on_start(self, start: Start) -> None:
        if self.incarnation >= 0:
            raise RuntimeError(f"node {self.me} was started before; make a new machine for a new life")
        self.incarnation = start.incarnation
        random = RandomStream(start.seed)
        stored = recall(self.me, start.stored)
        self._agreement.start(start.incarnation, None if stored is None else stored.number, random)
        for ring in self.rings:
            ring.stored = None if stored is None else stored.rings.get(ring.network)
        self._out.insert(0, self._persist())
        for ring in self.rings:
            self._run(ring, Start(start.incarnation, ring.stored, random.bits(64)))

    def _persist(self) -> Persist:
        rings = {ring.network: ring.stored for ring in self.rings if ring.stored is not None}
        return Persist(store(self._agreement.number, rings))

    def _on_timer(self, name: str) -> None:
        if name == AGREE:
            self._counts["agreements_repeated"] += self._agreement.out_of_time()
            return
        network, _, rest = name.partition("/")
        self._run(self._networks[int(network)], Timer(rest))

    def _leave_if_done(self) -> None:
        """Go, once everything that was accepted is broadcast and everyone has it."""
        if self.state is State.OPERATIONAL and self._sending.idle:
            for ring in self.rings:
                if not ring.machine.leaving:
                    self._run(ring, Stop())

    # --- what the rings do ----------------------------------------------------------------------

    def _run(self, ring: AttachedRing, event: Event) -> None:
        """Give a ring's machine an event, and carry out what it answers."""
        if ring.machine.halted:
            return
        out, network = self._out, ring.network
        for effect in ring.machine.handle(self._now_us, event):
            match effect:
                case Multicast(data):
                    out.append(Multicast(data, network))
                case Unicast(to, data, lane):
                    out.append(Unicast(to, data, lane, network))
                case Deliver(batch):
                    self._on_batch(ring, batch)
                case SetTimer(name, delay_us):
                    out.append(SetTimer(f"{network}/{name}", delay_us))
                case CancelTimer(name):
                    out.append(CancelTimer(f"{network}/{name}"))
                case Originate(batch):
                    self._on_originate(ring, batch)
                case Stable(batches):
                    ring.safe_seq = batches[-1].seq
                case Persist(data):
                    ring.stored = data
                    out.append(self._persist())
                case Install(configuration):
                    self._on_ring(ring, configuration)
                case Drop():
                    out.append(effect)
                case Halt():
                    if all(each.machine.halted for each in self.rings):
                        self.halted = True
                        out.append(effect)
                case Accept() | Shift():
                    pass  # of the ring alone

    def _look_after(self) -> None:
        """Do what followed from the event, until nothing more follows."""
        agreement = self._agreement
        while not self.halted:
            if agreement.news:
                agreement.news = False
                if self.state is State.OPERATIONAL and not agreement.still_right():
                    self._give_up("topology changed")
                if self.state is not State.OPERATIONAL:
                    agreement.evaluate()
            if agreement.ready():
                self._out.append(self._persist())
                agreement.pledge()
            topology = agreement.install()
            if topology is not None:
                self._enter(topology)
            if self.state is State.OPERATIONAL:
                self._progress()
            if not self._broadcast() and not agreement.news:
                break
        if self.leaving:
            self._leave_if_done()

    def _broadcast(self) -> bool:
        """Tell the rings' machines what there is to be broadcast; whether there was anything."""
        busy = False
        for ring in self.rings:
            payloads = None if ring.machine.leaving else ring.due()
            if payloads is not None:
                self._run(ring, Submit(payloads, Guarantee.AGREED))
                busy = True
        return busy

    def _on_batch(self, ring: AttachedRing, batch: Batch) -> None:
        """A packet of a ring, at its place in the ring's order."""
        timestamp = batch.timestamp
        self._clock.follow(timestamp)
        ring.timestamp = max(ring.timestamp, timestamp)
        payloads = batch.payloads
        last = max((i for i, payload in enumerate(payloads) if is_bundle(payload)), default=-1)
        for i, payload in enumerate(payloads):
            message = read(payload)
            if message is None:
                self._out.append(Drop("bad payload"))
            elif isinstance(message, CONTROL):
                self._agreement.hear(ring, batch.origin, payload, message)
            else:
                slot = (batch.slot + i) << SLOT_BITS
                traffic = Traffic(batch.origin, batch.incarnation, timestamp, slot, message, i == last)
                self._on_traffic(ring, traffic)
        if ring.index >= 0 and ring.ring is not None and self.state is State.OPERATIONAL:
            ring.horizon[ring.index] = timestamp
            ring.mark(batch.seq)

    def _on_traffic(self, ring: AttachedRing, traffic: Traffic) -> None:
        """Something of a configuration: the one that is installed, one that is about to be, or another."""
        digest = ring.agreed.get(traffic.sender, NO_DIGEST)
        if digest == NO_DIGEST:
            self._out.append(Drop("traffic of another configuration"))
        elif digest == self._agreement.digest and ring.index >= 0:
            self._take(ring, traffic)
        elif digest == self._agreement.about_to_install:
            ring.early.append(traffic)
        else:
            self._out.append(Drop("traffic of another configuration"))

    def _take(self, ring: AttachedRing, traffic: Traffic) -> None:
        """Traffic of the configuration that is installed here.

        Where the ring is between two of its own configurations (`AttachedRing.ring` is None), something may
        be missing before it.
        """
        match traffic.message:
            case Bundle() as bundle:
                place = Place(traffic.timestamp, ring.index, traffic.slot)
                entry = Entry(place, traffic.sender, traffic.incarnation, bundle)
                self._receive(ring, Forwarded(entry, traffic.last))
            case Forwarded() as forwarded if forwarded.entry.place.source < len(self.order.rings):
                self._receive(ring, forwarded)
            case Several(messages):
                for message in messages:
                    self._take(ring, traffic._replace(message=message))
            case Vector() as vector if ring.ring is not None:
                ring.take(vector)
            case Enter() if ring.ring is not None:
                ring.entered.add(traffic.sender)
            case Pause() as pause if pause.digest == self._agreement.digest and self._pausing.hear(pause):
                for other in self.rings:  # not by the tree alone: it may have come first on a ring beside it
                    if other is not ring:
                        other.tell(pause, write_note(pause))

    def _receive(self, ring: AttachedRing, forwarded: Forwarded) -> None:
        """A bundle that a member of the ring broadcast for the first time, or that a gateway forwarded."""
        entry, last = forwarded
        place, order = entry.place, self.order
        if ring.ring is None:
            order.add_loose(entry)
            return
        order.add(entry)
        upto = place.timestamp if last else place.timestamp - 1
        ring.horizon[place.source] = max(ring.horizon[place.source], upto)
        if self.state is State.OPERATIONAL:
            if is_interest(entry.raw):
                self._forwarding.hear_interest(entry)
            self._forwarding.forward(ring, forwarded)
        else:  # this node has given the configuration up, but not everybody has
            order.horizon[place.source] = max(order.horizon[place.source], upto)

    # --- the configuration that is installed -----------------------------------------------------

    def _progress(self) -> None:
        """Deliver what is due, tell others what they wait for, and send what may be sent."""
        self._learn()
        before = len(self._out)
        self.order.deliver(self._out)
        self._sending.acknowledged(self.order.stable)
        for effect in self._out[before:]:
            if type(effect) is Stable:
                self._sending.unsafe -= sum(batch.origin == self.me for batch in effect.batches)
        for ring in due(self.rings, self.order.latest):
            ring.outbox.vector = partial(self._write_vector, ring)
            ring.traffic = True
        waiting = max(ring.outbox.traffic_bytes for ring in self.rings) if self.role else 0
        pause = self._pausing.change(waiting)
        if pause is not None:
            note = Pause(self.me, self._agreement.next(), self._agreement.digest, pause)
            for ring in self.rings:
                ring.tell(note, write_note(note))
        if not self._pausing.by:
            for bundle in self._sending.feed(self.config.undelivered - self.order.waiting_bytes):
                # All messages at one place have one guarantee, so that no configuration ends between them.
                self.rings[0].put(bundle, apart=is_safe(bundle))

    def _write_vector(self, ring: AttachedRing) -> bytes:
        """The Guarantee Vector that is broadcast on a ring now."""
        self._counts["vectors"] += 1
        return write_note(written(self.rings, ring))

    def _learn(self) -> None:
        """What is known on any of the rings is known here."""
        order = self.order
        for ring in self.rings:
            ring.acknowledge()
            if ring.horizon != order.horizon:
                order.horizon = list(map(max, order.horizon, ring.horizon))
            if ring.acknowledged != order.acknowledged:
                order.acknowledged = list(map(max, order.acknowledged, ring.acknowledged))

    def _on_submit(self, payloads: Sequence[bytes], guarantee: Guarantee) -> None:
        if self.incarnation < 0 or self.leaving:
            raise RuntimeError(f"node {self.me} takes no messages: it is not started, or it is leaving")
        self._out.append(Accept(self._sending.accept(payloads, guarantee)))

    def _on_originate(self, ring: AttachedRing, batch: Batch) -> None:
        """Payloads of this node are broadcast; of these, own messages are originated."""
        for i, payload in enumerate(batch.payloads):
            if is_bundle(payload):
                bundle = read_bundle(payload)
                assert bundle is not None, "this node wrote it"
                self._sending.originated(bundle, batch.timestamp)
                if is_interest(payload):
                    continue
                place = Place(batch.timestamp, ring.index, (batch.slot + i) << SLOT_BITS)
                own = Entry(place, self.me, self.incarnation, bundle)
                self._out.append(Originate(self.order.batch(own)))

    # --- topology -------------------------------------------------------------------------------

    def _on_ring(self, ring: AttachedRing, configuration: Configuration) -> None:
        """A ring's machine installs a configuration: whatever was in force here is not any more."""
        self._give_up("ring changed")
        if configuration.kind is Kind.TRANSITIONAL:
            ring.ring = None
        else:
            ring.begin(Ring(ring.network, *configuration.id, configuration.members))
            self._agreement.ring_changed(ring)

    def _give_up(self, because: str) -> None:
        """Order nothing more in the configuration that is installed."""
        if self.state is State.OPERATIONAL:
            self._learn()
            for ring in self.rings:
                ring.give_up()
            self._sending.take_back()
            self._agreement.give_up(because)

    def _enter(self, topology: Topology) -> None:
        """A configuration was installed: from now on, messages are sent and forwarded in it."""
        self._counts["topologies"] += 1
        self._sending.unsafe = 0
        self._pausing.begin()
        by_index: dict[int, AttachedRing] = {}
        for ring in self.rings:
            assert ring.ring is not None, "who is between two rings agrees to nothing"
            index = topology.index[ring.ring.network, ring.ring.seq, ring.ring.rep]
            by_index[index] = ring
            ring.enter(index, len(topology.rings))
            ring.put(write_note(Enter()))
        self.paths = edges = topology.edges()
        self._forwarding.begin(topology, edges, by_index)
        for ring in self.rings:
            early, ring.early = ring.early, []
            for traffic in early:
                self._take(ring, traffic)
            ring.mark(ring.machine.ring.delivered)
