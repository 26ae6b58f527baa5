"""The files of a log, and what they hold together: segments, and a head that says how far they are committed.

A log is a directory with

- ``writer``: held by the process whose node writes the log, for as long as it does;
- ``000000000001.log`` and so on: finished segments, and one ``.tail``, which grows (`ordercast.log.segment`);
- ``head``: two slots, written in turn after each commit; what is in them is on disk before it is told.

No file is needed to make sense of the others. Each segment says what the one before it held, and the head
what the last one holds: so a file that is missing, cut, changed, or put back as it once was is noticed. A
head that is damaged or old is made up for by the frames that are there, since each says what it knew.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from ordercast.core.slots import SLOT_SIZE, record_in, slot_of
from ordercast.core.wire import UNREADABLE
from ordercast.errors import LogError
from ordercast.log import segment as segments
from ordercast.log.position import Position
from ordercast.log.segment import (
    FORMAT,
    GROWING,
    Meta,
    Segment,
    Summary,
    finished_path,
    growing_path,
    segment_of,
)

HEAD = "head"
WRITER = "writer"
OLD_FILE = "data.mdb"
"""What a log of format 1 consisted of."""
_SLOT_MAGIC = b"OCH2"
UNKNOWN = -1
"""Entries of a segment of which nothing is known but where it begins and ends."""


class Slot(msgspec.Struct, array_like=True):
    """What the head says."""

    meta: Meta
    summary: Summary
    """The summary of the segment that is being written."""
    length: int
    """Up to where its file is committed."""


class Missing(NamedTuple):
    """Entries that are not there, though they were: after one entry, up to another."""

    after: Position | None
    last: Position


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Slot).decode


def slot_bytes(slot: Slot) -> bytes:
    """A slot as it is written."""
    return slot_of(_SLOT_MAGIC, _encode(slot))


def slot_place(commit: int) -> int:
    """Where in the head the slot of a commit is."""
    return commit % 2 * SLOT_SIZE


def read_head(directory: Path) -> tuple[Slot | None, str | None]:
    """The latest slot that can be read, and what is wrong with the head. `OSError` if it cannot be opened."""
    try:
        with (directory / HEAD).open("rb", buffering=0) as file:
            data = os.pread(file.fileno(), 2 * SLOT_SIZE + 1, 0)
    except FileNotFoundError:
        return None, "is missing"
    slots = [_slot(data[at : at + SLOT_SIZE]) for at in (0, SLOT_SIZE)]
    found = [slot for slot in slots if slot is not None]
    best = max(found, key=lambda slot: slot.meta.commit, default=None)
    if best is not None and best.meta.format != FORMAT:
        raise LogError(
            f"the log in {directory} has format {best.meta.format}, and this version of ordercast reads "
            f"{FORMAT}: use the version that wrote it"
        )
    whole = best is not None and len(data) == 2 * SLOT_SIZE and (len(found) == 2 or _is_first(best, data))
    return best, None if whole else "is damaged"


def _is_first(slot: Slot, data: bytes) -> bool:
    """Whether there was one commit only, so that the other slot is still empty."""
    return slot.meta.commit <= 1 and not any(data[slot_place(slot.meta.commit + 1) :][:SLOT_SIZE])


def _slot(data: bytes) -> Slot | None:
    record = record_in(_SLOT_MAGIC, data)
    if record is None:
        return None
    try:
        return _decode(record)
    except UNREADABLE:
        return None


class Found:
    """What the files of a log hold together."""

    def __init__(self, directory: Path, mine: bool = False) -> None:
        self.directory = directory
        self.mine = mine
        """Whether the reader holds the log's lock, so that nobody else writes it."""
        self.slot: Slot | None = None
        self.meta: Meta | None = None
        """None if nothing was ever committed."""
        self.segments: list[Segment] = []
        """The segments in order; those of which nothing can be read are there, too, without blocks."""
        self.problems: list[str] = []
        """What is wrong with files, in words: what is missing because of it, `missing` says."""

    def missing(self) -> list[Missing]:
        """Entries that are not there, though they were, and retention has not taken them away."""
        trimmed = self.meta.trimmed if self.meta is not None else None
        found = []
        at: Position | None = None
        for number, segment in enumerate(self.segments):
            if number and segment.summary is not None and segment.summary.before not in (at, None):
                assert segment.summary.before is not None
                found.append(Missing(at, segment.summary.before))
            found += [Missing(*hole) for hole in segment.missing()]
            if segment.summary is not None:
                at = segment.summary.last
        return [hole for hole in found if trimmed is None or hole.last > trimmed]


def survey(directory: Path, known: Found | None = None, mine: bool = False) -> Found:
    """Look at all files of a log; what is `known` of finished segments is not read again.

    `mine`: this process has the writer's lock, so that all frames that are there are of earlier lives.

    Raises `LogError` for a log of another format, and `OSError` where a file cannot be opened.
    """
    found = Found(directory, mine)
    found.slot, wrong = read_head(directory)
    there = _segments_there(directory)
    if found.slot is None and not there:
        if wrong != "is missing":
            found.problems.append(f"{directory / HEAD} {wrong}, and there are no segments")
        return found
    if wrong:
        found.problems.append(f"{directory / HEAD} {wrong}")
    first = found.slot.meta.oldest if found.slot is not None else min(there)
    last = found.slot.summary.id if found.slot is not None else 0
    before = {segment.id: segment for segment in known.segments if _is_whole(segment)} if known else {}
    loaded = {id: before.get(id) or _load(found, id) for id in sorted(there) if id >= first}
    last = max([last, *(id for id, segment in loaded.items() if segment.path is not None)])
    found.segments = [loaded.get(id) or _absent(found, id) for id in range(first, last + 1)]
    _tell_summaries(found)
    _tell_meta(found)
    return found


