"""What was asked of an object at one replica, until it is answered: commands, and marks in the order.

Commands of one turn of the event loop travel together (`packed`), and so do their answers. All wait equally
long for these, so that there is one deadline at a time: that of whoever waits longest.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec

from ordercast.core.identity import ConfigurationId
from ordercast.errors import OrdercastError, Unanswered
from ordercast.replicated.command import Form, listed
from ordercast.replicated.notes import Calls, RoundId, Run
from ordercast.replicated.outcome import NOTHING, result_of

MOST_PENDING = 4_096
"""Commands of a replica that wait for their answers; further calls wait for these."""
MOST_BYTES = 64 * 1024
"""Bytes of commands that travel together, unless one has more."""
OVERHEAD = 64
"""Bytes that a command counts for beyond its arguments: as much as the longest head of its run, nearly."""
_shape = attrgetter("shape")


class Asked(msgspec.Struct, eq=False):
    """A command, or a mark, that waits for its answer."""

    number: int
    since: int
    """A position that the history had reached by then."""
    future: asyncio.Future[Any]
    deadline: float
    """When the caller is told that there is no answer."""
    shape: str
    """The command's shape; empty for a mark, which is no command."""
    form: Form | None
    arguments: bytes
    queued: bool = True
    """Whether the command waits in the outbox."""
    sent_in: ConfigurationId | None = None
    """The configuration in which it was sent last; None: it has not left this replica."""
    sent_us: int = 0
    """When it was sent first."""
    named: tuple[int, int] | None = None
    """The session within which it was called, and its number there; None: that of the replica."""

    @property
    def may_be_carried_out(self) -> bool:
        """Whether it is a command, and has left this replica."""
        return self.sent_in is not None and self.form is not None


