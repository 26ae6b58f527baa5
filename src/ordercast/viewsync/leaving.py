"""How a life ends of which it was decided that it leaves: once those who go on know the decision.

With who leaves there may be no majority left that could find out what was decided, as of two members.
So the last `Decide` must not be lost, and it is told again until all have shown that they know it.
"""

from __future__ import annotations

from ordercast.core.contract import LEFT, Effect
from ordercast.core.identity import NodeId
from ordercast.viewsync.change import ViewChange
from ordercast.viewsync.life import Life
from ordercast.viewsync.packets import Decide, Decision

PATIENCE = 2
"""Aggressive timeouts after which a life ends though not all have shown that they know the decision."""


class Leaving:
    """Whom a life waits for that is to end."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._until_us = 0
        self._unaware: set[NodeId] = set()
        """Who has not shown yet to know the decision."""

    def begun(self) -> bool:
        """Whether it is decided that this life leaves."""
        return self._until_us > 0

    def end(self, now_us: int, change: ViewChange, decision: Decision, effects: list[Effect]) -> None:
        """End this life, if all who go on know the decision or are silent, or for long did not show it.

        If nobody goes on, those are waited for who leave with this life.
        """
        life = self._life
        if not self.begun():
            go_on = {member.node for member in decision.members} or set(change.view.members)
            self._unaware = go_on - {life.me}
            self._until_us = now_us + PATIENCE * life.config.aggressive_us
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
