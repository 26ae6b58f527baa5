"""Real nodes in processes of their own, on loopback and at ports that were free."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ordercast.runtime.control import SOCKET, NoNode, ask

COMMAND = (sys.executable, "-c", "from ordercast.cli import main; main()")
LONG_S = 60.0
"""What takes longer than this hangs."""


def until(true: Callable[[], Any], what: str) -> Any:
    """Wait for something, and say what did not come."""
    deadline = time.monotonic() + LONG_S
    while not (found := true()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)
    return found


@contextmanager
def started(*words: object, stdin: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[str]]:
    """The command in a process that is gone in the end, whatever happens."""
    process = subprocess.Popen(
        [*COMMAND, *map(str, words)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "100"},
    )
    hanging = threading.Timer(2 * LONG_S, process.kill)
    hanging.start()
    try:
        yield process
    finally:
        hanging.cancel()
        if process.poll() is None:
            process.kill()
        process.communicate()


class Running:
    """``ordercast node``, as seen from outside."""

    def __init__(self, process: subprocess.Popen[str], data: Path) -> None:
        self.process = process
        self.data = data

    def status(self) -> dict[str, Any] | None:
        """What it answers, if it does."""
        assert self.process.poll() is None, self.process.communicate()
        try:
            return ask(self.data / SOCKET)
        except NoNode:
            return None

    def up(self) -> dict[str, Any]:
        """Its status, once it has a ring: it can be asked before that."""

        def there() -> dict[str, Any] | None:
            found = self.status()
            return found if found and found["settled"] else None

        found: dict[str, Any] = until(there, "a node in a ring")
        return found

    @property
    def address(self) -> str:
        address: str = self.up()["address"]
        return address

    def with_members(self, count: int) -> dict[str, Any]:
        """Its status, when its ring has so many members."""

        def there() -> dict[str, Any] | None:
            found = self.status()
            return found if found and len(found["configuration"]["members"]) == count else None

        found: dict[str, Any] = until(there, f"a ring of {count}")
        return found

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Its exit code, and its log."""
        self.process.send_signal(number)
        out, log = self.process.communicate(timeout=LONG_S)
        assert out == ""
        return self.process.returncode, log


@contextmanager
def node(data: Path, *words: object) -> Iterator[Running]:
    """A node of its own data directory, at any port unless told which."""
    where = () if {"--listen", "-c"} & set(words) else ("--listen", "127.0.0.1:0")
    with started("node", "--data", data, *where, *words) as process:
        yield Running(process, data)
