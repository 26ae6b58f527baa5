"""The buckets that a node holds: it has a replica of each as long as there is that bucket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from ordercast.clients.buckets.bucket import Bucket
from ordercast.clients.buckets.registry import MOST_BUCKETS, Created, Registry
from ordercast.clients.buckets.settings import PREFIX, Settings, bucket_of, settled
from ordercast.clients.problems import Problem
from ordercast.errors import ConfigProblem, Evicted, OrdercastError
from ordercast.process_groups.views import Member
from ordercast.replicated.notes import GROUP
from ordercast.replicated.replicated import Replicated, watch

LOG = logging.getLogger("ordercast")

REGISTRY = "buckets"
"""The name of the replicated object that says which buckets there are."""
ANSWER_S = 4.0
"""What takes longer than this is not answered: NATS clients wait 5 s."""
POLL_S = 0.01
T = TypeVar("T", bound=Replicated)


class Objects(Protocol):
    """The replicated objects of a node."""

    async def replicate(
        self, target: T, name: str, timeout: float | None, durable: Path | None, level: str | None
    ) -> T:
        """Replicate an object; returns it when it has the state that the others have."""

    async def release(self, name: str) -> None:
        """Replicate an object no longer."""


class NoBucket(Exception):
    """There is no bucket of this name."""


class TooManyBuckets(Exception):
    """There are as many buckets as there may be."""


class Fresh:
    """Brings an object up to date: requests that come while this is going on share the next time."""

    def __init__(self, target: Replicated) -> None:
        self._target = target
        self._going: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        """Wait until everything that was answered anywhere before is here. Raises as commands do."""
        if self._next is None:
            self._next = asyncio.create_task(self._sync(self._going))
            self._next.add_done_callback(_retrieve)
        await asyncio.shield(self._next)

    async def _sync(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait((before,))
        self._going, self._next = self._next, None
        await self._target.sync()


def _retrieve(task: asyncio.Task[None]) -> None:
    """Whoever waits for it gets its exception; nobody may."""
    if not task.cancelled():
        task.exception()


class Held:
    """A bucket at this node."""

    def __init__(self, name: str, created: Created) -> None:
        self.name = name
        self.number = created.number
        self.object = f"bucket.{name}.{created.number}"
        """The name of the replicated object."""
        self.bucket = Bucket(created.settings, created.created_us)
        self.fresh = Fresh(self.bucket)
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolved when the object has its state."""
        self.task: asyncio.Task[None] | None = None


