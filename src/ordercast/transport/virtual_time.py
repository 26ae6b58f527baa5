"""An event loop in virtual time: while nothing is ready, its clock jumps to the next timer.

`asyncio.sleep` and every timer work as on any loop, and take no time. What would run in a thread runs in the
loop's own thread, at once or after `thread_s`: so the same program does the same in every run, as long as it
draws its random numbers from seeds and waits for nothing outside its process.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heappop, heappush
from typing import Any, TypeVar

T = TypeVar("T")

RESOLUTION_S = 1e-9
"""Timers that are as near to each other are due at one moment."""
MOST_TURNS = 200_000
"""Turns of the event loop at one moment of virtual time, after which something goes round in circles."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time begins at 0 and passes only while all tasks wait. It looks at no files."""

    def __init__(self) -> None:
        super().__init__()
        self._time_s = 0.0
        self._turns = 0
        """Since time has passed."""
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        """When each is due, in the order in which equal ones were made."""
        self._made = 0
        self.thread_s: Callable[[], float] = lambda: 0.0
        """How many seconds the next call in an executor's thread takes; in asyncio's own, none."""
        self._busy_until_s: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
        """When the thread of each executor has done what it was given."""

    def _on_stuck(self, why: str) -> None:
        """Handle a standstill: nothing is due any more, and the task has not ended."""
        raise RuntimeError(why)

    def time(self) -> float:
        """Seconds of virtual time since the loop was made."""
        return self._time_s

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call it at that time."""
        return self._due_at(when, asyncio.TimerHandle(when, callback, args, self, context))

    def _due_at(self, when: float, handle: asyncio.TimerHandle) -> asyncio.TimerHandle:
        self._made += 1
        heappush(self._timers, (when, self._made, handle))
        return handle

    def _run_once(self) -> None:
        """Take the place of asyncio's own turn, which asks the kernel for files each time: let the time pass
        if nothing is ready, and call what is."""
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        while timers and timers[0][2].cancelled():
            heappop(timers)
        if ready or self._stopping:  # type: ignore[attr-defined]
            self._turns += 1
            if self._turns > MOST_TURNS:
                self._turns = 0
                self._on_stuck(
                    f"no time passes: {MOST_TURNS:,} turns of the event loop at one moment, so something "
                    "repeats itself without waiting"
                )
        elif not timers:
            self._on_stuck(
                "nothing is left that could happen: every task waits for another one, or for something "
                "outside this process, which has no place in virtual time"
            )
        elif timers[0][0] > self._time_s:
            self._time_s, self._turns = timers[0][0], 0
        until_s = self._time_s + RESOLUTION_S
        while timers and timers[0][0] < until_s:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Call it when it would be done: a thread would take real time, and a different one in each run."""
        future: asyncio.Future[T] = self.create_future()

        def call() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 - it is for whoever awaits the future
                future.set_exception(error)

        takes_s = 0.0 if executor is None else self.thread_s()
        if takes_s > 0:
            at_s = max(self._busy_until_s.get(executor, 0.0), self._time_s) + takes_s
            self._busy_until_s[executor] = at_s
            self.call_at(at_s, call)
        else:
            call()
        return future


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time; as `asyncio.run` does in real time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
