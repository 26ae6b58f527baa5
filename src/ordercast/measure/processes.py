"""Processes that talk with whoever started them in JSON, one object a line: benchmarks and the demo."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from ordercast.errors import OrdercastError

LAST_WORDS = 3_000
"""Characters of a process's log that are shown when something went wrong."""


Problem = TypeVar("Problem", bound=OrdercastError)
Start = Callable[..., subprocess.Popen[bytes]]
"""Starts a command, with the options of `subprocess.Popen`; where, is its own affair."""


class JsonProcess(Generic[Problem]):
    """A process that runs a module of ours and stands for a node."""

    def __init__(
        self,
        node: int,
        module: str,
        log: Path,
        heard: Callable[[bytes | None], None],
        *,
        problem: type[Problem],
        start: Start = subprocess.Popen,
    ) -> None:
        """Start it. What it writes to stderr is added to `log`.

        `heard` is called with each whole line that it says, and with None when it has ended, in a thread of
        its own. When it is gone before its time, `problem` is raised.
        """
        self.node, self.log = node, log
        self._problem = problem
        with log.open("ab") as stderr:
            # Its own process group: an interrupt is the business of who started it; and the kernel ends a
            # stopped process of a group that loses its last parent.
            self._popen = start(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                process_group=0,
            )
        threading.Thread(target=self._listen, args=(heard,), daemon=True).start()

    def _listen(self, heard: Callable[[bytes | None], None]) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            if not line.endswith(b"\n"):
                break  # killed in the middle of a word
            heard(line)
        heard(None)

    def say(self, what: msgspec.Struct) -> None:
        """Send it an object."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(msgspec.json.encode(what) + b"\n")
            self._popen.stdin.flush()
        except BrokenPipeError:
            raise self.failed("ended before its time") from None

    def send_signal(self, number: signal.Signals) -> None:
        """Kill, stop or resume it."""
        self._popen.send_signal(number)

    def dismiss(self) -> None:
        """Close its input: nothing more is said to it."""
        assert self._popen.stdin is not None
        self._popen.stdin.close()

    def wait(self) -> int:
        """Wait until it has ended; its exit code."""
        return self._popen.wait()

    def end(self, grace_s: float = 0.0) -> None:
        """Wait `grace_s` seconds for the process to end, then kill it. It has ended when this returns."""
        try:
            self._popen.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def failed(self, how: str) -> Problem:
        """The problem that it is gone or silent, with the end of its log."""
        said = self.log.read_text(errors="replace").strip()[-LAST_WORDS:]
        told = f"The end of its log, {self.log}:\n{said}" if said else f"Its log, {self.log}, is empty."
        return self._problem(f"the process of node {self.node} {how}. {told}")
