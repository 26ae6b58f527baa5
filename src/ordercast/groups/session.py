"""One node's groups: who has joined what, what waits to be read, and receipts.

Knows no socket and no protocol: it is told of deliveries, in order, and gives each group its own.
`Deliveries` is where they come from the driver.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING

from ordercast.core.identity import Batch, Configuration, Ended, Guarantee, MessageId, NodeId
from ordercast.errors import Excluded
from ordercast.groups.envelope import tag_of
from ordercast.groups.events import ConfigurationChange, Delivery, Message, Rejoined
from ordercast.groups.inbox import Inbox
from ordercast.groups.producers import GUARANTEE

if TYPE_CHECKING:
    from ordercast.groups.node_log import NodeLog

LOG = logging.getLogger("ordercast")

ENTRY_OVERHEAD = 64
"""What a message counts for beyond its bytes, so that empty ones are bounded too."""
MOST_FULL = 4
"""A reader has room for its limit so many times, and for what is on its way when senders are told to wait."""
IN_FLIGHT = 16 * 1024 * 1024
"""Bytes that may be ordered until all members have heard that they are to wait: a few rotations' windows."""


class Session:
    """The groups of a node, over all lives that it has in one process."""

    def __init__(
        self,
        node: NodeId,
        incarnation: int,
        limit: int,
        slow_changed: Callable[[], None],
        *,
        send_buffer: int = 0,
    ) -> None:
        """Beyond ``limit`` bytes that wait for one reader, its group is slow; ``slow_changed`` is called when
        `slow_groups` may have changed. ``send_buffer``: what a member has accepted and not sent at most."""
        self._node = node
        self._incarnation = incarnation
        self._limit = limit
        self._slow_changed = slow_changed
        self._send_buffer = send_buffer
        self._largest = 0
        """Bytes of the largest entry so far: a queue may be over its limit by so much."""
        self._inboxes: dict[bytes, list[Inbox]] = {}
        self._receipts: deque[tuple[int, asyncio.Future[Message]]] = deque()
        self.unread = 0
        """Bytes that wait to be read, in all groups."""
        self.configuration: ConfigurationChange | None = None
        """The one installed last; that of the life before, until the new one has its first."""
        self.placed = False
        """This life has installed one."""
        self.delivered_bytes = 0
        self.malformed = 0
        """Payloads that were delivered and are no messages to a group: no correct member sends them."""

    # --- joining --------------------------------------------------------------------------------

    def open(self, tag: bytes, group: str) -> Inbox:
        """Keep the group's messages for a reader from now on; the present configuration comes first."""
        inbox = Inbox(group, self._limit, self._slow_changed, self._freed)
        self._inboxes.setdefault(tag, []).append(inbox)
        if self.configuration is not None and self.placed:
            inbox.put(self.configuration, 0)
        return inbox

    def close(self, tag: bytes, inbox: Inbox) -> None:
        """Nobody reads this any more."""
        self._take_out(tag, inbox)
        inbox.clear()
        inbox.end(None)

    def _take_out(self, tag: bytes, inbox: Inbox) -> None:
        left = [other for other in self._inboxes.get(tag, []) if other is not inbox]
        if left:
            self._inboxes[tag] = left
        else:
            self._inboxes.pop(tag, None)

    def _freed(self, size: int) -> None:
        self.unread -= size

    # --- readers that do not keep up ------------------------------------------------------------

    @property
    def slow_groups(self) -> tuple[str, ...]:
        """The groups that are to be slowed down because a reader here does not keep up."""
        return tuple(sorted({inbox.group for inbox in self._all() if inbox.slows}))

    def unread_by_group(self) -> dict[str, int]:
        """Bytes that wait to be read, in each group of which some do."""
        sizes: dict[str, int] = {}
        for inbox in self._all():
            if inbox.unread:
                sizes[inbox.group] = sizes.get(inbox.group, 0) + inbox.unread
        return sizes

    def look_at_readers(self, seconds: float, evict_after: float) -> None:
        """So much time has passed: drop the readers that are in everybody's way and stand still."""
        for tag, readers in list(self._inboxes.items()):
            for inbox in readers:
                if inbox.stand_still(seconds, evict_after):
                    because = f"it had read nothing for {evict_after:g} s, and the group waited for it"
                    self._evict(tag, inbox, because, "raise evict_after or receive_buffer")

    def _overflows(self, inbox: Inbox) -> bool:
        """Whether more waits for a reader than can, if all members hold back as they are told to."""
        members = 1 if self.configuration is None else len(self.configuration.members)
        on_its_way = IN_FLIGHT + 2 * members * (self._send_buffer + self._largest)
        return inbox.unread > MOST_FULL * self._limit + on_its_way

    def _evict(self, tag: bytes, inbox: Inbox, because: str, advice: str) -> None:
        self._take_out(tag, inbox)
        LOG.warning("%s", inbox.evict(because, advice))

    # --- what the driver tells ------------------------------------------------------------------

    def deliver(self, batch: Batch) -> None:
        """Messages, in order. Those of a batch are mostly for one group."""
        payloads = batch.payloads
        tag = tag_of(payloads[0])
        if tag is not None and all(map(bytes.startswith, payloads, repeat(tag))):
            self._put(tag, batch)
        else:
            for found, run in batch.runs(tag_of):
                if found is None:
                    self.malformed += len(run.payloads)
                else:
                    self._put(found, run)
        if batch.origin == self._node and self._receipts and batch.incarnation == self._incarnation:
            self._resolve(batch)

    def _put(self, tag: bytes, batch: Batch) -> None:
        """Messages that all begin with this tag, for the readers of its group."""
        readers = self._inboxes.get(tag)
        if readers is None:
            return
        start, count = len(tag), len(batch.payloads)
        bodies = [payload[start:] for payload in batch.payloads]
        numbers = range(batch.number, batch.number + count)
        slots = range(batch.slot, batch.slot + count)
        size = sum(map(len, bodies))
        self.delivered_bytes += size
        size += ENTRY_OVERHEAD * count
        most = MOST_FULL * self._limit
        if size > self._largest:
            self._largest = size
        for inbox in readers:
            if inbox.unread > most and self._overflows(inbox):
                because = "more came than there is room for, though senders were told to wait"
                self._evict(tag, inbox, because, "raise receive_buffer")
                continue
            self.unread += size
            inbox.put(
                Delivery(
                    bodies,
                    batch.origin,
                    inbox.group,
                    batch.guarantee is Guarantee.SAFE,
                    batch.incarnation,
                    numbers,
                    batch.configuration,
                    batch.seq,
                    slots,
                ),
                size,
            )

    def install(self, configuration: Configuration, ended: Ended | None = None) -> None:
        """A configuration, in its place among the messages of each group, and what it ends."""
        rejoined = not self.placed and self.configuration is not None
        change = (Rejoined if rejoined else ConfigurationChange)(*configuration, ended)
        self.configuration, self.placed = change, True
        for inbox in self._all():
            self.unread += ENTRY_OVERHEAD
            inbox.put(change, ENTRY_OVERHEAD)

    def end(self, error: BaseException | None, lost: BaseException) -> None:
        """The node's life is over; receipts that are still open get ``lost``."""
        for inbox in self._all():
            inbox.end(error)
        self._fail_receipts(lost)

    def life_over(self, lost: BaseException) -> None:
        """The machine ended a life, and another follows; receipts that are still open get ``lost``."""
        self.placed = False
        self._fail_receipts(lost)

    def begin_life(self, incarnation: int) -> None:
        """The next life begins: its messages are numbered anew."""
        self._incarnation = incarnation

    def _fail_receipts(self, lost: BaseException) -> None:
        for _, future in self._receipts:
            if not future.done():
                future.set_exception(lost)
                future.exception()  # nobody may be waiting: that is no mistake
        self._receipts.clear()

    def _all(self) -> Iterable[Inbox]:
        return [inbox for readers in self._inboxes.values() for inbox in readers]

    # --- receipts -------------------------------------------------------------------------------

    def expect(self, number: int) -> asyncio.Future[Message]:
        """Resolves when this node delivers its own message of that number."""
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._receipts.append((number, future))
        return future

    def _resolve(self, batch: Batch) -> None:
        """Own messages are delivered in the order of their numbers, so receipts resolve in order too."""
        receipts = self._receipts
        after = batch.number + len(batch.payloads)
        while receipts and receipts[0][0] < after:
            number, future = receipts.popleft()
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
            tag = tag_of(payload) or b""
            message = Message(
                payload[len(tag) :],
                batch.origin,
                tag[2:].decode(),
                batch.guarantee is Guarantee.SAFE,
                MessageId(batch.origin, batch.incarnation, number),
                batch.configuration,
                batch.seq,
                batch.slot + place,
            )
            future.set_result(message)