class Asking:
    """All that was asked at a replica and has no answer."""

    def __init__(self, timeout: float | None, unanswered: Callable[[Asked, str], OrdercastError]) -> None:
        """`timeout`: seconds until the caller is told, by `unanswered`, that there is no answer."""
        self._timeout = timeout
        self._unanswered = unanswered
        self._loop = asyncio.get_running_loop()
        self._numbers = 0
        self._floor = 1
        self._asked: dict[int, Asked] = {}
        """Commands without an answer, in the order of their numbers."""
        self._named: dict[tuple[int, int], list[Asked]] = {}
        """Commands of sessions that outlive the replica, by session and number."""
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: deque[tuple[float, asyncio.Future[None]]] = deque()
        """Calls that wait for room, and until when."""
        self._admitted = 0
        """Of these, how many were told that there is room, and have not asked yet."""

    @property
    def has_room(self) -> bool:
        """Whether something may be asked now, by somebody who has not waited."""
        return not self._waiting and len(self._asked) + self._admitted < MOST_PENDING

    @property
    def alone(self) -> bool:
        """Whether somebody waits for one answer, and nobody for another."""
        return len(self._asked) == 1

    @property
    def floor(self) -> int:
        """Everything below this number is answered, or nobody waits for it."""
        while self._floor <= self._numbers and self._floor not in self._asked:
            self._floor += 1
        return self._floor

    @property
    def unanswered(self) -> list[Asked]:
        """What somebody waits for, in the order of the numbers."""
        return [asked for asked in self._asked.values() if not asked.future.done()]

    async def room(self) -> float:
        """Wait until there is room, for one's turn; the deadline for what is asked then. Raises
        `TimeoutError` at that time, and what `fail` says."""
        deadline, waiter = self._deadline(), self._loop.create_future()
        self._waiting.append((deadline, waiter))
        self._look_at(deadline)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled() and waiter.exception() is None:
                self._admitted -= 1  # it was told, and will not ask
                self._admit()
            raise
        self._admitted -= 1
        return deadline

    def _admit(self) -> None:
        while self._waiting and len(self._asked) + self._admitted < MOST_PENDING:
            _, waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._admitted += 1

    def ask(
        self, since: int, shape: str, form: Form | None, arguments: bytes, deadline: float | None = None
    ) -> Asked:
        """Something is asked; its future is resolved by the answer. `deadline`: of who has waited for room
        (`room`)."""
        self._numbers += 1
        if deadline is None:
            deadline = self._deadline()
        if self._timer is None:
            self._look_at(deadline)
        asked = Asked(self._numbers, since, self._loop.create_future(), deadline, shape, form, arguments)
        self._asked[asked.number] = asked
        return asked

    def _deadline(self) -> float:
        """Of what begins to wait now."""
        return math.inf if self._timeout is None else self._loop.time() + self._timeout

    def forget(self, asked: Asked) -> None:
        """Nobody waits for this answer any more."""
        self._asked.pop(asked.number, None)
        self._forget_name(asked)
        self._admit()

    def _forget_name(self, asked: Asked) -> None:
        if asked.named is not None:
            others = [each for each in self._named.pop(asked.named, ()) if each is not asked]
            if others:
                self._named[asked.named] = others

    def name(self, asked: Asked, named: tuple[int, int]) -> None:
        """A command was called within a session that may be gone on with elsewhere, and has a number
        there."""
        asked.named = named
        self._named.setdefault(named, []).append(asked)

    @property
    def sessions(self) -> set[int]:
        """Sessions beside the replica's own that wait for answers here."""
        return {session for session, _ in self._named}

    def answered(self, first: int, outcomes: Sequence[bytes]) -> None:
        """Commands of the replica's own session have their outcomes, from this number on."""
        for number, outcome in enumerate(outcomes, first):
            asked = self._asked.get(number)
            if asked is None or asked.form is None or asked.named is not None:
                continue
            del self._asked[number]
            _resolve(asked, outcome)
        if self._waiting:
            self._admit()

    def answered_in(self, session: int, first: int, outcomes: Sequence[bytes]) -> None:
        """Commands of another session have their outcomes, from this number on."""
        for number, outcome in enumerate(outcomes, first):
            for asked in self._named.pop((session, number), ()):
                self._asked.pop(asked.number, None)
                _resolve(asked, outcome)
        self._admit()

    def reached(self, number: int) -> None:
        """Everything before a mark is carried out: tell who waits for that."""
        asked = self._asked.pop(number, None)
        if asked is not None and not asked.future.done():
            asked.future.set_result(None)
        self._admit()

    def fail(self, error: Callable[[Asked], BaseException], waiting: BaseException) -> None:
        """Nothing is answered any more: everybody gets an error, those who wait for room this one."""
        failed, self._asked = self._asked, {}
        self._named.clear()
        for asked in failed.values():
            if not asked.future.done():
                asked.future.set_exception(error(asked))
        waiters, self._waiting = self._waiting, deque()
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(waiting)

    # --- deadlines ------------------------------------------------------------------------------

    def _look_at(self, deadline: float) -> None:
        """Look then who has waited too long, unless that is done before."""
        if self._timer is None and deadline < math.inf:
            self._timer = self._loop.call_at(deadline, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        now, then = self._loop.time(), math.inf
        for asked in self.unanswered:
            if asked.deadline > now:
                then = asked.deadline
                break
            del self._asked[asked.number]
            self._forget_name(asked)
            asked.future.set_exception(self._unanswered(asked, f"for {self._timeout:g} s"))
        while self._waiting and self._waiting[0][0] <= now:
            _, waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(TimeoutError())
        if self._waiting:
            then = min(then, self._waiting[0][0])
        self._look_at(then)
        self._admit()


def unanswered(name: str, asked: Asked, how_long: str, why: str) -> OrdercastError:
    """What the caller is told who waited in vain for an answer of the object of this name; `why` the replicas
    do not go on, if that is known."""
    because = f": {why}" if why else ""
    if asked.form is None:
        return Unanswered(f"{name} was not up to date {how_long}{because}; try again")
    command = asked.shape.partition("(")[0]
    return Unanswered(
        f"{command} of {name} was not answered {how_long}{because}. It may have been carried out, or may yet "
        "be: look at the state before it is called again; within a Session it can be repeated"
    )


def _resolve(asked: Asked, outcome: bytes) -> None:
    if asked.future.done():
        return
    if outcome == NOTHING:
        asked.future.set_result(None)
        return
    assert asked.form is not None, "a mark has no outcome"
    try:
        asked.future.set_result(result_of(outcome, asked.form))
    except Exception as error:  # noqa: BLE001 - what comes of the command: the caller gets it
        asked.future.set_exception(error)


def together(outbox: Iterable[object], most: int) -> list[Asked]:
    """The commands at the head of an outbox that can travel together, in so many bytes, unless the first has
    more; none if the first one is no command."""
    found: list[Asked] = []
    size = 0
    for asked in outbox:
        if not isinstance(asked, Asked) or asked.form is None:
            break
        size += len(asked.arguments) + len(asked.shape) + OVERHEAD
        if found and (asked.number != found[-1].number + 1 or size > most or asked.future.done()):
            break
        if found and asked.sent_us != found[0].sent_us:
            break
        if asked.named is not None:
            return found or [asked]
        found.append(asked)
    return found


def packed(
    commands: Sequence[Asked],
    session: int,
    floor: int,
    now_us: int,
    sent_us: int = 0,
    round: RoundId | None = None,
) -> Calls:
    """Commands as they travel together; their numbers follow each other. `sent_us`: the time that they get if
    they are sent for the first time."""
    first = commands[0]
    sent = (first.sent_us or sent_us, round)
    if first.named is not None:
        session, number = first.named
        runs = [Run(first.shape, listed([first.arguments]))]
        return Calls(session, number, 0, first.since, now_us, runs, *sent)
    runs = [
        Run(shape, listed([each.arguments for each in some])) for shape, some in groupby(commands, key=_shape)
    ]
    return Calls(session, first.number, floor, first.since, now_us, runs, *sent)
