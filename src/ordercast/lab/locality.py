"""Locality (001, "Multiple Rings"): in which part of the network a message is needed.

Nodes are in *areas* of equal size, by their numbers; each area is a process group of its own, and a message
is addressed to the groups of all areas that need it. Its own area always does.

001 has a probability p1 that "a message originated in one half of the network must be forwarded to the other
half", and p2 that "within one half of the network, a message must be forwarded from one quarter to the
other". What it leaves open: that both are independent of each other, that a message that must go to the other
half is needed in one of its quarters, either one equally likely, and with probability p2 in the other one as
well.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import msgspec

from ordercast.core.addresses import address
from ordercast.core.identity import NodeId

QUARTERS = 4


class Destination(NamedTuple):
    """The areas that need a message, and how probable that is."""

    probability: float
    areas: frozenset[int]


class Locality(msgspec.Struct, frozen=True, dict=True):
    """In which areas messages are needed, by the area that they come from."""

    nodes: int
    destinations: tuple[tuple[Destination, ...], ...]
    """By area, from 0: what may become of a message of one of its nodes."""

    def area_of(self, node: NodeId) -> int:
        """The area that a node is in."""
        return (node - 1) * len(self.destinations) // self.nodes

    @cached_property
    def members(self) -> tuple[frozenset[NodeId], ...]:
        """The nodes of each area."""
        areas: list[list[NodeId]] = [[] for _ in self.destinations]
        for node in range(1, self.nodes + 1):
            areas[self.area_of(node)].append(node)
        return tuple(map(frozenset, areas))

    @cached_property
    def _drawn(self) -> tuple[list[float], ...]:
        return tuple(list(accumulate(each.probability for each in some)) for some in self.destinations)

    def draw(self, node: NodeId, stream: random.Random) -> frozenset[int]:
        """The areas that need the next message of a node."""
        area = self.area_of(node)
        (found,) = stream.choices(self.destinations[area], cum_weights=self._drawn[area])
        return found.areas


def group_of(area: int) -> str:
    """The process group of an area."""
    return f"A{area}"


def address_to(areas: frozenset[int]) -> bytes:
    """What stands in front of a message to these areas."""
    return address(0, [group_of(area) for area in sorted(areas)])


def quarters(nodes: int, p1: float, p2: float) -> Locality:
    """001's: the network has halves, and these have quarters."""
    made = []
    for area in range(QUARTERS):
        other = 2 * (1 - area // 2)
        beyond: dict[tuple[int, ...], float] = {
            (): 1 - p1,
            (other,): p1 * (1 - p2) / 2,
            (other + 1,): p1 * (1 - p2) / 2,
            (other, other + 1): p1 * p2,
        }
        made.append(_together(area, _one_of([area ^ 1], p2), beyond))
    return Locality(nodes, tuple(made))


def neighbours(nodes: int, beside: Sequence[Sequence[int]], near: float, far: float) -> Locality:
    """Many areas, each with some `beside` it: a message is needed in one of these with probability `near`,
    and with probability `far` in any other area of the whole network."""
    made = []
    for area, next_to in enumerate(beside):
        others = [other for other in range(len(beside)) if other != area]
        made.append(_together(area, _one_of(next_to, near), _one_of(others, far)))
    return Locality(nodes, tuple(made))


def _one_of(areas: Sequence[int], probability: float) -> dict[tuple[int, ...], float]:
    """None of these areas, or with that probability one of them, each equally likely."""
    if not areas:
        return {(): 1.0}
    found: dict[tuple[int, ...], float] = {(): 1 - probability}
    found.update({(area,): probability / len(areas) for area in areas})
    return found


def _together(
    area: int, one: Mapping[tuple[int, ...], float], other: Mapping[tuple[int, ...], float]
) -> tuple[Destination, ...]:
    """An area itself, and what two independent draws add to it."""
    found: dict[frozenset[int], float] = {}
    for some, probability in one.items():
        for more, its_probability in other.items():
            areas = frozenset({area, *some, *more})
            found[areas] = found.get(areas, 0.0) + probability * its_probability
    return tuple(Destination(probability, areas) for areas, probability in found.items() if probability)
