"""The disk of one replicated object, as its replica uses it: nothing here waits for the disk in the event
loop.

All that is appended while the disk is busy is written together and synced once (group commit). Snapshots are
written in a thread of their own, so that a large one does not hold up what is appended.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Self, TypeVar

from ordercast.directory import Directory
from ordercast.errors import StorageProblem
from ordercast.replicated.durable.files import ObjectFiles, SnapshotWriter
from ordercast.replicated.durable.heads import Entry, Head
from ordercast.replicated.durable.reading import Found

LOG = logging.getLogger("ordercast")
T = TypeVar("T")
PIECE_BYTES = 1024 * 1024
"""About so much of a snapshot is written, or read, at a time."""
COMMIT_BYTES = 8 * 1024 * 1024
"""One commit has not many more bytes than this."""
_OVERHEAD = 64


class DurableObject:
    """What of one object is on this node's disk, and what is on its way there."""

    def __init__(self, files: ObjectFiles, threads: tuple[ThreadPoolExecutor, ThreadPoolExecutor]) -> None:
        """Use `open`."""
        self.found: Found = files.found
        """What was there, when it was opened, and what is wrong with it."""
        self.on_synced: Callable[[Head], None] = _nothing
        """Called in the event loop: everything up to here is on disk."""
        self.on_failed: Callable[[StorageProblem], None] = _nothing
        """Called in the event loop, once: nothing more comes to be on this disk."""
        self.waiting_bytes = 0
        """What is appended and not on disk yet. The replica applies no more while it is too much."""
        self.synced_head: Head = files.head
        """Up to here everything is on disk."""
        self._files = files
        self._log_thread, self._snapshot_thread = threads
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Entry] = deque()
        self._writing: asyncio.Future[None] | None = None
        self._due: asyncio.Handle | None = None
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._snapshots = asyncio.Lock()
        self._replacing = False
        """What is on disk is of another history than what is appended, until a state was written."""
        self._replaced = 0
        """How often a state was to take the place of what is here."""
        self._ended: StorageProblem | None = None

    @classmethod
    async def open(cls, open_directory: Callable[[], Directory], object: str, node: int) -> Self:
        """Read what is there. `open_directory` is called in a thread. Raises `StorageProblem`."""
        threads = (
            ThreadPoolExecutor(1, "ordercast-object-log"),
            ThreadPoolExecutor(1, "ordercast-object-snapshot"),
        )

        def opened() -> ObjectFiles:
            directory = open_directory()
            try:
                return ObjectFiles(directory, object, node)
            except BaseException:
                directory.close()
                raise

        opening = asyncio.get_running_loop().run_in_executor(threads[0], opened)
        try:
            files = await asyncio.shield(opening)
        except BaseException:
            await asyncio.shield(_let_go(opening, threads))
            raise
        for notice in files.found.notices:
            LOG.warning("%s", notice)
        if files.found.damage is not None:
            LOG.error("%s: the state is taken from another replica", files.found.damage)
        return cls(files, threads)

    @property
    def log_bytes(self) -> int:
        """Bytes of the log behind the snapshot, about: with many of them it is time for another snapshot."""
        return self._files.log_bytes

    # --- the log --------------------------------------------------------------------------------

    def append(self, entries: Sequence[Entry]) -> None:
        """Put these behind the others. They are on disk when `on_synced` says so."""
        self._waiting.extend(entries)
        self.waiting_bytes += sum(len(entry.data) + _OVERHEAD for entry in entries)
        self._write_soon()

    async def synced(self, position: int) -> None:
        """Wait until everything up to this position is on disk, or a state of another replica is to take its
        place. Raises `StorageProblem` if it never will be."""
        if self._ended is not None:
            raise self._ended
        if self._replacing or position > self.synced_head.position:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append((position, waiter))
            await waiter

    def _write_soon(self) -> None:
        # What else is appended in this turn of the event loop is written with it.
        if self._may_write and self._due is None:
            self._due = self._loop.call_soon(self._write)

    @property
    def _may_write(self) -> bool:
        busy = self._writing is not None or self._replacing or self._ended is not None
        return bool(self._waiting) and not busy

    def _write(self) -> None:
        self._due = None
        if not self._may_write:
            return
        some: list[Entry] = []
        size = 0
        while self._waiting and size < COMMIT_BYTES:
            entry = self._waiting.popleft()
            some.append(entry)
            size += len(entry.data) + _OVERHEAD
        self._writing = self._loop.run_in_executor(self._log_thread, self._files.commit, some)
        self._writing.add_done_callback(lambda writing: self._written(writing, some[-1].head, size))

    def _written(self, writing: asyncio.Future[None], head: Head, size: int) -> None:
        self._writing = None
        if (error := writing.exception()) is not None:
            self._fail(error)
            return
        self.waiting_bytes -= size
        self._write_soon()
        if not self._replacing:
            self._tell(head)

    def _tell(self, head: Head) -> None:
        self.synced_head = head
        self._wake(head.position)
        self.on_synced(head)

    def _wake(self, position: int | None) -> None:
        """Wake who waits for this position, or an earlier one; None: all."""
        while self._waiters and (position is None or self._waiters[0][0] <= position):
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _fail(self, error: BaseException) -> None:
        if self._ended is not None:
            return
        if isinstance(error, StorageProblem):
            self._ended = error
        else:
            LOG.critical("the storage of an object stops: a defect in ordercast", exc_info=error)
            self._ended = StorageProblem(
                f"the storage of an object stops ({error!r}): this is a defect in ordercast, please report it"
            )
        self._waiting.clear()
        while self._waiters:
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(self._ended)
        self.on_failed(self._ended)

    async def promise(self, epoch: int) -> None:
        """Take part in no history of an earlier epoch any more: on disk when this returns. Raises
        `StorageProblem`."""
        if self._ended is not None:
            raise self._ended
        await self._in_log_thread(lambda: self._files.promise(epoch))

    # --- snapshots ------------------------------------------------------------------------------

    async def snapshot(self) -> AsyncIterator[bytes]:
        """The slices of the snapshot that counts. Raises `Damaged`: what it gave before is not used then."""
        slices = self._files.snapshot()

        def some() -> list[bytes]:
            taken: list[bytes] = []
            size = 0
            for data in slices:
                taken.append(data)
                size += len(data)
                if size >= PIECE_BYTES:
                    break
            return taken

        while taken := await self._loop.run_in_executor(self._snapshot_thread, some):
            for data in taken:
                yield data

    async def write_snapshot(self, head: Head, slices: AsyncIterator[bytes]) -> None:
        """Keep the state as it is at this place of the history; then the log up to there goes. Nothing comes
        of it if the state of another replica takes the place of both."""
        async with self._snapshots:
            replaced = self._replaced
            written = await self._written_snapshot(head, slices)
            if self._replaced == replaced:
                await self.synced(head.position)
            if self._replaced == replaced:
                await self._in_log_thread(lambda: self._files.adopt(written))
            else:
                await self._loop.run_in_executor(self._snapshot_thread, written.abandon)

    def replace(self, head: Head, slices: AsyncIterator[bytes]) -> Awaitable[None]:
        """Keep a state that was taken from another replica; all that was here goes, and what of it is
        damaged.

        What is appended from this call on is what follows that state: also before it is awaited. If it
        raises, nothing more is written until it is called again. Called while it is under way, the later
        state counts.
        """
        self._replacing = True
        self._replaced += 1
        while self._waiting:
            self.waiting_bytes -= len(self._waiting.popleft().data) + _OVERHEAD
        self._wake(None)
        return self._replace(self._replaced, head, slices)

    async def _replace(self, number: int, head: Head, slices: AsyncIterator[bytes]) -> None:
        if self._writing is not None:
            await asyncio.wait((self._writing,))
        async with self._snapshots:
            written = await self._written_snapshot(head, slices)
            await self._in_log_thread(lambda: self._files.replace(written))
        self.found = self._files.found
        if number == self._replaced:
            self._replacing = False
            self._tell(head)
            self._write_soon()

    async def _written_snapshot(self, head: Head, slices: AsyncIterator[bytes]) -> SnapshotWriter:
        def run(call: Callable[[], T]) -> asyncio.Future[T]:
            return self._loop.run_in_executor(self._snapshot_thread, call)

        if self._ended is not None:
            raise self._ended
        written = await run(lambda: self._files.new_snapshot(head))
        try:
            some: list[bytes] = []
            size = 0
            async for data in slices:
                some.append(data)
                size += len(data)
                if size >= PIECE_BYTES:
                    await run(partial(written.write_all, some))
                    some, size = [], 0
            await run(partial(written.write_all, some))
            await run(written.finish)
        except BaseException:
            await asyncio.shield(run(written.abandon))
            raise
        return written

    async def _in_log_thread(self, call: Callable[[], None]) -> None:
        try:
            await self._loop.run_in_executor(self._log_thread, call)
        except StorageProblem as problem:
            self._fail(problem)
            raise

    # --- the end --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Write what is appended, and let go of the directory."""
        while self._ended is None and (self._may_write or self._writing is not None):
            if self._writing is None:
                self._write()
            else:
                await asyncio.wait((self._writing,))
                await asyncio.sleep(0)  # until `_written` has been called
        if self._ended is None:
            self._ended = StorageProblem("the storage of the object is closed")
        for _, waiter in self._waiters:
            waiter.cancel()
        await self._loop.run_in_executor(self._log_thread, self._files.close)
        for thread in (self._log_thread, self._snapshot_thread):
            thread.shutdown(wait=False)


async def _let_go(opening: asyncio.Future[ObjectFiles], threads: Sequence[ThreadPoolExecutor]) -> None:
    """Nobody wants the files any more that are being opened: close them, if that comes to an end."""
    await asyncio.wait((opening,))
    if not opening.cancelled() and opening.exception() is None:
        await asyncio.get_running_loop().run_in_executor(threads[0], opening.result().close)
    for thread in threads:
        thread.shutdown(wait=False)


def _nothing(_: object) -> None:
    """Nobody asked to be told."""
