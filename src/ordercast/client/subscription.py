"""A subscription: what was received and not read yet, in a queue with a bound, and how it is read."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Self

from ordercast.client.events import Message
from ordercast.errors import Evicted, OrdercastError

MOST_MESSAGES = 65_536
MOST_BYTES = 32 * 1024 * 1024


class Inbox:
    """Messages that wait for their reader."""

    def __init__(self, group: str, on_taken: Callable[[], None] | None = None) -> None:
        self._group = group
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._error: OrdercastError | None = None
        self._on_taken = on_taken

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def bytes(self) -> int:
        """What the messages count for that wait."""
        return self._bytes

    def has_room(self, message: Message) -> bool:
        """Whether the message fits in."""
        return len(self._messages) < MOST_MESSAGES and (
            self._bytes + message.size <= MOST_BYTES or not self._messages
        )

    def put(self, message: Message) -> None:
        """One more; there is room for it."""
        if not self._ended:
            self._messages.append(message)
            self._bytes += message.size
            self._wake()

    def overflow(self) -> None:
        """More has come than there is room for: the reader gets an error behind what it has."""
        self.end(
            Evicted(
                f"{len(self._messages):,} messages ({self._bytes:,} bytes) of {self._group} were not read: "
                "read faster, share the work with queue=, or have the node keep a log, from which a reader "
                "gets only what it has room for",
                self._group,
                len(self._messages),
                self._bytes,
            )
        )

    def end(self, error: OrdercastError | None = None) -> None:
        """Nothing comes behind what is there; then the reader gets the error, or just ends."""
        if not self._ended:
            self._ended, self._error = True, error
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> Message:
        """The next one. Raises `StopAsyncIteration` behind the last, or the error that ended it."""
        await self._come()
        message = self._messages.popleft()
        self._bytes -= message.size
        if self._on_taken is not None:
            self._on_taken()
        return message

    async def take_all(self) -> list[Message]:
        """All that are there, at least one."""
        await self._come()
        messages, self._bytes = list(self._messages), 0
        self._messages.clear()
        if self._on_taken is not None:
            self._on_taken()
        return messages

    async def _come(self) -> None:
        while not self._messages:
            if self._ended:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            if self._waiter is not None and not self._waiter.done():
                raise RuntimeError(f"two tasks read one subscription of {self._group}: join once for each")
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter


class Subscription:
    """The messages of a group, or of all groups that a pattern matches: iterate over it.

    With a log, it goes on after a fail-over where it was, without loss or repetition. Without one, what is
    sent between two connections is missed.
    """

    def __init__(self, group: str, inbox: Inbox, logged: bool, leave: Callable[[], None]) -> None:
        self.group = group
        self.logged = logged
        """Whether it is read from a log, so that its messages have numbers."""
        self.last_seq: int | None = None
        """The place in the log of the message that was read last."""
        self._inbox = inbox
        self._leave = leave

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        message = await self._inbox.take()
        if message.seq is not None:
            self.last_seq = message.seq
        return message

    async def batches(self) -> AsyncIterator[list[Message]]:
        """The messages, as many at a time as have come: the fast path."""
        while True:
            try:
                messages = await self._inbox.take_all()
            except StopAsyncIteration:
                return
            if messages[-1].seq is not None:
                self.last_seq = messages[-1].seq
            yield messages

    async def leave(self) -> None:
        """Receive nothing more: what is read behind what already came is the end."""
        self._leave()
        self._inbox.end()
