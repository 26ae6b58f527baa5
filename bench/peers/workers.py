"""Processes that are measured: each is told on its standard input what to do next, and answers."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import queue
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from ordercast.measure.loopback import die_with_parent

BENCH = Path(__file__).resolve().parent.parent
Words = dict[str, Any]
Job = TypeVar("Job")
SENDERS_KEYS = 10_000
"""Keys that a sender sets, one after the other, over and over."""


class Workers:
    """Some processes of one module."""

    def __init__(self, module: str, jobs: Sequence[Words]) -> None:
        """Begin ``python -m module`` with each job, and wait until all are ready."""
        self._processes: list[subprocess.Popen[str]] = [
            subprocess.Popen(
                [sys.executable, "-m", module, "--worker", json.dumps(job)],
                cwd=BENCH,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                preexec_fn=die_with_parent,
            )
            for job in jobs
        ]
        self.told: list[Words] = [_line(process) for process in self._processes]
        """What each said when it was ready."""

    def all_do(self, words: Words, which: Sequence[int] | None = None) -> list[Words]:
        """Have all of them, or these, do the same at the same time; what they found."""
        chosen = [each for at, each in enumerate(self._processes) if which is None or at in which]
        for process in chosen:
            assert process.stdin is not None
            process.stdin.write(json.dumps(words) + "\n")
            process.stdin.flush()
        return [_line(process) for process in chosen]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


def _line(process: subprocess.Popen[str]) -> Words:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit("a process that was measured ended: what it said is above")
    found: Words = json.loads(line)
    return found


def orders() -> queue.Queue[Words]:
    """In a worker: what it is told to do, as it is read from its standard input by a thread."""
    found: queue.Queue[Words] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            found.put(json.loads(line))

    threading.Thread(target=read, daemon=True).start()
    return found


async def each_order() -> AsyncIterator[Words]:
    """In a worker with an event loop: say that it is ready, and yield what it is told to do."""
    told = orders()
    say({"ready": True})
    while True:
        try:
            yield told.get_nowait()
        except queue.Empty:
            await asyncio.sleep(0.005)


def run_worker(work: Callable[[Job], Coroutine[Any, Any, None]], job: type[Job]) -> None:
    """In a worker: do its work on an event loop, as fast a one as there is."""
    given = msgspec.json.decode(sys.argv[sys.argv.index("--worker") + 1], type=job)
    if importlib.util.find_spec("uvloop") is not None:
        import uvloop

        uvloop.run(work(given))
    else:
        asyncio.run(work(given))


def say(words: Words) -> None:
    """In a worker: answer."""
    print(json.dumps(words), flush=True)


def keys_of(sender: int) -> list[str]:
    """The keys that a sender sets."""
    return [f"{sender}.{number}" for number in range(SENDERS_KEYS)]


def latency(took_s: list[float]) -> Words:
    """Of operations one at a time."""
    took_s.sort()
    return {"p50_us": took_s[len(took_s) // 2] * 1e6, "p99_us": took_s[len(took_s) * 99 // 100] * 1e6}
