"""Segments: the files of a log. Each holds the blocks of a range of positions, behind checksums.

A segment is a sequence of *frames*. A frame is a fixed prefix, a header (msgpack) and a body. Its checksum is
over the number of the segment, the place of the frame in the file, and the header; the header has a checksum
of each block in the body. So a frame that was moved, or a file that answers for another one, is noticed as
well as a bit that has flipped. Files are read with `pread`, never mapped: a file that is cut while it is read
is a short read, and not a signal.

- The first frame is an `Opening`: whose log it is, what the segment before it held, and what was known then.
- A `Commit` holds the blocks of one commit. A block replaces those before it that begin at its position or
  behind it: that is how small ones are merged.
- A finished segment ends with a `Footer`, which lists all its blocks, and a mark that tells where it begins.

Every block names the entry before it. So it shows where something is missing, whichever file it was in.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import msgspec

from ordercast.core.wire import UNREADABLE
from ordercast.log.blocks import MESSAGE, Head, head_of
from ordercast.log.position import Position

FORMAT = 2
"""Format 1 was an lmdb environment."""
MAGIC = b"OCL2"
_PREFIX = struct.Struct("<4sIQI")
"""Magic, bytes of the header, bytes of the body, checksum."""
_MARK = struct.Struct("<4sQI")
_MARK_MAGIC = b"OCLE"
_PLACE = struct.Struct("<QQ")
MOST_HEADER = 64 * 1024 * 1024
_LOOKED_THROUGH = 1024 * 1024
"""Bytes that are looked through at a time for the next frame behind a damaged one."""


class BadBlock(Exception):
    """A block, or its file, is not as it was written. ``str(error)`` says what is wrong with it."""


class Meta(msgspec.Struct, array_like=True):
    """What a log tells of itself as a whole. Written with every commit."""

    format: int
    node: int
    commit: int = 0
    """How many commits there were."""
    oldest: int = 1
    """The number of the first segment that is kept."""
    head: Position | None = None
    """The last entry that there ever was."""
    trimmed: Position | None = None
    """The last entry that retention took away."""
    entries: int = 0
    bytes: int = 0
    """How many entries are kept now, and their bytes."""
    alone: bool = False
    """The node is the only member of its configuration: there is nobody whose messages it could miss."""


class Summary(msgspec.Struct, array_like=True):
    """What is in a segment."""

    id: int
    before: Position | None = None
    """The entry before its first one; None if there never was one."""
    last: Position | None = None
    entries: int = 0
    digest: int = 0
    """A checksum of its payloads and changes of the configuration, in order, however blocks divide them."""


class Block(msgspec.Struct, array_like=True):
    """Where a block is, and what it holds."""

    head: Head
    before: Position | None
    """The entry before its first one."""
    at: int
    """Where it begins in the file; within a `Commit`, in the body of the frame."""
    length: int
    checksum: int
    gap: bool = False
    """Whether messages may have passed the node by before this change of the configuration."""
    segment: int = 0
    """The number of the segment that it is in."""

    @property
    def first(self) -> Position:
        """The position of the first entry."""
        return self.head.first

    @property
    def last(self) -> Position:
        """The position of the last entry."""
        return self.head.last


class Opening(msgspec.Struct, array_like=True, tag="opening"):
    """How a segment begins."""

    meta: Meta
    previous: Summary | None
    configuration: Block | None
    """The last change of the configuration before it."""
    notes: dict[bytes, bytes]
    """What is remembered beside the entries, all of it."""


class Commit(msgspec.Struct, array_like=True, tag="commit"):
    """What one commit added."""

    meta: Meta
    summary: Summary
    blocks: list[Block]
    notes: dict[bytes, bytes | None]
    """What is to be remembered beside the entries from here on; None: no longer."""


class Footer(msgspec.Struct, array_like=True, tag="footer"):
    """All that a finished segment holds."""

    meta: Meta
    summary: Summary
    blocks: list[Block]
    notes: dict[bytes, bytes]
    """What was remembered beside the entries at its end."""


Header = Opening | Commit | Footer
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Header).decode


# --- names --------------------------------------------------------------------------------------


FINISHED, GROWING = ".log", ".tail"


def finished_path(directory: Path, segment: int) -> Path:
    """The file of a segment that is written no more."""
    return directory / f"{segment:012}{FINISHED}"


def growing_path(directory: Path, segment: int) -> Path:
    """The file of the segment that is being written."""
    return directory / f"{segment:012}{GROWING}"


def segment_of(name: str) -> int | None:
    """The number of the segment that a file of this name holds; None if it is no such name."""
    stem, dot, suffix = name.partition(".")
    if dot + suffix not in (FINISHED, GROWING) or len(stem) < 12 or not (stem.isascii() and stem.isdigit()):
        return None
    return int(stem) if len(stem) <= 18 else None


# --- writing ------------------------------------------------------------------------------------


def frame(segment: int, at: int, header: Header, body_size: int = 0) -> bytes:
    """A frame up to its body, to be written at this place of the segment's file."""
    packed = _encode(header)
    return _PREFIX.pack(MAGIC, len(packed), body_size, _checksum(segment, at, body_size, packed)) + packed


