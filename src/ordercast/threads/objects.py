"""Replicated objects, locks and elections for programs without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Generic, TypeVar

from ordercast.objects import election, holding, lock
from ordercast.replicated.replicated import Replicated
from ordercast.threads.loop import LoopThread

T = TypeVar("T")
Object = TypeVar("Object", bound=Replicated)


class Replica(Generic[Object]):
    """A replicated object. It belongs to the event loop: what is done with it is handed over as a function.

    accounts = node.replicate(Accounts(), "accounts")
    accounts.do(lambda accounts: accounts.transfer("a", "b", 5))
    balances = accounts.read(lambda accounts: dict(accounts.balance))
    """

    def __init__(self, loop: LoopThread, target: Object) -> None:
        self._loop = loop
        self._target = target

    def do(self, work: Callable[[Object], Awaitable[T]]) -> T:
        """Call a command, or whatever else is awaited, and wait for its result."""

        async def do() -> T:
            return await work(self._target)

        return self._loop.do(do())

    def read(self, look: Callable[[Object], T]) -> T:
        """Look at the state, while nothing changes it. What is returned should be a copy."""

        async def read() -> T:
            return look(self._target)

        return self._loop.do(read())

    @contextmanager
    def block(self, begin: Callable[[Object], AbstractAsyncContextManager[T]]) -> Iterator[T]:
        """A block for which something is held: ``with jobs.block(lambda jobs: jobs.in_hand()) as job``."""
        with _block(self._loop, lambda: begin(self._target)) as inside:
            yield inside

    def each(self, begin: Callable[[Object], AsyncIterator[T]]) -> Iterator[T]:
        """Iterate: ``for change in settings.each(lambda settings: settings.watch())``."""

        async def started() -> AsyncIterator[T]:
            return begin(self._target)

        return _each(self._loop, self._loop.do(started()))


class Held:
    """A lock that is held, or an election that was won."""

    def __init__(self, loop: LoopThread, held: holding.Held) -> None:
        self._loop = loop
        self._held = held
        self.token = held.token
        """The fencing token. See `ordercast.Held`."""

    @property
    def lost(self) -> bool:
        """Whether somebody else may hold it."""
        return self._held.lost.is_set()

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Wait until it is lost, for so many seconds at most; whether it is."""
        return self._loop.do(self._wait_lost(timeout))

    async def _wait_lost(self, timeout: float | None) -> bool:
        try:
            async with asyncio.timeout(timeout):
                await self._held.lost.wait()
        except TimeoutError:
            return False
        return True

    def release(self) -> None:
        """Hold it no longer."""
        self._loop.do(self._held.release())


class Lock:
    """A lock that one thread of all nodes holds at a time. See `ordercast.Lock`.

    with node.lock("cron").held() as held:
        job(fence=held.token)
    """

    def __init__(self, loop: LoopThread, lock: lock.Lock) -> None:
        self._loop = loop
        self._lock = lock

    @contextmanager
    def held(self) -> Iterator[Held]:
        """Hold it for a block, after those who asked before."""
        held = self.acquire()
        try:
            yield held
        finally:
            held.release()

    def acquire(self) -> Held:
        """Hold it, after those who asked before."""
        return Held(self._loop, self._loop.do(self._lock.acquire()))

    def try_acquire(self) -> Held | None:
        """Hold it if nobody does; else None."""
        held = self._loop.do(self._lock.try_acquire())
        return None if held is None else Held(self._loop, held)

    def holder(self) -> lock.Holder | None:
        """Who holds it; not older than this call."""
        return self._loop.do(self._lock.holder())


class Election(Lock):
    """An election: a lock whose holder all know. See `ordercast.Election`."""

    def __init__(self, loop: LoopThread, election: election.Election) -> None:
        super().__init__(loop, election)
        self._election = election

    def leader(self) -> lock.Holder | None:
        """Who leads; not older than this call."""
        return self.holder()

    def watch(self) -> Iterator[lock.Holder | None]:
        """Who leads now, then each who is elected, and None where nobody is."""
        return _each(self._loop, self._election.watch())


def _each(loop: LoopThread, events: AsyncIterator[T]) -> Iterator[T]:
    async def following() -> T:
        return await anext(events)

    while True:
        try:
            event = loop.do(following())
        except StopAsyncIteration:
            return
        yield event


@contextmanager
def _block(loop: LoopThread, begin: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[T]:
    async def enter() -> tuple[AbstractAsyncContextManager[T], T]:
        block = begin()
        return block, await block.__aenter__()

    async def leave(error: BaseException | None) -> bool | None:
        return await block.__aexit__(None if error is None else type(error), error, None)

    block, inside = loop.do(enter())
    try:
        yield inside
    except BaseException as error:
        if not loop.do(leave(error)):
            raise
    else:
        loop.do(leave(None))
