"""The processes of the demo, from outside: started, killed, stopped, resumed, and heard."""

from __future__ import annotations

import queue
import signal
import time
from collections import deque
from enum import StrEnum
from pathlib import Path

import msgspec

from ordercast.core.identity import NodeId
from ordercast.demo.messages import Report
from ordercast.errors import OrdercastError
from ordercast.measure.agreement import Life
from ordercast.measure.processes import JsonProcess

RATE_S = 1.0
"""Rates are over the last second."""


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
        self._earlier: deque[Report] = deque()
        decoder = msgspec.json.Decoder(Report)

        def listen(line: bytes | None) -> None:
            heard.put((self, None if line is None else decoder.decode(line)))

        self._process = JsonProcess(node, "ordercast.demo.worker", log, listen, problem=DemoFailed)
        self.say = self._process.say
        self.end = self._process.end
        self.failed = self._process.failed

    # --- to it ----------------------------------------------------------------------------------

    def kill(self) -> None:
        """End the process at once (SIGKILL), as the kernel does when memory runs out."""
        self._process.send_signal(signal.SIGKILL)
        self.state = State.KILLED

    def stop(self) -> None:
        """Stop the process (SIGSTOP), as on a laptop that is suspended."""
        self._process.send_signal(signal.SIGSTOP)
        self.state = State.STOPPED

    def resume(self) -> None:
        """Let the process go on (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)
        self.state = State.RUNNING

    # --- from it --------------------------------------------------------------------------------

    def note(self, report: Report | None) -> None:
        """Take a report of the process; None: it has ended."""
        if report is None:
            if self.state is State.LEAVING and self._process.wait() == 0:
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


class Processes:
    """The processes of all nodes; `by_node` has the one that a node is now, or was last."""

    def __init__(self, nodes: int, directory: Path) -> None:
        self.nodes = tuple(range(1, nodes + 1))
        self.directory = directory
        self.by_node: dict[NodeId, Process] = {}
        self._lives: list[Process] = []
        self._heard: queue.SimpleQueue[Heard] = queue.SimpleQueue()

    def start(self, node: NodeId) -> Process:
        """A process that is this node, from now on."""
        process = Process(node, self.directory / f"node{node}.log", self._heard)
        self.by_node[node] = process
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
        """End all processes."""
        for process in self._lives:
            process.end()
