"""How the files of a durable object are written: frames whose checksums go on from each other, and the head.

A frame is its length, a checksum and a body. The checksum goes on from that of the frame before it, and the
first one of a file begins with whose file it is and which. So a frame that is changed, moved, left out, or
from another file or an earlier version of this one does not fit.

The head is a file of two rows of slots. Each commit is written into one slot of both rows, the next commit
into the next ones, and so on in turn. A crash while it is written can spoil both slots of that commit, and no
others; what a damaged disk does to neighbouring bytes cannot spoil exactly these two. So the one is told from
the other. A slot has the frames of a small commit in it: so one sync, that of the head, is enough for it, and
the log is synced before the slot is written again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

import msgspec

from ordercast.core.slots import OVERHEAD, record_in, slot_of
from ordercast.core.wire import UNREADABLE
from ordercast.replicated.durable.heads import Head

FORMAT = 1
SLOT_SIZE = 8192
MOST_IN_SLOT = 6 * 1024
"""Bytes of the log that a slot has in it, at most."""
SLOTS = 16
"""Slots of a row: so many commits are in the head."""
HEAD_SIZE = 2 * SLOTS * SLOT_SIZE
_FRAME = struct.Struct("<4sII")
_MAGIC = b"OCW1"
MOST_FRAME = 1 << 31
_encode = msgspec.msgpack.Encoder().encode


class BadFrame(Exception):
    """There is no whole frame here. ``str(error)`` says what is there."""


# --- bodies -------------------------------------------------------------------------------------


class Owner(msgspec.Struct, frozen=True, array_like=True):
    """Whose files these are."""

    object: str
    node: int


class Opening(msgspec.Struct, array_like=True, tag="o"):
    """How a segment of the log begins."""

    format: int
    commit: int
    head: Head
    """Where the history was."""
    before: int
    """The checksum of the last frame before it, in the segment before."""


class Entries(msgspec.Struct, array_like=True, tag="e"):
    """What one commit appended."""

    commit: int
    heads: list[Head]
    data: list[bytes]


class SnapshotOpening(msgspec.Struct, array_like=True, tag="s"):
    """How a snapshot begins."""

    format: int
    head: Head


class Slice(msgspec.Struct, array_like=True, tag="p"):
    """A part of the state."""

    data: bytes


class End(msgspec.Struct, array_like=True, tag="z"):
    """A snapshot is whole when it ends with this."""

    slices: int


Body = Opening | Entries | SnapshotOpening | Slice | End
_decode_body = msgspec.msgpack.Decoder(Body).decode


# --- frames -------------------------------------------------------------------------------------


def beginning(owner: Owner, file: str) -> int:
    """The checksum that the first frame of a file goes on from."""
    return crc32(_encode((owner, file)))


def frame(body: Body, so_far: int) -> tuple[bytes, int]:
    """A frame, and its checksum, that the next one goes on from."""
    packed = _encode(body)
    sum = crc32(packed, crc32(len(packed).to_bytes(8), so_far))
    return _FRAME.pack(_MAGIC, len(packed), sum) + packed, sum


def read_frame(data: bytes | memoryview, at: int, so_far: int) -> tuple[Body, int, int]:
    """The frame at a place: its body, its checksum, and where it ends."""
    if len(data) - at < _FRAME.size:
        raise BadFrame("it is cut off")
    magic, length, sum = _FRAME.unpack_from(data, at)
    if magic != _MAGIC:
        raise BadFrame("there is no frame")
    begin, end = at + _FRAME.size, at + _FRAME.size + length
    if end > len(data):
        raise BadFrame("it is cut off, or the length of a frame is wrong")
    packed = memoryview(data)[begin:end]
    if crc32(packed, crc32(length.to_bytes(8), so_far)) != sum:
        raise BadFrame("a checksum does not fit")
    try:
        return _decode_body(packed), sum, end
    except UNREADABLE as error:
        raise BadFrame(f"it has another form than this version writes ({error})") from error


def frame_size(prefix: bytes) -> int:
    """How many bytes a frame that begins so has in all."""
    if len(prefix) < _FRAME.size:
        raise BadFrame("it is cut off")
    magic, length, _ = _FRAME.unpack_from(prefix)
    if magic != _MAGIC:
        raise BadFrame("there is no frame")
    return _FRAME.size + int(length)


PREFIX_SIZE = _FRAME.size


# --- the head -----------------------------------------------------------------------------------


class SnapshotFile(msgspec.Struct, frozen=True, array_like=True):
    """The snapshot that counts."""

    number: int
    head: Head
    bytes: int
    checksum: int
    """The checksum of the snapshot's last frame."""


