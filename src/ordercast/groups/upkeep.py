"""What a node does once a second, until it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ordercast.groups.lifetime import Lifetime

Duty = Callable[[float], Awaitable[None] | None]
"""Something that is due once a second; is told how many seconds the node could read since the last time."""

INTERVAL_S = 1.0


class Upkeep:
    """Does what is due once a second, in order."""

    def __init__(self, lifetime: Lifetime, *duties: Duty) -> None:
        """Until the end of `lifetime`."""
        self._lifetime = lifetime
        self._duties = duties
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """From now on."""
        self._task = asyncio.create_task(self._run(), name="ordercast")

    def close(self) -> None:
        """No longer."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._lifetime.over:
            before = loop.time()
            await asyncio.sleep(INTERVAL_S)
            # a process that was stopped, or whose event loop was busy, could not read meanwhile
            elapsed_s = min(loop.time() - before, 2 * INTERVAL_S)
            for duty in self._duties:
                under_way = duty(elapsed_s)
                if under_way is not None:
                    await under_way
