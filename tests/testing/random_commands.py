"""An object with a field of each kind, and clients that call its commands at random."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

import msgspec

import ordercast
from ordercast.testing import Call, Client, History, Model, Raised, World

KEYS = "abcd"
BALLAST = 2_000
"""Bytes of each entry that makes the state large."""


class TooLow(ordercast.CommandFailed):
    """A number would be negative."""


class Step(msgspec.Struct):
    """One change of a number."""

    by: int
    of: list[str]


class Numbers(ordercast.Replicated):
    """Numbers by key, and what became of them, kept in every way there is."""

    numbers: dict[str, int]
    steps: list[Step]
    last: deque[int]
    seen: set[str]
    by_caller: dict[int, dict[str, int]]
    ballast: dict[int, bytes]
    ticks: int
    gone: list[ordercast.Process]
    times: list[int]

    def __init__(self) -> None:
        self.numbers = {}
        self.steps = []
        self.last = deque(maxlen=5)
        self.seen = set()
        self.by_caller = {}
        self.ballast = {}
        self.ticks = 0
        self.gone = []
        self.times = []

    @ordercast.command
    def add(self, key: str, by: int) -> tuple[int, int]:
        """The number behind it, and the position."""
        number = self.numbers.get(key, 0) + by
        if number < 0:
            raise TooLow(key, number)
        self.numbers[key] = number
        self.steps.append(Step(by, [key, str(number)]))
        del self.steps[:-50]
        self.last.append(number)
        self.seen.add(f"{key}{number % 7}")
        mine = self.by_caller.setdefault(self.caller.node, {})
        mine[key] = mine.get(key, 0) + 1
        return number, self.position

    @ordercast.command
    def swap(self, key: str, new: int) -> tuple[int, int]:
        """The number before it, and the position. After a while the object wakes up."""
        old = self.numbers.pop(key, 0)
        self.numbers[key] = new  # as the last one now
        self.wake_at_us = self.now_us + 30_000
        self.times.append(self.now_us)
        del self.times[:-20]
        self.tell((key, old, new))
        return old, self.position

    @ordercast.command
    def fill(self, number: int) -> None:
        """Make the state large."""
        for at in range(40):
            self.ballast[number * 40 + at] = bytes(BALLAST)

    async def get(self, key: str) -> int:
        """Read here, after `sync`."""
        await self.sync()
        return self.numbers.get(key, 0)

    def left(self, process: ordercast.Process) -> None:
        self.gone.append(process)

    def tick(self) -> None:
        self.ticks += 1
        self.times.append(self.now_us)


def _step(number: int, call: Call) -> tuple[object, int]:
    position = call.result[1] if isinstance(call.result, tuple) else None
    match call.name:
        case "add":
            after = number + call.args[1]
            if after < 0:
                return Raised("TooLow", (call.args[0], after)), number
            return (after, position), after
        case "swap":
            return (number, position), call.args[1]
        case "get":
            return number, number
    return None, number


NUMBERS = Model("set of numbers", 0, _step, part=lambda call: call.args[0], reads={"get"})


async def use(world: World) -> None:
    """Clients call commands of an object, whose positions have to rise: a few clients now and then, or many
    at once."""
    busy = world.seed % 2 == 0
    calls, at_once, clients = (25, 3, 4) if busy else (15, 1, 3)

    async def numbers(node: ordercast.Node) -> Numbers:
        return await node.replicate(Numbers(), "numbers", durable="objects" if world.durable else None)

    service = world.service(numbers, model=NUMBERS)

    in_sessions = world.seed % 4 < 2

    async def call(client: Client, number: int) -> None:
        key = client.random.choice(KEYS)
        session = f"{client.name} {number}" if in_sessions else None
        with suppress(ordercast.Unanswered, TooLow):
            match client.random.randrange(12):
                case 0:
                    await client.call(service, "fill", client.random.randrange(20))
                case 1 | 2 | 3:
                    await client.call(service, "swap", key, client.random.randrange(10), session=session)
                case 4 | 5 | 6:
                    await client.call(service, "get", key)
                case _:
                    await client.call(service, "add", key, client.random.randint(-3, 5), session=session)

    async def caller(client: Client) -> None:
        pause_s = 0.001 if busy else client.random.choice((0.001, 0.05, 0.3))
        for number in range(0, calls * at_once, at_once):
            await asyncio.gather(*(call(client, number + at) for at in range(at_once)))
            await asyncio.sleep(client.random.random() * pause_s)

    await asyncio.gather(*(world.client(caller) for _ in range(clients)))
    _check_positions(service.history)
    await world.calm()
    await world.client(caller)  # who is answered again


def _check_positions(history: History) -> None:
    """A call that began when another had ended has a later position: it serves as a fencing token."""
    told = [call for call in history if isinstance(call.result, tuple)]
    for call in told:
        before = [other for other in told if other.ended is not None and other.ended < call.began]
        assert all(other.result[1] < call.result[1] for other in before), f"{call} is behind a later one"
    positions = [call.result[1] for call in told]
    assert len(set(positions)) == len(positions), "two calls have one position"
