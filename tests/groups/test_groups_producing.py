"""Tasks served by real nodes: rows go in at any of them, and come out once at all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from group_nodes import make_node, payloads, ring, run, together

from ordercast import MessageTooLarge, Node
from ordercast.core.checksum import checksum
from ordercast.groups import producing as producing_module
from ordercast.groups.notes import MOST_PRODUCERS


class Talk:
    """A line to a node without a network, and the task at its other end."""

    def __init__(self, node: Node, **wish: Any) -> None:
        self._to_node: asyncio.Queue[tuple[dict[str, Any], bytes] | None] = asyncio.Queue()
        self._to_task: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        wish = {"group": "rows", "producer": b"task", "batch": 0, "run": b"", "attempt": 0, **wish}
        self.serving = asyncio.create_task(node._running.producing.serve(self, wish))

    async def receive(self) -> tuple[dict[str, Any], bytes] | None:
        return await self._to_node.get()

    async def send(self, header: dict[str, Any]) -> None:
        self._to_task.put_nowait(header)

    async def hear(self) -> dict[str, Any]:
        hearing = asyncio.create_task(self._to_task.get())
        await asyncio.wait((hearing, self.serving), return_when=asyncio.FIRST_COMPLETED)
        if not hearing.done():
            await asyncio.sleep(0)
        if not hearing.done():
            hearing.cancel()
            await self.serving
        return await hearing

    async def hear_taken(self) -> dict[str, Any]:
        while "outcome" not in (said := await self.hear()):
            pass
        return said

    async def hear_kept(self, count: int) -> None:
        while (await self.hear()).get("kept") != count:
            pass

    def say(self, first: int, rows: list[bytes], fence: int) -> None:
        self._to_node.put_nowait(({"rows": first, "fence": fence}, msgspec.msgpack.encode(rows)))

    def go(self) -> None:
        self._to_node.put_nowait(None)


@asynccontextmanager
async def talk(node: Node, **wish: Any) -> AsyncIterator[Talk]:
    line = Talk(node, **wish)
    try:
        yield line
    finally:
        line.serving.cancel()
        await asyncio.gather(line.serving, return_exceptions=True)


async def commit(node: Node, batch: int) -> None:
    """Have a node tell all that a batch of the task's job is done."""

    class Line:
        async def receive(self) -> None:
            raise AssertionError("nothing more is to be said")

        async def send(self, header: dict[str, Any]) -> None:
            assert header == {"outcome": "taken"}

    await node._running.producing.commit(Line(), {"job": b"task", "batch": batch})


ROWS = [b"%d" % number for number in range(500)]


@pytest.mark.parametrize("protocol", ["totem", "total", "pinwheel", "dtp"])
def test_rows_are_delivered_at_all_members_and_told_to_be(protocol: str) -> None:
    async def test() -> None:
        async with ring(3, protocol=protocol) as nodes:
            groups = [await node.join("rows") for node in nodes]
            async with talk(nodes[0]) as task:
                taken = await task.hear()
                assert taken == {"outcome": "taken", "rows": 0, "checksum": 0, "fence": 1}
                task.say(0, ROWS, fence=1)
                await task.hear_kept(len(ROWS))
            for group in groups:
                assert await payloads(group, len(ROWS)) == ROWS

    run(test)


def test_an_attempt_at_another_node_goes_on_where_the_first_one_was() -> None:
    async def test() -> None:
        async with ring(2) as nodes:
            group = await nodes[1].join("rows")
            async with talk(nodes[0]) as first:
                await first.hear_taken()
                first.say(0, ROWS[:200], fence=1)
                await first.hear_kept(200)
                async with talk(nodes[1], attempt=1) as second:
                    taken = await second.hear_taken()
                    assert (taken["rows"], taken["checksum"]) == (200, checksum(ROWS[:200]))
                    first.say(200, ROWS[200:], fence=1)
                    assert await first.hear_taken() == {"outcome": "superseded"}
                    second.say(200, ROWS[200:], fence=1)
                    await second.hear_kept(500)
            assert await payloads(group, len(ROWS)) == ROWS
            sender = await nodes[0].join("rows", receive=False)
            await sender.send(b"the next")
            assert await payloads(group, 1) == [b"the next"]

    run(test)


