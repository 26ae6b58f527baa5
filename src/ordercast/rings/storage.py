"""What a node on several rings keeps on stable storage: what each ring's machine keeps, and a number."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ordercast.core.identity import NodeId
from ordercast.core.wire import UNREADABLE


class Stored(msgspec.Struct, array_like=True, frozen=True, tag="rings 1"):
    """The state that has to be durable."""

    number: int
    """The highest number of a component configuration that the node took part in."""
    rings: dict[int, bytes]
    """By network: what the ring's machine keeps."""


def store(number: int, rings: Mapping[int, bytes]) -> bytes:
    """The state that has to be durable, encoded."""
    return msgspec.msgpack.encode(Stored(number, dict(rings)))


def recall(me: NodeId, stored: bytes | None) -> Stored | None:
    """What was stored last; None on a fresh or lost disk."""
    if stored is None:
        return None
    try:
        return msgspec.msgpack.decode(stored, type=Stored)
    except UNREADABLE as error:
        raise ValueError(
            f"node {me}: the stored state is not one of the protocol rings; restore the file, or remove it "
            "to start as a node that lost its disk"
        ) from error
