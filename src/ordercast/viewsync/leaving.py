"""A member leaves: it tells the others the decision that lets it go until they have shown that they know it.

Without it they may be no majority that could find out what was decided, as where one of two members is left.
So the last `Decide` must not be lost.
"""

from __future__ import annotations

from ordercast.core.contract import LEFT, Effect
from ordercast.core.identity import NodeId
from ordercast.viewsync.change import ViewChange
from ordercast.viewsync.life import Life
from ordercast.viewsync.packets import Decide, Decision

LEAVE_TIMEOUTS = 2
"""Aggressive timeouts after which a life ends though not all have shown that they know the decision."""


class Leaving:
    """Ends a life that leaves, once the other nodes have shown that they know the decision."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._until_us = 0
        self._unaware: set[NodeId] = set()
        """Nodes that have not shown yet that they know the decision."""

    def begun(self) -> bool:
        """Whether it is decided that this life leaves."""
        return self._until_us > 0

    def end(self, now_us: int, change: ViewChange, decision: Decision, effects: list[Effect]) -> None:
        """End this life if all who go on know the decision or are suspected, or if it has waited long enough.

        If nobody goes on, those are waited for who leave with this life.
        """
        life = self._life
        if not self.begun():
            go_on = {member.node for member in decision.members} or set(change.view.members)
            self._unaware = go_on - {life.me}
            self._until_us = now_us + LEAVE_TIMEOUTS * life.config.aggressive_us
            if change.consensus.ballot is None:  # it was told, and has not told anybody
                self.tell(change, effects)
        if now_us >= self._until_us or self._unaware.issubset(life.suspects(now_us, self._unaware)):
            life.halt(LEFT, effects)

    def tell(self, change: ViewChange, effects: list[Effect]) -> None:
        """Tell all what was decided."""
        assert change.decision is not None, "who leaves does so by a decision"
        self._life.tell(Decide(change.turn, change.decision), effects)

    def aware(self, node: NodeId) -> None:
        """Record that another node has shown that it knows the decision."""
        self._unaware.discard(node)
