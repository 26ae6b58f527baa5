"""The disk of an object in the event loop: what waits is synced together, and nobody is told too early."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ordercast.directory import DiskDirectory
from ordercast.errors import StorageProblem
from ordercast.memory_directory import MemoryDirectory
from ordercast.replicated.durable.heads import Entry, Head
from ordercast.replicated.durable.store import DurableObject
from ordercast.testing import run


def entries(first: int, count: int) -> list[Entry]:
    return [
        Entry(Head(1, number, number * 7), b"entry %d" % number) for number in range(first, first + count)
    ]


async def slices(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def opened(directory: MemoryDirectory) -> DurableObject:
    return await DurableObject.open(lambda: directory, "bank", 1)


def test_what_is_appended_together_is_synced_once() -> None:
    async def main() -> None:
        directory = MemoryDirectory()
        store = await opened(directory)
        calls, told = directory.calls, list[Head]()
        store.on_synced = told.append
        for first in range(1, 100):
            store.append(entries(first, 1))
        assert not told
        assert store.waiting_bytes > 99 * 8
        await store.synced(99)
        assert told == [entries(99, 1)[0].head]
        assert store.waiting_bytes == 0
        assert (
            directory.calls - calls == 6
        )  # the segment, its name, the head in two slots: written and synced
        await store.synced(99)
        await store.close()
        again = await opened(directory)
        assert [entry.data for entry in again.found.entries] == [b"entry %d" % at for at in range(1, 100)]
        await again.close()

    run(main())


def test_what_comes_while_the_disk_is_busy_is_synced_next(tmp_path: Path) -> None:
    class Slow(DiskDirectory):
        """Syncs when it is let."""

        may = threading.Semaphore(0)
        syncs = 0

        def sync(self, name: str) -> None:
            if name == "head":
                self.syncs += 1
                assert self.may.acquire(timeout=60)
            super().sync(name)

    async def main() -> None:
        directory = Slow(tmp_path / "bank")
        store = await DurableObject.open(lambda: directory, "bank", 1)
        told = list[int]()
        store.on_synced = lambda head: told.append(head.position)
        store.append(entries(1, 1))
        while not directory.syncs:
            await asyncio.sleep(0)
        store.append(entries(2, 3))
        store.append(entries(5, 2))
        assert told == []
        directory.may.release()
        await store.synced(1)
        assert told == [1]
        directory.may.release()
        await store.synced(6)
        assert told == [1, 6]
        assert directory.syncs == 2
        await store.close()
        assert store.synced_head.position == 6

    asyncio.run(main())


def test_snapshots_and_states_of_others() -> None:
    async def main() -> None:
        directory = MemoryDirectory()
        store = await opened(directory)
        store.append(entries(1, 10))
        large = bytes(3_000_000)
        await store.write_snapshot(entries(10, 1)[0].head, slices(b"ten", large))
        store.append(entries(11, 2))
        await store.close()

        store = await opened(directory)
        assert [part async for part in store.snapshot()] == [b"ten", large]
        assert [entry.head.position for entry in store.found.entries] == [11, 12]
        del directory.content("head")[100:]
        await store.close()

        store = await opened(directory)
        assert store.found.damage is not None
        assert store.found.head is None
        await store.replace(Head(4, 50, 3), slices(b"fifty"))
        assert store.found.damage is None
        store.append([Entry(Head(4, 51, 4), b"more")])
        await store.synced(51)
        await store.close()
        store = await opened(directory)
        assert [part async for part in store.snapshot()] == [b"fifty"]
        assert store.found.head == Head(4, 51, 4)
        await store.close()

    run(main())


def test_what_follows_a_state_of_another_may_be_appended_before_that_is_written() -> None:
    async def main() -> None:
        directory = MemoryDirectory()
        store = await opened(directory)
        told = list[int]()
        store.on_synced = lambda head: told.append(head.position)
        store.append(entries(1, 5))
        await store.synced(5)
        go_on = asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            await go_on.wait()
            yield b"three"

        store.append(entries(6, 1))  # of the history that goes
        replacing = asyncio.ensure_future(store.replace(Head(2, 3, 1), slow()))
        await asyncio.sleep(1)
        store.append([Entry(Head(2, 4, 2), b"other")])
        waiting = asyncio.create_task(store.synced(4))
        await asyncio.sleep(1)
        assert told == [5]
        assert not waiting.done()
        go_on.set()
        await replacing
        await waiting
        assert told == [5, 3, 4]
        assert store.waiting_bytes == 0
        await store.close()
        store = await opened(directory)
        assert store.found.head == Head(2, 4, 2)
        await store.close()

    run(main())


@pytest.mark.parametrize("late", [False, True])
def test_a_state_of_another_does_not_wait_for_a_snapshot_of_what_was_here(late: bool) -> None:
    async def main() -> None:
        directory = MemoryDirectory()
        store = await opened(directory)
        store.append(entries(1, 2))
        await store.synced(2)
        go_on = asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            await go_on.wait()
            yield b"three"

        # what it is of may not be on disk yet, or is not even appended
        snapshot = asyncio.create_task(store.write_snapshot(entries(3 if late else 2, 1)[0].head, slow()))
        await asyncio.sleep(1)
        if late:
            go_on.set()
            await asyncio.sleep(1)
        replacing = asyncio.ensure_future(store.replace(Head(2, 9, 1), slices(b"nine")))
        go_on.set()
        async with asyncio.timeout(10):
            await asyncio.gather(snapshot, replacing)
        assert store.synced_head == Head(2, 9, 1)
        await store.close()
        assert [name for name in directory.names() if name.endswith(".new")] == []
        store = await opened(directory)
        assert [part async for part in store.snapshot()] == [b"nine"]
        await store.close()

    run(main())


def test_a_snapshot_that_fails_leaves_what_was_there() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise RuntimeError("the state changed")

    async def main() -> None:
        directory = MemoryDirectory()
        store = await opened(directory)
        store.append(entries(1, 3))
        with pytest.raises(RuntimeError, match="changed"):
            await store.write_snapshot(entries(3, 1)[0].head, broken())
        store.append(entries(4, 1))
        await store.close()
        assert [name for name in directory.names() if "state" in name] == []
        store = await opened(directory)
        assert len(store.found.entries) == 4
        await store.close()

    run(main())


def test_a_disk_that_fails_is_told_once_and_to_all_who_wait() -> None:
    async def main() -> None:
        directory = MemoryDirectory()
        store = await opened(directory)
        failed = list[StorageProblem]()
        store.on_failed = failed.append
        directory.full = True
        store.append(entries(1, 1))
        with pytest.raises(StorageProblem, match="no space"):
            await store.synced(1)
        directory.full = False
        store.append(entries(2, 1))
        with pytest.raises(StorageProblem, match="no space"):
            await store.synced(2)
        assert len(failed) == 1
        await store.close()

    run(main())
