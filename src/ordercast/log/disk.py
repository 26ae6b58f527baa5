"""The lmdb environment of a log: one per process and directory, shared by its writer and its readers.

lmdb wants a directory opened once in a process. So whoever reads a log in the process of the node that writes
it has the same environment; a reader that was there before the writer hands its own over.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import lmdb
import msgspec

from ordercast.core.wire import UNREADABLE
from ordercast.errors import LogError, Unreachable
from ordercast.log.position import Position

FORMAT = 1
FILE = "data.mdb"
MOST_READERS = 1024
_META = b"meta"
_NOTE = b"note/"


class Meta(msgspec.Struct, array_like=True):
    """What a log tells of itself as a whole. Written with every commit."""

    format: int
    node: int
    head: Position | None = None
    """The last entry that there ever was."""
    trimmed: Position | None = None
    """The last entry that retention took away."""
    entries: int = 0
    bytes: int = 0
    """Of what is kept now."""
    alone: bool = False
    """The node is the only member of its configuration: there is nobody whose messages it could miss."""


class ConfigurationNote(msgspec.Struct, array_like=True):
    """What a log remembers of a configuration, beside the entry."""

    kind: str
    members: tuple[int, ...]
    time_us: int
    first: bool = False
    """It is the first of a life."""
    gap: bool = False
    """Something may have passed the node by between the entry before and this one."""


_decode_meta = msgspec.msgpack.Decoder(Meta).decode
decode_note = msgspec.msgpack.Decoder(ConfigurationNote).decode
encode = msgspec.msgpack.Encoder().encode


class Disk:
    """An open environment, and its tables: ``blocks`` and ``configurations`` by position."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.users = 0
        self.writing = False
        self._guard = threading.RLock()
        self._env: Any = None
        self._opened: tuple[int, bool] | None = None
        """How it is open for writing, if it is."""
        self.blocks: Any = None
        self.configurations: Any = None
        self._about: Any = None

    def open_to_read(self) -> None:
        """Open it as it is."""
        with self._guard:
            if self._env is None:
                self._env = lmdb.open(
                    str(self.path), readonly=True, create=False, max_dbs=4, max_readers=MOST_READERS
                )
                try:
                    self._open_tables(create=False)
                except BaseException:
                    self._close()
                    raise

    def open_to_write(self, map_size: int, sync: bool) -> None:
        """Open it, made if need be, for the one writer that there is."""
        with self._guard:
            if self._opened != (map_size, sync):  # else readers here have kept it as the last writer left it
                self._close()
                self._open_anew(map_size, sync)
            self._env.reader_check()
            self.writing = True
            self._open_tables(create=True)

    def _open_anew(self, map_size: int, sync: bool) -> None:
        self._env = lmdb.open(
            str(self.path), map_size=map_size, max_dbs=4, max_readers=MOST_READERS, sync=sync, mode=0o600
        )
        self._opened = (map_size, sync)

    def _open_tables(self, create: bool) -> None:
        self.blocks, self.configurations, self._about = (
            self._env.open_db(name, create=create) for name in (b"blocks", b"configurations", b"about")
        )

    def close(self) -> None:
        """Give it back."""
        with self._guard:
            self._close()

    def stop_writing(self) -> None:
        """The writer is gone; readers in this process go on."""
        with self._guard:
            self.writing = False

    def _close(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = self._opened = None

    @contextlib.contextmanager
    def reading(self) -> Iterator[Any]:
        """A view of the log as it is now: a transaction, for a short while."""
        with self._guard:
            if self._env is None:
                raise Unreachable(f"the log in {self.path} was closed: open it again")
            try:
                transaction = self._env.begin(buffers=True)
            except lmdb.MapResizedError:
                self._env.set_mapsize(0)
                transaction = self._env.begin(buffers=True)
        try:
            yield transaction
        finally:
            transaction.abort()

    def change(self) -> Any:
        """A transaction of the writer."""
        assert self.writing, "the log is not open for writing"
        return self._env.begin(write=True)

    def sync(self) -> None:
        """Make everything durable."""
        with self._guard:
            if self._env is not None:
                self._env.sync(True)

    def forget_dead_readers(self) -> None:
        """Readers that were killed keep what was deleted from being used again, until this is called."""
        self._env.reader_check()

    def meta(self, transaction: Any) -> Meta | None:
        """What the log tells of itself; None in one that was just made."""
        data = transaction.get(_META, db=self._about)
        if data is None:
            return None
        try:
            found = _decode_meta(bytes(data))
        except UNREADABLE as error:
            raise LogError(
                f"{self.path} holds no log that can be read ({error}): name another one"
            ) from error
        if found.format != FORMAT:
            raise LogError(
                f"the log in {self.path} has format {found.format}, and this version of ordercast reads "
                f"{FORMAT}: use the version that wrote it"
            )
        return found

    def notes(self, transaction: Any) -> dict[bytes, bytes]:
        """What is remembered beside the entries."""
        found = {}
        with transaction.cursor(db=self._about) as cursor:
            if cursor.set_range(_NOTE):
                for key, value in cursor:
                    if not bytes(key).startswith(_NOTE):
                        break
                    found[bytes(key).removeprefix(_NOTE)] = bytes(value)
        return found

    def put_notes(self, transaction: Any, notes: Mapping[bytes, bytes | None]) -> None:
        """Remember these; None: no longer."""
        for name, value in notes.items():
            if value is None:
                transaction.delete(_NOTE + name, db=self._about)
            else:
                transaction.put(_NOTE + name, value, db=self._about)

    def put_meta(self, transaction: Any, meta: Meta) -> None:
        """With every commit."""
        transaction.put(_META, encode(meta), db=self._about)


_shared: dict[tuple[int, Path], Disk] = {}
_sharing = threading.Lock()


def share(path: Path) -> Disk:
    """This process's environment for a directory; `release` it."""
    name = (os.getpid(), path.resolve())
    with _sharing:
        disk = _shared.get(name)
        if disk is None:
            disk = _shared[name] = Disk(name[1])
        disk.users += 1
        return disk


def release(disk: Disk) -> None:
    """Not needed any more here."""
    with _sharing:
        disk.users -= 1
        if not disk.users:
            _shared.pop((os.getpid(), disk.path), None)
            disk.close()
