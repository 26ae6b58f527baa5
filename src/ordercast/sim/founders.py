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

from ordercast.core.identity import ConfigurationId, NodeId
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
    """Whether those that live can go on from the last view they know, or begin one if there was none.

    Where several groups were begun, what is left of one may have to wait for who is down: then all must live.
    """
    founders = settings.get("founders") or {}
    if founders and _several(founders) and not all(map(world.living, world.nodes)):
        return False
    known = _known(world)
    views = known + _installed(world)
    if views and not _majority_lives(world, max(views)[1]):
        return False
    between_lives = any(world.living(node) and not world.up(node) for node in world.nodes)
    if views and between_lives:
        return True  # what it has stored is not seen until its next life begins
    if known:
        return _majority_lives(world, max(known)[1])
    if not founders:
        return _majority_lives(world, world.nodes)
    ready = [needed for node in world.nodes if world.living(node) and (needed := founders[str(node)])]
    return bool(ready) and len(ready) >= max(ready)


def majority_failed(world: World) -> bool:
    """Whether of the last view too many have failed for the others to go on. Who has left has not failed."""
    views = _known(world) + _installed(world)
    if not views:
        return False
    members = max(views)[1]
    failed = sum(not world.living(node) and not world.hosts[node].left for node in members)
    return 2 * failed >= len(members)


def _majority_lives(world: World, members: Sequence[NodeId]) -> bool:
    """Whether more than half of these live."""
    return 2 * sum(map(world.living, members)) > len(members)


def _known(world: World) -> list[tuple[ConfigurationId, tuple[NodeId, ...]]]:
    """The views that living nodes have a vote in, each with its members.

    The last of them may be later than the last that was installed: those who decided on it failed before they
    installed it. It may be earlier: those who decided on the installed one failed before they told anybody.
    Then who is left has to ask a majority of the earlier one whether there is a later one.
    """
    views = []
    for host in world.hosts.values():
        known = getattr(host.machine, "voting_view", None)
        if known is not None:
            views.append((known.id, known.members))
    return views


def _installed(world: World) -> list[tuple[ConfigurationId, tuple[NodeId, ...]]]:
    """The last view that was installed, with its members, if there was one."""
    return [] if world.latest is None else [(world.latest.id, world.latest.members)]


def _several(founders: Founders) -> bool:
    """Whether two groups can be begun by different nodes."""
    needed = [some for some in founders.values() if some]
    return bool(needed) and len(needed) >= 2 * max(needed)
