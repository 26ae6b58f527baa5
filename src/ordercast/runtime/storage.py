"""What a node must not forget, on disk: who it is, which life this is, and what its machine persists.

Two lives of a node that took each other's numbers would break uniqueness, and with it every promise to
the application. So everything here is durable before it is used, replaced as a whole or not at all, and
a disk that fails stops the node.

A data directory holds

- ``lock``: held by the process whose node it is, for as long as it lives;
- ``node.json``: identifier, incarnation, protocol, and whether that life is thought to go on;
- ``state``: what the machine persisted last;
- ``*.copy``: the same once more. Both have a checksum, and are written together. So where a file is lost, is
  damaged, or was put back as it once was, the other one is whole, or later, and takes its place;
- ``*.new``: something half written by a life that was killed; removed at the next start.

**Incarnations.** They tell a node's lives apart in message identifiers and packets, and must never come
again under the same identifier. A node that made its identifier up here, at random, has none before:
0, then one more at each start. A node that was *told* its identifier and finds an empty directory cannot
know whether it is new or lost its disk: its first incarnation comes from the clock, in seconds, and it
waits for that second to end, so that the next life finds another one. That is beyond all that one start a
second could have used up; and if the clock was set back, others know
(`ordercast.transport.known_lives`). Who knows that such a node is new says so with
`DataDirectory.initialise`, and it neither asks the clock nor waits.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from ordercast.core.identity import MAX_NODE_ID, NodeId
from ordercast.core.wire import UNREADABLE
from ordercast.disk_advice import advice
from ordercast.errors import ConfigProblem, StorageProblem
from ordercast.file_lock import HeldByAnother, lock_file
from ordercast.plain_file import NotPlain, read_plain
from ordercast.runtime.incarnations import checked_life, life_by_the_clock

LOG = logging.getLogger("ordercast")

_NO_LIFE_YET = -1

_HEADER = struct.Struct("<4sIQII")
"""Magic, node, how many states were stored before, bytes, checksum."""
_MAGIC = b"OCS2"
_LONGEST_FILE = 64 * 1024 * 1024
_ROOM = "Make room (a node needs some kilobytes)"
_OTHERWISE = "Check the disk, or give the node a directory on another one."


class Storage(Protocol):
    """What a driver needs to know of a node's earlier lives, and where it puts what must survive."""

    @property
    def id(self) -> NodeId:
        """The node's identifier, the same in all its lives."""

    @property
    def incarnation(self) -> int:
        """Which life this is: no earlier one had this number."""

    @property
    def stored(self) -> bytes | None:
        """What was persisted last, by any life; None if nothing was, or if it is lost."""

    @property
    def crashed(self) -> bool:
        """Whether the life before this one is known, and did not end in order."""

    def persist(self, data: bytes) -> None:
        """Replace what is stored; durable when it returns. Raises `StorageProblem`: then stop the node."""

    def begin_next_life(self) -> int:
        """Another life in this process, since the machine ended the last one: its incarnation, durable."""

    def begin_life_after(self, life: int, forget: bool) -> int:
        """Others know that later life: the next incarnation, durable. `forget` what is stored, as too old."""

    def close(self, *, halted: bool = False) -> None:
        """End this life here; `halted`: the machine halted by itself, it did not crash."""


class Memory:
    """Storage of a node without a directory: it forgets all when its process ends."""

    def __init__(self, id: int | None = None, *, new: bool = False) -> None:
        """`new`: no node of the group ever had this `id`; as it is with one made up here."""
        self.id = _random_id() if id is None else _checked_id(id)
        self._by_the_clock = not new and id is not None
        self.incarnation = life_by_the_clock() if self._by_the_clock else 0
        self.stored: bytes | None = None
        self.crashed = False

    def persist(self, data: bytes) -> None:
        """Keep it for as long as this process lasts."""
        self.stored = data

    def begin_next_life(self) -> int:
        """One that no later process, which asks the clock too, can have."""
        by_the_clock = life_by_the_clock() if self._by_the_clock else 0
        self.incarnation = checked_life(max(by_the_clock, self.incarnation + 1))
        return self.incarnation

    def begin_life_after(self, life: int, forget: bool) -> int:
        """One that is later than what others know."""
        self.incarnation = checked_life(life + 1)
        if forget:
            self.stored = None
        return self.incarnation

    def close(self, *, halted: bool = False) -> None:
        """Nothing outlives it, so there is nothing to say."""


