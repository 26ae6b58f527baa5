"""Nodes outside the ring: who is heard, who hears us, and with whom the ring could merge.

000 lets any foreign message start the membership protocol. Where a link works one way only, that makes
rings form and break for ever. Here an operational ring merges only with rings it has *verified*: each
of its members hears each of theirs and is heard by it. Members say in announcements whom they hear, and
the representative asks all members by a list on the token (`Token.merge`); see
docs/decisions/merging.md.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.totem.ordering import Ring
from ordercast.totem.packets import Announce, Token

_NOBODY: Set[NodeId] = frozenset()


class _Claim(NamedTuple):
    since_us: int
    """When its sender first spoke of that ring."""
    time_us: int
    """When it last did."""
    ring: ConfigurationId
    members: tuple[NodeId, ...]
    hears_me: bool


class Strangers:
    """What one node knows of nodes outside its ring; bounded in number."""

    def __init__(self, me: NodeId, announce_us: int, heard_us: int, calm_us: int, limit: int) -> None:
        self._me = me
        self._calm_us = calm_us
        self._pause_us = announce_us // 8
        self._heard_us = heard_us
        self._limit = limit
        self._announced_us: int | None = None
        self._checking = False
        self._heard: dict[NodeId, int] = {}
        self._claims: dict[NodeId, _Claim] = {}
        self._ring_seqs: dict[NodeId, int] = {}

    def retime(self, announce_us: int, heard_us: int, calm_us: int) -> None:
        """From now on, other times."""
        self._pause_us = announce_us // 8
        self._heard_us = heard_us
        self._calm_us = calm_us

    def outdated(self, sender: NodeId, ring_seq: int) -> bool:
        """Whether a Join or Announce was sent before others of the same node that came earlier.

        A node's ring sequence number never falls (it is on stable storage), so a lower one marks a
        packet that lingered in the network.
        """
        if ring_seq < self._ring_seqs.get(sender, 0):
            return True
        if sender in self._ring_seqs or len(self._ring_seqs) < self._limit:
            self._ring_seqs[sender] = ring_seq
        return False

    def ring_seq(self, node: NodeId) -> int:
        """The highest ring sequence number a node has told of."""
        return self._ring_seqs.get(node, 0)

    def installed(self, ring: ConfigurationId, members: tuple[NodeId, ...]) -> None:
        """Members are no strangers; and what they sent before they came to this ring is outdated."""
        self._ring_seqs = {node: seq for node, seq in self._ring_seqs.items() if node in self._heard}
        for node in members:
            self._heard.pop(node, None)
            self._claims.pop(node, None)
            self._ring_seqs[node] = ring.seq

    def hear(self, now_us: int, sender: NodeId) -> bool:
        """A stranger spoke for itself. True if it had not been heard of late."""
        new = not self._recent(now_us, self._heard.get(sender))
        if new and len(self._heard) >= self._limit:
            self._forget(now_us)
        if sender in self._heard or len(self._heard) < self._limit:
            self._heard[sender] = now_us
        return new

    def learn(self, now_us: int, announce: Announce) -> None:
        """A stranger said which ring it is on and whom it hears."""
        sender, ring, members, heard = announce
        if sender in self._heard:
            known = self._claims.get(sender)
            since_us = known.since_us if known is not None and known.ring == ring else now_us
            self._claims[sender] = _Claim(since_us, now_us, ring, members, self._me in heard)

    def unsettle(self, sender: NodeId) -> None:
        """A stranger is forming another ring: what it said of the one before is over."""
        self._claims.pop(sender, None)

    def heard(self, now_us: int) -> tuple[NodeId, ...]:
        """The strangers heard of late, in ascending order."""
        return tuple(node for node in sorted(self._heard) if self._recent(now_us, self._heard[node]))

    def mutual(self, now_us: int) -> tuple[NodeId, ...]:
        """The strangers that are heard, say that they hear us, and have been on their ring for a while."""
        return tuple(
            node
            for node in self.heard(now_us)
            if (claim := self._claims.get(node))
            and claim.hears_me
            and self._recent(now_us, claim.time_us)
            and now_us - claim.since_us >= self._calm_us
        )

    def mergeable(self, verified: tuple[NodeId, ...]) -> set[NodeId]:
        """The members of those foreign rings that were verified whole."""
        whole: set[NodeId] = set()
        for node in verified:
            claim = self._claims.get(node)
            if claim is not None and set(claim.members) <= set(verified):
                whole.update(claim.members)
        return whole

    # --- showing the ring, and asking its members --------------------------------------------------

    def announce(self, now_us: int, ring: Ring) -> Announce | None:
        """What to tell strangers, unless they were told a moment ago."""
        if self._announced_us is not None and now_us - self._announced_us < self._pause_us:
            return None
        self._announced_us = now_us
        return Announce(self._me, ring.id, ring.members, self.heard(now_us))

    def check(self, now_us: int, ring: Ring, token: Token) -> Set[NodeId]:
        """Ask all members, by the token, with which strangers the ring could merge.

        The representative lists those it can exchange messages with, each member strikes out those it
        cannot; what comes back is verified. The answer is the members of whole rings among them.
        """
        if self._me != ring.representative:
            if token.merge:
                mutual = self.mutual(now_us)
                token.merge = tuple(node for node in token.merge if node in mutual)
            return _NOBODY
        mutual = self.mutual(now_us) if self._claims else ()
        verified = tuple(node for node in token.merge if node in mutual) if self._checking else ()
        token.merge = mutual[: max(0, self._limit - len(ring.members))]
        self._checking = bool(token.merge)
        return self.mergeable(verified) if verified else _NOBODY

    def stop_checking(self) -> None:
        """The ring is given up, and with it what its token listed."""
        self._checking = False

    def _recent(self, now_us: int, time_us: int | None) -> bool:
        return time_us is not None and now_us - time_us <= self._heard_us

    def _forget(self, now_us: int) -> None:
        for node in sorted(self._heard):
            if not self._recent(now_us, self._heard[node]):
                del self._heard[node]
                self._claims.pop(node, None)
