"""What an application uses: a `Node`, which is one member of a network of them, and the groups it joins.

`ordercast.threads` has the same with calls that block.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from ordercast.core.headers import head_of
from ordercast.core.identity import Configuration, Guarantee, NodeId
from ordercast.errors import NodeClosed, SendTimeout
from ordercast.groups.assembly import assemble
from ordercast.groups.events import Change, Event, Message
from ordercast.groups.local_process import check_group, check_groups, too_large
from ordercast.groups.member import Member
from ordercast.groups.reader import Batches, Inbox, Messages, Reader
from ordercast.groups.receipts import Receipt
from ordercast.groups.send_arguments import level, not_bytes, with_head
from ordercast.groups.settings import MoreSettings
from ordercast.keys import PREFIX, Keyring
from ordercast.objects.election import Election
from ordercast.objects.holding import TTL_S, Holding
from ordercast.objects.lock import Lock
from ordercast.process_groups.views import Member as GroupMember
from ordercast.process_groups.views import Process
from ordercast.replicated.notes import GROUP
from ordercast.replicated.replicated import Replicated
from ordercast.runtime.config import NodeConfig
from ordercast.runtime.environment import Environment, system

if TYPE_CHECKING:
    from ordercast.clients.buckets.bucket import Bucket

Object = TypeVar("Object", bound=Replicated)


class Group:
    """A group, as one member of it: send to it, and iterate over what it delivers.

    Iterating gives messages, members that join and leave, and configurations of nodes, in the order that all
    members share. Several readers of one group join it several times. What a group delivers waits until it is
    read. Beyond a bound, who sends to it has to wait; a reader that then stands still is dropped, and gets
    `Evicted` behind what it had. Who only sends joins with ``receive=False``, and is no member. A group that
    is dropped is left.
    """

    def __init__(self, member: Member, name: str, reader: Reader | None) -> None:
        self.name = name
        self._groups = (name,)
        self._member = member
        self._reader = reader
        self._process = member.processes.outside if reader is None else reader.process
        if reader is not None:
            loop = asyncio.get_running_loop()
            weakref.finalize(self, _leave, loop, reader).atexit = False

    # --- members --------------------------------------------------------------------------------

    @property
    def members(self) -> tuple[GroupMember, ...]:
        """Who is in the group, as this node knows it now: what is read may be of an earlier place in the
        order, and tells who was in it there (`Joined`, `Left`)."""
        if self._reader is None:
            return self._member.processes.members(self.name)
        return self._reader.members

    @property
    def me(self) -> Process | None:
        """This member as the others know it; None if it was joined with ``receive=False``."""
        return None if self._reader is None else self._reader.me

    # --- sending --------------------------------------------------------------------------------

    @overload
    async def send(
        self,
        payload: bytes,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        safe: bool = False,
        resilience: int | None = None,
        timeout: float | None = None,
        receipt: Literal[False] = False,
    ) -> None: ...

    @overload
    async def send(
        self,
        payload: bytes,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        safe: bool = False,
        resilience: int | None = None,
        timeout: float | None = None,
        receipt: Literal[True],
    ) -> Receipt: ...

    async def send(
        self,
        payload: bytes,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        safe: bool = False,
        resilience: int | None = None,
        timeout: float | None = None,
        receipt: bool = False,
    ) -> Receipt | None:
        """Send a message to the group; returns when it is accepted, which waits while the window is full, or
        while readers of the group do not keep up.

        ``safe``: it is delivered only once every member is known to have it. ``resilience``: once so many
        members are, where the protocol has such levels. ``timeout``: seconds to wait at most, then
        `SendTimeout` names who holds the group up. ``receipt``: answer with a `Receipt`.
        ``key`` and ``headers``: texts that go with it, for who receives it (`Message.key`).
        """
        member = self._member
        guarantee = Guarantee.SAFE if safe else Guarantee.AGREED
        if resilience is not None:
            guarantee = level(member.protocol, safe, resilience)
        gate, groups, headed = member.gate, self._groups, False
        if key is not None or headers:
            payload, headed = with_head(payload, key, headers)
        front = self._process.front(groups, headed=headed)
        try:
            whole = front + payload
        except TypeError:
            raise not_bytes(payload) from None
        if len(whole) > gate.largest:
            raise too_large(len(payload), gate.largest - len(front))
        if self.name in gate.slow or not gate.has_room:
            await gate.wait(groups, len(whole), timeout)
            whole = self._process.front(groups, headed=headed) + payload  # there may be another life since
        number = gate.submit((whole,), len(whole), guarantee)
        return Receipt(member.receipts.expect(number)) if receipt else None

    async def send_many(
        self,
        payloads: Sequence[bytes],
        *,
        safe: bool = False,
        resilience: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Send messages, in order: the fast path. They are not one unit: others' may come between them."""
        guarantee = Guarantee.SAFE if safe else Guarantee.AGREED
        if resilience is not None:
            guarantee = level(self._member.protocol, safe, resilience)
        if isinstance(payloads, bytes | bytearray | memoryview | str) or not isinstance(payloads, Sequence):
            raise TypeError(
                f"send_many takes a list of messages, each of them bytes, not {type(payloads).__name__}: "
                "for one message there is send"
            )
        if payloads:
            try:
                await self._process.send(self._groups, payloads, guarantee, timeout)
            except TypeError:
                raise not_bytes(next(p for p in payloads if not isinstance(p, bytes))) from None

    # --- receiving ------------------------------------------------------------------------------

    def batches(self) -> AsyncIterator[Event]:
        """What is delivered, as it came: the messages of a packet together. The fast path."""
        self.read_here()
        return Batches(self._inbox, self)

    def __aiter__(self) -> AsyncIterator[Message | Change]:
        self.read_here()
        return Messages(self._inbox, self)

    def read_here(self) -> None:
        """The running task, or thread, reads this group: it may send where others have to wait for it."""
        self._inbox.read_here()

    def note_reading(self) -> None:
        """The reader goes on with what it got before."""
        self._inbox.moved = True

    async def leave(self) -> None:
        """Receive nothing more, and return when that has its place in the order. What waits to be read is
        dropped."""
        if self._reader is not None:
            await asyncio.shield(self._reader.leave())

    @property
    def _inbox(self) -> Inbox:
        if self._reader is None:
            raise RuntimeError(
                f"the group {self.name} was joined with receive=False: join it once more to read"
            )
        return self._reader.inbox


