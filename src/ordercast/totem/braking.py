"""Braking: a node whose log's disk does not keep up stops all sending, by a field of the token."""

from __future__ import annotations

from ordercast.core.identity import NodeId
from ordercast.totem.ordering import Ring
from ordercast.totem.packets import NOBODY, Token


class Braking:
    """What one node knows of who brakes on its ring."""

    def __init__(self, me: NodeId) -> None:
        self._me = me
        self.mine = False
        """The disk of the log here does not keep up."""
        self.by: NodeId = NOBODY
        """Who brakes, by the token that came last."""

    def concerns(self, token: Token) -> bool:
        """Whether a member brakes, or did so when the token came last."""
        return self.mine or token.brake != NOBODY or self.by != NOBODY

    def mark(self, ring: Ring, token: Token) -> None:
        """Put this node's brake on the token, or take it off.

        One brake at a time: who comes first keeps it, and only who set it takes it off. It cannot outlast
        that node: without it there is another ring, whose token starts without a brake. A ring that is
        being recovered does not heed it, but hands it on, so that nobody sends in between.
        """
        if token.brake == self._me or token.brake not in ring.members:
            token.brake = self._me if self.mine else NOBODY
