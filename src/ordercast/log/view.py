"""Reading a log that is on this machine: what it holds, ranges of it, and why it does not hold something.

Nothing is locked for longer than one block takes: the log grows, is merged and trimmed while it is read. So
each step finds its place anew, by position.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import lmdb
import pyarrow as pa

from ordercast.core.identity import ConfigurationId
from ordercast.errors import LogError, NotThere, NotYet, SplitAway, Trimmed, Unreachable
from ordercast.log import disk as files
from ordercast.log.blocks import MESSAGE, Head, Messages, batch_of, head_of
from ordercast.log.disk import ConfigurationNote, Disk, Meta, decode_note
from ordercast.log.position import Position


class Bounds(NamedTuple):
    """What a replica holds. Everything in it is final."""

    oldest: Position | None
    """The first entry that is kept; None if none is."""
    head: Position | None
    """The last entry; None if there never was one."""
    node: int
    """Whose log it is."""
    entries: int = 0
    bytes: int = 0
    since: Position | None = None
    """From here to the head nothing is missing: the oldest, or where the node last came back to its group."""


class Piece(NamedTuple):
    """Some rows of a block, as it is stored."""

    block: bytes
    begin: int
    end: int
    last: Position
    """The last of the rows."""


class View:
    """A log in a directory, read-only, while a node may be writing it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._disk: Disk | None = files.share(path)
        try:
            self._open(self._disk)
        except BaseException:
            self.close()
            raise

    def _open(self, disk: Disk) -> None:
        if not (self.path / files.FILE).is_file():
            raise Unreachable(
                f"there is no ordered log in {self.path}: name the directory that a node has for log, or the "
                "address of its log service"
            )
        try:
            disk.open_to_read()
        except lmdb.NotFoundError as error:
            raise Unreachable(
                f"the log in {self.path} has nothing in it yet: wait for its node to write it"
            ) from error
        except (lmdb.Error, OSError) as error:
            raise Unreachable(
                f"the log in {self.path} cannot be opened ({error}): ask as the user whose node writes it, "
                "or ask the node over TCP"
            ) from error

    def close(self) -> None:
        """Give it back."""
        disk, self._disk = self._disk, None
        if disk is not None:
            files.release(disk)

    @property
    def disk(self) -> Disk:
        """The environment."""
        if self._disk is None:
            raise Unreachable(f"this view of the log in {self.path} was closed: open it again")
        return self._disk

    # --- what is there --------------------------------------------------------------------------

    def bounds(self) -> Bounds:
        """What it holds now."""
        disk = self.disk
        with disk.reading() as view:
            meta = self._meta(view)
            with view.cursor(db=disk.blocks) as cursor:
                oldest = Position.unpacked(bytes(cursor.key())) if cursor.first() else None
            return Bounds(oldest, meta.head, meta.node, meta.entries, meta.bytes, self._since(view, oldest))

    def _since(self, view: Any, oldest: Position | None) -> Position | None:
        with view.cursor(db=self.disk.configurations) as cursor:
            for key, value in cursor.iterprev():
                if decode_note(bytes(value)).gap:
                    begin = Position.unpacked(bytes(key))
                    return begin if oldest is None or begin > oldest else oldest
        return oldest

    def _meta(self, view: Any) -> Meta:
        return self.disk.meta(view) or Meta(files.FORMAT, 0)

    # --- ranges ---------------------------------------------------------------------------------

    def after(self, start: Position | None, rows: int) -> Position | None:
        """Where a range of about so many entries after `start` ends; None if there is nothing new.

        It ends at the head, and before anything that the node may have missed.
        """
        disk = self.disk
        with disk.reading() as view:
            meta = self._meta(view)
            if start is not None:
                self._check_held(view, meta, start)
            end, found = start, 0
            for head in self._heads_after(view, start):
                if head.kind != MESSAGE and self._gap_at(view, head.first):
                    if end == start and start is not None:
                        raise self._gap(view, meta, start, head.first)
                    if end is not None:
                        break
                more = head.rows
                if start is not None and head.first <= start:
                    more -= self._rows_up_to(view, head, start)
                if found and found + more > rows and 2 * found >= rows:
                    break
                if found + more > rows:
                    return self._within(view, head, head.rows - more + max(1, rows - found))
                found += more
                end = head.last
        return end if end != start else None

    def before(self, end: Position, rows: int) -> Position | None:
        """The entry behind which the last `rows` entries up to `end` begin; None: with the oldest."""
        disk = self.disk
        with disk.reading() as view:
            self._check_held(view, self._meta(view), end)
            with view.cursor(db=disk.blocks) as cursor:
                there = self._seek(cursor, end)
                while there:
                    head = head_of(cursor.value())
                    held = self._rows_up_to(view, head, end) if head.last > end else head.rows
                    if held > rows:
                        return self._within(view, head, held - rows) if head.kind == MESSAGE else head.first
                    if held == rows and cursor.prev():
                        return head_of(cursor.value()).last
                    rows -= held
                    there = cursor.prev()
        return None

    def _within(self, view: Any, head: Head, rows: int) -> Position:
        """The last of so many messages of a block."""
        block = Messages.decoded(bytes(view.get(head.first.packed, db=self.disk.blocks)))
        return block.position(rows - 1)

    def pieces(self, start: Position | None, end: Position, group: str | None = None) -> Iterator[Piece]:
        """The entries after `start` up to and with `end`, as they are stored; what is wrong is said now."""
        disk = self.disk
        with disk.reading() as view:
            meta = self._meta(view)
            if start is not None:
                self._check_held(view, meta, start)
            self._check_held(view, meta, end)
            if start is None or end > start:
                self._check_gaps(view, meta, start, end)
        return self._pieces(start, end, group)

    def _pieces(self, start: Position | None, end: Position, group: str | None) -> Iterator[Piece]:
        at = start
        while at is None or at < end:
            piece = self._next_piece(at, end, group)
            if piece is None:
                return
            at = piece.last
            if piece.end > piece.begin:
                yield piece

    def _next_piece(self, at: Position | None, end: Position, group: str | None) -> Piece | None:
        """What comes next; blocks without a message of the group are skipped."""
        disk = self.disk
        with disk.reading() as view:
            meta = self._meta(view)
            if at is not None and meta.trimmed is not None and at < meta.trimmed:
                raise self._trimmed(meta, at)
            for head in self._heads_after(view, at):
                first, last = head.first, head.last
                if first > end:
                    return None
                if group is not None and head.kind == MESSAGE and group not in head.groups and last < end:
                    at = last
                    continue
                block = bytes(view.get(first.packed, db=disk.blocks))
                begin = self._rows_up_to(view, head, at) if at is not None and first <= at else 0
                stop = head.rows if last <= end else Messages.decoded(block).rows_up_to(end)
                return Piece(block, begin, stop, min(last, end))
        return None

    def read(
        self, start: Position | None, end: Position, group: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The same as Arrow has it; of one group, with all changes of the configuration."""
        return (
            batch
            for block, begin, stop, _ in self.pieces(start, end, group)
            if (batch := batch_of(block, begin, stop, group)).num_rows
        )

    # --- finding --------------------------------------------------------------------------------

    def _heads_after(self, view: Any, start: Position | None) -> Iterator[Head]:
        """Heads of the blocks that hold something after a position."""
        with view.cursor(db=self.disk.blocks) as cursor:
            if not self._seek(cursor, start):
                return
            for value in cursor.iternext(keys=False):
                head = head_of(value)
                if start is None or head.last > start:
                    yield head

    def _seek(self, cursor: Any, place: Position | None) -> bool:
        """Go to the block that a position is in, or would be in."""
        if place is None:
            return bool(cursor.first())
        if cursor.set_range(place.packed):
            return cursor.key() == place.packed or cursor.prev() or bool(cursor.first())
        return bool(cursor.last())

    def _rows_up_to(self, view: Any, head: Head, place: Position) -> int:
        """How many rows of a block stand at a position or before."""
        if place >= head.last:
            return head.rows
        block = Messages.decoded(bytes(view.get(head.first.packed, db=self.disk.blocks)))
        return block.rows_up_to(place)

    def _holds(self, view: Any, place: Position) -> bool:
        """Whether there is an entry at just that position."""
        with view.cursor(db=self.disk.blocks) as cursor:
            if not self._seek(cursor, place):
                return False
            block = bytes(cursor.value())
        head = head_of(block)
        first, last = head.first, head.last
        if place in (first, last):
            return True
        if not first < place < last:
            return False
        messages = Messages.decoded(block)
        return messages.position(messages.rows_up_to(place) - 1) == place

    # --- what is wrong --------------------------------------------------------------------------

    def _check_held(self, view: Any, meta: Meta, place: Position) -> None:
        """Raise the reason why a position is not one of this log, if it is not."""
        if place in (meta.head, meta.trimmed) or self._holds(view, place):
            return
        who = f"the replica of node {meta.node}" if meta.node else f"the log in {self.path}"
        if meta.trimmed is not None and place < meta.trimmed:
            raise self._trimmed(meta, place)
        if meta.head is None or place > meta.head:
            head = "nothing yet" if meta.head is None else f"everything up to {meta.head}"
            raise NotYet(
                f"{who} has {head}, and not {place}: wait until it comes that far, or ask another replica. "
                "If it never does, it was parted from the others when that was delivered."
            )
        raise self._elsewhere(view, who, place)

    def _trimmed(self, meta: Meta, place: Position) -> Trimmed:
        assert meta.trimmed is not None
        return Trimmed(
            f"what comes after {place} is no longer kept by the replica of node {meta.node}, which let go of "
            f"everything up to {meta.trimmed}: ask one that keeps more, or begin at a later "
            "position; log_bytes and log_age say how much a node keeps"
        )

    def _elsewhere(self, view: Any, who: str, place: Position) -> LogError:
        """Why an entry is not here although later ones are: the node was away, or its history split off."""
        here, before, after = self._around(view, place.configuration)
        if after is None and here is not None:
            return SplitAway(
                f"{who} was in configuration {place.configuration}, but has no entry {place} in it: that is "
                "no position of its history. Begin at one that `ordercast log` shows."
            )
        if after is None or (before is None and here is None):
            begin = after[0] if after is not None else place
            return NotThere(
                f"{who} has a log that begins with {begin}, and {place} is before that: it was not there "
                "then. Ask one that was."
            )
        since, note = after
        if note.gap:
            return NotThere(
                f"{who} was not there when {place} was delivered: it came back with {since}. Ask a replica "
                "that was there all the time."
            )
        came = f"configuration {before[0].configuration}" if before else "somewhere else"
        split = (
            f"it had left configuration {place.configuration} for {since.configuration}"
            if here is not None
            else f"it went from {came} to {since.configuration}"
        )
        return SplitAway(
            f"the history of {who} split away from the one that was read: {place} was delivered elsewhere, "
            f"while {split}, with the members {', '.join(map(str, note.members))}. Go on with a replica of "
            "the other side; entries of the two are not to be mixed."
        )

    def _around(
        self, view: Any, configuration: ConfigurationId
    ) -> tuple[
        ConfigurationNote | None,
        tuple[Position, ConfigurationNote] | None,
        tuple[Position, ConfigurationNote] | None,
    ]:
        """What is known of a configuration, of the one before it and of the one after it."""
        key = Position.beginning(configuration).packed
        here = before = after = None
        with view.cursor(db=self.disk.configurations) as cursor:
            found = cursor.set_range(key)
            if found and bytes(cursor.key()) == key:
                here = decode_note(bytes(cursor.value()))
                found = cursor.next()
            if found:
                after = Position.unpacked(bytes(cursor.key())), decode_note(bytes(cursor.value()))
                back = cursor.prev() and (here is None or cursor.prev())
            else:
                back = cursor.last() and (here is None or cursor.prev())
            if back:
                before = Position.unpacked(bytes(cursor.key())), decode_note(bytes(cursor.value()))
        return here, before, after

    def _check_gaps(self, view: Any, meta: Meta, start: Position | None, end: Position) -> None:
        """A range does not cross a time in which the node was away."""
        with view.cursor(db=self.disk.configurations) as cursor:
            begin = start or self._first(view)
            if begin is None or not cursor.set_range(begin.packed):
                return
            for key, value in cursor.iternext():
                place = Position.unpacked(bytes(key))
                if place > end:
                    return
                if place > begin and decode_note(bytes(value)).gap:
                    raise self._gap(view, meta, begin, place)

    def _first(self, view: Any) -> Position | None:
        with view.cursor(db=self.disk.blocks) as cursor:
            return Position.unpacked(bytes(cursor.key())) if cursor.first() else None

    def _gap_at(self, view: Any, place: Position) -> bool:
        data = view.get(place.packed, db=self.disk.configurations)
        return data is not None and decode_note(bytes(data)).gap

    def _gap(self, view: Any, meta: Meta, start: Position, place: Position) -> NotThere:
        return NotThere(
            f"the replica of node {meta.node} was away between {start} and {place}, with which it came back: "
            "what was delivered in between is not in its log. Read that range from a replica that was there; "
            f"from {place} on this one has everything."
        )