class Told(msgspec.Struct, frozen=True, array_like=True):
    """What the head says: all this is on disk."""

    format: int
    owner: Owner
    commit: int
    head: Head
    snapshot: SnapshotFile | None
    first: int
    last: int
    """The segments of the log: the first that is kept, and the one that is written."""
    length: int
    checksum: int
    """Up to where the last segment is written, and of the last frame up to there."""
    promised: int
    """The node takes part in no history of an earlier epoch any more."""
    frames: bytes = b""
    """The end of the last segment, if it need not be there."""


_SLOT_MAGIC = b"OCWH"
_decode_told = msgspec.msgpack.Decoder(Told).decode


def slot_bytes(told: Told) -> bytes:
    """A slot as it is written."""
    return slot_of(_SLOT_MAGIC, _encode(told), SLOT_SIZE)


def slot_places(commit: int) -> tuple[int, int]:
    """Where in the head the two slots of a commit are."""
    at = commit % SLOTS * SLOT_SIZE
    return at, at + SLOTS * SLOT_SIZE


class HeadFound(NamedTuple):
    """What a head file says."""

    told: Told | None
    """The latest that can be read."""
    certain: bool
    """Whether `told` is the latest that was ever written: no later slot is damaged."""
    whole: bool
    """Whether no part of the file is damaged."""
    held: Sequence[Told] = ()
    """What the last commits said that have their frames with them, in order."""


def read_head(data: bytes) -> HeadFound:
    """What this head file says, and whether that can be relied on."""
    slots = [_slot(data[at : at + SLOT_SIZE]) for at in range(0, HEAD_SIZE, SLOT_SIZE)]
    found = {slot.commit: slot for slot in slots if slot is not None}
    if not found:
        return HeadFound(None, False, False)
    readable = 2 * SLOTS - slots.count(None)
    lost = sum(one is None and other is None for one, other in zip(slots, slots[SLOTS:], strict=False))
    # A crash spoils what was being written only: then all slots of the commits before it are whole.
    certain = len(data) == HEAD_SIZE and (not lost or readable == 2 * SLOTS - 2)
    whole = len(data) == HEAD_SIZE and readable == 2 * SLOTS
    held = [found[commit] for commit in sorted(found) if found[commit].frames]
    return HeadFound(found[max(found)], certain, whole, held)


def _slot(data: bytes) -> Told | None:
    record = record_in(_SLOT_MAGIC, data)
    if record is None or any(data[OVERHEAD + len(record) :]):
        return None
    try:
        return _decode_told(record)
    except UNREADABLE:
        return None


def frames_of(data: bytes, so_far: int) -> Iterator[tuple[Body, int, int]]:
    """All frames from the beginning; raises `BadFrame` at the first that is not whole."""
    at = 0
    while at < len(data):
        body, so_far, at = read_frame(data, at, so_far)
        yield body, so_far, at


# --- names --------------------------------------------------------------------------------------


def segment_name(number: int) -> str:
    """The file of a segment of the log."""
    return f"{number:012}.wal"


def snapshot_name(number: int) -> str:
    """The file of a snapshot."""
    return f"{number:012}.state"


def number_of(name: str) -> int | None:
    """The number of the segment or snapshot that a file of this name holds; None if it is no such name."""
    stem, dot, suffix = name.partition(".")
    if dot + suffix not in (".wal", ".state") or len(stem) < 12 or not (stem.isascii() and stem.isdigit()):
        return None
    return int(stem) if len(stem) <= 18 else None
