"""The files of a log, for the one process that writes them: commits, new segments, and mended ones.

A commit is written behind the last one, synced, and then told in the head, which is synced too. Whoever reads
believes the head: what was written and not told is not there yet. Before each commit the file is looked at:
if somebody has cut, replaced or deleted it, a new segment begins, and what is lost of the old one is known.

A segment is finished when it has grown large, and at each start of the node, so that what is in one segment
was delivered in one life. If much of it was replaced by larger blocks, it is written anew without that.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import chain
from pathlib import Path
from zlib import crc32

from ordercast.core.identity import NodeId
from ordercast.core.slots import SLOT_SIZE
from ordercast.errors import LogError
from ordercast.log import segment as segments
from ordercast.log.blocks import MESSAGE, head_of
from ordercast.log.change import Change
from ordercast.log.disk import HEAD, UNKNOWN, Found, Missing, Slot, slot_bytes, slot_place
from ordercast.log.position import Position
from ordercast.log.segment import (
    FORMAT,
    BadBlock,
    Block,
    Commit,
    Footer,
    Header,
    Meta,
    Opening,
    Segment,
    Summary,
    digest_of,
    finished_path,
    frame,
    growing_path,
)

Fetch = Callable[[Position | None, Position, int | None], Sequence[bytes]]
"""Gives the blocks of the entries after one position, up to and with another; the number of entries, if it
is known, says where to begin when there is no position to begin after."""


class Files:
    """All segments of a log, of which the last is being written."""

    def __init__(self, path: Path, found: Found, node: NodeId, segment_bytes: int, sync: bool) -> None:
        self._path = path
        self._segment_bytes = segment_bytes
        self._sync = sync
        self._fd = self._head_fd = -1
        self._directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._adopt(found, node)
        except BaseException:
            self.close()
            raise

    def _adopt(self, found: Found, node: NodeId) -> None:
        for leftover in sorted(self._path.glob("*.new")):
            leftover.unlink()
        self.meta = copy(found.meta) if found.meta is not None else Meta(FORMAT, node)
        self._segments = list(found.segments)
        self.notes: dict[bytes, bytes] = {}
        self._configuration: Block | None = None
        """The last change of the configuration."""
        for segment in self._segments:
            if segment.opening is not None:
                self.notes = segment.notes
                self._configuration = segment.opening.configuration or self._configuration
            self._note_configurations(segment.blocks)
        self._head_fd = os.open(self._path / HEAD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if self._segments:
            self._finish_last()
        self._count_kept()
        self._begin_segment()

    def _finish_last(self) -> None:
        """The segment that the last life wrote is finished now, if it was not."""
        last = self._segments[-1]
        if last.summary is not None and last.summary.last is not None:
            head = self.meta.head
            self.meta.head = last.summary.last if head is None else max(head, last.summary.last)
        if last.finished or last.path is None:
            return
        if not last.blocks and last.summary is not None and not last.summary.entries:
            self._segments.pop()  # nothing came to be in it: another one takes its number
            return
        fd = os.open(last.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._finish(last, fd, rewrite=True)
        finally:
            os.close(fd)

    def _note_configurations(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            if block.head.kind != MESSAGE:
                self._configuration = block

    def _count_kept(self) -> None:
        kept = list(self.kept(self.meta.trimmed, []))
        self.meta.entries = sum(block.head.rows for block in kept)
        self.meta.bytes = sum(block.length for block in kept)

    def close(self) -> None:
        """Let go of all files."""
        for fd in (self._fd, self._head_fd, self._directory):
            if fd >= 0:
                os.close(fd)
        self._fd = self._head_fd = self._directory = -1

    # --- what is there --------------------------------------------------------------------------

    @property
    def tail(self) -> Segment:
        """The segment that is being written."""
        return self._segments[-1]

    @property
    def finished(self) -> list[int]:
        """The numbers of the others."""
        return [segment.id for segment in self._segments[:-1]]

    def kept(self, trimmed: Position | None, current: list[Block]) -> Iterator[Block]:
        """Blocks that retention has left, the oldest first; `current`: those of the last segment."""
        finished = [segment.blocks for segment in self._segments if segment.finished or segment.path is None]
        return (
            block
            for block in chain.from_iterable((*finished, current))
            if trimmed is None or block.last > trimmed
        )

    @property
    def oldest(self) -> Position | None:
        """The first entry that is kept."""
        block = next(self.kept(self.meta.trimmed, self.tail.blocks), None)
        return None if block is None else block.first

    def missing(self) -> list[Missing]:
        """Entries that are not there, though they were, as far as the lists of blocks tell."""
        found = Found(self._path)
        found.meta, found.segments = self.meta, self._segments
        return found.missing()

    def read(self, block: Block) -> bytes:
        """A block of the segment that is being written."""
        return segments.read_open(self._fd, block)

    # --- committing -----------------------------------------------------------------------------

    def begin(self) -> tuple[Change, list[str]]:
        """A change of the log as it is; and what is wrong with the file that it would go into."""
        problem = self._changed_by_others()
        if problem is not None or self.tail.end >= self._segment_bytes:
            tail = self.tail
            self._finish(tail, self._fd, rewrite=problem is not None or 10 * _live(tail) < 9 * tail.end)
            self._begin_segment()
        return Change(self), [] if problem is None else [problem]

    def _changed_by_others(self) -> str | None:
        """A sentence on what another process has done to the file that is being written."""
        path = growing_path(self._path, self.tail.id)
        here = os.fstat(self._fd)
        try:
            there = os.stat(path)
        except FileNotFoundError:
            return f"{path} was deleted while the node was writing it"
        if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
            return f"{path} was replaced while the node was writing it"
        if here.st_size != self.tail.end:
            return f"{path} has {here.st_size:,} bytes, and the node has written {self.tail.end:,}"
        return None

    def commit(self, change: Change) -> None:
        """Write it, durably, and tell readers."""
        tail = self.tail
        change.meta.oldest = self._first_kept(change)
        at = 0
        for block, data in change.pending:
            block.at = at
            at += len(data)
        header = Commit(change.meta, change.summary, [block for block, _ in change.pending], change.notes)
        front = frame(tail.id, tail.end, header, at)
        length = tail.end + len(front) + at
        try:
            _write(self._fd, tail.end, [front, *(data for _, data in change.pending)])
            self._synced(self._fd)
            self._tell(Slot(change.meta, change.summary, length))
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, tail.end)
            raise
        tail.apply(header, tail.end + len(front))
        tail.end = length
        self.meta = change.meta
        self.notes = tail.notes
        self._note_configurations([block for block, _ in change.pending])
        self._delete_trimmed()

    def _tell(self, slot: Slot) -> None:
        """Write the head file, or make it anew where it was removed."""
        path = self._path / HEAD
        here = os.fstat(self._head_fd)
        with contextlib.suppress(FileNotFoundError):
            there = os.stat(path)
            if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino) and here.st_size == 2 * SLOT_SIZE:
                _write(self._head_fd, slot_place(slot.meta.commit), [slot_bytes(slot)])
                self._synced(self._head_fd)
                return
        os.close(self._head_fd)
        self._head_fd = -1
        new = self._path / f"{HEAD}.new"
        self._head_fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        _write(self._head_fd, 0, [slot_bytes(slot), slot_bytes(slot)])
        self._synced(self._head_fd)
        os.replace(new, path)
        self._synced(self._directory)

    def _first_kept(self, change: Change) -> int:
        trimmed = change.meta.trimmed
        for segment in self._segments[:-1]:
            last = segment.summary.last if segment.summary is not None else None
            if trimmed is None or (last is not None and last > trimmed):
                return segment.id
        return self.tail.id

    def _delete_trimmed(self) -> None:
        while self._segments[0].id < self.meta.oldest:
            gone = self._segments.pop(0)
            for path in (finished_path(self._path, gone.id), growing_path(self._path, gone.id)):
                path.unlink(missing_ok=True)

    def _synced(self, fd: int) -> None:
        if self._sync:
            os.fsync(fd)

    # --- segments -------------------------------------------------------------------------------

    def _begin_segment(self) -> None:
        last = self._segments[-1] if self._segments else None
        segment = Segment(last.id + 1 if last is not None else self.meta.oldest)
        previous = last.summary if last is not None else None
        if previous is None or previous.last != self.meta.head:
            # Of the segment before it only the end is known: the last entry that there ever was.
            previous = Summary(segment.id - 1, None, self.meta.head, UNKNOWN) if self.meta.head else previous
        opening = Opening(self.meta, previous, self._configuration, self.notes)
        path = growing_path(self._path, segment.id)
        data = frame(segment.id, 0, opening)
        fd = self._written_anew(path, [data])
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd
        segment.path = path
        segment.apply(opening, 0)
        segment.end = len(data)
        self._segments.append(segment)

    def _written_anew(self, path: Path, parts: Sequence[bytes]) -> int:
        """A file as a whole or not at all, open."""
        new = path.with_name(f"{path.name}.new")
        fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write(fd, 0, parts)
            self._synced(fd)
            os.replace(new, path)
            self._synced(self._directory)
        except BaseException:
            os.close(fd)
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        return fd

    def _finish(self, segment: Segment, fd: int, rewrite: bool) -> None:
        """Give a segment its footer, and the name of a finished one."""
        path, growing = finished_path(self._path, segment.id), growing_path(self._path, segment.id)
        assert segment.summary is not None
        if rewrite:
            blocks = []
            for block in segment.blocks:
                with contextlib.suppress(BadBlock):
                    blocks.append((block, segments.read_open(fd, block)))
            self._write_finished(path, segment, segment.summary, blocks)
            growing.unlink(missing_ok=True)
            return
        footer = Footer(self.meta, segment.summary, segment.blocks, segment.notes)
        _write(fd, segment.end, [segments.ending(segment.id, segment.end, footer)])
        self._synced(fd)
        os.replace(growing, path)
        self._synced(self._directory)
        segment.path, segment.finished = path, True

    def _write_finished(
        self, path: Path, segment: Segment, summary: Summary, blocks: Sequence[tuple[Block, bytes]]
    ) -> None:
        """The file of a finished segment, with these blocks; `segment` is as it is then."""
        opening = segment.opening or Opening(self.meta, None, None, {})
        parts: list[bytes] = []
        end = 0

        def add(header: Header, data: bytes = b"") -> int:
            nonlocal end
            parts.append(frame(segment.id, end, header, len(data)))
            body_at = end + len(parts[-1])
            parts.append(data)
            end = body_at + len(data)
            return body_at

        add(opening)
        listed = []
        for block, data in blocks:
            alone = Block(block.head, block.before, 0, block.length, block.checksum, block.gap)
            body_at = add(Commit(self.meta, summary, [alone], {}), data)
            listed.append(
                Block(block.head, block.before, body_at, block.length, block.checksum, block.gap, segment.id)
            )
        footer = Footer(self.meta, summary, listed, segment.notes)
        parts.append(segments.ending(segment.id, end, footer))
        os.close(self._written_anew(path, parts))
        segment.path, segment.finished = path, True
        segment.opening, segment.blocks, segment.summary = opening, listed, summary
        segment.damage = None

    # --- checking and mending -------------------------------------------------------------------

    def check(self, id: int) -> list[Missing]:
        """Entries of a finished segment that cannot be read as they were written."""
        segment = self._of(id)
        if segment is None or segment.summary is None:
            return []
        good = [block for block, data in self._readable(segment) if data is not None]
        whole = copy(segment)
        whole.blocks = good
        trimmed = self.meta.trimmed
        return [Missing(*hole) for hole in whole.missing() if trimmed is None or hole[1] > trimmed]

    def _of(self, id: int) -> Segment | None:
        return next((segment for segment in self._segments[:-1] if segment.id == id), None)

    def _readable(self, segment: Segment) -> Iterator[tuple[Block, bytes | None]]:
        """Each block of a finished segment, and what it holds; None where it is damaged."""
        try:
            fd = os.open(finished_path(self._path, segment.id), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            yield from ((block, None) for block in segment.blocks)
            return
        try:
            for block in list(segment.blocks):
                try:
                    yield block, segments.read_open(fd, block)
                except (BadBlock, OSError):
                    yield block, None
        finally:
            os.close(fd)

    def is_spoilt(self, id: int) -> bool:
        """Whether the file of a segment is damaged somewhere, even if all its blocks can be read."""
        segment = self._of(id)
        return segment is not None and segment.damage is not None

    def mended(self, id: int, fetch: Fetch) -> tuple[Summary, list[tuple[Block, bytes]]] | str:
        """The blocks of a segment, with what `fetch` gives for the missing ones; or why it does not fit."""
        segment = self._of(id)
        if segment is None or segment.summary is None:
            return f"segment {id} is not one of the log any more"
        summary, trimmed = segment.summary, self.meta.trimmed
        held = [(block, data) for block, data in self._readable(segment) if data is not None]
        gaps = {block.first for block in segment.blocks if block.gap}
        whole = copy(segment)
        whole.blocks = [block for block, _ in held]
        holes = [hole for hole in whole.missing() if trimmed is None or hole[1] > trimmed]
        there = sum(block.head.rows for block, _ in held)
        rows = summary.entries - there if summary.entries != UNKNOWN and len(holes) == 1 else None
        for after, last in holes:
            begin = after if trimmed is None or (after is not None and after > trimmed) else trimmed
            before = begin
            first = after == summary.before and not gaps  # and perhaps the first entry of a life
            for data in fetch(begin, last, rows):
                head = head_of(data)
                if before is not None and head.first <= before:
                    return f"it gave {head.first} behind {before}"
                gap = head.first in gaps or (first and begin is not None and head.kind != MESSAGE)
                first = False
                held.append((Block(head, before, 0, len(data), crc32(data), gap), data))
                before = head.last
            if before != last:
                return f"it has nothing that ends with {last}"
        held.sort(key=lambda one: one[0].first)
        entries = sum(block.head.rows for block, _ in held)
        digest = 0
        for _, data in held:
            digest = digest_of(data, digest)
        untouched = trimmed is None or summary.before is None or summary.before >= trimmed
        if (
            untouched
            and summary.entries != UNKNOWN
            and (entries, digest) != (summary.entries, summary.digest)
        ):
            return (
                f"it gave other entries than were here between {summary.before} and {summary.last}: "
                f"{entries:,} of {summary.entries:,}"
            )
        if summary.entries == UNKNOWN:
            summary = Summary(summary.id, summary.before, summary.last, entries, digest)
        return summary, held

    def replace(self, id: int, made: tuple[Summary, list[tuple[Block, bytes]]]) -> None:
        """Put a mended segment in the place of the damaged one."""
        segment = self._of(id)
        if segment is None:
            return  # retention has taken it away
        before = _live(segment), sum(block.head.rows for block in segment.blocks)
        try:
            self._write_finished(finished_path(self._path, id), segment, *made)
        except OSError as error:
            raise LogError(f"the segment {id} cannot be written ({error.strerror or error})") from error
        growing_path(self._path, id).unlink(missing_ok=True)
        self.meta.bytes += _live(segment) - before[0]
        self.meta.entries += sum(block.head.rows for block in segment.blocks) - before[1]


def _live(segment: Segment) -> int:
    return sum(block.length for block in segment.blocks)


def _write(fd: int, at: int, parts: Sequence[bytes]) -> None:
    """Write all of it, at this place."""
    data = b"".join(parts)
    written = 0
    while written < len(data):
        written += os.pwrite(fd, memoryview(data)[written:], at + written)
