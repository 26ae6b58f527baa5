"""Logs of real nodes: the same at each of them, over restarts, for all kinds of protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ordercast import Node
from ordercast.errors import ConfigProblem, KeyProblem, NotThere, NotYet, StorageProblem
from ordercast.keys import Keyring, generate, written
from ordercast.log import Position, Replica
from ordercast.log.compare import compare
from ordercast.log.store import Store

SAFETY_NET_S = 60
ANYWHERE = "127.0.0.1:0"


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def guarded() -> None:
        async with asyncio.timeout(SAFETY_NET_S):
            await test()

    asyncio.run(guarded())


def node(directory: Path, id: int, others: list[Node], **given: Any) -> Node:
    """A node with a log, beside others."""
    return Node(
        id=id,
        listen=ANYWHERE,
        seeds=[other.address for other in others],
        data=directory / f"data {id}",
        log=directory / f"log {id}",
        log_sync=False,
        **given,
    )


async def group(directory: Path, count: int, **given: Any) -> list[Node]:
    nodes: list[Node] = []
    for id in range(1, count + 1):
        one = node(directory, id, nodes[:1], **given)
        await one.start()
        nodes.append(one)
    for one in nodes:
        await one.wait_for(count)
    return nodes


async def stop(*nodes: Node) -> None:
    for one in nodes:
        await one.stop()


def found(replica: Replica, text: bytes) -> Position | None:
    """Where a message stands that cannot change any more; None if it is not there yet."""
    head = replica.bounds().head
    if head is None:
        return None
    start = replica.before(head, 1000)
    since = replica.bounds().since
    if start is not None and since is not None and start < since:
        start = since
    for batch in replica.read(start or since, head):
        for row in batch.to_pylist():
            if row["payload"] == text:
                return Position(*(row[name] for name in ("config_seq", "config_rep", "seq", "slot")))
    return None


def read(replica: Replica, start: Position, end: Position) -> list[pa.RecordBatch]:
    return list(replica.read(start, end))


async def place(replica: Replica, text: bytes) -> Position:
    while (there := await asyncio.to_thread(found, replica, text)) is None:
        await asyncio.sleep(0.02)
    return there


@pytest.mark.parametrize("protocol", ["totem", "total", "cm"])
def test_replicas_of_one_group_hold_the_same(tmp_path: Path, protocol: str) -> None:
    async def test() -> None:
        key = generate()
        nodes = await group(tmp_path, 3, protocol=protocol, key=key)
        groups = [await one.join("orders", receive=False) for one in nodes]
        for number in range(97):
            await groups[number % 3].send(b"message %d" % number, safe=number % 5 == 0)
        for number, sending in enumerate(groups):
            await (await sending.send(b"%d is done" % number, receipt=True))
        replicas = [Replica(one.status()["log"]["address"], key) for one in nodes]
        first = await place(replicas[0], b"message 0")
        await groups[0].send_many([b"x" * 100] * 5000)
        await groups[0].send(b"last")
        places = [await place(replica, b"last") for replica in replicas]
        assert len(set(places)) == 1
        start = Position(*first[:2], 0, 0)
        tables = []
        for replica in replicas:
            batches = await asyncio.to_thread(read, replica, start, places[0])
            rows = [row for batch in batches for row in batch.drop_columns("time_us").to_pylist()]
            assert len([row for row in rows if row["kind"] == "message"]) == 5101
            tables.append(rows)
        assert tables[0] == tables[1] == tables[2]
        assert {row["payload"] for row in tables[0] if row["guarantee"] == "safe"} == {
            b"message %d" % number for number in range(0, 97, 5)
        }
        verdict = await asyncio.to_thread(compare, replicas[0], replicas[2])
        assert verdict.equal
        assert verdict.entries >= 5101
        for replica in replicas:
            replica.close()
        await stop(*nodes)

    run(test)


def test_a_restart_leaves_a_gap_that_another_replica_fills(tmp_path: Path) -> None:
    async def test() -> None:
        one, two, three = await group(tmp_path, 3)
        sending = await one.join("g", receive=False)
        await sending.send(b"before")
        here = Replica(one.status()["log"]["address"])
        before = await place(here, b"before")
        await place(Replica(three.status()["log"]["address"]), b"before")
        await three.stop()
        await one.wait_for(2)
        await sending.send(b"meanwhile")
        meanwhile = await place(here, b"meanwhile")
        three = node(tmp_path, 3, [one])
        await three.start()
        await three.wait_for(3)
        await sending.send(b"after")
        there = Replica(three.status()["log"]["address"])
        after = await place(there, b"after")
        await place(here, b"after")

        def texts(replica: Replica, start: Position, end: Position) -> list[bytes]:
            rows = [row for batch in replica.read(start, end) for row in batch.to_pylist()]
            return [row["payload"] for row in rows if row["kind"] == "message"]

        for start, end in ((before, after), (meanwhile, after), (before, meanwhile)):
            with pytest.raises(NotThere):
                await asyncio.to_thread(texts, there, start, end)
        with pytest.raises(NotThere, match="was not there when"):
            await asyncio.to_thread(there.after, meanwhile, 10)
        assert await asyncio.to_thread(texts, here, before, after) == [b"meanwhile", b"after"]
        beginning = Position(*after[:2], 0, 0)
        assert await asyncio.to_thread(texts, there, beginning, after) == [b"after"]
        await stop(one, two, three)

    run(test)


def test_who_was_alone_goes_on_where_it_stopped(tmp_path: Path) -> None:
    async def test() -> None:
        places = []
        for life in range(3):
            only = node(tmp_path, 1, [])
            await only.start()
            await (await only.join("g", receive=False)).send(b"life %d" % life)
            with Replica(only.status()["log"]["address"]) as replica:
                places.append(await place(replica, b"life %d" % life))
            await only.stop()
        with Replica(str(tmp_path / "log 1")) as replica:
            rows = [
                row["payload"] for batch in replica.read(places[0], places[2]) for row in batch.to_pylist()
            ]
        assert [text for text in rows if text] == [b"life 1", b"life 2"]

    run(test)


def test_a_reader_of_the_directory_sees_a_message_soon(tmp_path: Path) -> None:
    async def test() -> None:
        nodes = await group(tmp_path, 2)
        sending = await nodes[0].join("g", receive=False)
        with Replica(str(tmp_path / "log 2")) as replica:
            for number in range(5):
                await sending.send(b"number %d" % number)
                await place(replica, b"number %d" % number)
                assert replica.after(replica.bounds().head, 1) is None
        await stop(*nodes)

    run(test)


def test_a_log_is_served_to_nobody_without_the_key(tmp_path: Path) -> None:
    async def test() -> None:
        only = node(tmp_path, 1, [], key=written(generate()))
        await only.start()
        address = only.status()["log"]["address"]
        with pytest.raises(KeyProblem, match="the log is sealed"):
            await asyncio.to_thread(Replica(address).bounds)
        assert only.status()["log"]["drops"] == {"refused": 1}
        await only.stop()

    run(test)


def opens(address: str, key: bytes) -> bool:
    try:
        Replica(address, key).bounds()
    except KeyProblem:
        return False
    return True


def test_the_key_may_be_changed_while_the_node_runs(tmp_path: Path) -> None:
    async def test() -> None:
        old, new = generate(), generate()
        file = tmp_path / "group.key"
        file.touch(mode=0o600)
        file.write_text(written(old))
        only = node(tmp_path, 1, [], key=file)
        await only.start()
        address = only.status()["log"]["address"]
        assert (await asyncio.to_thread(Replica(address, old).bounds)).node == 1
        file.write_text(f"{written(new)}\n{written(old)}\n")
        while not await asyncio.to_thread(opens, address, new):
            await asyncio.sleep(0.1)
        assert (await asyncio.to_thread(Replica(address, str(file)).bounds)).node == 1
        assert Keyring.load(file).keys == (new, old)
        await only.stop()

    run(test)


def test_a_log_belongs_to_one_running_node(tmp_path: Path) -> None:
    async def test() -> None:
        one = node(tmp_path, 1, [])
        await one.start()
        with pytest.raises(StorageProblem, match="give each node a log directory of its own"):
            await Node(id=1, listen=ANYWHERE, log=tmp_path / "log 1").start()
        await one.stop()
        with pytest.raises(StorageProblem, match="is the log of node 1, and this is node 2"):
            await Node(id=2, listen=ANYWHERE, log=tmp_path / "log 1").start()
        again = node(tmp_path, 1, [])
        await again.start()
        await again.stop()

    run(test)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"log": "kept", "log_listen": "0.0.0.0:0"}, "other machines could read the log"),
        ({"log_listen": "127.0.0.1:0"}, "there is no log to be read there"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    tmp_path: Path, given: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def test() -> None:
        with pytest.raises(ConfigProblem, match=sentence):
            await Node(listen=ANYWHERE, **given).start()

    run(test)


def test_a_log_that_cannot_be_written_stops_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        one = node(tmp_path, 1, [])
        await one.start()
        group = await one.join("g", receive=False)

        def fails(store: Store, entries: Any) -> None:
            raise StorageProblem("the log cannot be written: no space left")

        monkeypatch.setattr(Store, "append", fails)
        await group.send(b"never kept")
        with pytest.raises(StorageProblem, match="no space left"):
            await one.closed()
        monkeypatch.undo()
        await one.stop()

    run(test)


def test_a_position_ahead_of_a_replica_is_not_there_yet(tmp_path: Path) -> None:
    async def test() -> None:
        only = node(tmp_path, 1, [])
        await only.start()
        with Replica(only.status()["log"]["address"]) as replica:
            head = None
            while head is None:
                head = (await asyncio.to_thread(replica.bounds)).head
                await asyncio.sleep(0.01)
            with pytest.raises(NotYet):
                # Further than the next rings of a node that is alone: their numbers are drawn.
                await asyncio.to_thread(replica.after, head._replace(config_seq=head.config_seq + 2**40), 1)
        await only.stop()

    run(test)