def test_when_somebody_joins_the_task_is_told_where_to_go_on() -> None:
    async def test() -> None:
        async with ring(2) as nodes:
            group = await nodes[1].join("rows")
            async with talk(nodes[0]) as task:
                await task.hear_taken()
                task.say(0, ROWS[:100], fence=1)
                await task.hear_kept(100)
                async with make_node(seeds=[nodes[0].address]) as third:
                    newcomer = await third.join("rows")
                    await together([*nodes, third])
                    while (taken := await task.hear_taken())["rows"] != 100:
                        pass
                    task.say(100, ROWS[100:], fence=taken["fence"])
                    task.say(100, ROWS[100:], fence=taken["fence"] - 1)
                    await task.hear_kept(500)
                    assert await payloads(newcomer, 400) == ROWS[100:]
            assert await payloads(group, 500) == ROWS

    run(test)


def test_a_group_that_was_stopped_as_a_whole_remembers_with_its_logs(tmp_path: Path) -> None:
    async def test() -> None:
        def node() -> Node:
            return make_node(data=tmp_path / "data", log=tmp_path / "log")

        async with node() as before, talk(before) as task:
            await task.hear_taken()
            task.say(0, ROWS[:200], fence=1)
            await task.hear_kept(200)
        async with node() as after, talk(after, attempt=1) as task:
            taken = await task.hear_taken()
            assert (taken["rows"], taken["checksum"]) == (200, checksum(ROWS[:200]))

    run(test)


def test_a_batch_that_was_delivered_before_is_not_taken_again() -> None:
    async def test() -> None:
        async with make_node() as node:
            async with talk(node) as task:
                await task.hear_taken()
                await commit(node, 0)
                assert await task.hear_taken() == {"outcome": "superseded"}
            async with talk(node, attempt=1) as task:
                assert await task.hear() == {"outcome": "before"}
                await task.serving
            async with talk(node, batch=7) as task:
                assert await task.hear() == {"outcome": "unknown", "batches": 1}
                await task.serving

    run(test)


def test_a_full_group_refuses_who_is_new_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing_module, "ASK_AGAIN_S", 0.05)

    async def test() -> None:
        def node() -> Node:
            return make_node(data=tmp_path / "data", log=tmp_path / "log")

        async with node() as before:
            before._running.producing.producers.table.most = 4
            for number in range(2):
                async with talk(before, producer=b"job %d" % number) as task:
                    assert (await task.hear_taken())["outcome"] == "taken"
            async with talk(before, producer=b"job 2") as task:
                assert await task.hear_taken() == {"outcome": "full", "most": MOST_PRODUCERS}

    run(test)


def test_a_group_that_was_stopped_remembers_what_is_done(tmp_path: Path) -> None:
    async def test() -> None:
        def node() -> Node:
            return make_node(data=tmp_path / "data", log=tmp_path / "log")

        async with node() as before, talk(before) as task:
            await task.hear_taken()
            task.say(0, ROWS, fence=1)
            await task.hear_kept(len(ROWS))
            await commit(before, 0)
        async with node() as after:
            async with talk(after, attempt=1) as task:
                assert await task.hear_taken() == {"outcome": "before"}
            async with talk(after, batch=1) as task:
                assert (await task.hear_taken())["rows"] == 0

    run(test)


def test_a_row_that_no_message_can_carry_is_refused_with_a_reason() -> None:
    async def test() -> None:
        async with make_node(settings={"max_message_size": 10_000}) as node, talk(node) as task:
            await task.hear_taken()
            task.say(0, [b"x" * 10_000], fence=1)
            with pytest.raises(MessageTooLarge, match="at most 9,977 fit here"):
                await task.serving

    run(test)


def test_a_task_that_goes_is_served_no_longer() -> None:
    async def test() -> None:
        async with make_node() as node, talk(node) as task:
            await task.hear_taken()
            task.go()
            await task.serving

    run(test)
