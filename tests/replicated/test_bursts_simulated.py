"""Many commands at once, with all faults: however they travel together and are sent again, each is carried
out once, at a position of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

import ordercast
from hunts import rounds
from ordercast import Node
from ordercast.replicated import asking
from ordercast.testing import Client, World, simulated

pytestmark = pytest.mark.campaign
USERS, BURSTS, A_USER = 3, 10, 1000


class Bag(ordercast.Replicated):
    """What was put in, and at which position."""

    put_in: list[tuple[int, int]]

    def __init__(self) -> None:
        self.put_in = []

    @ordercast.command
    def add(self, item: int) -> int:
        """Answer with something."""
        self.put_in.append((item, self.position))
        return self.position

    @ordercast.command
    def add_quietly(self, item: int) -> None:
        """Answer with nothing."""
        self.put_in.append((item, self.position))

    @ordercast.command
    def add_and_fail(self, item: int) -> None:
        """Answer with an error."""
        self.put_in.append((item, self.position))
        raise ordercast.CommandFailed(item)

    @ordercast.command
    def everything(self) -> list[tuple[int, int]]:
        """All of it."""
        return self.put_in


@pytest.mark.parametrize("protocol", ["totem", "total"])
@pytest.mark.parametrize("room", [asking.MOST_PENDING, 4])
def test_each_command_of_a_burst_is_carried_out_once(
    protocol: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "MOST_PENDING", room)

    @simulated(nodes=3, seeds=range(rounds(5, 1000)), protocol=protocol)
    async def bursts(world: World) -> None:
        async def open_bag(node: Node) -> Bag:
            return await node.replicate(Bag(), "bag")

        bag = world.service(open_bag)
        asked, answered, finished = set[int](), dict[int, int | None](), list[str]()

        async def add(client: Client, item: int) -> None:
            asked.add(item)
            with suppress(ordercast.Unanswered):
                match item % 3:
                    case 0:
                        answered[item] = await client.call(bag, "add", item)
                    case 1:
                        answered[item] = await client.call(bag, "add_quietly", item)
                    case _:
                        with pytest.raises(ordercast.CommandFailed) as failed:
                            await client.call(bag, "add_and_fail", item)
                        assert failed.value.args == (item,)
                        answered[item] = None

        def user(number: int) -> Callable[[Client], Awaitable[None]]:
            async def use(client: Client) -> None:
                item = number * A_USER
                for _ in range(BURSTS):
                    size = client.random.choice((1, 3, 9, 30))
                    await asyncio.gather(*(add(client, item + each) for each in range(size)))
                    item += size
                    await asyncio.sleep(client.random.random() * 0.3)
                finished.append(client.name)

            return use

        async def judge(client: Client) -> None:
            while len(finished) < USERS:
                await asyncio.sleep(0.2)
            found: list[tuple[int, int]] = []
            while not found:
                with suppress(ordercast.Unanswered):
                    found = await client.call(bag, "everything")
            put_in, positions = dict(found), [position for _, position in found]
            assert len(put_in) == len(found), "none is carried out twice"
            assert set(answered) <= set(put_in) <= asked, "what was answered is there, and nothing else"
            assert positions == sorted(set(positions)), "positions rise"
            for item, position in answered.items():
                assert position in (None, put_in[item]), "the answer is that of the one time"

        for number in range(USERS):
            world.client(user(number))
        world.client(judge)

    bursts()
