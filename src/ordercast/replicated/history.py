"""The history of an object as it was delivered to one replica, and what of it was not carried out yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from zlib import crc32

from ordercast.process_groups.views import Process
from ordercast.replicated.durable import heads as durable
from ordercast.replicated.durable.heads import Head
from ordercast.replicated.notes import Entry, Mark, kept


class History:
    """A history up to where it was delivered here."""

    def __init__(self, base: Head) -> None:
        self.base = base
        """Where the log begins;"""
        self.head = base
        """where it ends."""
        self.log: deque[tuple[Head, Process, Entry | Mark, bytes]] = deque()
        """What was not carried out yet: the head with it, who sent it, and as it was sent."""
        self.bytes = 0
        """Of the log."""

    def append(self, sender: Process, note: Entry | Mark, payload: bytes) -> None:
        """Something was delivered."""
        if not isinstance(note, Mark):
            epoch, position, sum_before = self.head.epoch, self.head.position, self.head.checksum
            self.head = Head(epoch, position + 1, crc32(payload, sum_before))
        self.log.append((self.head, sender, note, payload))
        self.bytes += len(payload)

    def extend(self, entries: Iterable[tuple[Process, Entry | Mark, bytes]]) -> None:
        """These were delivered."""
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
        """It counts, in an epoch that begins behind that position."""
        self.head = Head(epoch, self.head.position, self.head.checksum)
        for at, (head, sender, note, payload) in enumerate(self.log):
            if head.position > after:
                self.log[at] = Head(epoch, head.position, head.checksum), sender, note, payload

    def restore(self, sender: Process, note: Entry, payload: bytes, head: Head) -> None:
        """Something that had been delivered, from the disk."""
        self.head = head
        self.log.append((head, sender, note, payload))
        self.bytes += len(payload)

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
