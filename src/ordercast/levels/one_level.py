"""TRMP's machine where all nodes are in the one ring."""

from __future__ import annotations

from collections.abc import Mapping

from ordercast.core.declared import zeros
from ordercast.levels.packets import LEVEL_STATISTICS
from ordercast.viewsync.machine import GroupMachine


class OneLevel(GroupMachine):
    """A member of a group in which all nodes are in the one ring."""

    @property
    def stats(self) -> Mapping[str, float]:
        """Running figures, by name: those between levels stay zero."""
        return {**zeros(LEVEL_STATISTICS), **self.life.stats, **self.orderer.stats}
