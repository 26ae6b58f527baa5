"""Senders that wait for room."""

from __future__ import annotations

import asyncio
from collections import deque


class Rooms:
    """Senders that wait for room, first come first served."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def wait(self) -> None:
        """Wait for one's turn."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future in self._waiting:
                self._waiting.remove(future)
            else:
                self.next()  # it was this one's turn: the next one's then
            raise

    def next(self) -> None:
        """There is room for one."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return

    def end(self, error: BaseException) -> None:
        """There will be no room any more."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error.with_traceback(None))
