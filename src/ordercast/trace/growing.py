"""Reads the files of a trace while nodes write them: what has come since the last look, each row once.

A node's rows come in one *stream*, part after part: journals that grow, on this machine, and Parquet files
that are whole when they appear, here or in a store. A journal that becomes Parquet while it is read is read
to its end all the same; one that was not begun is read as Parquet.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from ordercast.core.wire import UNREADABLE
from ordercast.storage import Location, Where
from ordercast.trace.blocks import MAGIC, damaged, no_journal, opening_of, rows_of_block
from ordercast.trace.contents import Part, converted, found_files, part_of, unreadable
from ordercast.trace.files import JOURNAL, PARQUET
from ordercast.trace.reader import by_run, rows_of, stored_table
from ordercast.trace.schema import About, Row, TraceError

_HEAD = struct.Struct("<II")
_AT_ONCE = 1 << 20
"""Bytes of a journal that are read at once."""

_OF_NODE = re.compile(r"(.+-\d{10})-(\d{10})-(\d{6,})")
"""Stems of the parts of one node, with life and number: see `ordercast.trace.files.part_stem`."""


class Position(NamedTuple):
    """How far a part has been read."""

    rows: int = 0
    offset: int = 0
    """Bytes, of a journal."""


class Taken(NamedTuple):
    """Rows of one run, in the order in which a file has them."""

    run: str
    about: About
    rows: list[Row]


class GrowingJournal:
    """A journal that may still be written."""

    def __init__(self, file: Location, position: Position) -> None:
        """Begin at `position`. Raises `FileNotFoundError`."""
        assert file.local is not None, "journals stay where they are written"
        self.position = position
        self._name = file
        self._file = file.local.open("rb", buffering=0)
        self._doubtful = -1
        self._run: str | None = None
        self._about: About = {}
        if position.offset:
            self.position = Position()
            self._opening(self._file.read(_AT_ONCE))
            self.position = position

    def take(self, most: int) -> list[Taken]:
        """What has come, up to about so many rows; nothing if nothing has."""
        rows: list[Row] = []
        try:
            if self._run is None:
                self._file.seek(0)
                self._opening(self._file.read(_AT_ONCE))
            while self._run is not None and len(rows) < most and (found := self._blocks(most - len(rows))):
                rows += found
        except UNREADABLE as error:
            raise damaged(self._name, self.position.offset) from error
        except OSError as error:
            raise unreadable(self._name, error) from error
        return [Taken(self._run, self._about, rows)] if rows and self._run is not None else []

    def close(self) -> None:
        """Read no more of it."""
        self._file.close()

    def _opening(self, data: bytes) -> None:
        if not MAGIC.startswith(data[: len(MAGIC)]):
            raise no_journal(self._name)
        block = self._block(data, len(MAGIC))
        if block is not None:
            self._run, self._about = opening_of(block, self._name)
            self.position = Position(0, len(MAGIC) + _HEAD.size + len(block))

    def _blocks(self, most: int) -> list[Row]:
        self._file.seek(self.position.offset)
        data = self._file.read(_AT_ONCE)
        if len(data) >= _HEAD.size and _HEAD.unpack_from(data)[0] + _HEAD.size > len(data):
            data += self._file.read(_HEAD.unpack_from(data)[0])  # a block larger than all that
        rows: list[Row] = []
        at = 0
        while len(rows) < most and (block := self._block(data, at)) is not None:
            rows += rows_of_block(block)
            at += _HEAD.size + len(block)
        self.position = Position(self.position.rows + len(rows), self.position.offset + at)
        return rows

    def _block(self, data: bytes, at: int) -> bytes | None:
        """The block that begins there, if all of it is there."""
        if len(data) - at < _HEAD.size:
            return None
        length, checksum = _HEAD.unpack_from(data, at)
        block = data[at + _HEAD.size : at + _HEAD.size + length]
        if len(block) < length:
            return None
        if length and zlib.crc32(block) == checksum:
            return block
        if not any(data[at:]):
            return None  # room that was reserved and is not filled
        place = self.position.offset + at
        if self._doubtful != place:
            self._doubtful = place  # perhaps it is being written at this moment
            return None
        raise damaged(self._name, place)


class StoredPart:
    """A Parquet file, which is whole."""

    def __init__(self, file: Location, root: Location, position: Position) -> None:
        self.position = position
        self._part: Part = part_of(file, root)
        self._skip = position.rows
        self._next = 0

    def take(self, most: int) -> list[Taken]:
        """The next rows, of whole row groups; nothing at the end."""
        found: list[Taken] = []
        taken = 0
        while self._next < len(self._part.groups) and taken < most:
            size = sum(self._part.groups[self._next].values())
            if self._skip >= size:
                self._skip -= size
            else:
                table = stored_table(self._part, [self._next]).slice(self._skip)
                self._skip = 0
                found += [Taken(run, self._part.about, rows_of(its)) for run, its in by_run(table)]
                taken += table.num_rows
            self._next += 1
        self.position = Position(self.position.rows + taken)
        return found

    def close(self) -> None:
        """Nothing is held open."""


class Stream:
    """The parts of one node, or of one writer, in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting: deque[str] = deque()
        """Parts that were not begun."""
        self.part: str | None = None
        self.last: str | None = None
        """The last part that was begun."""
        self.reader: GrowingJournal | StoredPart | None = None


