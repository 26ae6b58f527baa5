"""Pinwheel (002 §3, §5): CM's ring, with each member's delivery status on every message it sends.

So a message is known to be stable as soon as the least of all members' status has reached its place, which
may be long before the token has gone round. A member may have several packets on the way, and one ACK places
as many as there are.
"""

from __future__ import annotations

from collections.abc import Callable

from ordercast.core.identity import NodeId
from ordercast.sequencers.cm import ring_successor
from ordercast.sequencers.moving import MovingSequencer
from ordercast.sequencers.order import Order
from ordercast.sequencers.packets import AnyPacket, decode
from ordercast.viewsync.config import GroupConfig


class Pinwheel(MovingSequencer):
    """A member of a group that runs Pinwheel."""

    NAME = "pinwheel"
    SUMMARY = "Sequencer that moves along a ring; every message tells how far its sender has come."
    NOTIFIES = True

    def __init__(
        self, me: NodeId, config: GroupConfig, decode: Callable[[bytes], AnyPacket] = decode
    ) -> None:
        super().__init__(me, config, decode)
        self.window = config.window

    def _next(self, order: Order) -> NodeId:
        return ring_successor(order, self.me)
