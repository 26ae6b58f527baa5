"""Several rings of the processes of a benchmark or demo: a line of rings, neighbours joined by a gateway."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from ordercast.core.identity import NodeId
from ordercast.runtime.config_values import DEFAULT_PORT
from ordercast.runtime.ring_settings import RingSettings

PORTS_APART = 10
"""From a gateway's port on one ring to that on the next, where it has one address."""


class RingPlace(msgspec.Struct, frozen=True):
    """Where a node is on one of the rings."""

    network: int
    listen: str
    seeds: tuple[str, ...]

    def settings(self, key: Path | None) -> RingSettings:
        """The settings of a node for this ring."""
        return RingSettings(network=self.network, listen=self.listen, seeds=self.seeds, key=key)


def in_a_line(nodes: int, rings: int) -> dict[int, tuple[NodeId, ...]]:
    """The nodes of each ring, by the number of its network: nodes are shared out evenly, and the last one of
    each ring but the last is on the next one, too."""
    if rings < 1 or nodes < 2 * rings:
        raise ValueError(f"{rings} rings of {nodes} nodes: take at least two nodes for each ring")
    ends = [nodes * number // rings for number in range(rings + 1)]
    return {
        number: tuple(range(max(1, ends[number - 1] + (number == 1)), ends[number] + 1))
        for number in range(1, rings + 1)
    }


def gateways(rings: Mapping[int, Sequence[NodeId]]) -> list[NodeId]:
    """The nodes on more than one ring, in order."""
    seen = [node for nodes in rings.values() for node in nodes]
    return sorted({node for node in seen if seen.count(node) > 1})


def victim_of(nodes: int, rings: int) -> NodeId:
    """The node that is killed, stopped or cut off: the last one; of several rings, the first gateway."""
    return nodes if rings == 1 else gateways(in_a_line(nodes, rings))[0]


def first_ring(rings: Mapping[int, Sequence[NodeId]], node: NodeId) -> int:
    """The network on which a node sends what its application sends."""
    return min(network for network, nodes in rings.items() if node in nodes)


def far(rings: Mapping[int, Sequence[NodeId]], node: NodeId) -> tuple[NodeId, ...]:
    """The nodes that a node shares no ring with."""
    near = {other for nodes in rings.values() if node in nodes for other in nodes}
    return tuple(sorted({other for nodes in rings.values() for other in nodes} - near))


def without(rings: Mapping[int, Sequence[NodeId]], gone: NodeId) -> list[tuple[NodeId, ...]]:
    """The parts that the nodes fall into when one is gone."""
    parts: list[set[NodeId]] = []
    for nodes in rings.values():
        part = set(nodes) - {gone}
        apart = [other for other in parts if not other & part]
        parts = [*apart, part.union(*(other for other in parts if other & part))]
    return [tuple(sorted(part)) for part in parts if part]


def places(
    rings: Mapping[int, Sequence[NodeId]], address: Callable[[NodeId, int], str]
) -> dict[NodeId, tuple[RingPlace, ...]]:
    """By node: where it is on each of its rings. `address` is that of a node on a network."""
    found: dict[NodeId, list[RingPlace]] = {}
    for network, nodes in rings.items():
        addresses = {node: address(node, network) for node in nodes}
        for node in nodes:
            ring = RingPlace(network, addresses[node], tuple(addresses.values()))
            found.setdefault(node, []).append(ring)
    return {node: tuple(each) for node, each in sorted(found.items())}


def port_of(network: int) -> int:
    """Where nodes with an address of their own receive what comes on a network."""
    return DEFAULT_PORT + PORTS_APART * (network - 1)


def on_loopback() -> Callable[[NodeId, int], str]:
    """For `places`: each node has an address of loopback to itself, drawn anew for each run.

    Another program has its ports on another of the 16 million addresses, so that none can be in use.
    """
    first = ipaddress.IPv4Address("127.0.0.0") + random.randrange(2**16, 2**24 - 2**16)
    return lambda node, network: f"{first + node}:{port_of(network)}"
