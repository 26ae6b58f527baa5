"""The files of one object on disk: a log of what was applied, snapshots of the state, and a head.

- ``000000000001.wal`` and so on: segments of the log, each with what some commits appended.
- ``000000000001.state``: a snapshot; there is one, or none.
- ``head``: how far all this is on disk, and which files it is. Written after them, and synced.
- ``*.new``: something half written; removed at the next start.

A large commit is written behind the last one and synced, and then the head says so and is synced. A small
one is in the head itself, which is synced, and is written behind the last one, too; the log is synced once
for several of them, before the head has other commits in their place. So what the head says is there, however
a process or a machine ends; if it is not, the disk has lost it, and `Found.damage` says what. What is found
behind the place that the head tells is of a commit that nobody was told of: it is kept if it is whole. A file
that another version of itself was put in the place of does not fit to the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ordercast.directory import Directory
from ordercast.errors import StorageProblem
from ordercast.replicated.durable import frames
from ordercast.replicated.durable.frames import Owner, SnapshotFile, Told
from ordercast.replicated.durable.heads import START, Entry, Head
from ordercast.replicated.durable.reading import (
    HEAD,
    LOG,
    NEW,
    SNAPSHOT,
    Found,
    ReadSegment,
    read_snapshot,
    survey,
)

SEGMENT_BYTES = 16 * 1024 * 1024
"""A segment that has so many is finished with."""
SYNC_BYTES = 16 * 1024 * 1024
"""A snapshot is synced whenever so much of it was written: a disk that gets gigabytes at once stalls
others."""


class ObjectFiles:
    """All files of one object, for the one process that writes them. Its calls wait for the disk."""

    def __init__(
        self, directory: Directory, object: str, node: int, *, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        """Read what is there. Raises `StorageProblem` if it is another object's, or the disk refuses."""
        self._directory = directory
        self._owner = Owner(object, node)
        self._segment_bytes = segment_bytes
        self._failed: str | None = None
        self.found: Found = survey(directory, self._owner)
        """What was there, and what is wrong with it."""
        self.head: Head = self.found.head or START
        """How far the history is on disk."""
        self._commit = self.found.commit
        self._snapshot: SnapshotFile | None = self.found.snapshot
        self._segments = list(self.found.segments)
        self._last = self.found.last
        self._length, self._checksum = self.found.length, self.found.checksum
        self._rotate = True
        self._held: int | None = None
        """The first commit that may be in the head alone."""
        self._snapshots = self.found.highest
        self._promised = self.found.promised
        if self.found.damage is None:
            self._begin_life()

    def _begin_life(self) -> None:
        """What was found is on disk when this returns: the life before this one may have written and not
        synced it. What nobody needs goes."""
        found = self.found
        for name, at, data in found.held:
            self._directory.write(name, at, data)
        for name in sorted(self._kept() & set(self._directory.names())):
            self._directory.sync(name)
        self._directory.sync_names()
        self._write_head(anew=found.fresh or not found.head_whole)
        self._remove_others()

    def _kept(self) -> set[str]:
        kept = {HEAD, *(frames.segment_name(segment.number) for segment in self._segments)}
        if self._snapshot is not None:
            kept.add(frames.snapshot_name(self._snapshot.number))
        return kept

    def close(self) -> None:
        """Let go of the directory."""
        self._failed = f"the storage in {self._directory} is closed"
        self._directory.close()

    @property
    def log_bytes(self) -> int:
        """Bytes of the segments that are kept."""
        return sum(segment.bytes for segment in self._segments)

    def _check(self, *, damaged_too: bool = False) -> None:
        if self._failed is not None:
            raise StorageProblem(self._failed)
        if self.found.damage is not None and not damaged_too:
            raise StorageProblem(
                f"{self.found.damage}: nothing is appended to it. Take the state from another replica"
            )

    # --- the log --------------------------------------------------------------------------------

    def commit(self, entries: Sequence[Entry]) -> None:
        """Append these, in order; all of them are on disk when this returns."""
        self._check()
        if not entries:
            return
        if entries[0].head.position != self.head.position + 1:
            raise ValueError(f"entry {entries[0].head.position} cannot follow {self.head.position}")
        number, parts = self._last, []
        at, checksum = self._length, self._checksum
        begins = self._rotate or self._length >= self._segment_bytes
        if begins:
            number, at = self._last + 1, 0
            opening = frames.Opening(frames.FORMAT, self._commit + 1, self.head, self._checksum)
            data, checksum = frames.frame(opening, frames.beginning(self._owner, frames.segment_name(number)))
            parts.append(data)
        body = frames.Entries(
            self._commit + 1, [entry.head for entry in entries], [entry.data for entry in entries]
        )
        data, checksum = frames.frame(body, checksum)
        parts.append(data)
        whole = b"".join(parts)
        name = frames.segment_name(number)
        in_head = not begins and len(whole) <= frames.MOST_IN_SLOT
        with _Failing(self):
            if begins:
                self._sync_held()
            if not in_head:
                self._directory.write(name, at, whole)
                self._directory.sync(name)
                self._held = None
            if begins:
                self._directory.sync_names()
            self.head = entries[-1].head
            self._last, self._length, self._checksum, self._rotate = number, at + len(whole), checksum, False
            if not begins:
                self._segments.pop()
            self._segments.append(ReadSegment(number, self.head.position, self._length))
            self._write_head(whole if in_head else b"")
            if in_head:
                self._directory.write(name, at, whole)

    def promise(self, epoch: int) -> None:
        """The node takes part in no earlier history any more: on disk when this returns, or together with the
        state that replaces what is damaged."""
        self._check(damaged_too=True)
        self._promised = max(self._promised, epoch)
        if self.found.damage is None:
            with _Failing(self):
                self._write_head()

    def _sync_held(self) -> None:
        """What may be in the head alone is on disk in the log when this returns."""
        if self._held is not None:
            self._directory.sync(frames.segment_name(self._last))
            self._held = None

    def _write_head(self, held: bytes = b"", *, anew: bool = False) -> None:
        """Say what is on disk; `held`: the end of the log, which need not be."""
        self._commit += 1
        if self._held is not None and (anew or self._held <= self._commit - frames.SLOTS):
            self._sync_held()
        if held and self._held is None:
            self._held = self._commit
        first = self._segments[0].number if self._segments else self._last + 1
        told = Told(
            frames.FORMAT,
            self._owner,
            self._commit,
            self.head,
            self._snapshot,
            first,
            self._last,
            self._length,
            self._checksum,
            self._promised,
            held,
        )
        slot = frames.slot_bytes(told)
        if anew:
            self._directory.write(HEAD + NEW, 0, slot * (2 * frames.SLOTS))
            self._directory.sync(HEAD + NEW)
            self._directory.rename(HEAD + NEW, HEAD)
            self._directory.sync_names()
            return
        for place in frames.slot_places(self._commit):
            self._directory.write(HEAD, place, slot)
        self._directory.sync(HEAD)

    def _remove_others(self) -> None:
        """Remove the files that the head does not name."""
        keep = self._kept()
        for name in self._directory.names():
            if name not in keep and name.endswith((LOG, SNAPSHOT, NEW)):
                self._directory.remove(name)

    # --- snapshots ------------------------------------------------------------------------------

    def new_snapshot(self, head: Head) -> SnapshotWriter:
        """Write the state as it is at this place, beside everything else: `adopt` makes it count.

        May be written in another thread than commits are.
        """
        self._check(damaged_too=True)
        self._snapshots += 1
        self._rotate = True  # so that the log up to about here can go
        return SnapshotWriter(self._directory, self._owner, self._snapshots, head)

    def adopt(self, written: SnapshotWriter) -> None:
        """The snapshot, which is of this history, counts from here on; the log behind it goes."""
        self._check()
        if written.head.position > self.head.position:
            raise ValueError("a snapshot of what is not on disk yet: append that first")
        kept = [segment for segment in self._segments if segment.last > written.head.position]
        self._switch(written, kept)

    def replace(self, written: SnapshotWriter) -> None:
        """The snapshot, of whatever history, counts from here on; everything else that is here goes."""
        self._check(damaged_too=True)
        self.head = written.head
        self._switch(written, [])
        self.found = self.found.repaired()

    def _switch(self, written: SnapshotWriter, kept: list[ReadSegment]) -> None:
        file = written.file
        name = frames.snapshot_name(file.number)
        with _Failing(self):
            self._sync_held()
            self._directory.rename(name + NEW, name)
            self._directory.sync_names()
            self._snapshot, self._segments = file, kept
            if not kept:
                self._last = max(self._last, self.found.highest)
                self._rotate, self._length, self._checksum = True, 0, 0
            self._write_head(anew=self.found.damage is not None)
            self._remove_others()

    def snapshot(self) -> Iterator[bytes]:
        """The slices of the snapshot that counts; none if there is none.

        Raises `Damaged`, if need be at the end: what it gave before is not to be used then.
        """
        if self._snapshot is not None:
            yield from read_snapshot(self._directory, self._owner, self._snapshot)

    def fail(self, problem: StorageProblem) -> None:
        """Nobody knows what is on disk: a second sync may succeed without having written anything."""
        self._failed = str(problem)


