"""What can be audited of a trace whose oldest parts were deleted: all from one common point on.

The auditor takes a trace for a whole one, and a node's beginning that is missing for a beginning that never
was. So the nodes' rows are cut where all of them still have everything that follows:

- the *bound* is the latest configuration that a node with a missing beginning is found in, or comes to next
  if it is found in none or in a transitional one. Numbers of rings and views rise at every node that keeps
  its disk; so from its first regular configuration with the bound's number, or a higher one, each node has
  all its rows. Where a node's numbers fall, or may have fallen in what is missing, the bound lies beyond
  the highest before that;
- a node found in the middle of a configuration at the bound has no install of it. It gets one, and that
  configuration's messages are left out, at all nodes, up to the first position that everyone still has
  whole: each delivery, and the origination, which may itself not tell a position.

What is left is a trace like any other, and any violation in it is one. Violations that show only together
with the rows before it are not found: a second delivery of a message, say, whose first was deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import TypeAlias

from ordercast.core.identity import NodeId
from ordercast.trace.columns import (
    CONFIG_KIND,
    CONFIG_SEQ,
    EVENT,
    MEMBERS,
    NODE,
    ORIGIN,
    SEQ,
    SLOT,
    STEP,
    TIME_US,
    configuration_of,
    kind_and_configuration_of,
    life_of,
    message_of,
    origin_configuration_of,
    place_of,
)
from ordercast.trace.schema import Row

_Ring: TypeAlias = tuple[int | None, int | None]
_Position: TypeAlias = tuple[int | None, int | None]

_NOWHERE = 2**63
_NO_MESSAGE = (None,) * 17


def common_part(rows: Iterable[Row], whole: Iterable[NodeId] = ()) -> list[Row]:
    """The rows that can be audited, by node and step; empty if the nodes have no point in common.

    A node is known to have its beginning if it is among the `whole`, or if its first row is step 0.
    """
    known = frozenset(whole)
    by_node: defaultdict[NodeId, list[Row]] = defaultdict(list)
    for row in rows:
        by_node[row[NODE]].append(row)
    for its in by_node.values():
        its.sort(key=itemgetter(STEP))
    cut = [node for node, its in by_node.items() if its[0][STEP] and node not in known]
    bound = max((_found_in(by_node[node]) for node in cut), default=0)
    if cut:
        installs = {node: [row for row in its if _installs_regular(row)] for node, its in by_node.items()}
        numbers = {node: [row[CONFIG_SEQ] or 0 for row in its] for node, its in installs.items()}
        for node in cut:
            if _is_amid(by_node[node][0]):
                numbers[node].insert(0, by_node[node][0][CONFIG_SEQ] or 0)
        joined = ((row[CONFIG_SEQ] or 0, row[MEMBERS] or ()) for its in installs.values() for row in its)
        bound = beyond_falls(bound, numbers, joined, cut)
    amid = {node for node in cut if _is_amid(by_node[node][0]) and by_node[node][0][CONFIG_SEQ] == bound}
    left_out = _left_out(by_node, _first_positions(by_node, amid))
    kept: list[Row] = []
    for node in sorted(by_node):
        its = by_node[node]
        if node in amid:
            kept.append(_install(its[0], by_node))
        else:
            its = _from(its, bound)
        kept += (row for row in its if message_of(row) not in left_out) if left_out else its
    return kept


def beyond_falls(
    bound: int,
    numbers: Mapping[NodeId, Sequence[int]],
    joined: Iterable[tuple[int, Sequence[NodeId]]],
    cut: Collection[NodeId],
) -> int:
    """The bound, raised until no node's numbers fall from there on, and nothing of those is missing.

    `numbers` are those of the regular configurations that each node installs, in order; `joined` each
    configuration's number and members as anybody installs it; `cut` are the nodes whose beginning is missing.
    """
    for its in numbers.values():
        for highest, number in zip(accumulate(its, max), its[1:], strict=False):
            if number < highest:
                bound = max(bound, highest + 1)
    for number, members in joined:
        # A member that does not install it never did, or did so in what is missing, before its numbers fell.
        if number >= bound and any(node in members and number not in numbers[node] for node in cut):
            bound = number + 1
    return bound


def _is_amid(row: Row) -> bool:
    """Whether a node that begins with this row is in a regular configuration already."""
    return row[CONFIG_KIND] == "regular" and row[EVENT] != "install"


def _found_in(its: list[Row]) -> int:
    """The ring sequence number from which on a node has all its rows."""
    if _is_amid(its[0]):
        return its[0][CONFIG_SEQ] or 0
    return next((row[CONFIG_SEQ] or 0 for row in its if _installs_regular(row)), _NOWHERE)


def _installs_regular(row: Row) -> bool:
    return row[EVENT] == "install" and row[CONFIG_KIND] == "regular"


def _from(its: list[Row], bound: int) -> list[Row]:
    for place, row in enumerate(its):
        if _installs_regular(row) and (row[CONFIG_SEQ] or 0) >= bound:
            return its[place:]
    return []


def _first_positions(by_node: dict[NodeId, list[Row]], amid: set[NodeId]) -> dict[_Ring, _Position]:
    """For each configuration in which a node's rows begin, the first position that all nodes have whole."""
    rings = {configuration_of(by_node[node][0]) for node in amid}
    first: dict[_Ring, _Position] = dict.fromkeys(rings, (-1, -1))
    if not rings:
        return first
    originated = {message_of(row) for its in by_node.values() for row in its if row[EVENT] == "originate"}
    for node, its in by_node.items():
        delivered = [row for row in its if row[EVENT] == "deliver" and origin_configuration_of(row) in rings]
        if node in amid:
            ring = configuration_of(its[0])
            begin = next(
                (place_of(row) for row in delivered if origin_configuration_of(row) == ring), (_NOWHERE, 0)
            )
            first[ring] = max(first[ring], begin)
        for row in delivered:
            if row[ORIGIN] in amid and message_of(row) not in originated:
                first[origin_configuration_of(row)] = max(
                    first[origin_configuration_of(row)], (row[SEQ], (row[SLOT] or 0) + 1)
                )
    return first


def _left_out(
    by_node: dict[NodeId, list[Row]], first: dict[_Ring, _Position]
) -> set[tuple[int | None, int | None, int | None]]:
    """The messages that a node placed before the first position of their configuration."""
    if not first:
        return set()
    return {
        message_of(row)
        for its in by_node.values()
        for row in its
        if row[SEQ] is not None and place_of(row) < first.get(origin_configuration_of(row), (-1, -1))
    }


def _install(row: Row, by_node: dict[NodeId, list[Row]]) -> Row:
    """The install that a node found amid a configuration has lost; members as others tell, or as found."""
    ring = kind_and_configuration_of(row)
    told = (
        r[MEMBERS]
        for its in by_node.values()
        for r in its
        if r[EVENT] == "install" and kind_and_configuration_of(r) == ring
    )
    members = next(told, None) or tuple(
        sorted(
            node for node, its in by_node.items() if any(kind_and_configuration_of(r) == ring for r in its)
        )
    )
    # Nothing says when it was installed: not later than anything that happened in it, at any node.
    time_us = min(r[TIME_US] for its in by_node.values() for r in its if kind_and_configuration_of(r) == ring)
    return (*life_of(row), row[STEP] - 1, time_us, "install", *ring, members, *_NO_MESSAGE)
