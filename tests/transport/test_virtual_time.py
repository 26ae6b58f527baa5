"""An event loop in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from ordercast.transport.virtual_time import run


def test_time_passes_only_while_all_wait() -> None:
    async def main() -> list[tuple[str, float]]:
        loop, seen = asyncio.get_running_loop(), []

        async def wait(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append((name, loop.time()))

        await asyncio.gather(wait("a day", 86_400), wait("a minute", 60), wait("nothing", 0))
        return seen

    assert run(main()) == [("nothing", 0.0), ("a minute", 60.0), ("a day", 86_400.0)]


def test_timeouts_run_out_in_virtual_time() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run(main()) == 3600


def test_what_would_run_in_a_thread_runs_at_once() -> None:
    async def main() -> tuple[str, float]:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        return await asyncio.to_thread("done".upper), asyncio.get_running_loop().time()

    assert run(main()) == ("DONE", 0.0)


def test_a_program_that_waits_for_ever_is_told_so() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="nothing is left that could happen"):
        run(main())
