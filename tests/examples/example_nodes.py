"""Processes that run an example: three nodes on loopback, killed and started again by the tests."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from free_ports import free_address

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SAFETY_NET_S = 60


class Process:
    """One process, and the lines that it has printed."""

    def __init__(self, words: list[str]) -> None:
        self.lines: list[str] = []
        self._more: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent / "src")},
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))
            self._more.put(None)
        self._more.put(None)

    def say(self, line: str) -> None:
        """Give it a line to read."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def end_input(self) -> None:
        """It has nothing more to read."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait_for(self, wanted: Callable[[list[str]], bool]) -> list[str]:
        """Wait until its lines are as wanted; returns them."""
        until = time.monotonic() + SAFETY_NET_S
        while not wanted(self.lines):
            try:
                self._more.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"it has said nothing else: {self.lines[-20:]}") from None
            if self._process.poll() is not None and not self._reading.is_alive():
                assert wanted(self.lines), f"it ended: {self.lines[-20:]}"
        return list(self.lines)

    def kill(self) -> None:
        """kill -9"""
        self.send(signal.SIGKILL)
        self._process.wait()

    def send(self, what: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(what)

    def close(self) -> None:
        """The test is over."""
        self.kill()
        self._reading.join()
        for file in (self._process.stdin, self._process.stdout):
            if file is not None:
                file.close()


class Nodes:
    """Three nodes that run an example."""

    def __init__(self, example: str, arguments: list[str]) -> None:
        """`arguments`: the last one of each."""
        self._example = str(EXAMPLES / example)
        self._addresses = [free_address() for _ in arguments]
        self._arguments = arguments
        self._ended: list[Process] = []
        self.running = [self._start(number) for number in range(len(arguments))]

    def _start(self, number: int) -> Process:
        every = ",".join(self._addresses)
        return Process([self._example, self._addresses[number], every, self._arguments[number]])

    def address(self, number: int) -> str:
        """Where a node is."""
        return self._addresses[number]

    def kill(self, number: int) -> Process:
        """kill -9; returns what it was."""
        killed = self.running[number]
        killed.kill()
        self._ended.append(killed)
        return killed

    def restart(self, number: int) -> Process:
        """Start one that was killed."""
        self.running[number] = self._start(number)
        return self.running[number]

    def close(self) -> None:
        """The test is over."""
        for process in (*self.running, *self._ended):
            process.close()


@contextmanager
def nodes(example: str, arguments: list[str]) -> Iterator[Nodes]:
    """Three nodes that run an example, until the block ends."""
    running = Nodes(example, arguments)
    try:
        yield running
    finally:
        running.close()
