"""Who begins a group in a fuzzed run of a protocol with a primary partition, and what may be asked of it.

A group has to be founded by somebody, and nodes are told in different ways who does (`founders` of
`ordercast.viewsync.config`). Two ways that users have are drawn beside the plain one, a majority of all: one
node is the first and the others join it, or some of the nodes are on a list. In a fourth each node may found
a group alone, which is a mistake: several are begun, and have to become one without breaking a promise.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from ordercast.core.identity import NodeId
from ordercast.sim.faults import At, Fault, Heal, Partition
from ordercast.sim.world import World

Founders = dict[str, int]
"""For each node, as text, how many have to agree to begin a group; 0: it takes no part in that."""


def draw_founders(stream: random.Random, nodes: Sequence[NodeId]) -> Founders:
    """How many have to agree to begin a group, node by node."""
    way = stream.choice(("majority", "majority", "first", "listed", "each"))
    if way == "each":
        listed, needed = list(nodes), 1
    else:
        count = {"majority": len(nodes), "first": 1}.get(way) or stream.randint(1, len(nodes))
        listed = stream.sample(list(nodes), count)
        needed = count // 2 + 1
    return {str(node): needed if node in listed else 0 for node in nodes}


def draw_meeting(
    stream: random.Random, founders: Founders, nodes: Sequence[NodeId], duration_us: int
) -> list[Fault]:
    """Where several groups can be begun: in half of the seeds nodes are apart at first, and meet later."""
    if not _several(founders) or len(nodes) < 2 or stream.random() < 0.5:
        return []
    shuffled = stream.sample(list(nodes), len(nodes))
    at = stream.randint(1, len(nodes) - 1)
    apart = Partition((tuple(sorted(shuffled[:at])), tuple(sorted(shuffled[at:]))))
    return [At(0, apart), At(1 + stream.randrange(duration_us * 3 // 4), Heal())]


def may_go_on(world: World, settings: Mapping[str, Any]) -> bool:
    """Whether those that live can go on from the last view, or begin one if there was none.

    Where several groups were begun, what is left of one may have to wait for who is down: then all must live.
    """
    founders = settings.get("founders") or {}
    if founders and _several(founders) and not all(map(world.living, world.nodes)):
        return False
    last = _last_view(world)
    if last:
        return 2 * sum(map(world.living, last)) > len(last)
    if not founders:
        return 2 * sum(map(world.living, world.nodes)) > len(world.nodes)
    ready = [needed for node in world.nodes if world.living(node) and (needed := founders[str(node)])]
    return bool(ready) and len(ready) >= max(ready)


def _last_view(world: World) -> tuple[NodeId, ...]:
    """The members of the last view that was installed, or that a node has a vote in: those who decided on it
    may have failed before they installed it. Empty if there was none."""
    views = [] if world.latest is None else [(world.latest.id, world.latest.members)]
    for host in world.hosts.values():
        known = getattr(host.machine, "voting_view", None)
        if known is not None:
            views.append((known.id, known.members))
    return max(views)[1] if views else ()


def _several(founders: Founders) -> bool:
    """Whether two groups can be begun by different nodes."""
    needed = [some for some in founders.values() if some]
    return bool(needed) and len(needed) >= 2 * max(needed)
