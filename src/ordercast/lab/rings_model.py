"""Latencies over several Totem rings that gateways join, bounded instead of simulated.

Each ring carries all messages: with their contents where it or a ring behind it needs them
(`ordercast.lab.locality`), and where not, as their places, which are short packets. docs/lab-model.md derives
this. In short: a message waits for the token of its ring, and at each gateway for that of the next. Then a
node still has to hear from every other ring that nothing with a lower timestamp comes from there. How long
that takes depends on how far clocks of rings differ, which is bounded from below and from above.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from ordercast.lab.locality import Destination, Locality, address_to
from ordercast.lab.totem_model import RingModel, ethernet_ring, safe_mean_us, wait_mean_us
from ordercast.sim.network import Ethernet

Attached = Mapping[int, Sequence[int]]
"""The numbers of the networks that each node is attached to."""
BUNDLE_BYTES = 12
"""What stands in front of a message on several rings (`ordercast.rings.messages`),"""
FORWARDED_BYTES = 24
"""and in front of that where a gateway forwards it. Without the message's contents, its address is behind
both."""


class Bounds(NamedTuple):
    """Microseconds between which a mean latency lies."""

    low_us: float
    high_us: float

    @property
    def middle_us(self) -> float:
        """What is taken for the mean."""
        return (self.low_us + self.high_us) / 2


class Times(NamedTuple):
    """Means of one ring, in microseconds."""

    wait_us: float
    """How long a message waits for the token."""
    reach_us: float
    """From a visit of the token until others deliver."""
    known_us: float
    """From a visit of the token until the members know that all have what was sent."""


@dataclass(frozen=True)
class RingsModel:
    """Rings that gateways join in a tree, and their load."""

    rings: Mapping[int, RingModel]
    """By network: each carries the messages of all nodes, or their places."""
    hops: Mapping[int, Mapping[int, tuple[int, ...]]]
    """From a ring to another, the rings that a message comes to on the way, the last included."""
    needed: Mapping[tuple[int, int], float]
    """From a ring to a ring: deliveries there that count, of all of them together, for each message of the
    network; gateways count where they send."""

    @cached_property
    def _times(self) -> dict[int, Times]:
        found = {}
        for number, ring in self.rings.items():
            wait_us = wait_mean_us(ring)
            found[number] = Times(wait_us, ring.reach_us, safe_mean_us(ring) - wait_us)
        return found

    def _mean(self, bound_us: dict[tuple[int, int], float]) -> float:
        """Over all senders and all who need their messages."""
        return sum(took_us * self.needed.get(pair, 0.0) for pair, took_us in bound_us.items()) / sum(
            self.needed.values()
        )

    def _way_us(self, source: int, target: int) -> float:
        """Over the rings on the way from one to another, for the token of each and to its nodes."""
        return sum(
            self._times[number].wait_us + self._times[number].reach_us for number in self.hops[source][target]
        )

    def _agreed_us(self, source: int, target: int) -> Bounds:
        """From the application's submission on one ring to agreed delivery on another.

        At best the clocks of all rings are in step: then all that is needed of any other ring was sent when
        the message was. At worst no ring reaches the timestamp before the message itself comes to it.
        """
        begin = self._times[source].wait_us + self._times[source].reach_us
        low = max(self._way_us(ring, target) for ring in self.rings)
        high = max(self._way_us(source, ring) + self._way_us(ring, target) for ring in self.rings)
        return Bounds(begin + low, begin + high)

    def agreed_us(self) -> Bounds:
        """The mean latency to agreed delivery."""
        found = {(s, t): self._agreed_us(s, t) for s in self.rings for t in self.rings}
        return Bounds(
            self._mean({pair: bounds.low_us for pair, bounds in found.items()}),
            self._mean({pair: bounds.high_us for pair, bounds in found.items()}),
        )

    def safe_us(self) -> Bounds:
        """The mean latency to safe delivery.

        Each ring first has the message and all before it (as for agreed delivery), then its members know of
        each other that they do, after one to two rotations; and then the others have to hear of it.
        """
        found: dict[tuple[int, int], Bounds] = {}
        for source in self.rings:
            there = {ring: self._agreed_us(source, ring) for ring in self.rings}
            for target in self.rings:
                low = high = 0.0
                for number in self.rings:
                    then_us = self._times[number].known_us + self._way_us(number, target)
                    low = max(low, there[number].low_us + then_us)
                    high = max(high, there[number].high_us + then_us)
                found[source, target] = Bounds(low, high)
        return Bounds(
            self._mean({pair: bounds.low_us for pair, bounds in found.items()}),
            self._mean({pair: bounds.high_us for pair, bounds in found.items()}),
        )


def ethernet_rings(
    network: Ethernet,
    networks: Attached,
    *,
    rate: float,
    size: int,
    locality: Locality | None = None,
    places: bool = True,
) -> RingsModel:
    """The model of rings on Ethernets of one kind, joined in a tree; `rate` messages a second, of all nodes.

    `locality` says where messages are needed; None: everywhere. Without `places`, rings that do not need a
    message carry nothing of it: that is what 001 does. Raises `LoadTooHigh` where the rate is more than a
    ring can carry.
    """
    numbers = sorted({number for on in networks.values() for number in on})
    sizes = {number: sum(number in on for on in networks.values()) for number in numbers}
    hops = {source: _ways(source, networks) for source in numbers}
    if locality is None:
        locality = Locality(len(networks), ((Destination(1.0, frozenset({0})),),))
    spread = _Spread(networks, hops, locality)
    heads = (BUNDLE_BYTES, BUNDLE_BYTES + FORWARDED_BYTES) if len(numbers) > 1 else (0, 0)
    rings = {}
    for number in numbers:
        own, forwarded, place = (
            ethernet_ring(network, nodes=sizes[number], rate=1e-9, size=length)
            for length in (size + heads[0], size + heads[1], heads[1] + spread.address_bytes)
        )
        shares = (spread.own[number], spread.forwarded[number])
        mean_us = shares[0] * own.message_us + shares[1] * forwarded.message_us
        if places:
            mean_us += (1 - sum(shares)) * place.message_us
            rings[number] = replace(own, rate=rate, message_us=mean_us)
        else:
            rings[number] = replace(own, rate=rate * sum(shares), message_us=mean_us / sum(shares))
    return RingsModel(rings, hops, spread.needed)


class _Spread:
    """Where messages come from and go to, for each message of the network."""

    def __init__(
        self, networks: Attached, hops: Mapping[int, Mapping[int, tuple[int, ...]]], locality: Locality
    ) -> None:
        self.needed: defaultdict[tuple[int, int], float] = defaultdict(float)
        """From ring to ring, deliveries that count."""
        self.own: defaultdict[int, float] = defaultdict(float)
        """By ring, the share of messages that nodes send on it."""
        self.forwarded: defaultdict[int, float] = defaultdict(float)
        """By ring, the share of messages that gateways forward to it with their contents."""
        members = [Counter(networks[node][0] for node in area) for area in locality.members]
        senders = Counter((locality.area_of(node), on[0]) for node, on in networks.items())
        address_bytes = 0.0
        for (area, source), count in senders.items():
            self.own[source] += count / len(networks)
            for probability, areas in locality.destinations[area]:
                weight = probability * count / len(networks)
                at: Counter[int] = sum((members[each] for each in areas), Counter())
                for number, nodes in at.items():
                    self.needed[source, number] += weight * nodes
                for number in set[int]().union(*(hops[source][number] for number in at)) - {source}:
                    self.forwarded[number] += weight
                address_bytes += weight * len(address_to(areas))
        self.address_bytes = round(address_bytes)
        """The mean length of an address."""


def _ways(source: int, networks: Attached) -> dict[int, tuple[int, ...]]:
    """To each network the others on the way from one, itself last: the fewest there are."""
    found: dict[int, tuple[int, ...]] = {source: ()}
    todo = [source]
    while todo:
        here = todo.pop(0)
        for there in sorted({number for on in networks.values() if here in on for number in on}):
            if there not in found:
                found[there] = (*found[here], there)
                todo.append(there)
    return found
