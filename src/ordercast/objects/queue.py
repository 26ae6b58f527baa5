"""A replicated queue: first in, first out, for many takers; nothing is lost with one that dies."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Generic, overload

import msgspec

from ordercast.errors import CommandFailed, NoMajority, Unanswered
from ordercast.objects.tickets import Tickets
from ordercast.objects.values import V, Values
from ordercast.objects.waiting import do_later, told
from ordercast.process_groups.views import Process
from ordercast.replicated.command import command
from ordercast.replicated.replicated import Replicated, watch

MOST = 100_000
"""Elements that wait in a queue, unless it is made for more or fewer."""


class QueueFull(CommandFailed):
    """As many elements wait in a queue as it is made for."""

    def __str__(self) -> str:
        return (
            f"{self.args[0]:,} elements wait in the queue, which is its limit: put more when some are taken"
        )


class NotInHand(CommandFailed):
    """An element went back to its queue, since its taker's node was away: another one has it, or will."""

    def __str__(self) -> str:
        return "the element went back to the queue, since this node was away: somebody else gets it, too"


class Element(msgspec.Struct, array_like=True, frozen=True):
    """An element, and the position at which it was put."""

    position: int
    value: bytes


class Taker(msgspec.Struct, array_like=True, frozen=True):
    """Who waits for an element, or has one in hand."""

    process: Process
    element: Element | None = None


class Queue(Replicated, Generic[V]):
    """A queue of values of one type, the same at every node that replicates it.

        jobs = await node.replicate(Queue(str), "jobs")
        await jobs.put("sweep the floor")
        async with jobs.in_hand() as job:
            ...                            # it comes back to the queue if this fails, or the node dies

    Elements are taken in the order in which they were put, by takers in the order in which they asked.
    """

    __slots__ = ("_tickets", "_values")

    limit: int
    elements: deque[Element]
    waiting: dict[str, Taker]
    """By ticket, in their order; only while there are no elements."""
    taken: dict[str, Taker]
    """By ticket: who has which element in hand."""

    @overload
    def __init__(self, kind: type[V], *, limit: int = MOST) -> None: ...

    @overload
    def __init__(self, kind: Any = Any, *, limit: int = MOST) -> None: ...

    def __init__(self, kind: Any = Any, *, limit: int = MOST) -> None:
        """``limit``: how many elements wait in it at most; that of the first replica counts."""
        self._values: Values[V] = Values("Queue", kind)
        self._tickets = Tickets(self.enter)
        self.limit = limit
        self.elements = deque()
        self.waiting = {}
        self.taken = {}

    def __len__(self) -> int:
        """How many elements wait, as this replica has it: perhaps behind others until `sync`."""
        return len(self.elements)

    async def put(self, value: V) -> None:
        """Put an element behind the others. Raises `QueueFull` if as many wait as may."""
        await self.append(self._values.encode(value))

    async def take(self) -> V:
        """Take the first element; waits until there is one. It is gone from the queue when this returns: if
        this node dies right then, nobody has it. `in_hand` is the way without loss."""
        ticket, element = await self._take()
        try:
            await self._finish(ticket)
        except (Unanswered, NoMajority):
            do_later(partial(self.give_back, ticket))
            raise
        return self._values.decode(element.value)

    async def take_now(self) -> V | None:
        """Take the first element; None if there is none."""
        value = await self.pop()
        return None if value is None else self._values.decode(value)

    @asynccontextmanager
    async def in_hand(self) -> AsyncIterator[V]:
        """Take the first element for the time of a block; waits until there is one.

        It is gone when the block ends. If that raises, or this node dies or is cut off, it comes back to its
        place in the queue, so it may be taken more than once. Raises `NotInHand` at the end of the block if
        that has happened though the block went through; and, as commands do, `Unanswered` or `NoMajority`
        where this node is cut off just then: it is gone when the node is back, unless it went to another one.
        """
        ticket, element = await self._take()
        try:
            yield self._values.decode(element.value)
        except BaseException:
            do_later(partial(self.give_back, ticket))
            raise
        try:
            await self._finish(ticket)
        except (Unanswered, NoMajority):
            do_later(partial(self.finish, ticket))
            raise

    async def _take(self) -> tuple[str, Element]:
        ticket = await self._tickets.draw()
        try:
            with watch(self) as events:
                while (element := await self.reserve(ticket)) is None:
                    await told(events, lambda event: bool(event == ticket))
        except BaseException:
            do_later(partial(self.give_back, ticket))
            raise
        return ticket, element

    async def _finish(self, ticket: str) -> None:
        if not await self.finish(ticket):
            raise NotInHand

    # --- commands -------------------------------------------------------------------------------

    @command
    def enter(self) -> int:
        """A number that no other replica has."""
        return self.position

    @command
    def append(self, value: bytes) -> None:
        """Put an encoded element."""
        if len(self.elements) >= self.limit:
            raise QueueFull(self.limit)
        self._offer(Element(self.position, value))

    @command
    def pop(self) -> bytes | None:
        """Take an encoded element at once."""
        return self.elements.popleft().value if self.elements else None

    @command
    def reserve(self, ticket: str) -> Element | None:
        """Have an element in hand, the same one for the same ticket; None: wait for one."""
        taker = self.taken.get(ticket)
        if taker is None and self.elements:
            self.taken[ticket] = taker = Taker(self.caller, self.elements.popleft())
        if taker is None:
            self.waiting.setdefault(ticket, Taker(self.caller))
            return None
        return taker.element

    @command
    def finish(self, ticket: str) -> bool:
        """An element in hand is done with; False: it is not in hand any more."""
        return self.taken.pop(ticket, None) is not None

    @command
    def give_back(self, ticket: str) -> None:
        """Neither have an element in hand nor wait for one."""
        self._forget(ticket)

    def left(self, process: Process) -> None:
        """What a replica that left had in hand comes back."""
        for tickets in (self.waiting, self.taken):  # who left is not to get what it gives back
            for ticket in [ticket for ticket, taker in tickets.items() if taker.process == process]:
                self._forget(ticket)

    def _forget(self, ticket: str) -> None:
        self.waiting.pop(ticket, None)
        taker = self.taken.pop(ticket, None)
        if taker is not None and taker.element is not None:
            self._offer(taker.element)

    def _offer(self, element: Element) -> None:
        """Give it to the first who waits, else put it in its place among the others."""
        if self.waiting:
            ticket = next(iter(self.waiting))
            taker = self.waiting.pop(ticket)
            self.taken[ticket] = msgspec.structs.replace(taker, element=element)
            self.tell(ticket)
            return
        at = len(self.elements)
        while at and self.elements[at - 1].position > element.position:
            at -= 1
        self.elements.insert(at, element)
