"""What was delivered to one reader of a group and is not read yet: bounded, and waited for only so long."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Self

from ordercast.errors import Evicted
from ordercast.groups.events import Change, Delivery, Event, Message

READING: ContextVar[tuple[Inbox, ...]] = ContextVar("ordercast_reading", default=())
"""The inboxes that the running task, or the task that started it, reads; in a thread, that thread."""


class Inbox:
    """What waits for one reader of a group.

    It is *full* from `limit` bytes on until less than half of that is left. While it is full its group is
    slowed down, at every member; but no longer than its reader goes on reading (`stand_still`).
    """

    __slots__ = (
        "_changed",
        "_freed",
        "_future",
        "begun",
        "ended",
        "entries",
        "error",
        "full",
        "given_up",
        "group",
        "limit",
        "moved",
        "sending",
        "sent",
        "stood_s",
        "unread",
        "watchers",
    )

    def __init__(
        self, group: str, limit: int, changed: Callable[[], None], freed: Callable[[int], None]
    ) -> None:
        """`changed` is called when `slows` may have changed, `freed` with the bytes that were read."""
        self.group = group
        self.limit = limit
        self.entries: deque[tuple[Event, int]] = deque()
        self.begun: Iterator[Message] = iter(())
        """Messages of an entry that is being read one by one."""
        self.unread = 0
        """Bytes in `entries`."""
        self.full = False
        self.given_up = False
        """Full, but its reader stood still for so long that nobody waits for it any more."""
        self.moved = False
        """Something was read since `stand_still` was last called."""
        self.stood_s = 0.0
        """Seconds for which it is full and nothing was read."""
        self.sending = 0
        """Sends of its reader that wait for room in the node's queue."""
        self.sent = 0
        """Bytes that its reader has sent since it last read, though the group they went to is slowed down."""
        self.watchers: dict[asyncio.Future[None], None] = {}
        """Sends of its reader that wait for a slow group: resolved when this inbox gets full."""
        self.ended = False
        self.error: BaseException | None = None
        self._changed = changed
        self._freed = freed
        self._future: asyncio.Future[None] | None = None

    @property
    def slows(self) -> bool:
        """Whether senders to the group wait for this inbox: it is full, and its reader is not given up."""
        return self.full and not self.given_up

    # --- what comes -----------------------------------------------------------------------------

    def put(self, entry: Event, size: int) -> None:
        """Append an entry of `size` bytes, and wake the reader."""
        self.entries.append((entry, size))
        self.unread += size
        if self.unread > self.limit and not self.full:
            self._fill()
        self._wake()

    def _fill(self) -> None:
        self.full, self.given_up, self.moved, self.stood_s = True, False, True, 0.0
        for future in self.watchers:
            if not future.done():
                future.set_result(None)
        self._changed()

    def end(self, error: BaseException | None) -> None:
        """Nothing more comes: what is here can still be read, then the error, if there is one, is raised."""
        self.ended = True
        self.error = error
        self._wake()
        self._drained()

    def evict(self, because: str, advice: str) -> Evicted:
        """End it with the error that its reader gets behind what is here; the error."""
        messages = sum(len(entry.payloads) for entry, _ in self.entries if isinstance(entry, Delivery))
        error = Evicted(
            f"a reader of group {self.group} was dropped with {messages:,} messages ({self.unread:,} bytes) "
            f"unread: {because}. What waited can still be read, what came after it is missed. Join the group "
            f"again to go on; read faster, {advice}, or join with receive=False if you only send",
            self.group,
            messages,
            self.unread,
        )
        self.end(error)
        return error

    def clear(self) -> None:
        """Nobody is going to read it."""
        self.entries.clear()
        self.begun = iter(())
        self._take(self.unread)

    def _wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    # --- and is read ----------------------------------------------------------------------------

    def read_here(self) -> None:
        """The running task reads this: what it sends must not keep it from reading (see `may_pass`)."""
        reads = READING.get()
        if self not in reads:
            READING.set((*(inbox for inbox in reads if not inbox.ended), self))

    async def get(self) -> Event | None:
        """The next one; None when nothing more comes."""
        self.read_here()
        self.moved = True
        if rest := list(self.begun):
            return Delivery.of(rest)
        while not self.entries:
            if self.ended:
                if self.error is not None:
                    raise self.error.with_traceback(None)
                return None
            if self._future is not None and not self._future.done():
                raise RuntimeError(
                    "another task is reading this group: for a second reader, who then gets everything as "
                    "well, join it once more"
                )
            self._future = asyncio.get_running_loop().create_future()
            await self._future
        entry, size = self.entries.popleft()
        self._take(size)
        return entry

    def _take(self, size: int) -> None:
        self.unread -= size
        self.sent = 0
        self._freed(size)
        if self.full:
            self._drained()

    def _drained(self) -> None:
        if self.full and (self.ended or self.unread * 2 < self.limit):
            self.full = self.given_up = False
            self._changed()

    # --- readers that stand still ---------------------------------------------------------------

    def stand_still(self, seconds: float, limit_s: float) -> bool:
        """So much time has passed; whether it is full and nothing was read for longer than the limit.

        After half of the limit nobody waits for it any more: perhaps its reader waits for what others can
        only send when they no longer wait for it.
        """
        if not self.full or self.moved or self.sending:
            self.moved, self.stood_s = False, 0.0
            return False
        self.stood_s += seconds
        if self.stood_s >= limit_s / 2 and not self.given_up:
            self.given_up = True
            self._changed()
        return self.stood_s >= limit_s


def may_pass(size: int) -> bool:
    """Whether the running task may send to a slow group at once, because it reads an inbox that is full.

    Who waits in `send` does not read. If its own inbox is full, others may wait for it to be read, and they
    may be the ones whom it would wait for. It may so send as much as its inbox holds, then it has to read.
    """
    for inbox in READING.get():
        if inbox.full and inbox.sent <= inbox.limit:
            inbox.sent += size
            return True
    return False


class Batches:
    """Reads an inbox. No generator: one that is cancelled while it waits (a timeout) would be over."""

    def __init__(self, inbox: Inbox, group: object) -> None:
        """`group` is left when nobody has it any more."""
        self._inbox = inbox
        self._group = group

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        entry = await self._inbox.get()
        if entry is None:
            raise StopAsyncIteration
        return entry


class Messages:
    """Reads an inbox message by message; one behind which a loop stopped is followed by the next, later."""

    def __init__(self, inbox: Inbox, group: object) -> None:
        """`group` is left when nobody has it any more."""
        self._inbox = inbox
        self._group = group

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message | Change:
        inbox = self._inbox
        for message in inbox.begun:
            inbox.moved = True
            return message
        entry = await inbox.get()
        if entry is None:
            raise StopAsyncIteration
        if isinstance(entry, Delivery):
            inbox.begun = entry.messages()
            return next(inbox.begun)
        return entry
