"""A file that one process holds at a time, and that says which one."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

AGAIN_S = 0.02
"""Seconds between two attempts to take the lock."""


class HeldByAnother(Exception):
    """Another process holds the lock; ``str(error)`` is its number, or nothing if it is not known."""


def lock_file(path: Path, tries: int = 1) -> int:
    """Take the lock, and write this process's number into the file; the open descriptor, which holds it.

    Raises `HeldByAnother` after so many `tries`, and `OSError` where the file cannot be had.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    try:
        for left in reversed(range(tries)):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not left:
                    holder = os.read(lock, 32).decode("ascii", "replace").strip()
                    raise HeldByAnother(holder) from None
            time.sleep(AGAIN_S)
        os.ftruncate(lock, 0)
        os.write(lock, b"%d\n" % os.getpid())
    except BaseException:
        os.close(lock)
        raise
    return lock
