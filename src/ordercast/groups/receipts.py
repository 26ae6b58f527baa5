"""Receipts: who sends a message may wait until its node delivers it, and learns its place in the order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from typing import Any

from ordercast.core.addresses import Address, address_of, read_address, sent_us
from ordercast.core.identity import Batch, Guarantee, MessageId
from ordercast.errors import Excluded
from ordercast.groups.events import Message
from ordercast.process_groups.notes import parts


class Receipt:
    """Await it to learn where the message was ordered: it resolves when the sender itself delivers it."""

    def __init__(self, future: asyncio.Future[Message]) -> None:
        self._future = future

    def __await__(self) -> Generator[Any, None, Message]:
        return asyncio.shield(self._future).__await__()

    @property
    def done(self) -> bool:
        """Whether the message was delivered here."""
        return self._future.done()


class Receipts:
    """The messages of this node that are waited for."""

    def __init__(self) -> None:
        self.awaited: deque[tuple[int, asyncio.Future[Message]]] = deque()
        """Receipts that are awaited, by the message's number in this life of the node."""

    def expect(self, number: int) -> asyncio.Future[Message]:
        """Resolves when this node delivers its own message of that number."""
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.awaited.append((number, future))
        return future

    def resolve(self, batch: Batch) -> None:
        """Messages that this life of the node has sent were delivered here. That happens in the order of
        their numbers, so receipts resolve in order too."""
        awaited = self.awaited
        after = batch.number + len(batch.payloads)
        while awaited and awaited[0][0] < after:
            number, future = awaited.popleft()
            if future.done():
                continue
            place = number - batch.number
            if place < 0:
                future.set_exception(
                    Excluded(
                        f"message {number} of this node was not delivered here, but a later one under its "
                        "name was: another member sends in its place; give the group a key, and send it again"
                    )
                )
                future.exception()  # nobody may be waiting: that is no mistake
                continue
            payload = batch.payloads[place]
            front = address_of(payload) or b""
            sender, groups = (read_address(front) if front else None) or Address(0, ("",))
            heads, (body,) = parts(front, (payload,)) if front else (None, (payload,))
            message = Message(
                body,
                batch.origin,
                groups[0],
                batch.guarantee is Guarantee.SAFE,
                MessageId(batch.origin, batch.incarnation, number),
                batch.configuration,
                batch.seq,
                batch.slot + place,
                groups,
                sender,
                sent_us(front) if front else 0,
                b"" if heads is None else heads[0],
            )
            future.set_result(message)

    def fail(self, lost: BaseException) -> None:
        """Nobody knows what became of the messages that are waited for: whoever waits gets `lost`."""
        for _, future in self.awaited:
            if not future.done():
                future.set_exception(lost)
                future.exception()  # nobody may be waiting: that is no mistake
        self.awaited.clear()
