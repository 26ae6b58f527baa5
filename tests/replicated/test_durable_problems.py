"""Disks that refuse, and directories of others: a sentence, and the node goes on without the object."""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from accounts import Accounts, synced

import ordercast
from ordercast import Node, StorageProblem
from ordercast.replicated.durable import store
from ordercast.replicated.durable.files import ObjectFiles
from ordercast.testing import Cluster, run

VOTERS = (1, 2, 3)
PROTOCOLS = pytest.mark.parametrize("protocol", ["totem", "total"])


class Ledger(ordercast.Replicated):
    """A class whose state has another form than that of `Accounts`."""

    balance: list[int]

    def __init__(self) -> None:
        self.balance = []


class OpenAccounts(Accounts):
    """The class `Accounts`, as it was later: it has a field more."""

    closed: bool

    def __init__(self) -> None:
        super().__init__()
        self.closed = False


@asynccontextmanager
async def real_node(directory: Path, id: int = 1) -> AsyncIterator[Node]:
    """A node that is a majority by itself, on loopback."""
    data = directory / f"data-{id}"
    node = Node(id=id, listen="127.0.0.1:0", data=data, primary="majority", voters=(id,))
    async with node:
        yield node


async def goes_on(node: Node) -> None:
    """The node is as good as ever."""
    other = await node.replicate(Accounts(), "another", timeout=30)
    assert await other.deposit("b", 1) == 1


# --- the disk refuses -----------------------------------------------------------------------------


@PROTOCOLS
def test_a_full_disk_ends_the_replica_and_nothing_else(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "ordercast")

    async def main() -> None:
        async with Cluster(3, protocol=protocol, voters=VOTERS) as cluster:
            one, two, three = await asyncio.gather(
                *(node.replicate(Accounts(), "a", durable="objects", timeout=60) for node in cluster.nodes)
            )
            await one.deposit("a", 5)
            await synced(one, two, three)
            directory = cluster._directories[1, Path("objects/a")]
            directory.full = True
            assert await two.deposit("a", 5) == 10, "the others are a majority"
            with pytest.raises(StorageProblem, match="no space left on device"):
                await one.deposit("a", 5)
            assert any("a is not replicated here any more" in each.message for each in caplog.records)
            assert await three.deposit("a", 5) == 15
            other = await cluster.nodes[0].replicate(Accounts(), "b", timeout=60)
            assert await other.deposit("b", 1) == 1, "the node goes on"
            with pytest.raises(StorageProblem, match="no space left on device"):
                await cluster.nodes[0].replicate(Accounts(), "a", durable="objects", timeout=60)
            directory.full = False
            again = await cluster.nodes[0].replicate(Accounts(), "a", durable="objects", timeout=60)
            assert again.balance == {"a": 15}
            assert await again.deposit("a", 1) == 16

    run(main())


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    async def main() -> None:
        async with real_node(tmp_path) as node:
            (tmp_path / "file").touch()
            with pytest.raises(StorageProblem, match=f"{tmp_path}/file/a: Not a directory"):
                await node.replicate(Accounts(), "a", durable=tmp_path / "file", timeout=30)
            await goes_on(node)
            made = await node.replicate(Accounts(), "a", durable=tmp_path / "objects", timeout=30)
            assert await made.deposit("a", 1) == 1

    asyncio.run(main())


# --- not this object's ----------------------------------------------------------------------------


def test_a_directory_of_another_node(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            node = await stack.enter_async_context(real_node(tmp_path, 1))
            made = await node.replicate(Accounts(), "a", durable=tmp_path / "objects", timeout=30)
            await made.deposit("a", 1)
            async with real_node(tmp_path, 2) as other:
                with pytest.raises(
                    StorageProblem, match=r"is in use by process .* give each node a directory"
                ):
                    await other.replicate(Accounts(), "a", durable=tmp_path / "objects", timeout=30)
                await goes_on(other)
            assert await made.deposit("a", 1) == 2
        async with real_node(tmp_path, 2) as other:
            with pytest.raises(StorageProblem, match="holds the object a of node 1, and this is a of node 2"):
                await other.replicate(Accounts(), "a", durable=tmp_path / "objects", timeout=30)
            await goes_on(other)
        async with real_node(tmp_path, 1) as node:
            again = await node.replicate(Accounts(), "a", durable=tmp_path / "objects", timeout=30)
            assert again.balance == {"a": 2}

    asyncio.run(main())


def test_files_of_another_object(tmp_path: Path) -> None:
    async def main() -> None:
        objects = tmp_path / "objects"
        async with real_node(tmp_path) as node:
            made = await node.replicate(Accounts(), "a", durable=objects, timeout=30)
            await made.deposit("a", 1)
        shutil.copytree(objects / "a", objects / "b")
        async with real_node(tmp_path) as node:
            with pytest.raises(StorageProblem, match="holds the object a of node 1, and this is b of node 1"):
                await node.replicate(Accounts(), "b", durable=objects, timeout=30)
            await goes_on(node)
            again = await node.replicate(Accounts(), "a", durable=objects, timeout=30)
            assert again.balance == {"a": 1}

    asyncio.run(main())


def test_files_of_another_class(tmp_path: Path) -> None:
    async def main() -> None:
        objects = tmp_path / "objects"
        async with real_node(tmp_path) as node:
            made = await node.replicate(Accounts(), "a", durable=objects, timeout=30)
            await made.deposit("a", 1)
        async with real_node(tmp_path) as node:
            with pytest.raises(StorageProblem, match="what is on disk of a is not of this class"):
                await node.replicate(Ledger(), "a", durable=objects, timeout=30)
            await goes_on(node)
            again = await node.replicate(OpenAccounts(), "a", durable=objects, timeout=30)
            assert (again.balance, again.closed) == ({"a": 1}, False)
            assert await again.deposit("a", 1) == 2

    asyncio.run(main())


# --- an object that does not come to be replicated ------------------------------------------------


def test_a_directory_is_free_again_when_an_object_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with real_node(tmp_path) as node:
            wrong = Accounts()
            wrong.extra = 5  # type: ignore[attr-defined]
            with pytest.raises(ordercast.ConfigProblem, match=r"Accounts\.extra is no field"):
                await node.replicate(wrong, "a", durable=tmp_path / "objects", timeout=30)
            made = await node.replicate(Accounts(), "a", durable=tmp_path / "objects", timeout=30)
            assert await made.deposit("a", 1) == 1

    asyncio.run(main())


def test_a_directory_is_free_again_when_nobody_waits_for_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with real_node(tmp_path) as node:
            reads, goes_on = threading.Event(), threading.Event()

            def slowly(*args: object) -> ObjectFiles:
                reads.set()
                goes_on.wait(30)
                return ObjectFiles(*args)  # type: ignore[arg-type]

            monkeypatch.setattr(store, "ObjectFiles", slowly)
            opening = asyncio.create_task(node.replicate(Accounts(), "a", durable=tmp_path / "objects"))
            await asyncio.to_thread(reads.wait, 30)
            opening.cancel()
            await asyncio.sleep(0)
            goes_on.set()
            with pytest.raises(asyncio.CancelledError):
                await opening
            made = await node.replicate(Accounts(), "a", durable=tmp_path / "objects", timeout=30)
            assert await made.deposit("a", 1) == 1

    asyncio.run(main())