class _Identity(msgspec.Struct, forbid_unknown_fields=True):
    """What ``node.json`` holds."""

    id: int
    incarnation: int
    running: bool = True
    protocol: str = ""
    """What ordered the node's messages; empty if that was not said."""
    checksum: int = 0
    """The checksum of the other fields."""

    @property
    def sum(self) -> int:
        """What the checksum has to be."""
        return zlib.crc32(f"{self.id} {self.incarnation} {self.running} {self.protocol}".encode())


class DataDirectory:
    """Storage of one node on disk. `open` is the way to one."""

    def __init__(self, path: Path) -> None:
        """Take the directory for this process, without looking at what it holds."""
        self.path = path
        self.id: NodeId = 0
        self.incarnation = _NO_LIFE_YET
        self.stored: bytes | None = None
        self.crashed = False
        self._protocol = ""
        self._states = 0
        """How many states were stored."""
        self._failed: str | None = None
        self._fds: list[int] = []
        self._spare: int | None = None
        try:
            self._take()
        except BaseException:
            self._release()
            raise

    @classmethod
    def open(cls, path: Path, id: int | None = None, *, protocol: str = "") -> DataDirectory:
        """Begin a life: take the directory, made if need be, and count the incarnation up, durably.

        A directory keeps the identifier of its node and its protocol: others than those are refused.
        """
        if id is not None:
            _checked_id(id)
        directory = cls(path)
        try:
            directory._begin_life(id, protocol)
        except BaseException:
            directory._release()
            raise
        return directory

    @classmethod
    def initialise(cls, path: Path, id: int) -> None:
        """Prepare a directory for a node that is known to be new: its first incarnation will be 0.

        Only for an identifier that no node of the group ever had.
        """
        _checked_id(id)
        directory = cls(path)
        try:
            found = directory._read_identity()
            if found is not None:
                raise StorageProblem(
                    f"{path} is the data directory of node {found.id} already: give a new node an empty one."
                )
            directory._write_identity(_Identity(id, _NO_LIFE_YET, running=False))
        finally:
            directory._release()

    def persist(self, data: bytes) -> None:
        """Replace what is stored: as a whole or not at all, and durably when this returns."""
        if self._failed is not None:
            raise StorageProblem(self._failed)
        self._replace("state", _header(self.id, self._states, data) + data)
        self._states += 1
        self.stored = data

    def begin_next_life(self) -> int:
        """Count the incarnation up, durably."""
        if self._failed is not None:
            raise StorageProblem(self._failed)
        return self._begin_life_number(checked_life(self.incarnation + 1))

    def begin_life_after(self, life: int, forget: bool) -> int:
        """The disk is an old copy: `forget` the state, and go on behind that life; durably, in this order."""
        if self._failed is not None:
            raise StorageProblem(self._failed)
        incarnation = checked_life(life + 1)
        if forget:
            with _or_stop(self.path):
                for name in ("state", "state.copy"):
                    (self.path / name).unlink(missing_ok=True)
                os.fsync(self._fds[0])
            self.stored, self.crashed = None, False
        return self._begin_life_number(incarnation)

    def _begin_life_number(self, incarnation: int) -> int:
        self._write_identity(_Identity(self.id, incarnation, True, self._protocol))
        self.incarnation = incarnation
        return incarnation

    def close(self, *, halted: bool = False) -> None:
        """Let go of the directory. With `halted`, the next life knows that this one did not crash."""
        if not self._fds:
            return
        try:
            if halted and self._failed is None:
                self._write_identity(_Identity(self.id, self.incarnation, False, self._protocol))
        finally:
            self._failed = f"{self.path} is closed: open the data directory again for another life."
            self._release()

    # --- taking and letting go ------------------------------------------------------------------

    def _take(self) -> None:
        path = self.path
        if path.exists() and not path.is_dir():
            raise StorageProblem(
                f"{path} is not a directory: give one that is, or a path that is still free."
            )
        with _or_stop(path):
            if not path.exists():
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
                _sync_directory(path.parent)
            self._fds.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY))
            try:
                self._fds.append(lock_file(path / "lock"))
            except HeldByAnother as error:
                who = f"process {error}" if str(error) else "another process"
                raise StorageProblem(
                    f"{path} is in use by {who}; give each node its own data directory."
                ) from None
            self._keep_spare()
            for leftover in sorted(path.glob("*.new")):
                leftover.unlink()

    def _release(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        for fd in reversed(self._fds):
            os.close(fd)
        self._fds.clear()

    # --- lives ----------------------------------------------------------------------------------

    def _begin_life(self, told: int | None, protocol: str) -> None:
        found = self._read_identity()
        if found is None:
            if any((self.path / name).exists() for name in ("state", "state.copy")):
                raise StorageProblem(
                    f"{self.path} holds a node's state and does not say whose: restore node.json, or empty "
                    "the directory to start as a node that lost its disk."
                )
            self.id = _random_id() if told is None else told
            self.incarnation = 0 if told is None else life_by_the_clock()
        else:
            if told is not None and told != found.id:
                raise StorageProblem(
                    f"{self.path} belongs to node {found.id}, and this node was told that it is node {told}: "
                    f"start it with identifier {found.id} or without one, or give it another data directory."
                )
            if protocol and found.protocol not in ("", protocol):
                raise StorageProblem(
                    f"{self.path} is the data directory of a node that runs protocol {found.protocol}, and "
                    f"this one is to run {protocol}: start it with protocol {found.protocol}, or, if the "
                    "whole group changes over, give each node an empty data directory."
                )
            self.id = found.id
            self.incarnation = checked_life(found.incarnation + 1)
            self.crashed = found.running and found.incarnation != _NO_LIFE_YET
            self._read_state()
        self._protocol = protocol or (found.protocol if found is not None else "")
        self._write_identity(_Identity(self.id, self.incarnation, True, self._protocol))

    def _read_identity(self) -> _Identity | None:
        """The later of the two that there are."""
        found, wrong = [], []
        for name in ("node.json", "node.json.copy"):
            text = self._read(name)
            if text is not None:
                try:
                    found.append(_identity(text))
                except ValueError as error:
                    wrong.append(_damaged(self.path / name, str(error)))
        if not found:
            if wrong:
                raise wrong[0]
            return None
        if len({one.id for one in found}) > 1:
            raise _damaged(self.path / "node.json", f"its copy is of node {found[-1].id}")
        if len(found) < 2 or found[0].incarnation != found[1].incarnation:
            self._tell_repair("node.json", len(wrong))
        return max(found, key=lambda one: (one.incarnation, not one.running))

    def _tell_repair(self, name: str, damaged: int) -> None:
        why = "is damaged" if damaged else "is missing, or an old version"
        LOG.warning(
            "%s, or its copy, %s: the other one is used, and both are written anew", self.path / name, why
        )

    def _write_identity(self, identity: _Identity) -> None:
        identity.checksum = identity.sum
        self._replace("node.json", msgspec.json.encode(identity) + b"\n")

    def _read_state(self) -> None:
        """The later of the two that there are."""
        found, wrong = [], []
        for name in ("state", "state.copy"):
            file = self._read(name)
            if file is not None:
                data = file[_HEADER.size :]
                number = _HEADER.unpack_from(file)[2] if len(file) >= _HEADER.size else 0
                if file[: _HEADER.size] == _header(self.id, number, data):
                    found.append((number, data))
                else:
                    wrong.append(_damaged(self.path / name, "its checksum does not fit"))
        if not found:
            if wrong:
                raise wrong[0]
            return
        number, self.stored = max(found)
        self._states = number + 1
        if len(found) < 2 or found[0] != found[1]:
            self._tell_repair("state", len(wrong))
            self._replace("state", _header(self.id, number, self.stored) + self.stored)

    # --- files ----------------------------------------------------------------------------------

    def _read(self, name: str) -> bytes | None:
        path = self.path / name
        with _or_stop(path):
            try:
                return read_plain(path, _LONGEST_FILE)
            except FileNotFoundError:
                return None
            except NotPlain as error:
                raise _damaged(path, str(error)) from error

    def _replace(self, name: str, data: bytes) -> None:
        """Write it and its copy beside them, make that durable, put them in place, make that durable.

        After a failure nobody knows what the disk holds (a second fsync may succeed without having
        written anything), so that every later attempt is refused.
        """
        paths = [self.path / name, self.path / f"{name}.copy"]
        try:
            with _or_stop(paths[0]):
                for path in paths:
                    self._write_durably(_new(path), data)
                for path in paths:
                    os.replace(_new(path), path)
                os.fsync(self._fds[0])
        except StorageProblem as problem:
            self._failed = str(problem)
            with contextlib.suppress(OSError):
                for path in paths:
                    _new(path).unlink(missing_ok=True)
            raise

    def _write_durably(self, path: Path, data: bytes) -> None:
        fd = self._opened(path)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.fsync(fd)
        finally:
            os.close(fd)
            self._keep_spare()

    def _opened(self, path: Path) -> int:
        """A file to be written. Where the process has no descriptor left, the one kept for this is used."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o600)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or self._spare is None:
                raise
        os.close(self._spare)
        self._spare = None
        return os.open(path, flags, 0o600)

    def _keep_spare(self) -> None:
        """Keep a descriptor, so that a process that has used up all others can still persist."""
        if self._spare is None:
            with contextlib.suppress(OSError):
                self._spare = os.dup(self._fds[0])


def _identity(text: bytes) -> _Identity:
    """What the text of ``node.json`` says; `ValueError` if it is damaged."""
    try:
        found = msgspec.json.decode(text, type=_Identity)
    except UNREADABLE as error:
        raise ValueError(str(error)) from error
    if found.checksum != found.sum:
        raise ValueError("its checksum does not fit")
    if not 0 < found.id <= MAX_NODE_ID or found.incarnation < _NO_LIFE_YET:
        raise ValueError("no node has these numbers")
    return found


def _header(node: NodeId, number: int, data: bytes) -> bytes:
    """What stands before a state: the checksum is over whose it is, and which, as well."""
    front = _HEADER.pack(_MAGIC, node, number, len(data), 0)
    return _HEADER.pack(_MAGIC, node, number, len(data), zlib.crc32(data, zlib.crc32(front)))


def _new(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _or_stop(path: Path) -> Iterator[None]:
    """What the disk refuses, in words."""
    try:
        yield
    except OSError as error:
        raise StorageProblem(
            f"{path}: {error.strerror or error}. The node stops, because going on without its disk could "
            "break uniqueness: it might use a number again after a restart. "
            f"{advice(error, _ROOM, _OTHERWISE)}"
        ) from error


def _damaged(path: Path, why: str) -> StorageProblem:
    return StorageProblem(
        f"{path} is damaged ({why}), so that the node cannot know which numbers it has used. Restore the "
        "file from a copy; or, if there is none, empty the directory and start the node with its identifier: "
        "it comes back as a node that lost its disk."
    )


def _random_id() -> NodeId:
    return 1 + secrets.randbelow(MAX_NODE_ID)


def _checked_id(id: int) -> NodeId:
    if not 0 < id <= MAX_NODE_ID:
        raise ConfigProblem(f"{id} cannot be a node's identifier: take one from 1 to {MAX_NODE_ID}.")
    return id