def _leave(loop: asyncio.AbstractEventLoop, reader: Reader) -> None:
    """A group was dropped, in whichever thread that happened."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(reader.leave)


class Node:
    """One node, and the groups it joins. Start it with ``async with``, or with `start` and `stop`."""

    def __init__(
        self,
        *,
        seeds: Sequence[str] = (),
        peers: Sequence[str] | None = None,
        listen: str | None = None,
        id: int | None = None,
        key: str | bytes | Path | Keyring | None = None,
        data: str | Path | None = None,
        trace: str | Path | None = None,
        log: str | Path | None = None,
        insecure: bool = False,
        protocol: str | None = None,
        settings: Mapping[str, Any] | None = None,
        config: NodeConfig | None = None,
        environment: Environment | None = None,
        **more: Unpack[MoreSettings],
    ) -> None:
        """All is optional: a node without seeds is the first of its group.

        ``protocol`` orders the messages, the same at all nodes (`ordercast protocols` compares them), with
        these ``settings`` of its own.
        ``config`` is a whole configuration, as `ordercast.load_config` reads it; anything else that
        `NodeConfig` knows may be given by name, and overrides it. ``environment``: the world around the node
        where that is not the operating system, as in tests with virtual time (`ordercast.testing`).
        """
        given: dict[str, Any] = {
            "seeds": seeds if isinstance(seeds, str) else tuple(seeds or ()) or None,
            "peers": peers if peers is None or isinstance(peers, str) else tuple(peers),
            "listen": listen,
            "id": id,
            "data": data,
            "trace": trace,
            "log": log,
            "insecure": insecure or None,
            "protocol": protocol,
            "protocol_settings": None if settings is None else dict(settings),
            **more,
        }
        if isinstance(key, Path) or (isinstance(key, str) and key and not key.lstrip().startswith(PREFIX)):
            given["key"] = Path(key)  # a file, which is looked after for changes
            key = None
        known = {name: value for name, value in given.items() if value is not None}
        self._keyring = None if key is None else Keyring.of(key)
        self.config = (config or NodeConfig()).with_changes(**known)
        self._environment = environment
        self._member: Member | None = None
        self._holding: Holding | None = None
        self._starting = False

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bind, find the others, and install the first configuration.

        Where only a primary partition goes on, that can take until enough others are there.
        """
        if self._member is not None or self._starting:
            raise NodeClosed("this node was started before: make a new Node for another life")
        self._starting = True
        try:
            member = await assemble(self.config, self._keyring, self._environment or system())
            await member.begin()
            self._member = member
        finally:
            self._starting = False

    async def stop(self) -> None:
        """Leave: what was accepted is sent first, and the others are told. Stopping again does nothing."""
        if self._member is not None:
            if self._holding is not None:
                await self._holding.close()
            await self._member.stop()

    async def closed(self) -> None:
        """Wait until the node has ended; raises the error that ended it."""
        await self._running.closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def _running(self) -> Member:
        if self._member is None:
            raise NodeClosed(
                "the node is not started: use `async with Node(…) as node`, or await node.start()"
            )
        return self._member

    # --- groups ---------------------------------------------------------------------------------

    async def join(
        self,
        group: str,
        *,
        properties: Mapping[str, str] | None = None,
        receive: bool = True,
        timeout: float | None = None,
    ) -> Group:
        """Be a member of a group, which is created if there is none of that name; returns when the join has
        its place in the order. The group's messages come from there on.

        ``properties``: what the member says of itself, as in ``{"nick": "ann"}``: the others see it.
        ``receive=False``: be no member, and only send. ``timeout``: seconds to wait at most.
        """
        member = self._running
        member.check_open()
        check_group(group)
        if not receive:
            if properties is not None:
                raise ValueError("properties are for members, and with receive=False this is none: drop one")
            return Group(member, group, None)
        member.gate.check_majority()
        reader = member.readers.open(group, properties)
        joined = Group(member, group, reader)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(reader.joined)
        except TimeoutError:
            reader.leave()
            why, holder = member.gate.why_not(group)
            raise SendTimeout(
                f"the group {group} could not be joined for {timeout or 0:g} s: {why}; wait longer, or see "
                "`ordercast status`",
                holder,
            ) from None
        except BaseException:
            reader.leave()
            raise
        return joined

    @overload
    async def send(
        self,
        groups: Sequence[str],
        payload: bytes,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        safe: bool = False,
        resilience: int | None = None,
        timeout: float | None = None,
        receipt: Literal[False] = False,
    ) -> None: ...

    @overload
    async def send(
        self,
        groups: Sequence[str],
        payload: bytes,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        safe: bool = False,
        resilience: int | None = None,
        timeout: float | None = None,
        receipt: Literal[True],
    ) -> Receipt: ...

    async def send(
        self,
        groups: Sequence[str],
        payload: bytes,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        safe: bool = False,
        resilience: int | None = None,
        timeout: float | None = None,
        receipt: bool = False,
    ) -> Receipt | None:
        """Send a message to several groups, from outside: each member of any of them gets it once.

        The rest is as with `Group.send`.
        """
        member = self._running
        guarantee = Guarantee.SAFE if safe else Guarantee.AGREED
        if resilience is not None:
            guarantee = level(member.protocol, safe, resilience)
        if not isinstance(payload, bytes):
            raise not_bytes(payload)
        words = head_of(key, headers)
        heads = None if words is None else (words,)
        send = member.processes.outside.send
        number = await send(check_groups(groups), (payload,), guarantee, timeout, heads=heads)
        return Receipt(member.receipts.expect(number)) if receipt else None

    # --- replicated objects ---------------------------------------------------------------------

    async def replicate(
        self,
        target: Object,
        name: str,
        *,
        durable: str | os.PathLike[str] | None = None,
        level: Literal["memory", "disk", "majority-disk"] | None = None,
        partition: Literal["primary", "merge"] = "primary",
        run: Literal["everywhere", "primary"] = "everywhere",
        history: str | None = None,
        timeout: float | None = None,
    ) -> Object:
        """Replicate an object under a name: its commands are carried out at every node that does, in one
        order. Returns the same object with the state that the others have; the first one has its own.

        ``durable``: a directory in which this node keeps the object, beside others; needs `voters`.
        ``level``: where a command is before it is answered: in the ``"memory"`` of all nodes, on this node's
        ``"disk"``, or on those of a majority of the voters (``"majority-disk"``, as if left out, if durable).
        All nodes give the next three alike. ``partition``: it lives in the ``"primary"`` one alone, or in
        every one, until partitions meet and the class's ``merge`` makes one state of theirs (``"merge"``).
        ``run``: commands run ``"everywhere"``, or at the ``"primary"`` alone. ``history``: a group in which
        all is told (`ordercast.streaming.replica`). ``timeout``: seconds to wait, also for answers.
        """
        member = self._running
        member.check_open()
        check_group(GROUP + name)
        member.gate.check_majority()
        return await member.replicas.replicate(target, name, timeout, durable, level, partition, run, history)

    async def bucket(self, name: str, *, history: int = 1) -> Bucket:
        """The key-value bucket that NATS clients know by this name, at a node that serves `clients`. If there
        is none yet, it is created, and keeps the last `history` values of each key."""
        return await self._running.services.bucket(name, history)

    def lock(self, name: str, *, ttl: float = TTL_S) -> Lock:
        """A lock that one task of all nodes holds at a time: ``async with node.lock("cron") as held``.

        ``ttl``: seconds after which others have it if its holder dies or is cut off. Nodes that name a lock
        or an election keep the state of all of them.
        """
        return Lock(self._leases(), f"lock/{name}", ttl)

    def election(self, name: str, *, ttl: float = TTL_S, says: str = "") -> Election:
        """An election: ``async with node.election("leader") as held`` is a candidate, and leads in the block.

        ``ttl`` is as with `lock`; ``says``: what all nodes know of this one if it leads, as an address.
        """
        return Election(self._leases(), f"election/{name}", ttl, says)

    def _leases(self) -> Holding:
        self._running.check_open()
        if self._holding is None:
            self._holding = Holding(self.replicate)
        return self._holding

    # --- looking --------------------------------------------------------------------------------

    @property
    def id(self) -> NodeId:
        """This node's identifier: the same in all its lives if it has a data directory."""
        return self._running.id

    @property
    def incarnation(self) -> int:
        """Which of its lives this is. It may begin another while it runs: see `Rejoined`."""
        return self._running.incarnation

    @property
    def address(self) -> str:
        """Where others reach it: a seed for them."""
        return self._running.address

    @property
    def client_address(self) -> str | None:
        """Where processes that are no members are served; None if they are not (`clients`)."""
        clients = self._running.services.clients
        return None if clients is None else clients.address

    @property
    def configuration(self) -> Configuration:
        """The configuration installed last."""
        return self._running.configuration

    @property
    def members(self) -> tuple[NodeId, ...]:
        """The members of the configuration installed last."""
        return self.configuration.members

    async def wait_for(
        self, members: int | Collection[NodeId], timeout: float | None = None
    ) -> Configuration:
        """Wait until so many members, or these, share a regular configuration with this node."""
        return await self._running.wait_for(members, timeout)

    def status(self) -> dict[str, Any]:
        """How the node is doing, for people and programs; everything in it can be written as JSON."""
        return self._running.status()
