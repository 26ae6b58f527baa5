"""Several networks in a drawing: in which order nodes stand, and which of them each network joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ordercast.core.identity import NodeId

Attached: TypeAlias = Mapping[NodeId, Sequence[int]]
"""The numbers of the networks that each node is attached to; a gateway has several."""


class Line(NamedTuple):
    """A network that joins some of the nodes of a row."""

    number: int
    places: tuple[int, ...]
    """The places of its nodes in the row, ascending."""


def in_a_row(networks: Attached) -> list[NodeId]:
    """All nodes, network by network; a gateway stands before the other nodes of the last of its networks.

    So a gateway of two networks that follow each other is between their nodes.
    """
    place = {number: place for place, number in enumerate(neighbours_first(networks))}

    def where(node: NodeId) -> tuple[int, int, int]:
        last = max(place[number] for number in networks[node])
        return last, len(networks[node]) < 2, node

    return sorted(networks, key=where)


def neighbours_first(networks: Attached) -> list[int]:
    """The numbers of all networks, from the lowest on, those that a gateway joins behind each other."""
    numbers = sorted({number for on in networks.values() for number in on})
    found: list[int] = []
    for start in numbers:
        todo = [start]
        while todo:
            number = todo.pop(0)
            if number not in found:
                found.append(number)
                todo += sorted({other for on in networks.values() if number in on for other in on})
    return found


def lines(networks: Attached, row: Sequence[NodeId]) -> list[Line]:
    """The networks of a row's nodes, by number, with the places of these."""
    numbers = sorted({number for node in row for number in networks.get(node, ())})
    return [
        Line(number, tuple(i for i, node in enumerate(row) if number in networks.get(node, ())))
        for number in numbers
    ]


def joined(line: Line, place: int) -> bool:
    """Whether a network's line goes on from a place of the row to the next."""
    return line.places[0] <= place < line.places[-1]
