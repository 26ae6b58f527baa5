"""States on their way from one replica to another: over connections between nodes, out of the order.

Who needs a state asks one of those who have it (`Fetching`), by the object's name; the donor takes a
snapshot, which holds the object up for a moment at most, and sends its slices (`Giving`). A donor that has
too many receivers says so, and one that ends, or says nothing for `STALL_S`, is given up: the next is asked.

A replica that was away, and is at a place of the history that the donor remembers, gets only what was carried
out since (`Tail`).

It is told which slices have come, by their number and a digest over them, and goes on behind them where the
slices of a snapshot of its own begin with exactly these: so what comes is what it would have sent from the
beginning. For that, the first donors of a replica keep a snapshot of one and the same place of the history
(`Offer`). Where that is not so, it begins anew. ``docs/decisions/state-transfer.md`` says more.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ordercast.core.identity import NodeId
from ordercast.core.wire import UNREADABLE
from ordercast.errors import ConfigProblem
from ordercast.process_groups.views import Process
from ordercast.replicated.command import encode
from ordercast.replicated.durable.heads import Head
from ordercast.replicated.effects import Fetch
from ordercast.replicated.history import Tail
from ordercast.replicated.snapshot import NOT_ENCODED, Pace, Restored, Snapshot, Unsound
from ordercast.replicated.state import Outdated

if TYPE_CHECKING:
    from ordercast.replicated.replica import Replica
    from ordercast.transport.streams import Channel, Streams

LOG = logging.getLogger("ordercast")
T = TypeVar("T")

STALL_S = 5.0
"""How long a donor may say nothing before another one is asked."""
ALIVE_S = 1.0
"""How often a donor says that it is about to send something."""
AGAIN_S = 0.1
"""How long a replica waits before it asks all donors anew."""
BEHIND_S = 10.0
"""How long a donor may take until it has come as far as the state has to be."""
MOST_RECEIVERS = 2
"""Replicas to which a node gives states at once."""
KEPT = 2
"""Snapshots of an object that are kept for replicas that may ask for them."""
KEPT_S = 600.0
"""How long they are kept at most,"""
LOOK_S = 1.0
"""and how often it is looked whether they are needed."""
_ANEW, _ON, _TAIL, _BUSY = b"anew", b"on", b"tail", b"busy"
"""What a donor answers: it begins, it goes on, it gives only what was carried out since, or it has too many
receivers. Empty frames mean: wait."""
TAIL_BYTES = 128 * 1024
"""Bytes of entries that go together, about."""


class Wish(msgspec.Struct, array_like=True):
    """Who needs a state tells which one, and what it has of it."""

    name: str
    position: int
    """The state is to be of this place of the history, or of a later one."""
    known: list[Head] = []
    """Places of the history of which it has the state: what follows one of them would do."""
    have: Head | None = None
    """Of which place that is of which some slices have come:"""
    count: int = 0
    """so many,"""
    digest: bytes = b""
    """and a digest over them."""


_wish = msgspec.msgpack.Decoder(Wish).decode
_tail = msgspec.msgpack.Decoder(tuple[Head, int]).decode
_entries = msgspec.msgpack.Decoder(list[tuple[Head, Process, bytes]]).decode


class Digest:
    """A digest of slices that follow each other."""

    def __init__(self) -> None:
        self._sum = hashlib.blake2b(digest_size=16)
        self.count = 0

    def add(self, data: bytes) -> None:
        """Add the next slice."""
        self._sum.update(len(data).to_bytes(4, "big"))
        self._sum.update(data)
        self.count += 1

    @property
    def value(self) -> bytes:
        """The digest of all slices that were added."""
        return self._sum.digest()


# --- who gives it -------------------------------------------------------------------------------


class Giving:
    """Gives states of a node's objects to other nodes."""

    def __init__(self, find: Callable[[str], Replica | None], at_moment: Callable[[str], None]) -> None:
        """`find`: the replica of an object here, by name."""
        self._find = find
        self._at_moment = at_moment
        self._receivers = 0
        self._kept: dict[Replica, deque[tuple[Snapshot, float]]] = {}
        """By object, the latest last, with when they were taken."""
        self._looking: asyncio.TimerHandle | None = None

    def keep(self, replica: Replica, snapshot: Snapshot) -> None:
        """Keep a snapshot that has just begun, for who lacks the state."""
        self._kept.setdefault(replica, deque(maxlen=KEPT)).append((snapshot, _now()))
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """Drop what nobody needs."""
        for replica, kept in list(self._kept.items()):
            while kept and (not replica.somebody_lacks_state or kept[0][1] < _now() - KEPT_S):
                kept.popleft()
            if not kept:
                del self._kept[replica]
        self._looking = None
        if self._kept:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def end(self) -> None:
        """The node gives nothing any more."""
        self._kept.clear()
        if self._looking is not None:
            self._looking.cancel()

    async def serve(self, channel: Channel) -> None:
        """Serve one connection: a wish, then the state."""
        try:
            wish = _wish(await channel.receive())
        except UNREADABLE as error:
            raise Unsound("what it wishes cannot be read") from error
        if self._receivers >= MOST_RECEIVERS:
            await channel.send(_BUSY)
            return
        self._receivers += 1
        try:
            await self._give(channel, wish)
        except (TypeError, ValueError, OverflowError) as error:
            LOG.error("%s: %s", wish.name, NOT_ENCODED.format(error))
            raise Unsound("the state cannot be encoded") from error
        finally:
            self._receivers -= 1

    async def _give(self, channel: Channel, wish: Wish) -> None:
        found = await _meanwhile(channel, self._prepared(wish))
        if found is None:
            return
        if isinstance(found, Tail):
            await self._give_tail(channel, found)
            return
        goes_on, slices = found
        await _send(channel, _ON if goes_on else _ANEW)
        pace = Pace()
        pace.begin()
        for data in slices:
            self._at_moment("state half sent")
            await pace.rest()
            await _send(channel, data)
            pace.begin()

    async def _give_tail(self, channel: Channel, tail: Tail) -> None:
        await _send(channel, _TAIL)
        await _send(channel, encode((tail.base, len(tail.entries))))
        some: list[tuple[Head, Process, bytes]] = []
        size = 0
        for entry in tail.entries:
            some.append(entry)
            size += len(entry[2])
            if size > TAIL_BYTES:
                await _send(channel, encode(some))
                self._at_moment("state half sent")
                some, size = [], 0
                await asyncio.sleep(0)
        if some:
            await _send(channel, encode(some))

    async def _prepared(self, wish: Wish) -> tuple[bool, Iterator[bytes]] | Tail | None:
        """Whether it goes on behind what had come, and the slices; or what was carried out since; None if
        there is no such state here."""
        replica = self._find(wish.name)
        if replica is None:
            return None
        if replica.machine.has_state and replica.machine.applied.position >= wish.position:
            tail = replica.machine.recent.after_one(wish.known)
            if tail is not None:
                return tail
        kept = [snapshot for snapshot, _ in self._kept.get(replica, ())]
        for snapshot in kept:
            if wish.count and snapshot.head == wish.have:
                slices = (await replica.completed(snapshot)).slices()
                if await _begins_with(slices, wish):
                    return True, slices
        for snapshot in reversed(kept):
            if snapshot.head.position >= wish.position:
                return False, (await replica.completed(snapshot)).slices()
        until = _now() + BEHIND_S
        while not (replica.machine.gives_state and replica.machine.applied.position >= wish.position):
            if _now() > until:
                return None
            await asyncio.sleep(0.01)
        return False, (await replica.snapshot()).slices()


