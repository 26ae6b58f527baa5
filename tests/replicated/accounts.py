"""Classes that the tests replicate."""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec

import ordercast


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


async def synced(*objects: ordercast.Replicated) -> None:
    """Wait until all of these have everything that was answered."""
    await asyncio.gather(*(each.sync() for each in objects))
