"""Agreement on the topology (001, "Network Topology Maintenance"), and on what was delivered before it.

Every node reports to which rings it is attached; gateways pass reports on, so that all nodes that are
connected come to know the same. When a node has the reports of all nodes of all rings that it can reach, the
topology is complete, and an `Attempt` begins: the nodes share what is left of the configurations before, and
install the next one when all have said that they have everything. Whatever changes before that begins another
attempt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ordercast.core.contract import CancelTimer, Effect, Install, SetTimer, Shift
from ordercast.core.identity import Configuration, ConfigurationId, Ended, Kind, NodeId
from ordercast.core.randomness import RandomStream
from ordercast.rings.attached import AttachedRing
from ordercast.rings.change import Attempt
from ordercast.rings.messages import (
    MOST_LOOSE,
    Control,
    Done,
    Place,
    Recovered,
    Report,
    write_note,
    write_recovered,
)
from ordercast.rings.messages import State as StateNote
from ordercast.rings.order import Order
from ordercast.rings.states import State
from ordercast.rings.topology import Topology, closure
from ordercast.totem.numbers import RingNumbers

LIFE_BITS = 32
"""Counts of a node's notes are in the lower bits; above are its lives."""
AGREE = "agree"
"""The timer of an agreement that stands still: something was lost with a ring, so all begin again."""
ROUNDS = 4
"""Nothing new may be heard for as long as so many rings may take to form."""
MOST_DOUBLINGS = 5
"""How often that time is doubled, where agreement failed again and again."""
KEPT_DIGESTS = 8
"""Attempts of which shared bundles are kept before this node has begun them."""
NO_DIGEST = b""


