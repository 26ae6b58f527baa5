"""What a node keeps on stable storage: its ring sequence number (000 §6.1)."""

from __future__ import annotations

import struct

from ordercast.core.identity import NodeId

RING_STEP = 4
"""Ring sequence numbers step by four (000 §6.2.2); the numbers between are transitional."""

_STORED = struct.Struct("<2sBq")


def store(ring_seq: int) -> bytes:
    """The stored state."""
    return _STORED.pack(b"OC", 1, ring_seq)


def recall(me: NodeId, stored: bytes | None, now_us: int) -> int:
    """The ring sequence number that no earlier life of the node has gone beyond.

    On a fresh or lost disk the clock stands in for it: rings are formed far less often than once a
    millisecond, so numbers taken from the clock are beyond all that were used before.
    """
    if stored is None:
        return now_us // 1000 * RING_STEP
    if len(stored) != _STORED.size or stored[:3] != b"OC\x01":
        raise ValueError(
            f"node {me}: the stored state is not one of ordercast's; restore the file, or remove it to "
            "start as a node that lost its disk"
        )
    return int(_STORED.unpack(stored)[2])
