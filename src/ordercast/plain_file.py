"""Reading a small file that a person has named, which may be a pipe, a directory, or endless."""

from __future__ import annotations

import os
import select
import stat
import time
from pathlib import Path

PIPE_S = 5.0
"""How long whoever writes into a pipe may take."""
_AT_A_TIME = 65_536


class NotPlain(Exception):
    """A path that cannot be read as a small file. ``str(error)`` says what it is."""


def read_plain(path: Path, most: int) -> bytes:
    """All that is in a file, or comes out of a pipe, of at most so many bytes. Never waits for long.

    Raises `OSError`, or `NotPlain` if it is something else, or is longer.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return read_open(fd, most)
    finally:
        os.close(fd)


def read_open(fd: int, most: int) -> bytes:
    """Read a file that is open, without blocking."""
    mode = os.fstat(fd).st_mode
    if stat.S_ISDIR(mode):
        raise NotPlain("it is a directory")
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        raise NotPlain("it is neither a file nor a pipe")
    data = b""
    deadline = time.monotonic() + PIPE_S
    while len(data) <= most:
        more = _more(fd, deadline, pipe=stat.S_ISFIFO(mode), begun=bool(data))
        if not more:
            return data
        data += more
    raise NotPlain(f"it has more than {most:,} bytes")


def _more(fd: int, deadline: float, pipe: bool, begun: bool) -> bytes:
    """What comes next; nothing at the end."""
    while True:
        try:
            data = os.read(fd, _AT_A_TIME)
        except BlockingIOError:
            data = b""
            waiting = True
        else:
            waiting = pipe and not begun  # nobody has opened it for writing yet
        if data or not waiting:
            return data
        if time.monotonic() > deadline:
            raise NotPlain(f"it is a pipe, and nobody has written into it for {PIPE_S:g} s")
        select.select((fd,), (), (), 0.05)
        time.sleep(0.01)
