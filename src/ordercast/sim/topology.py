"""Which nodes are attached to which networks: read from settings, drawn from a seed, and who reaches whom.

A node that is attached to several networks is a *gateway*. Protocols that order messages over several
networks have a setting `networks`, which in the laboratory may differ from node to node.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ordercast.core.identity import NodeId

Attached = Mapping[NodeId, Sequence[int]]
"""The numbers of the networks that each node is attached to."""

MOST_ON_A_NETWORK = 5
"""Nodes that a drawn network has, gateways included."""


def attached(settings: Mapping[str, Any], nodes: Iterable[NodeId]) -> dict[NodeId, tuple[int, ...]] | None:
    """What the setting `networks` says of these nodes; None where there is one network for all."""
    networks = settings.get("networks")
    if not isinstance(networks, Mapping):
        return None
    by_node = {int(node): tuple(numbers) for node, numbers in networks.items()}
    return {node: by_node[node] for node in nodes}


def gateways(networks: Attached) -> list[NodeId]:
    """The nodes that are attached to several networks."""
    return [node for node, numbers in networks.items() if len(numbers) > 1]


def members(networks: Attached, number: int) -> list[NodeId]:
    """The nodes that are attached to a network."""
    return [node for node, numbers in networks.items() if number in numbers]


def components(networks: Attached, nodes: Collection[NodeId]) -> list[tuple[NodeId, ...]]:
    """Those of `nodes` that reach each other over networks and gateways among them, in order."""
    found: list[tuple[set[NodeId], set[int]]] = []
    for node in sorted(nodes):
        together, numbers = {node}, set(networks[node])
        for other in [each for each in found if not numbers.isdisjoint(each[1])]:
            found.remove(other)
            together |= other[0]
            numbers |= other[1]
        found.append((together, numbers))
    return sorted(tuple(sorted(together)) for together, _ in found)


def draw_networks(stream: random.Random, nodes: Sequence[NodeId]) -> dict[str, list[int]]:
    """For each node, as text, the networks that it is attached to: two to four, joined by gateways.

    They are in a line, a star or a cycle, which of two networks is one with two gateways between them. Some
    have one gateway more than they need, some a gateway that joins three. A few have no node but a gateway.
    The networks of a gateway are in any order.
    """
    count = stream.choice([few for few in (2, 2, 3, 3, 4) if few * MOST_ON_A_NETWORK > len(nodes) + few])
    shuffled = stream.sample(list(nodes), len(nodes))
    drawn: dict[NodeId, set[int]] = {}
    for joined in _joints(stream, range(1, count + 1))[: len(nodes)]:
        drawn[shuffled.pop()] = joined
    for node in shuffled:
        room = [n for n in range(1, count + 1) if sum(n in on for on in drawn.values()) < MOST_ON_A_NETWORK]
        drawn[node] = {stream.choice(room)}
    return {str(node): stream.sample(sorted(drawn[node]), len(drawn[node])) for node in nodes}


def _joints(stream: random.Random, numbers: Sequence[int]) -> list[set[int]]:
    """The networks that each gateway joins."""
    first, last = numbers[0], numbers[-1]
    shape = stream.choice(("line", "star", "cycle"))
    joints = [{number - 1 if shape != "star" else first, number} for number in numbers[1:]]
    if len(numbers) > 2 and stream.random() < 0.25:  # one gateway joins three
        joints[:2] = [joints[0] | joints[1]]
    if shape == "cycle":
        joints.append({first, last})
    if stream.random() < 0.25:
        joints.append(set(stream.sample(list(numbers), 2)))
    return joints
