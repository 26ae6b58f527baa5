"""The stream that clients read, over restarts of the node: how messages were numbered, and the last of them.

All messages of the order are in the log, with what clients said beside them, and have numbers that follow
each other. Where they do not, because others had counted further, a note in the log says so; another one says
the number of the log's last message. So the log says the number of each.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from ordercast.clients.stream import Entry, Range, Stream
from ordercast.core.wire import UNREADABLE
from ordercast.errors import LogError
from ordercast.groups.logged_stream import UNKNOWN, LoggedStream
from ordercast.process_groups.views import Recounted

LOG = logging.getLogger("ordercast")

COUNTED = b"clients/counted"
"""The name under which the log remembers the number of its last message,"""
RECOUNTED = b"clients/recounted"
"""and the one under which it remembers from which configurations on messages were counted anew."""
MOST_RECOUNTED = 256
"""How many of the latest recounts the log remembers."""
REPEATED = b"clients/repeated/"
"""Begins the names under which the log remembers which messages were dropped as repetitions."""
TOGETHER = 4096
"""How many messages one of these names is for."""
AT_ONCE_BYTES = 1024 * 1024
"""Bytes of messages that are read from the log together."""
MOST_ROWS = 400_000
"""Entries of the log that are read again when a node starts."""


class KeptStream:
    """How the messages of a log are numbered."""

    def __init__(
        self, notes: Mapping[bytes, bytes], note: Callable[[Mapping[bytes, bytes | None]], None]
    ) -> None:
        """`notes` are those of the log; `note` adds to them what is to be kept with what comes next."""
        found = notes.get(COUNTED, b"")
        self.counted = int(found) if found.isdigit() and len(found) < 19 else 0
        """The number of the last message."""
        self.recounts = _read(notes.get(RECOUNTED))
        """Where messages were counted anew, in order."""
        self._repeated = _read_repeated(notes)
        """Messages that were dropped as repetitions, by `TOGETHER`."""
        self._note = note
        self._complete = True
        """The log has all messages that were counted."""

    def reached(self, number: int) -> None:
        """The message that is delivered now has this number."""
        if number != self.counted:
            self.counted = number
            self._note({COUNTED: b"%d" % number})

    def recounted(self, recounted: Recounted) -> None:
        """Messages of a configuration are counted anew."""
        if not self._complete:
            recounted = recounted._replace(before=UNKNOWN)
            self._complete = True
        self.recounts = [*self.recounts, recounted][-MOST_RECOUNTED:]
        self._note({RECOUNTED: msgspec.msgpack.encode(self.recounts)})

    def is_repeated(self, number: int) -> bool:
        """Whether that message was dropped as a repetition."""
        return number in self._repeated.get(number // TOGETHER, ())

    def repeated(self, number: int) -> None:
        """That message is dropped as a repetition."""
        some = number // TOGETHER
        self._repeated.setdefault(some, set()).add(number)
        self._note({REPEATED + b"%d" % some: msgspec.msgpack.encode(sorted(self._repeated[some]))})

    def forget_before(self, number: int) -> None:
        """Messages before that number are not in the log any more."""
        gone = [some for some in self._repeated if (some + 1) * TOGETHER <= number]
        for some in gone:
            del self._repeated[some]
        if gone:
            self._note({REPEATED + b"%d" % some: None for some in gone})

    def life_over(self) -> None:
        """What was delivered in this life and is not final yet is never written."""
        self._complete = False


def _read(note: bytes | None) -> list[Recounted]:
    try:
        return [] if note is None else msgspec.msgpack.decode(note, type=list[Recounted])
    except UNREADABLE:
        return []


def _read_repeated(notes: Mapping[bytes, bytes]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for name, note in notes.items():
        some = name.removeprefix(REPEATED)
        if name.startswith(REPEATED) and some.isdigit() and len(some) < 19:
            with suppress(*UNREADABLE):
                found[int(some)] = msgspec.msgpack.decode(note, type=set[int])
    return found


def reopened(
    logged: LoggedStream,
    kept: KeptStream,
    subjects: Sequence[str],
    most_bytes: int,
    now_ns: Callable[[], int],
) -> Stream:
    """The stream with the last messages of the log, and their identifiers. Reads files."""
    stream = Stream(subjects, most_bytes, now_ns)
    stream.on_repeated = kept.repeated
    stream.restart(kept.counted)
    if not kept.counted:
        return stream
    try:
        places = logged.look(kept.counted)
        if places:
            kept.forget_before(places[0].number)
            first = max(places[0].number, kept.counted - MOST_ROWS + 1)
            found = [each for each in logged.entries(first) if not kept.is_repeated(each.number)]
            stream.restart(first - 1)
            for entry in found:
                stream.restore(entry)
            stream.skip(kept.counted)
    except LogError as error:  # damaged: it is repaired in time
        LOG.warning("what clients can read begins with the next message: %s", error)
    return stream


class OlderInLog:
    """Messages of the stream that are in the log, and no longer in memory."""

    def __init__(self, logged: LoggedStream, kept: KeptStream) -> None:
        self._logged = logged
        self._kept = kept
        self.pending = logged.pending

    async def first(self) -> int:
        """The number from which on nothing is missing."""
        places = await asyncio.to_thread(self._logged.look)
        return places[0].number if places else 0

    async def read(self, number: int, pattern: str | None) -> Range:
        """Some messages from a number on."""
        return await asyncio.to_thread(self._read, number, pattern)

    def _read(self, number: int, pattern: str | None) -> Range:
        places = self._logged.look()
        if not places:
            return Range([], number, number)
        number = max(number, places[0].number)
        found: list[Entry] = []
        size = 0
        for entry in self._logged.entries(number, pattern):
            if self._kept.is_repeated(entry.number):
                continue
            found.append(entry)
            size += entry.size
            if size >= AT_ONCE_BYTES:
                return Range(found, number, entry.number + 1)
        last = places[-1]
        return Range(found, number, max(number, last.number + last.head.rows))

    async def at_time(self, time_ns: int) -> int:
        """The number of the first message that was delivered then or later."""
        await asyncio.to_thread(self._logged.look)
        return await asyncio.to_thread(self._logged.at_time, time_ns)
