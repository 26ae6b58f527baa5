"""The state of an object at one place of its history, as it goes to other replicas and to disk.

A `Snapshot` is taken at a moment. A small one is complete at once, another after some steps, during which the
object carries nothing out. From then on it is independent of the object: it gives its *slices*, of at most
`SLICE_BYTES`, as often as is wanted, and `Restored` makes a state of them again. They begin with the place in
the history, and end with their number, so a state that lacks some is not taken for whole. Bytes that changed
on the way are the business of who carries them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from ordercast.core.wire import UNREADABLE
from ordercast.process_groups.views import Process
from ordercast.replicated.command import encode
from ordercast.replicated.durable.heads import Head
from ordercast.replicated.sessions import Number, Sessions
from ordercast.replicated.state import STEP_ENTRIES

if TYPE_CHECKING:
    from ordercast.replicated.replicated import Replicated

SLICE_BYTES = 128 * 1024
"""No slice has more bytes."""
WORK_S = 0.001
"""For so long a state is worked on before as long a rest."""
PIECES = 8
"""So many pieces of work are done in one turn of the event loop, at most."""
CAPTURE_S = 0.004
"""For so long a state is captured before others have their turn. There is no rest: the object carries nothing
out until all of it is captured."""
NOT_ENCODED = (
    "the state cannot be given to other nodes: its fields hold what is not of their types, or cannot be "
    "encoded ({})"
)
_MORE, _LAST = b"+", b"."
"""How a slice begins: it goes on in the next one, or not. Behind it, what is in it:"""
_OPENING, _SESSIONS, _FIELD, _END = b"o", b"s", b"f", b"e"


class Common(msgspec.Struct, array_like=True):
    """What is state of every object, beside its fields and sessions."""

    now_us: Number
    there: list[Process]
    ahead_us: dict[Process, int]
    known: frozenset[str]
    forgotten: Number
    position: Number
    """Of what was carried out last, as the object's commands know it (`Replicated.position`)."""
    fields: frozenset[str] = frozenset()
    """The fields that count: those that the classes of all replicas had at some time. Others, of later
    versions of the class, are not in the state."""
    seen: dict[Process, tuple[int, int]] = {}
    """Of each caller, the last command that was carried out (`CallId`), if histories are merged. Who called
    last comes last."""
    base: tuple[Number, Number] = (0, 0)
    """Position and checksum of the history behind the last entry that was no void update."""
    primary: Process | None = None
    """Who made the last update that was not void."""


class Opening(msgspec.Struct, array_like=True):
    """How a state begins."""

    head: Head
    common: Common


_opening = msgspec.msgpack.Decoder(Opening).decode
_number = msgspec.msgpack.Decoder(int).decode


class Unsound(OSError):
    """What came is no whole state of an object of this class."""


