"""What a node delivered, in digests that can be compared, whoever was there for how long.

The packets of a configuration are divided into *blocks* by their sequence numbers, alike at all members. A
node keeps one digest a block, over everything about its messages: who sent them, in which life, their
numbers, places and bytes. So what a node delivered until it was killed, or since it came, can be compared
with what the others delivered (`ordercast.measure.agreement`). Blocks grow with the configuration: a run of
any length has a few thousand of them.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from ordercast.core.identity import Configuration, ConfigurationId, Kind, NodeId
from ordercast.groups.events import Delivery

PACKETS = 8
"""Packets of the first blocks."""
_DOUBLED = 10
"""There are 2^10 such blocks. Whenever there are twice as many packets, blocks are twice as long."""

Place = tuple[int, int]
"""A message's place in its configuration: its packet's sequence number and its slot."""

_HEAD = struct.Struct("<IIQQII")


def block_of(seq: int) -> int:
    """The number of the block in which a packet with this sequence number is."""
    unit = seq // PACKETS
    doubled = (unit >> _DOUBLED).bit_length()
    return (doubled << (_DOUBLED - 1)) + (unit >> doubled)


class Block(NamedTuple):
    """What a node delivered of some consecutive packets."""

    configuration: ConfigurationId
    """The configuration they were ordered in."""
    number: int
    messages: int
    digest: int
    """CRC-32 over the messages."""
    regular: bool
    """All of it was delivered before the transitional configuration."""


class End(NamedTuple):
    """A node leaves a configuration."""

    configuration: ConfigurationId
    members: tuple[NodeId, ...]
    together: tuple[NodeId, ...]
    """Who leaves it together with this node, as far as it is told; all, if it is not left but looked at;
    nobody, if the others went on without this node."""
    into: ConfigurationId | None
    """The next regular configuration."""
    messages: int
    """Messages of it that the node delivered."""
    whole: bool
    """The node saw all of them: it was there from the beginning."""


class DeliveryDigests:
    """Digests of what one life of a node delivers, as it delivers it."""

    def __init__(self, whole: bool = True, sample: int = 1) -> None:
        """`whole`: nothing of the first configuration was delivered before the node began to read.

        The bytes of messages count in one packet of `sample`, the same ones at every node; all else always
        does.
        """
        self.blocks: list[Block] = []
        self.ends: list[End] = []
        self.place: Place = (0, 0)
        """The place of the message that was delivered last."""
        self.closed = False
        self._whole = whole
        self._sample = sample
        self._now: Configuration | None = None
        self._together: tuple[NodeId, ...] | None = None
        self._messages = 0
        self._block = -1
        """The block under way; -1 if there is none."""
        self._in_block = 0
        self._digest = 0
        self._regular = True
        self._partial = not whole
        """The block under way was not seen from its beginning."""

    def take(self) -> tuple[list[Block], list[End]]:
        """The blocks and ends that are new since the last time."""
        taken = self.blocks, self.ends
        self.blocks, self.ends = [], []
        return taken

    def install(self, configuration: Configuration) -> None:
        """The next configuration of this life, in its place among the deliveries."""
        if self.closed:
            return
        if configuration.kind is Kind.TRANSITIONAL:
            self._together = configuration.members
            self._regular = False
            return
        if self._now is not None:
            self._end(self._leavers(self._now), configuration.id)
            self._whole, self._partial = True, False
        self._now = configuration
        self._together = None
        self.place = (0, 0)
        self._messages = 0
        self._regular = True

    def add(self, delivery: Delivery) -> None:
        """Add the messages that were delivered next."""
        payloads, sender, _, _, incarnation, numbers, _, seq, slots, *_ = delivery
        number = block_of(seq)
        if number != self._block:
            self._finish_block()
            self._block = number
            self._in_block = self._digest = 0
        count = len(payloads)
        head = _HEAD.pack(sender, incarnation, numbers[0], seq, slots[0], count)
        digest = zlib.crc32(head, self._digest)
        if (seq ^ seq >> 10) % self._sample == 0:  # where rings are joined, the lower bits say which ring
            for payload in payloads:
                digest = zlib.crc32(payload, digest ^ len(payload))
        self._digest = digest
        self._in_block += count
        self._messages += count
        self.place = (seq, slots[-1])

    def close(self) -> None:
        """Nothing more comes: tell how the configuration stands, as if all left it together."""
        if not self.closed and self._now is not None:
            self._end(self._leavers(self._now), None)
        self.closed = True

    def leave_behind(self) -> None:
        """The others have gone on without this node: what it delivered until then stands as it is."""
        if not self.closed and self._now is not None:
            self._end((), None)
        self.closed = True

    def _leavers(self, ended: Configuration) -> tuple[NodeId, ...]:
        return ended.members if self._together is None else self._together

    def _end(self, together: tuple[NodeId, ...], into: ConfigurationId | None) -> None:
        assert self._now is not None
        self._finish_block(last=True)
        members = self._now.members
        self.ends.append(End(self._now.id, members, together, into, self._messages, self._whole))

    def _finish_block(self, last: bool = False) -> None:
        if self._block < 0:
            return
        assert self._now is not None
        if not self._partial:
            # The last one may have been cut short anywhere, even where nobody was told of the end.
            regular = self._regular and not last
            self.blocks.append(Block(self._now.id, self._block, self._in_block, self._digest, regular))
        self._partial = False
        self._block = -1
