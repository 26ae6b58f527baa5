"""Which rings are connected, and how messages travel between them (001, "Network Topology Maintenance")."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from itertools import permutations
from typing import NamedTuple

from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.rings.messages import Report, Ring
from ordercast.totem.numbers import RING_STEP, STRIDE


class Edge(NamedTuple):
    """A gateway forwards from one ring to another: indexes of the rings."""

    gateway: NodeId
    source: int
    target: int


class Topology:
    """Rings that gateways connect: all that their nodes reported."""

    def __init__(
        self, rings: Mapping[tuple[int, int, NodeId], Ring], reports: Mapping[NodeId, Report]
    ) -> None:
        self.rings = tuple(rings[key] for key in sorted(rings))
        self.index = {(ring.network, ring.seq, ring.rep): i for i, ring in enumerate(self.rings)}
        self.members = tuple(sorted(reports))
        self.versions = {node: report.version for node, report in reports.items()}
        self.digest = _digest(self.rings, self.versions)
        self._reports = reports

    @property
    def id(self) -> ConfigurationId:
        """The configuration that its nodes install: above every one that any of them knows of.

        Two topologies differ in their digest, so that no identifier is used twice, whatever of the numbers
        that it was counted up from is forgotten. Numbers are multiples of four, as those of rings are.
        """
        highest = max(report.number for report in self._reports.values())
        drawn = int.from_bytes(self.digest, "little") % (STRIDE // RING_STEP)
        return ConfigurationId((highest // STRIDE + 1) * STRIDE + RING_STEP * drawn, self.members[0])

    def edges(self) -> list[Edge]:
        """A spanning tree: which gateway forwards between which rings, in both directions.

        All nodes find the same one. Breadth first, so that ways are short; of several gateways between two
        rings, the one with the lowest identifier.
        """
        attached: dict[NodeId, list[int]] = {}
        for i, ring in enumerate(self.rings):
            for node in ring.members:
                attached.setdefault(node, []).append(i)
        reached = {0}
        todo = deque([0])
        found: list[Edge] = []
        while todo:
            here = todo.popleft()
            for gateway in self.rings[here].members:
                new = [there for there in attached[gateway] if there not in reached]
                reached.update(new)
                todo += new
                found += [Edge(gateway, a, b) for a, b in permutations((here, *new), 2)]
        return found

    def behind(self, edge: Edge, edges: list[Edge]) -> frozenset[int]:
        """The rings whose messages an edge forwards: those that are reached without its gateway."""
        reached = {edge.source}
        todo = [edge.source]
        while todo:
            here = todo.pop()
            for other in edges:
                if other.source == here and other.gateway != edge.gateway and other.target not in reached:
                    reached.add(other.target)
                    todo.append(other.target)
        return frozenset(reached)


def closure(own: Report, reports: Mapping[NodeId, Report], spent: Mapping[NodeId, int]) -> Topology | None:
    """All rings that are connected to those of a node; None while some node of them has not reported.

    Of a report that is `spent` (its version led to the configuration that is given up) another has to come.
    """
    rings: dict[tuple[int, int, NodeId], Ring] = {}
    found: dict[NodeId, Report] = {own.node: own}
    todo = list(own.rings)
    while todo:
        ring = todo.pop()
        key = (ring.network, ring.seq, ring.rep)
        if key in rings:
            if rings[key] != ring:
                return None
            continue
        rings[key] = ring
        for node in ring.members:
            report = own if node == own.node else reports.get(node)
            if report is None or spent.get(node) == report.version or ring not in report.rings:
                return None
            if node not in found:
                found[node] = report
                todo += report.rings
    return Topology(rings, found)


def toward(me: NodeId, node: NodeId, rings: Iterable[Ring]) -> NodeId | None:
    """The first node on the shortest way to another one: itself, or a gateway; None if there is no way."""
    left = list(rings)
    todo: deque[tuple[NodeId, NodeId | None]] = deque([(me, None)])
    while todo:
        here, first = todo.popleft()
        for ring in [ring for ring in left if here in ring.members]:
            left.remove(ring)
            if node in ring.members:
                return node if first is None else first
            todo += [(other, other if first is None else first) for other in ring.members if other != here]
    return None


def _digest(rings: tuple[Ring, ...], versions: Mapping[NodeId, int]) -> bytes:
    text = repr([(ring.network, ring.seq, ring.rep) for ring in rings]) + repr(sorted(versions.items()))
    return blake2b(text.encode(), digest_size=8).digest()
