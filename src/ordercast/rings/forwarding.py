"""Which bundles a gateway forwards to which of its rings, with their contents or without."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from ordercast.core.identity import NodeId
from ordercast.rings.attached import AttachedRing, Route
from ordercast.rings.bundles import audience, is_withheld, withhold
from ordercast.rings.interests import Interests
from ordercast.rings.messages import Entry, Forwarded, write_forwarded
from ordercast.rings.topology import Edge, Topology


class Forwarding:
    """The part of a gateway between its rings; at a node on one ring it forwards nothing."""

    def __init__(self, me: NodeId, counts: MutableMapping[str, float]) -> None:
        """`counts` are the statistics that it counts in."""
        self._me = me
        self._counts = counts
        self._interests = Interests()

    def begin(self, topology: Topology, edges: list[Edge], attached: Mapping[int, AttachedRing]) -> None:
        """A configuration was installed: lay the routes over the `attached` rings, by their index in it."""
        self._interests.begin(topology.members)
        for edge in edges:
            if edge.gateway == self._me:
                back = Edge(self._me, edge.target, edge.source)
                reached = (topology.rings[index].members for index in topology.behind(back, edges))
                nodes = frozenset[NodeId]().union(*reached) - {self._me}
                route = Route(attached[edge.target], topology.behind(edge, edges), nodes)
                attached[edge.source].edges.append(route)

    def hear_interest(self, entry: Entry) -> None:
        """A node tells which groups it needs, in a bundle of its own."""
        if entry.bundle.interest is not None:
            self._interests.hear(entry.origin, entry.bundle.interest)

    def forward(self, ring: AttachedRing, forwarded: Forwarded) -> None:
        """Pass a bundle that came on `ring` on to the others, under the same timestamp (001 Fig. 3).

        Where nobody needs the contents of its messages, pass on that there is one.
        """
        entry, last = forwarded
        for target, sources, nodes in ring.edges:
            if entry.place.source in sources:
                needed = self._interests.need(nodes, audience(entry.bundle))
                passed_on = entry if needed else entry._replace(bundle=withhold(entry.bundle))
                payload = write_forwarded(passed_on, last)
                if is_withheld(passed_on.raw):
                    target.outbox.put_place(payload)
                    self._counts["withheld"] += 1
                else:
                    target.outbox.put_behind(payload)
                    self._counts["forwarded"] += 1
                target.traffic = True
