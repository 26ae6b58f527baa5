"""The wire: a common prefix, and a reader that checks every length and count.

A packet is refused with a `Malformed` that carries its reason as a short, countable string. Machines
turn it into a `Drop` effect; nothing a peer can send raises out of a machine.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from operator import lt

import msgspec

from ordercast.core.declared import DropReason
from ordercast.core.identity import MAX_NODE_ID, ConfigurationId, NodeId

MAGIC = b"OC"
VERSION = 1
PREFIX_SIZE = 4
"""Two bytes of magic, the version, the packet's kind."""
KIND_BYTE = slice(3, 4)
"""Where in a packet its kind is; of what is too short to be a packet it is nothing."""

MAX_COUNT = 2**62
"""No sequence number or counter comes near this; a larger one would not survive being counted up."""

FARTHEST_CLAIM = MAX_COUNT // 2
LONGEST_LEAP = 2**40
"""A number that a packet tells of, and that is counted on from, may be anything up to the first, and beyond
that only a little more than what is known: so there are always numbers left; see `within_reach`."""

MAX_PACKET = 65_507
"""No UDP datagram carries more."""

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What a decoder of msgspec may raise when anything at all may be in the bytes."""

_U8 = struct.Struct("<B")
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_RING = struct.Struct("<qi")


FORGED_SENDER = "forged sender"
"""Why a packet is dropped that names another sender than the node that sent it."""

DROPS = (
    DropReason(FORGED_SENDER, "The packet names another sender than the node that sent it."),
    *(
        DropReason(problem, f"The packet is not as a correct node writes it: {problem}.")
        for problem in (
            *("too short", "too long", "truncated", "trailing bytes", "not ordercast", "unknown version"),
            *("unknown kind", "unknown flags", "unknown guarantee", "bad node id", "bad number"),
            *("too many members", "members not ascending", "too many entries", "lists do not fit"),
            *("chunk lengths do not fit", "no chunk", "empty fragment", "envelope without data"),
            *("bad request", "bad commit", "bad commit entry", "bad part", "bad join", "bad announce"),
            "bad schedule",
            *("too many ranges", "bad range", "no group", "no token list", "bad view", "not this protocol's"),
            "parts do not fit",
        )
    ),
)
"""Why the packets of any protocol may be dropped: forged, or `Malformed`."""


class Malformed(Exception):
    """A packet that no correct peer sends. ``str(error)`` is the reason to count it under."""


def prefix(kind: int) -> bytes:
    """The first four bytes of every packet of that kind."""
    return MAGIC + bytes((VERSION, kind))


def kind_of(data: bytes) -> int:
    """The packet's kind, or why the packet is not one of ours."""
    if len(data) < PREFIX_SIZE:
        raise Malformed("too short")
    if data[:2] != MAGIC:
        raise Malformed("not ordercast")
    if data[2] != VERSION:
        raise Malformed("unknown version")
    if len(data) > MAX_PACKET:
        raise Malformed("too long")
    return data[3]


def check_node(node: NodeId) -> NodeId:
    """A node identifier off the wire."""
    if not 0 < node <= MAX_NODE_ID:
        raise Malformed("bad node id")
    return node


def check_count(number: int, lowest: int = 0) -> int:
    """A sequence number or counter off the wire."""
    if not lowest <= number < MAX_COUNT:
        raise Malformed("bad number")
    return number


def within_reach(number: int, known: int) -> bool:
    """Whether to believe a packet that a number which only counting increases has come that far.

    Who believes it counts on from there, and may have to store it: a forged packet must not lead to where no
    further number can be written.
    """
    return number < FARTHEST_CLAIM or number <= known + LONGEST_LEAP


@lru_cache(maxsize=256)
def _list_of(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}I")


class Reader:
    """Reads fields from behind the prefix, never past the end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = PREFIX_SIZE

    def _take(self, form: struct.Struct) -> tuple[int, ...]:
        end = self._at + form.size
        if end > len(self._data):
            raise Malformed("truncated")
        values = form.unpack_from(self._data, self._at)
        self._at = end
        return values

    def u8(self) -> int:
        """Read an unsigned byte."""
        return self._take(_U8)[0]

    def u16(self) -> int:
        """An unsigned 16-bit integer."""
        return self._take(_U16)[0]

    def u32(self) -> int:
        """An unsigned 32-bit integer."""
        return self._take(_U32)[0]

    def count(self) -> int:
        """A 64-bit sequence number or counter, which is never negative."""
        return check_count(self._take(_I64)[0])

    def node(self) -> NodeId:
        """Read a node identifier."""
        return check_node(self._take(_U32)[0])

    def ring(self) -> ConfigurationId:
        """Read a ring identifier."""
        seq, rep = self._take(_RING)
        return ConfigurationId(check_count(seq), check_node(rep))

    def nodes(self, most: int) -> tuple[NodeId, ...]:
        """A counted, strictly ascending list of at most ``most`` nodes."""
        count = self.u16()
        if count > most:
            raise Malformed("too many members")
        found = self._take(_list_of(count))
        if all(map(lt, found, found[1:])) and (not count or (found[0] > 0 and found[-1] <= MAX_NODE_ID)):
            return found
        previous = 0
        for node in found:
            if check_node(node) <= previous:
                raise Malformed("members not ascending")
            previous = node
        return found

    def rest(self) -> bytes:
        """Everything that is left."""
        rest = self._data[self._at :]
        self._at = len(self._data)
        return rest

    def end(self) -> None:
        """Raise `Malformed` if anything is left to be read."""
        if self._at != len(self._data):
            raise Malformed("trailing bytes")


def pack_ring(ring: ConfigurationId) -> bytes:
    """A ring identifier for the wire."""
    return _RING.pack(ring.seq, ring.rep)


def pack_nodes(nodes: Sequence[NodeId]) -> bytes:
    """A counted list of nodes in ascending order for the wire."""
    return struct.pack(f"<H{len(nodes)}I", len(nodes), *sorted(nodes))


# --- packets in parts ------------------------------------------------------------------------------


def parts_of(size: int, part_size: int) -> int:
    """In how many parts a packet of `size` bytes is sent, if every part but the last has `part_size`."""
    return -(-size // part_size)


def check_part(size: int, part_size: int, place: int, data: bytes) -> None:
    """Raise `Malformed` unless `data` can be the part at that place, from 0, of such a packet."""
    if not 0 < part_size < size or not 0 <= place < parts_of(size, part_size):
        raise Malformed("bad part")
    if len(data) != min(part_size, size - place * part_size):
        raise Malformed("bad part")
