"""Classes that the tests replicate, and clients who use them."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

import msgspec

import ordercast
from ordercast.testing import Call, Client, Model, Service, World


class NotEnough(ordercast.CommandFailed):
    """There is less than that."""


class Accounts(ordercast.Replicated):
    """Money, by name."""

    balance: dict[str, int]
    gone: int

    def __init__(self) -> None:
        self.balance = {}
        self.gone = 0

    @ordercast.command
    def deposit(self, name: str, amount: int) -> int:
        """Put money in; how much there is then."""
        self.balance[name] = self.balance.get(name, 0) + amount
        self.tell((name, amount))
        return self.balance[name]

    @ordercast.command
    def transfer(self, giver: str, taker: str, amount: int) -> bool:
        """Move money; raises `NotEnough` if there is too little."""
        if self.balance.get(giver, 0) < amount:
            raise NotEnough(giver, amount)
        self.balance[giver] -= amount
        self.balance[taker] = self.balance.get(taker, 0) + amount
        return True

    def left(self, process: ordercast.Process) -> None:
        self.gone += 1


class Row(msgspec.Struct):
    """One of a list."""

    words: list[str]


class Everything(ordercast.Replicated):
    """A field of each kind."""

    rows: list[Row]
    last: deque[int]
    names: set[str]
    by_name: dict[str, list[int]]
    count: int
    word: str | None

    def __init__(self) -> None:
        self.rows = []
        self.last = deque(maxlen=3)
        self.names = set()
        self.by_name = {}
        self.count = 0
        self.word = None

    @ordercast.command
    def add(self, row: Row, number: int) -> Row:
        """Keep a row; answers with what it is given."""
        self.rows.append(row)
        self.last.append(number)
        self.names.update(row.words)
        for word in row.words:
            self.by_name.setdefault(word, []).append(number)
        self.count += 1
        self.word = row.words[0]
        return row


class Lease(ordercast.Replicated):
    """Is held until a time."""

    held_by: ordercast.Process | None
    until_us: int
    history: list[int]

    def __init__(self) -> None:
        self.held_by = None
        self.until_us = 0
        self.history = []

    @ordercast.command
    def take(self, for_us: int) -> int:
        """Hold it, unless somebody does; the fencing token, or 0."""
        if self.held_by is not None:
            return 0
        self.held_by = self.caller
        self.until_us = self.wake_at_us = self.now_us + for_us
        self.history.append(self.position)
        return self.position

    def tick(self) -> None:
        """Its time is over."""
        self.held_by = None
        self.tell("over")


def tellers(world: World, accounts: Service[Accounts]) -> None:
    """Three clients who deposit, and go on when nobody answers."""

    async def teller(client: Client) -> None:
        for _ in range(12):
            with suppress(ordercast.Unanswered):
                await client.call(accounts, "deposit", client.random.choice("ab"), 1)
            await asyncio.sleep(client.random.random() * 0.3)

    for _ in range(3):
        world.client(teller)


def _deposited(balance: int, call: Call) -> tuple[object, int]:
    return balance + call.args[1], balance + call.args[1]


DEPOSITS = Model("account", 0, _deposited, part=lambda call: call.args[0])
"""What deposits answer, account by account."""


async def synced(*objects: ordercast.Replicated) -> None:
    """Wait until all of these have everything that was answered."""
    await asyncio.gather(*(each.sync() for each in objects))