class GrowingTrace:
    """The files of a trace that is being written."""

    def __init__(self, where: Where, read: Mapping[str, Position] | None = None) -> None:
        """Go on behind what was `read` before, by part."""
        self.root = Location.of(where)
        self._read = dict(read or {})
        self._files: dict[str, Location] = {}
        self.streams: dict[str, Stream] = {}
        for part in sorted(self._read):
            name = _stream_of(part)
            self.streams.setdefault(name, Stream(name)).last = part

    def look(self) -> None:
        """See which files there are."""
        self._files = found_files(self.root)
        for part in sorted(self._files):
            name = _stream_of(part)
            stream = self.streams.setdefault(name, Stream(name))
            if part != stream.part and part not in stream.waiting and not self._is_read(part):
                stream.waiting.append(part)
        self._read = {part: its for part, its in self._read.items() if self._is_known(part)}

    def take(self, stream: Stream, most: int) -> list[Taken]:
        """The next rows of a stream, about so many at most; nothing if there is nothing new."""
        while True:
            if stream.reader is None and not self._begin(stream):
                return []
            assert stream.reader is not None
            assert stream.part is not None
            taken = stream.reader.take(most)
            self._read[stream.part] = stream.reader.position
            if taken:
                return taken
            if not self._is_whole(stream):
                return []
            if isinstance(stream.reader, GrowingJournal) and (rest := stream.reader.take(most)):
                self._read[stream.part] = stream.reader.position
                return rest  # written between the two looks
            self._end(stream)

    @property
    def positions(self) -> dict[str, Position]:
        """How far each part has been read that is there still."""
        return dict(self._read)

    def has_more(self, stream: Stream) -> bool:
        """Whether parts of a stream wait that were not begun."""
        return bool(stream.waiting)

    def close(self) -> None:
        """Read no more."""
        for stream in self.streams.values():
            if stream.reader is not None:
                stream.reader.close()

    def _begin(self, stream: Stream) -> bool:
        while stream.waiting:
            part = stream.waiting.popleft()
            if not _follows(part, stream.last):
                raise _deleted(self.root, part)
            stream.last = part
            position = self._read.get(part, Position())
            file = self._files[part]
            try:
                if file.suffix == JOURNAL:
                    stream.reader = GrowingJournal(file, position)
                else:
                    stream.reader = StoredPart(file, self.root, position)
            except FileNotFoundError:
                became = converted(file)
                if became is None and file.suffix == JOURNAL:
                    continue  # it held no row
                if became is None:
                    raise _deleted(self.root, part) from None
                stream.reader = StoredPart(became, self.root, position)
            stream.part = part
            return True
        return False

    def _is_whole(self, stream: Stream) -> bool:
        """Whether nothing will be added to the part of a stream that is being read."""
        if isinstance(stream.reader, StoredPart) or stream.waiting:
            return True
        file = self._files.get(stream.part or "")
        return file is None or file.suffix == PARQUET

    def _end(self, stream: Stream) -> None:
        assert stream.reader is not None
        assert stream.part is not None
        stream.reader.close()
        self._read[stream.part] = stream.reader.position._replace(offset=_WHOLE)
        stream.part = stream.reader = None

    def _is_read(self, part: str) -> bool:
        position = self._read.get(part)
        return position is not None and position.offset == _WHOLE

    def _is_known(self, part: str) -> bool:
        """Whether it matters how far a part was read."""
        return part in self._files or any(part == stream.last for stream in self.streams.values())


_WHOLE = -1
"""The offset of a part that was read to its end."""


def _stream_of(part: str) -> str:
    found = _OF_NODE.fullmatch(part)
    return found[1] if found else part


def _follows(part: str, last: str | None) -> bool:
    """Whether a node's part is the next one behind another, or its first."""
    found, before = _OF_NODE.fullmatch(part), _OF_NODE.fullmatch(last or "")
    if found is None:
        return True
    number = int(found[3])
    if before is not None and before[2] == found[2]:
        return number <= int(before[3]) + 1
    return number == 0


def _deleted(root: Location, part: str) -> TraceError:
    return TraceError(
        f"{root}: what was written before {part.strip('/')} was deleted before it was read: keep more files "
        "of the trace (trace_files), and follow it from the beginning, with a checkpoint."
    )
