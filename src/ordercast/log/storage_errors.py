"""What the disk of a log refuses, in words; and the lock of the one process that writes the log."""

from __future__ import annotations

from pathlib import Path

from ordercast.disk_advice import advice
from ordercast.errors import StorageProblem
from ordercast.file_lock import HeldByAnother, lock_file
from ordercast.log.disk import WRITER

_ROOM = "Make room, or keep less with log_bytes or log_age"
_OTHERWISE = "Check the disk, make room, or keep less with log_bytes; or give the log another place."
_TRIES = 10
"""A reader that looks whether anybody writes the log has the lock for a moment."""


def take(path: Path) -> int:
    """Make the directory if need be, and lock it for this process: the descriptor that holds the lock."""
    with StorageErrors(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            return lock_file(path / WRITER, _TRIES)
        except HeldByAnother as error:
            holder = str(error) or "of another node"
            raise StorageProblem(
                f"the log {path} is written by process {holder}: give each node a log directory of its own"
            ) from None


class StorageErrors:
    """Turns an `OSError` into the `StorageProblem` that stops the node."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise StorageProblem(
                f"the log {self._path} cannot be written: {error.strerror or error}. The node stops, because "
                f"its log would have a hole. {advice(error, _ROOM, _OTHERWISE)}"
            ) from error
