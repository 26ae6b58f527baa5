"""The stream that clients read with JetStream: the last of what was ordered, by number.

All messages of the order are counted, the same at every node (`ProcessGroups.counted`); those whose subjects
the stream covers are kept here, until they are too many bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from ordercast.core.headers import Head, header
from ordercast.core.subjects import matches
from ordercast.process_groups.views import Numbered

NAME = "ORDERCAST"
MOST_IDENTIFIERS = 100_000
"""Identifiers of messages (``Nats-Msg-Id``) that are remembered: a message with one of them is dropped."""
MOST_PLACES = 400_000
"""Numbers that are looked after, those of the stream's messages and of others'."""
OVERHEAD = 128
"""Bytes that a message counts for beyond its own."""
MESSAGE_ID = "Nats-Msg-Id"


class Entry(NamedTuple):
    """A message of the stream."""

    number: int
    subject: str
    headers: bytes
    body: bytes
    time_ns: int
    """When this node delivered the message."""

    @property
    def size(self) -> int:
        """Bytes that it counts for."""
        return len(self.subject) + len(self.headers) + len(self.body) + OVERHEAD


class Range(NamedTuple):
    """Messages that follow each other."""

    entries: list[Entry]
    begin: int
    """The number from which on it was looked: a later one than was wanted, if that is not kept any more."""
    end: int
    """The number behind what was looked at; `begin` if nothing is there yet."""


class Older(Protocol):
    """Messages of the stream that are kept elsewhere than in memory."""

    async def first(self) -> int:
        """The number from which on nothing is missing. Raises `LogError`."""

    async def read(self, number: int, pattern: str | None) -> Range:
        """Some messages from a number on. Raises `LogError`."""

    async def at_time(self, time_ns: int) -> int:
        """The number of the first message that was delivered then or later. Raises `LogError`."""

    def pending(self, number: int, end: int, pattern: str | None) -> int:
        """How many messages there are about from a number on, before another one."""


class Stream:
    """The messages that are kept in memory."""

    def __init__(
        self, subjects: Sequence[str], most_bytes: int, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        """`subjects` are patterns of those that it covers."""
        self.subjects = tuple(subjects)
        self.first = 1
        """The number of the first message that may be kept."""
        self.last = 0
        """The number of the last message of the order."""
        self.since = 1
        """From this number on nothing is missing here, in memory or in `older`."""
        self.messages = 0
        self.bytes = 0
        self.created_ns = now_ns()
        self.older: Older | None = None
        """Those that are not in memory any more; None: they are gone."""
        self.on_repeated: Callable[[int], None] = lambda number: None
        """Told the numbers of messages that are dropped."""
        self._now_ns = now_ns
        self._most_bytes = most_bytes
        self._entries: list[Entry | None] = []
        """Those from number `_base` on; None where it is none of the stream's."""
        self._base = 1
        self.identifiers: dict[str, int] = {}
        """The number of the message of each identifier that is remembered, the oldest first."""
        self._covered: dict[str, bool] = {}
        self._lasts: dict[str, int] = {}
        """The number of the last message of each subject."""

    def covers(self, subject: str) -> bool:
        """Whether messages to a subject are kept."""
        found = self._covered.get(subject)
        if found is None:
            if len(self._covered) >= 4096:
                self._covered.clear()
            found = any(pattern == subject or matches(pattern, subject) for pattern in self.subjects)
            self._covered[subject] = found
        return found

    # --- what is ordered ------------------------------------------------------------------------

    def take(self, numbered: Numbered, heads: Sequence[Head] | None) -> list[tuple[int, bool]]:
        """Messages of the order, and what was said beside each; the number of each, and whether it is dropped
        as a repetition. Nothing is told of messages that the stream does not cover."""
        first, batch, _, groups, _ = numbered
        if first != self.last + 1:
            self.restart(first - 1)
        subject = next((group for group in groups if self.covers(group)), None)
        if subject is None:
            self._pass_over(len(batch.payloads))
            return []
        now_ns = self._now_ns()
        told: list[tuple[int, bool]] = []
        for at, body in enumerate(batch.payloads):
            headers = b"" if heads is None else heads[at].headers
            told.append(self._add(first + at, subject, headers, body, now_ns))
        return told

    def _add(self, number: int, subject: str, headers: bytes, body: bytes, time_ns: int) -> tuple[int, bool]:
        """The next message: its number, or that of the one that it repeats, and whether it does."""
        identifier = header(headers, MESSAGE_ID) if headers else None
        before = self.identifiers.get(identifier) if identifier else None
        if before is not None:
            self._pass_over(1)
            self.on_repeated(number)
            return before, True
        if identifier:
            if len(self.identifiers) >= MOST_IDENTIFIERS:
                del self.identifiers[next(iter(self.identifiers))]
            self.identifiers[identifier] = number
        self._put(Entry(number, subject, headers, body, time_ns))
        return number, False

    def restore(self, entry: Entry) -> None:
        """A message that was ordered in an earlier life of the node; those between are not in the stream."""
        self.skip(entry.number - 1)
        number, subject, headers, body, time_ns = entry
        self._add(number, subject, headers, body, time_ns)

    def skip(self, number: int) -> None:
        """All up to that number are none of the stream's."""
        self._pass_over(max(0, number - self.last))

    def restart(self, number: int) -> None:
        """The stream begins anew behind that number: others have messages that this node missed, and its
        readers must not be given a gap."""
        self._entries.clear()
        self._lasts.clear()
        self.messages = self.bytes = 0
        self._base = self.first = self.since = number + 1
        self.last = number

    def known(self, identifier: str) -> int | None:
        """The number of the message with an identifier, if it is remembered."""
        return self.identifiers.get(identifier)

    def learn(self, identifiers: Mapping[str, int]) -> None:
        """These are all identifiers before the next message, with their numbers."""
        known = sorted(identifiers.items(), key=lambda each: each[1])
        self.identifiers = dict(known[-MOST_IDENTIFIERS:])

    def _put(self, entry: Entry) -> None:
        self._entries.append(entry)
        self.last += 1
        self.messages += 1
        self.bytes += entry.size
        self._lasts[entry.subject] = entry.number
        self._trim()

    def _pass_over(self, count: int) -> None:
        """Note that the next `count` messages do not belong to the stream."""
        self._entries += [None] * count
        self.last += count
        self._trim()

    def _trim(self) -> None:
        while self.bytes > self._most_bytes or self.last - self.first >= MOST_PLACES:
            self._drop_first()
        if self.first - self._base > 1024 + len(self._entries) // 2:
            del self._entries[: self.first - self._base]
            self._base = self.first

    def _drop_first(self) -> None:
        place = self.first - self._base
        entry, self._entries[place] = self._entries[place], None
        self.first += 1
        if entry is not None:
            self.messages -= 1
            self.bytes -= entry.size
            if self._lasts.get(entry.subject) == entry.number:
                del self._lasts[entry.subject]

    # --- reading --------------------------------------------------------------------------------

    def get(self, number: int) -> Entry | None:
        """The message of a number."""
        place = number - self._base
        return self._entries[place] if self.first <= number <= self.last and place >= 0 else None

    def following(self, number: int, pattern: str | None = None) -> Iterator[Entry]:
        """The messages from a number on, of all subjects or those that a pattern describes."""
        for place in range(max(number, self.first) - self._base, len(self._entries)):
            entry = self._entries[place]
            if entry is not None and (pattern is None or fits(pattern, entry.subject)):
                yield entry

    def last_of(self, pattern: str) -> Entry | None:
        """The last message of the subjects that a pattern describes."""
        number = self._lasts.get(pattern)
        if number is not None:
            return self.get(number)
        found = [last for subject, last in self._lasts.items() if fits(pattern, subject)]
        return self.get(max(found)) if found else None

    def pending(self, number: int, pattern: str | None) -> int:
        """How many messages there are from a number on."""
        if number > self.last:
            return 0
        if number <= self.first and pattern is None:
            return self.messages
        return sum(1 for _ in self.following(number, pattern))

    def at_time(self, time_ns: int) -> int:
        """The number from which on all messages were delivered at that time or later."""
        for entry in self.following(self.first):
            if entry.time_ns >= time_ns:
                return entry.number
        return self.last + 1


@lru_cache(maxsize=4096)
def fits(pattern: str, subject: str) -> bool:
    """Whether a pattern describes a subject."""
    return pattern == subject or matches(pattern, subject)
