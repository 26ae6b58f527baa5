"""What the nodes of a configuration that ends share with each other, with contents and without."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.core.addresses import address
from ordercast.core.identity import ConfigurationId, Guarantee, NodeId
from ordercast.rings.bundles import is_withheld, read_bundle, withhold, write_bundles
from ordercast.rings.change import Attempt
from ordercast.rings.messages import Entry, Place, Recovered, Report, Ring, State
from ordercast.rings.order import Order
from ordercast.rings.topology import Topology

NODES = (1, 2, 3, 4)
RINGS = (Ring(1, 8, 1, NODES), Ring(2, 8, 1, NODES))
ID = ConfigurationId(16, 1)
LATEST = 6
"""Timestamps of bundles are 1 to 6."""


class Has(NamedTuple):
    """What a node has when the configuration ends."""

    solid: tuple[int, ...]
    """By ring: everything up to this timestamp."""
    loose: frozenset[Place]
    """Of what is beyond that, these."""
    without: frozenset[Place]
    """Those of its bundles that are without contents."""


PLACES = [Place(timestamp, source, 0) for timestamp in range(1, LATEST + 1) for source in range(len(RINGS))]
holdings = st.builds(
    Has,
    st.tuples(*[st.integers(0, LATEST)] * len(RINGS)),
    st.frozensets(st.sampled_from(PLACES)),
    st.frozensets(st.sampled_from(PLACES)),
)


def bundle(place: Place) -> Entry:
    """The bundle at a place, with its contents."""
    message = address(0, ["a"]) + b"contents"
    (raw,) = write_bundles([message], place.timestamp, Guarantee.AGREED, addressed=True)
    read = read_bundle(raw)
    assert read is not None
    return Entry(place, NODES[place.timestamp % len(NODES)], 0, read)


def has(what: Has, place: Place) -> bool:
    """Whether a node has a bundle, with contents or without."""
    return place.timestamp <= what.solid[place.source] or place in what.loose


def order_of(what: Has, there: frozenset[Place]) -> Order:
    """The order of a node that has this much of what there is."""
    order = Order(ID, NODES, RINGS)
    order.horizon = list(what.solid)
    for place in sorted(there):
        entry = bundle(place)
        if place in what.without:
            entry = entry._replace(bundle=withhold(entry.bundle))
        if place.timestamp <= what.solid[place.source]:
            order.add(entry)
        elif place in what.loose:
            order.add_loose(entry)
    return order


def state_of(node: NodeId, order: Order, topology: Topology) -> State:
    """What a node tells of that."""
    loose = tuple((*place, order.at(place).origin) for place in order.scattered())
    withheld = tuple(order.withheld())
    return State(node, 1, topology.digest, ID, tuple(order.horizon), 0, NODES, loose, withheld)


@given(st.frozensets(st.sampled_from(PLACES)), st.tuples(*[holdings] * len(NODES)))
@settings(max_examples=150, deadline=None)
def test_all_have_everything_and_who_lacked_a_bundle_gets_its_contents_if_somebody_has_them(
    there: frozenset[Place], found: tuple[Has, ...]
) -> None:
    held = dict(zip(NODES, found, strict=True))
    reports = {node: Report(node, 1, RINGS, 16) for node in NODES}
    topology = Topology({(ring.network, ring.seq, ring.rep): ring for ring in RINGS}, reports)
    orders = {node: order_of(what, there) for node, what in held.items()}
    states = {node: state_of(node, order, topology) for node, order in orders.items()}
    attempts = {node: Attempt(topology, order) for node, order in orders.items()}
    shared: list[Recovered] = []
    for node, attempt in attempts.items():
        shared += attempt.compare(node, states)
    for attempt in attempts.values():
        for recovered in shared:
            attempt.receive(recovered)
        assert attempt.complete_here

    for place in there:
        having = [node for node in NODES if has(held[node], place)]
        with_contents = [node for node in having if place not in held[node].without]
        for node, order in orders.items():
            entry = order.loose.get(place) or order.entries.get(place)
            assert (entry is not None) == bool(having), "what one has, all have"
            if entry is not None and (node not in having or node in with_contents):
                assert is_withheld(entry.raw) == (not with_contents)


def test_who_tells_of_a_bundle_that_there_is_not_breaks_nothing() -> None:
    """A forged `State`: the attempt waits for what does not come, and another one follows."""
    reports = {node: Report(node, 1, RINGS, 16) for node in NODES}
    topology = Topology({(ring.network, ring.seq, ring.rep): ring for ring in RINGS}, reports)
    nothing = Has((0, 0), frozenset(), frozenset())
    orders = {node: order_of(nothing._replace(solid=(node + 1, 0)), frozenset()) for node in NODES}
    states = {node: state_of(node, order, topology) for node, order in orders.items()}
    forged = State(4, 1, topology.digest, ID, (5, 0), 0, NODES, (), (Place(5, 0, 0), Place(4, 0, 0)))
    for node, order in orders.items():
        told = {**states, 4: forged}
        assert all(each.part >= 0 for each in Attempt(topology, order).compare(node, told))
