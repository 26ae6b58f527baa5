"""What a node keeps on stable storage: its ring sequence number (000 §6.1)."""

from __future__ import annotations

import struct

from ordercast.core.identity import NodeId

_STORED = struct.Struct("<2sBq")


def store(ring_seq: int) -> bytes:
    """The state that has to be durable, encoded."""
    return _STORED.pack(b"OC", 1, ring_seq)


def recall(me: NodeId, stored: bytes | None) -> int | None:
    """The ring sequence number that was stored last; None on a fresh or lost disk."""
    if stored is None:
        return None
    if len(stored) != _STORED.size or stored[:3] != b"OC\x01":
        raise ValueError(
            f"node {me}: the stored state is not one of ordercast's; restore the file, or remove it to "
            "start as a node that lost its disk"
        )
    return int(_STORED.unpack(stored)[2])
