"""A key-value bucket: a replicated object that keeps the last values of each key.

It is not built on `ordercast.Map`, since NATS clients see more of a bucket than keys with their values:
earlier values of a key (``history``), markers of what was deleted, which those that watch need and
compare-and-set goes by, and numbers under which values can be read again.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from ordercast.clients.buckets.settings import Settings
from ordercast.clients.stream import fits
from ordercast.core.headers import header
from ordercast.core.subjects import REST, has_wildcards
from ordercast.replicated.command import command
from ordercast.replicated.replicated import Replicated

OPERATION = "KV-Operation"
DELETED = b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n"
PURGED = b"NATS/1.0\r\nKV-Operation: PURGE\r\nNats-Rollup: sub\r\n\r\n"
OVERHEAD = 64
"""Bytes that a value counts for beyond its own, its key's and its headers'."""
EXPIRY_STEP_US = 100_000
"""Values end at most so much later than they are to: so many that end at about the same time end together."""
MOST_AT_ONCE = 1_000
"""Values that end at one place of the order; others follow at the next."""
MOST_IDENTIFIERS = 10_000
"""Identifiers of messages that are remembered."""
CLOSED, WRONG_LAST, TOO_LARGE, FULL = "closed", "wrong last", "too large", "full"
"""Why nothing is put: the bucket is deleted; the key's last value is another one; the value is larger than
the bucket's may be; the bucket would take more than it may."""


class Entry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A value, or a marker that there is none any more."""

    key: str
    headers: bytes
    value: bytes
    created_us: int
    """In ordered time, microseconds since the epoch."""
    expires_us: int
    """When the entry ends by its own time to live; 0 if it has none."""

    @property
    def size(self) -> int:
        """Bytes that it counts for."""
        return len(self.key.encode()) + len(self.headers) + len(self.value) + OVERHEAD

    @property
    def deleted(self) -> bool:
        """Whether it says that the key has no value."""
        return bool(self.headers) and header(self.headers, OPERATION) in ("DEL", "PURGE")


class Stored(msgspec.Struct, array_like=True, frozen=True):
    """What came of a value that was to be put."""

    revision: int
    """The number of the value that was put; with `refused`, that of the key's last value."""
    refused: str = ""
    """Why it was not put; empty if it was."""
    repeated: bool = False
    """Whether the value had been put before, under that number."""


class Changed(NamedTuple):
    """What those that watch a bucket are told."""

    key: str
    revision: int
    """Of the value that was put; 0 if values of the key are there no longer."""


