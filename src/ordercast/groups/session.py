"""One node's groups: who has joined what, what waits to be read, and what waits to be sent.

Knows no socket and no protocol: it is told of deliveries, in order, and gives each group its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat

from ordercast.core.identity import Batch, Configuration, Guarantee, MessageId, NodeId
from ordercast.errors import Excluded
from ordercast.groups.envelope import tag_of
from ordercast.groups.events import Delivery, Message, Rejoined

ENTRY_OVERHEAD = 64
"""What a message counts for beyond its bytes, so that empty ones are bounded too."""


class Inbox:
    """What was delivered to a group and is not read yet."""

    __slots__ = ("_freed", "_future", "begun", "ended", "entries", "error")

    def __init__(self, freed: Callable[[int], None]) -> None:
        self.entries: deque[tuple[Delivery | Configuration, int]] = deque()
        self.begun: Iterator[Message] = iter(())
        """Messages of an entry that is being read one by one."""
        self.ended = False
        self.error: BaseException | None = None
        self._freed = freed
        self._future: asyncio.Future[None] | None = None

    def put(self, entry: Delivery | Configuration, size: int) -> None:
        """One more to be read."""
        self.entries.append((entry, size))
        self._wake()

    def end(self, error: BaseException | None) -> None:
        """Nothing more comes: what is here can still be read, then the error, if there is one, is raised."""
        self.ended = True
        self.error = error
        self._wake()

    def _wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def get(self) -> Delivery | Configuration | None:
        """The next one; None when nothing more comes."""
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
        self._freed(size)
        return entry


class Session:
    """The groups of a node, over all lives that it has in one process."""

    def __init__(self, node: NodeId, incarnation: int, limit: int, brake: Callable[[bool], None]) -> None:
        """Beyond ``limit`` bytes that wait to be read, the brake is put on; below half of it, off."""
        self._node = node
        self._incarnation = incarnation
        self._limit = limit
        self._brake = brake
        self._inboxes: dict[bytes, list[tuple[str, Inbox]]] = {}
        self._receipts: deque[tuple[int, asyncio.Future[Message]]] = deque()
        self.unread = 0
        """Bytes that wait to be read, in all groups."""
        self.braking = False
        self.configuration: Configuration | None = None
        """The one installed last; that of the life before, until the new one has its first."""
        self.placed = False
        """This life has installed one."""
        self.delivered_bytes = 0
        self.malformed = 0
        """Payloads that were delivered and are no messages to a group: no correct member sends them."""

    # --- joining --------------------------------------------------------------------------------

    def open(self, tag: bytes, group: str) -> Inbox:
        """Keep the group's messages for a reader from now on; the present configuration comes first."""
        inbox = Inbox(self._freed)
        self._inboxes.setdefault(tag, []).append((group, inbox))
        if self.configuration is not None and self.placed:
            inbox.put(self.configuration, 0)
        return inbox

    def close(self, tag: bytes, inbox: Inbox) -> None:
        """Nobody reads this any more."""
        left = [entry for entry in self._inboxes.get(tag, []) if entry[1] is not inbox]
        if left:
            self._inboxes[tag] = left
        else:
            self._inboxes.pop(tag, None)
        size = sum(size for _, size in inbox.entries)
        inbox.entries.clear()
        inbox.begun = iter(())
        inbox.end(None)
        self._freed(size)

    def _freed(self, size: int) -> None:
        self.unread -= size
        if self.braking and self.unread * 2 < self._limit:
            self.braking = False
            self._brake(False)

    @property
    def fullest(self) -> str:
        """The group of which most waits to be read."""
        readers = [reader for readers in self._inboxes.values() for reader in readers]
        return max(readers, key=lambda reader: len(reader[1].entries), default=("",))[0]

    # --- what the driver tells ------------------------------------------------------------------

    def deliver(self, batch: Batch) -> None:
        """Messages, in order. Those of a batch are mostly for one group."""
        _, _, slot, origin, _, number, _, payloads = batch
        tag = tag_of(payloads[0])
        count = len(payloads)
        if tag is not None and all(map(bytes.startswith, payloads, repeat(tag))):
            start = len(tag)
            bodies = [payload[start:] for payload in payloads]
            self._put(tag, batch, bodies, range(number, number + count), range(slot, slot + count))
        else:
            self._deliver_mixed(batch)
        if origin == self._node and self._receipts and batch.incarnation == self._incarnation:
            self._resolve(batch)

    def _deliver_mixed(self, batch: Batch) -> None:
        """A batch for several groups: in runs of one group each."""
        bodies: list[bytes] = []
        current: bytes | None = None
        begins = 0
        for place, payload in enumerate(batch.payloads):
            tag = tag_of(payload)
            if tag != current:
                self._put_run(current, batch, bodies, begins)
                bodies, current, begins = [], tag, place
            if tag is not None:
                bodies.append(payload[len(tag) :])
            else:
                self.malformed += 1
        self._put_run(current, batch, bodies, begins)

    def _put_run(self, tag: bytes | None, batch: Batch, bodies: list[bytes], begins: int) -> None:
        if tag is not None:
            number, slot, count = batch.number + begins, batch.slot + begins, len(bodies)
            self._put(tag, batch, bodies, range(number, number + count), range(slot, slot + count))

    def _put(self, tag: bytes, batch: Batch, bodies: list[bytes], numbers: range, slots: range) -> None:
        readers = self._inboxes.get(tag)
        if readers is None:
            return
        size = sum(map(len, bodies))
        self.delivered_bytes += size
        size += ENTRY_OVERHEAD * len(bodies)
        for group, inbox in readers:
            inbox.put(
                Delivery(
                    bodies,
                    batch.origin,
                    group,
                    batch.guarantee is Guarantee.SAFE,
                    batch.incarnation,
                    numbers,
                    batch.configuration,
                    batch.seq,
                    slots,
                ),
                size,
            )
            self.unread += size
        if self.unread > self._limit and not self.braking:
            self.braking = True
            self._brake(True)

    def install(self, configuration: Configuration) -> None:
        """A configuration, in its place among the messages of each group."""
        if not self.placed and self.configuration is not None:
            configuration = Rejoined(*configuration)
        self.configuration, self.placed = configuration, True
        for inbox in self._all():
            inbox.put(configuration, ENTRY_OVERHEAD)
            self.unread += ENTRY_OVERHEAD

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
        return [inbox for readers in self._inboxes.values() for _, inbox in readers]

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
