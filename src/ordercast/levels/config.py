"""Who is on which level: settings that all nodes have alike, and what follows from them."""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.identity import MAX_NODE_ID, NodeId
from ordercast.sequencers.config import TrmpConfig


class LevelsConfig(TrmpConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of TRMP with levels of trust; without `primaries` all nodes are in the one ring."""

    primaries: tuple[int, ...] = ()
    """The nodes that may be in the primary ring, and order messages; the others follow the order, as
    secondary sources or as receivers. None given: all may. All nodes have to be told the same."""

    sources: tuple[int, ...] = ()
    """The nodes that may send although they are no primaries: secondary sources. The rest only receive."""

    rings: tuple[tuple[int, ...], ...] = ()
    """The lower rings: the nodes of each, those of a higher level among them, which feed it. The first of
    these does, and the next ones stand in for it; after them the primaries do. A node that is on no ring
    follows a primary."""

    MAY_BE_ZERO: ClassVar[frozenset[str]] = TrmpConfig.MAY_BE_ZERO

    def __post_init__(self) -> None:
        super().__post_init__()
        for node in {
            *self.primaries,
            *self.sources,
            *self.servers,
            *(n for ring in self.rings for n in ring),
        }:
            if not 0 < node <= MAX_NODE_ID:
                raise ValueError(f"{node} is no identifier of a node: they are 1 to {MAX_NODE_ID}")
        if not self.primaries:
            if self.sources or self.rings:
                raise ValueError("sources and rings need primaries: name the nodes of the primary ring")
            return
        strange = [node for node in self.servers if node not in self.primaries]
        if strange:
            raise ValueError(f"servers has {strange[0]}, which is no primary: only members lead Reformations")
        placed = set(self.primaries)
        for ring in self.rings:
            if placed.isdisjoint(ring):
                raise ValueError(
                    f"nothing feeds the ring {ring}: name a primary in it, or a node of a ring before it"
                )
            placed.update(ring)


class Levels:
    """What the settings say of each node."""

    def __init__(self, config: LevelsConfig) -> None:
        self._primaries = config.primaries
        self._sources = frozenset(config.sources)
        self._feeders: dict[NodeId, tuple[NodeId, ...]] = {}
        placed = set(config.primaries)
        for ring in config.rings:
            feeders = tuple(node for node in ring if node in placed)
            for node in ring:
                if node not in placed:
                    self._feeders[node] = feeders
            placed.update(ring)

    def is_primary(self, node: NodeId) -> bool:
        """Whether a node may be in the primary ring."""
        return not self._primaries or node in self._primaries

    def may_send(self, node: NodeId) -> bool:
        """Whether a node is a source: a primary or a secondary one."""
        return self.is_primary(node) or node in self._sources

    def feeders(self, node: NodeId) -> tuple[NodeId, ...]:
        """The nodes on a node's ring that are of a higher level; none if it is on no ring."""
        return self._feeders.get(node, ())

    def parents(self, node: NodeId) -> tuple[NodeId, ...]:
        """Whom a node that is no primary follows: the first that answers.

        Those that feed its ring, then the primaries; of these each node begins with another one.
        """
        feeders = self.feeders(node)
        at = node % len(self._primaries)
        turned = (*self._primaries[at:], *self._primaries[:at])
        return (*feeders, *(primary for primary in turned if primary not in feeders))

    def is_above(self, node: NodeId, below: NodeId) -> bool:
        """Whether what `below` sends may come by way of `node`."""
        parents = self._feeders.get(below, ())
        return node in self._primaries or any(
            parent == node or (not self.is_primary(parent) and self.is_above(node, parent))
            for parent in parents
        )
