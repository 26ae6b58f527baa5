"""The disk of a replica: what its machine wants kept there, and what is read back when the replica begins."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Self

from ordercast.core.wire import UNREADABLE
from ordercast.directory import Directory
from ordercast.errors import Damaged, StorageProblem
from ordercast.replicated.durable.heads import Head
from ordercast.replicated.durable.store import DurableObject
from ordercast.replicated.effects import Keep, Promise, Store
from ordercast.replicated.notes import read_kept
from ordercast.replicated.snapshot import Restored, Snapshot, Unsound
from ordercast.replicated.state import Outdated

if TYPE_CHECKING:
    from ordercast.replicated.replica import Replica

LOG = logging.getLogger("ordercast")

LOG_BYTES = 16 * 1024 * 1024
"""With so much of a log, and more of it than of the last snapshot, another snapshot is written."""
MOST_WAITING = 64 * 1024 * 1024
"""Bytes that may wait for the disk; with more, all who send to the object are held up."""
CANNOT_BE_ENCODED = (Unsound, TypeError, ValueError, OverflowError)


class ReplicaDisk:
    """What of one object is on this node's disk."""

    def __init__(self, files: DurableObject, name: str) -> None:
        """Use `open`."""
        self._files = files
        self._name = name
        self._tasks: set[asyncio.Task[None]] = set()
        self._snapshot_bytes = 0
        self._snapshot_under_way = False
        self._replica: Replica | None = None
        self._holds_up = False

    @classmethod
    async def open(cls, open_directory: Callable[[], Directory], name: str, node: int) -> Self:
        """Read what is there. Raises `StorageProblem`."""
        return cls(await DurableObject.open(open_directory, name, node), name)

    # --- what is read back ----------------------------------------------------------------------

    async def restore(self, replica: Replica) -> None:
        """Give a replica that begins what is on disk. Raises `StorageProblem` if it is of another class."""
        self._replica = replica
        self._files.on_synced = self._on_synced
        self._files.on_failed = replica.fail
        machine, found = replica.machine, self._files.found
        if found.damage is not None:
            machine.begin_without_state(found.promised)
            return
        machine.take_part_from(found.promised)
        if found.snapshot is None:
            return
        state = Restored(replica.target)
        try:
            async for data in self._files.snapshot():
                self._snapshot_bytes += len(data)
                state.add(data)
            entries = [(*read_kept(entry.data), entry.head) for entry in found.entries]
        except Damaged as error:
            LOG.error("%s: the state is taken from another replica", error)
            machine.begin_without_state(found.promised)
            return
        except (Unsound, Outdated, *UNREADABLE) as error:
            raise StorageProblem(
                f"what is on disk of {self._name} is not of this class ({error}): begin with the class that "
                "wrote it, or empty the directory, and the state comes from the other replicas"
            ) from error
        machine.restore(state, entries)

    # --- what the machine wants -----------------------------------------------------------------

    def do(self, what: Promise | Keep | Store) -> None:
        """Begin to carry out what the machine wants of the disk."""
        match what:
            case Promise(epoch):
                self._begin(lambda replica: self._promise(replica, epoch))
            case Keep(entries):
                self._files.append(entries)
                self._look_at_waiting()
                if not self._snapshot_under_way and self._files.log_bytes > self._most_log_bytes:
                    self._snapshot_under_way = True
                    self._begin(self._write_snapshot)
            case Store():
                replica = self._replica
                assert replica is not None, "it was restored"
                try:
                    snapshot = replica.begin_snapshot()
                except CANNOT_BE_ENCODED as error:
                    replica.fail(StorageProblem(f"{self._name} cannot be kept on disk: {error}"))
                    return
                replacing = self._files.replace(snapshot.head, self._slices(replica, snapshot))

                async def replaced(_: Replica) -> None:
                    try:
                        await replacing
                    except CANNOT_BE_ENCODED as error:
                        raise StorageProblem(f"{self._name} cannot be kept on disk: {error}") from error

                self._begin(replaced)
                replica.run(replica.machine.storing(snapshot.head))

    def _on_synced(self, head: Head) -> None:
        assert self._replica is not None, "it was restored"
        self._look_at_waiting()
        self._replica.run(self._replica.machine.synced(head))

    def _look_at_waiting(self) -> None:
        """Hold up who sends to the object while the disk does not keep up."""
        waiting = self._files.waiting_bytes
        holds_up = waiting > (MOST_WAITING // 2 if self._holds_up else MOST_WAITING)
        if holds_up != self._holds_up and self._replica is not None:
            self._holds_up = holds_up
            why = f"the disk does not keep up with the object {self._name}: {waiting} bytes wait"
            self._replica.hold_up(why if holds_up else None)

    @property
    def _most_log_bytes(self) -> int:
        return max(LOG_BYTES, self._snapshot_bytes)

    async def _promise(self, replica: Replica, epoch: int) -> None:
        await self._files.promise(epoch)
        replica.run(replica.machine.promised(epoch))

    async def _write_snapshot(self, replica: Replica) -> None:
        try:
            if replica.machine.has_state:
                snapshot = replica.begin_snapshot()
                await self._files.write_snapshot(snapshot.head, self._slices(replica, snapshot))
        except CANNOT_BE_ENCODED as error:
            self._snapshot_bytes = 2 * self._files.log_bytes  # not again at once
            LOG.error("%s: the log on disk grows, since no snapshot can be written: %s", self._name, error)
        finally:
            self._snapshot_under_way = False

    async def _slices(self, replica: Replica, snapshot: Snapshot) -> AsyncIterator[bytes]:
        await replica.completed(snapshot)
        size = 0
        async for data in snapshot.slowly(checked=True):  # else the log would go that can be read
            size += len(data)
            yield data
        self._snapshot_bytes = size

    def _begin(self, what: Callable[[Replica], Coroutine[Any, Any, None]]) -> None:
        replica = self._replica
        assert replica is not None, "it was restored"

        async def run() -> None:
            try:
                await what(replica)
            except StorageProblem as problem:
                replica.fail(problem)

        task = asyncio.create_task(run(), name=f"ordercast-disk-{self._name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Write what is appended, and let go of the directory."""
        if self._holds_up and self._replica is not None:
            self._replica.hold_up(None)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._files.close()
