"""What nodes tell each other on their rings: payloads of the single-ring machines (001).

| kind | what it says | sent by | travels |
|---|---|---|---|
| `Bundle` | messages of an application, in order; or which groups a node needs | their sender | its ring |
| `Forwarded` | a bundle of another ring, with its contents or without | gateways | along the spanning tree |
| `Vector` | Guarantee Vector: how much came from rings, what is safe on them | gateways | a ring |
| `Several` | some of these two, in this order | gateways | a ring |
| `Enter` | the sender has installed the configuration that is in force on the ring | all | its rings |
| `Pause` | nobody may send new messages for now, or again | who is overloaded | everywhere |
| `Report` | the rings of a node, which orders nothing until a topology is agreed on | all | everywhere |
| `State` | what a node has of its old configuration | all | everywhere |
| `Recovered` | a bundle of an old configuration that others lack | who has it | everywhere |
| `Done` | the sender has all that those who come along have | all | everywhere |

The first six are *traffic* of a component configuration: that of the sender's last `Done` on this ring. The
others agree on the next configuration.

Anybody on a ring may have sent a payload; `read` returns what it says within limits, or None.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from ordercast.core.identity import MAX_INCARNATION, MAX_NODE_ID, MOST_NETWORKS, ConfigurationId, NodeId
from ordercast.core.packing import LENGTH_SIZE, join_chunks, split_chunks
from ordercast.core.wire import MAX_COUNT, UNREADABLE, Malformed
from ordercast.rings.bundles import BUNDLE, Bundle, read_bundle
from ordercast.rings.config import HEAD_ROOM

MOST_RINGS = 1_023
"""Rings of one component, at most: the index of a ring has ten bits in a message's place."""
MOST_NODES = 16_384
MOST_LOOSE = 65_536
FORWARDED, RECOVERED, NOTE, SEVERAL = 2, 3, 4, 5
SHARED_SIZE = HEAD_ROOM
"""Bytes of small messages that share a payload, at most."""
_COUNT = struct.Struct("<H")
_SEVERAL = bytes((SEVERAL,))
_PLACE = struct.Struct("<HqIii")
"""Index of the source ring, timestamp, slot, origin, its incarnation."""
_RECOVERED = struct.Struct("<8sqiii")
"""Digest of the attempt, `Recovered.base`, `Recovered.part`, `Recovered.parts`."""

Number: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_COUNT)]
Node: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_NODE_ID)]
Index: TypeAlias = Annotated[int, Meta(ge=0, lt=MOST_RINGS)]
Network: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_NETWORKS)]
Digest: TypeAlias = Annotated[bytes, Meta(min_length=8, max_length=8)]
Nodes: TypeAlias = Annotated[tuple[Node, ...], Meta(max_length=MOST_NODES)]
Places: TypeAlias = Annotated[tuple[tuple[Number, Index, Number], ...], Meta(max_length=MOST_LOOSE)]


class Place(NamedTuple):
    """Where a bundle is in the order of a component configuration; places are in this order."""

    timestamp: int
    source: int
    """Index of its source ring among the rings of the configuration."""
    slot: int
    """Slot of its first message within its packet."""


class Entry(NamedTuple):
    """A bundle in the order."""

    place: Place
    origin: NodeId
    incarnation: int
    bundle: Bundle

    @property
    def raw(self) -> bytes:
        """The bundle, as its sender wrote it."""
        return self.bundle.raw


class Forwarded(NamedTuple):
    """A bundle of another ring."""

    entry: Entry
    last: bool
    """Whether no further bundle with the same timestamp comes from that ring."""


class Several(NamedTuple):
    """What a gateway broadcasts together: many bundles without contents take few packets."""

    messages: tuple[Forwarded | Vector, ...]


class Recovered(NamedTuple):
    """A bundle, or none, that some who come from one configuration may lack."""

    digest: bytes
    """Of the attempt that it is shared in."""
    base: ConfigurationId
    """The configuration that it is of."""
    part: int
    """Its number among what is shared of its ring, from 0; -1 if it is shared by itself."""
    parts: int
    source: int
    entry: Entry | None


class Ring(msgspec.Struct, array_like=True, frozen=True, order=True):
    """A ring: the network that it is on, its configuration there, its members."""

    network: Network
    seq: Number
    rep: Node
    members: Nodes


class Vector(msgspec.Struct, array_like=True, frozen=True, tag="vector"):
    """The Guarantee Vector (001), by index of the ring: (index, horizon, acknowledged)."""

    entries: Annotated[tuple[tuple[Index, Number, Number], ...], Meta(max_length=MOST_RINGS)]


class Enter(msgspec.Struct, array_like=True, frozen=True, tag="enter"):
    """The sender has installed the configuration."""


class Pause(msgspec.Struct, array_like=True, frozen=True, tag="pause"):
    """A node asks all to send nothing new, or takes that back."""

    node: Node
    count: Number
    """Rises with each `Pause` of a node: it may come over several ways."""
    digest: Digest
    """Of the topology of the configuration that it is for: it overtakes all other traffic."""
    on: bool


class Report(msgspec.Struct, array_like=True, frozen=True, tag="report"):
    """A node orders nothing from here on, until a topology is agreed on that has these rings."""

    node: Node
    version: Number
    """Rises with each report of a node, over its lives."""
    rings: Annotated[tuple[Ring, ...], Meta(min_length=1, max_length=MOST_NETWORKS)]
    number: Number
    """The highest number of a component configuration that the node knows of."""


