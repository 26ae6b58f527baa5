"""An event loop in a thread of its own, and how other threads have it work."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, Protocol, TypeVar

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


class Startable(Protocol):
    """A node or a client: it works between `start` and `stop`."""

    async def start(self) -> None:
        """Begin to work."""

    async def stop(self) -> None:
        """End the work; stopping again does nothing."""


class Runner:
    """Runs a node or a client, from `start` to `stop`, on an event loop in a thread of its own."""

    def __init__(self, what: Startable, name: str, closed: type[OrdercastError]) -> None:
        """`name`: ``"Node"`` or ``"Client"``; `closed`: what calls before `start` and after `stop` raise."""
        self._what = what
        self._name = name
        self._closed = closed
        self._loop: LoopThread | None = None

    def start(self) -> None:
        """Start the thread, and have it start what it runs."""
        if self._loop is not None:
            raise self._closed(f"this {self._name.lower()} was started before: make a new {self._name}")
        self._loop = LoopThread(self._stopped)
        try:
            self._loop.do(self._what.start())
        except BaseException:
            self._loop.end()
            self._loop = None
            raise

    def stop(self) -> None:
        """Stop what it runs, then the thread. Stopping again does nothing."""
        if self._loop is not None:
            with contextlib.suppress(self._closed):
                self._loop.do(self._what.stop())
            self._loop.end()

    @property
    def loop(self) -> LoopThread:
        """The event loop; raises `closed` before `start`."""
        if self._loop is None:
            name = self._name.lower()
            raise self._closed(
                f"the {name} is not started: use `with {self._name}(…) as {name}`, or {name}.start()"
            )
        return self._loop

    def _stopped(self) -> OrdercastError:
        return self._closed(f"the {self._name.lower()} has stopped: make a new {self._name} to go on")


async def _cancel_the_rest() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


async def next_of(entries: AsyncIterator[T]) -> T | None:
    """The next one; None behind the last."""
    return await anext(entries, None)
