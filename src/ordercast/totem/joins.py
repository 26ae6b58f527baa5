"""The packets by which nodes find each other (000 §6.1): `Join` and `Announce`.

Both name their sender and its life, and a node takes them from that sender only.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.core.wire import Malformed, Reader, pack_nodes, pack_ring, prefix

MAX_MEMBERS = 1024
"""Most nodes in any list on the wire; a configuration may allow fewer."""

JOIN, ANNOUNCE = 5, 6
_JOIN_HEAD = struct.Struct("<IIqB")
_MERGE, _LEAVE = 1, 2


class Join(NamedTuple):
    """The Join message (000 §6.1)."""

    sender: NodeId
    ring_seq: int
    proc_set: tuple[NodeId, ...]
    fail_set: tuple[NodeId, ...]
    merge: bool = False
    """The sender's ring has verified every link to the rings it wants to join with."""
    leave: bool = False
    """The sender goes, and will answer nothing more."""
    life: int = 0
    """32 bits that the sender drew at its start: they tell its lives apart."""

    def encode(self) -> bytes:
        """The packet as bytes."""
        flags = _MERGE * self.merge | _LEAVE * self.leave
        head = _JOIN_HEAD.pack(self.sender, self.life, self.ring_seq, flags)
        return prefix(JOIN) + head + pack_nodes(self.proc_set) + pack_nodes(self.fail_set)


class Announce(NamedTuple):
    """A ring shows itself to strangers, and says which of them the sender hears."""

    sender: NodeId
    ring: ConfigurationId
    members: tuple[NodeId, ...]
    heard: tuple[NodeId, ...]
    life: int = 0
    """As in a `Join`."""

    def encode(self) -> bytes:
        """The packet as bytes."""
        head = prefix(ANNOUNCE) + struct.pack("<II", self.sender, self.life) + pack_ring(self.ring)
        return head + pack_nodes(self.members) + pack_nodes(self.heard)


def decode_join(data: bytes) -> Join:
    """A Join; the prefix is known to be right."""
    reader = Reader(data)
    sender = reader.node()
    life = reader.u32()
    ring_seq = reader.count()
    flags = reader.u8()
    if flags > 3:
        raise Malformed("unknown flags")
    proc_set = reader.nodes(MAX_MEMBERS)
    fail_set = reader.nodes(MAX_MEMBERS)
    reader.end()
    if sender not in proc_set or not set(fail_set) <= set(proc_set):
        raise Malformed("bad join")
    return Join(sender, ring_seq, proc_set, fail_set, bool(flags & _MERGE), bool(flags & _LEAVE), life)


def decode_announce(data: bytes) -> Announce:
    """An announcement; the prefix is known to be right."""
    reader = Reader(data)
    sender = reader.node()
    life = reader.u32()
    ring = reader.ring()
    members = reader.nodes(MAX_MEMBERS)
    heard = reader.nodes(MAX_MEMBERS)
    reader.end()
    if sender not in members:
        raise Malformed("bad announce")
    return Announce(sender, ring, members, heard, life)