class State(msgspec.Struct, array_like=True, frozen=True, tag="state"):
    """What a node has of the configuration that it comes from."""

    node: Node
    count: Number
    """Rises with each `State` of a node."""
    digest: Digest
    """Of the topology that is to be agreed on."""
    base: tuple[Number, Node]
    """The configuration that it comes from."""
    solid: Annotated[tuple[Number, ...], Meta(max_length=MOST_RINGS)]
    """By ring of that configuration: up to this timestamp the node has everything that came from it."""
    stable: Number
    """Up to this timestamp all members of that configuration have everything."""
    obligations: Nodes
    """Whose messages are delivered, even if others before them are missing."""
    loose: Annotated[tuple[tuple[Number, Index, Number, Node], ...], Meta(max_length=MOST_LOOSE)]
    """What it has beyond that: place and origin of each bundle."""
    withheld: Places = ()
    """The bundles that it has without their contents, of those that not all are known to have."""


class Done(msgspec.Struct, array_like=True, frozen=True, tag="done"):
    """The node has all that those who come from the same configuration have."""

    node: Node
    count: Number
    digest: Digest


Control: TypeAlias = Report | State | Done | Recovered
"""What agrees on the next configuration."""
Note: TypeAlias = Vector | Enter | Pause | Report | State | Done
Message: TypeAlias = Bundle | Forwarded | Several | Recovered | Note
"""What a payload says."""

_decoder = msgspec.msgpack.Decoder(Note)
_encode = msgspec.msgpack.Encoder().encode


def write_note(note: Note) -> bytes:
    """A note as a payload."""
    return bytes((NOTE,)) + _encode(note)


def write_forwarded(entry: Entry, last: bool) -> bytes:
    """A bundle on its way over another ring."""
    return bytes((FORWARDED, last)) + _write_entry(entry)


def write_several(payloads: Iterable[bytes]) -> Iterator[bytes]:
    """Forwarded bundles and vectors, in this order, as few payloads: small ones share one."""
    some: list[bytes] = []
    size = 0
    for payload in payloads:
        size += LENGTH_SIZE + len(payload)
        if some and size > SHARED_SIZE:
            yield _write_together(some)
            some, size = [], LENGTH_SIZE + len(payload)
        some.append(payload)
    if some:
        yield _write_together(some)


def _write_together(payloads: Sequence[bytes]) -> bytes:
    if len(payloads) == 1:
        return payloads[0]
    return _SEVERAL + _COUNT.pack(len(payloads)) + join_chunks(payloads)


def _read_several(payload: bytes) -> Several | None:
    at = 1 + _COUNT.size
    if len(payload) < at:
        return None
    try:
        chunks = split_chunks(payload, at, _COUNT.unpack_from(payload, 1)[0])
    except Malformed:
        return None
    messages = [read(chunk) for chunk in chunks if chunk[:1] != _SEVERAL]
    found = tuple(message for message in messages if isinstance(message, Forwarded | Vector))
    return Several(found) if len(found) == len(chunks) else None


def write_recovered(recovered: Recovered) -> bytes:
    """A bundle that others may lack; without one, that there is none between the timestamps in question."""
    digest, base, part, parts, source, entry = recovered
    head = bytes((RECOVERED,)) + _RECOVERED.pack(digest, *base, part, parts)
    return head + (_PLACE.pack(source, 0, 0, 1, 0) if entry is None else _write_entry(entry))


def _write_entry(entry: Entry) -> bytes:
    place, origin, incarnation, bundle = entry
    return _PLACE.pack(place.source, place.timestamp, place.slot, origin, incarnation) + bundle.raw


def _read_entry(payload: bytes, at: int) -> Entry | None:
    """The bundle that begins there; None if there is none."""
    if len(payload) < at + _PLACE.size:
        return None
    source, timestamp, slot, origin, incarnation = _PLACE.unpack_from(payload, at)
    if not (source < MOST_RINGS and 0 <= timestamp < MAX_COUNT and slot < 2**31):
        return None
    if not (0 < origin <= MAX_NODE_ID and 0 <= incarnation <= MAX_INCARNATION):
        return None
    bundle = read_bundle(payload[at + _PLACE.size :])
    return None if bundle is None else Entry(Place(timestamp, source, slot), origin, incarnation, bundle)


def _read_recovered(payload: bytes) -> Recovered | None:
    if len(payload) <= _RECOVERED.size:
        return None
    digest, seq, rep, part, parts = _RECOVERED.unpack_from(payload, 1)
    at = 1 + _RECOVERED.size
    if parts < 0 or not -1 <= part < max(parts, 1):
        return None
    base = ConfigurationId(seq, rep)
    if len(payload) == at + _PLACE.size:
        source = _PLACE.unpack_from(payload, at)[0]
        return Recovered(digest, base, part, parts, source, None) if source < MOST_RINGS else None
    entry = _read_entry(payload, at)
    return None if entry is None else Recovered(digest, base, part, parts, entry.place.source, entry)


def read(payload: bytes) -> Message | None:
    """What a payload says; None if it says nothing."""
    kind = payload[0] if payload else 0
    if kind == BUNDLE:
        return read_bundle(payload)
    if kind == FORWARDED:
        entry = _read_entry(payload, 2)
        return None if entry is None else Forwarded(entry, bool(payload[1]))
    if kind == SEVERAL:
        return _read_several(payload)
    if kind == RECOVERED:
        return _read_recovered(payload)
    if kind == NOTE:
        try:
            note: Note = _decoder.decode(payload[1:])
            return note
        except UNREADABLE:
            return None
    return None
