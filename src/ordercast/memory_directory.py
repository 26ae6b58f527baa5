"""A directory in memory, for tests: a crash can be put at any call, and loses what a power failure may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordercast.errors import StorageProblem

if TYPE_CHECKING:
    from random import Random

SECTOR = 512
"""Bytes that a disk writes as a whole or not at all."""


class Crashed(Exception):
    """The process that used the directory ended here."""


class _File:
    """What a file holds, and held when it was synced last."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""
        self.writes: list[tuple[int, bytes]] = []
        """Place and bytes of each write since the file was synced."""

    def write(self, at: int, data: bytes) -> None:
        if len(self.data) < at:
            self.data.extend(bytes(at - len(self.data)))
        self.data[at : at + len(data)] = data

    def lose(self, chance: Random) -> None:
        """Of what was not synced each sector is there or not."""
        writes, self.writes = self.writes, []
        self.data = bytearray(self.synced)
        for at, data in writes:
            kind = chance.random()
            for begin in range(0, len(data), SECTOR):
                if kind < 0.3 or (kind < 0.7 and chance.random() < 0.5):
                    self.write(at + begin, data[begin : begin + SECTOR])
        self.synced = bytes(self.data)


class MemoryDirectory:
    """Files in memory."""

    def __init__(self, where: str = "memory") -> None:
        self._where = where
        self._files: dict[str, _File] = {}
        self._durable: dict[str, _File] = {}
        self._changes: list[tuple[str, str | None, _File | None]] = []
        """Names since they were synced: which file one stands for from there on, and which one goes."""
        self.calls = 0
        """How often something was asked of the directory that changes it."""
        self.crash_at: int | None = None
        """The number of the call at which the process ends; None: at none."""
        self.full = False
        """Whether the disk takes nothing more."""

    def crash(self, chance: Random | None = None) -> None:
        """The process that used it has ended: with a `chance` the machine has, too, and what was not synced
        may be lost."""
        self.crash_at = None
        if chance is None:
            return
        names = dict(self._durable)
        for name, gone, file in self._changes[: chance.randint(0, len(self._changes))]:
            if file is None:
                names.pop(name, None)
            else:
                names[name] = file
                if gone is not None:
                    names.pop(gone, None)
        for file in {id(file): file for file in names.values()}.values():
            file.lose(chance)
        self._files, self._durable, self._changes = dict(names), dict(names), []

    def content(self, name: str) -> bytearray:
        """The bytes of a file, which a test may damage."""
        return self._files[name].data

    def copy(self) -> MemoryDirectory:
        """The same files in another directory, all of them durable."""
        made = MemoryDirectory(self._where)
        for name, file in self._files.items():
            made.write(name, 0, bytes(file.data))
            made.sync(name)
        made.sync_names()
        made.calls = 0
        return made

    def copy_as_after_a_crash(self, chance: Random) -> MemoryDirectory:
        """Another directory with what is left if the machine ends now; this one goes on as it is."""
        made = MemoryDirectory(self._where)
        copies: dict[int, _File] = {}

        def copied(file: _File) -> _File:
            if id(file) not in copies:
                other = copies[id(file)] = _File()
                other.data, other.synced = bytearray(file.data), file.synced
                other.writes = list(file.writes)
            return copies[id(file)]

        made._files = {name: copied(file) for name, file in self._files.items()}
        made._durable = {name: copied(file) for name, file in self._durable.items()}
        made._changes = [(a, b, None if file is None else copied(file)) for a, b, file in self._changes]
        made.crash(chance)
        return made

    # --- what a directory does ------------------------------------------------------------------

    def names(self) -> list[str]:
        """All files that are there."""
        return sorted(self._files)

    def size(self, name: str) -> int | None:
        """Bytes of the file."""
        return len(self._files[name].data) if name in self._files else None

    def read(self, name: str, at: int, size: int) -> bytes:
        """What was written, synced or not."""
        return bytes(self._files[name].data[at : at + size])

    def write(self, name: str, at: int, data: bytes) -> None:
        """Where the process ends in it, a part is written."""
        ends = self._call(whole=False)
        if name not in self._files:
            self._files[name] = _File()
            self._changes.append((name, None, self._files[name]))
        file = self._files[name]
        some = data[: len(data) // 2] if ends else bytes(data)
        file.write(at, some)
        file.writes.append((at, some))
        if ends:
            raise Crashed

    def sync(self, name: str) -> None:
        """Make all that was written to the file durable."""
        self._call()
        file = self._files[name]
        file.synced = bytes(file.data)
        file.writes.clear()

    def rename(self, name: str, to: str) -> None:
        """Give a file another name: a crash leaves it with the old one or the new one."""
        self._call()
        self._files[to] = self._files.pop(name)
        self._changes.append((to, name, self._files[to]))

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        self._call()
        if self._files.pop(name, None) is not None:
            self._changes.append((name, None, None))

    def sync_names(self) -> None:
        """All of them are durable."""
        self._call()
        self._durable = dict(self._files)
        self._changes.clear()

    def close(self) -> None:
        """The files stay for the next who opens it."""

    def __str__(self) -> str:
        return self._where

    def _call(self, *, whole: bool = True) -> bool:
        """Count it; whether the process ends here."""
        if self.full:
            raise StorageProblem(f"{self._where}: no space left on device. Make room, and start it again.")
        ends = self.crash_at is not None and self.calls >= self.crash_at
        self.calls += 1
        if ends and whole:
            raise Crashed
        return ends