def _checksum(segment: int, at: int, body_size: int, packed: bytes) -> int:
    return crc32(packed, crc32(_PLACE.pack(segment, at), body_size & 0xFFFFFFFF))


def ending(segment: int, at: int, footer: Footer) -> bytes:
    """A footer, and the mark behind it."""
    where = _MARK.pack(_MARK_MAGIC, at, crc32(_PLACE.pack(segment, at)))
    return frame(segment, at, footer, 0) + where


# --- reading ------------------------------------------------------------------------------------


class Segment:
    """A segment as far as it was read: where its blocks are, not what is in them."""

    def __init__(self, id: int) -> None:
        self.id = id
        self.path: Path | None = None
        """None if its file is not there, or is none of this segment."""
        self.finished = False
        self.end = 0
        """Up to where the file is known."""
        self.opening: Opening | None = None
        self.meta: Meta | None = None
        """As of its last commit."""
        self.summary: Summary | None = None
        self.blocks: list[Block] = []
        self.notes: dict[bytes, bytes] = {}
        self.damage: str | None = None
        """What is wrong with the file, as far as its frames tell."""

    def copy(self) -> Segment:
        """Another one, to be read further while this one is used."""
        made = Segment(self.id)
        made.__dict__.update(self.__dict__)
        made.blocks = list(self.blocks)
        made.notes = dict(self.notes)
        return made

    def apply(self, header: Header, body_at: int) -> None:
        """Take in what a frame says."""
        match header:
            case Opening():
                self.opening = header
                self.notes = dict(header.notes)
                before = header.previous.last if header.previous is not None else None
                self.summary = self.summary or Summary(self.id, before, before)
            case Commit():
                for block in header.blocks:
                    block.at += body_at
                    block.segment = self.id
                    self.add(block)
                for name, value in header.notes.items():
                    if value is None:
                        self.notes.pop(name, None)
                    else:
                        self.notes[name] = value
                self.summary = header.summary
            case Footer():
                self.blocks = header.blocks
                self.notes = header.notes
                self.summary = header.summary
        self.meta = header.meta

    def add(self, block: Block) -> None:
        """Put a block behind the others, in the place of those that it replaces."""
        blocks = self.blocks
        while blocks and blocks[-1].first >= block.first:
            blocks.pop()
        blocks.append(block)

    def missing(self) -> list[tuple[Position | None, Position]]:
        """Ranges of positions, each after one entry up to another, of which no block is there."""
        found = []
        at = self.summary.before if self.summary is not None else None
        for block in self.blocks:
            if block.before != at and block.before is not None:
                found.append((at, block.before))
            at = block.last
        if self.summary is not None and self.summary.last is not None and self.summary.last != at:
            found.append((at, self.summary.last))
        return found


def load(path: Path, segment: int, limit: int | None = None) -> Segment:
    """What is in the file of a segment, up to a place in it. Raises `OSError` if it cannot be read.

    By the footer, where there is one; else frame by frame. What cannot be read is left out: `Segment.damage`.
    """
    found = Segment(segment)
    found.finished = path.suffix == FINISHED
    with path.open("rb", buffering=0) as file:
        fd = file.fileno()
        size = os.fstat(fd).st_size
        try:
            opening, _, at = read_frame(fd, segment, 0, size)
            if not isinstance(opening, Opening):
                raise BadBlock("it does not begin as a segment does")
        except BadBlock as error:
            found.damage = str(error)
        else:
            found.path = path
            found.end = at
            found.apply(opening, at)
        footer = _footer(fd, segment, size) if limit is None else None
        if footer is not None:
            found.path = path
            found.apply(footer, 0)
            found.end = size
        else:
            scan(fd, found, size if limit is None else min(size, limit))
            if found.blocks:
                found.path = path
    return found


