"""Writing a log: what is final is appended, small blocks become larger ones, what is old goes.

One process writes. Everything that a call appends is one transaction: a process that is killed leaves a log
that ends between two of them. Work is done per packet, and in Arrow per message.

Blocks are merged as they come: eight small ones to a larger one, eight of those to a still larger one, until
a block is full. So a log of a message a second is read as fast as one of a hundred thousand, and each byte is
written a few times at most.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import lmdb
import pyarrow as pa
import pyarrow.compute as pc

from ordercast.core.identity import Batch, Configuration, ConfigurationId, NodeId
from ordercast.errors import LogError, StorageProblem
from ordercast.log import disk as files
from ordercast.log.blocks import MOST_ROWS, Messages, Run, binary, change, head_of
from ordercast.log.disk import ConfigurationNote, Disk, Meta, decode_note, encode
from ordercast.log.position import Position

FULL_BYTES = 1024 * 1024
"""A block has not many more bytes than this."""
GROWN_BYTES = FULL_BYTES // 2
"""A block that has so many is large enough, and merged no more."""
FAN = 8
"""So many blocks of about one size become one."""
SLACK = 1024 * 1024 * 1024
"""Address space beyond twice the bytes that are kept: lmdb needs room for what it replaces."""
_END = 2**31 - 1


class Delivered(NamedTuple):
    """Messages that were delivered, in the configuration that was installed last."""

    time_us: int
    batch: Batch
    notes: Mapping[bytes, bytes | None] | None = None
    """What is to be remembered beside the entries from here on, by name; None: no longer."""


class Installed(NamedTuple):
    """A configuration that was installed."""

    time_us: int
    configuration: Configuration
    first: bool
    """It is the first of a life of the node."""


class _Tail(NamedTuple):
    """A block that may still be merged with the next."""

    first: bytes
    rows: int
    size: int
    level: int = 0
    """How often it was merged."""


class Store:
    """The log of one node, open for writing."""

    def __init__(
        self,
        path: Path,
        node: NodeId,
        tag_of: Callable[[bytes], bytes | None],
        *,
        most_bytes: int,
        most_age_s: float | None = None,
        sync: bool = True,
    ) -> None:
        """Take the directory, made if need be, for this process.

        `tag_of`: what stands in front of a payload and names its group, from the third byte on.
        """
        self.path = path
        self.node = node
        self._tag_of = tag_of
        self._most_bytes = most_bytes
        self._most_age_us = None if most_age_s is None else int(most_age_s * 1_000_000)
        self._tails: list[_Tail] = []
        self._one_at_a_time = threading.Lock()
        self._lock = self._take()
        self._disk: Disk | None = None
        try:
            self._disk = files.share(path)
            self._open(self._disk, 2 * most_bytes + SLACK, sync)
        except BaseException:
            self.close()
            raise

    def _take(self) -> int:
        with _Or(self.path):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.path / "writer", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.read(lock, 32).decode("ascii", "replace").strip()
                os.close(lock)
                raise StorageProblem(
                    f"the log {self.path} is written by process {holder or 'of another node'}: give each "
                    "node a log directory of its own"
                ) from None
            os.ftruncate(lock, 0)
            os.write(lock, b"%d\n" % os.getpid())
        return lock

    def _open(self, disk: Disk, map_size: int, sync: bool) -> None:
        with _Or(self.path):
            disk.open_to_write(map_size, sync)
            try:
                with disk.reading() as view:
                    found = disk.meta(view)
                    last = self._last_note(disk, view)
                    with view.cursor(db=disk.blocks) as cursor:
                        self._oldest = Position.unpacked(bytes(cursor.key())) if cursor.first() else None
            except LogError as error:
                raise StorageProblem(str(error)) from error
        if found is not None and found.node != self.node:
            raise StorageProblem(
                f"{self.path} is the log of node {found.node}, and this is node {self.node}: give each node "
                "a log directory of its own, and a data directory, so that it keeps its identifier"
            )
        self.meta = found or Meta(files.FORMAT, self.node)
        self._resumes = last is None or self.meta.alone
        """Nothing can have passed the node by since the last entry."""
        self._with_others = False
        self._configuration: ConfigurationId | None = None
        if found is None:
            self.append(())  # whose log it is

    def _last_note(self, disk: Disk, view: Any) -> ConfigurationNote | None:
        with view.cursor(db=disk.configurations) as cursor:
            return decode_note(bytes(cursor.value())) if cursor.last() else None

    def close(self) -> None:
        """Let go of the directory."""
        disk, self._disk = self._disk, None
        if disk is not None:
            disk.stop_writing()
            files.release(disk)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def oldest(self) -> Position | None:
        """The first entry that is kept."""
        return self._oldest

    @property
    def ages(self) -> bool:
        """Whether entries go when they are old, even if nothing comes."""
        return self._most_age_us is not None

    def notes(self) -> dict[bytes, bytes]:
        """What is remembered beside the entries."""
        assert self._disk is not None, "the log is closed"
        with self._disk.reading() as view:
            return self._disk.notes(view)

    @property
    def head(self) -> Position | None:
        """The last entry."""
        return self.meta.head

    # --- appending ------------------------------------------------------------------------------

    def append(self, entries: Sequence[Delivered | Installed]) -> None:
        """These, in order, as a whole or not at all; then what retention says."""
        with self._one_at_a_time, self._transaction() as (disk, change):
            self._append(disk, change, entries)
            self._trim(disk, change)

    def join_others(self, joined: bool) -> None:
        """The node is in a configuration with others now, though that is not final yet; or it is alone again.

        That it was alone is forgotten durably before this returns: it may be killed before anything of that
        configuration is written, and would not know afterwards that it missed something.
        """
        if joined == self._with_others:
            return  # without waiting for the disk
        with self._one_at_a_time:
            self._with_others = joined
            if joined and self.meta.alone:
                with self._transaction():
                    self.meta.alone = False

    @contextmanager
    def _transaction(self) -> Iterator[tuple[Disk, Any]]:
        """Everything inside is there afterwards, or nothing is."""
        disk = self._disk
        assert disk is not None, "the log is closed"
        meta, tails, configuration = self.meta, list(self._tails), self._configuration
        self.meta = copy(meta)
        try:
            with _Or(self.path), disk.change() as change:
                yield disk, change
                disk.put_meta(change, self.meta)
        except BaseException:
            self.meta, self._tails, self._configuration = meta, tails, configuration
            raise

    def _append(self, disk: Disk, transaction: Any, entries: Sequence[Delivered | Installed]) -> None:
        waiting: list[Delivered] = []
        for entry in entries:
            if isinstance(entry, Delivered):
                waiting.append(entry)
                if entry.notes is not None:
                    disk.put_notes(transaction, entry.notes)
            else:
                self._put_messages(disk, transaction, waiting)
                waiting = []
                self._put_change(disk, transaction, entry)
        self._put_messages(disk, transaction, waiting)

    def _put_change(self, disk: Disk, transaction: Any, entry: Installed) -> None:
        time_us, configuration, first = entry
        place = Position.beginning(configuration.id)
        head = self.head
        if head is not None and place <= head:
            raise StorageProblem(
                f"the log in {self.path} goes up to {head}, and the node was let into the configuration "
                f"{configuration.id}, which is not later: the log is of another group, or the node's data "
                "directory was lost or is an old copy. Give the node an empty log directory."
            )
        gap = first and not self._resumes
        note = ConfigurationNote(str(configuration.kind.value), configuration.members, time_us, first, gap)
        transaction.put(place.packed, encode(note), db=disk.configurations)
        self._put(disk, transaction, place, place, change(configuration, time_us), 1)
        self._tails.clear()
        self._resumes = False
        self.meta.alone = configuration.members == (self.node,) and not self._with_others
        self._configuration = configuration.id

    def _put_messages(self, disk: Disk, transaction: Any, delivered: Sequence[Delivered]) -> None:
        """Messages of one configuration, in blocks of a bounded size."""
        some: list[Delivered] = []
        rows = size = 0
        for entry in delivered:
            count, length = len(entry.batch.payloads), sum(map(len, entry.batch.payloads))
            if some and (rows + count > MOST_ROWS or size + length > FULL_BYTES):
                self._put_block(disk, transaction, some)
                some, rows, size = [], 0, 0
            some.append(entry)
            rows += count
            size += length
        if some:
            self._put_block(disk, transaction, some)

    def _put_block(self, disk: Disk, transaction: Any, some: list[Delivered]) -> None:
        assert self._configuration is not None, "messages are delivered in a configuration"
        runs, payloads = untagged(some, self._tag_of)
        if not runs:
            return
        messages = Messages.of(self._configuration, runs, payloads)
        self._put_and_merge(disk, transaction, messages)

    def _put_and_merge(self, disk: Disk, transaction: Any, messages: Messages) -> None:
        block = messages.encoded()
        first, last = messages.position(0), messages.position(len(messages) - 1)
        self._put(disk, transaction, first, last, block, len(messages))
        self._tails.append(_Tail(first.packed, len(messages), len(block)))
        while count := _to_merge(self._tails):
            some = self._tails[-count:]
            del self._tails[-count:]
            parts = [Messages.decoded(bytes(transaction.get(tail.first, db=disk.blocks))) for tail in some]
            joined = Messages.joined(parts)
            for tail in some:
                transaction.delete(tail.first, db=disk.blocks)
            block = joined.encoded()
            transaction.put(some[0].first, block, db=disk.blocks, append=True)
            self.meta.bytes += len(block) - sum(tail.size for tail in some)
            self._tails.append(_Tail(some[0].first, len(joined), len(block), some[0].level + 1))

    def _put(
        self, disk: Disk, transaction: Any, first: Position, last: Position, block: bytes, rows: int
    ) -> None:
        head = self.head
        assert head is None or first > head, f"{first} does not follow {head}"
        transaction.put(first.packed, block, db=disk.blocks, append=True)
        self.meta.head = last
        self.meta.entries += rows
        self.meta.bytes += len(block)

    # --- retention ------------------------------------------------------------------------------

    def trim(self) -> None:
        """Let go of what is too old, where nothing is appended."""
        self.append(())

    def _trim(self, disk: Disk, transaction: Any) -> None:
        """Whole blocks, the oldest first."""
        before_us = None if self._most_age_us is None else time.time_ns() // 1000 - self._most_age_us
        with transaction.cursor(db=disk.blocks) as cursor:
            trimmed = False
            while cursor.first():
                block = cursor.value()
                head = head_of(block)
                old = before_us is not None and head.time_us < before_us
                if self.meta.bytes <= self._most_bytes and not old:
                    break
                trimmed = True
                self.meta.trimmed = head.last
                self.meta.entries -= head.rows
                self.meta.bytes -= len(block)
                key = cursor.key()
                self._tails = [tail for tail in self._tails if tail.first != key]
                cursor.delete()
            self._oldest = Position.unpacked(bytes(cursor.key())) if cursor.first() else None
        if trimmed:
            self._forget_configurations(disk, transaction)
            disk.forget_dead_readers()

    def _forget_configurations(self, disk: Disk, transaction: Any) -> None:
        """Those of which nothing is left; the last one stays, as it says where the log goes on."""
        assert self.meta.trimmed is not None
        kept = Position.beginning(self.meta.trimmed.configuration).packed
        with transaction.cursor(db=disk.configurations) as cursor:
            while cursor.first() and cursor.key() < kept:
                cursor.delete()


def _to_merge(tails: list[_Tail]) -> int:
    """How many of the last blocks are to become one; 0 if none are. Those that are full are taken out."""
    if tails and (tails[-1].size >= GROWN_BYTES or tails[-1].rows >= MOST_ROWS // 2):
        tails.clear()
        return 0
    rows = size = count = 0
    for tail in reversed(tails):
        if tail.level != tails[-1].level:
            break
        if rows + tail.rows > MOST_ROWS or size + tail.size > FULL_BYTES:
            del tails[:-count]
            break
        rows += tail.rows
        size += tail.size
        count += 1
    return count if count > 1 and (count >= FAN or size >= GROWN_BYTES) else 0


def untagged(
    delivered: Sequence[Delivered], tag_of: Callable[[bytes], bytes | None]
) -> tuple[list[Run], pa.BinaryArray]:
    """Runs of messages for one group each, and their payloads without the tag.

    Packets for the same group follow each other mostly: they are looked at together, in Arrow.
    """
    runs: list[Run] = []
    arrays: list[pa.Array] = []
    at = 0
    while at < len(delivered):
        tag = tag_of(delivered[at].batch.payloads[0])
        end = at + 1
        while end < len(delivered) and tag is not None and delivered[end].batch.payloads[0].startswith(tag):
            end += 1
        some = delivered[at:end]
        payloads = chain.from_iterable([entry.batch.payloads for entry in some])
        array = binary(list(payloads))
        if tag is not None and pc.all(pc.starts_with(array, tag)).as_py():
            arrays.append(pc.binary_slice(array, len(tag), _END))
            runs += (_run(entry, 0, len(entry.batch.payloads), tag) for entry in some)
        else:
            for entry in some:
                _one_by_one(entry, tag_of, runs, arrays)
        at = end
    if len(arrays) == 1:
        return runs, arrays[0]
    return runs, pa.concat_arrays(arrays) if arrays else binary([])


def _run(entry: Delivered, begin: int, count: int, tag: bytes) -> Run:
    batch = entry.batch
    return Run(
        batch.seq, batch.slot + begin, batch.origin, batch.guarantee, tag[2:].decode(), entry.time_us, count
    )


def _one_by_one(
    entry: Delivered, tag_of: Callable[[bytes], bytes | None], runs: list[Run], arrays: list[pa.Array]
) -> None:
    """A packet for several groups, or with something that is for none: that is left out."""
    bodies: list[bytes] = []
    current: bytes | None = None
    begins = 0
    for place, payload in enumerate((*entry.batch.payloads, b"")):
        tag = tag_of(payload)
        if tag != current or place == len(entry.batch.payloads):
            if bodies and current is not None:
                runs.append(_run(entry, begins, len(bodies), current))
                arrays.append(binary(bodies))
            bodies, current, begins = [], tag, place
        if tag is not None:
            bodies.append(payload[len(tag) :])


class _Or:
    """What the disk refuses, in words that stop the node."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, lmdb.MapFullError):
            raise StorageProblem(
                f"the log {self._path} is full: readers that are slow, or were stopped, keep what was "
                "deleted from being used again. End them, or raise log_bytes, and start the node again."
            ) from error
        if isinstance(error, OSError | lmdb.Error):
            why = getattr(error, "strerror", None) or str(error)
            if "Input/output" in why and _full(self._path):  # what lmdb says of a write that was cut short
                why = os.strerror(errno.ENOSPC)
            raise StorageProblem(
                f"the log {self._path} cannot be written: {why}. The node stops, because its log would have "
                f"a hole. {_advice(why)}"
            ) from error


def _full(path: Path) -> bool:
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize < FULL_BYTES


def _advice(why: str) -> str:
    if any(os.strerror(number) in why for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)):
        return "Make room, or keep less with log_bytes or log_age, and start it again."
    if any(os.strerror(number) in why for number in (errno.EROFS, errno.EACCES, errno.EPERM)):
        return "Make the directory writable for the user that runs the node, or give it another one."
    return "Check the disk, make room, or keep less with log_bytes; or give the log another place."
