"""One node's readers: who reads which group, what waits to be read, and receipts.

Knows no socket and no protocol. A `Reader` is a process of this node in one group, and is told by `Processes`
what it gets there; `Deliveries` is where all of it comes from the driver.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ordercast.core.identity import Batch, Configuration, Ended, Guarantee, MessageId, NodeId
from ordercast.errors import Excluded
from ordercast.groups.events import (
    Change,
    ConfigurationChange,
    Delivery,
    Joined,
    Left,
    Message,
    PrimaryLost,
    PrimaryRegained,
    Rejoined,
)
from ordercast.groups.inbox import Inbox
from ordercast.groups.primary import Primary, only_notes
from ordercast.groups.processes import Processes
from ordercast.groups.producers import GUARANTEE
from ordercast.process_groups.notes import Address, address_of, read_address
from ordercast.process_groups.views import Cause, Member, Process, Received, Unheard, View

if TYPE_CHECKING:
    from ordercast.groups.node_log import NodeLog

LOG = logging.getLogger("ordercast")

ENTRY_OVERHEAD = 64
"""What a message counts for beyond its bytes, so that empty ones are bounded too."""
MOST_FULL = 4
"""A reader has room for its limit so many times, and for what is on its way when senders are told to wait."""
IN_FLIGHT = 16 * 1024 * 1024
"""Bytes that may be ordered until all members have heard that they are to wait: a few rotations' windows."""


class Reader:
    """A reader of one group: a process that is in it, and what waits for it."""

    def __init__(self, session: Session, group: str, properties: Mapping[str, str] | None) -> None:
        """Asks to join the group."""
        self.group = group
        self.members: tuple[Member, ...] = ()
        """Who is in the group, as this node knows it; nobody while the reader itself is not."""
        self.joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolved once the reader is in the group."""
        self.gone: asyncio.Future[None] | None = None
        """Resolved once it is in it no longer, where that was asked for."""
        self.inbox = Inbox(group, session.limit, session.slow_changed, session.freed)
        self._session = session
        self._processes = session.processes
        self.inside = False
        """It is in the group, in this life of the node."""
        self.process = session.processes.begin(self)
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
        session, inbox = self._session, self.inbox
        delivery, size = session.delivery(received, self.group)
        if inbox.unread > session.most and session.overflows(inbox):
            because = "more came than there is room for, though senders were told to wait"
            session.evict(self, because, "raise receive_buffer")
            return
        session.unread += size
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
            self._session.unread += ENTRY_OVERHEAD
            self.inbox.put(entry, ENTRY_OVERHEAD)

    # --- leaving --------------------------------------------------------------------------------

    def leave(self) -> asyncio.Future[None]:
        """Receive nothing more, and ask to be in the group no longer; resolved once that is ordered."""
        if self.gone is None:
            self.gone = asyncio.get_running_loop().create_future()
            self._session.close(self)
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
        self._session.has_left(self)
        self.process.end()
        if not self.gone.done():
            self.gone.set_result(None)


class Session:
    """The readers of a node, over all lives that it has in one process."""

    def __init__(
        self,
        processes: Processes,
        node: NodeId,
        incarnation: int,
        limit: int,
        slow_changed: Callable[[], None],
        *,
        send_buffer: int = 0,
    ) -> None:
        """Beyond ``limit`` bytes that wait for one reader, its group is slow; ``slow_changed`` is called when
        `slow_groups` may have changed. ``send_buffer``: what a member has accepted and not sent at most."""
        self.processes = processes
        self.limit = limit
        self.most = MOST_FULL * limit
        self.slow_changed = slow_changed
        self.unread = 0
        """Bytes that wait to be read, in all groups."""
        self.delivered_bytes = 0
        self._node = node
        self._incarnation = incarnation
        self._send_buffer = send_buffer
        self._largest = 0
        """Bytes of the largest entry so far: a queue may be over its limit by so much."""
        self._readers: dict[Reader, None] = {}
        self._leaving: dict[Reader, None] = {}
        """Those that are still members, and receive nothing."""
        self._receipts: deque[tuple[int, asyncio.Future[Message]]] = deque()
        self._last: tuple[Received | None, str, Delivery | None, int] = (None, "", None, 0)
        """What was delivered last, and to which group: readers of one group share it."""

    @property
    def configuration(self) -> ConfigurationChange | None:
        """The one installed last; that of the life before, until the new one has its first."""
        return self.processes.configuration

    @property
    def placed(self) -> bool:
        """This life has installed one."""
        return self.processes.placed

    # --- readers --------------------------------------------------------------------------------

    def open(self, group: str, properties: Mapping[str, str] | None = None) -> Reader:
        """Join a group, and keep its messages for a reader from there on."""
        reader = Reader(self, group, properties)
        self._readers[reader] = None
        return reader

    def close(self, reader: Reader) -> None:
        """Nobody reads this any more; it is still a member."""
        if self._readers.pop(reader, self) is None:
            reader.inbox.clear()
            reader.inbox.end(None)
            self._leaving[reader] = None

    def has_left(self, reader: Reader) -> None:
        """A reader that nobody reads is no member any more."""
        self._leaving.pop(reader, None)

    def freed(self, size: int) -> None:
        """So many bytes were read."""
        self.unread -= size

    # --- readers that do not keep up ------------------------------------------------------------

    @property
    def slow_groups(self) -> tuple[str, ...]:
        """The groups that are to be slowed down because a reader here does not keep up."""
        return tuple(sorted({inbox.group for inbox in self._inboxes() if inbox.slows}))

    def unread_by_group(self) -> dict[str, int]:
        """Bytes that wait to be read, in each group of which some do."""
        sizes: dict[str, int] = {}
        for inbox in self._inboxes():
            if inbox.unread:
                sizes[inbox.group] = sizes.get(inbox.group, 0) + inbox.unread
        return sizes

    def look_at_readers(self, seconds: float, evict_after: float) -> None:
        """So much time has passed: drop the readers that are in everybody's way and stand still."""
        for reader in tuple(self._readers):
            if reader.inbox.stand_still(seconds, evict_after):
                because = f"it had read nothing for {evict_after:g} s, and the group waited for it"
                self.evict(reader, because, "raise evict_after or receive_buffer")

    def overflows(self, inbox: Inbox) -> bool:
        """Whether more waits for a reader than can, if all members hold back as they are told to."""
        members = 1 if self.configuration is None else len(self.configuration.members)
        on_its_way = IN_FLIGHT + 2 * members * (self._send_buffer + self._largest)
        return inbox.unread > self.most + on_its_way

    def evict(self, reader: Reader, because: str, advice: str) -> None:
        """A reader gets an error behind what it has, and is a member no more."""
        self._readers.pop(reader, None)
        LOG.warning("%s", reader.inbox.evict(because, advice))
        reader.life_over()
        reader.process.end()

    # --- what comes -----------------------------------------------------------------------------

    def delivery(self, received: Received, group: str) -> tuple[Delivery, int]:
        """Messages as a reader of a group gets them, and the bytes that they count for."""
        last, last_group, delivery, size = self._last
        if delivery is not None and last is received and last_group == group:
            return delivery, size
        batch, sender, groups = received[:3]
        configuration, seq, slot, origin, incarnation, number, guarantee, bodies, _ = batch
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
        )
        self._last = received, group, delivery, size
        return delivery, size

    def delivered(self, batch: Batch) -> None:
        """Messages were delivered, and all who get them have: own ones may be waited for."""
        if batch.origin == self._node and self._receipts and batch.incarnation == self._incarnation:
            self._resolve(batch)

    def end(self, error: BaseException | None, lost: BaseException) -> None:
        """The node's life is over; receipts that are still open get ``lost``."""
        for reader in self._readers:
            reader.inbox.end(error)
            reader.fail_joining(lost)
        self._end_memberships()
        self._fail_receipts(lost)

    def primary(self, event: PrimaryLost | PrimaryRegained, lost: BaseException | None) -> None:
        """The primary partition is lost, and receipts and joins that are open get ``lost``; or regained."""
        for reader in tuple(self._readers):
            reader.put(event)
            if lost is not None:
                reader.fail_joining(lost)
        if lost is not None:
            self._fail_receipts(lost)

    def life_over(self, lost: BaseException) -> None:
        """The machine ended a life, and another follows; receipts that are still open get ``lost``."""
        self._end_memberships()
        self._fail_receipts(lost)

    def _end_memberships(self) -> None:
        for reader in (*self._readers, *self._leaving):
            reader.life_over()

    def begin_life(self, incarnation: int) -> None:
        """The next life begins: its messages are numbered anew."""
        self._incarnation = incarnation

    def _fail_receipts(self, lost: BaseException) -> None:
        for _, future in self._receipts:
            if not future.done():
                future.set_exception(lost)
                future.exception()  # nobody may be waiting: that is no mistake
        self._receipts.clear()

    def _inboxes(self) -> Iterable[Inbox]:
        return [reader.inbox for reader in self._readers]

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
            front = address_of(payload) or b""
            sender, groups = (read_address(front) if front else None) or Address(0, ("",))
            message = Message(
                payload[len(front) :],
                batch.origin,
                groups[0],
                batch.guarantee is Guarantee.SAFE,
                MessageId(batch.origin, batch.incarnation, number),
                batch.configuration,
                batch.seq,
                batch.slot + place,
                groups,
                sender,
            )
            future.set_result(message)


