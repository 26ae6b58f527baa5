"""Processes that are measured: each is told on its standard input what to do next, and answers."""

from __future__ import annotations

import json
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from server_groups import die_with_parent

BENCH = Path(__file__).resolve().parent.parent
Words = dict[str, Any]
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
    """In a worker: what it is told to do, as it comes."""
    found: queue.Queue[Words] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            found.put(json.loads(line))

    threading.Thread(target=read, daemon=True).start()
    return found


def say(words: Words) -> None:
    """In a worker: answer."""
    print(json.dumps(words), flush=True)


def keys_of(sender: int) -> list[str]:
    """The keys that a sender sets."""
    return [f"{sender}.{number}" for number in range(SENDERS_KEYS)]


def free_tcp_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens at."""
    with_ports = [socket.socket() for _ in range(count)]
    for each in with_ports:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in with_ports]
    for each in with_ports:
        each.close()
    return ports


def latency(took_s: list[float]) -> Words:
    """Of operations one at a time."""
    took_s.sort()
    return {"p50_us": took_s[len(took_s) // 2] * 1e6, "p99_us": took_s[len(took_s) * 99 // 100] * 1e6}
