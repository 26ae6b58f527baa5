"""DTP, the dynamic token-passing protocol (002): the token goes to the member that is heard from least.

Each member's delivery status is on every message, as in Pinwheel; who sends little tells little, so it gets
the token, and with it a chance to tell. `N`, `R` and `BUF` are in `Order`, S.Token in `MovingSequencer`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from ordercast.core.identity import NodeId
from ordercast.sequencers.moving import MovingSequencer
from ordercast.sequencers.order import Order
from ordercast.sequencers.sending import Sending


class Acknowledged(StrEnum):
    """S.ACK (002 §4.1): whether the message that was sent last has its place."""

    DONE = "done"
    """The message that was sent last has its place: another one may be sent."""
    WAIT = "wait"
    """The message that was sent last has no place yet."""


class Dtp(MovingSequencer):
    """A member of a group that runs DTP (LTM_i of 002)."""

    NAME: ClassVar = "dtp"
    SUMMARY: ClassVar = (
        "Sequencer that moves to the member heard from least, so that all soon know what all have."
    )
    NOTIFIES: ClassVar = True
    NULL_TAKES_PLACE: ClassVar = False

    def __init__(self, sending: Sending) -> None:
        super().__init__(sending)
        self.batch = 1

    def S_ACK(self, order: Order) -> Acknowledged:  # noqa: N802
        """Whether the message sent last was acknowledged."""
        return Acknowledged.WAIT if self._sending.unplaced(order) else Acknowledged.DONE

    def may_send(self, order: Order) -> bool:
        """Whether another packet may be sent: one at a time."""
        return self.S_ACK(order) is Acknowledged.DONE

    def _next(self, order: Order) -> NodeId:
        """LTM_m such that R[m] is the least (002 §3): of several, the first behind this member.

        Never this member itself if there is another. The paper does not choose among equals. What it says of
        Fig. 1 holds with this choice as with the lowest number, but here the token of an idle group visits
        everybody, where the lowest number would leave it to two members.
        """
        core = order.core
        mine = core.index(self.me)
        ring = core[mine + 1 :] + core[:mine]
        return min(ring, key=order.R.__getitem__, default=self.me)
