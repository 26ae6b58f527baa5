"""Ports for nodes that have to be told one before they start."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from functools import cache
from itertools import cycle
from pathlib import Path

from ordercast.file_lock import HeldByAnother, lock_file
from ordercast.measure.loopback import are_free

PORTS = range(10_000, 20_000, 2)
"""Below those that the kernel gives to whoever asks for any, and those that nodes draw: nobody comes by one
of them by chance."""
SHARE = 200
"""Ports of one process that tests: others, of this run or another, take none of them while it lives."""


def free_port() -> int:
    """A port that is free together with the next one, for datagrams and for connections.

    The same one is given out again only after all others of this process.
    """
    return next(port for port in _ports_of(os.getpid()) if are_free((port, port + 1)))


def free_address() -> str:
    """An address of loopback for a node: its port, and the next, are free."""
    return f"127.0.0.1:{free_port()}"


@cache
def _ports_of(process: int) -> Iterator[int]:
    """The ports of this process, in turns without end. A file that it locks stands for them until it ends."""
    directory = Path(tempfile.gettempdir()) / f"ordercast-test-ports-{os.getuid()}"
    directory.mkdir(exist_ok=True)
    shares = [PORTS[start : start + SHARE] for start in range(0, len(PORTS), SHARE)]
    for share in random.sample(shares, len(shares)):
        try:
            lock_file(directory / str(share[0]))
        except HeldByAnother:
            continue
        return cycle(share)
    raise AssertionError(f"{len(shares)} processes test at once, and process {process} found no ports left")
