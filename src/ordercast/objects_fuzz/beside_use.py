"""Ready-made objects that are used beside the journal: a queue, a lock, or a map."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from ordercast.errors import OrdercastError
from ordercast.groups.api import Node
from ordercast.objects.holding import Held
from ordercast.objects.map import Map
from ordercast.objects.queue import Queue
from ordercast.objects_fuzz.plan import DIRECTORY, Plan
from ordercast.testing.models import MAP
from ordercast.testing.services import Client
from ordercast.testing.world import World

AWAY = (OrdercastError, TimeoutError, OSError)
SETTLES_S = 15.0
"""In this time leases end, entries expire, and queues become empty when nothing goes wrong."""
AGAIN_S = 0.05
TTLS_S = (0.4, 2.0)
"""Leases end before a change of the group is over, or long after it."""


class Beside:
    """What is used beside the journal; `over` says when nothing is begun any more."""

    def __init__(self, world: World, plan: Plan, over: Callable[[], bool]) -> None:
        self.world = world
        self._plan = plan
        self._over = over

    def draw(self, node: Node) -> random.Random:
        """For what a program does by chance in this life of its node."""
        return random.Random(f"{self._plan.seed}/{node.id}/{node.incarnation}")

    async def replicated(self, node: Node, made: Queue[int] | Map[int], name: str) -> None:
        """Replicate an object, on disk if the journal is."""
        if self._plan.durable:
            level = self._plan.level
            await node.replicate(made, name, durable=DIRECTORY, level=level, run=self._plan.run)  # type: ignore[arg-type]
        else:
            await node.replicate(made, name, run=self._plan.run)

    async def end(self) -> None:
        """Judge it, when all is calm."""

    async def settle(self, done: Callable[[], bool]) -> None:
        """Wait until something is so that comes by itself when nothing goes wrong, but not for ever."""
        until = self.world.now + SETTLES_S
        while not done() and self.world.now < until:
            await asyncio.sleep(AGAIN_S)
        await self.world.calm()


class GivenUp(Exception):
    """A block ends that had something in hand, and did not do it."""


class QueueUse(Beside):
    """What is put is worked at until somebody has finished it, and nobody else finishes it again."""

    def __init__(self, world: World, plan: Plan, over: Callable[[], bool]) -> None:
        super().__init__(world, plan, over)
        self._done = set[int]()
        """What somebody has worked at to the end: it may be gone from the queue from then on."""
        self._finished = Counter[int]()
        self._asked, self._put = set[int](), set[int]()

        async def queue(node: Node) -> Queue[int]:
            made = Queue(int)
            await self.replicated(node, made, "queue")
            return made

        self._service = world.service(queue)
        world.run(self._work)
        world.client(self._fill)

    async def _work(self, node: Node) -> None:
        draw = self.draw(node)
        while True:
            queue = self._service.there.get(node.id)
            if queue is not None:
                with suppress(*AWAY, GivenUp):
                    async with queue.in_hand() as element:
                        await asyncio.sleep(draw.choice((0, 0.02, 0.2)))
                        if draw.random() < 0.2:
                            raise GivenUp
                        self._done.add(element)
                    self._finished[element] += 1
            await asyncio.sleep(draw.uniform(0.001, 0.1))

    async def _fill(self, client: Client) -> None:
        number = 0
        while not self._over():
            number += 1
            self._asked.add(number)
            with suppress(*AWAY):
                await client.call(self._service, "put", number)
                self._put.add(number)
            await asyncio.sleep(client.random.random() * 0.2)

    def _is_done(self) -> bool:
        return self._put <= self._done and not any(
            queue.elements or queue.taken for queue in self._service.there.values()
        )

    async def end(self) -> None:
        """All that was put is finished, once."""
        await self.settle(self._is_done)
        lost = self._put - self._done
        assert not lost, f"nobody has done {sorted(lost)[:5]} of the queue"
        assert self._done <= self._asked, "the queue gives what nobody put"
        twice = [element for element, count in self._finished.items() if count > 1]
        assert not twice, f"{twice[:5]} of the queue were finished twice"
        for queue in self._service.there.values():
            assert not queue.elements, "the queue does not become empty"
            assert not queue.taken, "somebody has had something in hand for too long"


class LockUse(Beside):
    """Nobody believes to hold a lock while somebody else does, and tokens rise."""

    def __init__(self, world: World, plan: Plan, over: Callable[[], bool]) -> None:
        super().__init__(world, plan, over)
        self._held: list[Held] = []
        self._tokens: list[int] = []
        world.run(self._work)

    async def _work(self, node: Node) -> None:
        draw, lock = self.draw(node), node.lock("lock", ttl=TTLS_S[self._plan.seed % 2])
        while True:
            held = await (lock.acquire() if draw.random() < 0.7 else lock.try_acquire())
            if held is not None:
                self._begins(held)
                until = draw.choice((0.0, 0.1, 0.5, 3.0))
                while until > 0 and not held.lost.is_set():
                    await asyncio.sleep(0.05)
                    until -= 0.05
                await held.release()
            await asyncio.sleep(draw.uniform(0.001, 0.1))

    def _begins(self, held: Held) -> None:
        others = [other.token for other in self._held if not other.lost.is_set()]
        assert not others, f"{held.token} is given while {others} believe to hold the lock"
        last = self._tokens[-1] if self._tokens else 0
        assert held.token > last, f"the token {held.token} is not larger than {last}"
        self._held.append(held)
        self._tokens.append(held.token)

    async def end(self) -> None:
        """Somebody gets it again."""
        before = len(self._tokens)
        await self.settle(lambda: len(self._tokens) > before)
        assert len(self._tokens) > before, "nobody gets the lock any more"


class MapUse(Beside):
    """A map is linearizable; who watches it knows it, and entries expire."""

    def __init__(self, world: World, plan: Plan, over: Callable[[], bool]) -> None:
        super().__init__(world, plan, over)
        self._seen: dict[int, dict[str, int]] = {}

        async def map(node: Node) -> Map[int]:
            made = Map(int)
            await self.replicated(node, made, "map")
            return made

        self._service = world.service(map, model=MAP)
        self._expiring = world.service(self._find)
        world.run(self._follow)
        for _ in range(2):
            world.client(self._use)

    async def _find(self, node: Node) -> Map[int]:
        """The same map, whose other use is not judged by the model."""
        while node.id not in self._service.there:
            await asyncio.sleep(AGAIN_S)
        return self._service.there[node.id]

    async def _follow(self, node: Node) -> None:
        while node.id not in self._service.there:
            await asyncio.sleep(AGAIN_S)
        contents = self._seen[node.id] = dict[str, int]()
        with self._service.there[node.id].watch(present=True) as changes:
            async for change in changes:
                if change.value is None:
                    del contents[change.key]
                else:
                    contents[change.key] = change.value

    async def _use(self, client: Client) -> None:
        draw, last, number = client.random, None, 0
        while not self._over():
            number += 1
            key = draw.choice("ab")
            with suppress(*AWAY):
                match draw.randrange(6):
                    case 0:
                        await client.call(self._service, "delete", key)
                    case 1:
                        last = await client.call(self._service, "get", key)
                    case 2:
                        await client.call(self._service, "compare_and_set", key, last, number)
                    case 3:
                        expires = draw.choice((0, 200_000, 500_000))
                        value, key = bytes((draw.randrange(100),)), draw.choice("cdef")
                        await client.call(self._expiring, "store", key, value, expires, None)
                    case _:
                        await client.call(self._service, "put", key, draw.randrange(10**6))
            await asyncio.sleep(draw.random() * 0.15)

    def _is_done(self) -> bool:
        return all(
            self._seen[node] == dict(found.local)
            and not any(each.expires_us for each in found.entries.values())
            for node, found in self._service.there.items()
        )

    async def end(self) -> None:
        """All know it, and nothing in it is late."""
        await self.settle(self._is_done)
        for node, found in self._service.there.items():
            here = dict(found.local)
            assert self._seen[node] == here, (
                f"who watches at node {node} knows {self._seen[node]}, not {here}"
            )
            late = [key for key, each in found.entries.items() if each.expires_us]
            assert not late, f"{late} of the map do not expire"


USES: dict[str, type[Beside]] = {"queue": QueueUse, "lock": LockUse, "map": MapUse, "": Beside}