class HeldBuckets:
    """All buckets, at this node."""

    def __init__(
        self,
        objects: Objects,
        members: Callable[[str], Sequence[Member]],
        serving: str,
        changed: Callable[[str], None],
    ) -> None:
        """`members` are those of any process group, `serving` is that of the nodes that hold buckets;
        `changed` is told the names of buckets that have changed, or are not there any more."""
        self.registry = Registry()
        self._objects = objects
        self._members = members
        self._serving = serving
        self._changed = changed
        self._fresh = Fresh(self.registry)
        self._held: dict[str, Held] = {}
        self._releasing: set[asyncio.Task[None]] = set()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Hold what buckets there are, from now on."""
        self._task = asyncio.create_task(self._hold_all(), name="ordercast-buckets")

    def close(self) -> None:
        """Hold none any more."""
        if self._task is not None:
            self._task.cancel()
        for held in self._held.values():
            if held.task is not None:
                held.task.cancel()

    def __len__(self) -> int:
        return len(self._held)

    # --- holding --------------------------------------------------------------------------------

    async def _hold_all(self) -> None:
        if await self._replicated(self.registry, REGISTRY):
            self._ready.set()
            await self._watched(self.registry, lambda name: self.look())

    async def _replicated(self, target: Replicated, name: str) -> bool:
        """Replicate an object, however long that takes; False if the node ended before."""
        try:
            await self._objects.replicate(target, name, None, None, None)
        except OrdercastError as error:
            LOG.debug("%s is not replicated: %s", name, error)
            return False
        return True

    async def _watched(self, target: Replicated, tell: Callable[[object], None]) -> None:
        """Tell of what happens to an object, and once at first, until the node ends."""
        while True:
            try:
                with watch(target) as events:
                    tell(None)
                    async for event in events:
                        tell(event)
                return
            except Evicted:
                continue
            except OrdercastError as error:
                LOG.debug("no longer watched: %s", error)
                return

    async def _hold(self, held: Held) -> None:
        if await self._replicated(held.bucket, held.object):
            held.ready.set_result(None)
            await self._watched(held.bucket, lambda event: self._changed(held.name))

    def look(self) -> None:
        """Hold what buckets there are now, and no others."""
        there = self.registry.buckets
        for name, held in list(self._held.items()):
            created = there.get(name)
            if created is None or created.number != held.number:
                self._drop(held)
        for name, created in there.items():
            if name not in self._held:
                held = self._held[name] = Held(name, created)
                held.task = asyncio.create_task(self._hold(held), name=f"ordercast-{held.object}")

    def _drop(self, held: Held) -> None:
        del self._held[held.name]
        if held.task is not None:
            held.task.cancel()
        if not held.ready.done():
            held.ready.set_exception(NoBucket())
            held.ready.exception()  # nobody may be waiting
        releasing = asyncio.create_task(self._objects.release(held.object))
        self._releasing.add(releasing)
        releasing.add_done_callback(self._released)
        self._changed(held.name)

    def _released(self, task: asyncio.Task[None]) -> None:
        self._releasing.discard(task)
        if not task.cancelled():
            task.result()

    # --- using ----------------------------------------------------------------------------------

    async def names(self) -> list[str]:
        """The buckets that there are."""
        await self._current()
        return sorted(self.registry.buckets)

    async def find(self, name: str) -> Held:
        """A bucket, once this node has its state. Raises `NoBucket`."""
        held = self._held.get(name)
        if held is None:
            await self._current()
            held = self._held.get(name)
            if held is None:
                raise NoBucket
        if not held.ready.done():
            await asyncio.shield(held.ready)
        return held

    def holding(self, name: str) -> Held | None:
        """A bucket as far as this node knows, if it has its state."""
        held = self._held.get(name)
        return held if held is not None and held.ready.done() else None

    async def _current(self) -> None:
        """Know all buckets that were created before."""
        if not self._ready.is_set():
            await self._ready.wait()
        await self._fresh.wait()
        self.look()

    async def enough(self, object: str) -> None:
        """Wait until most of the nodes that serve clients hold an object: what it is told then is still
        there when one of them dies."""
        while not self._enough(object):
            await asyncio.sleep(POLL_S)

    def _enough(self, object: str) -> bool:
        serving = {each.process.node for each in self._members(self._serving)}
        holding = {each.process.node for each in self._members(GROUP + object)}
        return 2 * len(serving & holding) > len(serving)

    async def create(self, name: str, settings: Settings) -> Held:
        """Have a bucket of this name; one that is there already is left as it is."""
        await self._current()
        await self.enough(REGISTRY)
        while True:
            if await self.registry.create(name, settings) is None:
                raise TooManyBuckets
            self.look()
            held = await self.find(name)
            await held.fresh.wait()
            if not held.bucket.closed:
                await self.enough(held.object)
                return held
            await self.removed(held)

    async def open(self, name: str, history: int) -> Bucket:
        """The bucket of this name for the application, created if it is not there. Raises `ConfigProblem`."""
        bucket = bucket_of(PREFIX + name)
        if bucket is None:
            raise ConfigProblem(f"{name!r} is no name of a bucket: use letters, digits, _ and -")
        wanted = Settings(
            max_msgs_per_subject=history,
            discard="new",
            allow_direct=True,
            allow_rollup_hdrs=True,
            allow_msg_ttl=True,
            deny_delete=True,
        )
        settings = settled(wanted, bucket)
        if isinstance(settings, Problem):
            raise ConfigProblem(f"there is no such bucket as {name!r}: {settings.description}")
        try:
            return (await self.create(bucket, settings)).bucket
        except TooManyBuckets:
            raise ConfigProblem(
                f"there are {MOST_BUCKETS} buckets already: delete one, or use another's keys"
            ) from None

    async def delete(self, name: str) -> None:
        """Have a bucket no longer. Raises `NoBucket`."""
        held = await self.find(name)
        await held.bucket.close()
        await self.removed(held)

    async def removed(self, held: Held) -> None:
        """A bucket was found closed: whoever wanted to delete it may not have come to the end of it."""
        await self.registry.remove(held.name, held.number)
        self.look()
