"""A reader of a group: a process that is in it, what waits to be read, and how that is read.

`Processes` tells a `Reader` what it gets, and it puts that into its `Inbox`, from where `Messages` and
`Batches` take it. What waits is bounded, and senders wait for a reader only so long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Self

from ordercast.core.identity import Guarantee
from ordercast.errors import Evicted
from ordercast.groups.events import (
    Change,
    ConfigurationChange,
    Delivery,
    Event,
    Joined,
    Left,
    Message,
    Rejoined,
)
from ordercast.process_groups.views import Cause, Member, Process, Received, Unheard, View

if TYPE_CHECKING:
    from ordercast.groups.processes import Processes
    from ordercast.groups.readers import Readers

ENTRY_OVERHEAD = 64
"""What a message counts for beyond its bytes, so that empty ones are bounded too."""
MOST_FULL = 4
"""A reader has room for its limit so many times, and for what is on its way when senders are told to wait."""
IN_FLIGHT = 16 * 1024 * 1024
"""Bytes that may be ordered until all members have heard that they are to wait: a few rotations' windows."""
READING: ContextVar[tuple[Inbox, ...]] = ContextVar("ordercast_reading", default=())
"""The inboxes that the running task, or the task that started it, reads; in a thread, that thread."""


class Reader:
    """A reader of one group: a process that is in it, and what waits for it."""

    def __init__(self, readers: Readers, group: str, properties: Mapping[str, str] | None) -> None:
        """Asks to join the group."""
        self.group = group
        self.members: tuple[Member, ...] = ()
        """Who is in the group, as this node knows it; nobody while the reader itself is not."""
        self.joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolved once the reader is in the group."""
        self.gone: asyncio.Future[None] | None = None
        """Resolved once it is in it no longer, where that was asked for."""
        self.inbox = Inbox(group, readers.buffer.limit, readers.slow_changed, readers.buffer.freed)
        self._readers = readers
        self._buffer = readers.buffer
        self._processes = readers.processes
        self.inside = False
        """Whether the reader is in the group, in this life of the node."""
        self.process = readers.processes.begin(self)
        try:
            self.process.join(group, properties)
        except BaseException:
            self.process.end()
            raise

    @property
    def me(self) -> Process:
        """The reader as others know it."""
        return self._processes.process(self.process)

    # --- what it is told ------------------------------------------------------------------------

    def received(self, received: Received) -> None:
        """Messages to the group."""
        buffer, inbox = self._buffer, self.inbox
        delivery, size = buffer.delivery(received, self.group)
        if inbox.unread > buffer.most and buffer.overflows(inbox):
            because = "more came than there is room for, though senders were told to wait"
            self._readers.evict(self, because, "raise receive_buffer")
            return
        buffer.unread += size
        inbox.put(delivery, size)

    def unheard(self, unheard: Unheard) -> None:
        """Who sends to nobody is not told: the application sends no heads."""

    def installed(self, view: View) -> None:
        """The group has a new view: tell who has joined it and who has left it."""
        before, self.members = self.members, view.members
        if not self.inside:
            self.inside = True
            if not self.joined.done():
                self.joined.set_result(None)
                if self._processes.configuration is not None:
                    self._put(self._processes.configuration)
            me = self.me
            own = next(member for member in view.members if member.process == me)
            self._put(Joined(self.group, own, view.cause, view.members))
            return
        known, there = {each.process for each in before}, {each.process for each in view.members}
        why = view.cause
        for member in before:
            if member.process not in there:
                left = why if why in (Cause.LEFT, Cause.DIED) else Cause.LOST
                self._put(Left(self.group, member, left, view.members))
        for member in view.members:
            if member.process not in known:
                joined = why if why is Cause.JOINED else Cause.MERGED
                self._put(Joined(self.group, member, joined, view.members))

    def left(self, group: str, cause: Cause) -> None:
        """The reader is in the group no longer."""
        self.inside = False
        own = next((member for member in self.members if member.process == self.me), None)
        self.members = ()
        if self.gone is not None:
            self._end_leaving()
        elif own is not None:
            self._put(Left(self.group, own, cause, ()))

    def configuration(self, change: ConfigurationChange) -> None:
        """A configuration of nodes; the first of another life ends all memberships of the last one."""
        if isinstance(change, Rejoined):
            self.inside, self.members = False, ()
        self.put(change)

    def put(self, change: Change) -> None:
        """Something changes for all members, between messages: who has not joined yet is not concerned."""
        if self.joined.done():
            self._put(change)

    def fail_joining(self, error: BaseException) -> None:
        """The group cannot be joined."""
        if not self.joined.done():
            self.joined.set_exception(error)
            self.joined.exception()  # nobody may be waiting: that is no mistake

    def _put(self, entry: Change) -> None:
        if not self.inbox.ended:
            self._buffer.unread += ENTRY_OVERHEAD
            self.inbox.put(entry, ENTRY_OVERHEAD)

    # --- leaving --------------------------------------------------------------------------------

    def leave(self) -> asyncio.Future[None]:
        """Receive nothing more, and ask to be in the group no longer; resolved once that is ordered."""
        if self.gone is None:
            self.gone = asyncio.get_running_loop().create_future()
            self._readers.close(self)
            if self.inside:
                self.process.leave(self.group)
            else:
                self._end_leaving()
        return self.gone

    def life_over(self) -> None:
        """The membership is over: the node's life is, or the reader was dropped."""
        self.inside, self.members = False, ()
        if self.gone is not None:
            self._end_leaving()

    def _end_leaving(self) -> None:
        assert self.gone is not None, "it is leaving"
        self._readers.has_left(self)
        self.process.end()
        if not self.gone.done():
            self.gone.set_result(None)


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
        """Throw away what waits: nobody is going to read it."""
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


