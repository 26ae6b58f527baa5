"""Maps, locks and queues in simulation, with all faults: what was answered is linearizable, and a lease is
over for its holder before anybody else has one."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

import msgspec
import pytest

import ordercast
from hunts import rounds
from ordercast import Held, Map, Node, Queue
from ordercast.testing import LOCK, MAP, QUEUE, Call, Client, Model, World, simulated

pytestmark = pytest.mark.campaign
PROTOCOLS = pytest.mark.parametrize("protocol", ["totem", "total", "cm"])
AWAY = (ordercast.Unanswered, ordercast.NoMajority, ordercast.NodeClosed)
SEEDS = range(rounds(4, 2000))


@PROTOCOLS
def test_maps_are_linearizable_whatever_fails(protocol: str) -> None:
    @simulated(nodes=3, seeds=SEEDS, protocol=protocol)
    async def maps(world: World) -> None:
        async def open(node: Node) -> Map[int]:
            return await node.replicate(Map(int), "map")

        service = world.service(open, model=MAP)

        async def user(client: Client) -> None:
            draw, last = client.random, None
            for number in range(12):
                key, value = draw.choice("ab"), draw.randrange(10**6)
                with suppress(ordercast.Unanswered):
                    match draw.randrange(5):
                        case 0:
                            await client.call(service, "delete", key)
                        case 1:
                            last = await client.call(service, "get", key)
                        case 2:
                            await client.call(service, "compare_and_set", key, last, number)
                        case _:
                            await client.call(service, "put", key, value)
                await asyncio.sleep(draw.random() * 0.3)

        for _ in range(3):
            world.client(user)

    maps()


@PROTOCOLS
def test_who_watches_a_map_and_its_expiry_knows_it_whatever_fails(protocol: str) -> None:
    @simulated(nodes=3, seeds=SEEDS, protocol=protocol)
    async def maps(world: World) -> None:
        seen: dict[int, dict[str, int]] = {}

        async def open(node: Node) -> Map[int]:
            return await node.replicate(Map(int), "map")

        service = world.service(open)

        async def follow(node: Node) -> None:
            while node.id not in service.there:
                await asyncio.sleep(0.01)
            contents = seen[node.id] = dict[str, int]()
            with service.at(node.id).watch(present=True) as changes:
                async for change in changes:
                    if change.value is None:
                        del contents[change.key]
                    else:
                        contents[change.key] = change.value

        world.run(follow)

        async def user(client: Client) -> None:
            draw = client.random
            for number in range(15):
                with suppress(ordercast.Unanswered):
                    if draw.random() < 0.3:
                        await client.call(service, "delete", draw.choice("abcd"))
                    else:
                        await client.call(
                            service,
                            "store",
                            draw.choice("abcd"),
                            bytes([number]),
                            draw.choice((0, 500_000)),
                            None,
                        )
                await asyncio.sleep(draw.random() * 0.3)

        await asyncio.gather(*(world.client(user) for _ in range(2)))
        await world.calm()
        await asyncio.sleep(3)
        await world.calm()
        for node, found in service.there.items():
            assert seen[node] == dict(found.local), f"who watches at node {node}"
            assert all(not each.expires_us for each in found.entries.values())

    maps()


class Belief:
    """Who believes to hold a lock."""

    def __init__(self) -> None:
        self.held: list[Held] = []
        self.tokens: list[int] = []

    def begin(self, held: Held) -> None:
        """Somebody has it now: all others know that they do not."""
        assert all(each.lost.is_set() for each in self.held), "two believe to hold it"
        assert not self.tokens or held.token > self.tokens[-1], "the fencing token does not rise"
        self.held.append(held)
        self.tokens.append(held.token)


@PROTOCOLS
def test_no_two_hold_a_lock_whatever_fails(protocol: str) -> None:
    @simulated(nodes=3, seeds=SEEDS, protocol=protocol)
    async def locks(world: World) -> None:
        belief, history, names = Belief(), world.history(LOCK), Counter[int]()
        ttl = (0.3, 4.0)[world.seed % 2]  # shorter than it takes to notice who is gone, and longer

        async def work(node: Node) -> None:
            """Hold it for a while, again and again; wait for it, or do not."""
            lock = node.lock("lock", ttl=ttl)
            while True:
                names[node.id] += 1
                who = f"{node.id}-{names[node.id]}"
                acquiring = history.begin(node.id, "acquire", who)
                releasing = history.begin(node.id, "release", who)  # it may end by itself at any time
                waits = names[node.id] % 3 > 0
                held = await (lock.acquire() if waits else lock.try_acquire())
                if held is not None:
                    belief.begin(held)
                    history.end(acquiring, held.token)
                    for _ in range(5 + names[node.id] % 4 * 5):
                        if held.lost.is_set():
                            break
                        await asyncio.sleep(ttl / 10)
                    over = held.lost.is_set()
                    await held.release()
                    if over:
                        continue
                else:
                    history.end(acquiring, None)
                history.end(releasing, None)
                await asyncio.sleep(0.05)

        world.run(work)
        await asyncio.sleep(8)
        await world.calm()
        before = len(belief.tokens)
        await asyncio.sleep(4 + 4 * ttl)
        assert len(belief.tokens) > before, "it goes from hand to hand when nothing is wrong"

    locks()


def _take(state: tuple[object, ...], call: Call) -> tuple[object, tuple[object, ...]]:
    name = "take" if call.name == "take_now" else call.name
    result, after = QUEUE.step(state, msgspec.structs.replace(call, name=name))
    assert isinstance(after, tuple)
    return result, after


@PROTOCOLS
def test_queues_are_linearizable_whatever_fails(protocol: str) -> None:
    @simulated(nodes=3, seeds=SEEDS, protocol=protocol)
    async def queues(world: World) -> None:
        async def open(node: Node) -> Queue[int]:
            return await node.replicate(Queue(int), "queue")

        service = world.service(open, model=Model("queue", (), _take))

        async def user(client: Client) -> None:
            for number in range(10):
                with suppress(ordercast.Unanswered):
                    if client.random.random() < 0.5:
                        await client.call(service, "put", client.random.randrange(10**6) * 100 + number)
                    else:
                        await client.call(service, "take_now")
                await asyncio.sleep(client.random.random() * 0.3)

        for _ in range(3):
            world.client(user)

    queues()


@PROTOCOLS
def test_what_is_put_is_worked_at_until_somebody_has_finished_it(protocol: str) -> None:
    @simulated(nodes=3, seeds=SEEDS, protocol=protocol)
    async def queues(world: World) -> None:
        begun, finished, put = Counter[int](), Counter[int](), set[int]()
        asked = set[int]()

        async def open(node: Node) -> Queue[int]:
            return await node.replicate(Queue(int), "queue")

        service = world.service(open)

        async def work(node: Node) -> None:
            while True:
                if node.id not in service.there:
                    await asyncio.sleep(0.01)
                    continue
                element = -1
                try:
                    async with service.at(node.id).in_hand() as element:
                        begun[element] += 1
                        await asyncio.sleep(element % 7 * 0.05)
                    finished[element] += 1
                except ordercast.NotInHand:
                    pass  # somebody else works at it, too

        world.run(work)

        async def user(client: Client) -> None:
            for number in range(10):
                element = client.random.randrange(10**6) * 100 + number
                asked.add(element)
                with suppress(ordercast.Unanswered):
                    await client.call(service, "put", element)
                    put.add(element)
                await asyncio.sleep(client.random.random() * 0.3)

        await asyncio.gather(*(world.client(user) for _ in range(2)))
        await world.calm()
        await asyncio.sleep(5)
        await world.calm()
        assert begun.keys() >= put, "what was acknowledged is worked at"
        assert begun.keys() <= asked
        assert all(number == 1 for number in finished.values()), "nobody finishes what somebody has finished"
        for queue in service.there.values():
            assert not queue.elements
            assert not queue.taken

    queues()
