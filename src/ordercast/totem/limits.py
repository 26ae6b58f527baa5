"""What a member of a ring can take: told in the Commit token, and the smallest rules (000 §8.1)."""

from __future__ import annotations

from typing import NamedTuple

DATAGRAM_OVERHEAD = 192
"""Bytes of an input buffer that we count for a datagram beyond its own. Linux was measured to use 680 for
one of 528 bytes and 1,158 for one of 1,452: small datagrams need this much more, large ones less."""
LEAST_DATAGRAM = 256
"""Least that `Limits` may say: no network carries less in a datagram."""


class Limits(NamedTuple):
    """What a member can take; on a ring the smallest of each counts (000 §8.1, "negotiated during ring
    formation")."""

    input_buffer: int
    """Bytes of its input buffer."""
    packet_size: int
    """Bytes of its largest packet."""
    datagram_size: int
    """Bytes of a packet that one datagram carries."""

    @property
    def datagrams(self) -> int:
        """How many the input buffer holds, with what the kernel needs for each."""
        return self.input_buffer // (self.datagram_size + DATAGRAM_OVERHEAD)

    def smallest(self, other: Limits) -> Limits:
        """What both can take."""
        return Limits(*map(min, self, other))
