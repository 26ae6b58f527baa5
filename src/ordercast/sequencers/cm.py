"""CM, the protocol of Chang and Maxemchuk (002 §3), and what was made of it: RBP and iRBP (004).

The token goes round the ring. A member sends one packet at a time and waits for its place; every ACK, null or
not, gives out a place, and says that its sender has everything before: nothing else does. So a place is known
to be with all when the token has gone round once more (004 §3.2.2). RBP is the same with the Reformation as
its membership, iRBP with views and intermediate views; several messages an ACK and a level of resilience for
each message are RMP's (004 §3.3.1).
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.identity import Guarantee
from ordercast.sequencers.moving import MovingSequencer


class Cm(MovingSequencer):
    """A member of a group that runs CM."""

    NAME: ClassVar = "cm"
    SUMMARY: ClassVar = (
        "Sequencer that moves along a ring; each acknowledgement places messages and passes the token."
    )


class Rbp(Cm):
    """CM, to run inside the three-phase Reformation (004 §3)."""

    NAME: ClassVar = "rbp"
    SUMMARY: ClassVar = (
        "CM whose members form a new token list by a three-phase Reformation when one of them fails."
    )


class Irbp(Cm):
    """CM, to run inside views and intermediate views (004 §5)."""

    NAME: ClassVar = "irbp"
    SUMMARY: ClassVar = (
        "CM inside views agreed on by consensus, where a slow member leaves the token list, not the group."
    )
    AT_LEAST: ClassVar = Guarantee.AGREED