class ReceiveBuffer:
    """What waits for all readers of a node: messages as they get them, and how many bytes there may be."""

    def __init__(self, processes: Processes, limit: int, send_buffer: int = 0) -> None:
        """Beyond `limit` bytes that wait for one reader, its group is slow. `send_buffer`: bytes that a
        member has accepted and not sent at most. `processes` knows how many members there are."""
        self.limit = limit
        self.most = MOST_FULL * limit
        self.unread = 0
        """Bytes that wait to be read, in all groups."""
        self.delivered_bytes = 0
        self._processes = processes
        self._send_buffer = send_buffer
        self._largest = 0
        """Bytes of the largest entry so far: a queue may be over its limit by so much."""
        self._last: tuple[Received | None, str, Delivery | None, int] = (None, "", None, 0)
        """What was delivered last, and to which group: readers of one group share it."""

    def delivery(self, received: Received, group: str) -> tuple[Delivery, int]:
        """Messages as a reader of a group gets them, and the bytes that they count for."""
        last, last_group, delivery, size = self._last
        if delivery is not None and last is received and last_group == group:
            return delivery, size
        batch, sender, groups = received[:3]
        configuration, seq, slot, origin, incarnation, number, guarantee, bodies, _, _ = batch
        count = len(bodies)
        if last is not received:
            size = sum(map(len, bodies))
            self.delivered_bytes += size
            size += ENTRY_OVERHEAD * count
            if size > self._largest:
                self._largest = size
        delivery = Delivery(
            bodies,
            origin,
            group,
            guarantee is Guarantee.SAFE,
            incarnation,
            range(number, number + count),
            configuration,
            seq,
            range(slot, slot + count),
            groups,
            sender,
            received.sent_us,
            received.heads,
        )
        self._last = received, group, delivery, size
        return delivery, size

    def freed(self, size: int) -> None:
        """Note that `size` bytes were read."""
        self.unread -= size

    def overflows(self, inbox: Inbox) -> bool:
        """Whether more waits for a reader than can, if all members hold back as they are told to."""
        configuration = self._processes.configuration
        members = 1 if configuration is None else len(configuration.members)
        on_its_way = IN_FLIGHT + 2 * members * (self._send_buffer + self._largest)
        return inbox.unread > self.most + on_its_way


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
