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
_MOST_LIVES = 4
"""Earlier lives of a node that are remembered: packets of more than that do not linger at once."""


class _Claim(NamedTuple):
    since_us: int
    """When its sender first spoke of that ring."""
    time_us: int
    """When the sender last spoke of that ring."""
    ring: ConfigurationId
    members: tuple[NodeId, ...]
    hears_me: bool


class _Told(NamedTuple):
    """The last that a node said of itself, in a Join or an Announce."""

    time_us: int
    life: int
    ring_seq: int
    earlier: tuple[int, ...]
    """The node's earlier lives of which something was heard lately."""


class MergeDetection:
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
        self._lingers_us = 10 * announce_us
        self._told: dict[NodeId, _Told] = {}

    def retime(self, announce_us: int, heard_us: int, calm_us: int) -> None:
        """From now on, other times."""
        self._pause_us = announce_us // 8
        self._heard_us = heard_us
        self._calm_us = calm_us
        self._lingers_us = 10 * announce_us

    def outdated(self, now_us: int, sender: NodeId, life: int, ring_seq: int) -> bool:
        """Whether a Join or Announce was sent before others of the same node that came earlier.

        Within a life a node's ring sequence number never falls, so a lower one marks a packet that lingered
        in the network, as an earlier life does. Packets do not linger for long, and neither does what is
        believed of a node: so nobody is shut out for good because of a packet that was forged.
        """
        known = self._told.get(sender)
        earlier: tuple[int, ...] = ()
        if known is not None and now_us - known.time_us <= self._lingers_us:
            if life in known.earlier or (life == known.life and ring_seq < known.ring_seq):
                return True
            earlier = known.earlier
            if life != known.life:
                earlier = (known.life, *earlier)[:_MOST_LIVES]
        if known is not None or len(self._told) < self._limit:
            self._told[sender] = _Told(now_us, life, ring_seq, earlier)
        return False

    def installed(
        self, now_us: int, ring: ConfigurationId, members: tuple[NodeId, ...], lives: tuple[int, ...]
    ) -> None:
        """Members are no strangers; and what they sent before they came to this ring is outdated."""
        told = {node: told for node, told in self._told.items() if node in self._heard}
        for node, life in zip(members, lives, strict=True):
            self._heard.pop(node, None)
            self._claims.pop(node, None)
            known = self._told.get(node)
            earlier = known.earlier if known is not None and known.life == life else ()
            told[node] = _Told(now_us, life, ring.seq, earlier)
        self._told = told

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
        sender, ring, members, heard, _ = announce
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

    def announce(self, now_us: int, ring: Ring, life: int) -> Announce | None:
        """What to tell strangers, unless they were told a moment ago."""
        if self._announced_us is not None and now_us - self._announced_us < self._pause_us:
            return None
        self._announced_us = now_us
        return Announce(self._me, ring.id, ring.members, self.heard(now_us), life)

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
