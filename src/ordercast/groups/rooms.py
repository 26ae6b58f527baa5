"""Senders that wait for room."""

from __future__ import annotations

import asyncio
from collections import deque


class Rooms:
    """Senders that wait for room, first come first served.

    Who is told that it is its turn stays the first in line until it has gone on: nobody who comes meanwhile,
    or was served just now and has more, gets in before.
    """

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
            self._drop(future)
            if not future.cancelled():
                self.next()  # it was this one's turn: the next one's then
            raise
        self._drop(future)

    def _drop(self, future: asyncio.Future[None]) -> None:
        if future in self._waiting:
            self._waiting.remove(future)

    def next(self) -> None:
        """There is room for one."""
        for future in self._waiting:
            if not future.cancelled():
                if not future.done():
                    future.set_result(None)
                return

    def end(self, error: BaseException) -> None:
        """There will be no room any more."""
        for future in self._waiting:
            if not future.done():
                future.set_exception(error.with_traceback(None))
        self._waiting.clear()
