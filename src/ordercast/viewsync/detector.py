"""Failure detectors (004 §4.1): who was heard lately, and who was not.

Every packet of a member is a sign of life, and heartbeats are sent by all. The *active* detector suspects a
member that is being waited for after an aggressive timeout, the *passive* one any member after a conservative
one. Suspicions may be wrong: who is heard again is not suspected any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ordercast.core.identity import NodeId
from ordercast.viewsync.config import GroupConfig


class Detector:
    """Watches the other members of a view."""

    def __init__(self, config: GroupConfig) -> None:
        self._aggressive_us = config.aggressive_us
        self._conservative_us = config.conservative_us
        self._heard: dict[NodeId, int] = {}
        self._gone: set[NodeId] = set()
        self._elsewhere: dict[NodeId, int] = {}
        """When one that is watched was last heard in another group, or with a vote in a later view."""

    def watch(self, now_us: int, nodes: Iterable[NodeId]) -> None:
        """Watch these from now on, as if they had just been heard."""
        self._heard = dict.fromkeys(nodes, now_us)
        self._gone.clear()
        self._elsewhere.clear()

    def heard(self, now_us: int, node: NodeId) -> None:
        """Record that `node` was heard at `now_us`."""
        if node in self._heard:
            self._heard[node] = now_us
            self._gone.discard(node)

    def gone(self, node: NodeId) -> None:
        """Suspect `node` until it is heard again: there is reason to believe that its process has ended."""
        if node in self._heard:
            self._gone.add(node)

    def elsewhere(self, now_us: int, node: NodeId) -> None:
        """Record that `node` was heard in another group, or with a vote in a later view of this one."""
        if node in self._heard:
            self._elsewhere[node] = now_us

    def away(self, now_us: int) -> list[NodeId]:
        """The nodes that were heard in another group, or voting in a later view, lately."""
        since_us = now_us - self._conservative_us
        return [node for node, heard_us in self._elsewhere.items() if heard_us >= since_us]

    def silent_us(self, now_us: int, node: NodeId) -> int:
        """Microseconds for which `node` has not been heard."""
        return now_us - self._heard.get(node, now_us)

    def active(self, now_us: int, waited_for: Collection[NodeId]) -> list[NodeId]:
        """The suspected nodes among those `waited_for`: silent for the aggressive timeout, or gone."""
        return self._silent(now_us, self._aggressive_us, waited_for)

    def passive(self, now_us: int) -> list[NodeId]:
        """The nodes that are suspected in any case: silent for the conservative timeout, or gone."""
        return self._silent(now_us, self._conservative_us, self._heard)

    def _silent(self, now_us: int, limit_us: int, nodes: Collection[NodeId]) -> list[NodeId]:
        return [
            node
            for node, heard_us in self._heard.items()
            if node in nodes and (node in self._gone or now_us - heard_us > limit_us)
        ]
