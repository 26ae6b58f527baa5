"""The stream of clients as the log on disk has it: which number each message has, and the messages again.

The log does not say numbers with its messages. They follow each other, and notes say where they jump
(`ordercast.groups.client_stream`): so the heads of the blocks, which are in memory, tell the number of each
block's first message.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ordercast.clients.stream import Entry, fits
from ordercast.core.headers import read_head
from ordercast.core.identity import GROUPS_BETWEEN
from ordercast.log.blocks import MESSAGE, Head
from ordercast.log.position import Position
from ordercast.log.view import View
from ordercast.process_groups.views import Recounted

UNKNOWN = -1
"""In the place of a number: the log may lack messages that were counted."""


class Place(NamedTuple):
    """A block of messages."""

    number: int
    """Of its first message."""
    before: Position | None
    """The entry before it."""
    head: Head


class LoggedStream:
    """Reads the stream from a log. For threads: it reads files."""

    def __init__(
        self, path: Path, recounts: Callable[[], Sequence[Recounted]], subjects: Sequence[str]
    ) -> None:
        """`recounts`: where messages were counted anew, in order."""
        self._view = View(path)
        self._recounts = recounts
        self._subjects = subjects
        self._places: list[Place] = []

    def close(self) -> None:
        """Read nothing more."""
        self._view.close()

    @property
    def damage_met(self) -> int:
        """How often something that was asked for was damaged."""
        return self._view.damage_met

    # --- numbers --------------------------------------------------------------------------------

    def look(self, counted: int | None = None) -> list[Place]:
        """Where the messages are, up to whose last nothing is missing; empty if their numbers are not known.
        That the node was away does not matter if nobody counted meanwhile. `counted`: the number of the last
        one, where that is known."""
        recounts = {each.configuration: each for each in self._recounts()}
        found: list[tuple[int, Position | None, Head]] = []
        base: int | None = None
        """The number before the first of them."""
        rows, before = 0, None
        for head in self._view.heads():
            if head.kind == MESSAGE:
                found.append((rows, before, head))
                rows += head.rows
            else:
                told = recounts.get(head.first.configuration)
                if told is not None:
                    if base is None and told.before != UNKNOWN:
                        base = told.before - rows
                    if base is None or told.base != base + rows:  # others had messages that are not here
                        found, rows, base = [], 0, told.base
            before = head.last
        if base is None and counted is not None:
            base = counted - rows
        if base is None or base < 0:
            return []
        self._places = [Place(base + at + 1, before, head) for at, before, head in found]
        return self._places

    def pending(self, number: int, end: int, pattern: str | None) -> int:
        """How many messages there may be from a number on, before another one: whole blocks are counted."""
        return sum(
            min(place.head.rows, place.number + place.head.rows - number, end - place.number)
            for place in self._places
            if place.number < end
            and place.number + place.head.rows > number
            and self._may_have(place.head, pattern)
        )

    def _may_have(self, head: Head, pattern: str | None) -> bool:
        return any(self._subject(names, pattern) is not None for names in head.groups)

    def _subject(self, names: str, pattern: str | None) -> str | None:
        """The subject under which a message to groups is in the stream, if it fits."""
        every = names.split(GROUPS_BETWEEN)
        found = next((name for name in every if any(fits(each, name) for each in self._subjects)), None)
        return found if found is not None and (pattern is None or fits(pattern, found)) else None

    # --- messages -------------------------------------------------------------------------------

    def entries(self, number: int, pattern: str | None = None) -> Iterator[Entry]:
        """The messages from a number on, as far as it was seen at the last look."""
        places = self._places
        for at in range(max(0, bisect_right(places, number, key=_number) - 1), len(places)):
            place = places[at]
            if place.number + place.head.rows > number and self._may_have(place.head, pattern):
                yield from self._of(place, number, pattern)

    def _of(self, place: Place, number: int, pattern: str | None) -> Iterator[Entry]:
        subjects: dict[str, str | None] = {}
        at = place.number
        for batch in self._view.read(place.before, place.head.last, heads=True):
            columns = (batch[name].to_pylist() for name in ("group", "time_us", "payload", "head"))
            for names, time_us, payload, head in zip(*columns, strict=True):
                if names not in subjects:
                    subjects[names] = self._subject(names, pattern)
                subject = subjects[names]
                if subject is not None and at >= number:
                    headers = read_head(head).headers if head else b""
                    yield Entry(at, subject, headers, payload, time_us * 1000)
                at += 1

    def at_time(self, time_ns: int) -> int:
        """The number of the first message that may have been delivered at that time or later."""
        for place in self._places:
            if place.head.time_us * 1000 >= time_ns:
                return next(
                    (each.number for each in self._of(place, 0, None) if each.time_ns >= time_ns),
                    place.number + place.head.rows,
                )
        return self._places[-1].number + self._places[-1].head.rows if self._places else 1


def _number(place: Place) -> int:
    return place.number
