"""A lock that one task of all nodes holds at a time."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import NamedTuple

from ordercast.errors import ConfigProblem
from ordercast.objects.holding import Held, Holding
from ordercast.objects.leases import Lease
from ordercast.process_groups.views import Process


class Holder(NamedTuple):
    """Who holds a lock, or leads."""

    process: Process
    """The replica through which it does; ``process.node`` is its node."""
    token: int
    """The fencing token: greater than that of every earlier holder."""
    says: str
    """What it says of itself."""

    @staticmethod
    def of(lease: Lease | None) -> Holder | None:
        """Who has a lease; None if nobody does."""
        return None if lease is None else Holder(lease.process, lease.token, lease.says)


class Lock:
    """A lock by name: `Node.lock`. Tasks of all nodes that ask for it hold it one after the other, in the
    order in which they asked.

        async with node.lock("cron") as held:
            await job(fence=held.token)

    It is held by a lease, which is renewed until the block ends. If the node dies or is cut off, others have
    it when the lease has run out, and `Held.lost` is set before that.
    """

    def __init__(self, holding: Holding, name: str, ttl: float, says: str = "") -> None:
        if not ttl > 0:
            raise ConfigProblem(f"ttl is {ttl}: give the seconds for which a lease lasts without renewal")
        self._holding = holding
        self._name = name
        self._ttl = ttl
        self._says = says
        self._blocks: dict[asyncio.Task[object] | None, list[Held]] = {}
        """What is held by blocks, by task."""

    async def acquire(self) -> Held:
        """Hold it, after those who asked before: release it with `Held.release`, or use that as an
        asynchronous context manager. Who is cancelled while it waits loses its turn."""
        held = await self._holding.acquire(self._name, self._ttl, self._says, wait=True)
        assert held is not None
        return held

    async def try_acquire(self) -> Held | None:
        """Hold it if nobody does; else None."""
        return await self._holding.acquire(self._name, self._ttl, self._says, wait=False)

    async def holder(self) -> Holder | None:
        """Who holds it, or is about to know that it does; not older than this call."""
        leases = await self._holding.leases()
        await leases.sync()
        return Holder.of(leases.held.get(self._name))

    async def __aenter__(self) -> Held:
        held = await self.acquire()
        self._blocks.setdefault(asyncio.current_task(), []).append(held)
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        if task not in self._blocks:  # another one has entered the block, as with fixtures of tests
            task = next(iter(self._blocks))
        held = self._blocks[task].pop()
        if not self._blocks[task]:
            del self._blocks[task]
        await held.release()
