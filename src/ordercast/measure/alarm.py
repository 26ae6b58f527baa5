"""An alarm for an event loop that is more precise than the loop's own timers.

uvloop's timers run out at full milliseconds of the system's clock, in all processes at once: nodes that are
paced by them send at the same moments, which independent applications do not.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from contextlib import suppress
from types import TracebackType

CLOCK_MONOTONIC = 1
ABSOLUTE = 1
NONBLOCK = 0o4000


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("first", _Timespec))


class Alarm:
    """Wakes one task at moments of the monotonic clock (Linux: timerfd)."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.timerfd_create(CLOCK_MONOTONIC, NONBLOCK)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "no timerfd")
        self._loop = asyncio.get_running_loop()
        self._rung: asyncio.Future[None] | None = None
        self._loop.add_reader(self._fd, self._on_alarm)

    def __enter__(self) -> Alarm:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    async def until(self, moment_ns: int) -> None:
        """Sleep until a moment of `time.monotonic_ns`."""
        if moment_ns <= time.monotonic_ns():
            return
        self._rung = self._loop.create_future()
        setting = _Setting(_Timespec(0, 0), _Timespec(*divmod(moment_ns, 1_000_000_000)))
        if self._libc.timerfd_settime(self._fd, ABSOLUTE, ctypes.byref(setting), None) < 0:
            raise OSError(ctypes.get_errno(), "the alarm cannot be set")
        await self._rung

    def _on_alarm(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._fd, 8)
            if self._rung is not None and not self._rung.done():
                self._rung.set_result(None)
