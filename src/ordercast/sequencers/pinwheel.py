"""Pinwheel (002 §3, §5): CM's ring, with each member's delivery status on every message it sends.

So a message is known to be stable as soon as the least of all members' status has reached its place, which
may be long before the token has gone round. A member may have several packets on the way, and one ACK places
as many as there are.
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.sequencers.moving import MovingSequencer
from ordercast.sequencers.sending import Sending


class Pinwheel(MovingSequencer):
    """A member of a group that runs Pinwheel."""

    NAME: ClassVar = "pinwheel"
    SUMMARY: ClassVar = "Sequencer that moves along a ring; every message tells how far its sender has come."
    NOTIFIES: ClassVar = True

    def __init__(self, sending: Sending) -> None:
        super().__init__(sending)
        self.window = self.config.window
