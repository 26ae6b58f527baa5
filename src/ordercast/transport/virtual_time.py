"""An event loop in virtual time: while nothing is ready, its clock jumps to the next timer.

`asyncio.sleep` and every timer work as on any loop, and take no time. What would run in a thread runs at
once, in the loop's own thread: so the same program does the same in every run, as long as it draws its random
numbers from seeds and waits for nothing outside its process.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.SelectSelector):
    """Instead of waiting for files, lets the time pass."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError(
                    "nothing is left that could happen: every task waits for another one, or for something "
                    "outside this process, which has no place in virtual time"
                )
            self._jump(timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time begins at 0 and passes only while all tasks wait."""

    def __init__(self) -> None:
        self._time_s = 0.0
        super().__init__(_JumpingSelector(self._pass_time))

    def _pass_time(self, seconds: float) -> None:
        if seconds > 0:
            self._time_s += seconds

    def time(self) -> float:
        """Seconds of virtual time since the loop was made."""
        return self._time_s

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Call it at once: a thread would take real time, and a different one in each run."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is for whoever awaits the future
            future.set_exception(error)
        return future


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time; as `asyncio.run` does in real time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
