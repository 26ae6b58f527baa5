"""What a member does while packets are being lost: it fills its packets less, and sends again sooner."""

from __future__ import annotations

from ordercast.sequencers.packets import MESSAGE_OVERHEAD
from ordercast.viewsync.config import GroupConfig

GROWTH = 2
"""With each new packet, packets grow by this fraction of a datagram. If a share p of datagrams is lost,
halving and growing come to packets of about the square root of 1/p datagrams."""
REMEMBERED = 64
"""New packets for which a loss is remembered."""


class Loss:
    """What one member knows of packets being lost: from its own requests, and from those that it answers.

    That a packet of its own has no place for a while proves nothing: under load it may only wait its turn.
    """

    def __init__(self, config: GroupConfig) -> None:
        self._most = config.packet_size - MESSAGE_OVERHEAD
        self._least = min(self._most, config.datagram_size - MESSAGE_OVERHEAD)
        self._packets = 0
        self.space = self._most
        """Bytes of chunks that a new packet takes."""

    @property
    def recent(self) -> bool:
        """Whether packets were lost lately."""
        return self._packets > 0

    def noticed(self) -> None:
        """A packet was lost. A large one travels as many datagrams, and is lost with any of them: from now on
        packets take half as much."""
        self._packets = REMEMBERED
        self.space = max(self._least, self.space // 2)

    def sent(self) -> None:
        """A new packet was sent: the next one may be a little larger."""
        if self._packets:
            self._packets -= 1
        if self.space < self._most:
            self.space = min(self._most, self.space + self._least // GROWTH)
