"""Reading a log that is on this machine: what it holds, ranges of it, and why it does not hold something.

Nothing is locked: the log grows, is merged, trimmed and mended while it is read. Each step looks at the head
first, and finds its place anew, by position. Every block is checked against its checksum when it is read;
one that does not fit is looked for once more, since its file may have been replaced meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import pyarrow as pa

from ordercast.core.identity import GROUPS_BETWEEN
from ordercast.errors import Damaged, LogError, NotThere, NotYet, SplitAway, Trimmed, Unreachable
from ordercast.log.blocks import MESSAGE, Head, Messages, batch_of
from ordercast.log.disk import OLD_FILE, Found, Missing, follow, joined, spelled, survey
from ordercast.log.position import Position
from ordercast.log.segment import BadBlock, Block, Meta, read_block
from ordercast.log.selection import ALL, Selection
from ordercast.log.snapshot import Snapshot

T = TypeVar("T")

MOST_BYTES = 2**62
"""As good as no bound."""
MOST_GROUPS = 10_000
"""Names of groups that are told, at most."""


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
    """From here to the head nothing is missing: the oldest, or where the node last came back to its group, or
    the end of what is known to be damaged."""


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
        self._guard = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._closed = False
        self.damage_met = 0
        """How often something that was asked for was damaged."""
        with self._guard:
            self._look(anew=True)

    def close(self) -> None:
        """Close all files."""
        self._closed = True

    # --- looking at the files -------------------------------------------------------------------

    def _look(self, anew: bool = False) -> Snapshot:
        """The log as it is now."""
        before = self._snapshot
        try:
            found = survey(self.path) if anew or before is None else follow(before.found)
        except (FileNotFoundError, NotADirectoryError):
            raise self._no_log() from None
        except OSError as error:
            raise Unreachable(
                f"the log in {self.path} cannot be opened ({error.strerror or error}): ask as the user whose "
                "node writes it, or ask the node over TCP"
            ) from error
        if found.meta is None and not found.segments:
            raise self._damaged_whole(found) if found.problems else self._no_log()
        if before is None or found is not before.found:
            self._snapshot = before = Snapshot(found)
        return before

    def _no_log(self) -> LogError:
        if (self.path / OLD_FILE).is_file():
            return Unreachable(
                f"{self.path} holds a log of an earlier version of ordercast: read it with the version that "
                "wrote it"
            )
        return Unreachable(
            f"there is no ordered log in {self.path}: name the directory that a node has for log, or the "
            "address of its log service"
        )

    def _damaged_whole(self, found: Found) -> Damaged:
        return Damaged(
            f"nothing of the log in {self.path} can be read ({'; '.join(found.problems)}): read it from "
            "another replica; the node begins a new log there when it is started"
        )

    def _asked(self, question: Callable[[Snapshot], T]) -> T:
        """The answer by the log as it is now; where it seems damaged, by all files looked at anew."""
        if self._closed:
            raise Unreachable(f"this view of the log in {self.path} was closed: open it again")
        with self._guard:
            snapshot = self._look()
        try:
            return question(snapshot)
        except Damaged:
            with self._guard:
                self.damage_met += 1
                snapshot = self._look(anew=True)
            return question(snapshot)

    def _data(self, snapshot: Snapshot, block: Block) -> bytes:
        """What a block holds, as it was written."""
        try:
            return read_block(self.path, block.segment in snapshot.finished, block)
        except BadBlock as error:
            why = str(error)
        except FileNotFoundError:
            trimmed = self._trimmed_since(block)
            if trimmed is not None:
                raise trimmed from None
            why = "its file is missing"
        except OSError as error:
            why = error.strerror or str(error)
        raise self._damaged(snapshot.meta, Missing(block.before, block.last), why)

    def _trimmed_since(self, block: Block) -> Trimmed | None:
        with self._guard:
            meta = self._look(anew=True).meta
        if meta.trimmed is not None and block.last <= meta.trimmed:
            return self._trimmed(meta, block.first)
        return None

    # --- what is there --------------------------------------------------------------------------

    def bounds(self) -> Bounds:
        """What the log holds now."""
        return self._asked(self._bounds)

    def _bounds(self, snapshot: Snapshot) -> Bounds:
        meta, oldest = snapshot.meta, snapshot.oldest
        since = oldest
        gap = next((change.first for change in reversed(snapshot.changes) if change.gap), None)
        for begin in (gap, snapshot.missing[-1].last if snapshot.missing else None):
            if begin is not None and (since is None or begin > since):
                since = begin
        return Bounds(oldest, meta.head, meta.node, meta.entries, meta.bytes, since)

    def heads(self) -> list[Head]:
        """What its blocks tell of themselves, in order: those behind the last damage that is known."""
        return self._asked(lambda snapshot: snapshot.heads)

    def problems(self) -> tuple[list[str], list[Missing]]:
        """What is wrong with files, and entries that are not there because of it, without reading blocks."""
        with self._guard:
            snapshot = self._look(anew=True)
        return list(snapshot.found.problems), list(snapshot.missing)

    def check(self) -> list[Missing]:
        """Read everything: entries that are damaged, or not there though they were."""
        with self._guard:
            snapshot = self._look(anew=True)
        bad = list(snapshot.missing)
        for block in snapshot.blocks:
            try:
                self._data(snapshot, block)
            except Damaged:
                bad.append(Missing(block.before, block.last))
            except Trimmed:
                continue
        return joined(bad)

    # --- ranges ---------------------------------------------------------------------------------

    def after(
        self, start: Position | None, rows: int, selected: Selection = ALL, most_bytes: int = MOST_BYTES
    ) -> Position | None:
        """Where a range of about so many selected entries after `start` ends; None if there is nothing new.

        They have `most_bytes` at most, or there is one. It ends at the head, and before anything that the
        node may have missed, or that is damaged.
        """
        return self._asked(lambda snapshot: self._after(snapshot, start, rows, selected, most_bytes))

    def _after(
        self, snapshot: Snapshot, start: Position | None, rows: int, selected: Selection, most_bytes: int
    ) -> Position | None:
        if start is not None:
            self._check_held(snapshot, start)
        hole = snapshot.hole_after(start)
        end, found, size = start, 0, 0
        for block in snapshot.blocks[snapshot.place(start) :]:
            head = block.head
            if start is not None and head.last <= start:
                continue
            if hole is not None and head.first > hole.last:
                break
            if block.gap and end is not None:
                if end == start and start is not None:
                    raise self._gap(snapshot.meta, start, head.first)
                break
            begin = 0
            if start is not None and head.first <= start:
                begin = self._rows_up_to(snapshot, block, start)
            more, larger = self._measure(snapshot, block, begin, head.rows, selected)
            if found + more > rows or size + larger > most_bytes:
                if found and (2 * found >= rows or 2 * size >= most_bytes):
                    return end
                if head.kind != MESSAGE:
                    return head.last
                messages = Messages.decoded(self._data(snapshot, block))
                cut = messages.cut(begin, selected, max(1, rows - found), most_bytes - size)
                return messages.position(cut - 1)
            found += more
            size += larger
            end = head.last
        if end != start:
            return end
        if hole is not None:
            raise self._damaged(snapshot.meta, hole)
        if snapshot.found.slot is None:
            raise Damaged(
                f"the head of the log in {self.path} is damaged or missing, so that nobody can tell whether "
                f"anything follows {end or 'nothing'}: read on from another replica; the head is written "
                "anew when the node is started, or goes on"
            )
        return None

    def _measure(
        self, snapshot: Snapshot, block: Block, begin: int, end: int, selected: Selection
    ) -> tuple[int, int]:
        """How many of some rows of a block are selected, and their bytes."""
        head = block.head
        if head.kind != MESSAGE:
            return (end - begin if selected.changes else 0), 0
        wanted = sum(map(selected.wants, head.groups))
        if not wanted:
            return 0, 0
        if begin == 0 and end == head.rows and wanted == len(head.groups):
            return head.rows, head.sizes[-1]
        return Messages.decoded(self._data(snapshot, block)).measure(begin, end, selected)

    def count(self, start: Position | None, end: Position, selected: Selection = ALL) -> tuple[int, int]:
        """How many selected entries there are after `start` up to `end`, and their bytes."""
        return self._asked(lambda snapshot: self._count(snapshot, start, end, selected))

    def _count(
        self, snapshot: Snapshot, start: Position | None, end: Position, selected: Selection
    ) -> tuple[int, int]:
        rows = size = 0
        for block in snapshot.blocks[snapshot.place(start) :]:
            if block.first > end:
                break
            begin = 0
            if start is not None and start >= block.first:
                begin = self._rows_up_to(snapshot, block, start)
            more, larger = self._measure(
                snapshot, block, begin, self._rows_up_to(snapshot, block, end), selected
            )
            rows, size = rows + more, size + larger
        return rows, size

    def groups(self) -> list[str]:
        """The groups that it has messages of, in order of their names; the first `MOST_GROUPS` of them."""
        snapshot = self._asked(lambda snapshot: snapshot)
        texts = {names for block in snapshot.blocks for names in block.head.groups}
        return sorted({name for names in texts for name in names.split(GROUPS_BETWEEN)})[:MOST_GROUPS]

    def sent_at(self, time_us: int) -> Position | None:
        """The first message that was sent then or later; None if none was."""
        return self._asked(lambda snapshot: self._sent_at(snapshot, time_us))

    def _sent_at(self, snapshot: Snapshot, time_us: int) -> Position | None:
        for block in snapshot.blocks:
            if block.head.kind == MESSAGE and block.head.sent_us[1] >= time_us:
                messages = Messages.decoded(self._data(snapshot, block))
                return messages.position(messages.first_sent_at(time_us))
        return None

    def before(self, end: Position, rows: int) -> Position | None:
        """The entry behind which the last `rows` entries up to `end` begin; None: with the oldest."""
        return self._asked(lambda snapshot: self._before(snapshot, end, rows))

    def _before(self, snapshot: Snapshot, end: Position, rows: int) -> Position | None:
        self._check_held(snapshot, end)
        blocks = snapshot.blocks
        at = snapshot.place(end)
        while blocks and at >= 0:
            block = blocks[at]
            head = block.head
            held = self._rows_up_to(snapshot, block, end) if head.last > end else head.rows
            if held > rows:
                data = self._data(snapshot, block)
                return Messages.decoded(data).position(held - rows - 1)
            if held == rows and at:
                return blocks[at - 1].last
            rows -= held
            at -= 1
        return None

    def pieces(self, start: Position | None, end: Position, selected: Selection = ALL) -> Iterator[Piece]:
        """The entries after `start` up to and with `end`, as they are stored; what is wrong is said now."""
        self._asked(lambda snapshot: self._check_range(snapshot, start, end))
        return self._pieces(start, end, selected)

    def _check_range(self, snapshot: Snapshot, start: Position | None, end: Position) -> None:
        if start is not None:
            self._check_held(snapshot, start)
        self._check_held(snapshot, end)
        if start is None or end > start:
            self._check_gaps(snapshot, start, end)
            hole = snapshot.hole_after(start, end)
            if hole is not None:
                raise self._damaged(snapshot.meta, hole)

    def _pieces(self, start: Position | None, end: Position, selected: Selection) -> Iterator[Piece]:
        at = start
        while at is None or at < end:
            piece = self._next_piece(at, end, selected)
            if piece is None:
                return
            at = piece.last
            if piece.end > piece.begin:
                yield piece

    def _next_piece(self, at: Position | None, end: Position, selected: Selection) -> Piece | None:
        """What comes next; blocks without an entry that is selected are skipped."""
        return self._asked(lambda snapshot: self._piece(snapshot, at, end, selected))

    def _piece(
        self, snapshot: Snapshot, at: Position | None, end: Position, selected: Selection
    ) -> Piece | None:
        meta = snapshot.meta
        if at is not None and meta.trimmed is not None and at < meta.trimmed:
            raise self._trimmed(meta, at)
        hole = snapshot.hole_after(at, end)
        if hole is not None:
            raise self._damaged(meta, hole)
        for number in range(snapshot.place(at), len(snapshot.blocks)):
            block = snapshot.blocks[number]
            head = block.head
            if at is not None and head.last <= at:
                continue
            if head.first > end:
                return None
            if not _may_have(head, selected):
                at = head.last
                continue
            data = self._data(snapshot, block)
            begin = Messages.decoded(data).rows_up_to(at) if at is not None and head.first <= at else 0
            stop = head.rows if head.last <= end else Messages.decoded(data).rows_up_to(end)
            return Piece(data, begin, stop, min(head.last, end))
        return None

    def read(
        self, start: Position | None, end: Position, selected: Selection = ALL, *, heads: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a range as Arrow has them."""
        return (
            batch
            for block, begin, stop, _ in self.pieces(start, end, selected)
            if (batch := batch_of(block, begin, stop, selected, heads=heads)).num_rows
        )

    # --- finding --------------------------------------------------------------------------------

    def _rows_up_to(self, snapshot: Snapshot, block: Block, place: Position) -> int:
        """How many rows of a block stand at a position or before."""
        if place >= block.last:
            return block.head.rows
        return Messages.decoded(self._data(snapshot, block)).rows_up_to(place)

    def _holds(self, snapshot: Snapshot, place: Position) -> bool:
        """Whether there is an entry at just that position."""
        if not snapshot.blocks:
            return False
        block = snapshot.blocks[snapshot.place(place)]
        if place in (block.first, block.last):
            return True
        if not block.first < place < block.last:
            return False
        messages = Messages.decoded(self._data(snapshot, block))
        return messages.position(messages.rows_up_to(place) - 1) == place

    # --- what is wrong --------------------------------------------------------------------------

    def _check_held(self, snapshot: Snapshot, place: Position) -> None:
        """Raise the reason why a position is not one of this log, if it is not."""
        meta = snapshot.meta
        if place in (meta.head, meta.trimmed) or self._holds(snapshot, place):
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
        for hole in snapshot.missing:
            if place == hole.last:
                return  # it was here, and what follows is
            if place < hole.last and (hole.after is None or place > hole.after):
                raise self._damaged(meta, hole)
        raise self._elsewhere(snapshot, who, place)

    def _trimmed(self, meta: Meta, place: Position) -> Trimmed:
        assert meta.trimmed is not None
        return Trimmed(
            f"what comes after {place} is no longer kept by the replica of node {meta.node}, which let go of "
            f"everything up to {meta.trimmed}: ask one that keeps more, or begin at a later "
            "position; log_bytes and log_age say how much a node keeps"
        )

    def _damaged(self, meta: Meta, hole: Missing, why: str = "a file is cut, changed or missing") -> Damaged:
        return Damaged(
            f"the log of node {meta.node} in {self.path} is damaged {spelled(hole)} ({why}). Read that from "
            "another replica. The node repairs it from the others while it runs; or stop it, and repair it "
            f"with `ordercast log {self.path} --repair HOST:PORT`."
        )

    def _elsewhere(self, snapshot: Snapshot, who: str, place: Position) -> LogError:
        """Why an entry is not here although later ones are: the node was away, or its history split off."""
        here, before, after = snapshot.around(place.configuration)
        if after is None and here is not None:
            return SplitAway(
                f"{who} was in configuration {place.configuration}, but has no entry {place} in it: that is "
                "no position of its history. Begin at one that `ordercast log` shows."
            )
        if after is None or (before is None and here is None):
            begin = after.first if after is not None else place
            return NotThere(
                f"{who} has a log that begins with {begin}, and {place} is before that: it was not there "
                "then. Ask one that was."
            )
        since = after.first
        back = snapshot.came_back(after) if here is None or after.gap else None
        if back is not None:
            alone = "" if back is after else f", alone, and delivered nothing before {since}"
            came = "began" if back.before is None else "came back"
            return NotThere(
                f"{who} was not there when {place} was delivered: it {came} with {back.first}{alone}. "
                "Ask a replica that was there all the time."
            )
        came = f"configuration {before.first.configuration}" if before else "somewhere else"
        split = f"it went from {came} to {since.configuration}"
        if here is not None:
            split = f"it had left configuration {place.configuration} for {since.configuration}"
        return SplitAway(
            f"the history of {who} split away from the one that was read: {place} was delivered elsewhere, "
            f"while {split}, with the members {', '.join(map(str, after.head.members))}. Go on with a "
            "replica of the other side; entries of the two are not to be mixed."
        )

    def _check_gaps(self, snapshot: Snapshot, start: Position | None, end: Position) -> None:
        """A range does not cross a time in which the node was away."""
        begin = start or snapshot.oldest
        for change in snapshot.changes:
            if begin is not None and begin < change.first <= end and change.gap:
                raise self._gap(snapshot.meta, begin, change.first)

    def _gap(self, meta: Meta, start: Position, place: Position) -> NotThere:
        return NotThere(
            f"the replica of node {meta.node} was away between {start} and {place}, with which it came back: "
            "what was delivered in between is not in its log. Read that range from a replica that was there; "
            f"from {place} on this one has everything."
        )


def _may_have(head: Head, selected: Selection) -> bool:
    """Whether something in a block may be selected."""
    first, last = selected.configurations
    if not first <= head.first.config_seq <= last:
        return False
    if head.kind != MESSAGE:
        return selected.changes
    return selected.wants_time(head.sent_us) and any(map(selected.wants, head.groups))
