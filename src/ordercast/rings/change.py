"""One attempt to agree on a topology and to share what is left of the configurations before it.

Each node tells what it has (`State`). Who come from the same configuration share what some of them lack
(`Recovered`), and say when they have it all (`Done`). When all have said so the configuration is installed.
What is delivered before it follows from the states alone, so that all who come together deliver the same.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from ordercast.core.identity import NodeId
from ordercast.rings.messages import Entry, Place, Recovered, State
from ordercast.rings.order import Order
from ordercast.rings.topology import Topology


class Attempt:
    """A topology that all its nodes have reported, and what they say of where they come from."""

    def __init__(self, topology: Topology, order: Order) -> None:
        self.topology = topology
        self.digest = topology.digest
        self._order = order
        self.compared = False
        """Whether the states of all members were received."""
        self.done = False
        """Whether this node has told the others that it has everything."""
        self.together: tuple[NodeId, ...] = ()
        """Who comes from the same configuration as this node, in ascending order."""
        self.complete = 0
        self.stable = 0
        """Up to these timestamps they have everything together, and somebody knew that all had."""
        self.obligations: frozenset[NodeId] = frozenset()
        self._high: list[int] = []
        self._got: dict[int, set[int]] = {}
        self._missing: set[int] = set()
        """Rings of which others have more."""
        self._wanted: set[Place] = set()
        """Loose bundles that others have."""

    def compare(self, me: NodeId, states: Mapping[NodeId, State]) -> Iterator[Recovered]:
        """All states are here: who has what, and what this node has to share with the others."""
        self.compared = True
        order = self._order
        rings = len(order.rings)
        mine = {
            node: states[node]
            for node in self.topology.members
            if states[node].base == order.id and len(states[node].solid) == rings
        }
        self.together = tuple(sorted(mine))
        self.obligations = frozenset(self.together).union(*(state.obligations for state in mine.values()))
        self.stable = max(state.stable for state in mine.values())
        high = self._high = [max(state.solid[i] for state in mine.values()) for i in range(rings)]
        self.complete = min(high, default=0)
        without = {node: {Place(*place) for place in state.withheld} for node, state in mine.items()}
        loose = {node: {Place(*each[:3]) for each in state.loose} for node, state in mine.items()}
        for source in range(rings):
            low = min(state.solid[source] for state in mine.values())
            if low == high[source]:
                continue
            sharer = min(node for node, state in mine.items() if state.solid[source] == high[source])
            if order.horizon[source] < high[source]:
                self._missing.add(source)
            elif me == sharer:
                yield from self._share(source, low, high[source])
            for place in sorted(without[sharer]):
                if place.source == source and low < place.timestamp <= high[source]:
                    having = [
                        node
                        for node, state in mine.items()
                        if state.solid[source] >= place.timestamp or place in loose[node]
                    ]
                    yield from self._share_contents(me, place, having, without)
        holders: dict[Place, list[NodeId]] = {}
        for node, state in mine.items():
            for timestamp, source, slot, origin in state.loose:
                if source < rings and timestamp > high[source] and origin in self.obligations:
                    holders.setdefault(Place(timestamp, source, slot), []).append(node)
        for place, nodes in holders.items():
            if me not in nodes:
                self._wanted.add(place)
            elif me == _first_with_contents(place, nodes, without) and len(nodes) < len(mine):
                yield self._shared(-1, 0, place.source, order.at(place))

    def _share_contents(
        self, me: NodeId, place: Place, having: Sequence[NodeId], without: Mapping[NodeId, Container[Place]]
    ) -> Iterator[Recovered]:
        """Of a bundle that is shared without its contents: who has these shares it by itself."""
        first = _first_with_contents(place, having, without)
        if place in without[first]:
            return
        if me == first:
            if place in self._order:  # else somebody told of a bundle that there is not
                yield self._shared(-1, 0, place.source, self._order.at(place))
        elif me not in having:
            self._wanted.add(place)

    def _share(self, source: int, low: int, high: int) -> Iterator[Recovered]:
        """What came from a ring between two timestamps; if nothing did, that."""
        entries = [
            entry
            for place, entry in sorted(self._order.entries.items())
            if place.source == source and low < place.timestamp <= high
        ]
        for index, entry in enumerate(entries):
            yield self._shared(index, len(entries), source, entry)
        if not entries:
            yield self._shared(0, 0, source, None)

    def _shared(self, part: int, parts: int, source: int, entry: Entry | None) -> Recovered:
        return Recovered(self.digest, self._order.id, part, parts, source, entry)

    def receive(self, recovered: Recovered) -> None:
        """Somebody shares a bundle."""
        entry = recovered.entry
        if recovered.base != self._order.id:
            return
        if recovered.part < 0:
            if entry is not None and entry.place in self._wanted:
                if entry.place.timestamp <= self._high[entry.place.source]:
                    self._order.add(entry)
                else:
                    self._order.loose[entry.place] = entry
                self._wanted.discard(entry.place)
        elif recovered.source in self._missing:
            got = self._got.setdefault(recovered.source, set())
            if entry is not None:
                got.add(recovered.part)
                self._order.add(entry)
            if len(got) == recovered.parts:
                self._missing.discard(recovered.source)
                self._order.horizon[recovered.source] = self._high[recovered.source]

    @property
    def complete_here(self) -> bool:
        """Whether this node has all that those have who come from the same configuration."""
        return self.compared and not self._missing and not self._wanted


def _first_with_contents(
    place: Place, nodes: Sequence[NodeId], without: Mapping[NodeId, Container[Place]]
) -> NodeId:
    """The first of the nodes that have a bundle, with its contents if one of them has these."""
    return min([node for node in nodes if place not in without[node]] or nodes)
