"""An event loop in virtual time: while nothing is ready, its clock jumps to the next timer.

`asyncio.sleep` and every timer work as on any loop, and take no time. What would run in a thread runs in the
loop's own thread, at once or after `thread_s`: so the same program does the same in every run, as long as it
draws its random numbers from seeds and waits for nothing outside its process.
"""

from __future__ import annotations

import asyncio
import selectors
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


MOST_TURNS = 200_000
"""Turns of the event loop at one moment of virtual time, after which something goes round in circles."""


class _JumpingSelector(selectors.SelectSelector):
    """Instead of waiting for files, lets the time pass."""

    def __init__(self, jump: Callable[[float], None], stuck: Callable[[str], None]) -> None:
        super().__init__()
        self._jump = jump
        self._stuck = stuck
        self._turns = 0
        """Since time has passed."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        self._turns += 1
        if self._turns > MOST_TURNS:
            self._turns = 0
            self._stuck(
                f"no time passes: {MOST_TURNS:,} turns of the event loop at one moment, so something repeats "
                "itself without waiting"
            )
        if not ready:
            if timeout:
                self._turns = 0
            if timeout is None:
                self._stuck(
                    "nothing is left that could happen: every task waits for another one, or for something "
                    "outside this process, which has no place in virtual time"
                )
            else:
                self._jump(timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time begins at 0 and passes only while all tasks wait."""

    def __init__(self) -> None:
        self._time_s = 0.0
        self.thread_s: Callable[[], float] = lambda: 0.0
        """How many seconds the next call in an executor's thread takes; in asyncio's own, none."""
        self._busy_until_s: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
        """When the thread of each executor has done what it was given."""
        super().__init__(_JumpingSelector(self._pass_time, self._on_stuck))

    def _pass_time(self, seconds: float) -> None:
        if seconds > 0:
            self._time_s += seconds

    def _on_stuck(self, why: str) -> None:
        """There will be no end."""
        raise RuntimeError(why)

    def time(self) -> float:
        """Seconds of virtual time since the loop was made."""
        return self._time_s

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
