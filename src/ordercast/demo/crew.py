"""The processes of the demo, from outside: started, killed, stopped, resumed, and heard."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from enum import StrEnum
from pathlib import Path

import msgspec

from ordercast.core.identity import NodeId
from ordercast.demo.proof import Life
from ordercast.demo.words import Job, Report, Word
from ordercast.errors import OrdercastError

RATE_S = 1.0
"""Rates are over the last second."""
LAST_WORDS = 2_000
"""Characters of a log that are shown when something went wrong."""


class DemoFailed(OrdercastError):
    """The demo could not go on."""


class State(StrEnum):
    """What became of a process."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    KILLED = "killed"
    LEAVING = "leaving"
    GONE = "gone"


Heard = tuple["Process", Report | None]
"""A process and its report; None when it has ended."""


class Process:
    """One life of a node."""

    def __init__(self, node: NodeId, log: Path, heard: queue.SimpleQueue[Heard]) -> None:
        self.node = node
        self.state = State.STARTING
        self.last: Report | None = None
        self._log = log
        self._earlier: deque[Report] = deque()
        with log.open("ab") as stderr:
            # Its own process group: an interrupt is the director's business; and the kernel ends a stopped
            # process of a group that loses its last parent.
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "ordercast.demo.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                process_group=0,
            )
        threading.Thread(target=self._listen, args=(heard,), daemon=True).start()

    def _listen(self, heard: queue.SimpleQueue[Heard]) -> None:
        assert self._popen.stdout is not None
        decoder = msgspec.json.Decoder(Report)
        for line in self._popen.stdout:
            if not line.endswith(b"\n"):
                break  # killed in the middle of a word
            heard.put((self, decoder.decode(line)))
        heard.put((self, None))

    # --- to it ----------------------------------------------------------------------------------

    def say(self, what: Job | Word) -> None:
        """Tell it something."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(msgspec.json.encode(what) + b"\n")
            self._popen.stdin.flush()
        except BrokenPipeError:
            raise self.failed("ended before its time") from None

    def kill(self) -> None:
        """As the kernel does when memory runs out."""
        self._popen.kill()
        self.state = State.KILLED

    def stop(self) -> None:
        """As a suspended laptop does."""
        self._popen.send_signal(signal.SIGSTOP)
        self.state = State.STOPPED

    def resume(self) -> None:
        """Let it go on."""
        self._popen.send_signal(signal.SIGCONT)
        self.state = State.RUNNING

    def end(self) -> None:
        """It is gone when this returns, whatever state it was in."""
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait()

    # --- from it --------------------------------------------------------------------------------

    def note(self, report: Report | None) -> None:
        """What was heard of it."""
        if report is None:
            if self.state is State.LEAVING and self._popen.wait() == 0:
                self.state = State.GONE
            elif self.state is not State.KILLED:
                raise self.failed("ended before its time")
            return
        if self.state is State.STARTING:
            self.state = State.RUNNING
        self.last = report
        self._earlier.append(report)
        while report.at_s - self._earlier[0].at_s > RATE_S:
            self._earlier.popleft()

    @property
    def life(self) -> Life | None:
        """Which one it is, once it is known."""
        return None if self.last is None else Life(self.node, self.last.incarnation)

    @property
    def rate(self) -> float:
        """Messages/s that it delivers now."""
        if self.state is not State.RUNNING or len(self._earlier) < 2:
            return 0.0
        first, last = self._earlier[0], self._earlier[-1]
        if time.monotonic() - last.at_s > RATE_S:
            return 0.0
        return (last.delivered - first.delivered) / (last.at_s - first.at_s)

    def failed(self, how: str) -> DemoFailed:
        """With what it said last."""
        said = self._log.read_text(errors="replace").strip()[-LAST_WORDS:]
        return DemoFailed(
            f"the process of node {self.node} {how}. "
            + (f"The end of its log, {self._log}:\n{said}" if said else f"Its log, {self._log}, is empty.")
        )


class Crew:
    """All of them: of each node the life that is the present one, or was the last."""

    def __init__(self, nodes: int, directory: Path) -> None:
        self.nodes = tuple(range(1, nodes + 1))
        self.directory = directory
        self.processes: dict[NodeId, Process] = {}
        self._lives: list[Process] = []
        self._heard: queue.SimpleQueue[Heard] = queue.SimpleQueue()

    def start(self, node: NodeId) -> Process:
        """A process that is this node, from now on."""
        process = Process(node, self.directory / f"node{node}.log", self._heard)
        self.processes[node] = process
        self._lives.append(process)
        return process

    def hear(self, for_s: float) -> list[Heard]:
        """What they say within so many seconds; at least one report, if there is any."""
        try:
            first = self._heard.get(timeout=for_s)
        except queue.Empty:
            return []
        found = [first]
        while not self._heard.empty():
            found.append(self._heard.get())
        return found

    def end(self) -> None:
        """No process is left."""
        for process in self._lives:
            process.end()
