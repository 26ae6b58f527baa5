"""Files of one directory, as the storage of an object uses them: on disk, or in memory for tests.

What was written is durable after `sync`, and a name, a renaming or a removal after `sync_names`. Before that
a power failure may keep it or lose it, each by itself.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from ordercast.disk_advice import advice
from ordercast.errors import StorageProblem
from ordercast.file_lock import HeldByAnother, lock_file

LOCK = "writer"
"""The file that the process that has the directory holds."""
_ROOM = "Make room"
_OTHERWISE = "Check the disk, or give the node a directory on another one."


class Directory(Protocol):
    """The files of a directory. Names are without a path. All of it raises `StorageProblem` if it fails."""

    def names(self) -> list[str]:
        """All files that are there."""

    def size(self, name: str) -> int | None:
        """How many bytes a file has; None if there is none of this name."""

    def read(self, name: str, at: int, size: int) -> bytes:
        """`size` bytes of a file from `at` on, or as many as it has."""

    def write(self, name: str, at: int, data: bytes) -> None:
        """Write there; the file is made if there is none."""

    def sync(self, name: str) -> None:
        """What was written to the file is on disk when this returns."""

    def rename(self, name: str, to: str) -> None:
        """Give a file another name, in the place of the one that has it."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def sync_names(self) -> None:
        """Which files there are under which names is on disk when this returns."""

    def close(self) -> None:
        """Let go of the directory."""

    def __str__(self) -> str:
        """Where it is, for people."""


class DiskDirectory:
    """A directory of the file system, which one process has at a time."""

    def __init__(self, path: Path) -> None:
        """Make it if it is not there, and take it."""
        self._path = path
        self._files: dict[str, int] = {}
        self._lock = self._names = -1
        with self._problems():
            new = not path.exists()
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                self._lock = lock_file(path / LOCK)
            except HeldByAnother as error:
                holder = str(error) or "of another node"
                raise StorageProblem(
                    f"{path} is in use by process {holder}: give each node a directory of its own"
                ) from None
            self._names = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            if new:
                parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    os.fsync(parent)
                finally:
                    os.close(parent)

    def names(self) -> list[str]:
        """All files that are there, but the lock."""
        with self._problems():
            return sorted(name for name in os.listdir(self._path) if name != LOCK)

    def size(self, name: str) -> int | None:
        """Bytes of a file, by the file system; None if there is none."""
        try:
            with self._problems():
                return os.stat(self._path / name).st_size
        except StorageProblem as problem:
            if isinstance(problem.__cause__, FileNotFoundError):
                return None
            raise

    def read(self, name: str, at: int, size: int) -> bytes:
        """Read, and not mapped: a file that is cut meanwhile is short, and no signal; as is one with sectors
        that the disk cannot read."""
        with self._problems():
            fd = os.open(self._path / name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = b""
                while more := _pread(fd, size - len(data), at + len(data)):
                    data = data + more if data else more
                return data
            finally:
                os.close(fd)

    def write(self, name: str, at: int, data: bytes) -> None:
        """A file stays open until it is renamed or removed."""
        with self._problems():
            fd = self._open(name)
            rest = memoryview(data)
            while rest:
                written = os.pwrite(fd, rest, at)
                rest = rest[written:]
                at += written

    def sync(self, name: str) -> None:
        """Data, and what is needed to read it: its size."""
        with self._problems():
            os.fdatasync(self._open(name))

    def rename(self, name: str, to: str) -> None:
        """Give a file another name, in the place of the one that has it; descriptors of both are closed."""
        self._let_go(name, to)
        with self._problems():
            os.replace(self._path / name, self._path / to)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there; its descriptor is closed."""
        self._let_go(name)
        with self._problems():
            (self._path / name).unlink(missing_ok=True)

    def sync_names(self) -> None:
        """Syncs the directory."""
        with self._problems():
            os.fsync(self._names)

    def close(self) -> None:
        """Others may have it from here on."""
        self._let_go(*self._files)
        for fd in (self._names, self._lock):
            if fd >= 0:
                os.close(fd)
        self._names = self._lock = -1

    def __str__(self) -> str:
        return str(self._path)

    def _open(self, name: str) -> int:
        fd = self._files.get(name)
        if fd is None:
            fd = os.open(self._path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._files[name] = fd
        return fd

    def _let_go(self, *names: str) -> None:
        for name in names:
            if (fd := self._files.pop(name, None)) is not None:
                os.close(fd)

    @contextmanager
    def _problems(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageProblem(
                f"{self._path}: {error.strerror or error}. The replica stops, because it could lose what it "
                f"said is on disk. {advice(error, _ROOM, _OTHERWISE)}"
            ) from error


def _pread(fd: int, size: int, at: int) -> bytes:
    try:
        return os.pread(fd, size, at)
    except OSError as error:
        if error.errno in (errno.EIO, errno.EISDIR):
            return b""
        raise