def _footer(fd: int, segment: int, size: int) -> Footer | None:
    """The footer of a finished segment; None if there is none that can be read."""
    mark = os.pread(fd, _MARK.size, max(0, size - _MARK.size))
    if len(mark) < _MARK.size:
        return None
    magic, at, checksum = _MARK.unpack(mark)
    if magic != _MARK_MAGIC or checksum != crc32(_PLACE.pack(segment, at)):
        return None
    try:
        header, _, end = read_frame(fd, segment, at, size)
    except BadBlock:
        return None
    return header if isinstance(header, Footer) and end + _MARK.size == size else None


def scan(fd: int, found: Segment, size: int) -> None:
    """Read on from where `found` ends, frame by frame; over damaged ones to the next that is whole."""
    at = found.end
    while at < size:
        try:
            header, body_at, end = read_frame(fd, found.id, at, size)
        except BadBlock as error:
            following = _next_frame(fd, found.id, at + 1, size)
            if following is None:
                if found.damage is None and size - at != _MARK.size:
                    found.damage = f"{error} at byte {at}"
                return
            found.damage = f"{error} at byte {at}"
            at = following
            continue
        found.apply(header, body_at)
        at = found.end = end


def read_frame(fd: int, segment: int, at: int, size: int) -> tuple[Header, int, int]:
    """The frame at this place: its header, where its body begins, and where it ends."""
    prefix = os.pread(fd, _PREFIX.size, at)
    if len(prefix) < _PREFIX.size:
        raise BadBlock("it is cut off")
    magic, length, body_size, checksum = _PREFIX.unpack(prefix)
    if magic != MAGIC or length > MOST_HEADER:
        raise BadBlock("there is no frame of a log")
    body_at = at + _PREFIX.size + length
    if body_at + body_size > size:
        raise BadBlock("it is cut off")
    packed = os.pread(fd, length, at + _PREFIX.size)
    if len(packed) < length or _checksum(segment, at, body_size, packed) != checksum:
        raise BadBlock("a checksum does not fit")
    try:
        return _decode(packed), body_at, body_at + body_size
    except UNREADABLE as error:
        raise BadBlock(f"it has another form than this version writes ({error})") from error


def _next_frame(fd: int, segment: int, at: int, size: int) -> int | None:
    """Where the next whole frame begins, if there is one."""
    for place in _places_of(fd, MAGIC, at, size):
        try:
            read_frame(fd, segment, place, size)
        except BadBlock:
            continue
        return place
    return None


def _places_of(fd: int, mark: bytes, at: int, size: int) -> Iterator[int]:
    while at < size:
        data = os.pread(fd, _LOOKED_THROUGH, at)
        if len(data) < len(mark):
            return
        place = data.find(mark)
        while place >= 0:
            yield at + place
            place = data.find(mark, place + 1)
        at += len(data) - len(mark) + 1


def read_block(directory: Path, finished: bool, block: Block) -> bytes:
    """What a block holds, if it is as it was written; `BadBlock` if not, `OSError` if it cannot be read."""
    path = (finished_path if finished else growing_path)(directory, block.segment)
    with path.open("rb", buffering=0) as file:
        return read_open(file.fileno(), block)


def read_open(fd: int, block: Block) -> bytes:
    """What a block of an open file holds, if it is as it was written; `BadBlock` if not."""
    data = os.pread(fd, block.length, block.at)
    while 0 < len(data) < block.length:
        more = os.pread(fd, block.length - len(data), block.at + len(data))
        if not more:
            break
        data += more
    if len(data) < block.length:
        raise BadBlock("it is cut off")
    if crc32(data) != block.checksum:
        raise BadBlock("its checksum does not fit")
    if head_of(data) != block.head:
        raise BadBlock("it is the block of another position")
    return data


def digest_of(block: bytes | memoryview, so_far: int) -> int:
    """The digest of a segment's entries, with those of one more block."""
    head = head_of(block)
    if head.kind != MESSAGE:
        return crc32(_encode((head.first, head.kind, head.members)), so_far)
    view = memoryview(block)
    end = len(view) - (-head.sizes[-1] % 8)
    return crc32(view[end - head.sizes[-1] : end], so_far)