class _Failing:
    """What fails inside is the end of it."""

    def __init__(self, files: ObjectFiles) -> None:
        self._files = files

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StorageProblem):
            self._files.fail(error)


class SnapshotWriter:
    """A snapshot that is being written."""

    def __init__(self, directory: Directory, owner: Owner, number: int, head: Head) -> None:
        self.head = head
        self._directory = directory
        self._number = number
        self._name = frames.snapshot_name(number) + NEW
        self._at = self._slices = self._unsynced = 0
        self._checksum = frames.beginning(owner, frames.snapshot_name(number))
        self._finished = False
        directory.remove(self._name)
        self._add(frames.SnapshotOpening(frames.FORMAT, head))

    def write(self, data: bytes) -> None:
        """One more slice of the state."""
        self._slices += 1
        self._add(frames.Slice(data))
        if self._unsynced >= SYNC_BYTES:
            self._directory.sync(self._name)
            self._unsynced = 0

    def write_all(self, slices: Sequence[bytes]) -> None:
        """Write some more slices."""
        for data in slices:
            self.write(data)

    def finish(self) -> None:
        """That is the whole state; it is on disk when this returns."""
        self._add(frames.End(self._slices))
        self._directory.sync(self._name)
        self._finished = True

    def abandon(self) -> None:
        """The snapshot is not wanted."""
        self._directory.remove(self._name)

    @property
    def file(self) -> SnapshotFile:
        """What the head says of it."""
        assert self._finished, "a snapshot is finished before it is used"
        return SnapshotFile(self._number, self.head, self._at, self._checksum)

    def _add(self, body: frames.Body) -> None:
        data, self._checksum = frames.frame(body, self._checksum)
        self._directory.write(self._name, self._at, data)
        self._at += len(data)
        self._unsynced += len(data)
