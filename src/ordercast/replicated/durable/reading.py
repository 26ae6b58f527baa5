"""Reads what is on the disk of an object: all that was synced, or what of it is damaged. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ordercast.directory import Directory
from ordercast.errors import Damaged, StorageProblem
from ordercast.replicated.durable import frames
from ordercast.replicated.durable.frames import BadFrame, Owner, SnapshotFile, Told
from ordercast.replicated.durable.heads import START, Entry, Head

HEAD = "head"
LOG, SNAPSHOT, NEW = ".wal", ".state", ".new"


class ReadSegment(NamedTuple):
    """A segment that is kept: its number, the position of its last entry, its bytes."""

    number: int
    last: int
    bytes: int


class Held(NamedTuple):
    """What belongs into a file, at this place."""

    name: str
    at: int
    data: bytes


class Found(NamedTuple):
    """What of an object was found on disk."""

    head: Head | None = None
    """How far the history is there; None if there is nothing, or something is damaged."""
    entries: Sequence[Entry] = ()
    """What is behind the snapshot, in order; as far as it could be read, if something is damaged."""
    snapshot: SnapshotFile | None = None
    """The snapshot that counts, which was read as a whole; None if there is none, or it is damaged."""
    damage: str | None = None
    """What the disk has lost, in a sentence: not all that was synced is there."""
    synced: Head | None = None
    """How far the history was on disk at least, by what can be read of the head."""
    notices: tuple[str, ...] = ()
    """What was damaged without anything being lost."""
    fresh: bool = False
    """Whether the directory held no file of a replica."""
    head_whole: bool = True
    commit: int = 0
    segments: tuple[ReadSegment, ...] = ()
    last: int = 0
    length: int = 0
    checksum: int = 0
    """The last segment, how long it is, and the checksum of its last frame."""
    highest: int = 0
    """No file has a higher number."""
    promised: int = 0
    """The latest epoch that the node said it takes part in."""
    held: tuple[Held, ...] = ()
    """What is in the head alone, and belongs into segments."""

    def repaired(self) -> Found:
        """What was found, without its damage: the state was taken from another replica."""
        return self._replace(damage=None)


class _Loss(Exception):
    """Something that was synced is not there."""


def survey(directory: Directory, owner: Owner) -> Found:
    """Look at all files. Raises `StorageProblem` if they are not this owner's."""
    names = directory.names()
    numbers = [number for name in names if (number := frames.number_of(name)) is not None]
    highest = max(numbers, default=0)
    if HEAD not in names:
        if not numbers:
            return Found(fresh=True)
        return Found(damage=f"{directory}/{HEAD} is missing", highest=highest)
    read = frames.read_head(directory.read(HEAD, 0, frames.HEAD_SIZE + 1))
    told = read.told
    if told is None:
        return Found(damage=f"{directory}/{HEAD} is damaged", highest=highest)
    _check_owner(directory, owner, told)
    found = _Reading(directory, owner, told, read.held, names)
    try:
        if not read.certain:
            raise _Loss(f"{directory}/{HEAD} is damaged")
        found.read()
    except _Loss as loss:
        return Found(
            entries=found.entries,
            snapshot=found.snapshot,
            damage=f"{loss}; the history was on disk up to entry {told.head.position:,} at least",
            synced=told.head,
            commit=max(told.commit, found.commit),
            highest=highest,
            last=told.last,
            promised=told.promised,
        )
    notices = () if read.whole else (f"{directory}/{HEAD} was damaged in part, and is written anew",)
    return Found(
        head=found.head,
        entries=found.entries,
        snapshot=found.snapshot,
        synced=told.head,
        notices=notices,
        head_whole=read.whole,
        commit=max(told.commit, found.commit),
        segments=tuple(found.segments),
        last=found.last,
        length=found.length,
        checksum=found.checksum,
        highest=highest,
        promised=told.promised,
        held=tuple(found.held),
    )


def _check_owner(directory: Directory, owner: Owner, told: Told) -> None:
    if told.format != frames.FORMAT:
        raise StorageProblem(
            f"{directory} has format {told.format}, and this version of ordercast reads {frames.FORMAT}: use "
            "the version that wrote it, or empty the directory, and the state comes from the other replicas"
        )
    if told.owner != owner:
        raise StorageProblem(
            f"{directory} holds the object {told.owner.object} of node {told.owner.node}, and this is "
            f"{owner.object} of node {owner.node}: give each object of each node a directory of its own, and "
            "the node a data directory, so that it keeps its identifier"
        )


