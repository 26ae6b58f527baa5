"""Senders that wait for room."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class WaitingSenders:
    """Senders that wait for room, first come first served.

    Whose turn it is has the *floor*: it may send on until there is no room any more, or the next one's turn
    has come, so that turns are long enough to be worth their while. Who finds the room used up when its turn
    comes stays the first in line. So nobody is overtaken for ever by one that is quicker.
    """

    def __init__(self) -> None:
        self.waiting: deque[asyncio.Future[None]] = deque()
        self._floor = False
        """Somebody who waited is being served: whoever sends now is taken for it."""
        self._error: BaseException | None = None

    def __bool__(self) -> bool:
        """Whether a sender waits that is to be served first."""
        return bool(self.waiting) and not self._floor

    async def wait(self, there_is_room: Callable[[], bool]) -> None:
        """Wait for one's turn, and for room."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self.waiting.append(future)
        while True:
            try:
                await future
            except asyncio.CancelledError:
                self._drop(future)
                if not future.cancelled():
                    self.next()  # it was this one's turn: the next one's then
                raise
            if self._error is not None:
                raise self._error
            self._floor = there_is_room()
            if self._floor:
                self._drop(future)
                return
            place = self.waiting.index(future)
            self.waiting[place] = future = loop.create_future()

    def _drop(self, future: asyncio.Future[None]) -> None:
        if future in self.waiting:
            self.waiting.remove(future)

    def next(self, *, floor: bool = False) -> None:
        """There is room for one; with ``floor``, also for more of who is being served."""
        self._floor = floor and self._floor
        for future in self.waiting:
            if not future.cancelled():
                if not future.done():
                    future.set_result(None)
                return

    def refuse(self, error: BaseException) -> None:
        """Let all that wait now raise this error: there is no room for them."""
        for future in self.waiting:
            if not future.done():
                future.set_exception(error)
        self.waiting.clear()
        self._floor = False

    def end(self, error: BaseException) -> None:
        """Let all that wait raise this error: there will be no room any more."""
        self._error = error.with_traceback(None)
        for future in self.waiting:
            if not future.done():
                future.set_result(None)
        self.waiting.clear()
