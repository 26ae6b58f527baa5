"""How a group begins: nodes that hear of no group agree on a first view.

The papers take a first view for granted. Here it is decided like every other one, by consensus; but there is
no list of participants yet, so a quorum is a number (`GroupConfig.founders`). Only nodes that were given one
take part; of those that are heard, the one with the smallest identifier coordinates. Each of its rounds has
longer than the one before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ordercast.core.contract import Effect
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.viewsync.change import LONGEST_ROUND, Joiner, Surroundings
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.consensus import Ballot, Participant, Vote, Voter
from ordercast.viewsync.packets import Decision, Group, Member, Round, encode_decision


class Founding:
    """One node's part in founding a group."""

    def __init__(self, outside: Surroundings, voter: Voter, config: GroupConfig, last: int) -> None:
        self.consensus = Participant(outside, self, 0, voter, config.founders)
        """On the first view; this is what it is about."""
        self._me = outside.me
        self._around = outside
        self._round_us = config.round_us
        self._most = config.max_members
        self._rounds = 0
        self._deadline_us = 0
        """When the round of this coordinator has had its time."""
        self._last = last
        self._lives: dict[NodeId, int] = {self._me: outside.incarnation}
        self._others: Mapping[NodeId, Joiner] = {}

    def lead(self, now_us: int, others: Mapping[NodeId, Joiner], effects: list[Effect]) -> None:
        """Begin a round, or go on with it, if it is up to this node and there are enough others."""
        self._others = others = {node: other for node, other in others.items() if other.founds}
        if len(others) + 1 < self.consensus.quorum or self._me > min(others, default=self._me):
            return
        if self.consensus.ballot is not None and now_us < self._deadline_us:
            self.consensus.send_again(now_us, effects)
            return
        self._rounds += 1
        self._deadline_us = now_us + self._round_us * min(self._rounds, LONGEST_ROUND)
        self.consensus.coordinate(now_us, effects)

    def know(self, node: NodeId, incarnation: int) -> bool:
        """Which life of a node takes part; False if there are too many already."""
        if node not in self._lives and len(self._lives) >= self._most:
            return False
        self._lives[node] = incarnation
        return True

    def founds(self, now_us: int, decision: Decision) -> bool:
        """Whether a decision that another node tells of can be on a first view: it settles nothing."""
        return (
            decision.full
            and 0 < len(decision.members) <= self._most
            and (decision.turn, decision.upto, decision.ranges) == (0, 0, ())
            and self._around.numbers.believes(now_us, decision.view.seq, self._last)
        )

    def on_vote(self, now_us: int, sender: NodeId, packet: Vote, effects: list[Effect]) -> None:
        """A packet of the consensus."""
        self.consensus.on_vote(now_us, sender, packet, effects)

    # --- what the consensus is about ------------------------------------------------------------

    def initial(self, now_us: int, ballot: Ballot, effects: list[Effect]) -> bytes | None:
        """As coordinator: a view of all who have answered."""
        nodes = [node for node in ballot.answered if node in self._lives]
        members = tuple(Member(node, self._lives[node], True) for node in nodes)
        last = max([self._last, *(other.last for other in self._others.values())])
        view = ConfigurationId(self._around.numbers.first(last), nodes[0])
        group = Group(max(now_us, 1), self._me, self._around.numbers.mark())
        return encode_decision(Decision(True, group, view, 0, members, nodes[0], 0, ()))

    def recover(self, now_us: int, value: bytes, ballot: Ballot, effects: list[Effect]) -> bytes | None:
        """As coordinator: what was proposed before is proposed again; there is nothing that belongs to it."""
        return value

    def may_adopt(self, value: bytes, source: NodeId, effects: list[Effect]) -> bool:
        """Nothing belongs to a proposal."""
        return True

    def needed(self, value: bytes, ballot: Ballot) -> Sequence[NodeId]:
        """Who has to adopt a proposal besides a quorum: nobody."""
        return ()

    def joined_round(self, now_us: int, round_: Round) -> None:
        """A coordinator has its time by its own clock: see `lead`."""
