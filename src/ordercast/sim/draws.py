"""What the drawing of all kinds of faults has in common: when they happen, for how long, and to whom."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ordercast.core.identity import NodeId
from ordercast.sim.faults import Partition

GAPS_US = (0, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
"""Scales of the gap between a moment and a fault that belongs to it."""
LENGTHS_US = (1_000, 5_000, 20_000, 60_000, 150_000, 500_000)
"""Scales of how long a fault lasts."""


def draw_moments(stream: random.Random, duration_us: int) -> list[int]:
    """Moments near which faults happen, none of them in the last fifth of the time."""
    count = stream.choice((1, 2, 3, 5, 8))
    return sorted(stream.randrange(duration_us // 20, max(duration_us * 4 // 5, 1)) for _ in range(count))


def draw_gap(stream: random.Random) -> int:
    """Microseconds between a moment and a fault that belongs to it."""
    scale = stream.choice(GAPS_US)
    return stream.randrange(scale) if scale else 0


def draw_length(stream: random.Random) -> int:
    """Microseconds for which a fault lasts."""
    return 1 + stream.randrange(stream.choice(LENGTHS_US))


def draw_victims(stream: random.Random, nodes: Sequence[NodeId]) -> list[NodeId]:
    """Mostly one node, sometimes several, now and then all."""
    most = stream.choice((1, 1, 1, 2, 2, max(1, len(nodes) // 2), len(nodes)))
    return stream.sample(list(nodes), min(len(nodes), stream.randint(1, most)))


def draw_split(stream: random.Random, nodes: Sequence[NodeId]) -> Partition | None:
    """The nodes in two groups or three; None if there are too few of them."""
    if len(nodes) < 2:
        return None
    shuffled = stream.sample(list(nodes), len(nodes))
    parts = min(len(nodes), stream.choice((2, 2, 2, 3)))
    cuts = sorted(stream.sample(range(1, len(nodes)), parts - 1))
    bounds = zip([0, *cuts], [*cuts, len(nodes)], strict=True)
    return Partition(tuple(tuple(sorted(shuffled[a:b])) for a, b in bounds))


def draw_links(stream: random.Random, nodes: Sequence[NodeId]) -> list[tuple[NodeId, NodeId]]:
    """Links: one, or all from a node (mute), or all to it (deaf)."""
    node = stream.choice(nodes)
    others = [other for other in nodes if other != node]
    if not others:
        return []
    shape = stream.choice(("one", "one", "mute", "deaf"))
    if shape == "one":
        return [(node, stream.choice(others))]
    return [(node, other) if shape == "mute" else (other, node) for other in others]
