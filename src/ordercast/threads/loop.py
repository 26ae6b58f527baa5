"""An event loop in a thread of its own, and how other threads have it work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from ordercast.errors import OrdercastError

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self, ended: Callable[[], OrdercastError]) -> None:
        """`ended` makes the error for work that comes when it is over, or that is cut off by that."""
        self._ended = ended
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="ordercast", daemon=True)
        self._lock = threading.Lock()
        self._over = False
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the loop do it, and wait for the result. Interrupted, it is given up there too."""
        with self._lock:
            if self._over:
                work.close()
                raise self._ended()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise self._ended() from None
        except BaseException:
            future.cancel()
            raise

    def end(self) -> None:
        """Stop the thread; what still waits on the loop is cancelled, and nothing comes after."""
        with self._lock:
            first, self._over = not self._over, True
            rest = asyncio.run_coroutine_threadsafe(_cancel_the_rest(), self._loop) if first else None
        if rest is not None:
            try:
                rest.result()
            finally:
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


async def _cancel_the_rest() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


async def next_of(entries: AsyncIterator[T]) -> T | None:
    """The next one; None behind the last."""
    return await anext(entries, None)
