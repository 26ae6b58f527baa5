"""How a group begins: nodes that hear of no group agree on a first view.

The papers take a first view for granted. Here it is decided like every other one, by consensus; but there is
no list of participants yet, so a quorum is a number (`GroupConfig.founders`). Who has the smallest identifier
among those that look for a group coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping

from ordercast.core.contract import Effect
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.viewsync.change import Joiner, Surroundings
from ordercast.viewsync.consensus import Participant, Voter
from ordercast.viewsync.packets import Decision, Group, Member, encode_decision


class Founding(Participant):
    """One node's part in it."""

    def __init__(self, outside: Surroundings, voter: Voter, founders: int, last: int) -> None:
        super().__init__(outside, 0, voter, founders)
        self._around = outside
        self._founders = founders
        self._last = last
        self._lives: dict[NodeId, int] = {self._me: outside.incarnation}
        self._others: Mapping[NodeId, Joiner] = {}

    def lead(self, now_us: int, others: Mapping[NodeId, Joiner], effects: list[Effect]) -> None:
        """Begin a round, if it is up to this node and there are enough others."""
        self._others = others
        if len(others) + 1 >= self._founders and self._me < min(others, default=self._me + 1):
            self.coordinate(now_us, effects)

    def know(self, node: NodeId, incarnation: int) -> None:
        """Which life of a node takes part."""
        self._lives[node] = incarnation

    def _initial(self, now_us: int, effects: list[Effect]) -> bytes | None:
        assert self._ballot is not None, "it is the coordinator's to say"
        nodes = [node for node in self._ballot.answered if node in self._lives]
        members = tuple(Member(node, self._lives[node], True) for node in nodes)
        number = max([self._last, *(other.last for other in self._others.values())]) + 1
        view = ConfigurationId(number, nodes[0])
        return encode_decision(
            Decision(True, Group(max(now_us, 1), self._me), view, 0, members, nodes[0], 0, ())
        )

    def _may_adopt(self, value: bytes, source: NodeId, effects: list[Effect]) -> bool:
        return True
