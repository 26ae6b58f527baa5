"""Mistakes one could make where gateways join rings (001)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ordercast.core.contract import Effect
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.core.lamport import LamportClock
from ordercast.mutants.mutant import Mutant, register
from ordercast.rings import machine
from ordercast.rings.agreement import Agreement
from ordercast.rings.attached import AttachedRing, Traffic
from ordercast.rings.bundles import Interest
from ordercast.rings.change import Attempt
from ordercast.rings.forwarding import Forwarding
from ordercast.rings.interests import Interests
from ordercast.rings.machine import RingsMachine
from ordercast.rings.messages import Control, Entry, Forwarded, Recovered, State, Vector
from ordercast.rings.order import Order
from ordercast.rings.outbox import RingOutbox
from ordercast.rings.sending import Sending
from ordercast.rings.topology import Topology

RINGS_MUTANTS: list[Mutant] = []

_mutant = register(RINGS_MUTANTS)

# --- order ------------------------------------------------------------------------------------------


@_mutant("rings", "order", Order, "complete", "messages are delivered as they come")
def _no_ring_is_waited_for(right: Any) -> Any:
    return property(lambda self: max(self.horizon, default=0))


@_mutant("rings", "order", Order, "complete", "one of the rings is not waited for")
def _one_ring_is_not_waited_for(right: Any) -> Any:
    return property(lambda self: sorted(self.horizon)[min(1, len(self.horizon) - 1)] if self.horizon else 0)


@_mutant("rings", "order", Order, "add", "a bundle that came over another way counts as another one")
def _bundles_come_twice(right: Any) -> Any:
    def add(self: Order, entry: Entry) -> bool:
        if entry.place in self.entries and entry.place.timestamp > self.complete:
            self._waiting.append(entry.place)
        new: bool = right(self, entry)
        return new

    return add


@_mutant("rings", "order", LamportClock, "follow", "a node does not take note of others' timestamps")
def _clocks_do_not_follow(right: Any) -> Any:
    return lambda self, timestamp: None


@_mutant("rings", "order", RingsMachine, "_receive", "the first bundle of a timestamp counts as the last")
def _first_of_a_timestamp_is_all(right: Any) -> Any:
    def receive(self: RingsMachine, ring: AttachedRing, forwarded: Forwarded) -> None:
        right(self, ring, forwarded._replace(last=True))

    return receive


# --- gateways ---------------------------------------------------------------------------------------


@_mutant("rings", "gateways", Forwarding, "forward", "every other bundle is forwarded behind the next")
def _forwarded_out_of_order(right: Any) -> Any:
    held: dict[int, Forwarded] = {}

    def forward(self: Forwarding, ring: AttachedRing, forwarded: Forwarded) -> None:
        before = held.pop(id(ring), None)
        if before is None and ring.edges and forwarded.entry.place.timestamp % 2:
            held[id(ring)] = forwarded
            return
        right(self, ring, forwarded)
        if before is not None:
            right(self, ring, before)

    return forward


@_mutant("rings", "gateways", Forwarding, "forward", "bundles of rings further away are not forwarded")
def _only_neighbours_are_forwarded(right: Any) -> Any:
    def forward(self: Forwarding, ring: AttachedRing, forwarded: Forwarded) -> None:
        if forwarded.entry.place.source == ring.index:
            right(self, ring, forwarded)

    return forward


@_mutant("rings", "gateways", machine, "due", "gateways send no Guarantee Vectors")
def _no_vectors(right: Any) -> Any:
    return lambda rings, latest: iter(())


@_mutant("rings", "gateways", machine, "written", "a vector promises more than has come")
def _vectors_promise_too_much(right: Any) -> Any:
    def written(rings: Iterable[AttachedRing], target: AttachedRing) -> Vector:
        vector = right(rings, target)
        return Vector(tuple((i, horizon + 40, known) for i, horizon, known in vector.entries))

    return written


@_mutant("rings+groups", "gateways", RingOutbox, "put_behind", "places come behind what was forwarded later")
def _places_come_late(right: Any) -> Any:
    def put_behind(self: RingOutbox, payload: bytes) -> None:
        places = self._places[:]
        self._places.clear()
        right(self, payload)
        for place in places:
            self.put(place)

    return put_behind


# --- safe delivery ----------------------------------------------------------------------------------


@_mutant("rings", "safe", Order, "stable", "what one ring has counts as what all have")
def _one_ring_is_enough(right: Any) -> Any:
    return property(lambda self: max(self.acknowledged, default=0))


@_mutant("rings", "safe", AttachedRing, "acknowledge", "a vector reports reception instead of safety")
def _received_counts_as_safe(right: Any) -> Any:
    def acknowledge(self: AttachedRing) -> None:
        if self.marks and self.ring is not None and len(self.entered) == len(self.ring.members):
            self.acknowledged[self.index] = self.marks[-1].complete

    return acknowledge


@_mutant("rings", "safe", AttachedRing, "take", "what vectors say is safe is not passed on")
def _nothing_is_acknowledged(right: Any) -> Any:
    def take(self: AttachedRing, vector: Vector) -> None:
        right(self, Vector(tuple((i, horizon, 0) for i, horizon, _ in vector.entries)))

    return take


# --- topology ---------------------------------------------------------------------------------------


@_mutant("rings", "topology", Agreement, "hear", "gateways do not pass on what nodes have")
def _states_are_not_passed_on(right: Any) -> Any:
    def hear(self: Agreement, ring: AttachedRing, sender: NodeId, payload: bytes, message: Control) -> None:
        if isinstance(message, State):
            self._remember(message)
        else:
            right(self, ring, sender, payload, message)

    return hear


@_mutant("rings", "topology", Agreement, "still_right", "rings that come or go elsewhere are not noticed")
def _changes_elsewhere_unnoticed(right: Any) -> Any:
    return lambda self: True


@_mutant("rings", "topology", Topology, "id", "configurations are numbered by who knows least")
def _lowest_number_counts(right: Any) -> Any:
    def identifier(self: Topology) -> ConfigurationId:
        lowest = min(report.number for report in self._reports.values())
        return ConfigurationId(lowest + 4, self.members[0])

    return property(identifier)


@_mutant("rings", "topology", RingsMachine, "_on_traffic", "traffic counts in any configuration")
def _traffic_of_any_configuration(right: Any) -> Any:
    def on_traffic(self: RingsMachine, ring: AttachedRing, traffic: Traffic) -> None:
        if ring.index >= 0:
            self._take(ring, traffic)
        else:
            right(self, ring, traffic)

    return on_traffic


@_mutant("rings", "topology", RingOutbox, "close", "what waits in one configuration is sent in the next")
def _traffic_outlasts_its_configuration(right: Any) -> Any:
    def close(self: RingOutbox) -> None:
        self.open = self._halfway = False
        self._traffic.rewind()

    return close


# --- recovery ---------------------------------------------------------------------------------------


@_mutant("rings", "recovery", Attempt, "complete_here", "nobody waits for what others share")
def _nothing_is_recovered(right: Any) -> Any:
    return property(lambda self: self.compared)


@_mutant("rings", "recovery", Attempt, "receive", "what others share counts for any configuration")
def _shared_with_the_wrong_ones(right: Any) -> Any:
    def receive(self: Attempt, recovered: Recovered) -> None:
        right(self, recovered._replace(base=self._order.id))

    return receive


@_mutant("rings", "recovery", Attempt, "compare", "everybody delivers by what it knows itself")
def _each_by_itself(right: Any) -> Any:
    def compare(self: Attempt, me: NodeId, states: Mapping[NodeId, State]) -> Iterator[Recovered]:
        yield from right(self, me, states)
        self.complete, self.stable = self._order.complete, self._order.stable

    return compare


@_mutant("rings", "recovery", Order, "deliver_rest", "behind a gap nothing is delivered")
def _nothing_behind_a_gap_of_a_ring(right: Any) -> Any:
    def deliver_rest(self: Order, rest: Iterable[Entry], complete: int, effects: list[Effect]) -> None:
        right(self, [entry for entry in rest if entry.place.timestamp <= complete], complete, effects)

    return deliver_rest


# --- locality ---------------------------------------------------------------------------------------


@_mutant("rings+groups", "locality", Interests, "begin", "who has not told what it needs needs nothing")
def _untold_means_nothing(right: Any) -> Any:
    def begin(self: Interests, members: Iterable[NodeId]) -> None:
        right(self, ())

    return begin


@_mutant("rings+groups", "locality", Interests, "hear", "what a node needs later is not noted")
def _only_the_first_need_counts(right: Any) -> Any:
    def hear(self: Interests, node: NodeId, interest: Interest) -> None:
        if node in self._untold:
            right(self, node, interest)

    return hear


@_mutant(
    "rings+groups", "locality", Sending, "attend", "a node joins a group before all know that it needs it"
)
def _joined_before_it_is_known(right: Any) -> Any:
    def attend(self: Sending, interest: Interest) -> None:
        self._interest = interest

    return attend


@_mutant("rings+groups", "locality", Interests, "need", "gateways look at the first node behind them alone")
def _one_node_is_asked(right: Any) -> Any:
    def need(self: Interests, nodes: frozenset[NodeId], audience: bytes) -> bool:
        found: bool = right(self, frozenset(sorted(nodes)[:1]), audience)
        return found

    return need
