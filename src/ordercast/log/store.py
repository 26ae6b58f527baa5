"""Writing a log: what is final is appended, small blocks become larger ones, what is old goes.

One process writes. Everything that a call appends is one transaction: a process that is killed leaves a log
that ends between two of them. Work is done per packet, and in Arrow per message.

Blocks are merged as they come: eight small ones to a larger one, eight of those to a still larger one, until
a block is full. So a log of a message a second is read as fast as one of a hundred thousand, and each byte is
written a few times at most.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ordercast.core.addresses import MESSAGE, STAMP_SIZE, address_of, names_of, sent_us
from ordercast.core.identity import Batch, Configuration, ConfigurationId, NodeId
from ordercast.errors import LogError, StorageProblem
from ordercast.log.arrays import MOST_ROWS, binary, no_heads
from ordercast.log.blocks import MessageRun, Messages
from ordercast.log.blocks import change as change_block
from ordercast.log.change import Change
from ordercast.log.disk import OLD_FILE, Missing, survey
from ordercast.log.files import Fetch, Files
from ordercast.log.position import Position
from ordercast.log.segment import Meta
from ordercast.log.storage_errors import StorageErrors, take
from ordercast.process_groups.notes import parts

FULL_BYTES = 1024 * 1024
"""A block has not many more bytes than this."""
GROWN_BYTES = FULL_BYTES // 2
"""A block that has so many is large enough, and merged no more."""
FAN = 8
"""How many blocks of about one size are merged into one."""
LEAST_SEGMENT, MOST_SEGMENT = 64 * 1024, 16 * 1024 * 1024
"""Bytes of a segment, which is an eighth of what is kept, within these bounds."""
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
    """Whether it is the first configuration of a life of the node."""


class _Tail(NamedTuple):
    """A block at the end that may still be merged with the next."""

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
        *,
        most_bytes: int,
        most_age_s: float | None = None,
        sync: bool = True,
        commits: int = 0,
    ) -> None:
        """Take the directory, made if need be, for this process.

        `commits`: how many commits the log is known to have had; with fewer it is an old copy.
        """
        self.path = path
        self.node = node
        self.problems: list[str] = []
        """What was wrong with the files of the log when it was opened, in words."""
        self._most_bytes = most_bytes
        self._most_age_us = None if most_age_s is None else int(most_age_s * 1_000_000)
        self._tails: list[_Tail] = []
        self._one_at_a_time = threading.Lock()
        self._lock = take(path)
        self._files: Files | None = None
        try:
            self._open(sync, commits)
        except BaseException:
            self.close()
            raise

    def _open(self, sync: bool, commits: int) -> None:
        with StorageErrors(self.path):
            try:
                found = survey(self.path, mine=True)
            except LogError as error:
                raise StorageProblem(str(error)) from error
            if found.meta is not None and found.meta.node != self.node:
                raise StorageProblem(
                    f"{self.path} is the log of node {found.meta.node}, and this is node {self.node}: give "
                    "each node a log directory of its own, and a data directory, so that it keeps its "
                    "identifier"
                )
            if found.meta is None and (self.path / OLD_FILE).exists():
                raise StorageProblem(
                    f"{self.path} holds a log of an earlier version of ordercast, which this one does not "
                    "read: give the node an empty log directory; the other nodes have the entries, or read "
                    "them first with the version that wrote them"
                )
            self.problems += found.problems
            segment_bytes = max(LEAST_SEGMENT, min(MOST_SEGMENT, self._most_bytes // 8))
            self._files = Files(self.path, found, self.node, segment_bytes, sync)
        self._missing = found.missing()
        self._oldest = self._files.oldest
        stale = self._files.meta.commit < commits
        if stale:
            self.problems.append(
                f"the log in {self.path} is an old copy, or a part of it is lost: it had {commits:,} "
                f"commits, and {self._files.meta.commit:,} are there"
            )
            self._files.meta.commit = commits
        damaged = bool(self.problems or self._missing)
        self._resumes = not stale and (self.head is None or (self.meta.alone and not damaged))
        """Nothing can have passed the node by since the last entry."""
        self._with_others = False
        self._configuration: ConfigurationId | None = None
        if found.meta is None or damaged:
            # Whose log it is; and the head is whole again.
            with self._one_at_a_time, self._transaction() as change:
                change.meta.alone = change.meta.alone and not damaged
        self.commits = self.meta.commit
        """How many commits there were."""

    def close(self) -> None:
        """Let go of the directory."""
        files, self._files = self._files, None
        if files is not None:
            files.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def meta(self) -> Meta:
        """What the log tells of itself."""
        return self._open_files.meta

    @property
    def _open_files(self) -> Files:
        assert self._files is not None, "the log is closed"
        return self._files

    @property
    def oldest(self) -> Position | None:
        """The first entry that is kept."""
        return self._oldest

    @property
    def ages(self) -> bool:
        """Whether entries go when they are old, even if nothing comes."""
        return self._most_age_us is not None

    @property
    def missing(self) -> list[Missing]:
        """Entries that were here and are not any more, as far as is known: see `Store.check`."""
        return list(self._missing)

    def notes(self) -> dict[bytes, bytes]:
        """What is remembered beside the entries."""
        return dict(self._open_files.notes)

    @property
    def head(self) -> Position | None:
        """The position of the last entry; None if there is none."""
        return self.meta.head

    # --- appending ------------------------------------------------------------------------------

    @property
    def may_lack(self) -> bool:
        """Whether entries may have passed the node by since the last one that is here."""
        return self.head is not None and not self._resumes

    def catch_up(self, blocks: Sequence[bytes]) -> None:
        """Append entries that passed the node by, as another replica has them."""
        with self._one_at_a_time, self._transaction() as change:
            self._tails.clear()
            for block in blocks:
                change.put(block)
            change.meta.alone = False
            self._trim(change)

    def append(self, entries: Sequence[Delivered | Installed]) -> None:
        """These, in order, as a whole or not at all; then what retention says."""
        with self._one_at_a_time, self._transaction() as change:
            self._append(change, entries)
            self._trim(change)

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
                with self._transaction() as change:
                    change.meta.alone = False

    @contextmanager
    def _transaction(self) -> Iterator[Change]:
        """Everything inside is there afterwards, or nothing is."""
        files = self._open_files
        tails, configuration, resumes = list(self._tails), self._configuration, self._resumes
        try:
            with StorageErrors(self.path):
                change = self._begin(files)
                yield change
                files.commit(change)
                self._oldest = files.oldest
                self.commits = change.meta.commit
        except BaseException:
            self._tails, self._configuration, self._resumes = tails, configuration, resumes
            raise

    def _begin(self, files: Files) -> Change:
        segment = files.tail.id
        change, problems = files.begin()
        if files.tail.id != segment:
            self._tails.clear()
        if problems:
            self.problems += problems
            self._missing = files.missing()
        return change

    def _append(self, change: Change, entries: Sequence[Delivered | Installed]) -> None:
        waiting: list[Delivered] = []
        for entry in entries:
            if isinstance(entry, Delivered):
                if entry.batch.payloads:  # else there are only notes
                    waiting.append(entry)
                if entry.notes is not None:
                    change.notes.update(entry.notes)
            else:
                self._put_messages(change, waiting)
                waiting = []
                self._put_change(change, entry)
        self._put_messages(change, waiting)

    def _put_change(self, change: Change, entry: Installed) -> None:
        time_us, configuration, first = entry
        place = Position.beginning(configuration.id)
        head = change.meta.head
        if head is not None and place <= head:
            raise StorageProblem(
                f"the log in {self.path} goes up to {head}, and the node was let into the configuration "
                f"{configuration.id}, which is not later: the log is of another group, or the node's data "
                "directory was lost or is an old copy. Give the node an empty log directory."
            )
        change.put(change_block(configuration, time_us), gap=first and not self._resumes)
        self._tails.clear()
        self._resumes = False
        change.meta.alone = configuration.members == (self.node,) and not self._with_others
        self._configuration = configuration.id

    def _put_messages(self, change: Change, delivered: Sequence[Delivered]) -> None:
        """Messages of one configuration, in blocks of a bounded size."""
        some: list[Delivered] = []
        rows = size = 0
        for entry in delivered:
            count, length = len(entry.batch.payloads), sum(map(len, entry.batch.payloads))
            if some and (rows + count > MOST_ROWS or size + length > FULL_BYTES):
                self._put_block(change, some)
                some, rows, size = [], 0, 0
            some.append(entry)
            rows += count
            size += length
        if some:
            self._put_block(change, some)

    def _put_block(self, change: Change, some: list[Delivered]) -> None:
        assert self._configuration is not None, "messages are delivered in a configuration"
        runs, payloads, heads = unaddressed(some)
        if not runs:
            return
        messages = Messages.of(self._configuration, runs, payloads, heads)
        block = messages.encoded()
        change.put(block)
        self._tails.append(_Tail(len(messages), len(block)))
        while count := _to_merge(self._tails):
            joined = change.merge(count)
            if joined is None:
                self._tails.clear()  # what is to be merged is damaged, and stays as it is
                return
            level = self._tails[-count].level + 1
            del self._tails[-count:]
            self._tails.append(_Tail(*joined, level))

    # --- retention ------------------------------------------------------------------------------

    def trim(self) -> None:
        """Let go of what is too old, where nothing is appended."""
        self.append(())

    def _trim(self, change: Change) -> None:
        """Whole blocks, the oldest first."""
        before_us = None if self._most_age_us is None else time.time_ns() // 1000 - self._most_age_us
        for block in change.kept():
            old = before_us is not None and block.head.time_us < before_us
            if change.meta.bytes <= self._most_bytes and not old:
                break
            change.trim(block)
        del self._tails[: max(0, len(self._tails) - change.blocks_kept)]

    # --- repairing ------------------------------------------------------------------------------

    def check(self, segment: int) -> list[Missing]:
        """Read all blocks of a segment: entries of it that are damaged, or not there."""
        with StorageErrors(self.path):
            return self._open_files.check(segment)

    def is_spoilt(self, segment: int) -> bool:
        """Whether the file of a segment is damaged somewhere, even if all its blocks can be read."""
        return self._open_files.is_spoilt(segment)

    @property
    def finished(self) -> list[int]:
        """The segments that can be checked and repaired: those that are written no more."""
        return self._open_files.finished

    def repair(self, segment: int, fetch: Fetch) -> str | None:
        """Put a segment together again from what is left of it and what `fetch` gives.

        `fetch` is asked for the blocks of the entries that are missing, after one position up to another.
        Returns None, or a sentence on why what it gave does not fit; nothing is changed then.
        """
        with StorageErrors(self.path):
            made = self._open_files.mended(segment, fetch)
            if isinstance(made, str):
                return made
            with self._one_at_a_time:
                self._open_files.replace(segment, made)
        self._missing = self._open_files.missing()
        return None


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


def unaddressed(
    delivered: Sequence[Delivered],
) -> tuple[list[MessageRun], pa.BinaryArray, pa.BinaryArray | None]:
    """Runs of messages with one address each, stamp and all; their payloads without it; their heads, if any
    has one.

    Packets with the same address follow each other mostly: they are looked at together, in Arrow.
    """
    runs: list[MessageRun] = []
    arrays: list[pa.Array] = []
    heads: list[pa.Array | None] = []
    at = 0
    while at < len(delivered):
        found = address_of(delivered[at].batch.payloads[0])
        front = b"" if found is None else found[:-STAMP_SIZE]
        end = at + 1
        while end < len(delivered) and found and delivered[end].batch.payloads[0].startswith(front):
            end += 1
        some = delivered[at:end]
        payloads = chain.from_iterable([entry.batch.payloads for entry in some])
        array = binary(list(payloads))
        if found is not None and found[0] == MESSAGE and _all_begin(array, front, len(found)):
            arrays.append(pc.binary_slice(array, len(found), _END))
            heads.append(None)
            runs += _runs(some, names_of(found), pc.binary_slice(array, len(front), len(found)))
        else:  # several addresses, or what has heads, or is no message, which is left out
            for entry in some:
                for found, part in entry.batch.runs(address_of):
                    if found is not None:
                        beside, bodies = parts(found, part.payloads)
                        runs.append(_run(part, entry.time_us, found))
                        arrays.append(binary(bodies))
                        heads.append(None if beside is None else binary(beside))
        at = end
    return runs, _joined(arrays), _joined_heads(arrays, heads)


def _joined(arrays: Sequence[pa.Array]) -> pa.BinaryArray:
    if len(arrays) == 1:
        return arrays[0]
    return pa.concat_arrays(arrays) if arrays else binary([])


def _joined_heads(arrays: Sequence[pa.Array], heads: Sequence[pa.Array | None]) -> pa.BinaryArray | None:
    if all(each is None for each in heads):
        return None
    told = zip(arrays, heads, strict=True)
    return _joined([no_heads(len(array)) if each is None else each for array, each in told])


def _all_begin(payloads: pa.BinaryArray, front: bytes, size: int) -> bool:
    """Whether all payloads begin with an address of this size, the same but for its stamp."""
    long_enough = pc.min(pc.binary_length(payloads)).as_py() >= size
    return long_enough and bool(pc.all(pc.starts_with(payloads, front)).as_py())


def _runs(some: Sequence[Delivered], group: str, stamps: pa.BinaryArray) -> Iterator[MessageRun]:
    """The runs of packets that are for the same groups; the stamp of each message is known."""
    encoded = pc.run_end_encode(stamps)
    ends, times = encoded.run_ends.to_pylist(), list(map(sent_us, encoded.values.to_pylist()))
    done = run = 0
    for time_us, batch, _ in some:
        begin, count = 0, len(batch.payloads)
        while begin < count:
            length = min(count - begin, ends[run] - done)
            slot = batch.slot + begin
            yield MessageRun(
                batch.seq, slot, batch.origin, batch.guarantee, group, time_us, length, times[run]
            )
            begin += length
            done += length
            run += done == ends[run]


def _run(batch: Batch, time_us: int, found: bytes) -> MessageRun:
    group, count = names_of(found), len(batch.payloads)
    sent = sent_us(found)
    return MessageRun(batch.seq, batch.slot, batch.origin, batch.guarantee, group, time_us, count, sent)
