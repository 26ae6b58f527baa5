"""Reformation by a server (004 §3.3.2): one member leads every change, and others stand in for it in turn.

"The Reformation Phase must be extremely fast", so it is done "by a centralized reformation server. There are
redundant reformation servers in case of failures." The server of a view is the first of `servers` that is a
member of it; behind it come the other servers, then all other members. Who notices a failure tells what it
holds, as all do who hear that; and whose process has ended, if it was told so. The server needs no invitation
for its list: it is the only one that may announce a list with version 1, and there is no earlier one. So no
two originators are in each other's way. Who stands in for it begins with version 2, with an invitation, as in
`consensus`.

There are never two lists: what a member accepted it keeps on its disk, and a list is one that a majority has
accepted. A server that lost its memory, or that some take for another one, cannot make a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ordercast.core.contract import Drop, Effect
from ordercast.core.identity import NodeId
from ordercast.viewsync.consensus import Vote
from ordercast.viewsync.packets import NO_ROUND, Collect, HasEnded, Propose, Round, Summary
from ordercast.viewsync.reformation import ResilientChange

FIRST, STAND_IN = 1, 2
"""The version of the server's first list, and the least that anybody else may announce."""


class ServerReformation(ResilientChange):
    """One change of view: as its server, as one that stands in, or as any other member."""

    _order: Sequence[NodeId] = ()

    def _coordinators(self) -> Sequence[NodeId]:
        """Who leads, and who stands in, in this order."""
        if not self._order:
            config: Any = self._config
            servers = [node for node in dict.fromkeys(config.servers) if node in self.view.members]
            self._order = (*servers, *(node for node in self.view.members if node not in servers))
        return self._order

    def _lead(self, now_us: int, effects: list[Effect]) -> None:
        """Announce a list once the others have told what they hold; who stands in invites them first."""
        consensus = self.consensus
        fresh = consensus.round == consensus.voter.promised == NO_ROUND
        if fresh and self._coordinators()[0] == self._me:
            consensus.open(now_us, Round(FIRST, self._me), effects)
            for node in self.exchange.summaries:
                self._count_in(node)
            consensus.propose(now_us, effects)
        else:
            consensus.round = max(consensus.round, Round(STAND_IN - 1, self._me))
            consensus.coordinate(now_us, effects)

    def begin(self, now_us: int, detected: bool, effects: list[Effect]) -> None:
        """Tell all what is here, and who is gone: the server may not have been told."""
        self._tell_who_ended(effects)
        super().begin(now_us, detected, effects)

    def on_timer(self, now_us: int, effects: list[Effect]) -> None:
        """Send again what may have been lost."""
        if self.decision is None:
            self._tell_who_ended(effects)
        super().on_timer(now_us, effects)

    def _tell_who_ended(self, effects: list[Effect]) -> None:
        if self._coordinators()[0] != self._me:
            for node in self._around.gone_members():
                if node in self.view.members:
                    self._around.tell(HasEnded(self.turn, node), effects)

    def _count_in(self, node: NodeId) -> None:
        """Who tells what it holds takes part in the server's first list, without being asked."""
        ballot = self.consensus.ballot
        if ballot is not None and ballot.round.attempt == FIRST and node not in ballot.answered:
            ballot.estimate(node, NO_ROUND, b"")

    def on_summary(
        self, now_us: int, sender: NodeId, incarnation: int, summary: Summary, effects: list[Effect]
    ) -> None:
        """What another one holds."""
        self._count_in(sender)
        super().on_summary(now_us, sender, incarnation, summary, effects)

    def on_vote(self, now_us: int, sender: NodeId, packet: Vote, effects: list[Effect]) -> None:
        """A packet of the Reformation: version 1 is the server's alone."""
        if (
            isinstance(packet, Collect | Propose)
            and packet.round.attempt == FIRST
            and sender != self._coordinators()[0]
        ):
            effects.append(Drop("not the reformation server"))
            return
        if isinstance(packet, HasEnded):
            if packet.node in self.view.members and packet.node not in (self._me, sender):
                self._around.believe_ended(packet.node)
                self._rotate(now_us, effects)
                self.consensus.propose(now_us, effects)
            return
        super().on_vote(now_us, sender, packet, effects)
