"""Who asked for what, and what came of it: a command that is asked for again is not carried out again.

A *session* numbers its commands from 1. With each it says below which number it has all results. What is
between is kept, in the state of the object itself, so it is the same at every replica. What is kept is
bounded: the session that has asked for nothing for longest is forgotten. A command of a forgotten session may
have been carried out, so it is refused, unless it was first asked for after that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from ordercast.replicated.command import encode
from ordercast.replicated.state import in_pieces

MOST = 10_000
"""Sessions that are remembered."""
MOST_RESULTS = 8_192
"""Results of one session that are remembered."""
MOST_BYTES = 64 * 1024 * 1024
"""Bytes of all results that are remembered."""
OVERHEAD = 64
"""Bytes that a result or a session counts for beyond its own."""

Number: TypeAlias = Annotated[int, Meta(ge=0, lt=2**62)]


class Session(msgspec.Struct, array_like=True):
    """What one session has asked for."""

    floor: Number
    """Results below this number have reached the session."""
    used: Number
    """Position of the last command that was carried out for it."""
    results: dict[int, bytes]


class Known(Enum):
    """What is known of a command without its result."""

    NEW = "new"
    FORGOTTEN = "forgotten"
    """Its session, or its number there, is no longer remembered: it may have been carried out."""


class Sessions:
    """The sessions of one object, as far as they are remembered."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES, *, forgotten: int = 0) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._sessions: dict[int, Session] = {}
        """The one used last comes last."""
        self.bytes = 0
        self.forgotten = forgotten
        """Whoever was forgotten used its session last at this position, or before."""

    def look(self, session: int, number: int, since: int) -> bytes | Known:
        """The result of a command that was carried out before; else, what is known of it.

        `since`: a position that was reached before it was asked for first."""
        found = self._sessions.get(session)
        if found is None:
            return Known.NEW if since >= self.forgotten else Known.FORGOTTEN
        if number < found.floor:
            return Known.FORGOTTEN
        result = found.results.get(number)
        if result is None:
            return Known.NEW if len(found.results) < MOST_RESULTS else Known.FORGOTTEN
        return result

    def all_new(self, session: int, first: int, count: int, since: int) -> bool:
        """Whether so many commands, from this number on, are known not to have been carried out before."""
        found = self._sessions.get(session)
        if found is None:
            return since >= self.forgotten and count <= MOST_RESULTS
        return (
            first >= found.floor
            and len(found.results) + count <= MOST_RESULTS
            and found.results.keys().isdisjoint(range(first, first + count))
        )

    def keep(self, session: int, first: int, floor: int, position: int, results: Sequence[bytes]) -> None:
        """Commands were carried out, from this number on, at a position."""
        found = self._sessions.pop(session, None)
        if found is None:
            found = Session(0, position, {})
            self.bytes += OVERHEAD
        self._sessions[session] = found
        found.used = position
        found.results.update(zip(range(first, first + len(results)), results, strict=True))
        self.bytes += sum(map(len, results)) + OVERHEAD * len(results)
        if floor > found.floor:
            self._drop(found, floor)
        while self.bytes > self._most_bytes and len(self._sessions) == 1 and len(found.results) > 1:
            self._drop(found, min(found.results) + 1)
        self._forget()

    def _forget(self) -> None:
        """Forget the sessions that were used longest ago, if there are too many."""
        while len(self._sessions) > self._most or (self.bytes > self._most_bytes and len(self) > 1):
            oldest = next(iter(self._sessions))
            gone = self._sessions.pop(oldest)
            self.bytes -= OVERHEAD + sum(len(each) + OVERHEAD for each in gone.results.values())
            self.forgotten = max(self.forgotten, gone.used)

    def _drop(self, found: Session, floor: int) -> None:
        """Forget the results of a session below a number."""
        results = found.results
        if floor - found.floor <= 2 * len(results):
            dropped = [results.pop(number, None) for number in range(found.floor, floor)]
            sizes = [len(each) for each in dropped if each is not None]
        else:
            sizes = [len(results.pop(number)) for number in [each for each in results if each < floor]]
        self.bytes -= sum(sizes) + OVERHEAD * len(sizes)
        found.floor = floor

    def __len__(self) -> int:
        return len(self._sessions)

    @classmethod
    def merged(cls, several: Sequence[Sessions]) -> Sessions:
        """What is remembered in any of these."""
        merged = cls(forgotten=max(each.forgotten for each in several))
        found: dict[int, Session] = {}
        for number, session in (one for each in several for one in each._sessions.items()):
            known = found.setdefault(number, Session(0, 0, {}))
            known.floor, known.used = max(known.floor, session.floor), max(known.used, session.used)
            known.results = session.results | known.results
        for number, session in sorted(found.items(), key=lambda each: (each[1].used, each[0])):
            results = {at: session.results[at] for at in sorted(session.results) if at >= session.floor}
            merged._add(number, Session(session.floor, session.used, results))
        merged._forget()
        return merged

    # --- as part of a state -----------------------------------------------------------------------

    def captured(self) -> list[tuple[int, Session]]:
        """All of them as they are now, whatever changes later."""
        return [
            (number, Session(each.floor, each.used, each.results.copy()))
            for number, each in self._sessions.items()
        ]

    @staticmethod
    def pieces(captured: list[tuple[int, Session]]) -> Iterator[bytes]:
        """The sessions as bytes, piece by piece."""
        return in_pieces(captured, encode)

    def add(self, piece: bytes) -> None:
        """Take a piece of what another replica remembers."""
        for number, session in _decode(piece):
            self._add(number, session)

    def _add(self, number: int, session: Session) -> None:
        self._sessions[number] = session
        self.bytes += OVERHEAD + sum(len(each) + OVERHEAD for each in session.results.values())


_decode = msgspec.msgpack.Decoder(list[tuple[int, Session]]).decode
