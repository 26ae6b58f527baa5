"""What nodes delivered, in digests that can be compared, whoever was there for how long.

The messages of a configuration are cut into *blocks* of so many packets. A node tells one digest a block,
over everything about its messages: who sent them, in which life, their numbers, places and bytes. So what a
node delivered until it was killed, or since it came, can be compared with what the others delivered.

What may be compared is what extended virtual synchrony promises, and view synchrony:

- blocks that were delivered whole within the regular configuration are the same at all its members;
- members that leave a configuration together, into the same next one, deliver the same to its very end.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

from ordercast.core.identity import Configuration, ConfigurationId, Kind, NodeId
from ordercast.groups.events import Delivery

PACKETS = 8
"""Packets a block."""

Ring = ConfigurationId
Place = tuple[int, int]
"""Of a message in its configuration: its packet's sequence number and its slot."""

_HEAD = struct.Struct("<IIQQIQ")


class Block(NamedTuple):
    """What a node delivered of some consecutive packets."""

    ring: Ring
    """The configuration they were ordered in."""
    number: int
    messages: int
    digest: str
    regular: bool
    """All of it came before the transitional configuration."""


class End(NamedTuple):
    """A node leaves a configuration."""

    ring: Ring
    members: tuple[NodeId, ...]
    together: tuple[NodeId, ...]
    """Who leaves it together with this node, as far as it is told; all, if it is not left but looked at."""
    into: Ring | None
    """The next regular configuration."""
    messages: int
    """Messages of it that the node delivered."""
    whole: bool
    """The node saw all of them: it was there from the beginning."""


class Ledger:
    """What one node delivers, as it delivers it."""

    def __init__(self, early: bool) -> None:
        """`early`: nothing of the first configuration was delivered before the node began to read."""
        self.blocks: list[Block] = []
        self.ends: list[End] = []
        self.place: Place = (0, 0)
        self.closed = False
        self._whole = early
        self._now: Configuration | None = None
        self._together: tuple[NodeId, ...] | None = None
        self._messages = 0
        self._block: int | None = None
        self._in_block = 0
        self._hash = hashlib.blake2b()
        self._regular = True
        self._partial = not early
        """The block under way was not seen from its beginning."""

    def take(self) -> tuple[list[Block], list[End]]:
        """What is new since the last time."""
        taken = self.blocks, self.ends
        self.blocks, self.ends = [], []
        return taken

    def install(self, configuration: Configuration) -> None:
        """The next configuration, in its place."""
        if self.closed:
            return
        if configuration.kind is Kind.TRANSITIONAL:
            self._together = configuration.members
            self._regular = False
            return
        if self._now is not None:
            self._end(configuration.id)
            self._whole, self._partial = True, False
        self._now = configuration
        self._together = None
        self.place = (0, 0)
        self._messages = 0
        self._regular = True

    def add(self, delivery: Delivery) -> None:
        """The next messages."""
        number = delivery.seq // PACKETS
        if number != self._block:
            self._finish_block()
            self._block = number
            self._hash = hashlib.blake2b(digest_size=8)
            self._in_block = 0
        update = self._hash.update
        for payload, own, slot in zip(delivery.payloads, delivery.numbers, delivery.slots, strict=True):
            update(_HEAD.pack(delivery.sender, delivery.incarnation, own, delivery.seq, slot, len(payload)))
            update(payload)
        self._in_block += len(delivery.payloads)
        self._messages += len(delivery.payloads)
        self.place = (delivery.seq, delivery.slots[-1])

    def close(self) -> None:
        """Nothing more comes: tell how the configuration stands, as if all left it together."""
        if self.closed:
            return
        self.closed = True
        if self._now is not None:
            self._end(None)

    def _end(self, into: Ring | None) -> None:
        assert self._now is not None
        self._finish_block(last=True)
        together = self._now.members if self._together is None else self._together
        self.ends.append(End(self._now.id, self._now.members, together, into, self._messages, self._whole))

    def _finish_block(self, last: bool = False) -> None:
        if self._block is None:
            return
        assert self._now is not None
        if not self._partial:
            # The last one may have been cut short anywhere, even where nobody was told of the end.
            self.blocks.append(
                Block(
                    self._now.id,
                    self._block,
                    self._in_block,
                    self._hash.hexdigest(),
                    self._regular and not last,
                )
            )
        self._partial = False
        self._block = None