class _Reading:
    """Follows the files that the head names, from the snapshot to the last entry."""

    def __init__(
        self, directory: Directory, owner: Owner, told: Told, held: Sequence[Told], names: list[str]
    ) -> None:
        """`held`: what the head says of commits whose frames it has."""
        self._directory = directory
        self._owner = owner
        self._told = told
        self._names = set(names)
        self.head = START
        self.entries: list[Entry] = []
        self.snapshot: SnapshotFile | None = None
        self.segments: list[ReadSegment] = []
        self.held: list[Held] = []
        self._in_head = held
        self.commit = 0
        self.last = told.last
        self.length = told.length
        self.checksum = told.checksum

    def read(self) -> None:
        """All of it; raises `_Loss` where something is not as it was written."""
        told = self._told
        if told.snapshot is not None:
            try:
                for _ in read_snapshot(self._directory, self._owner, told.snapshot):
                    pass
            except Damaged as error:
                raise _Loss(str(error)) from None
            self.snapshot = told.snapshot
            self.head = told.snapshot.head
        chain: int | None = None
        for number in range(told.first, told.last + 1):
            chain = self._segment(number, chain)
        if told.first > told.last:
            chain = told.checksum
        if self.head.position < told.head.position:
            raise _Loss(f"entries {self.head.position + 1:,} to {told.head.position:,} are not in the log")
        assert chain is not None
        if frames.segment_name(told.last + 1) in self._names:
            self._unfinished(told.last + 1, chain)
        if self.commit > told.commit + 1 or frames.segment_name(told.last + 2) in self._names:
            raise _Loss(f"{self._directory}/{HEAD} is older than the other files")

    def _segment(self, number: int, before: int | None) -> int:
        """A segment that the head names; the checksum of its last frame."""
        told, name = self._told, frames.segment_name(number)
        size = self._directory.size(name) if name in self._names else None
        if size is None:
            raise _Loss(f"{self._directory}/{name} is missing")
        data = self._with_held(number, self._directory.read(name, 0, size))
        checksum, at, last = frames.beginning(self._owner, name), 0, self.head.position
        first, ends = True, number == told.last
        until = told.length if ends else None
        try:
            while at < len(data):
                body, following, end = frames.read_frame(data, at, checksum)
                if first:
                    self._open(name, body, before)
                    first = False
                else:
                    last = self._take(name, body)
                checksum, at = following, end
                if until is not None and at >= until:
                    if (at, checksum, self.head) != (until, told.checksum, told.head):
                        raise _Loss(f"{self._directory}/{name} is not the one that was written last")
                    until = None
        except BadFrame as error:
            if first or until is not None:
                raise _Loss(f"{self._directory}/{name} is damaged at byte {at:,} ({error})") from None
        if first or until is not None:
            raise _Loss(f"{self._directory}/{name} is cut off at byte {at:,}")
        if ends:
            self.length, self.checksum = at, checksum
        self.segments.append(ReadSegment(number, last, at))
        return checksum

    def _with_held(self, number: int, data: bytes) -> bytes:
        """A segment, with what the head has of it."""
        for told in self._in_head:
            at = told.length - len(told.frames)
            if told.last == number and data[at : told.length] != told.frames and at <= len(data):
                self.held.append(Held(frames.segment_name(number), at, told.frames))
                data = data[:at] + told.frames + data[told.length :]
        return data

    def _open(self, name: str, body: frames.Body, before: int | None) -> None:
        """A segment begins: it must go on where the one before it ended."""
        if not isinstance(body, frames.Opening):
            raise BadFrame("it does not begin as a segment does")
        if before is None:
            fits = body.head.position <= self.head.position
        else:
            fits = body.before == before
        if not fits:
            earlier = frames.segment_name((frames.number_of(name) or 0) - 1)
            raise _Loss(
                f"{self._directory}/{earlier} is damaged, cut off, or an older version of it: entries up to "
                f"{body.head.position:,}, where {name} goes on, are not all there"
            )
        self.commit = max(self.commit, body.commit)

    def _take(self, name: str, body: frames.Body) -> int:
        if not isinstance(body, frames.Entries) or len(body.heads) != len(body.data):
            raise BadFrame("there is no commit")
        for head, data in zip(body.heads, body.data, strict=True):
            if head.position > self.head.position:
                if head.position != self.head.position + 1:
                    raise _Loss(f"{self._directory}/{name} lacks entry {self.head.position + 1:,}")
                self.entries.append(Entry(head, data))
                self.head = head
        self.commit = max(self.commit, body.commit)
        return body.heads[-1].position if body.heads else self.head.position

    def _unfinished(self, number: int, before: int) -> None:
        """A segment that was begun by a commit that the head does not tell of yet."""
        name = frames.segment_name(number)
        data = self._directory.read(name, 0, self._directory.size(name) or 0)
        try:
            body, checksum, at = frames.read_frame(data, 0, frames.beginning(self._owner, name))
            commit, checksum, at = frames.read_frame(data, at, checksum)
        except BadFrame:
            return  # that commit was not written as a whole
        self._open(name, body, before)
        last = self._take(name, commit)
        if at < len(data):
            raise _Loss(f"{self._directory}/{HEAD} is older than the other files")
        self.last, self.length, self.checksum = number, at, checksum
        self.segments.append(ReadSegment(number, last, at))


def read_snapshot(directory: Directory, owner: Owner, file: SnapshotFile) -> Iterator[bytes]:
    """The slices of a snapshot. Raises `Damaged` where it is not as it was written, if need be at the end."""
    name = frames.snapshot_name(file.number)
    size = directory.size(name)
    if size is None:
        raise Damaged(f"{directory}/{name} is missing")
    if size != file.bytes:
        raise Damaged(f"{directory}/{name} has {size:,} bytes, and was written with {file.bytes:,}")
    checksum, at, slices = frames.beginning(owner, name), 0, 0
    try:
        while at < size:
            length = frames.frame_size(directory.read(name, at, frames.PREFIX_SIZE))
            body, checksum, end = frames.read_frame(directory.read(name, at, length), 0, checksum)
            if isinstance(body, frames.Slice):
                slices += 1
                yield body.data
            elif isinstance(body, frames.End) and body.slices != slices:
                raise BadFrame("slices are missing")
            at += end
    except BadFrame as error:
        raise Damaged(f"{directory}/{name} is damaged at byte {at:,} ({error})") from None
    if checksum != file.checksum:
        raise Damaged(f"{directory}/{name} is not the one that was written last")
