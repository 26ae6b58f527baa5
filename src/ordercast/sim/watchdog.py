"""Notices a machine that does not return from an event, by the processor time that it takes.

A campaign over thousands of seeds must not hang on one of them. Time on the wall is no measure, since the
computer may be busy with others; a timer that runs while this process computes is. It looks at intervals
whether any event was handled since the last time.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

EVENT_S = 10.0
"""Processor time that an event may take, in seconds: it takes milliseconds at most. One that takes twice as
long is noticed in any case."""


class NeverReturned(Exception):
    """A machine was given an event, and goes on computing. ``str(error)`` says where."""


@contextmanager
def watched(handled: Callable[[], int], seconds: float | None = None) -> Iterator[None]:
    """Raise `NeverReturned` out of what is done meanwhile if `handled`, a count, stands still for too long.

    Only the main thread of a process can be interrupted so: in another one nothing is watched.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    limit_s = EVENT_S if seconds is None else seconds
    before = -1

    def look(number: int, frame: FrameType | None) -> None:
        nonlocal before
        now = handled()
        if now == before:
            code = None if frame is None else frame.f_code
            where = "" if code is None or frame is None else f" in {code.co_qualname} (line {frame.f_lineno})"
            raise NeverReturned(
                f"a machine never returned from event {now} of the run: after {limit_s:g} s of processor "
                f"time it was still{where}"
            )
        before = now

    earlier = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, limit_s, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, earlier)