class Deliveries:
    """The sink of a node's driver: everybody who has to see a delivery sees it, in the one order."""

    def __init__(
        self,
        session: Session,
        log: NodeLog,
        admit: Callable[[Batch], Sequence[Batch]],
        originated: Callable[[Sequence[bytes]], None],
        installed: Callable[[Configuration], None],
    ) -> None:
        """`admit` answers what is to be delivered of a batch of safe messages, which may be producers'.

        `originated` is told of own messages that were broadcast, `installed` of configurations.
        """
        self._session = session
        self._log = log
        self._admit = admit
        self._originated = originated
        self._installed = installed

    def deliver(self, batch: Batch) -> None:
        """Hand messages to groups and log, in order."""
        feed = self._log.feed
        if batch.guarantee is not GUARANTEE:
            self._session.deliver(batch)
            if feed is not None:
                feed.deliver(batch)
            return
        for admitted in self._admit(batch):
            self._session.deliver(admitted)
            if feed is not None:
                feed.deliver(admitted)
        if feed is not None:
            feed.keep_notes(batch)

    def install(self, configuration: Configuration, ended: Ended | None) -> None:
        """A configuration, in its place among the messages, and what it ends."""
        self._session.install(configuration, ended)
        if self._log.feed is not None:
            self._log.feed.install(configuration)
        self._installed(configuration)

    def originated(self, batch: Batch) -> None:
        """Own messages left the queue: there is room for others."""
        self._originated(batch.payloads)
