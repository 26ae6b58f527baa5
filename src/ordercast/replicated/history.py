"""The history of an object as it was delivered to one replica, and what of it was not carried out yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple
from zlib import crc32

from ordercast.process_groups.views import Process
from ordercast.replicated.durable import heads as durable
from ordercast.replicated.durable.heads import START, Head
from ordercast.replicated.notes import MOST_PASSED, Entry, Mark, kept, read_entry

RECENT_BYTES = 16 * 1024 * 1024
"""Bytes of what was carried out last that are kept for replicas that lack only that."""
OVERHEAD = 256
"""Bytes that an entry takes beside its payload."""


class Tail(NamedTuple):
    """A piece of the history."""

    base: Head
    """The place of the history that the first entry follows."""
    entries: Sequence[tuple[Head, Process, bytes]]

    @property
    def head(self) -> Head:
        """Where the piece of the history ends."""
        return self.entries[-1][0] if self.entries else self.base


class Recent:
    """What was carried out last, of one history."""

    def __init__(self, base: Head, most_bytes: int = RECENT_BYTES) -> None:
        """`base`: from there on."""
        self._base = base
        self._most_bytes = most_bytes
        self._entries: deque[tuple[Head, Process, bytes]] = deque()
        self._bytes = 0

    def add(self, head: Head, sender: Process, payload: bytes) -> None:
        """Remember an entry that was carried out."""
        self._entries.append((head, sender, payload))
        self._bytes += len(payload) + OVERHEAD
        while self._bytes > self._most_bytes:
            self._base, _, gone = self._entries.popleft()
            self._bytes -= len(gone) + OVERHEAD

    def after_one(self, heads: Sequence[Head]) -> Tail | None:
        """What follows one of these places; None if it is not known."""
        return next((tail for head in heads if (tail := self.after(head)) is not None), None)

    def after(self, head: Head) -> Tail | None:
        """What follows a place; None if that is too long ago, or of another history."""
        count = head.position - self._base.position
        if not 0 <= count <= len(self._entries):
            return None
        there = self._entries[count - 1][0] if count else self._base
        if there.checksum != head.checksum:
            return None
        return Tail(head, list(islice(self._entries, count, None)))


class History:
    """A history up to where it was delivered here."""

    def __init__(self, base: Head, passed: Iterable[int] = (START.epoch,)) -> None:
        self.passed = deque(passed, MOST_PASSED)
        """The epochs that it has passed through, the latest last."""
        self.base = base
        """Where the log begins;"""
        self.head = base
        """where it ends."""
        self.log: deque[tuple[Head, Process, Entry | Mark, bytes]] = deque()
        """What was not carried out yet: the head with it, who sent it, and as it was sent."""
        self.bytes = 0
        """Bytes of the entries in the log."""

    def append(self, sender: Process, note: Entry | Mark, payload: bytes) -> None:
        """Something was delivered."""
        if not isinstance(note, Mark):
            epoch, position, sum_before = self.head.epoch, self.head.position, self.head.checksum
            self.head = Head(epoch, position + 1, crc32(payload, sum_before))
        self.log.append((self.head, sender, note, payload))
        self.bytes += len(payload)

    def extend(self, entries: Iterable[tuple[Process, Entry | Mark, bytes]]) -> None:
        """Append entries that were delivered."""
        for sender, note, payload in entries:
            self.append(sender, note, payload)

    def has(self, head: Head) -> bool | None:
        """Whether it passes through that place; None if it does not reach so far yet."""
        if head.position > self.head.position:
            return None
        if head.position == self.base.position:
            return head.checksum == self.base.checksum
        return any(
            each.position == head.position and each.checksum == head.checksum for each, _, _, _ in self.log
        )

    def begin_at(self, head: Head) -> None:
        """A state that includes everything up to there has come; marks are kept, since somebody waits for
        them."""
        kept = [each for each in self.log if each[0].position > head.position or isinstance(each[2], Mark)]
        self.base, self.log, self.bytes = head, deque(kept), sum(len(each[3]) for each in kept)

    def enter(self, epoch: int, after: int) -> None:
        """Go on in an epoch that begins behind position `after`: this history is the one that counts."""
        if not self.passed or self.passed[-1] != epoch:
            self.passed.append(epoch)
        self.head = Head(epoch, self.head.position, self.head.checksum)
        for at, (head, sender, note, payload) in enumerate(self.log):
            if head.position > after:
                self.log[at] = Head(epoch, head.position, head.checksum), sender, note, payload

    def restore(self, sender: Process, note: Entry, payload: bytes, head: Head) -> None:
        """Something that had been delivered, from the disk."""
        self.head = head
        self.log.append((head, sender, note, payload))
        self.bytes += len(payload)

    def followed_by(self, tail: Tail, applied: Head, wanted: History) -> History | None:
        """What is to be carried out from `applied` on, up to where `wanted` is: a tail that begins there, or
        where this history ends, and what was delivered since. None if the tail begins elsewhere."""
        followed = History(applied, wanted.passed)
        if _same(tail.base, self.head):
            for head, sender, note, payload in self.log:
                if not isinstance(note, Mark):
                    followed.restore(sender, note, payload, head)
        elif not _same(tail.base, applied):
            return None
        for head, sender, payload in tail.entries:
            followed.restore(sender, read_entry(payload), payload, head)
        for each in wanted.log:
            if each[0].position > tail.head.position or isinstance(each[2], Mark):
                followed.log.append(each)
                followed.bytes += len(each[3])
        followed.head = wanted.head
        return followed

    def entries(self, after: int, until: int | None) -> list[durable.Entry]:
        """What of the log is behind one position, and not behind the other, as it is kept on disk."""
        found: list[durable.Entry] = []
        for head, sender, note, payload in reversed(self.log):
            if head.position <= after:
                break
            if (until is None or head.position <= until) and not isinstance(note, Mark):
                found.append(durable.Entry(head, kept(sender, payload)))
        found.reverse()
        return found


def _same(one: Head, other: Head) -> bool:
    return (one.position, one.checksum) == (other.position, other.checksum)