async def _begins_with(slices: Iterator[bytes], wish: Wish) -> bool:
    """Whether the first slices are those that have come; they are taken."""
    digest, pace = Digest(), Pace()
    while digest.count < wish.count:
        pace.begin()
        data = next(slices, None)
        if data is None:
            return False
        digest.add(data)
        await pace.rest()
    return digest.value == wish.digest


async def _meanwhile(channel: Channel, work: Awaitable[T]) -> T:
    """Do something that may take long, and tell the other end to wait."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait((task,), timeout=ALIVE_S))[0]:
            await _send(channel, b"")
        return task.result()
    finally:
        task.cancel()


async def _send(channel: Channel, frame: bytes) -> None:
    async with asyncio.timeout(STALL_S):
        await channel.send(frame)


def _now() -> float:
    return asyncio.get_running_loop().time()


# --- who needs it -------------------------------------------------------------------------------


class Busy(OSError):
    """A donor has too many receivers."""


class Coming:
    """A state of which some slices have come."""

    def __init__(self, replica: Replica) -> None:
        self.state = Restored(replica.target)
        self.digest = Digest()

    def add(self, data: bytes) -> None:
        """The next slice. Raises `Unsound`."""
        self.state.add(data)
        self.digest.add(data)


class Fetching:
    """Gets a state for one replica, from one donor after the other, until it has one."""

    def __init__(
        self,
        streams: Streams,
        replica: Replica,
        fetch: Fetch,
        slowest: Callable[[], NodeId | None],
        at_moment: Callable[[str], None],
    ) -> None:
        """`slowest`: the node for which the others wait, if there is one."""
        self._streams = streams
        self._replica = replica
        self.fetch = fetch
        """From whom; may change while it goes on."""
        self._slowest = slowest
        self._at_moment = at_moment
        self._coming: Coming | None = None
        self._tried: Counter[Process] = Counter()
        self._task = asyncio.create_task(self._run(), name=f"ordercast-state-{replica.name}")

    @property
    def done(self) -> bool:
        """Whether a state has come."""
        return self._task.done()

    def stop(self) -> None:
        """Stop: the state is not needed any more."""
        self._task.cancel()

    async def _run(self) -> None:
        replica, name = self._replica, self._replica.name
        self._at_moment("state transfer begins")
        while True:
            source = self._next_source()
            if source is None:
                await asyncio.sleep(AGAIN_S)
                continue
            process, port = source
            try:
                state = await self._take(process.node, port)
            except Outdated as error:
                replica.fail(ConfigProblem(f"{name} cannot be replicated here: {error}"))
                return
            except (OSError, EOFError) as error:
                if isinstance(error, Unsound):
                    self._coming = None
                level = logging.DEBUG if isinstance(error, Busy) else logging.INFO
                why = str(error) or type(error).__name__
                LOG.log(level, "the state of %s did not come from node %d: %s", name, process.node, why)
                self._tried[process] += 1
                await asyncio.sleep(AGAIN_S)
                continue
            self._coming = None
            self._at_moment("state transfer ends")
            fetch = self.fetch
            replica.state_came(state)
            if self.fetch is fetch:
                return  # else it is not of the history that counts

    def _next_source(self) -> tuple[Process, int] | None:
        """Whom to ask: those that were asked less often first, and the slowest node last."""
        slowest = self._slowest()
        return min(
            self.fetch.sources,
            key=lambda source: (self._tried[source[0]], source[0].node == slowest),
            default=None,
        )

    async def _take(self, node: NodeId, port: int) -> Restored | Tail:
        """The state, from one donor. Raises `OSError` or `EOFError` if it is not to be had there."""
        async with asyncio.timeout(STALL_S):
            channel = await self._streams.open(node, port)
        try:
            await _send(channel, encode(self._wish()))
            answer = await self._receive(channel)
            if answer == _BUSY:
                raise Busy("it has too many receivers")
            if answer == _TAIL:
                return await self._take_tail(channel)
            coming = self._coming
            if answer != _ON or coming is None:
                coming = self._coming = Coming(self._replica)
            else:
                LOG.info("the state of %s goes on from node %d", self._replica.name, node)
            pace = Pace()
            while not coming.state.whole:
                data = await self._receive(channel)
                pace.begin()
                coming.add(data)
                if self._is_too_old(coming):
                    raise Unsound("it is of a place that this replica waits for no more")
                await pace.rest()
            return coming.state
        finally:
            channel.close()

    async def _take_tail(self, channel: Channel) -> Tail:
        try:
            base, count = _tail(await self._receive(channel))
            entries: list[tuple[Head, Process, bytes]] = []
            while len(entries) < count:
                entries += _entries(await self._receive(channel))
                await asyncio.sleep(0)
        except UNREADABLE as error:
            raise Unsound("what was carried out since cannot be read") from error
        positions = [head.position for head, _, _ in entries]
        if positions != list(range(base.position + 1, base.position + 1 + count)):
            raise Unsound("what was carried out since is not complete")
        return Tail(base, entries)

    def _wish(self) -> Wish:
        name, position, coming = self._replica.name, self.fetch.head.position, self._coming
        known = list(self.fetch.known)
        if coming is None or not coming.state.begun or self._is_too_old(coming):
            self._coming = None
            return Wish(name, position, known)
        return Wish(name, position, known, coming.state.head, coming.digest.count, coming.digest.value)

    def _is_too_old(self, coming: Coming) -> bool:
        return coming.state.begun and coming.state.head.position < self.fetch.head.position

    async def _receive(self, channel: Channel) -> bytes:
        """The next frame that says something."""
        while True:
            async with asyncio.timeout(STALL_S):
                frame = await channel.receive()
            if frame:
                return frame
