"""Nodes with logs, as processes of their own that can be killed, and a member that sends and reads."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from free_ports import free_port
from ordercast import ConfigurationChange, ConfigurationId, Message, NodeClosed
from ordercast.log import Position, Replica
from ordercast.runtime.storage import DataDirectory
from ordercast.threads import Group, Node

PATIENCE_S = 60.0


class LiveNodes:
    """A group on loopback: processes that keep logs, and one member in this process that keeps none."""

    def __init__(self, directory: Path, count: int, key: Path | None = None) -> None:
        self.directory = directory
        self.key = key
        self.ports = {number: free_port() for number in range(1, count + 1)}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.member = Node(listen="127.0.0.1:0", id=99, key=key)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self.member)
        self._stack.callback(self.end)
        for number in self.ports:
            DataDirectory.initialise(self.directory / f"data-{number}", number)
            self.start(number)
        self.wait_for(*self.ports)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()

    @property
    def nodes(self) -> str:
        """For the option of that name."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def start(self, number: int) -> None:
        command = [
            sys.executable,
            "-c",
            "from ordercast.cli import main; main()",
            "node",
            "--id",
            str(number),
        ]
        command += ["--listen", "127.0.0.1:0", "--data", str(self.directory / f"data-{number}")]
        command += ["--log", str(self.directory / f"log-{number}")]
        command += ["--log-listen", f"127.0.0.1:{self.ports[number]}", "--seed", self.member.address]
        command += [] if self.key is None else ["--key", str(self.key)]
        with (self.directory / f"node-{number}.txt").open("ab") as output:
            self.processes[number] = subprocess.Popen(command, stdout=output, stderr=output)

    def wait_for(self, *numbers: int) -> None:
        """Until these are members, and their logs can be read."""
        self.member.wait_for([*numbers, 99], timeout=PATIENCE_S)
        until = time.monotonic() + PATIENCE_S
        for number in numbers:
            while True:
                try:
                    with Replica(
                        f"127.0.0.1:{self.ports[number]}", None if self.key is None else str(self.key)
                    ) as replica:
                        assert replica.bounds().head is not None
                    break
                except Exception:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.05)

    def kill(self, number: int) -> None:
        process = self.processes.pop(number)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def being_read(self) -> list[int]:
        """Which of the logs somebody has a connection to."""
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        connected = {
            int(local.partition(":")[2], 16)
            for _, local, _, state, *_ in map(str.split, lines)
            if state == "01"
        }
        return [number for number, port in self.ports.items() if port in connected]


class Heard:
    """What a member of the group delivers, in order: what everything else is compared with."""

    def __init__(self, group: Group) -> None:
        self.messages: list[Message] = []
        self.positions: list[Position] = []
        self._group = group
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        configuration = ConfigurationId(0, 0)
        with suppress(NodeClosed):
            for event in self._group:
                if isinstance(event, Message):
                    self.positions.append(Position(*configuration, event.seq, event.slot))
                    self.messages.append(event)
                elif isinstance(event, ConfigurationChange):
                    configuration = event.id

    @property
    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages]

    def wait_for(self, count: int) -> None:
        until = time.monotonic() + PATIENCE_S
        while len(self.messages) < count:
            assert time.monotonic() < until, f"{len(self.messages)} of {count} messages came"
            time.sleep(0.02)