class Pace:
    """Lets work on a state have half of the event loop's time at most: a node that is always busy gets its
    turn late where others want the processor, too, and is missed by its group."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun = self._spent = 0.0
        self._pieces = 0

    def begin(self) -> None:
        """Some work begins: little, since nothing else is done meanwhile."""
        self._begun = self._loop.time()

    async def rest(self) -> None:
        """Some work is done: let others have their turn, where it took long."""
        self._spent += self._loop.time() - self._begun
        self._pieces += 1
        if self._spent >= WORK_S or self._pieces >= PIECES:
            await asyncio.sleep(self._spent if self._spent >= WORK_S else 0)
            self._spent, self._pieces = 0.0, 0


class Snapshot:
    """The state of an object at one place of its history."""

    def __init__(self, head: Head, common: Common, sessions: Sessions, target: Replicated) -> None:
        self.head = head
        self._opening = encode(Opening(head, common))
        self._sessions = sessions.captured()
        self._fields = target._fields.only(common.fields).captured(target)
        self._steps = (step for field in self._fields for step in field.steps())
        self.complete = False
        """Whether it is independent of the object; until then, nothing may change that."""
        self.step()

    def step(self) -> None:
        """Capture some more: for about a millisecond, unless entries are large."""
        done = 0
        while done < STEP_ENTRIES:
            some = next(self._steps, None)
            if some is None:
                self.complete = True
                return
            done += some

    async def completed(self) -> None:
        """Capture all, while the event loop goes on."""
        time = asyncio.get_running_loop().time
        while not self.complete:
            await asyncio.sleep(0)
            until = time() + CAPTURE_S
            for _ in range(PIECES):
                self.step()
                if self.complete or time() >= until:
                    break

    def slices(self, *, checked: bool = False) -> Iterator[bytes]:
        """All slices of the state, from the first one each time. `checked`: raises `TypeError` where a field
        holds what is not of its type, so that nobody could read it."""
        assert self.complete, "what is not captured yet may change"
        count = 0
        for content in self._contents(checked=checked):
            count += 1
            begin, most = 0, SLICE_BYTES - 1
            while len(content) - begin > most:
                yield _MORE + content[begin : begin + most]
                begin += most
            yield _LAST + content[begin:]
        yield _LAST + _END + encode(count)

    def _contents(self, *, checked: bool) -> Iterator[bytes]:
        yield _OPENING + self._opening
        for piece in Sessions.pieces(self._sessions):
            yield _SESSIONS + piece
        for field in self._fields:
            for piece in field.checked() if checked else field.pieces():
                yield _FIELD + piece

    async def slowly(self, *, checked: bool = False) -> AsyncIterator[bytes]:
        """The slices, while the event loop goes on."""
        slices, pace = self.slices(checked=checked), Pace()
        pace.begin()
        for data in slices:
            await pace.rest()
            yield data
            pace.begin()


class Restored:
    """A state that is made of slices again, beside what the object has."""

    def __init__(self, target: Replicated) -> None:
        self._incoming = target._fields.taking()
        self._opening: Opening | None = None
        self._count = 0
        self._begun: list[bytes] = []
        """Slices of which the last is still to come."""
        self.sessions = Sessions()
        self.whole = False
        """Whether nothing is missing."""

    @property
    def begun(self) -> bool:
        """Whether it is known at which place of the history it is."""
        return self._opening is not None

    @property
    def head(self) -> Head:
        """At which place of the history it is; known from the first slice on."""
        assert self._opening is not None
        return self._opening.head

    @property
    def common(self) -> Common:
        """What it is beside fields and sessions; known from the first slice on."""
        assert self._opening is not None
        return self._opening.common

    def add(self, data: bytes) -> None:
        """The next slice. Raises `Unsound`."""
        try:
            if data[:1] == _MORE:
                self._begun.append(data[1:])
            elif data[:1] == _LAST:
                content = b"".join((*self._begun, data[1:])) if self._begun else data[1:]
                self._begun.clear()
                self._add(content[:1], content[1:])
            else:
                raise Unsound("it holds what is no slice")
        except UNREADABLE as error:
            raise Unsound(f"it is not of this class: {error}") from error

    def _add(self, kind: bytes, content: bytes) -> None:
        if self.whole or (kind == _OPENING) != (self._opening is None):
            raise Unsound("its slices are out of order")
        if kind == _OPENING:
            self._opening = _opening(content)
            self.sessions.forgotten = self._opening.common.forgotten
        elif kind == _SESSIONS:
            self.sessions.add(content)
        elif kind == _FIELD:
            self._incoming.add(content)
        elif kind == _END:
            if _number(content) != self._count:
                raise Unsound("slices are missing")
            self.whole = True
        else:
            raise Unsound("it holds what is no slice")
        self._count += 1

    def install(self, initial: Iterable[bytes], target: Replicated) -> None:
        """Put it into an object; fields that did not come have the values of `initial`."""
        assert self.whole, "it is not taken before"
        self._incoming.finish(initial, target)