class Bucket(Replicated):
    """The last values of each key, by number. Numbers are positions in the history of the object.

    A node that serves clients has the object of each bucket (`Node.bucket`): fields and methods read it as
    this node has it, which may be behind others' until `sync`.
    """

    settings: Settings
    entries: dict[int, Entry]
    """The entries by their number, ascending."""
    keys: dict[str, tuple[int, ...]]
    """The numbers of each key's values, ascending."""
    created_us: int
    size: int
    """What all entries count for."""
    last: int
    """The number of the last value that was put."""
    removed: int
    """Values that were removed so far."""
    closed: bool
    """The bucket is deleted."""
    due: list[tuple[int, int]]
    """When values end, and their numbers: a heap. Some of them are not there any more."""
    identifiers: dict[str, int]
    """Numbers by the identifiers of the messages that brought them,"""
    identified: deque[tuple[int, str]]
    """and when they came."""

    def __init__(self, settings: Settings, created_us: int = 0) -> None:
        self.settings = settings
        self.entries, self.keys = {}, {}
        self.created_us = created_us
        self.size = self.last = self.removed = 0
        self.closed = False
        self.due = []
        self.identifiers, self.identified = {}, deque()

    # --- commands -------------------------------------------------------------------------------

    @command
    def put(
        self,
        key: str,
        value: bytes,
        headers: bytes = b"",
        expected: int | None = None,
        rollup: bool = False,
        lifetime_us: int = 0,
        identifier: str = "",
    ) -> Stored:
        """Give a key another value. `expected`: only if its last one has this number, 0 if it has none;
        `rollup`: remove all earlier ones; `lifetime_us`: it ends after so long, 0: never; `identifier`: only
        if no other one with this was put within the bucket's ``duplicate_window``."""
        if self.closed:
            return Stored(0, CLOSED)
        before = self._known(identifier) if identifier else None
        if before is not None:
            return Stored(before, repeated=True)
        settings, revisions = self.settings, self.keys.get(key, ())
        last = revisions[-1] if revisions else 0
        if expected is not None and expected != last:
            return Stored(last, WRONG_LAST)
        if 0 <= settings.max_msg_size < len(headers) + len(value):
            return Stored(last, TOO_LARGE)
        kept = 0 if rollup else settings.max_msgs_per_subject - 1
        old = revisions[: max(0, len(revisions) - kept)]
        now_us, revision = self.now_us, self.position
        entry = Entry(key, headers, value, now_us, now_us + lifetime_us if lifetime_us else 0)
        if self.size + entry.size - sum(self.entries[each].size for each in old) > settings.limit:
            return Stored(last, FULL)
        self._remove(old)
        self.entries[revision] = entry
        self.keys[key] = (*self.keys.get(key, ()), revision)
        self.size += entry.size
        self.last = revision
        if identifier:
            self.identifiers[identifier] = revision
            self.identified.append((now_us, identifier))
        self._await_end(revision, entry)
        self._wake()
        self.tell(Changed(key, revision))
        return Stored(revision)

    @command
    def purge(self, pattern: str, keep: int = 0, below: int = 0) -> int:
        """Remove the values of the keys that a pattern describes: all but the last `keep` of each, or, with
        `below`, those with numbers below it. How many; -1 if the bucket is deleted."""
        if self.closed:
            return -1
        before = self.removed
        for key in self.matching((pattern,)):
            revisions = self.keys[key]
            if below:
                gone = tuple(each for each in revisions if each < below)
            else:
                gone = revisions[: max(0, len(revisions) - keep)]
            if gone:
                self._remove(gone)
                self.tell(Changed(key, 0))
        return self.removed - before

    @command
    def configure(self, settings: Settings) -> bool:
        """Change what the bucket is like; False if it is deleted."""
        if self.closed:
            return False
        self.settings = settings
        for revisions in list(self.keys.values()):
            self._remove(revisions[: max(0, len(revisions) - settings.max_msgs_per_subject)])
        self._sort_ends()
        self.tell(Changed("", 0))
        return True

    @command
    def close(self) -> None:
        """Delete the bucket: it takes nothing more, and has nothing."""
        self.closed = True
        self.removed += len(self.entries)
        self.entries, self.keys, self.due = {}, {}, []
        self.identifiers, self.identified = {}, deque()
        self.size = 0
        self.wake_at_us = None
        self.tell(Changed("", 0))

    def tick(self) -> None:
        """Values whose time is over are removed."""
        now_us, left = self.now_us, MOST_AT_ONCE
        while self.due and self.due[0][0] <= now_us and left:
            left -= 1
            revision = heapq.heappop(self.due)[1]
            entry = self.entries.get(revision)
            if entry is not None:
                self._remove([revision])
                self.tell(Changed(entry.key, 0))
        self._wake()
        if not left:
            self.wake_at_us = now_us + 1

    # --- within commands ------------------------------------------------------------------------

    def _remove(self, revisions: Iterable[int]) -> None:
        for revision in revisions:
            entry = self.entries.pop(revision)
            self.size -= entry.size
            self.removed += 1
            others = tuple(each for each in self.keys[entry.key] if each != revision)
            if others:
                self.keys[entry.key] = others
            else:
                del self.keys[entry.key]

    def _ends_us(self, entry: Entry) -> int:
        """When it ends; 0: never."""
        by_age = entry.created_us + self.settings.max_age // 1000 if self.settings.max_age else 0
        return min(by_age or entry.expires_us, entry.expires_us or by_age)

    def _await_end(self, revision: int, entry: Entry) -> None:
        ends_us = self._ends_us(entry)
        if ends_us:
            heapq.heappush(self.due, (ends_us, revision))
            if len(self.due) > 2 * len(self.entries) + 1024:
                self._sort_ends()

    def _sort_ends(self) -> None:
        ends = ((self._ends_us(entry), revision) for revision, entry in self.entries.items())
        self.due = sorted(each for each in ends if each[0])
        self._wake()

    def _wake(self) -> None:
        self.wake_at_us = -(-self.due[0][0] // EXPIRY_STEP_US) * EXPIRY_STEP_US if self.due else None

    def _known(self, identifier: str) -> int | None:
        """The number of the value that came with an identifier, if that is remembered."""
        since_us = self.now_us - self.settings.duplicate_window // 1000
        while self.identified and (
            self.identified[0][0] < since_us or len(self.identified) >= MOST_IDENTIFIERS
        ):
            del self.identifiers[self.identified.popleft()[1]]
        return self.identifiers.get(identifier)

    # --- reading --------------------------------------------------------------------------------

    def get(self, key: str) -> Entry | None:
        """The last value of a key; None if it has none."""
        revision = self.last_of(key)
        entry = self.entries.get(revision)
        return None if entry is None or entry.deleted else entry

    def last_of(self, pattern: str) -> int:
        """The number of the last value of the keys that a pattern describes; 0 if there is none."""
        return max((self.keys[key][-1] for key in self.matching((pattern,))), default=0)

    def matching(self, patterns: Iterable[str]) -> list[str]:
        """The keys that one of these patterns describes, each once."""
        found: dict[str, None] = {}
        for pattern in patterns:
            if pattern == REST:
                return list(self.keys)
            if has_wildcards(pattern):
                found.update((key, None) for key in self.keys if fits(pattern, key))
            elif pattern in self.keys:
                found[pattern] = None
        return list(found)

    def since(self, revision: int) -> Iterator[int]:
        """The numbers of the values that came after one, the last one first."""
        for each in reversed(self.entries):
            if each <= revision:
                return
            yield each

    async def delete(self, key: str) -> Stored:
        """Leave a marker that a key has no value, behind its earlier values."""
        return await self.put(key, b"", DELETED)
