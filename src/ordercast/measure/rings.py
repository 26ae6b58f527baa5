"""Several rings of the processes of a benchmark or demo: a line of rings, neighbours joined by a gateway."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from ordercast.core.identity import NodeId
from ordercast.runtime.config_values import DEFAULT_PORT
from ordercast.runtime.ring_settings import RingSettings

PORTS_APART = 10
"""From a gateway's port on one ring to that on the next, where it has one address."""
TRIES = 100
"""Ports of loopback that are tried."""


class RingPlace(msgspec.Struct, frozen=True):
    """Where a node is on one of the rings."""

    network: int
    listen: str
    seeds: tuple[str, ...]

    def settings(self, key: Path | None) -> RingSettings:
        """As a node is told it."""
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


def free_address(node: NodeId, network: int) -> str:
    """An address of loopback whose port, and the next one, are free."""
    for _ in range(TRIES):
        with socket.socket(type=socket.SOCK_DGRAM) as first, socket.socket(type=socket.SOCK_DGRAM) as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return f"127.0.0.1:{port}"
    raise OSError(f"no two ports in a row are free for node {node}: stop what uses so many")