class Deliveries:
    """The sink of a node's driver: everybody who has to see a delivery sees it, in the one order."""

    def __init__(
        self,
        processes: Processes,
        session: Session,
        log: NodeLog,
        admit: Callable[[Batch], Sequence[Batch]],
        originated: Callable[[Sequence[bytes]], None],
        installed: Callable[[Configuration], None],
        primary: Primary,
    ) -> None:
        """`admit` answers what is to be delivered of a batch of safe messages, which may be producers'.

        `originated` is told of own messages that were broadcast, `installed` of configurations.
        """
        self._processes = processes
        self._session = session
        self._log = log
        self._admit = admit
        self._originated = originated
        self._installed = installed
        self._primary = primary

    def deliver(self, batch: Batch) -> None:
        """Hand messages to groups and log, in order."""
        if self._primary.minority:
            for notes in only_notes(batch):
                self._deliver(notes)
        else:
            self._deliver(batch)

    def _deliver(self, batch: Batch) -> None:
        feed = self._log.feed
        for admitted in (batch,) if batch.guarantee is not GUARANTEE else self._admit(batch):
            self._processes.deliver(admitted)
            self._session.delivered(admitted)
            if feed is not None:
                feed.deliver(admitted)
        if feed is not None and batch.guarantee is GUARANTEE:
            feed.keep_notes(batch)

    def install(self, configuration: Configuration, ended: Ended | None) -> None:
        """A configuration, in its place among the messages, and what it ends."""
        self._processes.install(configuration, ended)
        self._primary.install(configuration)
        if self._log.feed is not None:
            self._log.feed.install(configuration)
        self._installed(configuration)

    def originated(self, batch: Batch) -> None:
        """Own messages left the queue: there is room for others."""
        self._originated(batch.payloads)
