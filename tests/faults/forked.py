"""Processes of members, forked from one that has the library loaded: to start one costs next to nothing.

Each is a process like any other: it can be killed, stopped and waited for, and has its own standard streams.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.forkserver import ensure_running
from pathlib import Path

_FORKING = get_context("forkserver")
_FORKING.set_forkserver_preload(["worker", "objects_worker"])
HERE = Path(__file__).parent


@cache
def _begin() -> None:
    """Start the process from which the others are forked: it finds what it is to load in no other way."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parent), *([before] if before else [])])
    try:
        ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


class Forked:
    """What tests use of `subprocess.Popen`, of a process that runs a worker: `main` of that module."""

    def __init__(self, module: str, job: str, log: Path) -> None:
        _begin()
        orders, self._orders = _FORKING.Pipe(duplex=False)
        self._said, said = _FORKING.Pipe(duplex=False)
        self._process = _FORKING.Process(target=_work, args=(module, job, str(log), orders, said))
        self._process.start()
        orders.close()
        said.close()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.stdin = os.fdopen(os.dup(self._orders.fileno()), "wb")
        self.stdout = os.fdopen(os.dup(self._said.fileno()), "rb")
        self._orders.close()
        self._said.close()

    def poll(self) -> int | None:
        """Its exit code, once it has ended; minus the signal that killed it."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, when it has ended."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("worker", timeout or 0)
        return self._process.exitcode

    def kill(self) -> None:
        """kill -9"""
        self._process.kill()

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing, if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


def _work(module: str, job: str, log: str, orders: Connection, said: Connection) -> None:
    """The life of a forked process."""
    errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for here, stream in ((orders.fileno(), 0), (said.fileno(), 1), (errors, 2)):
        os.dup2(here, stream)
    orders.close()
    said.close()
    os.close(errors)
    sys.stdin = os.fdopen(0, "r")
    sys.exit(import_module(module).main(job))