class Agreement:
    """Which component configuration is installed at a node, and how it comes to the next one."""

    def __init__(
        self, me: NodeId, rings: Sequence[AttachedRing], forming_us: int, effects: list[Effect]
    ) -> None:
        """`forming_us` is how long a ring may take to form; what is to be done is added to `effects`."""
        self._me = me
        self._rings = rings
        self._forming_us = forming_us
        self._out = effects
        self._random = RandomStream(0)
        self.state = State.FORMING
        self.order = Order(ConfigurationId(0, me), (me,), ())
        """The order of the configuration that is installed."""
        self.digest = NO_DIGEST
        """The digest of the topology that led to that configuration."""
        self._spent: Mapping[NodeId, int] = {}
        """By node, the versions of the reports that led to that configuration."""
        self.number = 0
        """The highest number of a component configuration that this node knows of; on stable storage."""
        self._count = 0
        self._report: Report | None = None
        self._outdated = True
        """Another report is due."""
        self.news = False
        """Something was learned of the topology."""
        self._reports: dict[NodeId, Report] = {}
        self._states: dict[NodeId, StateNote] = {}
        self._dones: dict[NodeId, Done] = {}
        self._shared: dict[bytes, dict[tuple[ConfigurationId, int, int, Place | None], Recovered]] = {}
        """By digest of the attempt: what nodes share in it."""
        self._attempt: Attempt | None = None
        self._doublings = 0
        self.id_in_use = False
        """Another node reports under this node's identifier."""

    def start(self, incarnation: int, number: int | None, random: RandomStream) -> None:
        """A life begins, with a configuration of this node alone; `number` was on stable storage."""
        self._random = random
        self._count = incarnation << LIFE_BITS
        self.number = RingNumbers(random).first(number)
        first = Configuration(ConfigurationId(self.number, self._me), Kind.REGULAR, (self._me,))
        self.order = Order(first.id, first.members, ())
        self._out.append(Install(first))
        self._shift(State.FORMING, "started")

    def next(self) -> int:
        """A count above all that this node has given in any life."""
        self._count += 1
        return self._count

    def _shift(self, state: State, because: str) -> None:
        self.state = state
        self._out.append(Shift(state, because))

    # --- the configuration ends -----------------------------------------------------------------

    def give_up(self, because: str) -> None:
        """Order nothing more in the configuration that is installed."""
        self._shift(State.FORMING, because)
        self._doublings = 0
        self._outdated = self.news = True

    def ring_changed(self, ring: AttachedRing) -> None:
        """A node is on another ring than before: what its new members cannot know, it tells them."""
        if len(self._rings) > 1:
            for node, report in self._reports.items():
                if self._spent.get(node) != report.version:
                    ring.tell(report, write_note(report))
        self._outdated = self.news = True

    def out_of_time(self) -> bool:
        """Nothing new was heard for too long; whether the agreement begins again."""
        if self.state is State.OPERATIONAL:
            return False
        self._doublings = min(self._doublings + 1, MOST_DOUBLINGS)
        self._abandon()
        self._outdated = self.news = True
        return True

    def still_right(self) -> bool:
        """Whether the configuration that is installed is that of the topology, as far as it is known."""
        assert self._report is not None
        topology = closure(self._report, self._reports, {})
        return topology is not None and topology.digest == self.digest

    # --- notes ----------------------------------------------------------------------------------

    def _send(self, message: Control, payload: bytes, but: AttachedRing | None = None) -> None:
        """Tell all rings, but for the one that it came from."""
        for ring in self._rings:
            if ring is not but and ring.ring is not None:
                ring.tell(message, payload)

    def hear(self, ring: AttachedRing, sender: NodeId, payload: bytes, message: Control) -> None:
        """Something that all nodes of a topology have to know: gateways pass on what is new to them."""
        if isinstance(message, Recovered):
            news = self._take_shared(message)
        elif isinstance(message, Report) and message.node == self._me and message.version > self._count:
            self.id_in_use = True  # this node has never counted so far, in any life
            return
        else:
            if message.node == sender:
                self._hear_directly(ring, message)
            news = message.node != self._me and self._remember(message)
        if news:
            self._send(message, payload, but=ring)
            if self.state is not State.OPERATIONAL:
                self._wait()

    def _hear_directly(self, ring: AttachedRing, message: Report | StateNote | Done) -> None:
        """A member of a ring says on it where its traffic in one configuration ends, or begins in another."""
        if isinstance(message, Report):
            ring.reported[message.node] = message.version
            ring.agreed.pop(message.node, None)
            self.news = True
        elif isinstance(message, Done):
            ring.agreed[message.node] = message.digest

    def _remember(self, message: Report | StateNote | Done) -> bool:
        """Keep the last note of each kind of a node; whether this is a new one."""
        node = message.node
        if isinstance(message, Report):
            report = self._reports.get(node)
            if report is not None and report.version >= message.version:
                return False
            self._reports[node] = message
            self.news = True
        elif isinstance(message, StateNote):
            state = self._states.get(node)
            if state is not None and state.count >= message.count:
                return False
            self._states[node] = message
        else:
            done = self._dones.get(node)
            if done is not None and done.count >= message.count:
                return False
            self._dones[node] = message
        return True

    def _take_shared(self, recovered: Recovered) -> bool:
        """Keep a bundle that somebody shares; whether it is news."""
        if recovered.digest == self.digest:
            return False
        kept = self._shared.get(recovered.digest)
        if kept is None:
            while len(self._shared) >= KEPT_DIGESTS:
                del self._shared[next(iter(self._shared))]
            kept = self._shared[recovered.digest] = {}
        place = None if recovered.entry is None else recovered.entry.place
        key = (recovered.base, recovered.source, recovered.part, place)
        if key in kept:
            return False
        kept[key] = recovered
        attempt = self._attempt
        if attempt is not None and attempt.compared and attempt.digest == recovered.digest:
            attempt.receive(recovered)
        return True

    # --- the next configuration -----------------------------------------------------------------

    @property
    def about_to_install(self) -> bytes:
        """The digest of the topology that this node has agreed to, and that others may have installed."""
        return self._attempt.digest if self._attempt is not None and self._attempt.done else NO_DIGEST

    def evaluate(self) -> None:
        """Something was learned of the topology: begin an attempt, if all have reported."""
        if any(ring.ring is None for ring in self._rings):
            return
        if self._outdated:
            self._tell_rings()
        topology = self._closure()
        if self._attempt is not None:
            if topology is not None and topology.digest == self._attempt.digest:
                return
            done = self._attempt.done
            self._abandon()
            if done:  # others may have installed it: they need another report of this node
                self._tell_rings()
                topology = self._closure()
        if topology is not None and self._all_reported(topology):
            self._attempt = Attempt(topology, self.order)
            self._shift(State.RECOVERING, "all reported")
            self._tell_state(self._attempt.digest)

    def _abandon(self) -> None:
        if self._attempt is not None:
            self._attempt = None
            for ring in self._rings:
                ring.early.clear()
            self._shift(State.FORMING, "topology changed")

    def _closure(self) -> Topology | None:
        assert self._report is not None
        return closure(self._report, self._reports, self._spent)

    def _all_reported(self, topology: Topology) -> bool:
        """Whether nothing more comes on this node's rings of what was sent in earlier configurations."""
        return all(
            ring.reported.get(node) == topology.versions[node]
            for ring in self._rings
            if ring.ring is not None
            for node in ring.ring.members
        )

    def _tell_rings(self) -> None:
        """Report to all which rings this node is on."""
        self._outdated = False
        rings = tuple(sorted(ring.ring for ring in self._rings if ring.ring is not None))
        self._report = Report(self._me, self.next(), rings, self.number)
        self._send(self._report, write_note(self._report))
        self._wait()

    def _wait(self) -> None:
        """If nothing new is heard for a while, all begin again."""
        wait_us = ROUNDS * self._forming_us << self._doublings
        self._out.append(SetTimer(AGREE, self._random.spread(wait_us)))

    def _tell_state(self, digest: bytes) -> None:
        """Tell all what this node has of the configuration that it comes from."""
        order = self.order
        loose = tuple((*place, order.at(place).origin) for place in order.scattered())
        state = StateNote(
            self._me,
            self.next(),
            digest,
            (order.id.seq, order.id.rep),
            tuple(order.horizon),
            order.stable,
            tuple(sorted(order.obligations)),
            loose,
            tuple(order.withheld()[:MOST_LOOSE]),
        )
        self._states[self._me] = state
        self._send(state, write_note(state))

    def ready(self) -> bool:
        """Go on with the attempt as far as the others are; whether this node has everything from now on.

        Then `number` has to be stored before anything else is done, and `pledge` tells the others.
        """
        attempt = self._attempt
        if attempt is None:
            return False
        if not attempt.compared and _agree(self._states, attempt):
            for shared in attempt.compare(self._me, self._states):
                self._send(shared, write_recovered(shared))
            for recovered in self._shared.get(attempt.digest, {}).values():
                attempt.receive(recovered)
        if attempt.done or not attempt.complete_here:
            return False
        attempt.done = True
        self.order.obligations = attempt.obligations
        self.number = max(self.number, attempt.topology.id.seq)
        return True

    def pledge(self) -> None:
        """Tell all that this node has everything: from now on, others may install the configuration."""
        assert self._attempt is not None
        done = Done(self._me, self.next(), self._attempt.digest)
        self._dones[self._me] = done
        self._send(done, write_note(done))

    def install(self) -> Topology | None:
        """If all have everything: deliver the rest of the old configuration, begin the new one (000 §7.2)."""
        attempt = self._attempt
        if attempt is None or not attempt.done or not _agree(self._dones, attempt):
            return None
        old, topology, out = self.order, attempt.topology, self._out
        new = Configuration(topology.id, Kind.REGULAR, topology.members)
        between = ConfigurationId(new.id.seq - 2, attempt.together[0])
        rest = old.settle(attempt.complete, attempt.stable, out)
        ended = Ended(old.id, old.last_seq)
        out.append(Install(Configuration(between, Kind.TRANSITIONAL, attempt.together), ended))
        old.deliver_rest(rest, attempt.complete, out)
        out.append(Install(new, Ended(between, old.last_seq)))
        self.order = Order(new.id, topology.members, topology.rings)
        self.digest, self._spent = attempt.digest, topology.versions
        self._attempt = None
        self._shared.clear()
        out.append(CancelTimer(AGREE))
        self._shift(State.OPERATIONAL, "agreed")
        return topology


def _agree(notes: Mapping[NodeId, StateNote] | Mapping[NodeId, Done], attempt: Attempt) -> bool:
    """Whether the last note of each node is about this attempt."""
    return all(
        (note := notes.get(node)) is not None and note.digest == attempt.digest
        for node in attempt.topology.members
    )
