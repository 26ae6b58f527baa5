"""What a node does once a second, until it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ordercast.groups.lifetime import Lifetime

Chore = Callable[[float], Awaitable[None] | None]
"""Something that is due once a second; is told how many seconds the node could read since the last time."""

INTERVAL_S = 1.0


class Upkeep:
    """Calls a node's periodic jobs, once a second and in order."""

    def __init__(self, lifetime: Lifetime, *chores: Chore) -> None:
        """`chores` are done in this order, until the end of `lifetime`."""
        self._lifetime = lifetime
        self._chores = chores
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Do the chores once a second from now on."""
        self._task = asyncio.create_task(self._run(), name="ordercast")

    def close(self) -> None:
        """Do the chores no longer."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._lifetime.over:
            before = loop.time()
            await asyncio.sleep(INTERVAL_S)
            # a process that was stopped, or whose event loop was busy, could not read meanwhile
            elapsed_s = min(loop.time() - before, 2 * INTERVAL_S)
            for chore in self._chores:
                under_way = chore(elapsed_s)
                if under_way is not None:
                    await under_way