def _is_whole(segment: Segment) -> bool:
    return segment.finished and segment.damage is None and not segment.missing()


def _segments_there(directory: Path) -> set[int]:
    return {id for name in os.listdir(directory) if (id := segment_of(name)) is not None}


def _absent(found: Found, id: int) -> Segment:
    segment = Segment(id)
    segment.damage = "it is missing"
    found.problems.append(f"{finished_path(found.directory, id)} is missing")
    return segment


def _load(found: Found, id: int) -> Segment:
    """The segment of this number, from the best file that there is of it."""
    candidates = []
    for path in (finished_path(found.directory, id), growing_path(found.directory, id)):
        try:
            candidates.append((path, segments.load(path, id, _limit(found, path, id))))
        except FileNotFoundError:
            continue
    if not candidates:
        return _absent(found, id)  # it went meanwhile
    path, best = max(candidates, key=lambda one: _how_good(one[1]))
    slot = found.slot
    if best.damage is not None and not (slot is not None and id == slot.summary.id and _torn(best, slot)):
        found.problems.append(f"{path} is damaged ({best.damage})")
    return best


def _how_good(segment: Segment) -> tuple[int, int, bool]:
    entries = segment.summary.entries if segment.summary is not None else -1
    return entries, sum(block.head.rows for block in segment.blocks), segment.damage is None


def _torn(segment: Segment, slot: Slot) -> bool:
    """All that was committed is there: what follows was being written when its process ended."""
    return segment.end >= slot.length


def _limit(found: Found, path: Path, id: int) -> int | None:
    """Up to where a file may be read: what another process is writing and has not committed is left out."""
    slot = found.slot
    if slot is None or path.suffix != GROWING or id < slot.summary.id:
        return None
    committed = slot.length if id == slot.summary.id else 0
    if path.stat().st_size == committed:
        return committed
    return None if found.mine or not _is_written(found.directory) else committed


def _is_written(directory: Path) -> bool:
    """Whether a process has the log open for writing."""
    try:
        with (directory / WRITER).open("rb", buffering=0) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _tell_summaries(found: Found) -> None:
    """What each segment held: by itself, by the one after it, or by the head; who knows of most is right."""
    for number, segment in enumerate(found.segments):
        told = [segment.summary]
        if number + 1 < len(found.segments):
            opening = found.segments[number + 1].opening
            told.append(opening.previous if opening is not None else None)
        if found.slot is not None and found.slot.summary.id == segment.id:
            told.append(found.slot.summary)
        known = [summary for summary in told if summary is not None and summary.id == segment.id]
        segment.summary = max(known, key=lambda summary: summary.entries, default=None)
    for number, segment in enumerate(found.segments[:-1]):
        following = found.segments[number + 1].summary
        if segment.summary is None and following is not None:
            before = found.segments[number - 1].summary if number else None
            begin = before.last if before is not None else None
            segment.summary = Summary(segment.id, begin, following.before, UNKNOWN)


def _tell_meta(found: Found) -> None:
    metas = [segment.meta for segment in found.segments if segment.meta is not None]
    if found.slot is not None:
        metas.append(found.slot.meta)
    best = max(metas, key=lambda meta: meta.commit, default=None)
    nodes = {meta.node for meta in metas}
    if len(nodes) > 1:
        raise LogError(
            f"the log in {found.directory} has files of the nodes {', '.join(map(str, sorted(nodes)))}: "
            "put back those of one node, or give the node an empty log directory"
        )
    found.meta = best


def follow(found: Found) -> Found:
    """The same log now: what was committed since `found` is read on, where that is enough."""
    slot, wrong = read_head(found.directory)
    before = found.slot
    if slot is None or wrong or before is None or not found.segments:
        return survey(found.directory, found)
    if slot.meta.commit == before.meta.commit and slot.length == before.length:
        return found
    tail = found.segments[-1]
    if slot.summary.id != tail.id or slot.length < tail.end or tail.damage is not None or tail.path is None:
        return survey(found.directory, found)
    further = tail.copy()
    try:
        with growing_path(found.directory, tail.id).open("rb", buffering=0) as file:
            segments.scan(file.fileno(), further, slot.length)
    except FileNotFoundError:
        return survey(found.directory, found)
    if further.damage is not None or further.end != slot.length:
        return survey(found.directory, found)
    made = Found(found.directory)
    made.slot = slot
    made.segments = [one for one in found.segments[:-1] if one.id >= slot.meta.oldest] + [further]
    made.meta = slot.meta
    made.problems = found.problems
    return made


def spelled(hole: Missing) -> str:
    """A range of positions in words."""
    return f"up to {hole.last}" if hole.after is None else f"after {hole.after}, up to {hole.last}"


def joined(holes: list[Missing]) -> list[Missing]:
    """The same ranges, in order, those that touch as one."""
    made: list[Missing] = []
    for hole in sorted(holes, key=lambda hole: hole.last):
        if made and hole.after is not None and hole.after <= made[-1].last:
            made[-1] = Missing(made[-1].after, max(made[-1].last, hole.last))
        else:
            made.append(hole)
    return made
