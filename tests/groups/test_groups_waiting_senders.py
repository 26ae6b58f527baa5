"""Waiting senders are served one by one, in the order in which they came, and none is forgotten."""

from __future__ import annotations

import asyncio

import pytest
from group_nodes import run

from ordercast import NodeClosed
from ordercast.groups.waiting_senders import WaitingSenders


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Line:
    """Senders in a line, and who got in."""

    def __init__(self) -> None:
        self.rooms = WaitingSenders()
        self.served: list[str] = []
        self.full = False

    async def come(self, name: str) -> asyncio.Task[None]:
        async def wait() -> None:
            await self.rooms.wait(lambda: not self.full)
            self.served.append(name)

        task = asyncio.create_task(wait())
        await settle()
        return task


def test_first_come_first_served() -> None:
    async def main() -> None:
        line = Line()
        for name in "abc":
            await line.come(name)
        for _ in range(3):
            line.rooms.next()
            await settle()
        assert line.served == ["a", "b", "c"]
        assert not line.rooms
        line.rooms.next()

    run(main)


def test_one_at_a_time() -> None:
    async def main() -> None:
        line = Line()
        for name in "ab":
            await line.come(name)
        line.rooms.next()
        line.rooms.next()
        assert line.rooms, "who comes now waits behind those whose turn it is"
        await settle()
        assert line.served == ["a"]

    run(main)


def test_who_finds_the_room_used_up_stays_the_first() -> None:
    async def main() -> None:
        line = Line()
        for name in "ab":
            await line.come(name)
        line.full = True
        line.rooms.next()
        await settle()
        assert line.served == []
        assert line.rooms
        line.full = False
        for _ in range(2):
            line.rooms.next()
            await settle()
        assert line.served == ["a", "b"]

    run(main)


def test_who_is_served_may_go_on_until_the_next_ones_turn() -> None:
    async def main() -> None:
        line = Line()
        for name in "abc":
            await line.come(name)
        line.rooms.next()
        await settle()
        assert not line.rooms, "a has the floor"
        line.rooms.next(floor=True)
        assert not line.rooms
        await settle()
        assert line.served == ["a", "b"]
        line.rooms.next()
        assert line.rooms, "room that came anew is for who waits"

    run(main)


def test_who_gives_up_is_passed_over() -> None:
    async def main() -> None:
        line = Line()
        first = await line.come("a")
        await line.come("b")
        first.cancel()
        line.rooms.next()
        await settle()
        assert line.served == ["b"]
        assert not line.rooms

    run(main)


def test_who_gives_up_when_it_is_its_turn_passes_it_on() -> None:
    async def main() -> None:
        line = Line()
        first = await line.come("a")
        await line.come("b")
        line.rooms.next()
        first.cancel()
        await settle()
        assert line.served == ["b"]

    run(main)


def test_who_gives_up_behind_takes_nobodys_turn() -> None:
    async def main() -> None:
        line = Line()
        await line.come("a")
        second = await line.come("b")
        await line.come("c")
        second.cancel()
        await settle()
        assert line.served == []
        line.rooms.next()
        await settle()
        line.rooms.next()
        await settle()
        assert line.served == ["a", "c"]

    run(main)


def test_at_the_end_all_are_told() -> None:
    async def main() -> None:
        line = Line()
        tasks = [await line.come(name) for name in "abc"]
        line.rooms.next()
        line.full = True
        line.rooms.end(NodeClosed("over"))
        await settle()
        assert line.served == []
        for task in tasks:
            with pytest.raises(NodeClosed, match="over"):
                await task
        assert not line.rooms

    run(main)
