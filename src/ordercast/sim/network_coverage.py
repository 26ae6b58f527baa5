"""What a fuzzer made happen where there are several networks, counted from a run's rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from ordercast.core.identity import NodeId
from ordercast.sim.topology import Attached, gateways
from ordercast.sim.world import World
from ordercast.trace.columns import (
    CONFIG_KIND,
    CONFIG_REP,
    CONFIG_SEQ,
    EVENT,
    GUARANTEE,
    MEMBERS,
    NODE,
    ORIGIN,
)
from ordercast.trace.schema import Row

GATEWAY_CRASH = "gateway crash"
NETWORK_SPLIT = "network split"
"""A configuration without nodes that live and share a network with members, and were in the one before."""
REDUNDANT_GATEWAY_LOST = "redundant gateway lost"
"""A configuration without a gateway of the one before, whose networks are joined all the same: messages go
another way."""
SAME_MEMBERS = "configuration of the same members"
"""As the one before it: what changed is how they are connected."""
SAFE_OVER_NETWORKS = "safe message over networks"
"""A safe message delivered by a node that has no network in common with its origin."""

REMERGE = "remerge"
"""A configuration whose members come from several ones; all partitionable protocols have such."""

NETWORK_HITS = (
    GATEWAY_CRASH,
    NETWORK_SPLIT,
    REDUNDANT_GATEWAY_LOST,
    SAME_MEMBERS,
    SAFE_OVER_NETWORKS,
    REMERGE,
)
"""What a fuzzer has to make happen where there are several networks."""


def over_networks(world: World) -> Counter[str]:
    """How often what happened that a fuzzer has to make happen. What is told of a configuration counts once,
    however many nodes install it."""
    attached = world.networks.attached
    joints = set(gateways(attached))
    seen: Counter[str] = Counter()
    living: set[NodeId] = set()
    last: dict[NodeId, frozenset[NodeId]] = {}
    told: set[tuple[str, int | None, int | None]] = set()
    for row in world.rows:
        node, event = row[NODE], row[EVENT]
        if event == "install" and row[CONFIG_KIND] == "regular":
            living.add(node)
            now = frozenset(row[MEMBERS] or ())
            if node in last:
                hits = _changed(attached, last[node], now, living)
                told |= {(hit, row[CONFIG_SEQ], row[CONFIG_REP]) for hit in hits}
            last[node] = now
        elif event in ("crash", "halt"):
            seen[GATEWAY_CRASH] += event == "crash" and node in joints
            living.discard(node)
            last.pop(node, None)
        elif event == "deliver" and row[GUARANTEE] == "safe":
            seen[SAFE_OVER_NETWORKS] += _far(attached, row)
    seen.update(hit for hit, _, _ in told)
    return seen


def _changed(attached: Attached, before: Set[NodeId], now: Set[NodeId], living: Set[NodeId]) -> list[str]:
    """What a regular configuration tells that follows another one at a node."""
    if before == now:
        return [SAME_MEMBERS]
    hits = []
    lost = before - now
    there = {number for node in now for number in attached[node]}
    if any(not there.isdisjoint(attached[node]) for node in lost & living):
        hits.append(NETWORK_SPLIT)
    if any(len(there.intersection(attached[node])) > 1 for node in lost):
        hits.append(REDUNDANT_GATEWAY_LOST)
    return hits


def _far(attached: Attached, row: Row) -> bool:
    """Whether a delivery is of a message from a node with which this one has no network in common."""
    assert row[ORIGIN] is not None
    return set(attached[row[NODE]]).isdisjoint(attached[row[ORIGIN]])
