"""Feeding the nodes below: each is sent the pieces as they come, and tells by schedule how far it has come.

The nodes that a node feeds are a ring of their own, with a schedule as the primary ring has one: at each beat
they are told how far the order is, and whose turn to answer is when. An answer that is late is missed without
any other sign; who misses several is given up, and nobody else is concerned.
"""

from __future__ import annotations

from collections.abc import Callable

from ordercast.core.contract import Effect, SetTimer, Unicast
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.levels.config import LevelsConfig
from ordercast.levels.feed import Feed, Position
from ordercast.levels.packets import Beat, LevelPacket, Lost, Pieces, Status, Welcome, encode

BEAT_TIMER = "feed beat"
PACKET_ROOM = 24 * 1024
"""Bytes of pieces in one packet, about."""
AHEAD = 256
"""Pieces that one below is sent beyond what it has told that it has."""
MOST_FED = 512
"""Most nodes that one node feeds: more are turned away, to another one."""

Encode = Callable[[LevelPacket, ConfigurationId], bytes]


class Fed:
    """One node that is fed."""

    __slots__ = ("acknowledged", "again_us", "heard_us", "incarnation", "sent")

    def __init__(self, incarnation: int, position: Position, now_us: int) -> None:
        self.incarnation = incarnation
        self.acknowledged = self.sent = position
        self.heard_us = now_us
        self.again_us = now_us
        """When it was last begun anew from what it has."""


class Feeding:
    """What one node does for those below it."""

    def __init__(self, me: NodeId, config: LevelsConfig, feed: Feed, stats: dict[str, float]) -> None:
        self.me = me
        self.incarnation = 0
        self.feed = feed
        self._config = config
        self._stats = stats
        self._fed: dict[NodeId, Fed] = {}
        self._beating = False
        self._at_rest = True
        """All below had everything when they were last told whose turn is when."""

    def __contains__(self, node: NodeId) -> bool:
        return node in self._fed

    def _send(self, to: NodeId, packet: LevelPacket, view: ConfigurationId, effects: list[Effect]) -> None:
        effects.append(Unicast(to, encode(packet, view, self.me, self.incarnation)))

    # --- who is fed -----------------------------------------------------------------------------

    def attach(
        self, now_us: int, node: NodeId, incarnation: int, position: Position | None, effects: list[Effect]
    ) -> None:
        """A node below asks to be fed, from a position on or from wherever this node is."""
        known = self._fed.get(node)
        if known is not None and known.incarnation > incarnation:
            return
        entrance = self.feed.entrance
        if entrance is None or (known is None and len(self._fed) >= MOST_FED):
            return  # it asks the next one
        if position is None:
            position, members = entrance
            self._send(node, Welcome(members, position.at), position.view, effects)
        elif self.feed.has(position) is False:
            self._send(node, Lost(), position.view, effects)
            return
        self._fed[node] = Fed(incarnation, position, now_us)
        self.push(effects)
        if not self._beating:
            self._beating = True
            self._beat(now_us, effects)

    def status(
        self, now_us: int, node: NodeId, view: ConfigurationId, status: Status, effects: list[Effect]
    ) -> bool:
        """One below has come so far. False if this node does not feed it."""
        fed = self._fed.get(node)
        if fed is None:
            return False
        if status.leaving:
            del self._fed[node]
            return True
        fed.heard_us = now_us
        position = Position(view, status.at)
        if (position.view.seq, position.at) >= (fed.acknowledged.view.seq, fed.acknowledged.at):
            fed.acknowledged = position
        if status.lacking and now_us - fed.again_us >= self._config.hurry_us:
            fed.again_us = now_us
            self._stats["fed_again"] += 1
            fed.sent = position
        self._push(node, fed, effects)
        return True

    # --- sending --------------------------------------------------------------------------------

    def push(self, effects: list[Effect]) -> None:
        """There may be more: send it to all below, who tell soon that they have it."""
        before = self._stats["fed"]
        for node, fed in list(self._fed.items()):
            self._push(node, fed, effects)
        if self._at_rest and self._beating and self._stats["fed"] > before:
            self._at_rest = False
            effects.append(SetTimer(BEAT_TIMER, self._config.hurry_us))

    def _push(self, node: NodeId, fed: Fed, effects: list[Effect]) -> None:
        if self.feed.has(fed.sent) is False:
            del self._fed[node]
            self._send(node, Lost(), fed.sent.view, effects)
            return
        while self._may_send(fed) and (stretch := self.feed.behind(fed.sent, PACKET_ROOM)) is not None:
            self._send(node, Pieces(stretch.first, stretch.pieces), stretch.view, effects)
            fed.sent = Position(stretch.view, stretch.first + len(stretch.pieces) - 1)
            self._stats["fed"] += len(stretch.pieces)

    def _may_send(self, fed: Fed) -> bool:
        """Whether one below is not too far behind what it was sent. A view further on it is sent anyway."""
        sent, has = fed.sent, fed.acknowledged
        return sent.at - has.at < AHEAD if sent.view == has.view else sent.at < AHEAD

    # --- the schedule ---------------------------------------------------------------------------

    def _period_us(self) -> int:
        """From one beat to the next: time for a turn of each; at rest longer."""
        turns_us = (len(self._fed) + 1) * self._config.hurry_us
        return max(self._config.heartbeat_us, turns_us) if self._at_rest else turns_us

    def timer(self, now_us: int, effects: list[Effect]) -> None:
        """The next beat is due; give up who has missed several turns."""
        patience_us = max(self._config.conservative_us, 3 * (len(self._fed) + 1) * self._config.hurry_us)
        for node, fed in list(self._fed.items()):
            if now_us - fed.heard_us > patience_us:
                del self._fed[node]
        if self._fed:
            self._beat(now_us, effects)
        else:
            self._beating = False

    def _beat(self, now_us: int, effects: list[Effect]) -> None:
        end = self.feed.end
        assert end is not None, "who feeds others is in a view"
        self._at_rest = self.settled
        for place, node in enumerate(self._fed):
            self._send(node, Beat(end.at, place, len(self._fed)), end.view, effects)
        effects.append(SetTimer(BEAT_TIMER, self._period_us()))

    @property
    def settled(self) -> bool:
        """Whether all below have told that they have everything."""
        return all(fed.acknowledged == self.feed.end for fed in self._fed.values())
