"""An object that notes down everything that is asked of it, so that it can be judged what was answered."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple
from zlib import crc32

import msgspec

from ordercast.core.identity import NodeId
from ordercast.errors import CommandFailed
from ordercast.process_groups.views import Process
from ordercast.replicated.command import command
from ordercast.replicated.replicated import Replicated
from ordercast.replicated.session import Session

BALLAST_BYTES = 2_000
BALLAST_AT_ONCE = 20
WAKES_AFTER_US = 100_000
LATEST = 40
"""How many entries are kept of lists that would grow for ever: the latest."""


class Line(msgspec.Struct, array_like=True, frozen=True):
    """What was noted."""

    what: str
    """Names it: no two notes of a run have the same one."""
    key: str
    value: int
    """The sum of the key's numbers behind it."""
    position: int
    caller: NodeId


class Noted(msgspec.Struct, array_like=True, frozen=True):
    """The result of a note."""

    index: int
    """How many were noted before."""
    line: Line


class Read(NamedTuple):
    """What one replica had, read behind a `sync`."""

    length: int
    last: Line | None
    values: dict[str, int]


class Refused(CommandFailed):
    """Nothing was noted. It says why, if it is told that at all."""

    def __str__(self) -> str:
        return str(self.args[0] or self.args[1])


class Journal(Replicated):
    """Numbers by key, and all that was noted. Nothing that is in its fields can change."""

    lines: list[Line]
    values: dict[str, int]
    ballast: dict[int, bytes]
    gone: list[Process]
    times: deque[int]
    marks: set[int]
    """One for each line. A replica that got its state has them in another order than who gave it: what is put
    together from the states of two is not whole."""

    def __init__(self) -> None:
        self.marks = set()
        self.lines = []
        self.values = {}
        self.ballast = {}
        self.gone = []
        self.times = deque(maxlen=LATEST)

    @command
    def note(self, what: str, key: str, by: int) -> Noted:
        """Add to the number of a key, which is the last one then."""
        value = self.values.pop(key, 0) + by
        self.values[key] = value
        line = Line(what, key, value, self.position, self.caller.node)
        self.lines.append(line)
        self.times.append(self.now_us)
        self.marks.add(crc32(what.encode()))
        if by % 4 == 0:
            self.wake_at_us = self.now_us + WAKES_AFTER_US
        self._noted(line)
        self.tell((len(self.lines) - 1, line))
        return Noted(len(self.lines) - 1, line)

    @command
    def refuse(self, why: bytes) -> None:
        """Raise something of which not all can travel."""
        raise Refused(why.decode(errors="surrogateescape"))

    @command
    def fill(self, number: int) -> None:
        """Make the state larger."""
        for at in range(BALLAST_AT_ONCE):
            self.ballast[number * BALLAST_AT_ONCE + at] = bytes(BALLAST_BYTES)

    async def note_once(self, what: str, key: str, by: int) -> Noted:
        """Note a line, as `note` does; this command may be repeated."""
        with Session(what):
            return await self.note(what, key, by)

    async def read(self) -> Read:
        """Not older than this call."""
        await self.sync()
        return Read(len(self.lines), self.lines[-1] if self.lines else None, dict(self.values))

    def left(self, process: Process) -> None:
        """Note who has left."""
        self.gone.append(process)
        del self.gone[:-LATEST]

    def tick(self) -> None:
        """Note when this was called."""
        self.times.append(self.now_us)

    def _noted(self, line: Line) -> None:
        """For those that keep more."""


class Row(msgspec.Struct):
    """Something that changes where it is."""

    number: int
    words: list[str]


class DeepJournal(Journal):
    """A journal with fields in which things change."""

    rows: list[Row]
    by_caller: dict[int, dict[str, int]]
    seen: set[str]
    held: dict[str, list[int]]

    def __init__(self) -> None:
        super().__init__()
        self.rows = [Row(0, []) for _ in range(8)]
        self.by_caller = {}
        self.seen = set()
        self.held = {}

    def _noted(self, line: Line) -> None:
        row = self.rows[line.position % len(self.rows)]
        row.number += line.value
        row.words.append(line.what)
        del row.words[:-3]
        self.tell(row)  # as it is now: the line follows
        mine = self.by_caller.setdefault(line.caller, {})
        mine[line.key] = mine.get(line.key, 0) + 1
        self.seen.add(f"{line.key}{line.value % 7}")
        held = self.held.setdefault(line.key, [])
        held.append(line.value)
        del held[:-LATEST]
