"""Alarms that wake one task at a moment of the monotonic clock."""

from __future__ import annotations

import asyncio
import time

import pytest
import uvloop

from ordercast.measure.alarm import Alarm


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_nobody_wakes_before_the_moment_and_all_moments_come(loop: object) -> None:
    async def main() -> None:
        with Alarm() as alarm:
            for delay_ns in (300_000, -5, 1, 2_000_000, 150_000):
                moment = time.monotonic_ns() + delay_ns
                await alarm.until(moment)
                assert time.monotonic_ns() >= moment

    with asyncio.Runner(loop_factory=loop) as runner:  # type: ignore[arg-type]
        runner.run(main())


def test_who_gives_up_waiting_may_wait_again() -> None:
    async def main() -> None:
        with Alarm() as alarm:
            far = asyncio.ensure_future(alarm.until(time.monotonic_ns() + 10**12))
            await asyncio.sleep(0)
            far.cancel()
            moment = time.monotonic_ns() + 100_000
            await alarm.until(moment)
            assert time.monotonic_ns() >= moment

    asyncio.run(main())
