"""Payloads that tell who sent them and in which order, and the check that what arrives is what was sent.

The auditor sees identifiers, not contents. So the world keeps what it submitted and compares every
delivery with it, byte by byte: fragments put together wrongly, a length cut short or a payload under
another's number are noticed at the delivery that shows them.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import NamedTuple

from ordercast.core.addresses import groups_part, is_withheld_front
from ordercast.core.identity import Batch, MessageId, NodeId

_IDENTITY = struct.Struct("<QII")
_NOISE = random.Random("payload").randbytes(1 << 17)
_HALF = len(_NOISE) // 2

REMEMBERED_BYTES = 256 * 1024 * 1024
"""Payload bytes kept for each life of a node; beyond it the oldest are forgotten and go unchecked."""


def payload(origin: NodeId, incarnation: int, count: int, size: int) -> bytes:
    """A payload of `size` bytes unlike that of any other count, life or origin.

    It begins with its identity, the count first, cut off where the size is too small for all of it;
    the rest is noise from a place that depends on the identity, so that exchanged or repeated parts show.
    """
    identity = _IDENTITY.pack(count, incarnation, origin)
    rest = size - len(identity)
    if rest <= 0:
        return identity[:size]
    if rest > _HALF:
        return identity + random.Random(identity).randbytes(rest)
    at = (count * 7919 + incarnation * 104729 + origin * 1299709) % _HALF
    return identity + _NOISE[at : at + rest]


class Corruption(NamedTuple):
    """A delivery that is not what was submitted."""

    time_us: int
    node: NodeId
    message: MessageId
    what: str

    def __str__(self) -> str:
        origin, life, number = self.message
        return (
            f"at {self.time_us} µs node {self.node} delivered message {number} of node {origin}"
            f" (life {life}): {self.what}"
        )


class AcceptedPayloads:
    """Every payload accepted by a machine, by the identifier the machine gave it."""

    def __init__(self, remembered_bytes: int = REMEMBERED_BYTES) -> None:
        self._limit = remembered_bytes
        self._lives: dict[tuple[NodeId, int], dict[int, bytes]] = {}
        self._bytes: dict[tuple[NodeId, int], int] = {}
        self._forgotten: dict[tuple[NodeId, int], int] = {}

    def accept(self, origin: NodeId, incarnation: int, number: int, payloads: Sequence[bytes]) -> str | None:
        """Remember accepted messages. Says what is wrong if a number was given before."""
        life = (origin, incarnation)
        known = self._lives.setdefault(life, {})
        problem = None
        for at, data in enumerate(payloads, number):
            if at in known:
                problem = f"number {at} was accepted twice"
            known[at] = data
        held = self._bytes.get(life, 0) + sum(map(len, payloads))
        while held > self._limit:
            oldest = next(iter(known))
            held -= len(known.pop(oldest))
            self._forgotten[life] = oldest
        self._bytes[life] = held
        return problem

    def check(self, batch: Batch) -> tuple[int, str] | None:
        """The first message of a delivered batch that is not what was submitted, and what is wrong."""
        known = self._lives.get(batch[3:5])
        number, payloads = batch[5], batch[7]
        if known is not None:
            for data in payloads:
                if known.get(number) != data:
                    break
                number += 1
            else:
                return None
        return self._explain(batch, number)

    def _explain(self, batch: Batch, number: int) -> tuple[int, str] | None:
        life = (batch.origin, batch.incarnation)
        for at in range(number, batch.number + len(batch.payloads)):
            data = batch.payloads[at - batch.number]
            sent = self._lives.get(life, {}).get(at)
            if sent is None:
                if at > self._forgotten.get(life, -1):
                    return at, "it was never submitted"
            elif is_withheld_front(data) and groups_part(sent) == groups_part(data):
                continue  # for no process of the node; if it is for one, the auditor finds that it is missing
            elif len(sent) != len(data):
                return at, f"it has {len(data)} bytes, submitted were {len(sent)}"
            elif sent != data:
                first = next(i for i, (a, b) in enumerate(zip(sent, data, strict=True)) if a != b)
                return at, f"its contents differ from byte {first} on"
        return None
