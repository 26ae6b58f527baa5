"""A machine's timers on an event loop: one alarm for the earliest of them.

A timer is set anew far more often than it runs out. So setting it to a later time only moves its deadline,
and the alarm, when it comes up too early, is put back. Where timers are set seldom, in a group with nothing
to do, it is put back when they are set: that is cheap there, and the process is not woken for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ordercast.runtime.health import Lag

SELDOM_US = 20_000
"""An alarm that was put somewhere less than this ago stays there, where only later deadlines are set."""


class Timers:
    """Timers by name; each runs out once, later by as much as this node itself is late."""

    def __init__(self, lag: Lag, now_us: Callable[[], int], on_alarm: Callable[[], None]) -> None:
        self._lag = lag
        self._now_us = now_us
        self._on_alarm = on_alarm
        self._deadlines: dict[str, int] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_us = 0
        self._armed_us = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, now_us: int, name: str, delay_us: int) -> None:
        """Start a timer, or start it again."""
        deadline = now_us + delay_us + self._lag.stretch_us
        self._deadlines[name] = deadline
        if self._alarm is None or deadline < self._alarm_us:
            self.arm(now_us, deadline)
        elif now_us - self._armed_us >= SELDOM_US and now_us < self._alarm_us:
            first = min(self._deadlines.values())
            if first > self._alarm_us:
                self.arm(now_us, first)

    def cancel(self, name: str) -> None:
        """Stop a timer, if it runs."""
        self._deadlines.pop(name, None)

    def arm(self, now_us: int, deadline_us: int) -> None:
        """Have the alarm come up then."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_us = deadline_us
        self._armed_us = now_us
        delay_s = max(0, deadline_us - now_us) / 1_000_000
        self._alarm = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._lag.note(self._now_us() - self._alarm_us)
        self._on_alarm()

    def any_due(self, now_us: int) -> bool:
        """Whether a timer has run out."""
        return min(self._deadlines.values(), default=now_us + 1) <= now_us

    def take_due(self, now_us: int) -> str | None:
        """The one that ran out first, which then runs no more; None if none has."""
        if not self.any_due(now_us):
            return None
        name = min(self._deadlines, key=self._deadlines.__getitem__)
        del self._deadlines[name]
        return name

    def rearm(self, now_us: int) -> None:
        """Have the alarm come up for the earliest timer, if there is one."""
        first = min(self._deadlines.values(), default=None)
        if first is not None and (self._alarm is None or first < self._alarm_us):
            self.arm(now_us, first)

    def close(self) -> None:
        """No timer runs out any more."""
        self._deadlines.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
