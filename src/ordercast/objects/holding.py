"""What a node does about leases: it holds and renews its own, and notices where others' are not renewed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Literal, Self

from ordercast.errors import Evicted, NodeClosed, OrdercastError
from ordercast.objects.leases import Changed, Lease, Leases
from ordercast.replicated.replicated import watch
from ordercast.replicated.session import outside

LOG = logging.getLogger("ordercast")

NAME = "$LEASES"
"""The object that has the state of all locks and elections."""
TTL_S = 5.0
"""Seconds for which a lease lasts, unless it is renewed."""
MARGIN = 0.2
"""The part of that for which its holder gives it up before others may have it."""
RENEWALS = 4
"""How often a lease is renewed in the time that it lasts."""
AGAIN_S = 1.0
"""How long a replica waits before it asks once more that a lease end."""


class Lost(asyncio.Event):
    """Set when a lease may have ended elsewhere, which follows from the clock: also where the event loop was
    held up, so that nobody could set it in time."""

    def __init__(self) -> None:
        super().__init__()
        self._time = asyncio.get_running_loop().time
        self._until = self._time()

    def hold_until(self, at: float) -> None:
        """Have it set at that time of the event loop."""
        self._until = at

    def is_set(self) -> bool:
        """Whether the lease may have ended."""
        return super().is_set() or self._time() >= self._until

    async def wait(self) -> Literal[True]:
        """Wait until the lease may have ended."""
        return True if self.is_set() else await super().wait()


class Held:
    """A lease that is held here: a lock, or an election that was won."""

    def __init__(
        self, leases: Leases, name: str, ticket: str, token: int, beat: int, asked: float, ttl: float
    ) -> None:
        """`asked`: the time of the event loop at which it was asked for, by that beat."""
        self.token = token
        """The fencing token: larger than that of whoever held it before. Hand it to what is used under the
        lease, and have it refuse smaller ones than it has seen."""
        self.lost = Lost()
        """Set when the lease may have ended: somebody else may hold it from then on, or soon."""
        self._leases = leases
        self._name = name
        self._ticket = ticket
        self._beat = beat
        self._ttl = ttl
        self._loop = asyncio.get_running_loop()
        self._alarm = self._extend(asked)
        self._renewing = asyncio.create_task(self._renew(), name=f"ordercast-lease-{name}", context=outside())

    def _extend(self, asked: float) -> asyncio.TimerHandle:
        until = asked + self._ttl * (1 - MARGIN)
        self.lost.hold_until(until)
        return self._loop.call_at(until, self.lost.set)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._ttl / RENEWALS)
            if self.lost.is_set():
                return
            asked = self._loop.time()
            self._beat += 1
            try:
                held = await self._leases.renew(self._name, self._ticket, self._beat)
            except OrdercastError as error:
                LOG.warning("the lease %s is lost: %s", self._name, error)
                held = False
            if not held:
                self.lost.set()
            if self.lost.is_set():
                return
            self._alarm.cancel()
            self._alarm = self._extend(asked)

    async def release(self) -> None:
        """Hold it no longer. Where that cannot be told to the others, it ends by itself."""
        over = self.lost.is_set()
        self.lost.set()
        self._renewing.cancel()
        self._alarm.cancel()
        if not over:
            await withdraw(self._leases, self._name, self._ticket, self._ttl)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()


async def withdraw(leases: Leases, name: str, ticket: str, ttl: float) -> None:
    """Neither hold a lease nor wait for it; where the others cannot be told, it ends without that."""
    try:
        async with asyncio.timeout(ttl):
            await leases.release(name, ticket)
    except (OrdercastError, TimeoutError) as error:
        LOG.info("the lease %s was not given back, and ends by itself: %s", name, error)


class Holding:
    """The leases of a node."""

    def __init__(self, replicate: Callable[[Leases, str], Awaitable[Leases]]) -> None:
        self._replicate = replicate
        self._opening: asyncio.Task[Leases] | None = None
        self._seen: dict[str, tuple[str, int]] = {}
        """Of each lease that is held, ticket and beat;"""
        self._due: dict[str, asyncio.TimerHandle] = {}
        """what is called when it was not renewed in time."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._mine: weakref.WeakSet[Held] = weakref.WeakSet()
        self._waiting: dict[str, asyncio.Event] = {}
        """By ticket: set when a lease was given to it."""
        self._closed = False
        self._open()

    def _open(self) -> asyncio.Task[Leases]:
        """Have the state of all leases here."""
        opening = self._opening
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception() is not None)):
            self._opening = opening = asyncio.create_task(
                self._begin(), name="ordercast-leases", context=outside()
            )
            opening.add_done_callback(lambda task: task.cancelled() or task.exception())  # who waits has it
        return opening

    async def _begin(self) -> Leases:
        leases = await self._replicate(Leases(), NAME)
        self._do(self._look_after(leases))
        return leases

    @property
    def here(self) -> Leases | None:
        """The state of all leases, if it is here."""
        opening = self._opening
        done = opening is not None and opening.done() and not opening.cancelled()
        return opening.result() if opening is not None and done and opening.exception() is None else None

    async def leases(self) -> Leases:
        """The state of all leases, once it is here."""
        if self._closed:
            raise NodeClosed("the node has ended: start another one")
        return await asyncio.shield(self._open())

    def _do(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, context=outside())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Release what is held here, and look after leases no longer."""
        self._closed = True
        await asyncio.gather(*(each.release() for each in tuple(self._mine)))
        for handle in self._due.values():
            handle.cancel()
        for task in (*self._tasks, *((self._opening,) if self._opening else ())):
            task.cancel()

    # --- leases of this node --------------------------------------------------------------------

    async def acquire(self, name: str, ttl: float, says: str, *, wait: bool) -> Held | None:
        """Hold a lease; None if somebody else does, and `wait` does not say to wait for it."""
        leases, loop = await self.leases(), asyncio.get_running_loop()
        ticket, beat, ttl_us = await leases.tickets.draw(), 0, round(ttl * 1_000_000)
        given = self._waiting[ticket] = asyncio.Event()
        try:
            while True:
                given.clear()
                asked, beat = loop.time(), beat + 1
                token = await leases.acquire(name, ticket, beat, ttl_us, wait, says)
                if token and loop.time() < asked + ttl * (1 - MARGIN):
                    held = Held(leases, name, ticket, token, beat, asked, ttl)
                    self._mine.add(held)
                    return held
                if not token and not wait:
                    return None
                with contextlib.suppress(TimeoutError):  # asks again by itself: it may have been forgotten
                    async with asyncio.timeout(0 if token else ttl / 2):
                        await given.wait()
        except BaseException:
            self._do(withdraw(leases, name, ticket, ttl))
            raise
        finally:
            del self._waiting[ticket]

    # --- leases of all --------------------------------------------------------------------------

    async def _look_after(self, leases: Leases) -> None:
        """Have leases end that are not renewed, and wake who waits for one."""
        while True:
            try:
                with watch(leases) as events:
                    self._look_at_all(leases)
                    async for event in events:
                        if not isinstance(event, Changed):
                            self._look_at_all(leases)
                            continue
                        self._see(leases, event.name, event.lease)
                        if event.lease is not None and event.lease.ticket in self._waiting:
                            self._waiting[event.lease.ticket].set()
                    return
            except Evicted:
                continue  # this node was busy with other things: look at all of them

    def _look_at_all(self, leases: Leases) -> None:
        for name in [*self._seen, *leases.held]:
            self._see(leases, name, leases.held.get(name))
        for given in self._waiting.values():
            given.set()

    def _see(self, leases: Leases, name: str, lease: Lease | None) -> None:
        seen = None if lease is None else (lease.ticket, lease.beat)
        if seen == self._seen.get(name):
            return
        if name in self._due:
            self._due.pop(name).cancel()
        self._seen.pop(name, None)
        if lease is not None:
            self._seen[name] = seen = lease.ticket, lease.beat
            self._call_later(lease.ttl_us / 1_000_000, leases, name, seen)

    def _call_later(self, seconds: float, leases: Leases, name: str, seen: tuple[str, int]) -> None:
        loop = asyncio.get_running_loop()
        self._due[name] = loop.call_later(seconds, lambda: self._do(self._expire(leases, name, seen)))

    async def _expire(self, leases: Leases, name: str, seen: tuple[str, int]) -> None:
        if self._seen.get(name) != seen:
            return  # in the same turn of the event loop it was told of another one
        self._call_later(AGAIN_S, leases, name, seen)
        try:
            await leases.expire(name, *seen)
        except OrdercastError as error:
            LOG.debug("the lease %s does not end yet: %s", name, error)
